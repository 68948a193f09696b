//! What Python said of its types: asked once for each.

use pyo3::prelude::*;
use pyo3::types::PyType;
use std::sync::{Arc, Mutex, PoisonError};

/// Types that are found at the first look: more than are met where values are read or written.
const AT_HAND: usize = 64;

/// A table that grows as types are met. Reading it takes no lock while Python runs, which may wait for another thread.
pub(crate) struct ByType<T>(Mutex<Arc<Entries<T>>>);

type Entry<T> = (usize, Py<PyType>, Arc<T>);

/// A picture of the table: by address; each type is kept, so that its address stays its own.
pub(crate) struct Entries<T> {
    rows: Vec<Entry<T>>,
    /// The rows of types by what of their address is most often different.
    at_hand: [u8; AT_HAND],
}

impl<T> Default for ByType<T> {
    fn default() -> Self {
        Self(Mutex::new(Arc::new(Entries::of(Vec::new()))))
    }
}

impl<T> Entries<T> {
    fn of(rows: Vec<Entry<T>>) -> Self {
        let mut at_hand = [0; AT_HAND];
        for (at, (address, ..)) in rows.iter().enumerate().take(usize::from(u8::MAX)) {
            at_hand[slot(*address)] = at as u8;
        }
        Self { rows, at_hand }
    }

    pub(crate) fn get(&self, address: usize) -> Option<&T> {
        let (_, _, said) = match self.rows.get(usize::from(self.at_hand[slot(address)])) {
            Some(row) if row.0 == address => row,
            _ => self.rows.get(self.rows.binary_search_by_key(&address, |(known, ..)| *known).ok()?)?,
        };
        Some(said)
    }
}

fn slot(address: usize) -> usize {
    (address >> 4 ^ address >> 10) % AT_HAND
}

impl<T> ByType<T> {
    pub(crate) fn known(&self) -> Arc<Entries<T>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The table with what was said of one more type; what was said first stands.
    pub(crate) fn learn(&self, cls: &Bound<'_, PyType>, said: T) -> Arc<Entries<T>> {
        let address = cls.as_ptr() as usize;
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(at) = entries.rows.binary_search_by_key(&address, |(known, ..)| *known) {
            let mut more: Vec<_> = entries
                .rows
                .iter()
                .map(|(known, cls_of, of)| (*known, cls_of.clone_ref(cls.py()), Arc::clone(of)))
                .collect();
            more.insert(at, (address, cls.clone().unbind(), Arc::new(said)));
            *entries = Arc::new(Entries::of(more));
        }
        Arc::clone(&entries)
    }
}
