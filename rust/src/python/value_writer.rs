//! Writes Python values as the JSON that `cmf.json.value.to_bytes` gives, byte for byte, but faster [INP-6].
//!
//! How a type is written comes from Python (`cmf.json.value.form_of`), which is asked once for each. Unusual values are
//! `Unsupported` here and left to Python: a lone surrogate, a key that is not a string, a number that does not fit 64
//! bits or is written with an exponent, too many levels, a type without a form.
//!
//! No Python code is called while a value is written: if Python has to be asked, writing stops, asks, and starts again.
//! The garbage collector may still run Python code (CPython 3.11 collects while it makes the iterator of a set), so
//! references are held to everything that is walked; only leaves are borrowed, and used at once.
//!
//! An exact writer writes different values to different bytes, for [`fingerprints`](crate::python::fingerprints): types
//! are told apart, and numbers, bytes and times are written that have no JSON form here.

use crate::json::write_text;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PyString, PyTuple, PyType};
use pyo3::{ffi, Borrowed, PyTypeCheck, PyTypeInfo};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Levels of nesting: what is deeper is left to Python.
const MAX_DEPTH: u32 = 128;
/// How many objects Python converts while one value is written.
const MAX_MADE: usize = 64;
/// The largest buffer, in bytes, that a thread keeps for its next value.
const KEPT: usize = 1 << 20;
/// Fractions that are written without an exponent everywhere.
const PLAIN: std::ops::Range<f64> = 1e-5..1e16;

pub(crate) type Item<'a, 'py> = Borrowed<'a, 'py, PyAny>;

/// Why nothing was written.
pub(crate) enum Stop {
    /// The value is left to Python.
    Unsupported,
    /// Python has to tell how this type is written.
    Type(Py<PyType>),
    /// Python has to convert this object into one that can be written.
    Make(Py<PyAny>),
}

/// The exception is dropped: Python, which writes the value then, will raise it again.
impl From<PyErr> for Stop {
    fn from(_: PyErr) -> Self {
        Self::Unsupported
    }
}

pub(crate) type Written = Result<(), Stop>;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// When a field is left out.
enum Absent {
    Never,
    /// If it is the default itself.
    Same,
    /// Also if it is empty, and of the default's type.
    Empty,
    /// Also if it equals the default, and is of its type.
    Equal,
    /// Also if it is of the default's type, and is written as `{}`.
    Blank,
}

struct Field {
    /// Its offset in an instance, in bytes.
    place: usize,
    /// The name as JSON, with its colon.
    key: Vec<u8>,
    default: Py<PyAny>,
    absent: Absent,
}

enum Form {
    /// Its `str()`. An exact writer tells the members of an enumeration, which these are, from other texts.
    Text(Vec<Py<PyAny>>),
    Object,
    Array,
    Set,
    Fields(Vec<Field>),
    Made(Py<PyAny>),
}

/// What Python told of its types, by their addresses. Each type is kept alive, so that no other gets its address.
type Forms = HashMap<usize, Arc<(Py<PyType>, Form)>>;

/// Writes values; `form_of` is asked once for each type.
#[pyclass(frozen, name = "ValueWriter", module = "cmf._native")]
pub struct ValueWriter {
    form_of: Py<PyAny>,
    /// No lock is held while Python runs, which may wait for another thread.
    forms: Mutex<Arc<Forms>>,
    is_exact: bool,
}

#[pymethods]
impl ValueWriter {
    #[new]
    fn new(form_of: Py<PyAny>) -> Self {
        Self { form_of, forms: Mutex::default(), is_exact: false }
    }

    /// The bytes that `cmf.json.value.to_bytes` gives, or None: then it has to be asked.
    fn write<'py>(&self, item: &Bound<'py, PyAny>) -> Option<Bound<'py, PyBytes>> {
        let mut out = SPARE.take();
        let bytes = self.write_asking(item, &mut out).ok().map(|()| PyBytes::new(item.py(), &out));
        if out.capacity() <= KEPT {
            SPARE.set(out);
        }
        bytes
    }
}

impl ValueWriter {
    pub(crate) fn exact(form_of: Py<PyAny>) -> Self {
        Self { is_exact: true, ..Self::new(form_of) }
    }

