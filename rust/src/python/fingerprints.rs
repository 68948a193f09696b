//! Fingerprints of messages, which tell how much of a conversation came before exactly as it comes now [PIPE-16].
//!
//! Two values are the same if they are of one type, with the same values in each of their slots; JSON also has its keys
//! in the same order and its numbers in the same spelling. Neither value has to be kept: what an exact writer writes of
//! it is hashed with BLAKE3 under a random key. A value that cannot be written is equal to no other.

use crate::python::value_writer::{tuple_of, ValueWriter};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a fingerprint: the beginning of a BLAKE3 hash.
const SIZE: usize = 16;

/// Hashes values; `form_of` is asked once for each type, as a `ValueWriter` asks it.
#[pyclass(frozen, name = "Fingerprints", module = "cmf._native")]
pub struct Fingerprints {
    writer: ValueWriter,
    key: [u8; blake3::KEY_LEN],
    odd: AtomicUsize,
}

#[pymethods]
impl Fingerprints {
    #[new]
    fn new(form_of: Py<PyAny>) -> Self {
        Self { writer: ValueWriter::exact(form_of), key: random_key(), odd: AtomicUsize::new(0) }
    }

    /// How many items at the beginning of `given` are the same as in `held`, whose fingerprints are `known`; and the
    /// fingerprints of `given`.
    fn again<'py>(
        &self,
        held: &Bound<'py, PyTuple>,
        known: &Bound<'py, PyBytes>,
        given: &Bound<'py, PyTuple>,
    ) -> (usize, Bound<'py, PyBytes>) {
        let old = known.as_bytes();
        let start = same_items(held, given).min(old.len() / SIZE);
        if start == given.len() && start * SIZE == old.len() {
            return (start, known.clone());
        }
        let mut prints = Vec::with_capacity(given.len() * SIZE);
        prints.extend_from_slice(&old[..start * SIZE]);
        let (mut same, mut bytes) = (start, Vec::new());
        for (at, item) in given.iter().enumerate().skip(start) {
            let print = old.get(at * SIZE..(at + 1) * SIZE);
            match print.filter(|_| held.get_borrowed_item(at).is_ok_and(|before| before.is(&item))) {
                Some(print) => prints.extend_from_slice(print),
                None => prints.extend_from_slice(&self.fingerprint(&item, &mut bytes)),
            }
            if same == at && print == prints.get(at * SIZE..) {
                same += 1;
            }
        }
        (same, PyBytes::new(given.py(), &prints))
    }
}

impl Fingerprints {
    fn fingerprint(&self, item: &Bound<'_, PyAny>, bytes: &mut Vec<u8>) -> [u8; SIZE] {
        if self.writer.write_asking(item, bytes).is_err() {
            let number = self.odd.fetch_add(1, Ordering::Relaxed);
            *bytes = [&b"odd"[..], &number.to_le_bytes()].concat();
        }
        let mut print = [0; SIZE];
        print.copy_from_slice(&blake3::keyed_hash(&self.key, bytes).as_bytes()[..SIZE]);
        print
    }
}

fn random_key() -> [u8; blake3::KEY_LEN] {
    let mut key = [0; blake3::KEY_LEN];
    for word in key.chunks_exact_mut(size_of::<u64>()) {
        word.copy_from_slice(&RandomState::new().hash_one(0_u8).to_le_bytes());
    }
    key
}

/// How many items at the beginning of two sequences are the same objects; their values are not compared.
pub(crate) fn same_start(held: &Bound<'_, PyAny>, given: &Bound<'_, PyAny>) -> PyResult<usize> {
    if held.is(given) {
        return held.len();
    }
    Ok(same_items(&tuple_of(held)?, &tuple_of(given)?))
}

fn same_items(held: &Bound<'_, PyTuple>, given: &Bound<'_, PyTuple>) -> usize {
    held.iter_borrowed().zip(given.iter_borrowed()).take_while(|(one, other)| one.is(*other)).count()
}
