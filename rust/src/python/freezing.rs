//! JSON in Python objects, frozen and compared in a tenth of the time that Python takes.
//!
//! Other types than the interpreter's own are frozen by `_freeze` of `cmf.json.frozen`, which also words the errors.
#![forbid(unsafe_code)]

use crate::python::value_writer::{next, tuple_of};
use pyo3::exceptions::{PyRecursionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};

/// Levels that are compared: more than a value may have.
const LEVELS: u32 = 1_000;

#[pyclass(frozen, module = "cmf._native")]
struct Frozen {
    dict: Py<PyType>,
    list: Py<PyType>,
    /// `dict.__new__` and `list.__new__`, which make empty ones of those types.
    new_dict: Py<PyAny>,
    new_list: Py<PyAny>,
    freeze: Py<PyAny>,
    levels: u32,
}

/// How two values are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Json,
    Spelling,
}

/// Three functions, `freeze(item, levels=levels)`, `same_json(left, right)` and `same_spelling(left, right)`; `freeze`
/// is called for other types. `dict` and `list` are the types of frozen values.
#[pyfunction]
pub(crate) fn freezing<'py>(
    dict: &Bound<'py, PyType>,
    list: &Bound<'py, PyType>,
    freeze: Py<PyAny>,
    levels: u32,
) -> PyResult<[Bound<'py, PyAny>; 3]> {
    if !(dict.is_subclass_of::<PyDict>()? && list.is_subclass_of::<PyList>()?) {
        return Err(PyValueError::new_err("not subclasses of dict and list"));
    }
    let py = dict.py();
    let new_dict = py.get_type::<PyDict>().getattr("__new__")?.unbind();
    let new_list = py.get_type::<PyList>().getattr("__new__")?.unbind();
    let (dict, list) = (dict.clone().unbind(), list.clone().unbind());
    let frozen = Frozen { dict, list, new_dict, new_list, freeze, levels };
    let frozen = Bound::new(py, frozen)?;
    Ok([frozen.getattr("freeze")?, frozen.getattr("same_json")?, frozen.getattr("same_spelling")?])
}

type Item<'py> = Bound<'py, PyAny>;

#[pymethods]
impl Frozen {
    #[pyo3(signature = (item, levels=LEVELS, /))]
    fn freeze<'py>(&self, item: &Item<'py>, levels: u32) -> PyResult<Item<'py>> {
        self.frozen(item, levels.min(self.levels))
    }

    #[pyo3(signature = (left, right, /))]
    fn same_json(&self, left: &Item<'_>, right: &Item<'_>) -> PyResult<bool> {
        same(left, right, LEVELS, By::Json)
    }

    #[pyo3(signature = (left, right, /))]
    fn same_spelling(&self, left: &Item<'_>, right: &Item<'_>) -> PyResult<bool> {
        same(left, right, LEVELS, By::Spelling)
    }
}

