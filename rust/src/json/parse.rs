//! Strict JSON to engine values [ENG-5].
//!
//! Refused: anything but one object, duplicate keys (also if one is escaped), NaN and infinities, lone surrogates,
//! control characters, a byte order mark, trailing bytes, too much depth or size, numbers that an engine cannot hold
//! exactly or finitely.
#![forbid(unsafe_code)]

use crate::json::{find, number};
use regorus::{Rc, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Levels of nesting in an input.
pub const MAX_DEPTH: u32 = 64;
/// Values in one document: bounds its size in memory, at 24 bytes a value.
pub const MAX_VALUES: u32 = 1_000_000;
/// Levels of nesting in a text that a policy reads as JSON.
const MAX_TEXT_DEPTH: u32 = 127;

/// Why a document is refused; the offset is in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonFault {
    pub code: &'static str,
    pub offset: usize,
}

type Parsed<T> = Result<T, JsonFault>;

/// One JSON object as an engine value.
pub fn parse_object(bytes: &[u8], max_bytes: usize) -> Parsed<Value> {
    if bytes.len() > max_bytes {
        return Err(JsonFault { code: "input.too-large", offset: max_bytes });
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| JsonFault { code: "input.not-utf8", offset: error.valid_up_to() })?;
    let mut parser = Parser::new(text, MAX_DEPTH);
    parser.skip_space();
    if parser.peek() != Some(b'{') {
        return parser.refuse("input.not-object");
    }
    parser.whole()
}

/// Any JSON value, as a policy reads it from a text: of a key that an object has twice, the last value counts, as in Go.
pub fn parse_text(text: &str) -> Parsed<Value> {
    Parser::new(text, MAX_TEXT_DEPTH).whole()
}

/// Keys that are remembered while a document is read: the objects of an array usually have the same ones.
const KEYS: usize = 64;

struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: u32,
    max_depth: u32,
    values: u32,
    keys: [Option<(&'a str, Rc<str>)>; KEYS],
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, max_depth: u32) -> Self {
        Self { text, bytes: text.as_bytes(), at: 0, depth: 0, max_depth, values: 0, keys: [const { None }; KEYS] }
    }

    /// The value, if the text is nothing else.
    fn whole(&mut self) -> Parsed<Value> {
        self.skip_space();
        let value = self.value()?;
        self.skip_space();
        match self.at == self.bytes.len() {
            true => Ok(value),
            false => self.refuse("input.trailing"),
        }
    }

    fn refuse<T>(&self, code: &'static str) -> Parsed<T> {
        Err(JsonFault { code, offset: self.at })
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Parsed<Value> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return self.refuse("input.too-many-values");
        }
        match self.peek() {
            Some(b'"') => Ok(Value::String(self.string()?.as_ref().into())),
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            _ => self.refuse("input.syntax"),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Parsed<Value>) -> Parsed<Value> {
        self.depth += 1;
        if self.depth > self.max_depth {
            return self.refuse("input.too-deep");
        }
        self.at += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn word(&mut self, word: &str, value: Value) -> Parsed<Value> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return self.refuse("input.syntax");
        }
        self.at += word.len();
        Ok(value)
    }

    fn object(&mut self) -> Parsed<Value> {
        let mut map = BTreeMap::new();
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::from(map));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return self.refuse("input.syntax");
            }
            let start = self.at;
            let key = self.string()?;
            let key = Value::String(self.key(key));
            self.skip_space();
            if self.peek() != Some(b':') {
                return self.refuse("input.syntax");
            }
            self.at += 1;
            self.skip_space();
            let value = self.value()?;
            if map.insert(key, value).is_some() && self.max_depth == MAX_DEPTH {
                self.at = start;
                return self.refuse("input.duplicate-key");
            }
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::from(map));
                }
                _ => return self.refuse("input.syntax"),
            }
        }
    }

    fn array(&mut self) -> Parsed<Value> {
        let mut items = Vec::new();
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::from(items));
        }
        loop {
            self.skip_space();
            items.push(self.value()?);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::from(items));
                }
                _ => return self.refuse("input.syntax"),
            }
        }
    }

    fn key(&mut self, text: Cow<'a, str>) -> Rc<str> {
        let Cow::Borrowed(text) = text else { return text.as_ref().into() };
        let bytes = text.as_bytes();
        let ends =
            bytes.first().zip(bytes.last()).map_or(0, |(first, last)| usize::from(*first) * 7 + usize::from(*last));
        let slot = &mut self.keys[(ends * 5 + bytes.len()) % KEYS];
        match slot {
            Some((known, shared)) if *known == text => Rc::clone(shared),
            _ => {
                let shared: Rc<str> = text.into();
                *slot = Some((text, Rc::clone(&shared)));
                shared
            }
        }
    }

    fn string(&mut self) -> Parsed<Cow<'a, str>> {
        self.at += 1;
        let run = self.run();
        if self.peek() == Some(b'"') {
            self.at += 1;
            return Ok(Cow::Borrowed(run));
        }
        let mut owned = String::from(run);
        loop {
            owned.push_str(self.run());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Cow::Owned(owned));
                }
                Some(b'\\') => owned.push(self.escape()?),
                Some(_) => return self.refuse("input.control-character"),
                None => return self.refuse("input.syntax"),
            }
        }
    }

    /// The characters from here on that need no decoding.
    fn run(&mut self) -> &'a str {
        let end = find(self.bytes, self.at, |byte| byte <= 0x1f || byte == b'"' || byte == b'\\');
        let run = &self.text[self.at..end.unwrap_or(self.bytes.len())];
        self.at += run.len();
        run
    }

    fn escape(&mut self) -> Parsed<char> {
        self.at += 1;
        let simple = match self.peek() {
            Some(b'u') => return self.unicode_escape(),
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return self.refuse("input.syntax"),
        };
        self.at += 1;
        Ok(simple)
    }

    fn unicode_escape(&mut self) -> Parsed<char> {
        let start = self.at;
        let first = self.hex4()?;
        let code = match first {
            0xd800..=0xdbff if self.bytes[self.at..].starts_with(b"\\u") => {
                self.at += 1;
                let second = self.hex4()?;
                if !(0xdc00..=0xdfff).contains(&second) {
                    self.at = start;
                    return self.refuse("input.surrogate");
                }
                0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            _ => first,
        };
        char::from_u32(code).ok_or(JsonFault { code: "input.surrogate", offset: start })
    }

    /// Reads `uXXXX`, and moves `at` to the byte after it.
    fn hex4(&mut self) -> Parsed<u32> {
        let digits = self.bytes.get(self.at + 1..self.at + 5).unwrap_or_default();
        let mut code = 0;
        for digit in digits {
            match char::from(*digit).to_digit(16) {
                Some(n) => code = code * 16 + n,
                None => return self.refuse("input.syntax"),
            }
        }
        if digits.len() != 4 {
            return self.refuse("input.syntax");
        }
        self.at += 5;
        Ok(code)
    }

    fn digits(&mut self) -> Parsed<()> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start {
            return self.refuse("input.syntax");
        }
        Ok(())
    }

    fn number(&mut self) -> Parsed<Value> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        let text = &self.text[start..self.at];
        let value = number::read(text, self.max_depth == MAX_DEPTH);
        value.ok_or(JsonFault { code: "input.number", offset: start })
    }
}

/// Adds to `view` what only `shared` has: objects are merged member by member at every depth, and where both have
/// another value that of the view is kept. Values of `shared` are shared, not copied [ENG-6].
pub fn merge_under(shared: &Value, view: &mut Value) {
    let (Value::Object(below), Value::Object(above)) = (shared, view) else {
        return;
    };
    let above = Rc::make_mut(above);
    for (key, shared_member) in below.iter() {
        match above.get_mut(key) {
            Some(own) => merge_under(shared_member, own),
            None => {
                above.insert(key.clone(), shared_member.clone());
            }
        }
    }
}
