//! What Python told of its types, which it is asked once for each.

use pyo3::prelude::*;
use pyo3::types::PyType;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A table from types to what was told of them. No lock is held while Python runs, which may wait for another thread.
pub(crate) struct TypeTable<T>(Mutex<Arc<Entries<T>>>);

/// A snapshot of the table, by addresses. Each type is kept alive, so that no other type gets its address.
pub(crate) struct Entries<T>(HashMap<usize, Arc<(Py<PyType>, T)>>);

impl<T> Default for TypeTable<T> {
    fn default() -> Self {
        Self(Mutex::new(Arc::new(Entries(HashMap::new()))))
    }
}

impl<T> Entries<T> {
    pub(crate) fn get(&self, address: usize) -> Option<&T> {
        self.0.get(&address).map(|entry| &entry.1)
    }
}

impl<T> TypeTable<T> {
    pub(crate) fn snapshot(&self) -> Arc<Entries<T>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds what was told of a type, unless something was told before; gives the new table.
    pub(crate) fn add(&self, cls: &Bound<'_, PyType>, told: T) -> Arc<Entries<T>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut more = entries.0.clone();
        more.entry(cls.as_ptr() as usize).or_insert_with(|| Arc::new((cls.clone().unbind(), told)));
        *entries = Arc::new(Entries(more));
        Arc::clone(&entries)
    }
}
