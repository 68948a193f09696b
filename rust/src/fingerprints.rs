//! How much of a conversation came again exactly as it was [PIPE-16].
//!
//! Two values are the same if everybody reads and writes them alike: of one type, with the same in each of their slots;
//! JSON with its keys in the same order and its numbers spelled alike. To tell, neither has to be at hand: all that it
//! says is hashed under random keys (`polynomial`), and nobody is told either. What cannot be told is like nothing else.

use crate::by_type::{ByType, Entries};
use crate::polynomial::{Print, Secret};
use crate::rows::{addresses, alike};
use crate::value_bytes::{next, of, place, tuple_of, Item};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFrozenSet, PyList, PyString, PyTuple, PyType};
use pyo3::{ffi, Borrowed};
use std::ptr::addr_of_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Values inside each other: what is deeper is like nothing else.
const MAX_DEPTH: u32 = 128;
const SIZE: usize = size_of::<Print>();
/// Of a type: which of them hold something is a number of so many bits.
const MAX_SLOTS: usize = 64;

/// A type that is no JSON of the interpreter's own, and what of an instance is hashed.
struct Kind {
    /// What the type is called in what is hashed: no other has the same.
    number: usize,
    said: Told,
}

enum Told {
    /// What it holds at these places, in bytes from its start.
    Slots(Vec<usize>),
    /// Its members, in order.
    Object,
    /// Its items.
    Array,
    /// What `str` makes of it, which is the interpreter's own; or which of these it is, by its place among them.
    Text(Vec<Py<PyAny>>),
    /// Nothing: there is no telling.
    Odd,
}

/// Hashes values; `slots_of` is asked once for each type: the names of its slots, `"object"`, `"array"`, `"text"` or `"odd"`.
#[pyclass(frozen, name = "Fingerprints", module = "cmf._native")]
pub struct Fingerprints {
    slots_of: Py<PyAny>,
    kinds: ByType<Kind>,
    secret: Secret,
    learned: AtomicUsize,
    odd: AtomicUsize,
}

#[pymethods]
impl Fingerprints {
    #[new]
    fn new(slots_of: Py<PyAny>) -> Self {
        let (learned, odd) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { slots_of, kinds: ByType::default(), secret: Secret::new(), learned, odd }
    }

    /// How many of `given` at the beginning are as those of `held`, whose fingerprints are `known`; and theirs.
    fn again<'py>(
        &self,
        held: &Bound<'py, PyTuple>,
        known: &Bound<'py, PyBytes>,
        given: &Bound<'py, PyTuple>,
    ) -> PyResult<(usize, Bound<'py, PyBytes>)> {
        let old = known.as_bytes();
        let (before, now) = (addresses(held), addresses(given));
        let start = alike(before, now).min(old.len() / SIZE);
        if start == given.len() && start * SIZE == old.len() {
            return Ok((start, known.clone()));
        }
        let mut prints = Vec::with_capacity(given.len() * SIZE);
        prints.extend_from_slice(&old[..start * SIZE]);
        let (mut same, mut bytes, mut kinds) = (start, Vec::new(), self.kinds.known());
        for (at, item) in given.iter_borrowed().enumerate().skip(start) {
            let print = old.get(at * SIZE..(at + 1) * SIZE);
            match print.filter(|_| before.get(at).is_some_and(|address| now.get(at) == Some(address))) {
                Some(print) => prints.extend_from_slice(print),
                None => prints.extend_from_slice(&self.print(item, &mut bytes, &mut kinds)?),
            }
            if same == at && print == prints.get(at * SIZE..) {
                same += 1;
            }
        }
        Ok((same, PyBytes::new(given.py(), &prints)))
    }
}

