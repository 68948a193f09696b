//! What a renderer of Markdown or HTML loads by itself, and what it links to, with its place in the text.
//!
//! Renderers do not agree where code, HTML and lists begin and end, and of a stream only a window is seen. So nothing
//! is left out because of what stands around it: whatever some reader takes for a picture or a link is found.

use super::address::{is_slash, read, Address};
use crate::json::replaced;
use crate::letters::references::reference;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// Bytes that are looked at for each byte of the text, and for any text, before it counts as too tangled.
pub(super) const LOOKS_PER_BYTE: usize = 64;
pub(super) const FREE_LOOKS: usize = 1 << 20;
/// Addresses that are told of one text.
const MAX_LINKS: usize = 20_000;
/// Line breaks and spaces before the destination of a link.
const MAX_SPACES: usize = 1 << 10;

/// How a client comes to ask for an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// It changes what all other addresses of the page mean.
    Base,
    /// It is loaded as soon as the text is shown.
    Image,
    /// Somebody has to follow it.
    Link,
    /// It stands in the text, and some clients make a link of it.
    Text,
}

pub struct Link {
    pub usage: Use,
    pub address: Address,
    /// In code points, the end not included.
    pub span: (usize, usize),
}

/// The links of a text by their place; None if there are too many, or it is too tangled to be read in time.
pub fn links(text: &str) -> Option<Vec<Link>> {
    let mut reader = Reader {
        text,
        budget: FREE_LOOKS.saturating_add(text.len().saturating_mul(LOOKS_PER_BYTE)),
        links: BTreeMap::new(),
    };
    reader.markdown()?;
    reader.html()?;
    reader.plain()?;
    let mut places = CodePoints { text, at: 0, count: 0 };
    let mut told = Vec::new();
    for ((start, end), (usage, address)) in reader.links {
        let from = places.of(start);
        told.push(Link { usage, address, span: (from, from + text[start..end].chars().count()) });
    }
    Some(told)
}

struct Reader<'a> {
    text: &'a str,
    budget: usize,
    links: BTreeMap<(usize, usize), (Use, Address)>,
}

