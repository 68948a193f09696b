//! Fingerprints of messages, which tell how much of a conversation came before exactly as it comes now [PIPE-16].
//!
//! Two values are the same if they are of one type, with the same values in each of their slots; JSON also has its keys
//! in the same order and its numbers in the same spelling. Neither value has to be kept: everything in it is hashed
//! with BLAKE3 under a random key. A value that cannot be hashed is equal to no other.

use crate::python::type_table::{Entries, TypeTable};
use crate::python::value_writer::{next, of, place, sorted_texts, tuple_of, Item};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFrozenSet, PyList, PyString, PyTuple, PyType};
use pyo3::{ffi, Borrowed};
use std::hash::{BuildHasher, RandomState};
use std::ptr::addr_of_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Levels of nesting: a value with more is equal to no other.
const MAX_DEPTH: u32 = 128;
/// Bytes of a fingerprint: the beginning of a BLAKE3 hash.
const SIZE: usize = 16;
/// Slots of one type: a number with a bit for each tells which are set.
const MAX_SLOTS: usize = 64;

/// A type beside the interpreter's own for JSON, and what of its instances is hashed.
struct Kind {
    /// The number that stands for the type in what is hashed.
    number: usize,
    hashed: Hashed,
}

enum Hashed {
    /// The objects in its slots, by their offsets in bytes.
    Slots(Vec<usize>),
    /// The members of a dict, in order.
    Object,
    /// The items of a list.
    Array,
    /// Its `str()`; or the index of an enumeration's member among these.
    Text(Vec<Py<PyAny>>),
    /// Nothing: it cannot be hashed.
    Unsupported,
}

/// Hashes values. `slots_of` is asked once for each type: it gives the names of its slots, `"object"`, `"array"`,
/// `"text"` or `"odd"` for a type that cannot be hashed.
#[pyclass(frozen, name = "Fingerprints", module = "cmf._native")]
pub struct Fingerprints {
    slots_of: Py<PyAny>,
    kinds: TypeTable<Kind>,
    key: [u8; blake3::KEY_LEN],
    learned: AtomicUsize,
    odd: AtomicUsize,
}

#[pymethods]
impl Fingerprints {
    #[new]
    fn new(slots_of: Py<PyAny>) -> Self {
        let (learned, odd) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { slots_of, kinds: TypeTable::default(), key: random_key(), learned, odd }
    }

    /// How many items at the beginning of `given` are the same as in `held`, whose fingerprints are `known`; and the
    /// fingerprints of `given`.
    fn again<'py>(
        &self,
        held: &Bound<'py, PyTuple>,
        known: &Bound<'py, PyBytes>,
        given: &Bound<'py, PyTuple>,
    ) -> PyResult<(usize, Bound<'py, PyBytes>)> {
        let old = known.as_bytes();
        let start = same_items(held, given).min(old.len() / SIZE);
        if start == given.len() && start * SIZE == old.len() {
            return Ok((start, known.clone()));
        }
        let mut prints = Vec::with_capacity(given.len() * SIZE);
        prints.extend_from_slice(&old[..start * SIZE]);
        let (mut same, mut bytes, mut kinds) = (start, Vec::new(), self.kinds.snapshot());
        for (at, item) in given.iter_borrowed().enumerate().skip(start) {
            let print = old.get(at * SIZE..(at + 1) * SIZE);
            match print.filter(|_| held.get_borrowed_item(at).is_ok_and(|before| before.is(item))) {
                Some(print) => prints.extend_from_slice(print),
                None => prints.extend_from_slice(&self.fingerprint(item, &mut bytes, &mut kinds)?),
            }
            if same == at && print == prints.get(at * SIZE..) {
                same += 1;
            }
        }
        Ok((same, PyBytes::new(given.py(), &prints)))
    }
}

