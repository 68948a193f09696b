//! Linear checks of policy text before it is parsed [ENG-3].
//!
//! The parser of regorus tries each `[` and `{` as a comprehension and then as a literal, so its time doubles with
//! every level of nested literals (measured on 0.14.1: 12 levels 77 ms, 16 levels 1.5 s). And it turns a number literal
//! with an exponent into an exact integer of that many digits. Both are limited here.
#![forbid(unsafe_code)]

use crate::failure::PolicyFault;
use crate::json::number;
use regorus::Value;

/// How deeply `[` and `{` may be nested.
pub const MAX_NESTING: u32 = 10;
/// The sum of 2^depth over the innermost brackets of a module: about a second of parsing.
pub const MAX_PARSE_WORK: u64 = 65_536;
/// Characters of one number literal, and the largest exponent.
const MAX_NUMBER_CHARS: usize = 400;
const MAX_EXPONENT: u32 = 308;

struct Scan<'a> {
    path: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: u32,
    line_start: usize,
}

/// Refuses text that would take the parser too long.
pub fn check(path: &str, text: &str) -> Result<(), PolicyFault> {
    let mut scan = Scan { path, bytes: text.as_bytes(), at: 0, line: 1, line_start: 0 };
    scan.run()
}

impl Scan<'_> {
    fn fault(&self, code: &'static str, message: String) -> PolicyFault {
        let column = u32::try_from(self.at - self.line_start).unwrap_or(u32::MAX);
        PolicyFault::at(code, self.path, self.line, column.saturating_add(1), message)
    }

    fn run(&mut self) -> Result<(), PolicyFault> {
        let mut depth = 0_u32;
        let mut work = 0_u64;
        let mut opened_last = false;
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'\n' => {
                    self.line = self.line.saturating_add(1);
                    self.line_start = self.at + 1;
                }
                b'#' => self.skip_comment(),
                b'"' => self.skip_string(),
                b'`' => self.skip_raw_string(),
                b'[' | b'{' => {
                    depth += 1;
                    opened_last = true;
                    if depth > MAX_NESTING {
                        let message = format!("brackets are nested deeper than {MAX_NESTING}");
                        return Err(self.fault("policy.nesting", message));
                    }
                }
                b']' | b'}' => {
                    if opened_last {
                        work = work.saturating_add(1 << depth);
                        opened_last = false;
                    }
                    depth = depth.saturating_sub(1);
                    if work > MAX_PARSE_WORK {
                        let message = "too many deeply nested literals in one module; move them to data";
                        return Err(self.fault("policy.nesting", message.into()));
                    }
                }
                b'0'..=b'9' => self.check_number()?,
                _ if byte.is_ascii_alphabetic() || byte == b'_' => self.skip_word(),
                _ => {}
            }
            self.at += 1;
        }
        Ok(())
    }

    fn skip_comment(&mut self) {
        while self.bytes.get(self.at + 1).is_some_and(|b| *b != b'\n') {
            self.at += 1;
        }
    }

    fn skip_string(&mut self) {
        loop {
            self.at += 1;
            match self.bytes.get(self.at) {
                Some(b'\\') => self.at += 1,
                // A string cannot span lines: the parser reports that.
                Some(b'\n') => {
                    self.at -= 1;
                    return;
                }
                Some(b'"') | None => return,
                Some(_) => {}
            }
        }
    }

    fn skip_raw_string(&mut self) {
        loop {
            self.at += 1;
            match self.bytes.get(self.at) {
                Some(b'\n') => {
                    self.line = self.line.saturating_add(1);
                    self.line_start = self.at + 1;
                }
                Some(b'`') | None => return,
                Some(_) => {}
            }
        }
    }

    fn skip_word(&mut self) {
        while self.bytes.get(self.at + 1).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_') {
            self.at += 1;
        }
    }

    fn check_number(&mut self) -> Result<(), PolicyFault> {
        let start = self.at;
        let mut end = start;
        while let Some(byte) = self.bytes.get(end) {
            let sign = matches!(byte, b'+' | b'-') && matches!(self.bytes[end - 1], b'e' | b'E');
            if !(byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_') || sign) {
                break;
            }
            end += 1;
        }
        let token = &self.bytes[start..end];
        if token.len() > MAX_NUMBER_CHARS {
            return Err(self.fault("policy.number", format!("a number has more than {MAX_NUMBER_CHARS} characters")));
        }
        if let Some(mark) = token.iter().position(|b| matches!(b, b'e' | b'E')) {
            let digits: String =
                token[mark + 1..].iter().filter(|b| b.is_ascii_digit()).map(|b| char::from(*b)).collect();
            if digits.parse::<u32>().map_or(!digits.is_empty(), |exponent| exponent > MAX_EXPONENT) {
                return Err(self.fault("policy.number", format!("a number has an exponent above {MAX_EXPONENT}")));
            }
        }
        // What the parser reads has to be the number that is written.
        let text = String::from_utf8_lossy(token);
        let read = Value::from_numeric_string(&text).ok().filter(|_| text.contains(['.', 'e', 'E']));
        if read.is_some_and(|read| number::read(&text, false).is_none_or(|exact| exact != read)) {
            return Err(self.fault("policy.number", "a number has more digits than are held exactly".to_owned()));
        }
        self.at = end - 1;
        Ok(())
    }
}
