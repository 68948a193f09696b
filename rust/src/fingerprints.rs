//! How much of a conversation came again exactly as it was [PIPE-16].
//!
//! Two values are the same if everybody reads and writes them alike: of one type, with the same in each of their slots;
//! JSON with its keys in the same order and its numbers spelled alike. To tell, neither has to be at hand: all that it
//! says is hashed under random keys, to 128 bits, and nobody is told either. What cannot be told is like nothing else.

use crate::by_type::{ByType, Entries};
use crate::value_bytes::{next, of, place, tuple_of, Item};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PyString, PyTuple, PyType};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Values inside each other: what is deeper is like nothing else.
const MAX_DEPTH: u32 = 128;
const SIZE: usize = 16;

type Print = [u8; SIZE];

/// What of an instance of a type is hashed, besides its type.
enum Kind {
    /// What it holds at these places, in bytes from its start.
    Slots(Vec<usize>),
    /// Its members, in order.
    Object,
    /// Its items.
    Array,
    /// What `str` makes of it, which is the interpreter's own.
    Text,
    /// Nothing: there is no telling.
    Odd,
}

/// Hashes values; `slots_of` is asked once for each type: the names of its slots, `"object"`, `"array"`, `"text"` or `"odd"`.
#[pyclass(frozen, name = "Fingerprints", module = "cmf._native")]
pub struct Fingerprints {
    slots_of: Py<PyAny>,
    kinds: ByType<Kind>,
    keys: [RandomState; 2],
    odd: AtomicU64,
}

#[pymethods]
impl Fingerprints {
    #[new]
    fn new(slots_of: Py<PyAny>) -> Self {
        let keys = [RandomState::new(), RandomState::new()];
        Self { slots_of, kinds: ByType::default(), keys, odd: AtomicU64::new(0) }
    }

    /// How many of `given` at the beginning are as those of `held`, whose fingerprints are `known`; and theirs.
    fn again<'py>(
        &self,
        held: &Bound<'py, PyTuple>,
        known: &[u8],
        given: &Bound<'py, PyTuple>,
    ) -> PyResult<(usize, Bound<'py, PyBytes>)> {
        let mut known = known.chunks_exact(SIZE);
        let (mut prints, mut bytes) = (Vec::with_capacity(given.len() * SIZE), Vec::new());
        let mut alike = 0;
        for (at, item) in given.iter_borrowed().enumerate() {
            let before = known.next();
            match before.filter(|_| held.get_borrowed_item(at).is_ok_and(|old| old.is(&*item))) {
                Some(print) => prints.extend_from_slice(print),
                None => prints.extend_from_slice(&self.print(item, &mut bytes)?),
            }
            if alike == at && before == prints.get(at * SIZE..) {
                alike += 1;
            }
        }
        Ok((alike, PyBytes::new(given.py(), &prints)))
    }
}

impl Fingerprints {
    fn print(&self, item: Item<'_, '_>, bytes: &mut Vec<u8>) -> PyResult<Print> {
        let mut kinds = self.kinds.known();
        loop {
            bytes.clear();
            match (Said { kinds: &kinds, bytes }).value(item, MAX_DEPTH) {
                Ok(()) => return Ok(self.hashed(bytes)),
                Err(Stop::Type(cls)) => kinds = self.learn(cls.bind(item.py()))?,
                Err(Stop::Odd) => {
                    let number = self.odd.fetch_add(1, Ordering::Relaxed);
                    return Ok(self.hashed(&[&b"odd"[..], &number.to_le_bytes()].concat()));
                }
            }
        }
    }

    fn hashed(&self, bytes: &[u8]) -> Print {
        let [one, other] = &self.keys;
        (u128::from(one.hash_one(bytes)) << 64 | u128::from(other.hash_one(bytes))).to_le_bytes()
    }

    fn learn(&self, cls: &Bound<'_, PyType>) -> PyResult<Arc<Entries<Kind>>> {
        let said = self.slots_of.bind(cls.py()).call1((cls,))?;
        let kind = if let Ok(names) = said.cast::<PyTuple>() {
            Kind::Slots(names.iter().map(|name| place(cls, name.cast::<PyString>()?)).collect::<PyResult<_>>()?)
        } else {
            match said.extract::<String>()?.as_str() {
                "object" => Kind::Object,
                "array" => Kind::Array,
                "text" => Kind::Text,
                "odd" => Kind::Odd,
                _ => return Err(PyValueError::new_err("no such kind")),
            }
        };
        Ok(self.kinds.learn(cls, kind))
    }
}

/// Why nothing was said.
enum Stop {
    /// There is no telling.
    Odd,
    /// A type of which Python has to be asked.
    Type(Py<PyType>),
}

/// What the interpreter says here is dropped: the value is like nothing else.
impl From<PyErr> for Stop {
    fn from(_: PyErr) -> Self {
        Self::Odd
    }
}

/// All that values say, as bytes of which no two values have the same: each begins with what it is, and how long.
struct Said<'a> {
    kinds: &'a Entries<Kind>,
    bytes: &'a mut Vec<u8>,
}

