//! Writes policy inputs directly from views [INP-6]: their slots are read in place, and Python is asked once for what
//! does not change.

use crate::python::context::Context;
use crate::python::template::{Filling, Template};
use crate::python::value_writer::{next, of, place, Stop, ValueWriter};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyString, PyType};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Templates, contexts and header names that are remembered: a full memory is emptied.
const MAX_REMEMBERED: usize = 1024;

/// The offsets of some slots of a type.
struct Slots<const N: usize> {
    cls: Py<PyType>,
    places: [usize; N],
}

impl<const N: usize> Slots<N> {
    fn new(cls: &Bound<'_, PyType>, names: [&str; N]) -> PyResult<Self> {
        let mut places = [0; N];
        for (at, name) in places.iter_mut().zip(names) {
            *at = place(cls, &PyString::new(cls.py(), name))?;
        }
        Ok(Self { cls: cls.clone().unbind(), places })
    }

    /// The objects in the slots: own references, since these slots may be set again.
    fn read<'py>(&self, item: &Bound<'py, PyAny>) -> Result<[Bound<'py, PyAny>; N], Stop> {
        if item.get_type_ptr() as *const u8 != self.cls.as_ptr().cast::<u8>() {
            return Err(Stop::Unsupported);
        }
        let mut all_set = true;
        let held = self.places.map(|place| {
            of(item, place).map_or_else(
                || {
                    all_set = false;
                    item.clone()
                },
                |held| held.to_owned(),
            )
        });
        if all_set {
            Ok(held)
        } else {
            Err(Stop::Unsupported)
        }
    }
}

/// What Python told of some objects, which are kept alive, so that no others get their addresses.
struct Row<const N: usize, T> {
    key: [usize; N],
    _kept: [Py<PyAny>; N],
    answer: T,
}

/// Answers of Python by the objects asked about, sorted by their addresses.
struct Answers<const N: usize, T>(Mutex<Vec<Row<N, T>>>);

impl<const N: usize, T> Answers<N, T> {
    fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// No lock is held while Python is asked, nor while anything is dropped.
    fn get(
        &self,
        asked: [&Bound<'_, PyAny>; N],
        copy: impl Fn(&T) -> T,
        ask: impl FnOnce() -> PyResult<T>,
    ) -> PyResult<T> {
        let key = asked.map(|each| each.as_ptr() as usize);
        let known = {
            let rows = locked(&self.0);
            let at = rows.binary_search_by_key(&key, |row| row.key);
            at.ok().and_then(|at| rows.get(at)).map(|row| copy(&row.answer))
        };
        if let Some(answer) = known {
            return Ok(answer);
        }
        let answer = ask()?;
        let row = Row { key, _kept: asked.map(|each| each.clone().unbind()), answer: copy(&answer) };
        let mut dropped = Vec::new();
        let mut rows = locked(&self.0);
        if rows.len() >= MAX_REMEMBERED {
            std::mem::swap(&mut dropped, &mut *rows);
        }
        if let Err(at) = rows.binary_search_by_key(&key, |row| row.key) {
            rows.insert(at, row);
        }
        drop(rows);
        Ok(answer)
    }
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes policy inputs; Python is asked once for the template of a place, the context of a reader, a header's name.
#[pyclass(frozen, name = "InputWriter", module = "cmf._native")]
pub struct InputWriter {
    values: Py<ValueWriter>,
    view: Slots<6>,
    scope: Slots<5>,
    template_of: Py<PyAny>,
    context_of: Py<PyAny>,
    is_sensitive: Py<PyAny>,
    templates: Answers<3, Option<Py<Template>>>,
    contexts: Answers<1, Py<Context>>,
    hidden: Mutex<HashMap<String, bool>>,
}

#[pymethods]
impl InputWriter {
    #[new]
    fn new(
        values: Py<ValueWriter>,
        view: &Bound<'_, PyType>,
        scope: &Bound<'_, PyType>,
        template_of: Py<PyAny>,
        context_of: Py<PyAny>,
        is_sensitive: Py<PyAny>,
    ) -> PyResult<Self> {
        Ok(Self {
            values,
            view: Slots::new(view, ["_part", "_scope", "_container", "_first", "role", "path"])?,
            scope: Slots::new(scope, ["_message", "_extensions", "security", "_grants", "hook"])?,
            template_of,
            context_of,
            is_sensitive,
            templates: Answers::new(),
            contexts: Answers::new(),
            hidden: Mutex::default(),
        })
    }

    /// The JSON of what is a view's own; None if Python has to write it.
    #[pyo3(signature = (view, origins=None))]
    fn view<'py>(&self, view: &Bound<'py, PyAny>, origins: Option<&Bound<'py, PyAny>>) -> Option<Bound<'py, PyBytes>> {
        self.own_json(view, origins).ok()
    }

    /// The JSON of what the views of a scope share, with the facts of a session, which may be JSON bytes already; or
    /// None, as above.
    #[pyo3(signature = (scope, session=None))]
    fn shared<'py>(
        &self,
        scope: &Bound<'py, PyAny>,
        session: Option<&Bound<'py, PyAny>>,
    ) -> Option<Bound<'py, PyBytes>> {
        self.shared_json(scope, session).ok()
    }
}

