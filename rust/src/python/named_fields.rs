//! Values made from named fields, and copied with some fields replaced: `trusted` and `replace` of `cmf.json.value`.
//!
//! Python tells the fields of a type once, when it is first used. Python checks what it passes: nothing is checked
//! here.

use crate::python::value_writer::place;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use std::cell::UnsafeCell;
use std::ffi::CStr;

struct Slot {
    name: Py<PyString>,
    default: Py<PyAny>,
    /// Its offset in an instance, in bytes.
    place: usize,
}

#[pyclass(frozen, module = "cmf._native")]
struct Form {
    slots: Vec<Slot>,
}

#[pyclass(frozen, module = "cmf._native")]
struct Filler {
    /// From types to forms, of the types that were used.
    forms: Py<PyDict>,
    fields_of: Py<PyAny>,
}

/// Two functions: `make(cls, **fields)` and `copy(item, **fields)`. `fields_of(cls)` is called once for each type, and
/// gives its fields, each with its default.
#[pyfunction]
pub(crate) fn filler<'py>(fields_of: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let py = fields_of.py();
    let filler = Filler { forms: PyDict::new(py).unbind(), fields_of: fields_of.clone().unbind() };
    let filler = Bound::new(py, filler)?;
    Ok((MAKE.of(filler.as_any())?, COPY.of(filler.as_any())?))
}

/// A function that the interpreter calls by its C calling convention, without the wrapper of PyO3, which takes some 400
/// instructions and makes a dict of the fields. It must not panic, since nothing around it catches panics.
struct Method(UnsafeCell<ffi::PyMethodDef>);

// SAFETY: nothing writes to the definition, the interpreter included.
unsafe impl Sync for Method {}

impl Method {
    const fn new(name: &'static CStr, call: ffi::PyCFunctionFastWithKeywords) -> Self {
        Self(UnsafeCell::new(ffi::PyMethodDef {
            ml_name: name.as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: call },
            ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ml_doc: std::ptr::null(),
        }))
    }

    /// The Python function. It holds a reference to `bound`, and every call gets that as its first argument (`self`).
    fn of<'py>(&'static self, bound: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the definition lives as long as the process.
        unsafe {
            let made = ffi::PyCFunction_NewEx(self.0.get(), bound.as_ptr(), std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(bound.py(), made)
        }
    }
}

static MAKE: Method = Method::new(c"make", make);
static COPY: Method = Method::new(c"copy", copy);

unsafe extern "C" fn make(
    filler: *mut ffi::PyObject,
    given: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the caller is attached, and holds all arguments; only `filler` makes this function.
    unsafe {
        if count != 1 || ffi::PyType_Check(*given) == 0 {
            ffi::PyErr_SetString(ffi::PyExc_TypeError, c"a type, and fields by name".as_ptr());
            return std::ptr::null_mut();
        }
        filled(filler, *given, std::ptr::null_mut(), given.add(1), names)
    }
}

unsafe extern "C" fn copy(
    filler: *mut ffi::PyObject,
    given: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as above.
    unsafe {
        if count != 1 {
            ffi::PyErr_SetString(ffi::PyExc_TypeError, c"a value, and fields by name".as_ptr());
            return std::ptr::null_mut();
        }
        filled(filler, ffi::Py_TYPE(*given).cast(), *given, given.add(1), names)
    }
}

/// An instance of `cls` with the fields that are given by name, and all others as in `item`, or their defaults if that
/// is null.
///
/// SAFETY: the caller is attached and holds all arguments, `filler` is a `Filler`, `cls` is a type, that of `item`, and
/// `names` is null or a tuple of strings, as many as there are objects in `given`.
unsafe fn filled(
    filler: *mut ffi::PyObject,
    cls: *mut ffi::PyObject,
    item: *mut ffi::PyObject,
    given: *const *mut ffi::PyObject,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: `place` made an instance of this type with `object.__new__`, and found each slot in it. A new instance
    // has null in each, and no other code has a reference to it. Forms are never removed from the dictionary that holds
    // them.
    unsafe {
        let py = Python::assume_attached();
        let filler = Borrowed::from_ptr(py, filler).cast_unchecked::<Filler>();
        let found = ffi::PyDict_GetItemWithError(filler.get().forms.as_ptr(), cls);
        let form = if found.is_null() {
            match form_of(py, filler.get(), cls) {
                Ok(form) => form,
                Err(error) => {
                    error.restore(py);
                    return std::ptr::null_mut();
                }
            }
        } else {
            found
        };
        let form = Borrowed::from_ptr(py, form).cast_unchecked::<Form>();
        let slots = &form.get().slots;
        let made = ffi::PyType_GenericAlloc(cls.cast(), 0);
        if made.is_null() {
            return made;
        }
        let at =
            |thing: *mut ffi::PyObject, slot: &Slot| thing.cast::<u8>().add(slot.place).cast::<*mut ffi::PyObject>();
        for slot in slots {
            let held = if item.is_null() { slot.default.as_ptr() } else { at(item, slot).read() };
            at(made, slot).write(ffi::Py_XNewRef(held));
        }
        let count = if names.is_null() { 0 } else { ffi::PyTuple_Size(names) };
        for number in 0..count {
            let name = ffi::PyTuple_GetItem(names, number);
            let Some(slot) = named(slots, name) else {
                ffi::Py_DECREF(made);
                ffi::PyErr_SetObject(ffi::PyExc_TypeError, name);
                return std::ptr::null_mut();
            };
            let place = at(made, slot);
            let before = place.read();
            place.write(ffi::Py_NewRef(*given.offset(number)));
            ffi::Py_XDECREF(before);
        }
        made
    }
}

/// SAFETY: the caller is attached, and holds `name`, which is a string.
unsafe fn named(slots: &[Slot], name: *mut ffi::PyObject) -> Option<&Slot> {
    // Names in code are interned, as those of slots are: usually they are the same object.
    slots.iter().find(|slot| slot.name.as_ptr() == name).or_else(|| {
        // SAFETY: both are strings.
        slots.iter().find(|slot| unsafe { ffi::PyUnicode_Compare(slot.name.as_ptr(), name) } == 0)
    })
}

/// The form of a type that was not used before; the filler keeps it.
///
/// SAFETY: `cls` is a type, and the caller holds it.
unsafe fn form_of(py: Python<'_>, filler: &Filler, cls: *mut ffi::PyObject) -> PyResult<*mut ffi::PyObject> {
    if PyErr::occurred(py) {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: as above.
    let cls = unsafe { Borrowed::from_ptr(py, cls) }.to_owned().cast_into::<PyType>()?;
    let told = filler.fields_of.bind(py).call1((&cls,))?.cast_into::<PyTuple>()?;
    let slots = told.iter().map(|each| {
        let (name, default) = each.extract::<(Bound<'_, PyString>, Bound<'_, PyAny>)>()?;
        let interned = PyString::intern(py, name.to_str()?);
        Ok(Slot { place: place(&cls, &name)?, name: interned.unbind(), default: default.unbind() })
    });
    let form = Bound::new(py, Form { slots: slots.collect::<PyResult<_>>()? })?;
    let held = cls.getattr("__basicsize__")?.extract::<usize>()?;
    let forms = filler.forms.bind(py);
    // An instance with more than these slots after its header has parts that are not known.
    if held != size_of::<ffi::PyObject>() + form.get().slots.len() * size_of::<*mut ffi::PyObject>() {
        return Err(PyTypeError::new_err("a type with more than the slots of its fields"));
    }
    forms.set_item(&cls, &form)?;
    Ok(form.as_ptr())
}
