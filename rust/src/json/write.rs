//! Engine values to canonical JSON.
#![forbid(unsafe_code)]

use crate::json::{find, number, MAX_DEPTH};
use regorus::Value;

/// Why a result cannot be written: it is too large or too deep, or has an undefined value inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwritable {
    TooLarge,
    Undefined,
}

/// Writes a text as a JSON string, with the same escapes as orjson.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    let (bytes, mut done) = (text.as_bytes(), 0);
    out.push(b'"');
    while let Some(at) = find(bytes, done, |byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        out.extend_from_slice(&bytes[done..at]);
        match bytes[at] {
            byte @ (b'"' | b'\\') => out.extend([b'\\', byte]),
            0x08 => out.extend(b"\\b"),
            b'\t' => out.extend(b"\\t"),
            b'\n' => out.extend(b"\\n"),
            0x0c => out.extend(b"\\f"),
            b'\r' => out.extend(b"\\r"),
            other => out.extend(format!("\\u{other:04x}").into_bytes()),
        }
        done = at + 1;
    }
    out.extend_from_slice(&bytes[done..]);
    out.push(b'"');
}

struct Writer {
    out: Vec<u8>,
    max_bytes: usize,
    depth: u32,
}

/// Canonical JSON: keys in the order of engine values, sets as arrays, keys that are not strings as their JSON.
pub fn write(value: &Value, max_bytes: usize) -> Result<Vec<u8>, Unwritable> {
    let mut writer = Writer { out: Vec::with_capacity(256), max_bytes, depth: 0 };
    writer.value(value)?;
    Ok(writer.out)
}

impl Writer {
    fn value(&mut self, value: &Value) -> Result<(), Unwritable> {
        match value {
            Value::Null => self.out.extend_from_slice(b"null"),
            Value::Bool(true) => self.out.extend_from_slice(b"true"),
            Value::Bool(false) => self.out.extend_from_slice(b"false"),
            Value::Number(_) => {
                let text = number::written(value).ok_or(Unwritable::Undefined)?;
                self.out.extend_from_slice(text.as_bytes());
            }
            Value::String(text) => write_text(&mut self.out, text),
            Value::Array(items) => self.items(items.iter())?,
            Value::Set(items) => self.items(items.iter())?,
            Value::Object(members) => {
                self.enter(b'{')?;
                for (index, (key, member)) in members.iter_sorted().enumerate() {
                    if index > 0 {
                        self.out.push(b',');
                    }
                    self.key(key)?;
                    self.out.push(b':');
                    self.value(member)?;
                }
                self.leave(b'}');
            }
            Value::Undefined => return Err(Unwritable::Undefined),
        }
        if self.out.len() > self.max_bytes {
            return Err(Unwritable::TooLarge);
        }
        Ok(())
    }

    fn enter(&mut self, bracket: u8) -> Result<(), Unwritable> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Unwritable::TooLarge);
        }
        self.out.push(bracket);
        Ok(())
    }

    fn leave(&mut self, bracket: u8) {
        self.depth -= 1;
        self.out.push(bracket);
    }

    fn items<'a>(&mut self, items: impl Iterator<Item = &'a Value>) -> Result<(), Unwritable> {
        self.enter(b'[')?;
        for (index, item) in items.enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            self.value(item)?;
        }
        self.leave(b']');
        Ok(())
    }

    fn key(&mut self, key: &Value) -> Result<(), Unwritable> {
        if let Value::String(name) = key {
            write_text(&mut self.out, name);
            return Ok(());
        }
        let name = write(key, self.max_bytes)?;
        write_text(&mut self.out, &String::from_utf8_lossy(&name));
        Ok(())
    }
}
