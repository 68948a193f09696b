//! Addresses in the arguments of a call: values that are addresses, and those inside of longer texts.

use super::address::{bare_host, is_scheme_byte, is_slash, read, Address};
use super::markup::{FREE_LOOKS, LOOKS_PER_BYTE};
use crate::json::replaced;
use crate::letters::escapes;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// JSON inside of JSON texts that is read.
const MAX_NESTING: usize = 5;
/// Characters of a scheme.
const MAX_SCHEME: usize = 32;
/// Different addresses that are told.
pub const MAX_FACTS: usize = 20_000;

/// What an address is to who reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A value that is nothing but the address.
    Value,
    /// Within a longer text.
    Text,
    /// A value for an address that has no scheme.
    Bare,
}

/// Addresses, each with one host; what does not matter at its place is left out.
pub type Found = BTreeSet<(Place, Address)>;

/// The addresses of a call's arguments, each told once; None if there are too many.
pub fn of_arguments(content: &str) -> Option<Found> {
    let mut found = Finder::of(content);
    found.json(content, 0);
    found.done()
}

/// The addresses of a reference: it is one itself, and may hold more.
pub fn of_reference(content: &str) -> Option<Found> {
    let mut found = Finder::of(content);
    let is_value = found.value(content, true);
    found.text(content, is_value);
    found.done()
}

struct Finder {
    found: Found,
    /// Bytes of hosts that may still be looked at.
    budget: usize,
    has_more: bool,
}

impl Finder {
    fn of(content: &str) -> Self {
        let budget = FREE_LOOKS.saturating_add(content.len().saturating_mul(LOOKS_PER_BYTE));
        Self { found: Found::new(), budget, has_more: false }
    }

    fn done(self) -> Option<Found> {
        (!self.has_more).then_some(self.found)
    }

    /// Reads what stands between quotes, also where they do not pair up: every piece may be a value.
    fn json(&mut self, text: &str, depth: usize) {
        let (mut is_for_address, mut is_list) = (false, false);
        let mut before: Option<Cow<'_, str>> = None;
        for piece in Pieces(Some(text)) {
            match piece.trim() {
                ":" => (is_for_address, is_list) = (before.as_deref().is_some_and(names_an_address), false),
                "," if !is_list => is_for_address = false,
                "," | "" => {}
                list if list.starts_with(':') && list[1..].trim() == "[" => {
                    (is_for_address, is_list) = (before.as_deref().is_some_and(names_an_address), true);
                }
                trimmed => {
                    if trimmed.starts_with([']', '}']) {
                        is_for_address = false;
                    }
                    let decoded = unescaped(piece);
                    if depth < MAX_NESTING && matches!(decoded, Cow::Owned(_)) && decoded.contains('"') {
                        self.json(&decoded, depth + 1);
                    } else {
                        let is_value = self.value(&decoded, is_for_address);
                        self.text(&decoded, is_value);
                    }
                    before = Some(decoded);
                }
            }
        }
    }

