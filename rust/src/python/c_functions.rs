//! Functions that the interpreter calls by its C calling convention, without the wrapper of PyO3, which takes some 400
//! instructions.
//!
//! Such a function must not panic, since nothing around it catches panics.

use crate::json::spelling;
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::UnsafeCell;
use std::ffi::CStr;

/// The definition of one such function.
pub(crate) struct Method(UnsafeCell<ffi::PyMethodDef>);

// SAFETY: nothing writes to the definition, the interpreter included.
unsafe impl Sync for Method {}

impl Method {
    /// A function of one argument.
    pub(crate) const fn of_one(name: &'static CStr, call: ffi::PyCFunction) -> Self {
        Self::new(name, ffi::PyMethodDefPointer { PyCFunction: call }, ffi::METH_O)
    }

    /// A function of positional arguments.
    pub(crate) const fn of_several(name: &'static CStr, call: ffi::PyCFunctionFast) -> Self {
        Self::new(name, ffi::PyMethodDefPointer { PyCFunctionFast: call }, ffi::METH_FASTCALL)
    }

    /// A function of positional and keyword arguments.
    pub(crate) const fn of_named(name: &'static CStr, call: ffi::PyCFunctionFastWithKeywords) -> Self {
        let call = ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: call };
        Self::new(name, call, ffi::METH_FASTCALL | ffi::METH_KEYWORDS)
    }

    const fn new(name: &'static CStr, call: ffi::PyMethodDefPointer, flags: std::ffi::c_int) -> Self {
        let (ml_name, ml_doc) = (name.as_ptr(), std::ptr::null());
        Self(UnsafeCell::new(ffi::PyMethodDef { ml_name, ml_meth: call, ml_flags: flags, ml_doc }))
    }

    /// The Python function. It holds a reference to `bound`, and every call gets that as its first argument (`self`).
    pub(crate) fn of<'py>(&'static self, bound: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the definition lives as long as the process.
        unsafe {
            let made = ffi::PyCFunction_NewEx(self.0.get(), bound.as_ptr(), std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(bound.py(), made)
        }
    }
}

static SPACES_IN: Method = Method::of_one(c"spaces_in", spaces_in);
static IS_TOKEN: Method = Method::of_several(c"is_token", is_token);

/// Adds `spaces_in` and `is_token`: see [`spelling`].
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("spaces_in", SPACES_IN.of(module)?)?;
    module.add("is_token", IS_TOKEN.of(module)?)
}

/// `spaces_in(text)`: see [`spelling::spaces`]; None also if `text` is not a `str`.
unsafe extern "C" fn spaces_in(_: *mut ffi::PyObject, text: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the caller is attached to the interpreter, and holds the argument.
    unsafe {
        match bytes_of(&text).and_then(spelling::spaces) {
            Some(spaces) => ffi::PyLong_FromSize_t(spaces),
            None => ffi::Py_NewRef(ffi::Py_None()),
        }
    }
}

/// `is_token(text, prefix)`: see [`spelling::is_token`]; false also if either is not a `str` or cannot be written as
/// UTF-8.
unsafe extern "C" fn is_token(
    _: *mut ffi::PyObject,
    given: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: the caller is attached to the interpreter, and holds `count` arguments.
    unsafe {
        if count != 2 {
            ffi::PyErr_SetString(ffi::PyExc_TypeError, c"is_token takes a text and a prefix".as_ptr());
            return std::ptr::null_mut();
        }
        let (text, prefix) = (bytes_of(&*given), bytes_of(&*given.add(1)));
        let is_one = text.zip(prefix).is_some_and(|(text, prefix)| spelling::is_token(text, prefix));
        ffi::Py_NewRef(if is_one { ffi::Py_True() } else { ffi::Py_False() })
    }
}

/// The UTF-8 of a `str`; None for anything else, and for a `str` with lone surrogates.
///
/// SAFETY: the caller is attached to the interpreter, and holds the object as long as the bytes are used.
pub(crate) unsafe fn bytes_of(thing: &*mut ffi::PyObject) -> Option<&[u8]> {
    // SAFETY: as above; the interpreter keeps the UTF-8 of a string with it.
    unsafe {
        if ffi::PyUnicode_CheckExact(*thing) == 0 {
            return None;
        }
        let mut size = 0;
        let start = ffi::PyUnicode_AsUTF8AndSize(*thing, &mut size);
        if start.is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        Some(std::slice::from_raw_parts(start.cast(), usize::try_from(size).ok()?))
    }
}
