//! The items of tuples, compared by identity without taking them one by one.

use crate::python::value_writer::tuple_of;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::sync::OnceLock;

const WORD: usize = size_of::<usize>();
/// Items that are compared at once.
const AT_ONCE: usize = 16;

/// How many items at the beginning of two sequences are the same objects; their values are not compared.
pub(crate) fn same_start(held: &Bound<'_, PyAny>, given: &Bound<'_, PyAny>) -> PyResult<usize> {
    if held.is(given) {
        return held.len();
    }
    let (held, given) = (tuple_of(held)?, tuple_of(given)?);
    Ok(same_addresses(addresses(&held), addresses(&given)))
}

/// The same, of the addresses of their items.
pub(crate) fn same_addresses(held: &[usize], given: &[usize]) -> usize {
    let blocks = held.chunks_exact(AT_ONCE).zip(given.chunks_exact(AT_ONCE));
    let start = AT_ONCE * blocks.take_while(|(one, other)| one == other).count();
    start + held[start..].iter().zip(&given[start..]).take_while(|(one, other)| one == other).count()
}

/// The addresses of the items of a tuple.
pub(crate) fn addresses<'a>(items: &'a Bound<'_, PyTuple>) -> &'a [usize] {
    match place_of_items(items.py()) {
        // SAFETY: a tuple has its items side by side from that offset on, and they do not change while it is held.
        Some(at) => unsafe { std::slice::from_raw_parts(items.as_ptr().cast::<usize>().add(at), items.len()) },
        None => &[], // nothing is the same object then, and values are compared
    }
}

/// The offset of the items in a tuple, in words: found in a tuple with known items.
fn place_of_items(py: Python<'_>) -> Option<usize> {
    static PLACE: OnceLock<Option<usize>> = OnceLock::new();
    *PLACE.get_or_init(|| {
        let size = py.get_type::<PyTuple>().getattr("__basicsize__").and_then(|size| size.extract::<usize>()).ok()?;
        let marks = [PyList::empty(py), PyList::empty(py)];
        let tuple = PyTuple::new(py, &marks).ok()?;
        let wanted = marks.each_ref().map(|mark| mark.as_ptr() as usize);
        // SAFETY: a tuple has `__basicsize__` bytes and then its items, here two.
        let words = unsafe { std::slice::from_raw_parts(tuple.as_ptr().cast::<usize>(), size / WORD + wanted.len()) };
        words.windows(wanted.len()).position(|some| some == wanted)
    })
}
