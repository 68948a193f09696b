//! What a reader is shown of the context of a message [INP-6]: which fields, and which of their values go untold. Python
//! says so, once for what is granted.

use crate::json_text::text;
use crate::value_bytes::{next, of, place, Item, Stop, Writer, Written};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

/// A field, and what it holds where it is not told.
type Said<'py> = (Bound<'py, PyString>, Bound<'py, PyAny>);

/// The key of an entry of the input, and what entities are registered in for it.
pub(crate) type Registry<'a, 'py> = (&'a [u8], Bound<'py, PyDict>);

struct Member {
    /// With its colon.
    key: Vec<u8>,
    place: usize,
    untold: Py<PyAny>,
}

/// A name as JSON, with its colon.
fn key(name: &str) -> Vec<u8> {
    let mut key = Vec::new();
    text(&mut key, name);
    key.push(b':');
    key
}

/// Fields of one type.
struct Members {
    cls: Py<PyType>,
    members: Vec<Member>,
}

impl Members {
    fn new(cls: &Bound<'_, PyType>, said: Vec<Said<'_>>) -> PyResult<Self> {
        let member = |(name, untold): Said<'_>| -> PyResult<Member> {
            Ok(Member { key: key(name.to_str()?), place: place(cls, &name)?, untold: untold.unbind() })
        };
        let members = said.into_iter().map(member).collect::<PyResult<_>>()?;
        Ok(Self { cls: cls.clone().unbind(), members })
    }

    /// The object's inside: what is told of an instance, each with a comma behind it. `write` writes a value.
    fn write<'py>(
        &self,
        writer: &mut Writer<'_>,
        item: &Bound<'py, PyAny>,
        write: impl Fn(&mut Writer<'_>, &Member, Item<'_, 'py>) -> Written,
    ) -> Written {
        if item.get_type_ptr() as *const u8 != self.cls.as_ptr().cast::<u8>() {
            return Err(Stop::Odd);
        }
        for member in &self.members {
            let held = of(item, member.place).ok_or(Stop::Odd)?;
            if !held.is(&member.untold) {
                writer.out.extend_from_slice(&member.key);
                write(writer, member, held)?;
                writer.out.push(b',');
            }
        }
        Ok(())
    }
}

/// The only field of a type that matters.
struct Only {
    cls: Py<PyType>,
    place: usize,
}

impl Only {
    fn new(cls: &Bound<'_, PyType>, name: &str) -> PyResult<Self> {
        Ok(Self { cls: cls.clone().unbind(), place: place(cls, &PyString::new(cls.py(), name))? })
    }

    fn of<'a, 'py>(&self, item: &'a Bound<'py, PyAny>) -> Result<Item<'a, 'py>, Stop> {
        if item.get_type_ptr() as *const u8 != self.cls.as_ptr().cast::<u8>() {
            return Err(Stop::Odd);
        }
        of(item, self.place).ok_or(Stop::Odd)
    }
}

/// What one reader is shown.
#[pyclass(frozen, name = "Context", module = "cmf._native")]
pub struct Context {
    message: Members,
    extra: Only,
    slots: Members,
    http: Only,
    headers: Only,
    security: Members,
    subject: Members,
    subject_of: Only,
    /// What entities are registered in: the name of an entry of the input, and where the security block keeps it.
    profiles: Vec<(Vec<u8>, usize)>,
    /// A subject of which nothing is known is shown all the same, and so is one without any field.
    is_whole: bool,
}