    pub(crate) fn write_asking(&self, item: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Written {
        let py = item.py();
        let mut forms = Arc::clone(&self.forms.lock().unwrap_or_else(PoisonError::into_inner));
        let mut made = Vec::new();
        while made.len() < MAX_MADE {
            out.clear();
            let mut writer = Writer { forms: &forms, made: &made, out, depth: 0, is_exact: self.is_exact };
            match writer.value(item.as_borrowed()) {
                Err(Stop::Type(cls)) => forms = self.ask(cls.bind(py))?,
                Err(Stop::Make(item)) => {
                    let Some((_, Form::Made(make))) =
                        forms.get(&(item.bind(py).get_type_ptr() as usize)).map(Arc::as_ref)
                    else {
                        return Err(Stop::Unsupported);
                    };
                    let told = make.bind(py).call1((item.bind(py),))?.unbind();
                    made.push((item, told));
                }
                written => return written,
            }
        }
        Err(Stop::Unsupported)
    }

    fn ask(&self, cls: &Bound<'_, PyType>) -> PyResult<Arc<Forms>> {
        let told = self.form_of.bind(cls.py()).call1((cls,))?;
        let told = form(cls, &told, self.is_exact)?;
        let mut forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        let mut more = forms.as_ref().clone();
        more.entry(cls.as_ptr() as usize).or_insert_with(|| Arc::new((cls.clone().unbind(), told)));
        *forms = Arc::new(more);
        Ok(Arc::clone(&forms))
    }
}

/// What `cmf.json.value.form_of` told of a type.
fn form(cls: &Bound<'_, PyType>, told: &Bound<'_, PyAny>, is_exact: bool) -> PyResult<Form> {
    if let Ok(name) = told.cast::<PyString>() {
        return match name.to_str()? {
            "text" => Ok(Form::Text(members_of(cls))),
            "object" => Ok(Form::Object),
            "array" => Ok(Form::Array),
            "set" => Ok(Form::Set),
            _ => Err(PyValueError::new_err("no such form")),
        };
    }
    if let Ok(fields) = told.cast::<PyTuple>() {
        let mut fields = fields.iter().map(|each| field(cls, &each)).collect::<PyResult<Vec<_>>>()?;
        if is_exact {
            // The place of a field is as good as its name, and shorter.
            (0x80..).zip(&mut fields).for_each(|(at, field)| field.key = vec![at]);
        }
        return Ok(Form::Fields(fields));
    }
    Ok(Form::Made(told.clone().unbind()))
}

/// The members of an enumeration; none for another type.
fn members_of(cls: &Bound<'_, PyType>) -> Vec<Py<PyAny>> {
    cls.try_iter().into_iter().flatten().filter_map(Result::ok).map(Bound::unbind).collect()
}

fn field(cls: &Bound<'_, PyType>, told: &Bound<'_, PyAny>) -> PyResult<Field> {
    let (name, default, absent) = told.extract::<(Bound<'_, PyString>, Bound<'_, PyAny>, String)>()?;
    let mut key = Vec::new();
    write_text(&mut key, name.to_str()?);
    key.push(b':');
    let absent = match absent.as_str() {
        "never" => Absent::Never,
        "same" => Absent::Same,
        "empty" => Absent::Empty,
        "blank" => Absent::Blank,
        // For these types comparing runs no Python code.
        "equal" if default.is_instance_of::<PyString>() || default.is_instance_of::<PyInt>() => Absent::Equal,
        _ => return Err(PyValueError::new_err("no such rule")),
    };
    Ok(Field { place: place(cls, &name)?, key, default: default.unbind(), absent })
}

/// The offset of a slot in the instances of a type, in bytes: found by setting it to an object and looking for that.
pub(crate) fn place(cls: &Bound<'_, PyType>, slot: &Bound<'_, PyString>) -> PyResult<usize> {
    const WORD: usize = size_of::<*mut ffi::PyObject>();
    let py = cls.py();
    let instance = py.get_type::<PyAny>().call_method1("__new__", (cls,))?;
    let mark = PyList::empty(py);
    cls.getattr(slot)?.cast::<PyAny>()?.call_method1("__set__", (&instance, &mark))?;
    let words = cls.getattr("__basicsize__")?.extract::<usize>()? / WORD;
    // SAFETY: an instance has that many bytes, and does not change meanwhile; they are only compared.
    let words = unsafe { std::slice::from_raw_parts(instance.as_ptr().cast::<usize>(), words) };
    let mut found = words.iter().enumerate().filter(|(_, word)| **word == mark.as_ptr() as usize);
    match (found.next(), found.next()) {
        (Some((at, _)), None) => Ok(at * WORD),
        _ => Err(PyValueError::new_err("not a slot")),
    }
}

struct Writer<'a> {
    forms: &'a Forms,
    made: &'a [(Py<PyAny>, Py<PyAny>)],
    out: &'a mut Vec<u8>,
    depth: u32,
    is_exact: bool,
}