impl Fingerprints {
    fn print(&self, item: Item<'_, '_>, bytes: &mut Vec<u8>, kinds: &mut Arc<Entries<Kind>>) -> PyResult<Print> {
        loop {
            bytes.clear();
            match (Said { kinds, bytes }).value(item, MAX_DEPTH) {
                Ok(()) => return Ok(self.secret.print(bytes)),
                Err(Stop::Type(cls)) => *kinds = self.learn(cls.bind(item.py()))?,
                Err(Stop::Odd) => {
                    let number = self.odd.fetch_add(1, Ordering::Relaxed);
                    return Ok(self.secret.print(&[&b"odd"[..], &number.to_le_bytes()].concat()));
                }
            }
        }
    }

    fn learn(&self, cls: &Bound<'_, PyType>) -> PyResult<Arc<Entries<Kind>>> {
        let said = self.slots_of.bind(cls.py()).call1((cls,))?;
        let said = if let Ok(names) = said.cast::<PyTuple>() {
            let places = names.iter().map(|name| place(cls, name.cast::<PyString>()?)).collect::<PyResult<Vec<_>>>()?;
            if places.len() > MAX_SLOTS {
                Told::Odd
            } else {
                Told::Slots(places)
            }
        } else {
            match said.extract::<String>()?.as_str() {
                "object" => Told::Object,
                "array" => Told::Array,
                "text" => Told::Text(members_of(cls)),
                "odd" => Told::Odd,
                _ => return Err(PyValueError::new_err("no such kind")),
            }
        };
        let number = self.learned.fetch_add(1, Ordering::Relaxed);
        Ok(self.kinds.learn(cls, Kind { number, said }))
    }
}

