//! Python values to the JSON of `cmf.value.to_bytes`, byte for byte [INP-6]: its faster twin, for policy inputs.
//!
//! What each type is written as comes from Python (`cmf.value.form_of`), once a type. Whatever is not plainly in order is
//! `Odd`, and Python, whose rules stand there, has the last word: a lone surrogate, a key that is no text, a number that
//! no 64-bit integer holds or that is written with an exponent, depth, a type without a form.
//!
//! No Python code is called while a value is written: where Python has to be asked, the writing stops there, asks, and
//! starts over. The collector may still run some (CPython 3.11 collects while it makes a set's iterator), so whatever is
//! walked is held; only leaves are borrowed, and used at once.

use crate::by_type::{ByType, Entries};
use crate::json_text::text;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PyString, PyTuple, PyType};
use pyo3::{ffi, Borrowed};
use std::cell::Cell;
use std::sync::Arc;

/// Containers inside each other: what is deeper, Python writes or refuses.
const MAX_DEPTH: u32 = 128;
/// How often Python is asked for one value: each time starts over.
const MAX_QUESTIONS: usize = 64;
/// Bytes that a thread keeps for its next value.
const KEPT: usize = 1 << 20;
/// Where a fraction is written without an exponent, whatever writes it.
const PLAIN: std::ops::Range<f64> = 1e-5..1e16;
/// Beyond it a double cannot tell whole numbers apart.
const SAFE: u64 = (1 << 53) - 1;

pub(crate) type Item<'a, 'py> = Borrowed<'a, 'py, PyAny>;

/// Why nothing was written.
pub(crate) enum Stop {
    /// Not plainly in order.
    Odd,
    /// Python has to say what this type is written as.
    Type(Py<PyType>),
    /// Python has to make something of this that can be written.
    Make(Py<PyAny>),
}

/// What the interpreter says here is dropped: Python, asked for the whole, will say it again.
impl From<PyErr> for Stop {
    fn from(_: PyErr) -> Self {
        Self::Odd
    }
}

pub(crate) type Written = Result<(), Stop>;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// When a field is left out.
enum Absent {
    Never,
    /// It is the default itself.
    Same,
    /// It is also empty, and of the default's type.
    Empty,
    /// It equals the default, and is of its type.
    Equal,
    /// It is of the default's type, and is written as the default is: as `{}`.
    Blank,
}

struct Field {
    /// Where an instance keeps it, in bytes from its start.
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
    forms: ByType<Form>,
}

#[pymethods]
impl ValueWriter {
    #[new]
    pub(crate) fn new(form_of: Py<PyAny>) -> Self {
        Self { form_of, forms: ByType::default() }
    }

    /// The bytes that `cmf.value.to_bytes` gives, or None: then it has to be asked.
    fn write<'py>(&self, py: Python<'py>, item: &Bound<'py, PyAny>) -> Option<Bound<'py, PyBytes>> {
        self.written(py, |writer| writer.value(item.as_borrowed()))
    }
}

impl ValueWriter {
    /// The bytes of what `write` writes, or None as above; it may be called several times.
    pub(crate) fn written<'py>(
        &self,
        py: Python<'py>,
        write: impl Fn(&mut Writer<'_>) -> Written,
    ) -> Option<Bound<'py, PyBytes>> {
        let mut out = SPARE.take();
        let bytes = self.asked(py, &mut out, write).ok().map(|()| PyBytes::new(py, &out));
        if out.capacity() <= KEPT {
            SPARE.set(out);
        }
        bytes
    }

    fn asked(&self, py: Python<'_>, out: &mut Vec<u8>, write: impl Fn(&mut Writer<'_>) -> Written) -> Written {
        let mut forms = self.forms.known();
        let mut made = Vec::new();
        for _ in 0..MAX_QUESTIONS {
            out.clear();
            match write(&mut Writer { forms: &forms, made: &made, out, depth: 0, whole: false, exact: false }) {
                Err(Stop::Type(cls)) => forms = self.learn(cls.bind(py))?,
                Err(Stop::Make(item)) => {
                    let Some(Form::Made(make)) = forms.get(item.bind(py).get_type_ptr() as usize) else {
                        return Err(Stop::Odd);
                    };
                    let said = make.bind(py).call1((item.bind(py),))?.unbind();
                    made.push((item, said));
                }
                written => return written,
            }
        }
        Err(Stop::Odd)
    }

    fn learn(&self, cls: &Bound<'_, PyType>) -> PyResult<Arc<Entries<Form>>> {
        let said = self.form_of.bind(cls.py()).call1((cls,))?;
        Ok(self.forms.learn(cls, form(cls, &said)?))
    }
}

