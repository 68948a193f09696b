//! The context of a message that a policy may read with some capabilities [INP-6]: which fields, and which values are
//! left out. Python describes it once for each set of capabilities.

use crate::json::escape::text;
use crate::python::value_writer::{next, of, place, Item, Stop, Writer, Written};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

/// A field, and the value with which it is left out.
type Told<'py> = (Bound<'py, PyString>, Bound<'py, PyAny>);

/// A registry of entities, with its key in the input.
pub(crate) type Registry<'a, 'py> = (&'a [u8], Bound<'py, PyDict>);

struct Member {
    /// With its colon.
    key: Vec<u8>,
    place: usize,
    /// The value with which the field is left out.
    absent: Py<PyAny>,
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
    fn new(cls: &Bound<'_, PyType>, told: Vec<Told<'_>>) -> PyResult<Self> {
        let member = |(name, absent): Told<'_>| -> PyResult<Member> {
            Ok(Member { key: key(name.to_str()?), place: place(cls, &name)?, absent: absent.unbind() })
        };
        let members = told.into_iter().map(member).collect::<PyResult<_>>()?;
        Ok(Self { cls: cls.clone().unbind(), members })
    }

    /// Writes the members of an object, with a comma after each. `write` writes a value.
    fn write<'py>(
        &self,
        writer: &mut Writer<'_>,
        item: &Bound<'py, PyAny>,
        write: impl Fn(&mut Writer<'_>, &Member, Item<'_, 'py>) -> Written,
    ) -> Written {
        if item.get_type_ptr() as *const u8 != self.cls.as_ptr().cast::<u8>() {
            return Err(Stop::Unsupported);
        }
        for member in &self.members {
            let held = of(item, member.place).ok_or(Stop::Unsupported)?;
            if !held.is(&member.absent) {
                writer.out.extend_from_slice(&member.key);
                write(writer, member, held)?;
                writer.out.push(b',');
            }
        }
        Ok(())
    }
}

/// One field of a type.
struct OneField {
    cls: Py<PyType>,
    place: usize,
}

impl OneField {
    fn new(cls: &Bound<'_, PyType>, name: &str) -> PyResult<Self> {
        Ok(Self { cls: cls.clone().unbind(), place: place(cls, &PyString::new(cls.py(), name))? })
    }

    fn of<'a, 'py>(&self, item: &'a Bound<'py, PyAny>) -> Result<Item<'a, 'py>, Stop> {
        if item.get_type_ptr() as *const u8 != self.cls.as_ptr().cast::<u8>() {
            return Err(Stop::Unsupported);
        }
        of(item, self.place).ok_or(Stop::Unsupported)
    }
}

/// What a policy with some capabilities may read.
#[pyclass(frozen, name = "Context", module = "cmf._native")]
pub struct Context {
    message: Members,
    extra: OneField,
    slots: Members,
    http: OneField,
    headers: OneField,
    security: Members,
    subject: Members,
    subject_of: OneField,
    /// The registries of entities: the key in the input, and the offset in the security block.
    profiles: Vec<(Vec<u8>, usize)>,
    /// Whether a subject is written even if it has no field that is written.
    always_has_subject: bool,
}

#[pymethods]
impl Context {
    /// `types`: those of a message, of its extensions, of their slot `http`, of the security block, and of its subject.
    #[new]
    fn new(
        types: [Bound<'_, PyType>; 5],
        message: Vec<Told<'_>>,
        slots: Vec<Told<'_>>,
        security: Vec<Told<'_>>,
        subject: Vec<Told<'_>>,
        profiles: Vec<(String, Bound<'_, PyString>)>,
        always_has_subject: bool,
    ) -> PyResult<Self> {
        let registry = |(name, field): (String, Bound<'_, PyString>)| -> PyResult<(Vec<u8>, usize)> {
            Ok((key(&name), place(&types[3], &field)?))
        };
        let profiles = profiles.into_iter().map(registry).collect::<PyResult<_>>()?;
        let [message_type, extensions, http, security_type, subject_type] = types;
        Ok(Self {
            message: Members::new(&message_type, message)?,
            extra: OneField::new(&message_type, "extra")?,
            slots: Members::new(&extensions, slots)?,
            http: OneField::new(&extensions, "http")?,
            headers: OneField::new(&http, "headers")?,
            security: Members::new(&security_type, security)?,
            subject: Members::new(&subject_type, subject)?,
            subject_of: OneField::new(&security_type, "subject")?,
            profiles,
            always_has_subject,
        })
    }
}

impl Context {
    /// Writes the message's own fields as one of the properties; with its first view also its `extra` members.
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
        let headers = headers.cast::<PyDict>().map_err(|_| Stop::Unsupported)?;
        let (mut names, mut at) = (Vec::with_capacity(headers.len()), 0);
        while let Some((name, _)) = next(headers, &mut at) {
            names.push(name.to_owned());
        }
        Ok(names)
    }

    /// The registries that are not empty, each with its key in the input.
    pub(crate) fn registries<'a, 'py>(&'a self, security: &Bound<'py, PyAny>) -> Result<Vec<Registry<'a, 'py>>, Stop> {
        self.subject_of.of(security)?; // checks the type
        let mut found = Vec::new();
        for (key, place) in &self.profiles {
            let held = of(security, *place).ok_or(Stop::Unsupported)?.to_owned().cast_into::<PyDict>();
            let held = held.map_err(|_| Stop::Unsupported)?;
            if !held.is_empty() {
                found.push((key.as_slice(), held));
            }
        }
        Ok(found)
    }

    /// Writes what all views share; `is_hidden` tells for each header whether it is hidden from every policy.
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
                self.write_headers(writer, &held.to_owned(), is_hidden)
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
            self.write_subject(writer, &subject.to_owned())?;
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

    fn write_subject(&self, writer: &mut Writer<'_>, subject: &Bound<'_, PyAny>) -> Written {
        let start = writer.out.len();
        writer.out.extend_from_slice(b"\"subject\":");
        writer.open(b'{')?;
        let inside = writer.out.len();
        self.subject.write(writer, subject, |writer, _, held| writer.value(held))?;
        let is_empty = writer.out.len() == inside;
        writer.close(b'}');
        if is_empty && !self.always_has_subject {
            writer.out.truncate(start);
        } else {
            writer.out.push(b',');
        }
        Ok(())
    }

    fn write_headers(&self, writer: &mut Writer<'_>, http: &Bound<'_, PyAny>, is_hidden: &[bool]) -> Written {
        let headers = self.headers.of(http)?.to_owned();
        let headers = headers.cast::<PyDict>().map_err(|_| Stop::Unsupported)?;
        if headers.len() != is_hidden.len() {
            return Err(Stop::Unsupported);
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