impl Fingerprints {
    fn fingerprint(
        &self,
        item: Item<'_, '_>,
        bytes: &mut Vec<u8>,
        kinds: &mut Arc<Entries<Kind>>,
    ) -> PyResult<[u8; SIZE]> {
        loop {
            bytes.clear();
            match (Serializer { kinds, bytes }).value(item, MAX_DEPTH) {
                Ok(()) => return Ok(self.hash(bytes)),
                Err(Stop::Type(cls)) => *kinds = self.ask(cls.bind(item.py()))?,
                Err(Stop::Unsupported) => {
                    let number = self.odd.fetch_add(1, Ordering::Relaxed);
                    return Ok(self.hash(&[&b"odd"[..], &number.to_le_bytes()].concat()));
                }
            }
        }
    }

    fn hash(&self, bytes: &[u8]) -> [u8; SIZE] {
        let mut print = [0; SIZE];
        print.copy_from_slice(&blake3::keyed_hash(&self.key, bytes).as_bytes()[..SIZE]);
        print
    }

    fn ask(&self, cls: &Bound<'_, PyType>) -> PyResult<Arc<Entries<Kind>>> {
        let told = self.slots_of.bind(cls.py()).call1((cls,))?;
        let told = if let Ok(names) = told.cast::<PyTuple>() {
            let places = names.iter().map(|name| place(cls, name.cast::<PyString>()?)).collect::<PyResult<Vec<_>>>()?;
            if places.len() > MAX_SLOTS {
                Hashed::Unsupported
            } else {
                Hashed::Slots(places)
            }
        } else {
            match told.extract::<String>()?.as_str() {
                "object" => Hashed::Object,
                "array" => Hashed::Array,
                "text" => Hashed::Text(members_of(cls)),
                "odd" => Hashed::Unsupported,
                _ => return Err(PyValueError::new_err("no such kind")),
            }
        };
        let number = self.learned.fetch_add(1, Ordering::Relaxed);
        Ok(self.kinds.add(cls, Kind { number, hashed: told }))
    }
}

fn random_key() -> [u8; blake3::KEY_LEN] {
    let mut key = [0; blake3::KEY_LEN];
    for word in key.chunks_exact_mut(size_of::<u64>()) {
        word.copy_from_slice(&RandomState::new().hash_one(0_u8).to_le_bytes());
    }
    key
}

/// How many items at the beginning of two sequences are the same objects; their values are not compared.
pub(crate) fn same_start(held: &Bound<'_, PyAny>, given: &Bound<'_, PyAny>) -> PyResult<usize> {
    if held.is(given) {
        return held.len();
    }
    Ok(same_items(&tuple_of(held)?, &tuple_of(given)?))
}

fn same_items(held: &Bound<'_, PyTuple>, given: &Bound<'_, PyTuple>) -> usize {
    held.iter_borrowed().zip(given.iter_borrowed()).take_while(|(one, other)| one.is(*other)).count()
}

/// The members of an enumeration; none for another type.
fn members_of(cls: &Bound<'_, PyType>) -> Vec<Py<PyAny>> {
    let Ok(members) = cls.try_iter() else { return Vec::new() };
    members.filter_map(Result::ok).map(Bound::unbind).collect()
}

/// Why a value was not serialized.
enum Stop {
    /// It cannot be hashed.
    Unsupported,
    /// Python has to be asked about this type.
    Type(Py<PyType>),
}

/// The exception is dropped: the value is equal to no other.
impl From<PyErr> for Stop {
    fn from(_: PyErr) -> Self {
        Self::Unsupported
    }
}

/// Serializes values, different ones to different bytes: each begins with its type and length.
struct Serializer<'a> {
    kinds: &'a Entries<Kind>,
    bytes: &'a mut Vec<u8>,
}