    /// Adds what a text is, if that is nothing but an address, and says so. Where one is asked for, it may have spaces,
    /// and no scheme.
    fn value(&mut self, text: &str, is_for_address: bool) -> bool {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return false;
        }
        let has_breaks = trimmed.contains(['\n', '\r']);
        if has_breaks && trimmed.lines().all(|line| line.trim().is_empty() || read(line).is_some()) {
            for line in trimmed.lines() {
                self.value(line, is_for_address);
            }
            return false;
        }
        if !is_for_address && trimmed.contains(' ') {
            return false;
        }
        match read(trimmed) {
            Some(address) if address.unreadable && (address.template || has_breaks && !is_for_address) => return false,
            Some(address) => self.add(Place::Value, address),
            None if is_for_address => {
                self.bare(trimmed);
                return false;
            }
            None => return false,
        }
        true
    }

    fn bare(&mut self, text: &str) {
        let looks_like_host = text.contains(['.', ':']) || text.len() > 7 || text.starts_with("0x");
        if let Some((host, disguised)) = bare_host(text).filter(|_| looks_like_host && !text.contains(' ')) {
            let address = Address { hosts: vec![host], disguised, ..Address::default() };
            self.add(Place::Bare, address);
        }
    }

    /// Addresses within a text: each has a scheme and slashes. That of a text which is one itself is not told again.
    fn text(&mut self, text: &str, is_value: bool) {
        let bytes = text.as_bytes();
        let mut at = if is_value { text.find(':').map_or(0, |colon| colon + 1) } else { 0 };
        while let Some(colon) = text[at..].find(':').map(|place| place + at) {
            at = colon + 1;
            if !bytes.get(at).copied().is_some_and(is_slash) {
                continue;
            }
            let from = colon.saturating_sub(MAX_SCHEME);
            let length = bytes[from..colon].iter().rev().take_while(|byte| is_scheme_byte(**byte)).count();
            let Some(start) = (colon - length..colon).find(|start| bytes[*start].is_ascii_alphabetic()) else {
                continue;
            };
            if colon - start < 2 {
                continue; // a drive
            }
            let end = host_end(text, at);
            let Some(rest) = self.budget.checked_sub(end - start) else {
                self.has_more = true;
                return;
            };
            self.budget = rest;
            let Some(address) = read(text[start..end].trim_end_matches(['.', ',', ':', ';', '!', '?', '*', ']']))
            else {
                continue;
            };
            let authority = &text[at..end];
            if address.unreadable && (address.template || !has_escape(authority)) {
                continue;
            }
            self.add(Place::Text, address);
        }
    }

    fn add(&mut self, place: Place, mut address: Address) {
        if self.found.len() >= MAX_FACTS {
            self.has_more = true;
            return;
        }
        if address.hosts.is_empty() {
            address.hosts.push(String::new());
        }
        if place != Place::Value {
            address.url.clear();
            (address.user, address.fragment, address.climbs) = (false, false, false);
        }
        address.template = false;
        for host in std::mem::take(&mut address.hosts) {
            self.found.insert((place, Address { hosts: vec![host], ..address.clone() }));
        }
    }
}

/// Where the host of an address in a text ends, whose slashes begin at `at`.
fn host_end(text: &str, at: usize) -> usize {
    let host = at + text[at..].bytes().take_while(|byte| is_slash(*byte)).count();
    let ends = |sign: char| {
        sign <= ' ' || sign.is_whitespace() || matches!(sign, '"' | '\'' | '<' | '>' | '`' | '/' | '?' | '#')
    };
    let end = text[host..].find(ends).map_or(text.len(), |place| place + host);
    let authority = text[host..end].find('\\').map_or(end, |place| place + host);
    let cut = text[host..authority].find(['(', ')', '{', '}', '|', '^', ';', ',']);
    cut.map_or(end, |place| place + host)
}

fn has_escape(authority: &str) -> bool {
    let slashes = authority.bytes().take_while(|byte| is_slash(*byte)).count();
    let rest = &authority[slashes..];
    if rest.starts_with('[') {
        return false; // the network card of an address
    }
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    rest[..end].contains('%')
}

/// Whether what is under this name is an address, by what the name ends in.
fn names_an_address(key: &str) -> bool {
    const ENDS: [&str; 9] = ["url", "uri", "urls", "uris", "href", "link", "endpoint", "webhook", "callback"];
    let key = key.to_ascii_lowercase();
    key.len() < 64 && ENDS.iter().any(|end| key.ends_with(end))
}

/// The pieces of a text between the quotes that no backslash stands before.
struct Pieces<'a>(Option<&'a str>);

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let text = self.0?;
        let bytes = text.as_bytes();
        let mut at = 0;
        while let Some(found) = bytes[at..].iter().position(|byte| matches!(byte, b'"' | b'\\')) {
            at += found;
            if bytes[at] == b'"' {
                self.0 = Some(&text[at + 1..]);
                return Some(&text[..at]);
            }
            at = (at + 2).min(bytes.len());
        }
        self.0 = None;
        Some(text)
    }
}

/// A text with JSON's escapes read; what is no escape stays.
fn unescaped(text: &str) -> Cow<'_, str> {
    let read = |rest: &str, out: &mut String| {
        let escape = &rest[1..];
        let sign = escape.chars().next()?;
        out.push(match sign {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            '"' | '\\' | '/' => sign,
            'u' if is_unit(escape) => {
                let (character, length) = escapes::first(rest).unwrap_or(('\u{fffd}', 6));
                out.push(character);
                return Some(length);
            }
            _ => return None,
        });
        Some(2)
    };
    replaced(text, |byte| byte == b'\\', read)
}

/// Whether it is `uXXXX`.
fn is_unit(escape: &str) -> bool {
    escape.as_bytes().get(1..5).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}