// A container is copied before what is inside it is frozen or compared, since Python may be asked meanwhile; no other
// code has a reference to the copy.
impl Frozen {
    fn frozen<'py>(&self, item: &Item<'py>, levels: u32) -> PyResult<Item<'py>> {
        if is_text(item) || self.is_atom(item)? {
            return Ok(item.clone());
        }
        if levels > 0 && item.is_exact_instance_of::<PyDict>() {
            return self.object(item, levels);
        }
        if levels > 0 && (item.is_exact_instance_of::<PyList>() || item.is_exact_instance_of::<PyTuple>()) {
            return self.array(item, levels);
        }
        self.ask(item, levels)
    }

    /// Whether it cannot change and is JSON: null, booleans, finite numbers, and what is frozen already.
    fn is_atom(&self, item: &Item<'_>) -> PyResult<bool> {
        Ok(item.is_none()
            || item.is_exact_instance_of::<PyInt>()
            || item.is_exact_instance_of::<PyBool>()
            || has_type(item, &self.dict)
            || has_type(item, &self.list)
            || item.is_exact_instance_of::<PyFloat>() && item.extract::<f64>()?.is_finite())
    }

    fn ask<'py>(&self, item: &Item<'py>, levels: u32) -> PyResult<Item<'py>> {
        self.freeze.bind(item.py()).call1((item, levels))
    }

    fn object<'py>(&self, item: &Item<'py>, levels: u32) -> PyResult<Item<'py>> {
        let made = self.new_dict.bind(item.py()).call1((&self.dict,))?;
        let members = made.cast::<PyDict>()?;
        members.update(item.cast()?)?;
        let mut place = 0;
        while let Some((key, held)) = next(members, &mut place) {
            if !is_text(&key) {
                return self.ask(item, levels);
            }
            let inner = self.frozen(&held, levels - 1)?;
            // Only values of existing keys are replaced, so the iteration stays valid.
            if !inner.is(&*held) {
                members.set_item(key, inner)?;
            }
        }
        Ok(made)
    }

    fn array<'py>(&self, item: &Item<'py>, levels: u32) -> PyResult<Item<'py>> {
        let items = tuple_of(item)?;
        let items = items.iter_borrowed().map(|inner| self.frozen(&inner, levels - 1)).collect::<PyResult<Vec<_>>>()?;
        let made = self.new_list.bind(item.py()).call1((&self.list,))?;
        made.cast::<PyList>()?.set_slice(0, 0, PyList::new(item.py(), items)?.as_any())?;
        Ok(made)
    }
}

/// Whether two values are the same JSON: true is not 1, but 1 is 1.0; if `by` their spelling, it is not.
fn same(left: &Item<'_>, right: &Item<'_>, levels: u32, by: By) -> PyResult<bool> {
    if left.is(right) {
        return Ok(true);
    }
    let below = || levels.checked_sub(1).ok_or_else(|| PyRecursionError::new_err("nested too deeply"));
    if left.is_instance_of::<PyDict>() {
        return Ok(right.is_instance_of::<PyDict>() && same_objects(left.cast()?, right.cast()?, below()?, by)?);
    }
    if is_array(left) {
        return Ok(is_array(right) && same_arrays(left, right, below()?, by)?);
    }
    let comparable = match by {
        // A boolean is the same only as itself, which was tested above.
        By::Json => !left.is_instance_of::<PyBool>() && !right.is_instance_of::<PyBool>(),
        By::Spelling if left.is_instance_of::<PyString>() => right.is_instance_of::<PyString>(),
        By::Spelling => left.get_type_ptr() == right.get_type_ptr(),
    };
    Ok(comparable && left.eq(right)?)
}

fn same_objects(left: &Bound<'_, PyDict>, right: &Bound<'_, PyDict>, levels: u32, by: By) -> PyResult<bool> {
    if left.len() != right.len() {
        return Ok(false);
    }
    let mut place = 0;
    while let Some((key, mine)) = next(left, &mut place) {
        // Own references: Python may be asked, and may change the container.
        let mine = mine.to_owned();
        match right.get_item(key)? {
            Some(theirs) if same(&mine, &theirs, levels, by)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn same_arrays(left: &Item<'_>, right: &Item<'_>, levels: u32, by: By) -> PyResult<bool> {
    let (left, right) = (tuple_of(left)?, tuple_of(right)?);
    if left.len() != right.len() {
        return Ok(false);
    }
    for (mine, theirs) in left.iter_borrowed().zip(right.iter_borrowed()) {
        if !same(&mine, &theirs, levels, by)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_array(item: &Item<'_>) -> bool {
    item.is_instance_of::<PyList>() || item.is_instance_of::<PyTuple>()
}

/// Whether it is a `str` without lone surrogates.
fn is_text(item: &Item<'_>) -> bool {
    item.is_exact_instance_of::<PyString>() && item.cast::<PyString>().is_ok_and(|text| text.to_str().is_ok())
}

fn has_type(item: &Item<'_>, cls: &Py<PyType>) -> bool {
    item.get_type_ptr().cast() == cls.as_ptr()
}
