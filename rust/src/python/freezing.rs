//! JSON in Python objects, frozen and compared: what `_freeze`, `_same_json` and `_same_spelling` of `cmf.json.frozen`
//! do, in a tenth of the time.
//!
//! Other types than the interpreter's own are left to those functions, which also word the errors.

use crate::python::c_functions::{bytes_of, Method};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyType};

/// Levels that are compared before Python is asked: more than a value may have.
const LEVELS: u32 = 128;

#[pyclass(frozen, module = "cmf._native")]
struct Frozen {
    dict: Py<PyType>,
    list: Py<PyType>,
    freeze: Py<PyAny>,
    same_json: Py<PyAny>,
    same_spelling: Py<PyAny>,
    levels: u32,
}

/// How two values are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Json,
    Spelling,
}

/// Three functions, `freeze(item, levels=levels)`, `same_json(left, right)` and `same_spelling(left, right)`, which
/// call the given ones for other types. `dict` and `list` are the types of frozen values.
#[pyfunction]
pub(crate) fn freezing<'py>(
    dict: &Bound<'py, PyType>,
    list: &Bound<'py, PyType>,
    freeze: Py<PyAny>,
    same_json: Py<PyAny>,
    same_spelling: Py<PyAny>,
    levels: u32,
) -> PyResult<[Bound<'py, PyAny>; 3]> {
    if !(dict.is_subclass_of::<PyDict>()? && list.is_subclass_of::<PyList>()?) {
        return Err(PyValueError::new_err("not subclasses of dict and list"));
    }
    let (py, dict, list) = (dict.py(), dict.clone().unbind(), list.clone().unbind());
    let frozen = Bound::new(py, Frozen { dict, list, freeze, same_json, same_spelling, levels })?;
    let frozen = frozen.as_any();
    Ok([FREEZE.of(frozen)?, SAME_JSON.of(frozen)?, SAME_SPELLING.of(frozen)?])
}

static FREEZE: Method = Method::of_several(c"freeze", freeze);
static SAME_JSON: Method = Method::of_several(c"same_json", same_json);
static SAME_SPELLING: Method = Method::of_several(c"same_spelling", same_spelling);

type Object = *mut ffi::PyObject;

unsafe extern "C" fn freeze(frozen: Object, given: *mut Object, count: ffi::Py_ssize_t) -> Object {
    // SAFETY: the caller is attached, and holds `count` arguments; only `freezing` makes this function, for a `Frozen`.
    unsafe {
        let frozen = Borrowed::from_ptr(Python::assume_attached(), frozen).cast_unchecked::<Frozen>().get();
        let levels = match count {
            1 => frozen.levels,
            2 => {
                let levels = ffi::PyLong_AsUnsignedLong(*given.add(1));
                if !ffi::PyErr_Occurred().is_null() {
                    return std::ptr::null_mut();
                }
                u32::try_from(levels).map_or(frozen.levels, |levels| levels.min(frozen.levels))
            }
            _ => {
                ffi::PyErr_SetString(ffi::PyExc_TypeError, c"freeze takes a value and levels".as_ptr());
                return std::ptr::null_mut();
            }
        };
        frozen.frozen(*given, levels)
    }
}

unsafe extern "C" fn same_json(frozen: Object, given: *mut Object, count: ffi::Py_ssize_t) -> Object {
    // SAFETY: as above.
    unsafe { same(frozen, given, count, By::Json) }
}

unsafe extern "C" fn same_spelling(frozen: Object, given: *mut Object, count: ffi::Py_ssize_t) -> Object {
    // SAFETY: as above.
    unsafe { same(frozen, given, count, By::Spelling) }
}

/// SAFETY: as above.
unsafe fn same(frozen: Object, given: *mut Object, count: ffi::Py_ssize_t, by: By) -> Object {
    unsafe {
        let frozen = Borrowed::from_ptr(Python::assume_attached(), frozen).cast_unchecked::<Frozen>().get();
        if count != 2 {
            ffi::PyErr_SetString(ffi::PyExc_TypeError, c"two values are compared".as_ptr());
            return std::ptr::null_mut();
        }
        match frozen.same(*given, *given.add(1), LEVELS, by) {
            Some(true) => ffi::Py_NewRef(ffi::Py_True()),
            Some(false) => ffi::Py_NewRef(ffi::Py_False()),
            None => std::ptr::null_mut(),
        }
    }
}