impl Reader<'_> {
    fn spend(&mut self, bytes: usize) -> Option<()> {
        self.budget = self.budget.checked_sub(bytes)?;
        Some(())
    }

    /// Adds what stands at `start..end` and means `spelled`, if a client would go to the network for it.
    fn add(&mut self, usage: Use, start: usize, end: usize, spelled: &str) -> Option<()> {
        if start >= end || !spelled.contains(['/', '\\', ':']) {
            return Some(());
        }
        let Some(address) = read(spelled) else { return Some(()) };
        if address.scheme == "file" || address.template || address.hosts.is_empty() && !address.unreadable {
            return Some(());
        }
        if self.links.len() >= MAX_LINKS {
            return None;
        }
        let known = self.links.entry((start, end)).or_insert_with(|| (usage, address));
        known.0 = known.0.min(usage);
        Some(())
    }

    // -- Markdown ------------------------------------------------------------------------------------------------------

    fn markdown(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        let mut pictures: Option<Vec<usize>> = None;
        let mut at = 0;
        while let Some(found) = bytes[at..].iter().position(|byte| *byte == b']') {
            at += found + 1;
            match bytes.get(at) {
                Some(b'(') => {
                    let text = self.text;
                    let pictures = pictures.get_or_insert_with(|| closing_of_pictures(text));
                    let usage = if pictures.binary_search(&(at - 1)).is_ok() { Use::Image } else { Use::Link };
                    self.destination(usage, at + 1)?;
                }
                // A picture by reference is drawn from wherever its name is defined.
                Some(b':') => {
                    let usage = if self.is_footnote(at - 1) { Use::Text } else { Use::Image };
                    self.destination(usage, at + 1)?;
                }
                _ => {}
            }
        }
        Some(())
    }

    fn is_footnote(&self, close: usize) -> bool {
        let from = self.text[..close].char_indices().rev().take(128).find(|(_, sign)| *sign == '[').map(|(at, _)| at);
        from.is_some_and(|open| self.text.as_bytes().get(open + 1) == Some(&b'^'))
    }

    /// The destination of a link or a definition, behind the bracket or colon.
    fn destination(&mut self, usage: Use, from: usize) -> Option<()> {
        let bytes = self.text.as_bytes();
        let spaces = |from: usize| {
            let rest = bytes[from..].iter().take(MAX_SPACES);
            rest.take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'>')).count()
        };
        // The marks of a quote stand at the beginning of its lines.
        let quoted = spaces(from);
        let plain = bytes[from..].iter().take(MAX_SPACES).take_while(|byte| byte.is_ascii_whitespace()).count();
        let mut start = from + if bytes[from..from + quoted].contains(&b'\n') { quoted } else { plain };
        let is_pointed = bytes.get(start) == Some(&b'<');
        start += usize::from(is_pointed);
        let mut end = start;
        let mut depth = 0usize;
        while let Some(byte) = bytes.get(end) {
            match byte {
                b'\\' if bytes.get(end + 1).is_some_and(u8::is_ascii_punctuation) => end += 1,
                b'>' if is_pointed => break,
                b'\n' | b'\r' => break,
                0..=b' ' if !is_pointed => break,
                b'(' if !is_pointed => depth += 1,
                b')' if !is_pointed && depth == 0 => break,
                b')' if !is_pointed => depth -= 1,
                _ => {}
            }
            end += 1;
        }
        let end = end.min(bytes.len());
        self.spend(end - from)?;
        let raw = &self.text[start..end];
        let spelled = decoded(&without_backslashes(raw)).into_owned();
        self.add(usage, start, end, &spelled)
    }

    // -- HTML ----------------------------------------------------------------------------------------------------------

    fn html(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        let mut at = 0;
        while let Some(found) = bytes[at..].iter().position(|byte| *byte == b'<') {
            at += found + 1;
            if bytes.get(at).is_some_and(u8::is_ascii_alphabetic) {
                self.tag(at)?;
            }
        }
        Some(())
    }

    /// An element, or an address between angle brackets; `from` is behind the bracket.
    fn tag(&mut self, from: usize) -> Option<()> {
        let bytes = self.text.as_bytes();
        let ends = |byte: u8| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>' | 0x0c);
        let length = bytes[from..].iter().take_while(|byte| !ends(**byte)).count();
        let name = self.text[from..from + length].to_ascii_lowercase();
        self.spend(length)?;
        if name.contains(':') && bytes.get(from + length) == Some(&b'/') {
            let end = self.text[from..].find(['>', ' ', '\n', '"']).map_or(bytes.len(), |place| place + from);
            self.spend(end - from)?;
            let spelled = decoded(&self.text[from..end]).into_owned();
            return self.add(Use::Link, from, end, &spelled);
        }
        let mut at = from + length;
        loop {
            let skipped = bytes[at..].iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == b'/').count();
            at += skipped;
            self.spend(skipped + 1)?;
            if matches!(bytes.get(at), None | Some(b'>')) {
                break;
            }
            let named = bytes[at..].iter().enumerate();
            let length = named.take_while(|(place, byte)| !ends(**byte) && (*place == 0 || **byte != b'=')).count();
            let attribute = self.text[at..at + length].to_ascii_lowercase();
            at += length;
            self.spend(length)?;
            let spaces = bytes[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            self.spend(spaces)?;
            if bytes.get(at + spaces) != Some(&b'=') {
                continue;
            }
            at += spaces + 1;
            at += bytes[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let (start, end, next) = value_at(bytes, at);
            self.spend(next - at)?;
            at = next;
            self.attribute(&name, &attribute, start, end)?;
        }
        if name == "style" {
            let close = self.text[at..].find("</").map_or(bytes.len(), |place| place + at);
            self.spend(close - at)?;
            self.styles(at, close)?;
        }
        Some(())
    }

    fn attribute(&mut self, tag: &str, attribute: &str, start: usize, end: usize) -> Option<()> {
        let raw = &self.text[start..end];
        if raw.is_empty() || !raw.contains(['/', '\\', ':', '&']) || is_only_told(tag, attribute) {
            return Some(());
        }
        let usage = match (tag, attribute) {
            ("base", "href") => Use::Base,
            ("a" | "area", "href" | "xlink:href") | (_, "action" | "formaction" | "cite" | "longdesc") => Use::Link,
            _ => Use::Image,
        };
        match attribute {
            "style" | "srcdoc" | "content" | "values" | "from" | "to" | "fill" | "stroke" | "filter" | "mask"
            | "clip-path" => return self.styles(start, end),
            "srcset" | "imagesrcset" | "archive" | "ping" | "attributionsrc" => {
                return self.candidates(start, end);
            }
            _ => {}
        }
        let from = start + (raw.len() - raw.trim_start().len());
        let to = from + raw.trim().len();
        let spelled = decoded(&self.text[from..to]).into_owned();
        self.add(usage, from, to, &spelled)
    }

    /// The addresses of a list, each followed by its size.
    fn candidates(&mut self, start: usize, end: usize) -> Option<()> {
        let raw = &self.text[start..end];
        let mut at = start;
        for piece in raw.split(|sign: char| sign.is_ascii_whitespace()) {
            let trimmed = piece.trim_matches(',');
            if !trimmed.is_empty() {
                let from = at + (piece.len() - piece.trim_start_matches(',').len());
                let spelled = decoded(trimmed).into_owned();
                self.add(Use::Image, from, from + trimmed.len(), &spelled)?;
            }
            at += piece.len() + 1;
        }
        // Who writes its white space or slashes as references hides where one ends: the whole value then.
        if raw.contains('&') {
            let spelled = decoded(raw).into_owned();
            for word in spelled.split([' ', '\t', '\n', '\r', ',']) {
                self.add(Use::Image, start, end, word)?;
            }
        }
        Some(())
    }

    /// Every address of a style, or of a page within an attribute. Where it is written with escapes, its place is the
    /// whole of it.
    fn styles(&mut self, start: usize, end: usize) -> Option<()> {
        let raw = &self.text[start..end];
        let spelled = without_css_escapes(&decoded(raw)).into_owned();
        self.spend(raw.len())?;
        let is_plain = spelled == raw;
        for (from, to) in in_style(&spelled) {
            let place = if is_plain { (start + from, start + to) } else { (start, end) };
            self.add(Use::Image, place.0, place.1, &spelled[from..to])?;
        }
        Some(())
    }

    // -- addresses without markup --------------------------------------------------------------------------------------

    /// Those that readers make links of: a scheme of the web, or `www.`.
    fn plain(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        let mut at = 0;
        while let Some(found) = self.text[at..].find("://").map(|place| place + at) {
            at = found + 3;
            let from = found.saturating_sub(5);
            let Some(before) = self.text.get(from..found).map(str::to_ascii_lowercase) else { continue };
            let Some(length) =
                ["https", "http", "ftp"].iter().find(|scheme| before.ends_with(*scheme)).map(|it| it.len())
            else {
                continue;
            };
            let start = found - length;
            let ends = |byte: &u8| *byte <= b' ' || matches!(byte, b'<' | b'>' | b'"' | b'`');
            let mut end = bytes[at..].iter().position(ends).map_or(bytes.len(), |place| place + at);
            self.spend(end - start)?;
            while end > at
                && matches!(bytes[end - 1], b'?' | b'!' | b'.' | b',' | b':' | b'*' | b'_' | b'~' | b'\'' | b')' | b']')
            {
                end -= 1;
            }
            let inside = self.links.range(..=(start, usize::MAX)).next_back();
            if inside.is_some_and(|((_, known), _)| *known > start) {
                continue;
            }
            let spelled = self.text[start..end].to_owned();
            self.add(Use::Text, start, end, &spelled)?;
            at = end.max(at);
        }
        Some(())
    }
}