impl Said<'_> {
    fn value(&mut self, item: Item<'_, '_>, depth: u32) -> Result<(), Stop> {
        let depth = depth.checked_sub(1).ok_or(Stop::Odd)?;
        if item.is_none() {
            self.bytes.push(b'n');
        } else if let Ok(held) = item.cast_exact::<PyString>() {
            self.sized(b's', held.to_str()?.as_bytes());
        } else if let Ok(items) = item.cast_exact::<PyTuple>() {
            self.items(b'(', &items, depth)?;
        } else if let Ok(members) = item.cast_exact::<PyDict>() {
            self.members(&members, depth)?;
        } else if let Ok(items) = item.cast_exact::<PyList>() {
            self.items(b'[', &items.to_tuple(), depth)?;
        } else if let Ok(held) = item.cast_exact::<PyBool>() {
            self.bytes.push(if held.is_true() { b't' } else { b'f' });
        } else if item.is_exact_instance_of::<PyInt>() {
            match item.extract::<i64>() {
                Ok(number) => self.begin(b'i', number as usize),
                Err(_) => self.sized(b'I', item.str()?.to_str()?.as_bytes()),
            }
        } else if let Ok(held) = item.cast_exact::<PyFloat>() {
            self.begin(b'd', held.value().to_bits() as usize);
        } else if let Ok(held) = item.cast_exact::<PyBytes>() {
            self.sized(b'b', held.as_bytes());
        } else if let Ok(items) = item.cast_exact::<PyFrozenSet>() {
            self.texts(&items)?;
        } else {
            self.typed(item, depth)?;
        }
        Ok(())
    }

    fn typed(&mut self, item: Item<'_, '_>, depth: u32) -> Result<(), Stop> {
        let address = item.get_type_ptr() as usize;
        match self.kinds.get(address).ok_or_else(|| Stop::Type(item.get_type().unbind()))? {
            Kind::Slots(places) => {
                self.begin(b'o', address);
                for at in places {
                    match of(&item, *at) {
                        Some(held) if held.is_none() => self.bytes.push(b'n'), // as most are
                        Some(held) => self.value(held, depth)?,
                        None => return Err(Stop::Odd),
                    }
                }
            }
            // Of one of several types, by how far it was looked into.
            Kind::Object => self.members(&*item.cast::<PyDict>().map_err(|_| Stop::Odd)?, depth)?,
            Kind::Array => self.items(b'[', &item.cast::<PyList>().map_err(|_| Stop::Odd)?.to_tuple(), depth)?,
            Kind::Text => {
                self.begin(b'o', address);
                match item.cast::<PyString>() {
                    Ok(text) => self.sized(b's', text.to_str()?.as_bytes()),
                    Err(_) => self.sized(b's', item.str()?.to_str()?.as_bytes()),
                }
            }
            Kind::Odd => return Err(Stop::Odd),
        }
        Ok(())
    }

    fn members(&mut self, members: &Bound<'_, PyDict>, depth: u32) -> Result<(), Stop> {
        self.begin(b'{', members.len());
        let mut place = 0;
        while let Some((key, member)) = next(members, &mut place) {
            self.value(key, depth)?;
            self.value(member, depth)?;
        }
        Ok(())
    }

    /// In the order of their characters.
    fn texts(&mut self, items: &Bound<'_, PyFrozenSet>) -> Result<(), Stop> {
        let held = tuple_of(items.as_any())?;
        let held: Result<Vec<_>, _> = held.iter_borrowed().map(|each| each.cast_exact::<PyString>()).collect();
        let held = held.map_err(|_| Stop::Odd)?;
        let mut texts = held.iter().map(|each| each.to_str()).collect::<PyResult<Vec<_>>>()?;
        texts.sort_unstable();
        self.begin(b'<', texts.len());
        texts.iter().for_each(|each| self.sized(b's', each.as_bytes()));
        Ok(())
    }

    fn items(&mut self, what: u8, items: &Bound<'_, PyTuple>, depth: u32) -> Result<(), Stop> {
        self.begin(what, items.len());
        items.iter_borrowed().try_for_each(|item| self.value(item, depth))
    }

    fn sized(&mut self, what: u8, bytes: &[u8]) {
        self.begin(what, bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// What it is and its length, or the number that it is: one byte each, where that says it.
    fn begin(&mut self, what: u8, number: usize) {
        match u8::try_from(number) {
            Ok(small) => self.bytes.extend_from_slice(&[what, small]),
            Err(_) => {
                self.bytes.push(what | 0x80);
                self.bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
    }
}

/// How many items at the beginning are the very same objects. Only where they are is looked at, never what they are.
pub(crate) fn same_start(held: &Bound<'_, PyAny>, given: &Bound<'_, PyAny>) -> PyResult<usize> {
    let (held, given) = (Row::of(held)?, Row::of(given)?);
    let both = held.len().min(given.len());
    Ok((0..both).find(|at| held.address(*at) != given.address(*at)).unwrap_or(both))
}

enum Row<'py> {
    Tuple(Bound<'py, PyTuple>),
    List(Bound<'py, PyList>),
}

impl<'py> Row<'py> {
    fn of(items: &Bound<'py, PyAny>) -> PyResult<Self> {
        match items.cast::<PyList>() {
            Ok(list) => Ok(Self::List(list.clone())),
            Err(_) => tuple_of(items).map(Self::Tuple),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Tuple(items) => items.len(),
            Self::List(items) => items.len(),
        }
    }

    fn address(&self, at: usize) -> *mut ffi::PyObject {
        // SAFETY: a tuple or list of more items than that, as no code runs that could change it, and the interpreter is
        // attached. What is given back is borrowed, and only compared.
        unsafe {
            match self {
                Self::Tuple(items) => ffi::PyTuple_GetItem(items.as_ptr(), at as ffi::Py_ssize_t),
                Self::List(items) => ffi::PyList_GetItem(items.as_ptr(), at as ffi::Py_ssize_t),
            }
        }
    }
}