// SAFETY, for all of these: the caller is attached and holds the arguments. A container is copied before what is inside
// it is frozen, since Python may be asked meanwhile; no other code has a reference to the copy.
impl Frozen {
    /// A new reference, or null with an error set.
    unsafe fn frozen(&self, item: Object, levels: u32) -> Object {
        unsafe {
            if ffi::PyUnicode_CheckExact(item) != 0 {
                return if bytes_of(&item).is_some() { ffi::Py_NewRef(item) } else { self.ask(item, levels) };
            }
            if self.is_atom(item) {
                return ffi::Py_NewRef(item);
            }
            if levels > 0 && ffi::PyDict_CheckExact(item) != 0 {
                return self.object(item, levels);
            }
            if levels > 0 && (ffi::PyList_CheckExact(item) != 0 || ffi::PyTuple_CheckExact(item) != 0) {
                return self.array(item, levels);
            }
            self.ask(item, levels)
        }
    }

    /// Whether it cannot change and is JSON: null, booleans, finite numbers, and what is frozen already.
    unsafe fn is_atom(&self, item: Object) -> bool {
        unsafe {
            let kind = ffi::Py_TYPE(item).cast();
            item == ffi::Py_None()
                || ffi::PyLong_CheckExact(item) != 0
                || ffi::PyBool_Check(item) != 0
                || (ffi::PyFloat_CheckExact(item) != 0 && ffi::PyFloat_AsDouble(item).is_finite())
                || kind == self.dict.as_ptr()
                || kind == self.list.as_ptr()
        }
    }

    unsafe fn ask(&self, item: Object, levels: u32) -> Object {
        unsafe {
            let levels = ffi::PyLong_FromUnsignedLong(levels.into());
            if levels.is_null() {
                return levels;
            }
            let none = std::ptr::null_mut::<ffi::PyObject>();
            let answer = ffi::PyObject_CallFunctionObjArgs(self.freeze.as_ptr(), item, levels, none);
            ffi::Py_DECREF(levels);
            answer
        }
    }

    unsafe fn object(&self, item: Object, levels: u32) -> Object {
        unsafe {
            let made = blank(&raw mut ffi::PyDict_Type, self.dict.as_ptr().cast());
            if made.is_null() || ffi::PyDict_Update(made, item) < 0 {
                ffi::Py_XDECREF(made);
                return std::ptr::null_mut();
            }
            let (mut at, mut key, mut held) = (0, std::ptr::null_mut(), std::ptr::null_mut());
            while ffi::PyDict_Next(made, &mut at, &mut key, &mut held) != 0 {
                if bytes_of(&key).is_none() {
                    ffi::Py_DECREF(made);
                    return self.ask(item, levels);
                }
                let inner = self.frozen(held, levels - 1);
                // Only values of existing keys are replaced, so the iteration stays valid.
                let failed = inner.is_null() || (inner != held && ffi::PyDict_SetItem(made, key, inner) < 0);
                ffi::Py_XDECREF(inner);
                if failed {
                    ffi::Py_DECREF(made);
                    return std::ptr::null_mut();
                }
            }
            made
        }
    }

    unsafe fn array(&self, item: Object, levels: u32) -> Object {
        unsafe {
            let items = ffi::PySequence_List(item);
            if items.is_null() {
                return items;
            }
            for at in 0..ffi::PyList_Size(items) {
                let inner = self.frozen(ffi::PyList_GetItem(items, at), levels - 1);
                if inner.is_null() || ffi::PyList_SetItem(items, at, inner) < 0 {
                    ffi::Py_DECREF(items);
                    return std::ptr::null_mut();
                }
            }
            let made = blank(&raw mut ffi::PyList_Type, self.list.as_ptr().cast());
            let failed = made.is_null() || ffi::PyList_SetSlice(made, 0, 0, items) < 0;
            ffi::Py_DECREF(items);
            if failed {
                ffi::Py_XDECREF(made);
                return std::ptr::null_mut();
            }
            made
        }
    }

