//! Writes Python values as the JSON that `cmf.json.value.to_bytes` gives, byte for byte, but faster [INP-6].
//!
//! How a type is written comes from Python (`cmf.json.value.form_of`), which is asked once for each. Unusual values are
//! `Unsupported` here and left to Python: a lone surrogate, a key that is not a string, a number that does not fit 64
//! bits or is written with an exponent, too many levels, a type without a form.
//!
//! No Python code is called while a value is written: if Python has to be asked, writing stops, asks, and starts again.
//! The garbage collector may still run Python code (CPython 3.11 collects while it makes the iterator of a set), so
//! references are held to everything that is walked; only leaves are borrowed, and used at once.

use crate::json::write_text;
use crate::python::type_table::{Entries, TypeTable};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PyString, PyTuple, PyType};
use pyo3::{ffi, Borrowed};
use std::cell::Cell;
use std::sync::Arc;

/// Levels of nesting: what is deeper is left to Python.
const MAX_DEPTH: u32 = 128;
/// How often Python is asked while one value is written.
const MAX_QUESTIONS: usize = 64;
/// The largest buffer, in bytes, that a thread keeps for its next value.
const KEPT: usize = 1 << 20;
/// Fractions that are written without an exponent everywhere.
const PLAIN: std::ops::Range<f64> = 1e-5..1e16;

pub(crate) type Item<'a, 'py> = Borrowed<'a, 'py, PyAny>;

/// Why nothing was written.
enum Stop {
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

type Written = Result<(), Stop>;

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
    Text,
    Object,
    Array,
    Set,
    Fields(Vec<Field>),
    Made(Py<PyAny>),
}

/// Writes values; `form_of` is asked once for each type.
#[pyclass(frozen, name = "ValueWriter", module = "cmf._native")]
pub struct ValueWriter {
    form_of: Py<PyAny>,
    forms: TypeTable<Form>,
}

#[pymethods]
impl ValueWriter {
    #[new]
    fn new(form_of: Py<PyAny>) -> Self {
        Self { form_of, forms: TypeTable::default() }
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
    fn write_asking(&self, item: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Written {
        let py = item.py();
        let mut forms = self.forms.snapshot();
        let mut made = Vec::new();
        for _ in 0..MAX_QUESTIONS {
            out.clear();
            match (Writer { forms: &forms, made: &made, out, depth: 0 }).value(item.as_borrowed()) {
                Err(Stop::Type(cls)) => forms = self.ask(cls.bind(py))?,
                Err(Stop::Make(item)) => {
                    let Some(Form::Made(make)) = forms.get(item.bind(py).get_type_ptr() as usize) else {
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

    fn ask(&self, cls: &Bound<'_, PyType>) -> PyResult<Arc<Entries<Form>>> {
        let told = self.form_of.bind(cls.py()).call1((cls,))?;
        Ok(self.forms.add(cls, form(cls, &told)?))
    }
}

/// What `cmf.json.value.form_of` told of a type.
fn form(cls: &Bound<'_, PyType>, told: &Bound<'_, PyAny>) -> PyResult<Form> {
    if let Ok(name) = told.cast::<PyString>() {
        return match name.to_str()? {
            "text" => Ok(Form::Text),
            "object" => Ok(Form::Object),
            "array" => Ok(Form::Array),
            "set" => Ok(Form::Set),
            _ => Err(PyValueError::new_err("no such form")),
        };
    }
    if let Ok(fields) = told.cast::<PyTuple>() {
        return fields.iter().map(|each| field(cls, &each)).collect::<PyResult<_>>().map(Form::Fields);
    }
    Ok(Form::Made(told.clone().unbind()))
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
    forms: &'a Entries<Form>,
    made: &'a [(Py<PyAny>, Py<PyAny>)],
    out: &'a mut Vec<u8>,
    depth: u32,
}

impl Writer<'_> {
    fn value(&mut self, item: Item<'_, '_>) -> Written {
        if let Ok(held) = item.cast_exact::<PyString>() {
            write_text(self.out, held.to_str()?);
        } else if let Ok(members) = item.cast_exact::<PyDict>() {
            self.object(&members.to_owned())?;
        } else if let Ok(held) = item.cast_exact::<PyBool>() {
            self.out.extend_from_slice(if held.is_true() { b"true" } else { b"false" });
        } else if item.is_none() {
            self.out.extend_from_slice(b"null");
        } else if let Ok(held) = item.cast_exact::<PyInt>() {
            self.integer(&held)?;
        } else if let Ok(items) = item.cast_exact::<PyList>() {
            self.array(&items.to_owned())?;
        } else if let Ok(items) = item.cast_exact::<PyTuple>() {
            let items = items.to_owned();
            self.open(b'[')?;
            for item in items.iter_borrowed() {
                self.value(item)?;
                self.out.push(b',');
            }
            self.close(b']');
        } else if let Ok(held) = item.cast_exact::<PyFloat>() {
            self.fraction(held.value())?;
        } else {
            self.typed(item.to_owned().as_borrowed())?;
        }
        Ok(())
    }

    /// Writes a value as its type is written.
    fn typed(&mut self, item: Item<'_, '_>) -> Written {
        let Some(form) = self.forms.get(item.get_type_ptr() as usize) else {
            return Err(Stop::Type(item.get_type().unbind()));
        };
        match form {
            Form::Text => write_text(self.out, item.cast::<PyString>().map_err(|_| Stop::Unsupported)?.to_str()?),
            Form::Object => self.object(&*item.cast::<PyDict>().map_err(|_| Stop::Unsupported)?)?,
            Form::Array => self.array(&*item.cast::<PyList>().map_err(|_| Stop::Unsupported)?)?,
            Form::Set => self.set(&*item.cast::<PyFrozenSet>().map_err(|_| Stop::Unsupported)?)?,
            Form::Fields(fields) => self.fields(item, fields)?,
            Form::Made(_) => match self.made.iter().find(|(from, _)| from.is(&*item)) {
                Some((_, made)) => self.value(made.bind_borrowed(item.py()))?,
                None => return Err(Stop::Make(item.to_owned().unbind())),
            },
        }
        Ok(())
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
            write_text(self.out, key.cast_exact::<PyString>().map_err(|_| Stop::Unsupported)?.to_str()?);
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
            write_text(self.out, &item);
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
        let number = held.extract::<i64>()?;
        serde_json::to_writer(&mut *self.out, &number).map_err(|_| Stop::Unsupported)
    }

    fn fraction(&mut self, held: f64) -> Written {
        if held != 0.0 && !PLAIN.contains(&held.abs()) {
            return Err(Stop::Unsupported);
        }
        serde_json::to_writer(&mut *self.out, &held).map_err(|_| Stop::Unsupported)
    }
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