/// The places of the brackets that close the text of a picture, in any of three readings: each bracket counts; those
/// behind a backslash do not; nor do those in code.
fn closing_of_pictures(text: &str) -> Vec<usize> {
    if !text.contains("![") {
        return Vec::new();
    }
    let code = code_spans(text);
    let mut places: Vec<usize> = [(false, false), (true, false), (true, true)]
        .into_iter()
        .flat_map(|(reads_escapes, reads_code)| {
            closing(text.as_bytes(), reads_escapes, if reads_code { &code } else { &[] })
        })
        .collect();
    places.sort_unstable();
    places.dedup();
    places
}

fn closing(bytes: &[u8], reads_escapes: bool, code: &[(usize, usize)]) -> Vec<usize> {
    let mut open: Vec<bool> = Vec::new();
    let mut found = Vec::new();
    let mut spans = code.iter().peekable();
    let mut at = 0;
    while at < bytes.len() {
        if let Some((_, end)) = spans.next_if(|(start, _)| *start <= at) {
            at = at.max(*end);
            continue;
        }
        match bytes[at] {
            b'\\' if reads_escapes => at += 1,
            b'[' => open.push(at > 0 && bytes[at - 1] == b'!'),
            b']' if open.pop() == Some(true) => found.push(at),
            _ => {}
        }
        at += 1;
    }
    found
}

/// Where code between backticks begins and ends.
fn code_spans(text: &str) -> Vec<(usize, usize)> {
    let bytes = text.as_bytes();
    let mut runs = Vec::new();
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|byte| *byte == b'`') {
        at += found;
        let length = bytes[at..].iter().take_while(|byte| **byte == b'`').count();
        runs.push((at, length));
        at += length;
    }
    let mut next_of: HashMap<usize, usize> = HashMap::new();
    let mut closes = vec![None; runs.len()];
    for (place, (_, length)) in runs.iter().enumerate().rev() {
        closes[place] = next_of.insert(*length, place);
    }
    let mut spans = Vec::new();
    let mut place = 0;
    while place < runs.len() {
        match closes[place] {
            Some(close) => {
                spans.push((runs[place].0, runs[close].0 + runs[close].1));
                place = close + 1;
            }
            None => place += 1,
        }
    }
    spans
}