    /// None with an error set.
    unsafe fn same(&self, left: Object, right: Object, levels: u32, by: By) -> Option<bool> {
        unsafe {
            if left == right {
                return Some(true);
            }
            if ffi::PyUnicode_CheckExact(left) != 0 && ffi::PyUnicode_CheckExact(right) != 0 {
                return Some(ffi::PyUnicode_Compare(left, right) == 0);
            }
            if levels > 0 && self.is_object(left) && self.is_object(right) {
                return self.same_objects(left, right, levels, by);
            }
            if levels > 0 && self.is_array(left) && self.is_array(right) {
                return self.same_arrays(left, right, levels, by);
            }
            if is_number(left) && is_number(right) {
                // A boolean is the same only as itself, which was tested above.
                let same_type = ffi::Py_TYPE(left) == ffi::Py_TYPE(right);
                let may_be =
                    same_type || (by == By::Json && ffi::PyBool_Check(left) == 0 && ffi::PyBool_Check(right) == 0);
                return if may_be {
                    truth(ffi::PyObject_RichCompareBool(left, right, ffi::Py_EQ))
                } else {
                    Some(false)
                };
            }
            if self.kind(left).zip(self.kind(right)).is_some_and(|(mine, theirs)| mine != theirs) {
                return Some(false);
            }
            let none = std::ptr::null_mut::<ffi::PyObject>();
            let asked = if by == By::Json { &self.same_json } else { &self.same_spelling };
            let answer = ffi::PyObject_CallFunctionObjArgs(asked.as_ptr(), left, right, none);
            if answer.is_null() {
                return None;
            }
            let is_same = truth(ffi::PyObject_IsTrue(answer));
            ffi::Py_DECREF(answer);
            is_same
        }
    }

    unsafe fn same_objects(&self, left: Object, right: Object, levels: u32, by: By) -> Option<bool> {
        unsafe {
            if ffi::PyDict_Size(left) != ffi::PyDict_Size(right) {
                return Some(false);
            }
            let (mut at, mut key, mut mine) = (0, std::ptr::null_mut(), std::ptr::null_mut());
            while ffi::PyDict_Next(left, &mut at, &mut key, &mut mine) != 0 {
                let theirs = ffi::PyDict_GetItemWithError(right, key);
                if theirs.is_null() {
                    return if ffi::PyErr_Occurred().is_null() { Some(false) } else { None };
                }
                // Python may be asked, and may change the container.
                let (mine, theirs) = (ffi::Py_NewRef(mine), ffi::Py_NewRef(theirs));
                let same = self.same(mine, theirs, levels - 1, by);
                ffi::Py_DECREF(mine);
                ffi::Py_DECREF(theirs);
                if same != Some(true) {
                    return same;
                }
            }
            Some(true)
        }
    }

    unsafe fn same_arrays(&self, left: Object, right: Object, levels: u32, by: By) -> Option<bool> {
        unsafe {
            let size = ffi::PySequence_Size(left);
            if size != ffi::PySequence_Size(right) {
                return Some(false);
            }
            for at in 0..size {
                let mine = ffi::PySequence_GetItem(left, at);
                let theirs = ffi::PySequence_GetItem(right, at);
                let same =
                    if mine.is_null() || theirs.is_null() { None } else { self.same(mine, theirs, levels - 1, by) };
                ffi::Py_XDECREF(mine);
                ffi::Py_XDECREF(theirs);
                if same != Some(true) {
                    return same;
                }
            }
            Some(true)
        }
    }

    /// The type of JSON, as a number; None for other types.
    unsafe fn kind(&self, item: Object) -> Option<u8> {
        unsafe {
            let kinds = [
                ffi::PyUnicode_CheckExact(item) != 0,
                self.is_object(item),
                self.is_array(item),
                is_number(item),
                item == ffi::Py_None(),
            ];
            kinds.iter().zip(0..).find(|(is_one, _)| **is_one).map(|(_, kind)| kind)
        }
    }

    unsafe fn is_object(&self, item: Object) -> bool {
        unsafe { ffi::PyDict_CheckExact(item) != 0 || ffi::Py_TYPE(item).cast() == self.dict.as_ptr() }
    }

    unsafe fn is_array(&self, item: Object) -> bool {
        unsafe {
            ffi::PyList_CheckExact(item) != 0
                || ffi::PyTuple_CheckExact(item) != 0
                || ffi::Py_TYPE(item).cast() == self.list.as_ptr()
        }
    }
}

/// An empty instance of `cls`, made by the `__new__` of its base `kind`, whatever `__new__` of its own `cls` has; or
/// null with an error set.
///
/// SAFETY: the caller is attached; both are types, `kind` is `dict` or `list`, and a base of `cls`.
unsafe fn blank(kind: *mut ffi::PyTypeObject, cls: *mut ffi::PyTypeObject) -> *mut ffi::PyObject {
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

/// Whether it is a number or boolean of JSON.
unsafe fn is_number(item: Object) -> bool {
    unsafe { ffi::PyLong_CheckExact(item) != 0 || ffi::PyFloat_CheckExact(item) != 0 || ffi::PyBool_Check(item) != 0 }
}

/// A truth value as the interpreter returns it; None for an error.
const fn truth(answer: std::ffi::c_int) -> Option<bool> {
    match answer {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}
