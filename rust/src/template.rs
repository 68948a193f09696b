//! What a view of one kind of part looks like as JSON, with holes for what differs [INP-6]. Python says what it is.

use crate::json_text::text;
use crate::value_bytes::{of, place, Item, Stop, Writer, Written};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyType};

/// An entry of the object, and what its value is.
struct Entry {
    /// With its colon, and a comma before it.
    key: Vec<u8>,
    what: What,
}

enum What {
    /// A field of the part; no entry if it is None.
    Field(usize),
    /// The same, and it is the text whose bytes are counted.
    Content(usize),
    /// The JSON of a field, as text whose bytes are counted.
    Spelled(usize),
    /// The JSON of the field that was spelled last.
    Again,
    /// What the caller gives.
    Given,
    /// Always the same JSON.
    Constant(Vec<u8>),
}

/// What is put into the holes.
pub(crate) struct Filling<'a, 'py> {
    pub part: &'a Bound<'py, PyAny>,
    pub path: &'a Bound<'py, PyAny>,
    pub given: Option<&'a Bound<'py, PyAny>>,
    pub message: Option<&'a Bound<'py, PyAny>>,
    pub security: Option<&'a Bound<'py, PyAny>>,
    pub origins: Option<&'a Bound<'py, PyAny>>,
}

/// The template of one type of part, at one place in the traffic.
#[pyclass(frozen, name = "Template", module = "pipeline._native")]
pub struct Template {
    part: Py<PyType>,
    before_path: Vec<u8>,
    after_path: Vec<u8>,
    /// Fields for which there is no hole: they have to be None.
    none: Vec<usize>,
    entries: Vec<Entry>,
    properties: Vec<Entry>,
}

#[pymethods]
impl Template {
    #[new]
    fn new(
        part: Bound<'_, PyType>,
        before_path: &Bound<'_, PyBytes>,
        after_path: &Bound<'_, PyBytes>,
        none: Vec<Bound<'_, PyString>>,
        entries: Vec<(String, String, Bound<'_, PyString>)>,
        properties: Vec<(String, String, Bound<'_, PyString>)>,
    ) -> PyResult<Self> {
        let read = |said: Vec<(String, String, Bound<'_, PyString>)>| -> PyResult<Vec<Entry>> {
            said.into_iter().map(|(key, what, of)| entry(&part, &key, &what, &of)).collect()
        };
        Ok(Self {
            before_path: before_path.as_bytes().to_vec(),
            after_path: after_path.as_bytes().to_vec(),
            none: none.iter().map(|field| place(&part, field)).collect::<PyResult<_>>()?,
            entries: read(entries)?,
            properties: read(properties)?,
            part: part.clone().unbind(),
        })
    }
}

fn entry(part: &Bound<'_, PyType>, key: &str, what: &str, said: &Bound<'_, PyString>) -> PyResult<Entry> {
    let what = match what {
        "field" => What::Field(place(part, said)?),
        "content" => What::Content(place(part, said)?),
        "spelled" => What::Spelled(place(part, said)?),
        "again" => What::Again,
        "given" => What::Given,
        "constant" => {
            let mut json = Vec::new();
            text(&mut json, said.to_str()?);
            What::Constant(json)
        }
        _ => return Err(PyValueError::new_err("no such entry")),
    };
    let mut written = vec![b','];
    text(&mut written, key);
    written.push(b':');
    Ok(Entry { key: written, what })
}

impl Template {
    pub(crate) fn fill(&self, writer: &mut Writer<'_>, filling: &Filling<'_, '_>) -> Written {
        let part = filling.part;
        if part.get_type_ptr() as *const u8 != self.part.as_ptr().cast::<u8>() {
            return Err(Stop::Odd);
        }
        for place in &self.none {
            if !of(part, *place).is_some_and(|held| held.is_none()) {
                return Err(Stop::Odd);
            }
        }
        writer.out.extend_from_slice(&self.before_path);
        writer.value(filling.path.as_borrowed())?;
        writer.out.extend_from_slice(&self.after_path);
        let mut state = State { size: None, json: Vec::new() };
        for entry in &self.entries {
            entry.fill(writer, filling, &mut state)?;
        }
        if let Some(size) = state.size {
            writer.out.extend_from_slice(format!(",\"size_bytes\":{size}").as_bytes());
        }
        writer.out.extend_from_slice(b",\"properties\":{");
        let start = writer.out.len();
        for entry in &self.properties {
            entry.fill(writer, filling, &mut state)?;
        }
        if let Some(message) = filling.message {
            writer.out.extend_from_slice(b",\"message\":");
            writer.value(message.as_borrowed())?;
        }
        if writer.out.len() > start {
            writer.out.remove(start); // the comma before the first
        }
        writer.out.push(b'}');
        if let Some(security) = filling.security {
            writer.out.extend_from_slice(b",\"extensions\":{\"security\":");
            writer.whole = true;
            writer.value(security.as_borrowed())?;
            writer.whole = false;
            writer.out.push(b'}');
        }
        if let Some(origins) = filling.origins {
            writer.out.extend_from_slice(b",\"origins\":");
            writer.value(origins.as_borrowed())?;
        }
        writer.out.push(b'}');
        Ok(())
    }
}

/// What entries leave for later ones.
struct State {
    size: Option<usize>,
    json: Vec<u8>,
}

impl Entry {
    fn fill(&self, writer: &mut Writer<'_>, filling: &Filling<'_, '_>, state: &mut State) -> Written {
        let held = match self.what {
            What::Field(place) | What::Content(place) | What::Spelled(place) => {
                let held = of(filling.part, place).ok_or(Stop::Odd)?;
                if held.is_none() {
                    return if matches!(self.what, What::Field(_)) { Ok(()) } else { Err(Stop::Odd) };
                }
                Some(held)
            }
            What::Given => Some(filling.given.ok_or(Stop::Odd)?.as_borrowed()),
            What::Again | What::Constant(_) => None,
        };
        writer.out.extend_from_slice(&self.key);
        match (&self.what, held) {
            (What::Constant(json), _) => writer.out.extend_from_slice(json),
            (What::Spelled(_), Some(held)) => state.spell(writer, held)?,
            (What::Again, _) => writer.out.extend_from_slice(&state.json),
            (What::Content(_), Some(held)) => {
                state.size = Some(held.cast_exact::<PyString>().map_err(|_| Stop::Odd)?.to_str()?.len());
                writer.value(held)?;
            }
            (_, Some(held)) => writer.value(held)?,
            (_, None) => return Err(Stop::Odd),
        }
        Ok(())
    }
}

impl State {
    /// The JSON of a value as a text of its own.
    fn spell(&mut self, writer: &mut Writer<'_>, held: Item<'_, '_>) -> Written {
        let start = writer.out.len();
        writer.exact = true;
        writer.value(held)?;
        writer.exact = false;
        self.json = writer.out.split_off(start);
        self.size = Some(self.json.len());
        text(writer.out, std::str::from_utf8(&self.json).map_err(|_| Stop::Odd)?);
        Ok(())
    }
}