impl Writer<'_> {
    /// Tests types without casts: one that fails takes longer than writing most values.
    fn value(&mut self, item: Item<'_, '_>) -> Written {
        if is_a::<PyString>(&item) {
            self.text(as_a::<PyString>(&item)?.to_str()?);
        } else if is_a::<PyDict>(&item) {
            self.object(&as_a::<PyDict>(&item)?.to_owned())?;
        } else if is_a::<PyBool>(&item) {
            self.out.extend_from_slice(if as_a::<PyBool>(&item)?.is_true() { b"true" } else { b"false" });
        } else if item.is_none() {
            self.out.extend_from_slice(b"null");
        } else if is_a::<PyInt>(&item) {
            self.integer(as_a(&item)?)?;
        } else if is_a::<PyList>(&item) {
            self.array(&as_a::<PyList>(&item)?.to_owned())?;
        } else if is_a::<PyTuple>(&item) {
            let items = as_a::<PyTuple>(&item)?.to_owned();
            self.tell(b'(', 0);
            self.open(b'[')?;
            for item in items.iter_borrowed() {
                self.value(item)?;
                self.out.push(b',');
            }
            self.close(b']');
        } else if is_a::<PyFloat>(&item) {
            self.fraction(as_a::<PyFloat>(&item)?.value())?;
        } else if self.is_exact && is_a::<PyBytes>(&item) {
            let held = as_a::<PyBytes>(&item)?.as_bytes();
            self.tell(b'b', held.len());
            self.out.extend_from_slice(held);
        } else {
            self.typed(item.to_owned().as_borrowed())?;
        }
        Ok(())
    }

    /// Writes a value as its type is written.
    fn typed(&mut self, item: Item<'_, '_>) -> Written {
        let Some((_, form)) = self.forms.get(&(item.get_type_ptr() as usize)).map(Arc::as_ref) else {
            return Err(Stop::Type(item.get_type().unbind()));
        };
        if !matches!(form, Form::Object | Form::Array) {
            self.tell(b'@', item.get_type_ptr() as usize);
        }
        match form {
            Form::Text(members) => {
                if let Some(at) = members.iter().position(|member| self.is_exact && member.is(&*item)) {
                    self.tell(b'm', at);
                }
                match item.cast::<PyString>() {
                    Ok(held) => self.text(held.to_str()?),
                    Err(_) => self.text(item.str()?.to_str()?),
                }
            }
            Form::Object => self.object(as_a(&item)?)?,
            Form::Array => self.array(as_a(&item)?)?,
            Form::Set => self.set(as_a(&item)?)?,
            Form::Fields(fields) => self.fields(item, fields)?,
            Form::Made(_) => match self.made.iter().find(|(from, _)| from.is(&*item)) {
                Some((_, made)) => self.value(made.bind_borrowed(item.py()))?,
                None => return Err(Stop::Make(item.to_owned().unbind())),
            },
        }
        Ok(())
    }

    /// Tells different values apart that are written alike, by a sign that nothing else begins with and a number.
    fn tell(&mut self, what: u8, number: usize) {
        if self.is_exact {
            self.out.push(what);
            self.out.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn text(&mut self, text: &str) {
        if self.is_exact {
            self.tell(b's', text.len());
            self.out.extend_from_slice(text.as_bytes());
        } else {
            write_text(self.out, text);
        }
    }

    fn open(&mut self, bracket: u8) -> Written {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Stop::Unsupported);
        }
        self.out.push(bracket);
        Ok(())
    }

    /// Writes the closing bracket in the place of the last comma, or after the opening bracket.
    fn close(&mut self, bracket: u8) {
        self.depth -= 1;
        match self.out.last_mut() {
            Some(last) if *last == b',' => *last = bracket,
            _ => self.out.push(bracket),
        }
    }

    fn object(&mut self, members: &Bound<'_, PyDict>) -> Written {
        self.open(b'{')?;
        let mut place = 0;
        while let Some((key, item)) = next(members, &mut place) {
            if !is_a::<PyString>(&key) {
                return Err(Stop::Unsupported);
            }
            self.text(as_a::<PyString>(&key)?.to_str()?);
            self.out.push(b':');
            self.value(item)?;
            self.out.push(b',');
        }
        self.close(b'}');
        Ok(())
    }

    fn array(&mut self, items: &Bound<'_, PyList>) -> Written {
        self.open(b'[')?;
        for item in items.iter() {
            self.value(item.as_borrowed())?;
            self.out.push(b',');
        }
        self.close(b']');
        Ok(())
    }

    fn set(&mut self, items: &Bound<'_, PyFrozenSet>) -> Written {
        self.open(b'[')?;
        for item in sorted_texts(items)? {
            self.text(&item);
            self.out.push(b',');
        }
        self.close(b']');
        Ok(())
    }

    fn fields(&mut self, item: Item<'_, '_>, fields: &[Field]) -> Written {
        self.open(b'{')?;
        for field in fields {
            let held = of(&item, field.place).ok_or(Stop::Unsupported)?;
            if !field.is_absent(held)? {
                let before = self.out.len();
                self.out.extend_from_slice(&field.key);
                let start = self.out.len();
                self.value(held)?;
                if self.out[start..] == *b"{}" && field.may_be_blank(held) {
                    self.out.truncate(before);
                } else {
                    self.out.push(b',');
                }
            }
        }
        self.close(b'}');
        Ok(())
    }

    fn integer(&mut self, held: &Bound<'_, PyInt>) -> Written {
        let Ok(number) = held.extract::<i64>() else {
            if !self.is_exact {
                return Err(Stop::Unsupported);
            }
            self.out.extend_from_slice(held.str()?.to_str()?.as_bytes());
            return Ok(());
        };
        serde_json::to_writer(&mut *self.out, &number).map_err(|_| Stop::Unsupported)
    }

    fn fraction(&mut self, held: f64) -> Written {
        if self.is_exact {
            self.tell(b'd', held.to_bits() as usize);
            return Ok(());
        }
        if held != 0.0 && !PLAIN.contains(&held.abs()) {
            return Err(Stop::Unsupported);
        }
        serde_json::to_writer(&mut *self.out, &held).map_err(|_| Stop::Unsupported)
    }
}