/// The members of an enumeration, which are the only ones; none of another type.
fn members_of(cls: &Bound<'_, PyType>) -> Vec<Py<PyAny>> {
    let Ok(members) = cls.try_iter() else { return Vec::new() };
    members.filter_map(Result::ok).map(Bound::unbind).collect()
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
    /// Asked by its type alone: a cast that fails takes longer than all that is said of most values.
    fn value(&mut self, item: Item<'_, '_>, depth: u32) -> Result<(), Stop> {
        let cls = item.get_type_ptr();
        if cls == addr_of_mut!(ffi::PyUnicode_Type) {
            self.text(item)
        } else if item.is_none() {
            self.bytes.push(b'n');
            Ok(())
        } else if cls == addr_of_mut!(ffi::PyLong_Type) {
            self.number(item)
        } else if cls == addr_of_mut!(ffi::PyBool_Type) {
            self.bytes.push(if item.cast::<PyBool>().map_err(|_| Stop::Odd)?.is_true() { b't' } else { b'f' });
            Ok(())
        } else if cls == addr_of_mut!(ffi::PyFloat_Type) {
            self.begin(b'd', item.extract::<f64>()?.to_bits() as usize);
            Ok(())
        } else {
            self.holding(item, cls, depth.checked_sub(1).ok_or(Stop::Odd)?)
        }
    }

    fn holding(&mut self, item: Item<'_, '_>, cls: *mut ffi::PyTypeObject, depth: u32) -> Result<(), Stop> {
        if cls == addr_of_mut!(ffi::PyTuple_Type) {
            self.items(b'(', item.cast::<PyTuple>().map_err(|_| Stop::Odd)?, depth)
        } else if cls == addr_of_mut!(ffi::PyDict_Type) {
            self.members(item, depth)
        } else if cls == addr_of_mut!(ffi::PyList_Type) {
            self.array(item, depth)
        } else if cls == addr_of_mut!(ffi::PyBytes_Type) {
            self.sized(b'b', item.cast::<PyBytes>().map_err(|_| Stop::Odd)?.as_bytes());
            Ok(())
        } else if cls == addr_of_mut!(ffi::PyFrozenSet_Type) {
            self.texts(item.cast::<PyFrozenSet>().map_err(|_| Stop::Odd)?)
        } else {
            self.typed(item, cls as usize, depth)
        }
    }

    fn typed(&mut self, item: Item<'_, '_>, address: usize, depth: u32) -> Result<(), Stop> {
        let kind = self.kinds.get(address).ok_or_else(|| Stop::Type(item.get_type().unbind()))?;
        match &kind.said {
            Told::Slots(places) => {
                self.begin(b'o', kind.number);
                // Most hold nothing: which do is one number, before what they hold.
                let (at_number, mut filled) = (self.bytes.len(), 0_u64);
                self.bytes.extend_from_slice(&filled.to_le_bytes());
                for (bit, at) in places.iter().enumerate() {
                    let held = of(&item, *at).ok_or(Stop::Odd)?;
                    if !held.is_none() {
                        filled |= 1 << bit;
                        self.value(held, depth)?;
                    }
                }
                self.bytes[at_number..at_number + size_of::<u64>()].copy_from_slice(&filled.to_le_bytes());
                Ok(())
            }
            // Of one of several types, by how far it was looked into.
            Told::Object => self.members(item, depth),
            Told::Array => self.array(item, depth),
            Told::Text(members) => {
                if let Some(at) = members.iter().position(|member| member.as_ptr() == item.as_ptr()) {
                    self.begin(b'm', kind.number);
                    self.begin(b'i', at);
                    return Ok(());
                }
                self.begin(b'o', kind.number);
                match item.is_instance_of::<PyString>() {
                    true => self.text(item),
                    false => self.text(item.str()?.as_any().as_borrowed()),
                }
            }
            Told::Odd => Err(Stop::Odd),
        }
    }

    fn members(&mut self, item: Item<'_, '_>, depth: u32) -> Result<(), Stop> {
        let members = item.cast::<PyDict>().map_err(|_| Stop::Odd)?;
        self.begin(b'{', members.len());
        let mut place = 0;
        while let Some((key, member)) = next(&members, &mut place) {
            self.value(key, depth)?;
            self.value(member, depth)?;
        }
        Ok(())
    }

    fn array(&mut self, item: Item<'_, '_>, depth: u32) -> Result<(), Stop> {
        self.items(b'[', item.cast::<PyList>().map_err(|_| Stop::Odd)?.to_tuple().as_borrowed(), depth)
    }

    fn items(&mut self, what: u8, items: Borrowed<'_, '_, PyTuple>, depth: u32) -> Result<(), Stop> {
        self.begin(what, items.len());
        items.iter_borrowed().try_for_each(|item| self.value(item, depth))
    }

    /// In the order of their characters.
    fn texts(&mut self, items: Borrowed<'_, '_, PyFrozenSet>) -> Result<(), Stop> {
        let held = tuple_of(items.as_any())?;
        let held: Result<Vec<_>, _> = held.iter_borrowed().map(|each| each.cast_exact::<PyString>()).collect();
        let held = held.map_err(|_| Stop::Odd)?;
        let mut texts = held.iter().map(|each| each.to_str()).collect::<PyResult<Vec<_>>>()?;
        texts.sort_unstable();
        self.begin(b'<', texts.len());
        texts.iter().for_each(|each| self.sized(b's', each.as_bytes()));
        Ok(())
    }

    fn text(&mut self, item: Item<'_, '_>) -> Result<(), Stop> {
        let mut size = 0;
        // SAFETY: what is no text is refused, with an error; what is given back are so many bytes that the text keeps.
        let bytes = unsafe {
            let start = ffi::PyUnicode_AsUTF8AndSize(item.as_ptr(), &mut size);
            if start.is_null() {
                return Err(PyErr::fetch(item.py()).into());
            }
            std::slice::from_raw_parts(start.cast::<u8>(), size as usize)
        };
        self.sized(b's', bytes);
        Ok(())
    }

    fn number(&mut self, item: Item<'_, '_>) -> Result<(), Stop> {
        match item.extract::<i64>() {
            Ok(number) => self.begin(b'i', number as usize),
            Err(_) => self.sized(b'I', item.str()?.to_str()?.as_bytes()),
        }
        Ok(())
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
