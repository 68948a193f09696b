//! Functions that the interpreter calls as they stand, for what is done in fewer instructions than the 400 that PyO3 puts
//! around a function.
//!
//! Who writes one sees to it that it does not panic: there is nothing around it that would catch that.

use crate::spelling;
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::UnsafeCell;
use std::ffi::CStr;

pub(crate) struct Method(UnsafeCell<ffi::PyMethodDef>);

// SAFETY: nobody writes to it, the interpreter included.
unsafe impl Sync for Method {}

impl Method {
    /// Of one argument.
    pub(crate) const fn of_one(name: &'static CStr, call: ffi::PyCFunction) -> Self {
        Self::new(name, ffi::PyMethodDefPointer { PyCFunction: call }, ffi::METH_O)
    }

    /// Of arguments by place.
    pub(crate) const fn of_several(name: &'static CStr, call: ffi::PyCFunctionFast) -> Self {
        Self::new(name, ffi::PyMethodDefPointer { PyCFunctionFast: call }, ffi::METH_FASTCALL)
    }

    /// Of arguments by place, and others by name.
    pub(crate) const fn of_named(name: &'static CStr, call: ffi::PyCFunctionFastWithKeywords) -> Self {
        let call = ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: call };
        Self::new(name, call, ffi::METH_FASTCALL | ffi::METH_KEYWORDS)
    }

    const fn new(name: &'static CStr, call: ffi::PyMethodDefPointer, flags: std::ffi::c_int) -> Self {
        let (ml_name, ml_doc) = (name.as_ptr(), std::ptr::null());
        Self(UnsafeCell::new(ffi::PyMethodDef { ml_name, ml_meth: call, ml_flags: flags, ml_doc }))
    }

    /// The function, which is given `bound` with each call, and holds it.
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

/// Those that look at a text: see `spelling`.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("spaces_in", SPACES_IN.of(module)?)?;
    module.add("is_token", IS_TOKEN.of(module)?)
}

/// What is no text has no answer.
unsafe extern "C" fn spaces_in(_: *mut ffi::PyObject, text: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: whoever calls is attached, and holds the argument.
    unsafe {
        match bytes_of(&text).and_then(spelling::spaces) {
            Some(spaces) => ffi::PyLong_FromSize_t(spaces),
            None => ffi::Py_NewRef(ffi::Py_None()),
        }
    }
}

/// What is no text, or cannot be written as UTF-8, is none.
unsafe extern "C" fn is_token(
    _: *mut ffi::PyObject,
    given: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: whoever calls is attached, and holds `count` arguments.
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

/// SAFETY: whoever calls is attached, and holds the thing as long as the bytes are used.
pub(crate) unsafe fn bytes_of(thing: &*mut ffi::PyObject) -> Option<&[u8]> {
    // SAFETY: as above; the interpreter keeps the UTF-8 of a text with it.
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
