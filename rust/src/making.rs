//! Values filled at once: what `py_shape_maker` of `cmf.making` does.
//!
//! Python tells a shape once: the types, and what goes into each of their slots. What is made of it was looked at there:
//! here nothing is known of what a value means.

use crate::c_functions::Method;
use crate::value_bytes::place;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

/// What goes into a slot, or into a place of a tuple.
enum Source {
    /// The argument with that number.
    Given(usize),
    Always(Py<PyAny>),
    Several(Vec<Source>),
    Made(Plan),
}

struct Plan {
    cls: Py<PyType>,
    /// Where in an instance, in bytes from its start.
    slots: Vec<(usize, Source)>,
}

#[pyclass(frozen, module = "cmf._native")]
struct Shape {
    takes: usize,
    plan: Plan,
}

/// A function of `takes` arguments that makes an instance of `cls` with these slots: `(name, source)`. A source is
/// `("given", number)`, `("always", thing)`, `("several", sources)` or `("made", cls, slots)`.
#[pyfunction]
pub(crate) fn shape_maker<'py>(
    cls: &Bound<'py, PyType>,
    slots: &Bound<'py, PyTuple>,
    takes: usize,
) -> PyResult<Bound<'py, PyAny>> {
    if takes == 0 {
        return Err(PyValueError::new_err("a shape takes something"));
    }
    let shape = Bound::new(cls.py(), Shape { takes, plan: plan(cls, slots, takes)? })?;
    MAKE.of(shape.as_any())
}

fn plan(cls: &Bound<'_, PyType>, slots: &Bound<'_, PyTuple>, takes: usize) -> PyResult<Plan> {
    let slots = slots.iter().map(|each| {
        let (name, said) = each.extract::<(Bound<'_, PyString>, Bound<'_, PyTuple>)>()?;
        Ok((place(cls, &name)?, source(&said, takes)?))
    });
    Ok(Plan { slots: slots.collect::<PyResult<_>>()?, cls: cls.clone().unbind() })
}

fn source(said: &Bound<'_, PyTuple>, takes: usize) -> PyResult<Source> {
    let about = said.get_item(1)?;
    match said.get_item(0)?.extract::<String>()?.as_str() {
        "given" => Some(about.extract()?).filter(|at| *at < takes).map(Source::Given),
        "always" => Some(Source::Always(about.unbind())),
        "several" => {
            let sources = about.cast::<PyTuple>()?.iter().map(|each| source(each.cast()?, takes));
            Some(Source::Several(sources.collect::<PyResult<_>>()?))
        }
        "made" => Some(Source::Made(plan(about.cast()?, said.get_item(2)?.cast()?, takes)?)),
        _ => None,
    }
    .ok_or_else(|| PyValueError::new_err("no such source"))
}

/// An empty instance of `cls`, made as its base `kind` makes its own, whatever `cls` has instead of `__new__`; or null with
/// an error set.
///
/// SAFETY: the caller is attached; both are types, `kind` is `dict` or `list`, and a base of `cls`.
pub(crate) unsafe fn blank(kind: *mut ffi::PyTypeObject, cls: *mut ffi::PyTypeObject) -> *mut ffi::PyObject {
    // SAFETY: the `tp_new` of these two makes instances of `cls`, and takes no notice of arguments.
    unsafe {
        let new = ffi::PyType_GetSlot(kind, ffi::Py_tp_new);
        let new = std::mem::transmute::<*mut std::ffi::c_void, ffi::newfunc>(new);
        let nothing = ffi::PyTuple_New(0);
        if nothing.is_null() {
            return nothing;
        }
        let made = new(cls, nothing, std::ptr::null_mut());
        ffi::Py_DECREF(nothing);
        made
    }
}

/// A function that makes an instance of `cls`, a type of dicts, with what a mapping holds, whatever the type has instead of
/// `__new__`, `__init__` and `update`.
#[pyfunction]
pub(crate) fn dict_maker<'py>(cls: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
    if !cls.is_subclass_of::<PyDict>()? {
        return Err(PyValueError::new_err("no type of dicts"));
    }
    FILL.of(cls)
}

static MAKE: Method = Method::of_several(c"make", make);
static FILL: Method = Method::of_one(c"fill", fill);

unsafe extern "C" fn fill(cls: *mut ffi::PyObject, items: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: whoever calls is attached; `dict_maker` alone makes this function, of a type below `dict`.
    unsafe {
        let made = blank(&raw mut ffi::PyDict_Type, cls.cast());
        if !made.is_null() && ffi::PyDict_Update(made, items) < 0 {
            ffi::Py_DECREF(made);
            return std::ptr::null_mut();
        }
        made
    }
}

unsafe extern "C" fn make(
    shape: *mut ffi::PyObject,
    given: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: whoever calls is attached, and holds `count` arguments; `shape_maker` alone makes this function, of a
    // `Shape`, which is frozen.
    unsafe {
        let shape = Borrowed::from_ptr(Python::assume_attached(), shape).cast_unchecked::<Shape>();
        let shape = shape.get();
        if usize::try_from(count) != Ok(shape.takes) {
            ffi::PyErr_SetString(ffi::PyExc_TypeError, c"a shape takes the arguments that it was told".as_ptr());
            return std::ptr::null_mut();
        }
        shape.plan.make(std::slice::from_raw_parts(given, shape.takes))
    }
}

impl Plan {
    /// A new instance; null with an error set where there is no memory.
    ///
    /// SAFETY: the caller is attached and holds what is given, which is as much as the shape takes.
    unsafe fn make(&self, given: &[*mut ffi::PyObject]) -> *mut ffi::PyObject {
        // SAFETY: `place` made an instance of this type with `object.__new__`, and found each slot in it. What has just
        // been made has null there, and nobody else knows it.
        unsafe {
            let made = ffi::PyType_GenericAlloc(self.cls.as_ptr().cast(), 0);
            if made.is_null() {
                return made;
            }
            for (place, source) in &self.slots {
                let item = source.take(given);
                if item.is_null() {
                    ffi::Py_DECREF(made);
                    return item;
                }
                made.cast::<u8>().add(*place).cast::<*mut ffi::PyObject>().write(item);
            }
            made
        }
    }
}

impl Source {
    /// A new reference, or null with an error set.
    ///
    /// SAFETY: as for `Plan::make`.
    unsafe fn take(&self, given: &[*mut ffi::PyObject]) -> *mut ffi::PyObject {
        // SAFETY: the numbers of arguments were held against how many there are; a tuple takes each reference over.
        unsafe {
            match self {
                Self::Given(at) => ffi::Py_NewRef(given[*at]),
                Self::Always(item) => ffi::Py_NewRef(item.as_ptr()),
                Self::Made(plan) => plan.make(given),
                Self::Several(sources) => {
                    let made = ffi::PyTuple_New(sources.len() as ffi::Py_ssize_t);
                    if made.is_null() {
                        return made;
                    }
                    for (at, source) in sources.iter().enumerate() {
                        let item = source.take(given);
                        if item.is_null() {
                            ffi::Py_DECREF(made);
                            return item;
                        }
                        ffi::PyTuple_SetItem(made, at as ffi::Py_ssize_t, item);
                    }
                    made
                }
            }
        }
    }
}
