//! What tuples hold, side by side: compared by which objects they are, without asking for one after the other.

use crate::value_bytes::tuple_of;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::sync::OnceLock;

const WORD: usize = size_of::<usize>();
/// Compared at once; where two differ is looked for one by one.
const AT_ONCE: usize = 16;

/// How many items at the beginning of two sequences are the very same objects; what they are is never looked at.
pub(crate) fn same_start(held: &Bound<'_, PyAny>, given: &Bound<'_, PyAny>) -> PyResult<usize> {
    if held.is(given) {
        return held.len();
    }
    let (held, given) = (tuple_of(held)?, tuple_of(given)?);
    Ok(alike(addresses(&held), addresses(&given)))
}

/// The same of what they hold.
pub(crate) fn alike(held: &[usize], given: &[usize]) -> usize {
    let blocks = held.chunks_exact(AT_ONCE).zip(given.chunks_exact(AT_ONCE));
    let start = AT_ONCE * blocks.take_while(|(one, other)| one == other).count();
    start + held[start..].iter().zip(&given[start..]).take_while(|(one, other)| one == other).count()
}

/// Where the items of a tuple are.
pub(crate) fn addresses<'a>(items: &'a Bound<'_, PyTuple>) -> &'a [usize] {
    match place_of_items(items.py()) {
        // SAFETY: a tuple has its items side by side, from that place on, and they are not exchanged while it is held.
        Some(at) => unsafe { std::slice::from_raw_parts(items.as_ptr().cast::<usize>().add(at), items.len()) },
        None => &[], // nothing is found alike: all is compared by what it is
    }
}

/// Where in a tuple its items begin, in words: looked for in one whose items nothing else can be.
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
