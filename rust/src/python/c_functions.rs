//! Functions that the interpreter calls by its C calling convention, without the wrapper of PyO3, which takes some 400
//! instructions.
//!
//! Such a function must not panic, since nothing around it catches panics.

use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::UnsafeCell;
use std::ffi::CStr;

/// The definition of one such function.
pub(crate) struct Method(UnsafeCell<ffi::PyMethodDef>);

// SAFETY: nothing writes to the definition, the interpreter included.
unsafe impl Sync for Method {}

impl Method {
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
