//! JSON in Python objects, frozen and compared: what `_freeze`, `_same_json` and `_same_spelling` of `cmf.json.frozen`
//! do, in a tenth of the time.
//!
//! Other types than the interpreter's own are left to those functions, which also word the errors.
#![forbid(unsafe_code)]

use crate::python::value_writer::{next, tuple_of};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};

/// Levels that are compared before Python is asked: more than a value may have.
const LEVELS: u32 = 128;

#[pyclass(frozen, module = "cmf._native")]
struct Frozen {
    dict: Py<PyType>,
    list: Py<PyType>,
    /// `dict.__new__` and `list.__new__`, which make empty ones of those types.
    new_dict: Py<PyAny>,
    new_list: Py<PyAny>,
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
    let py = dict.py();
    let new_dict = py.get_type::<PyDict>().getattr("__new__")?.unbind();
    let new_list = py.get_type::<PyList>().getattr("__new__")?.unbind();
    let (dict, list) = (dict.clone().unbind(), list.clone().unbind());
    let frozen = Frozen { dict, list, new_dict, new_list, freeze, same_json, same_spelling, levels };
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
        self.same(left, right, LEVELS, By::Json)
    }

    #[pyo3(signature = (left, right, /))]
    fn same_spelling(&self, left: &Item<'_>, right: &Item<'_>) -> PyResult<bool> {
        self.same(left, right, LEVELS, By::Spelling)
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

    fn same(&self, left: &Item<'_>, right: &Item<'_>, levels: u32, by: By) -> PyResult<bool> {
        if left.is(right) {
            return Ok(true);
        }
        if left.is_exact_instance_of::<PyString>() && right.is_exact_instance_of::<PyString>() {
            return left.eq(right);
        }
        if levels > 0 && self.is_object(left) && self.is_object(right) {
            return self.same_objects(left.cast()?, right.cast()?, levels, by);
        }
        if levels > 0 && self.is_array(left) && self.is_array(right) {
            return self.same_arrays(left, right, levels, by);
        }
        if is_number(left) && is_number(right) {
            // A boolean is the same only as itself, which was tested above.
            let is_bool = left.is_exact_instance_of::<PyBool>() || right.is_exact_instance_of::<PyBool>();
            let same_type = left.get_type_ptr() == right.get_type_ptr();
            return Ok((same_type || by == By::Json && !is_bool) && left.eq(right)?);
        }
        if self.kind(left).zip(self.kind(right)).is_some_and(|(mine, theirs)| mine != theirs) {
            return Ok(false);
        }
        let asked = if by == By::Json { &self.same_json } else { &self.same_spelling };
        asked.bind(left.py()).call1((left, right))?.is_truthy()
    }

    fn same_objects(&self, left: &Bound<'_, PyDict>, right: &Bound<'_, PyDict>, levels: u32, by: By) -> PyResult<bool> {
        if left.len() != right.len() {
            return Ok(false);
        }
        let mut place = 0;
        while let Some((key, mine)) = next(left, &mut place) {
            // Own references: Python may be asked, and may change the container.
            let mine = mine.to_owned();
            match right.get_item(key)? {
                Some(theirs) if self.same(&mine, &theirs, levels - 1, by)? => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    fn same_arrays(&self, left: &Item<'_>, right: &Item<'_>, levels: u32, by: By) -> PyResult<bool> {
        let (left, right) = (tuple_of(left)?, tuple_of(right)?);
        if left.len() != right.len() {
            return Ok(false);
        }
        for (mine, theirs) in left.iter_borrowed().zip(right.iter_borrowed()) {
            if !self.same(&mine, &theirs, levels - 1, by)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The type of JSON, as a number; None for other types.
    fn kind(&self, item: &Item<'_>) -> Option<usize> {
        let is_text = item.is_exact_instance_of::<PyString>();
        [is_text, self.is_object(item), self.is_array(item), is_number(item), item.is_none()]
            .iter()
            .position(|is_kind| *is_kind)
    }

    fn is_object(&self, item: &Item<'_>) -> bool {
        item.is_exact_instance_of::<PyDict>() || has_type(item, &self.dict)
    }

    fn is_array(&self, item: &Item<'_>) -> bool {
        item.is_exact_instance_of::<PyList>() || item.is_exact_instance_of::<PyTuple>() || has_type(item, &self.list)
    }
}

/// Whether it is a `str` without lone surrogates.
fn is_text(item: &Item<'_>) -> bool {
    item.is_exact_instance_of::<PyString>() && item.cast::<PyString>().is_ok_and(|text| text.to_str().is_ok())
}

fn has_type(item: &Item<'_>, cls: &Py<PyType>) -> bool {
    item.get_type_ptr().cast() == cls.as_ptr()
}

/// Whether it is a number or boolean of JSON.
fn is_number(item: &Item<'_>) -> bool {
    item.is_exact_instance_of::<PyInt>()
        || item.is_exact_instance_of::<PyFloat>()
        || item.is_exact_instance_of::<PyBool>()
}
