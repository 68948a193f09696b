//! What Python said of its types: asked once for each.

use pyo3::prelude::*;
use pyo3::types::PyType;
use std::sync::{Arc, Mutex, PoisonError};

/// A table that grows as types are met. Reading it takes no lock while Python runs, which may wait for another thread.
pub(crate) struct ByType<T>(Mutex<Arc<Entries<T>>>);

/// A picture of the table: by address; each type is kept, so that its address stays its own.
pub(crate) struct Entries<T>(Vec<(usize, Py<PyType>, Arc<T>)>);

impl<T> Default for ByType<T> {
    fn default() -> Self {
        Self(Mutex::new(Arc::new(Entries(Vec::new()))))
    }
}

impl<T> Entries<T> {
    pub(crate) fn get(&self, address: usize) -> Option<&T> {
        let at = self.0.binary_search_by_key(&address, |(known, ..)| *known).ok()?;
        self.0.get(at).map(|(.., said)| said.as_ref())
    }
}

impl<T> ByType<T> {
    pub(crate) fn known(&self) -> Arc<Entries<T>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The table with what was said of one more type; what was said first stands.
    pub(crate) fn learn(&self, cls: &Bound<'_, PyType>, said: T) -> Arc<Entries<T>> {
        let address = cls.as_ptr() as usize;
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(at) = entries.0.binary_search_by_key(&address, |(known, ..)| *known) {
            let mut more: Vec<_> = entries
                .0
                .iter()
                .map(|(known, cls_of, of)| (*known, cls_of.clone_ref(cls.py()), Arc::clone(of)))
                .collect();
            more.insert(at, (address, cls.clone().unbind(), Arc::new(said)));
            *entries = Arc::new(Entries(more));
        }
        Arc::clone(&entries)
    }
}