/// Whether it is of that type, and of no subclass.
fn is_a<T: PyTypeInfo>(item: &Bound<'_, PyAny>) -> bool {
    item.get_type_ptr() == T::type_object_raw(item.py())
}

fn as_a<'a, 'py, T: PyTypeCheck>(item: &'a Bound<'py, PyAny>) -> Result<&'a Bound<'py, T>, Stop> {
    item.cast::<T>().map_err(|_| Stop::Unsupported)
}

impl Field {
    fn is_absent(&self, held: Item<'_, '_>) -> PyResult<bool> {
        let default = self.default.bind(held.py());
        let same_type = || held.get_type_ptr() == default.get_type_ptr();
        Ok(match self.absent {
            Absent::Never => false,
            Absent::Same | Absent::Blank => held.is(default),
            Absent::Empty => held.is(default) || (same_type() && held.len()? == 0),
            Absent::Equal => held.is(default) || (same_type() && held.eq(default)?),
        })
    }

    /// Whether the field is left out if its value is written as `{}`.
    fn may_be_blank(&self, held: Item<'_, '_>) -> bool {
        matches!(self.absent, Absent::Blank) && held.get_type_ptr() == self.default.bind(held.py()).get_type_ptr()
    }
}

/// The object in a slot of an instance, by its offset; None if the slot was never set.
pub(crate) fn of<'a, 'py>(item: &'a Bound<'py, PyAny>, place: usize) -> Option<Item<'a, 'py>> {
    // SAFETY: `place` is the offset of a slot of this type, which is a reference or null. The object lives until the
    // slot is set again: values do not change, and a caller that keeps it longer than a leaf is used takes a reference
    // of its own.
    unsafe {
        let slot = item.as_ptr().cast::<u8>().add(place).cast::<*mut ffi::PyObject>();
        Borrowed::from_ptr_or_opt(item.py(), slot.read())
    }
}

/// The strings of a set, in the order of their characters, which is that of their UTF-8 bytes.
pub(crate) fn sorted_texts(items: &Bound<'_, PyFrozenSet>) -> PyResult<Vec<String>> {
    let held = tuple_of(items.as_any())?;
    let text = |item: Item<'_, '_>| Ok(item.cast_exact::<PyString>()?.to_str()?.to_owned());
    let mut texts = held.iter_borrowed().map(text).collect::<PyResult<Vec<_>>>()?;
    texts.sort_unstable();
    Ok(texts)
}

/// An iterable as a tuple, which it may be already: iterating over a set takes three times as long.
pub(crate) fn tuple_of<'py>(items: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    // SAFETY: the interpreter is attached; the result is a new reference to a tuple, or null with an error.
    unsafe {
        Ok(Bound::from_owned_ptr_or_err(items.py(), ffi::PySequence_Tuple(items.as_ptr()))?.cast_into_unchecked())
    }
}

/// The next entry of a dict, borrowed from it; `place` is moved.
pub(crate) fn next<'a, 'py>(
    members: &'a Bound<'py, PyDict>,
    place: &mut isize,
) -> Option<(Item<'a, 'py>, Item<'a, 'py>)> {
    let (mut key, mut item) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: `members` is a dict and the interpreter is attached. What is borrowed lives until the dict changes: for
    // that Python code has to run, and before that `Writer::value` has its own reference to what it walks.
    unsafe {
        if ffi::PyDict_Next(members.as_ptr(), place, &mut key, &mut item) == 0 {
            return None;
        }
        Some((Borrowed::from_ptr(members.py(), key), Borrowed::from_ptr(members.py(), item)))
    }
}
