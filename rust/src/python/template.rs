//! The JSON of the views of one type of part, with placeholders for what differs between them [INP-6]. Python describes
//! it.

use crate::json::escape::text;
use crate::python::context::Context;
use crate::python::value_writer::{of, place, Item, Stop, Writer, Written};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyType};
use pyo3::Borrowed;

/// Bytes that are enough for most URIs.
const USUAL_URI_BYTES: usize = 64;

/// A member of the object, and what its value is.
struct Entry {
    /// With a comma before it and a colon after it.
    key: Vec<u8>,
    what: What,
}

enum What {
    /// A field of the part; the entry is left out if it is None.
    Field(usize),
    /// The same, for the text whose bytes are counted.
    Content(usize),
    /// The JSON of a field as a string, whose bytes are counted.
    JsonText(usize),
    /// The JSON of the field that was last written so.
    SameJson,
    /// The URI.
    Address,
    /// Always the same JSON.
    Constant(Vec<u8>),
}

/// How an entity is named: by the URI `<scheme>://<field>/<field>`.
struct Address {
    /// With `://`.
    scheme: String,
    fields: Vec<usize>,
}

/// What the placeholders are replaced by.
pub(crate) struct Filling<'a, 'py> {
    pub part: &'a Bound<'py, PyAny>,
    pub path: &'a Bound<'py, PyAny>,
    pub uri: Option<String>,
    /// Writes what the message adds to the properties: nothing for a part outside a message.
    pub context: &'a Context,
    pub message: &'a Bound<'py, PyAny>,
    pub is_first: bool,
    /// The profiles of the entity, by their keys in the input.
    pub profiles: Vec<(&'a [u8], Bound<'py, PyAny>)>,
    pub origins: Option<&'a Bound<'py, PyAny>>,
}

/// The template for one type of part, role and hook.
#[pyclass(frozen, name = "Template", module = "cmf._native")]
pub struct Template {
    part: Py<PyType>,
    before_path: Vec<u8>,
    after_path: Vec<u8>,
    /// Fields that have no placeholder: they have to be None.
    none: Vec<usize>,
    entries: Vec<Entry>,
    properties: Vec<Entry>,
    address: Option<Address>,
}

#[pymethods]
impl Template {
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        part: Bound<'_, PyType>,
        before_path: &Bound<'_, PyBytes>,
        after_path: &Bound<'_, PyBytes>,
        none: Vec<Bound<'_, PyString>>,
        entries: Vec<(String, String, Bound<'_, PyString>)>,
        properties: Vec<(String, String, Bound<'_, PyString>)>,
        address: Option<(String, Vec<Bound<'_, PyString>>)>,
    ) -> PyResult<Self> {
        let read = |told: Vec<(String, String, Bound<'_, PyString>)>| -> PyResult<Vec<Entry>> {
            told.into_iter().map(|(key, what, of)| entry(&part, &key, &what, &of)).collect()
        };
        Ok(Self {
            before_path: before_path.as_bytes().to_vec(),
            after_path: after_path.as_bytes().to_vec(),
            none: none.iter().map(|field| place(&part, field)).collect::<PyResult<_>>()?,
            entries: read(entries)?,
            properties: read(properties)?,
            address: address.map(|(scheme, fields)| Address::new(&part, &scheme, &fields)).transpose()?,
            part: part.clone().unbind(),
        })
    }
}

fn entry(part: &Bound<'_, PyType>, key: &str, what: &str, told: &Bound<'_, PyString>) -> PyResult<Entry> {
    let what = match what {
        "field" => What::Field(place(part, told)?),
        "content" => What::Content(place(part, told)?),
        "spelled" => What::JsonText(place(part, told)?),
        "again" => What::SameJson,
        "address" => What::Address,
        "constant" => {
            let mut json = Vec::new();
            text(&mut json, told.to_str()?);
            What::Constant(json)
        }
        _ => return Err(PyValueError::new_err("no such entry")),
    };
    let mut written = vec![b','];
    text(&mut written, key);
    written.push(b':');
    Ok(Entry { key: written, what })
}

impl Address {
    fn new(part: &Bound<'_, PyType>, scheme: &str, fields: &[Bound<'_, PyString>]) -> PyResult<Self> {
        let fields = fields.iter().map(|field| place(part, field)).collect::<PyResult<_>>()?;
        Ok(Self { scheme: format!("{scheme}://"), fields })
    }
}

impl Template {
    /// Whether the part is of the template's type: only then the offsets are right.
    fn check(&self, part: &Bound<'_, PyAny>) -> Written {
        if part.get_type_ptr() as *const u8 == self.part.as_ptr().cast::<u8>() {
            Ok(())
        } else {
            Err(Stop::Unsupported)
        }
    }

    /// The URI of the entity that a part names, as `cmf.views.render.addressed` gives it; None if it names none.
    pub(crate) fn uri(&self, part: &Bound<'_, PyAny>) -> Result<Option<String>, Stop> {
        self.check(part)?;
        let Some(address) = &self.address else { return Ok(None) };
        let mut uri = String::with_capacity(USUAL_URI_BYTES);
        uri.push_str(&address.scheme);
        for (index, place) in address.fields.iter().enumerate() {
            if index > 0 {
                uri.push('/');
            }
            match name_at(part, *place)? {
                Some(name) => segment(&mut uri, name.to_str()?),
                None => uri.push('_'),
            }
        }
        Ok(Some(uri))
    }