impl Serializer<'_> {
    /// Tests the type itself: a cast that fails takes longer than serializing most values.
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
            self.bytes.push(if item.cast::<PyBool>().map_err(|_| Stop::Unsupported)?.is_true() { b't' } else { b'f' });
            Ok(())
        } else if cls == addr_of_mut!(ffi::PyFloat_Type) {
            self.begin(b'd', item.extract::<f64>()?.to_bits() as usize);
            Ok(())
        } else {
            self.holding(item, cls, depth.checked_sub(1).ok_or(Stop::Unsupported)?)
        }
    }

    fn holding(&mut self, item: Item<'_, '_>, cls: *mut ffi::PyTypeObject, depth: u32) -> Result<(), Stop> {
        if cls == addr_of_mut!(ffi::PyTuple_Type) {
            self.items(b'(', item.cast::<PyTuple>().map_err(|_| Stop::Unsupported)?, depth)
        } else if cls == addr_of_mut!(ffi::PyDict_Type) {
            self.members(item, depth)
        } else if cls == addr_of_mut!(ffi::PyList_Type) {
            self.array(item, depth)
        } else if cls == addr_of_mut!(ffi::PyBytes_Type) {
            self.sized(b'b', item.cast::<PyBytes>().map_err(|_| Stop::Unsupported)?.as_bytes());
            Ok(())
        } else if cls == addr_of_mut!(ffi::PyFrozenSet_Type) {
            self.texts(item.cast::<PyFrozenSet>().map_err(|_| Stop::Unsupported)?)
        } else {
            self.typed(item, cls as usize, depth)
        }
    }

    fn typed(&mut self, item: Item<'_, '_>, address: usize, depth: u32) -> Result<(), Stop> {
        let kind = self.kinds.get(address).ok_or_else(|| Stop::Type(item.get_type().unbind()))?;
        match &kind.hashed {
            Hashed::Slots(places) => {
                self.begin(b'o', kind.number);
                // Most slots are None: one number tells which are not.
                let (at_number, mut filled) = (self.bytes.len(), 0_u64);
                self.bytes.extend_from_slice(&filled.to_le_bytes());
                for (bit, at) in places.iter().enumerate() {
                    let held = of(&item, *at).ok_or(Stop::Unsupported)?;
                    if !held.is_none() {
                        filled |= 1 << bit;
                        self.value(held, depth)?;
                    }
                }
                self.bytes[at_number..at_number + size_of::<u64>()].copy_from_slice(&filled.to_le_bytes());
                Ok(())
            }
            // Such a type stands for JSON whatever it is, so its number is left out.
            Hashed::Object => self.members(item, depth),
            Hashed::Array => self.array(item, depth),
            Hashed::Text(members) => {
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
            Hashed::Unsupported => Err(Stop::Unsupported),
        }
    }

    fn members(&mut self, item: Item<'_, '_>, depth: u32) -> Result<(), Stop> {
        let members = item.cast::<PyDict>().map_err(|_| Stop::Unsupported)?;
        self.begin(b'{', members.len());
        let mut place = 0;
        while let Some((key, member)) = next(&members, &mut place) {
            self.value(key, depth)?;
            self.value(member, depth)?;
        }
        Ok(())
    }

    fn array(&mut self, item: Item<'_, '_>, depth: u32) -> Result<(), Stop> {
        self.items(b'[', item.cast::<PyList>().map_err(|_| Stop::Unsupported)?.to_tuple().as_borrowed(), depth)
    }

    fn items(&mut self, what: u8, items: Borrowed<'_, '_, PyTuple>, depth: u32) -> Result<(), Stop> {
        self.begin(what, items.len());
        items.iter_borrowed().try_for_each(|item| self.value(item, depth))
    }

    fn texts(&mut self, items: Borrowed<'_, '_, PyFrozenSet>) -> Result<(), Stop> {
        let texts = sorted_texts(&items)?;
        self.begin(b'<', texts.len());
        texts.iter().for_each(|each| self.sized(b's', each.as_bytes()));
        Ok(())
    }

    fn text(&mut self, item: Item<'_, '_>) -> Result<(), Stop> {
        let mut size = 0;
        // SAFETY: for what is not a string the result is null, with an error; otherwise it is that many bytes, which
        // the string keeps.
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

    /// Writes a type and a length or number, in one byte each if the number fits.
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