/// What `cmf.value.form_of` said of a type.
fn form(cls: &Bound<'_, PyType>, said: &Bound<'_, PyAny>) -> PyResult<Form> {
    if let Ok(name) = said.cast::<PyString>() {
        return match name.to_str()? {
            "text" => Ok(Form::Text),
            "object" => Ok(Form::Object),
            "array" => Ok(Form::Array),
            "set" => Ok(Form::Set),
            _ => Err(PyValueError::new_err("no such form")),
        };
    }
    if let Ok(fields) = said.cast::<PyTuple>() {
        return fields.iter().map(|each| field(cls, &each)).collect::<PyResult<_>>().map(Form::Fields);
    }
    Ok(Form::Made(said.clone().unbind()))
}

fn field(cls: &Bound<'_, PyType>, said: &Bound<'_, PyAny>) -> PyResult<Field> {
    let (name, default, absent) = said.extract::<(Bound<'_, PyString>, Bound<'_, PyAny>, String)>()?;
    let mut key = Vec::new();
    text(&mut key, name.to_str()?);
    key.push(b':');
    let absent = match absent.as_str() {
        "never" => Absent::Never,
        "same" => Absent::Same,
        "empty" => Absent::Empty,
        "blank" => Absent::Blank,
        // Their comparison is the interpreter's own.
        "equal" if default.is_instance_of::<PyString>() || default.is_instance_of::<PyInt>() => Absent::Equal,
        _ => return Err(PyValueError::new_err("no such rule")),
    };
    Ok(Field { place: place(cls, &name)?, key, default: default.unbind(), absent })
}

/// Where the instances of a type keep what is in this slot: found by putting something there and looking for it.
pub(crate) fn place(cls: &Bound<'_, PyType>, slot: &Bound<'_, PyString>) -> PyResult<usize> {
    const WORD: usize = size_of::<*mut ffi::PyObject>();
    let py = cls.py();
    let instance = py.get_type::<PyAny>().call_method1("__new__", (cls,))?;
    let mark = PyList::empty(py);
    cls.getattr(slot)?.cast::<PyAny>()?.call_method1("__set__", (&instance, &mark))?;
    let words = cls.getattr("__basicsize__")?.extract::<usize>()? / WORD;
    // SAFETY: an instance has that many bytes, and is not changed meanwhile; what they mean is not asked.
    let words = unsafe { std::slice::from_raw_parts(instance.as_ptr().cast::<usize>(), words) };
    let mut found = words.iter().enumerate().filter(|(_, word)| **word == mark.as_ptr() as usize);
    match (found.next(), found.next()) {
        (Some((at, _)), None) => Ok(at * WORD),
        _ => Err(PyValueError::new_err("not a slot")),
    }
}

pub(crate) struct Writer<'a> {
    forms: &'a Entries<Form>,
    made: &'a [(Py<PyAny>, Py<PyAny>)],
    pub(crate) out: &'a mut Vec<u8>,
    depth: u32,
    /// Fields at their default are written as well, and those that are None are not.
    pub(crate) whole: bool,
    /// Whole numbers that doubles cannot tell apart are odd [A3].
    pub(crate) exact: bool,
}