#[pymethods]
impl Context {
    /// `types`: those of a message, of its extensions, of their slot `http`, of the security block and its subject.
    #[new]
    fn new(
        types: [Bound<'_, PyType>; 5],
        message: Vec<Said<'_>>,
        slots: Vec<Said<'_>>,
        security: Vec<Said<'_>>,
        subject: Vec<Said<'_>>,
        profiles: Vec<(String, Bound<'_, PyString>)>,
        is_whole: bool,
    ) -> PyResult<Self> {
        let registry = |(name, field): (String, Bound<'_, PyString>)| -> PyResult<(Vec<u8>, usize)> {
            Ok((key(&name), place(&types[3], &field)?))
        };
        let profiles = profiles.into_iter().map(registry).collect::<PyResult<_>>()?;
        let [message_type, extensions, http, security_type, subject_type] = types;
        Ok(Self {
            message: Members::new(&message_type, message)?,
            extra: Only::new(&message_type, "extra")?,
            slots: Members::new(&extensions, slots)?,
            http: Only::new(&extensions, "http")?,
            headers: Only::new(&http, "headers")?,
            security: Members::new(&security_type, security)?,
            subject: Members::new(&subject_type, subject)?,
            subject_of: Only::new(&security_type, "subject")?,
            profiles,
            is_whole,
        })
    }
}

impl Context {
    /// What is known of the message itself, as one of the properties; what else it carries, with its first view.
    pub(crate) fn message(&self, writer: &mut Writer<'_>, message: &Bound<'_, PyAny>, is_first: bool) -> Written {
        if message.is_none() {
            return Ok(());
        }
        let start = writer.out.len();
        writer.out.extend_from_slice(b",\"message\":");
        writer.open(b'{')?;
        let inside = writer.out.len();
        self.message.write(writer, message, |writer, _, held| writer.value(held))?;
        if is_first {
            let extra = self.extra.of(message)?;
            if !extra.is_none() && extra.len()? > 0 {
                writer.out.extend_from_slice(b"\"extra\":");
                writer.value(extra)?;
                writer.out.push(b',');
            }
        }
        let is_empty = writer.out.len() == inside;
        writer.close(b'}');
        if is_empty {
            writer.out.truncate(start);
        }
        Ok(())
    }

    /// The names of the headers, in their order.
    pub(crate) fn header_names<'py>(&self, extensions: &Bound<'py, PyAny>) -> Result<Vec<Bound<'py, PyAny>>, Stop> {
        let http = self.http.of(extensions)?.to_owned();
        if http.is_none() {
            return Ok(Vec::new());
        }
        let headers = self.headers.of(&http)?.to_owned();
        let headers = headers.cast::<PyDict>().map_err(|_| Stop::Odd)?;
        let (mut names, mut at) = (Vec::with_capacity(headers.len()), 0);
        while let Some((name, _)) = next(headers, &mut at) {
            names.push(name.to_owned());
        }
        Ok(names)
    }

    /// The registries that are not empty, each with its key in the input.
    pub(crate) fn registries<'a, 'py>(&'a self, security: &Bound<'py, PyAny>) -> Result<Vec<Registry<'a, 'py>>, Stop> {
        self.subject_of.of(security)?; // of the right type
        let mut found = Vec::new();
        for (key, place) in &self.profiles {
            let held = of(security, *place).ok_or(Stop::Odd)?.to_owned().cast_into::<PyDict>();
            let held = held.map_err(|_| Stop::Odd)?;
            if !held.is_empty() {
                found.push((key.as_slice(), held));
            }
        }
        Ok(found)
    }

    /// What all views share; `is_hidden` says of each header whether nobody may see it.
    pub(crate) fn shared(
        &self,
        writer: &mut Writer<'_>,
        extensions: &Bound<'_, PyAny>,
        security: &Bound<'_, PyAny>,
        is_hidden: &[bool],
    ) -> Written {
        writer.open(b'{')?;
        self.slots.write(writer, extensions, |writer, member, held| {
            if member.place == self.http.place {
                self.shown_headers(writer, &held.to_owned(), is_hidden)
            } else {
                writer.value(held)
            }
        })?;
        let start = writer.out.len();
        writer.out.extend_from_slice(b"\"security\":");
        writer.open(b'{')?;
        let inside = writer.out.len();
        let subject = self.subject_of.of(security)?;
        if !subject.is_none() {
            self.shown_subject(writer, &subject.to_owned())?;
        }
        self.security.write(writer, security, |writer, _, held| writer.value(held))?;
        let is_empty = writer.out.len() == inside;
        writer.close(b'}');
        if is_empty {
            writer.out.truncate(start);
        } else {
            writer.out.push(b',');
        }
        writer.close(b'}');
        Ok(())
    }

    fn shown_subject(&self, writer: &mut Writer<'_>, subject: &Bound<'_, PyAny>) -> Written {
        let start = writer.out.len();
        writer.out.extend_from_slice(b"\"subject\":");
        writer.open(b'{')?;
        let inside = writer.out.len();
        self.subject.write(writer, subject, |writer, _, held| writer.value(held))?;
        let is_empty = writer.out.len() == inside;
        writer.close(b'}');
        if is_empty && !self.is_whole {
            writer.out.truncate(start);
        } else {
            writer.out.push(b',');
        }
        Ok(())
    }

    fn shown_headers(&self, writer: &mut Writer<'_>, http: &Bound<'_, PyAny>, is_hidden: &[bool]) -> Written {
        let headers = self.headers.of(http)?.to_owned();
        let headers = headers.cast::<PyDict>().map_err(|_| Stop::Odd)?;
        if headers.len() != is_hidden.len() {
            return Err(Stop::Odd);
        }
        writer.out.extend_from_slice(b"{\"headers\":");
        writer.open(b'{')?;
        let mut at = 0;
        for is_hidden in is_hidden {
            let Some((name, held)) = next(headers, &mut at) else { break };
            if !is_hidden {
                writer.value(name)?;
                writer.out.push(b':');
                writer.value(held)?;
                writer.out.push(b',');
            }
        }
        writer.close(b'}');
        writer.out.push(b'}');
        Ok(())
    }
}