    /// The keys under which the entity may be registered, in order of precedence [B9]: its URI, `namespace/name`, its
    /// name.
    pub(crate) fn keys<'py>(&self, part: &Bound<'py, PyAny>, uri: &str) -> Result<Vec<Bound<'py, PyAny>>, Stop> {
        self.check(part)?;
        let py = part.py();
        let mut keys = vec![PyString::new(py, uri).into_any()];
        let fields = self.address.as_ref().map_or(&[][..], |address| &address.fields);
        let Some((last, before)) = fields.split_last() else { return Ok(keys) };
        let Some(name) = name_at(part, *last)? else { return Ok(keys) };
        if let Some(place) = before.last() {
            if let Some(namespace) = name_at(part, *place)? {
                let qualified = format!("{}/{}", namespace.to_str()?, name.to_str()?);
                keys.push(PyString::new(py, &qualified).into_any());
            }
        }
        keys.push(name.to_owned().into_any());
        Ok(keys)
    }

    pub(crate) fn fill(&self, writer: &mut Writer<'_>, filling: &Filling<'_, '_>) -> Written {
        let part = filling.part;
        self.check(part)?;
        for place in &self.none {
            if !of(part, *place).is_some_and(|held| held.is_none()) {
                return Err(Stop::Unsupported);
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
            writer.out.extend_from_slice(b",\"size_bytes\":");
            serde_json::to_writer(&mut *writer.out, &size).map_err(|_| Stop::Unsupported)?;
        }
        writer.out.extend_from_slice(b",\"properties\":{");
        let start = writer.out.len();
        for entry in &self.properties {
            entry.fill(writer, filling, &mut state)?;
        }
        filling.context.message(writer, filling.message, filling.is_first)?;
        if writer.out.len() > start {
            writer.out.remove(start); // the comma before the first
        }
        writer.out.push(b'}');
        filling.profiles(writer)?;
        if let Some(origins) = filling.origins {
            writer.out.extend_from_slice(b",\"origins\":");
            writer.value(origins.as_borrowed())?;
        }
        writer.out.push(b'}');
        Ok(())
    }
}

impl Filling<'_, '_> {
    /// The profiles of the entity, with all their fields.
    fn profiles(&self, writer: &mut Writer<'_>) -> Written {
        if self.profiles.is_empty() {
            return Ok(());
        }
        writer.out.extend_from_slice(b",\"extensions\":{\"security\":");
        writer.open(b'{')?;
        for (key, profile) in &self.profiles {
            writer.out.extend_from_slice(key);
            writer.whole = true;
            writer.value(profile.as_borrowed())?;
            writer.whole = false;
            writer.out.push(b',');
        }
        writer.close(b'}');
        writer.out.push(b'}');
        Ok(())
    }
}

/// The text in a field; None if it is None.
fn name_at<'a, 'py>(part: &'a Bound<'py, PyAny>, place: usize) -> Result<Option<Borrowed<'a, 'py, PyString>>, Stop> {
    let held = of(part, place).ok_or(Stop::Unsupported)?;
    if held.is_none() {
        return Ok(None);
    }
    Ok(Some(held.cast_exact::<PyString>().map_err(|_| Stop::Unsupported)?))
}

/// A name as one segment of a URI, percent-encoded but for unreserved characters; `_` for an empty name.
fn segment(uri: &mut String, name: &str) {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte);
    if name.is_empty() {
        uri.push('_');
    } else if name.bytes().all(is_unreserved) {
        uri.push_str(name);
    } else {
        let digit = |half: u8| char::from(b"0123456789ABCDEF"[usize::from(half)]);
        for byte in name.bytes() {
            if is_unreserved(byte) {
                uri.push(char::from(byte));
            } else {
                uri.extend(['%', digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
}

/// What earlier entries leave for later ones.
struct State {
    size: Option<usize>,
    json: Vec<u8>,
}

impl Entry {
    fn fill(&self, writer: &mut Writer<'_>, filling: &Filling<'_, '_>, state: &mut State) -> Written {
        let held = match self.what {
            What::Field(place) | What::Content(place) | What::JsonText(place) => {
                let held = of(filling.part, place).ok_or(Stop::Unsupported)?;
                if held.is_none() {
                    return if matches!(self.what, What::Field(_)) { Ok(()) } else { Err(Stop::Unsupported) };
                }
                Some(held)
            }
            What::Address | What::SameJson | What::Constant(_) => None,
        };
        writer.out.extend_from_slice(&self.key);
        match (&self.what, held) {
            (What::Constant(json), _) => writer.out.extend_from_slice(json),
            (What::JsonText(_), Some(held)) => state.write_json_text(writer, held)?,
            (What::Address, _) => text(writer.out, filling.uri.as_deref().ok_or(Stop::Unsupported)?),
            (What::SameJson, _) => writer.out.extend_from_slice(&state.json),
            (What::Content(_), Some(held)) => {
                state.size = Some(held.cast_exact::<PyString>().map_err(|_| Stop::Unsupported)?.to_str()?.len());
                writer.value(held)?;
            }
            (_, Some(held)) => writer.value(held)?,
            (_, None) => return Err(Stop::Unsupported),
        }
        Ok(())
    }
}

impl State {
    /// Writes the JSON of a value as a string.
    fn write_json_text(&mut self, writer: &mut Writer<'_>, held: Item<'_, '_>) -> Written {
        let start = writer.out.len();
        writer.exact = true;
        writer.value(held)?;
        writer.exact = false;
        self.json = writer.out.split_off(start);
        self.size = Some(self.json.len());
        text(writer.out, std::str::from_utf8(&self.json).map_err(|_| Stop::Unsupported)?);
        Ok(())
    }
}