impl Writer<'_> {
    pub(crate) fn value(&mut self, item: Item<'_, '_>) -> Written {
        if let Ok(held) = item.cast_exact::<PyString>() {
            text(self.out, held.to_str()?);
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

    /// What its type says.
    fn typed(&mut self, item: Item<'_, '_>) -> Written {
        let Some(form) = self.forms.get(item.get_type_ptr() as usize) else {
            return Err(Stop::Type(item.get_type().unbind()));
        };
        match form {
            Form::Text => text(self.out, item.cast::<PyString>().map_err(|_| Stop::Odd)?.to_str()?),
            Form::Object => self.object(&*item.cast::<PyDict>().map_err(|_| Stop::Odd)?)?,
            Form::Array => self.array(&*item.cast::<PyList>().map_err(|_| Stop::Odd)?)?,
            Form::Set => self.set(&*item.cast::<PyFrozenSet>().map_err(|_| Stop::Odd)?)?,
            Form::Fields(fields) => self.fields(item, fields)?,
            Form::Made(_) => match self.made.iter().find(|(from, _)| from.is(&*item)) {
                Some((_, made)) => self.value(made.bind_borrowed(item.py()))?,
                None => return Err(Stop::Make(item.to_owned().unbind())),
            },
        }
        Ok(())
    }

    pub(crate) fn open(&mut self, bracket: u8) -> Written {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Stop::Odd);
        }
        self.out.push(bracket);
        Ok(())
    }

    /// The bracket in the place of the last comma, or behind the one that opened.
    pub(crate) fn close(&mut self, bracket: u8) {
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
            text(self.out, key.cast_exact::<PyString>().map_err(|_| Stop::Odd)?.to_str()?);
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

    /// Texts in the order of their characters, which is that of their bytes.
    fn set(&mut self, items: &Bound<'_, PyFrozenSet>) -> Written {
        let held = tuple_of(items.as_any())?;
        let held: Result<Vec<_>, _> = held.iter_borrowed().map(|item| item.cast_exact::<PyString>()).collect();
        let held = held.map_err(|_| Stop::Odd)?;
        let mut texts = held.iter().map(|each| each.to_str()).collect::<PyResult<Vec<_>>>()?;
        texts.sort_unstable();
        self.open(b'[')?;
        for item in texts {
            text(self.out, item);
            self.out.push(b',');
        }
        self.close(b']');
        Ok(())
    }

    fn fields(&mut self, item: Item<'_, '_>, fields: &[Field]) -> Written {
        self.open(b'{')?;
        for field in fields {
            let held = of(&item, field.place).ok_or(Stop::Odd)?;
            if if self.whole { !held.is_none() } else { !field.is_absent(held)? } {
                let before = self.out.len();
                self.out.extend_from_slice(&field.key);
                let start = self.out.len();
                self.value(held)?;
                if !self.whole && self.out[start..] == *b"{}" && field.may_be_blank(held) {
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
        if self.exact && number.unsigned_abs() > SAFE {
            return Err(Stop::Odd);
        }
        serde_json::to_writer(&mut *self.out, &number).map_err(|_| Stop::Odd)
    }

    fn fraction(&mut self, held: f64) -> Written {
        if (held != 0.0 && !PLAIN.contains(&held.abs())) || (self.exact && held.abs() > SAFE as f64) {
            return Err(Stop::Odd);
        }
        serde_json::to_writer(&mut *self.out, &held).map_err(|_| Stop::Odd)
    }
}

impl Field {
    fn is_absent(&self, held: Item<'_, '_>) -> PyResult<bool> {
        let default = self.default.bind(held.py());
        let alike = || held.get_type_ptr() == default.get_type_ptr();
        Ok(match self.absent {
            Absent::Never => false,
            Absent::Same | Absent::Blank => held.is(default),
            Absent::Empty => held.is(default) || (alike() && held.len()? == 0),
            Absent::Equal => held.is(default) || (alike() && held.eq(default)?),
        })
    }

    /// Whether what is written as `{}` is left out.
    fn may_be_blank(&self, held: Item<'_, '_>) -> bool {
        matches!(self.absent, Absent::Blank) && held.get_type_ptr() == self.default.bind(held.py()).get_type_ptr()
    }
}

/// What an instance of a value type holds at this place of it; None if nothing was ever put there.
pub(crate) fn of<'a, 'py>(item: &'a Bound<'py, PyAny>, place: usize) -> Option<Item<'a, 'py>> {
    // SAFETY: `place` is that of a slot of this very type, which is a reference or null. It lives while the slot
    // is not filled anew: values do not change, and whoever keeps it beyond a leaf's use takes a reference of its own.
    unsafe {
        let slot = item.as_ptr().cast::<u8>().add(place).cast::<*mut ffi::PyObject>();
        Borrowed::from_ptr_or_opt(item.py(), slot.read())
    }
}

/// What can be walked, as a tuple, which it may be already: to ask a set for one after the other takes three times as long.
pub(crate) fn tuple_of<'py>(items: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    // SAFETY: the interpreter is attached; what is given back is a new reference to a tuple, or null with an error.
    unsafe {
        Ok(Bound::from_owned_ptr_or_err(items.py(), ffi::PySequence_Tuple(items.as_ptr()))?.cast_into_unchecked())
    }
}

/// The entry of a dict at `place`, which moves on; borrowed from it.
pub(crate) fn next<'a, 'py>(
    members: &'a Bound<'py, PyDict>,
    place: &mut isize,
) -> Option<(Item<'a, 'py>, Item<'a, 'py>)> {
    let (mut key, mut item) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: `members` is a dict and the interpreter is attached. What is borrowed of a dict lives while the dict does
    // not change: that takes code to run, before which `Writer::value` has its own reference to what it walks.
    unsafe {
        if ffi::PyDict_Next(members.as_ptr(), place, &mut key, &mut item) == 0 {
            return None;
        }
        Some((Borrowed::from_ptr(members.py(), key), Borrowed::from_ptr(members.py(), item)))
    }
}
