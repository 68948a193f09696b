//! Nested values made by one call: what `py_shape_maker` of `cmf.json.making` does, but faster.
//!
//! Python describes a shape once: the types, and what goes into each of their slots. Python checks what it passes:
//! nothing is checked here.

use crate::python::c_functions::Method;
use crate::python::value_writer::place;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

/// What goes into a slot, or into a place of a tuple.
enum Source {
    /// The argument at that position.
    Given(usize),
    Always(Py<PyAny>),
    Several(Vec<Source>),
    Made(Plan),
}

struct Plan {
    cls: Py<PyType>,
    /// The offset of each slot in an instance, in bytes, and what goes into it.
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
        let (name, told) = each.extract::<(Bound<'_, PyString>, Bound<'_, PyTuple>)>()?;
        Ok((place(cls, &name)?, source(&told, takes)?))
    });
    Ok(Plan { slots: slots.collect::<PyResult<_>>()?, cls: cls.clone().unbind() })
}

fn source(told: &Bound<'_, PyTuple>, takes: usize) -> PyResult<Source> {
    let about = told.get_item(1)?;
    match told.get_item(0)?.extract::<String>()?.as_str() {
        "given" => Some(about.extract()?).filter(|at| *at < takes).map(Source::Given),
        "always" => Some(Source::Always(about.unbind())),
        "several" => {
            let sources = about.cast::<PyTuple>()?.iter().map(|each| source(each.cast()?, takes));
            Some(Source::Several(sources.collect::<PyResult<_>>()?))
        }
        "made" => Some(Source::Made(plan(about.cast()?, told.get_item(2)?.cast()?, takes)?)),
        _ => None,
    }
    .ok_or_else(|| PyValueError::new_err("no such source"))
}

/// An empty instance of `cls`, made by the `__new__` of its base `kind`, whatever `__new__` of its own `cls` has; or
/// null with an error set.
///
/// SAFETY: the caller is attached; both are types, `kind` is `dict` or `list`, and a base of `cls`.
pub(crate) unsafe fn blank(kind: *mut ffi::PyTypeObject, cls: *mut ffi::PyTypeObject) -> *mut ffi::PyObject {
    // SAFETY: the `tp_new` of these two makes instances of `cls`, and ignores arguments.
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

/// A function that makes an instance of `cls`, a subclass of `dict`, with the entries of a mapping, whatever `__new__`,
/// `__init__` and `update` the class has.
#[pyfunction]
pub(crate) fn dict_maker<'py>(cls: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
    if !cls.is_subclass_of::<PyDict>()? {
        return Err(PyValueError::new_err("not a subclass of dict"));
    }
    FILL.of(cls)
}

static MAKE: Method = Method::of_several(c"make", make);
static FILL: Method = Method::of_one(c"fill", fill);

unsafe extern "C" fn fill(cls: *mut ffi::PyObject, items: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the caller is attached; only `dict_maker` makes this function, for a subclass of `dict`.
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
    // SAFETY: the caller is attached, and holds `count` arguments; only `shape_maker` makes this function, for a
    // `Shape`, which is frozen.
    unsafe {
        let shape = Borrowed::from_ptr(Python::assume_attached(), shape).cast_unchecked::<Shape>();
        let shape = shape.get();
        if usize::try_from(count) != Ok(shape.takes) {
            ffi::PyErr_SetString(ffi::PyExc_TypeError, c"wrong number of arguments for this shape".as_ptr());
            return std::ptr::null_mut();
        }
        shape.plan.make(std::slice::from_raw_parts(given, shape.takes))
    }
}

impl Plan {
    /// A new instance; null with an error set if there is no memory.
    ///
    /// SAFETY: the caller is attached and holds what is given, as many objects as the shape takes.
    unsafe fn make(&self, given: &[*mut ffi::PyObject]) -> *mut ffi::PyObject {
        // SAFETY: `place` made an instance of this type with `object.__new__`, and found each slot in it. A new
        // instance has null in each, and no other code has a reference to it.
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
        // SAFETY: the positions of arguments were checked against their number; a tuple takes over each reference.
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
