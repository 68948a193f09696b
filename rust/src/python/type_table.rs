//! What Python told of its types, which it is asked once for each.

use pyo3::prelude::*;
use pyo3::types::PyType;
use std::sync::{Arc, Mutex, PoisonError};

/// Types that are found without a search: more than are usually used together.
const SLOTS: usize = 64;

/// A table from types to what was told of them. No lock is held while Python runs, which may wait for another thread.
pub(crate) struct TypeTable<T>(Mutex<Arc<Entries<T>>>);

type Entry<T> = (usize, Py<PyType>, Arc<T>);

/// A snapshot of the table, sorted by address. Each type is kept alive, so that no other type gets its address.
pub(crate) struct Entries<T> {
    rows: Vec<Entry<T>>,
    /// The numbers of rows, by the bits of their addresses that differ most.
    slots: [u8; SLOTS],
}

impl<T> Default for TypeTable<T> {
    fn default() -> Self {
        Self(Mutex::new(Arc::new(Entries::of(Vec::new()))))
    }
}

impl<T> Entries<T> {
    fn of(rows: Vec<Entry<T>>) -> Self {
        let mut slots = [0; SLOTS];
        for (at, (address, ..)) in rows.iter().enumerate().take(usize::from(u8::MAX)) {
            slots[slot(*address)] = at as u8;
        }
        Self { rows, slots }
    }

    pub(crate) fn get(&self, address: usize) -> Option<&T> {
        let (_, _, told) = match self.rows.get(usize::from(self.slots[slot(address)])) {
            Some(row) if row.0 == address => row,
            _ => self.rows.get(self.rows.binary_search_by_key(&address, |(known, ..)| *known).ok()?)?,
        };
        Some(told)
    }
}

fn slot(address: usize) -> usize {
    (address >> 4 ^ address >> 10) % SLOTS
}

impl<T> TypeTable<T> {
    pub(crate) fn snapshot(&self) -> Arc<Entries<T>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds what was told of a type, unless something was told before; gives the new table.
    pub(crate) fn add(&self, cls: &Bound<'_, PyType>, told: T) -> Arc<Entries<T>> {
        let address = cls.as_ptr() as usize;
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(at) = entries.rows.binary_search_by_key(&address, |(known, ..)| *known) {
            let mut more: Vec<_> = entries
                .rows
                .iter()
                .map(|(known, cls_of, of)| (*known, cls_of.clone_ref(cls.py()), Arc::clone(of)))
                .collect();
            more.insert(at, (address, cls.clone().unbind(), Arc::new(told)));
            *entries = Arc::new(Entries::of(more));
        }
        Arc::clone(&entries)
    }
}