/// Where an attribute's value begins and ends, and where its tag goes on.
fn value_at(bytes: &[u8], at: usize) -> (usize, usize, usize) {
    match bytes.get(at) {
        Some(quote @ (b'"' | b'\'')) => {
            let end = bytes[at + 1..].iter().position(|byte| byte == quote).map_or(bytes.len(), |place| at + 1 + place);
            (at + 1, end, (end + 1).min(bytes.len()))
        }
        _ => {
            let length = bytes[at..].iter().take_while(|byte| !byte.is_ascii_whitespace() && **byte != b'>').count();
            (at, at + length, at + length)
        }
    }
}

/// Attributes whose value nobody asks for: names, texts for people, data for scripts, namespaces.
fn is_only_told(tag: &str, attribute: &str) -> bool {
    matches!(
        attribute,
        "alt" | "title" | "id" | "class" | "name" | "value" | "label" | "placeholder" | "xmlns" | "rel" | "type"
    ) || attribute.starts_with("data-")
        || attribute.starts_with("aria-")
        || attribute.starts_with("xmlns:")
        || attribute == "content" && tag != "meta"
}

/// The addresses of a style: of the web, or without a scheme.
fn in_style(style: &str) -> Vec<(usize, usize)> {
    let bytes = style.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(place) = bytes[at..].iter().position(|byte| is_slash(*byte) || *byte == b':') {
        let slash = at + place;
        let is_start = bytes[slash] == b':' || bytes.get(slash + 1).copied().is_some_and(is_slash);
        let word = bytes[..slash].iter().rev().take(8).take_while(|byte| byte.is_ascii_alphabetic()).count();
        let scheme = style[slash - word..slash].to_ascii_lowercase();
        let is_web = bytes[slash] == b':' && matches!(scheme.as_str(), "http" | "https" | "ftp" | "ws" | "wss");
        if !(is_web || is_start && bytes[slash] != b':') {
            at = slash + 1;
            continue;
        }
        let start = if is_web { slash - word } else { slash };
        let ends = |byte: &u8| matches!(byte, b'"' | b'\'' | b')' | b'<' | b'>' | b';' | b' ');
        let end = bytes[start..].iter().position(ends).map_or(bytes.len(), |place| place + start);
        let end = end.max(slash + 1);
        if style.is_char_boundary(end) {
            found.push((start, end));
        }
        at = end;
    }
    found
}

fn without_css_escapes(style: &str) -> Cow<'_, str> {
    replaced(
        style,
        |byte| matches!(byte, b'\\' | b'/'),
        |rest, out| {
            if let Some(comment) = rest.strip_prefix("/*") {
                // A comment that begins within an address is part of it.
                let is_within = out.ends_with(|sign: char| !sign.is_ascii_whitespace() && sign != ';');
                return comment.find("*/").filter(|_| !is_within).map(|end| end + 4);
            }
            let digits = rest[1..].bytes().take(6).take_while(u8::is_ascii_hexdigit).count();
            if rest.starts_with('/') || digits == 0 {
                return None;
            }
            let point = u32::from_str_radix(&rest[1..=digits], 16).ok().and_then(char::from_u32);
            out.push(point.unwrap_or('\u{fffd}'));
            Some(1 + digits + usize::from(rest[1 + digits..].starts_with([' ', '\n', '\t'])))
        },
    )
}

fn without_backslashes(text: &str) -> Cow<'_, str> {
    let read = |rest: &str, out: &mut String| {
        let next = rest[1..].chars().next().filter(char::is_ascii_punctuation)?;
        out.push(next);
        Some(2)
    };
    replaced(text, |byte| byte == b'\\', read)
}

/// A text with HTML's character references read: numbers, and the names of ASCII signs.
fn decoded(text: &str) -> Cow<'_, str> {
    let read = |rest: &str, out: &mut String| {
        let (sign, length) = reference(rest)?;
        out.push_str(&sign);
        Some(length)
    };
    replaced(text, |byte| byte == b'&', read)
}

/// Counts code points on the way through a text.
struct CodePoints<'a> {
    text: &'a str,
    at: usize,
    count: usize,
}

impl CodePoints<'_> {
    /// How many code points are before a byte; places come in order.
    fn of(&mut self, place: usize) -> usize {
        self.count += self.text[self.at..place].chars().count();
        self.at = place;
        self.count
    }
}