impl InputWriter {
    fn own_json<'py>(
        &self,
        view: &Bound<'py, PyAny>,
        origins: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyBytes>, Stop> {
        let py = view.py();
        let [part, scope, container, first, role, path] = self.view.read(view)?;
        let [message, _, security, grants, hook] = self.scope.read(&scope)?;
        if !container.is_none() {
            return Err(Stop::Unsupported);
        }
        let part_type = part.get_type();
        let asked = [part_type.as_any(), &role, &hook];
        let template = self.templates.get(
            asked,
            |known| known.as_ref().map(|template| template.clone_ref(py)),
            || Ok(self.template_of.bind(py).call1((&part_type, &role, &hook))?.extract()?),
        )?;
        let template = template.as_ref().ok_or(Stop::Unsupported)?.get();
        let context = self.context(&grants)?;
        let uri = template.uri(&part)?;
        let mut profiles = Vec::new();
        if let Some(uri) = &uri {
            let registries = context.get().registries(&security)?;
            let keys = if registries.is_empty() { Vec::new() } else { template.keys(&part, uri)? };
            for (key, registry) in registries {
                if let Some(profile) = registered(&registry, &keys)? {
                    profiles.push((key, profile));
                }
            }
        }
        let filling = Filling {
            part: &part,
            path: &path,
            uri,
            context: context.get(),
            message: &message,
            is_first: first.cast_exact::<PyBool>().map_err(|_| Stop::Unsupported)?.is_true(),
            profiles,
            origins,
        };
        self.values.get().written(py, |writer| template.fill(writer, &filling)).ok_or(Stop::Unsupported)
    }

    fn shared_json<'py>(
        &self,
        scope: &Bound<'py, PyAny>,
        session: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyBytes>, Stop> {
        let py = scope.py();
        let [_, extensions, security, grants, ..] = self.scope.read(scope)?;
        let context = self.context(&grants)?;
        let is_hidden = self.are_hidden(&context.get().header_names(&extensions)?)?;
        let written = self.values.get().written(py, |writer| {
            writer.out.extend_from_slice(b"{\"extensions\":");
            context.get().shared(writer, &extensions, &security, &is_hidden)?;
            if let Some(session) = session {
                writer.out.extend_from_slice(b",\"session\":");
                match session.cast_exact::<PyBytes>() {
                    Ok(written) => writer.out.extend_from_slice(written.as_bytes()),
                    Err(_) => writer.value(session.as_borrowed())?,
                }
            }
            writer.out.push(b'}');
            Ok(())
        });
        written.ok_or(Stop::Unsupported)
    }

    fn context(&self, grants: &Bound<'_, PyAny>) -> PyResult<Py<Context>> {
        let py = grants.py();
        let ask = || Ok(self.context_of.bind(py).call1((grants,))?.extract()?);
        self.contexts.get([grants], |known| known.clone_ref(py), ask)
    }

    fn are_hidden(&self, names: &[Bound<'_, PyAny>]) -> Result<Vec<bool>, Stop> {
        names.iter().map(|name| self.is_hidden(name)).collect()
    }

    fn is_hidden(&self, name: &Bound<'_, PyAny>) -> Result<bool, Stop> {
        let text = name.cast_exact::<PyString>().map_err(|_| Stop::Unsupported)?.to_str()?;
        let known = locked(&self.hidden).get(text).copied();
        if let Some(known) = known {
            return Ok(known);
        }
        let answer = self.is_sensitive.bind(name.py()).call1((name,))?.extract::<bool>()?;
        let mut hidden = locked(&self.hidden);
        if hidden.len() >= MAX_REMEMBERED {
            hidden.clear();
        }
        hidden.insert(text.to_owned(), answer);
        Ok(answer)
    }
}

/// The entry under the first of the keys that has one; the last key is a bare name, and finds nothing if it is
/// ambiguous [B9].
fn registered<'py>(
    registry: &Bound<'py, PyDict>,
    keys: &[Bound<'py, PyAny>],
) -> Result<Option<Bound<'py, PyAny>>, Stop> {
    for (at, key) in keys.iter().enumerate() {
        if let Some(found) = registry.get_item(key)? {
            if registry.len() == 1 || at + 1 < keys.len() || !is_ambiguous(registry, key)? {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// Whether a bare name could also mean an entity of a namespace: then it means none.
fn is_ambiguous(registry: &Bound<'_, PyDict>, name: &Bound<'_, PyAny>) -> Result<bool, Stop> {
    let suffix = format!("/{}", name.cast_exact::<PyString>().map_err(|_| Stop::Unsupported)?.to_str()?);
    let mut at = 0;
    while let Some((key, _)) = next(registry, &mut at) {
        if key.cast_exact::<PyString>().map_err(|_| Stop::Unsupported)?.to_str()?.ends_with(&suffix) {
            return Ok(true);
        }
    }
    Ok(false)
}
