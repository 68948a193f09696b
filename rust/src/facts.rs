//! Facts about the texts of a view that a rule can read, added to its JSON where a rule reads them [INP-7], [INP-9], [INP-10].
#![forbid(unsafe_code)]

use crate::addresses::facts as addresses;
use crate::json::selection::{end_of_string, selected};
use crate::json::{find, write_text};
use crate::letters::{encoded, escapes, folded_text, in_content, plain};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::HashSet;

/// How often encoded text is read that stands in encoded text.
const MAX_LAYERS: usize = 6;
const FACTS: [&str; 5] = ["plain", "folded", "decoded", "spelled", "addresses"];
/// The extensions in which others write.
const WRITTEN_CONTEXT: [&str; 4] = ["custom", "framework", "mcp", "meta"];

/// The JSON of a view with those of [`FACTS`] that are asked for and that it has; None if nothing is added.
pub fn with_facts(view: &[u8], asked: [bool; FACTS.len()]) -> Option<Vec<u8>> {
    let [asks_plain, asks_folded, asks_decoded, asks_spelled, asks_addresses] = asked;
    let (mut content, mut kind) = (None, Cow::Borrowed(""));
    let mut known = [false; 5];
    let (mut spelled, mut has_extra) = (Vec::new(), false);
    for_each_text(view, |member, text, is_value| match member {
        b"properties" if text == b"\"extra\"" => has_extra = true,
        b"content" if is_value => content = Some(text),
        b"kind" if is_value => kind = unquoted(text).unwrap_or_default(),
        b"name" | b"uri" | b"mime_type" | b"properties" if asks_spelled && !is_ordinary(text) => spelled.push(text),
        _ => {
            let at = FACTS.iter().position(|name| name.as_bytes() == member);
            if let Some(known) = at.and_then(|at| known.get_mut(at)) {
                *known = true;
            }
        }
    });
    let mut out = Vec::new();
    let is_ordinary_content = content.is_none_or(is_ordinary);
    let written = content.filter(|_| asks_addresses || asks_folded || !is_ordinary_content);
    let content = match written {
        Some(text) => unquoted(text)?,
        None => Cow::Borrowed(""),
    };
    let needs_plain = asks_plain || asks_folded || asks_decoded;
    let is_read = !needs_plain || is_ordinary_content;
    let plain = if is_read { Cow::Borrowed(&*content) } else { plain(&content) };
    if asks_plain && !known[0] && plain != content {
        out.extend_from_slice(b",\"plain\":");
        write_text(&mut out, &plain);
    }
    if asks_folded && !known[1] && written.is_some() {
        out.extend_from_slice(b",\"folded\":");
        write_text(&mut out, &folded_text(&plain));
    }
    if asks_decoded && !known[2] && !is_read {
        write_decoded(&mut out, &content, &plain);
    }
    if asks_spelled && !known[3] {
        write_spelled(&mut out, "spelled", &spelled);
    }
    if asks_addresses && !known[4] {
        out.extend_from_slice(b",\"addresses\":");
        addresses::write(&mut out, &kind, &content, has_extra.then_some(view)).ok()?;
    }
    with_members(view, &out)
}

/// The JSON that views share, with `spelled_context`; None if nothing is added.
pub fn with_context_facts(shared: &[u8]) -> Option<Vec<u8>> {
    let extensions = selected(shared, &["extensions"])?;
    let written = selected(extensions.strip_prefix(b"{\"extensions\":")?.strip_suffix(b"}")?, &WRITTEN_CONTEXT)?;
    let (mut out, mut spelled) = (Vec::new(), Vec::new());
    for_each_text(&written, |_, text, _| {
        if !is_ordinary(text) {
            spelled.push(text);
        }
    });
    write_spelled(&mut out, "spelled_context", &spelled);
    with_members(shared, &out)
}

fn with_members(object: &[u8], members: &[u8]) -> Option<Vec<u8>> {
    let end = object.iter().rposition(|byte| *byte == b'}').filter(|_| !members.is_empty())?;
    Some([&object[..end], members, b"}"].concat())
}

/// A text that is encoded in the content, and the span of the content that spells it.
#[derive(Serialize)]
struct Decoded {
    text: String,
    span: (usize, usize),
}

/// Writes what is encoded in the content, each text with the span of the content that spells it.
fn write_decoded(out: &mut Vec<u8>, content: &str, plain: &str) {
    let (mut seen, mut listed) = (HashSet::new(), Vec::new());
    for text in [content, plain].iter().take(if plain == content { 1 } else { 2 }) {
        let mut pieces = encoded::pieces(text);
        pieces.sort_by_key(|piece| piece.span.0);
        let mut places: Vec<usize> = pieces.iter().flat_map(|piece| [piece.span.0, piece.span.1]).collect();
        places.sort_unstable();
        let points = code_points(text, &places);
        let at = |place: usize| points[places.partition_point(|other| *other < place)];
        let spans: Vec<_> = pieces.iter().map(|piece| (at(piece.span.0), at(piece.span.1))).collect();
        let spans = if *text == content { spans } else { in_content(content, false, &spans) };
        for (piece, span) in pieces.into_iter().zip(spans) {
            let mut texts = Vec::new();
            readings(piece.text, 1, &mut texts);
            texts.retain(|text| seen.insert((text.clone(), span.0)));
            listed.extend(texts.into_iter().map(|text| Decoded { text, span }));
        }
    }
    write_list(out, "decoded", &listed);
}

/// Writes a member of a view that is left out where it is empty.
fn write_list(out: &mut Vec<u8>, name: &str, listed: &[impl Serialize]) {
    if let Some(written) = serde_json::to_vec(listed).ok().filter(|_| !listed.is_empty()) {
        out.extend_from_slice(format!(",\"{name}\":").as_bytes());
        out.extend_from_slice(&written);
    }
}

/// How many code points are before each of some places, which are in order.
fn code_points(text: &str, places: &[usize]) -> Vec<usize> {
    let (mut at, mut count) = (0, 0);
    let count_to = |place: &usize| {
        count += text[at..*place].chars().count();
        at = *place;
        count
    };
    places.iter().map(count_to).collect()
}

/// Writes what some texts say in another form.
fn write_spelled(out: &mut Vec<u8>, name: &str, written: &[&[u8]]) {
    let mut texts = Vec::new();
    for text in written.iter().copied().filter_map(unquoted) {
        let plain = plain(&text);
        if plain != text {
            texts.push(plain.clone().into_owned());
        }
        for form in [&text, &plain].iter().take(if plain == text { 1 } else { 2 }) {
            for piece in encoded::pieces(form) {
                readings(piece.text, 1, &mut texts);
            }
        }
    }
    let mut seen = HashSet::new();
    texts.retain(|text| seen.insert(text.clone()));
    write_list(out, name, &texts);
}

/// A text that was encoded, in plain letters, and what is encoded in it.
fn readings(text: String, layer: usize, texts: &mut Vec<String>) {
    let read = plain(&text).into_owned();
    if layer < MAX_LAYERS && encoded::any(read.as_bytes()) {
        for piece in encoded::pieces(&read) {
            readings(piece.text, layer + 1, texts);
        }
    }
    if read != text {
        texts.push(text);
    }
    texts.push(read);
}

fn unquoted(written: &[u8]) -> Option<Cow<'_, str>> {
    let inside = written.get(1..written.len() - 1)?;
    if inside.contains(&b'\\') {
        return serde_json::from_slice::<String>(written).ok().map(Cow::Owned);
    }
    std::str::from_utf8(inside).ok().map(Cow::Borrowed)
}

/// Calls `each` with the strings of a JSON object, names too, as they are written: the member of the object in which a
/// string stands, the string, and whether it is the member's value.
fn for_each_text<'a>(object: &'a [u8], mut each: impl FnMut(&'a [u8], &'a [u8], bool)) {
    let (mut at, mut depth) = (0, 0_usize);
    let mut member: &[u8] = b"";
    while let Some(byte) = object.get(at) {
        match byte {
            b'"' => {
                let end = end_of_string(&object[at..]).map_or(object.len(), |length| at + length);
                let text = &object[at..end];
                at = end;
                let next = object[at..].iter().find(|byte| !byte.is_ascii_whitespace());
                let is_name = depth == 1 && next == Some(&b':');
                if is_name {
                    member = &text[1..text.len() - 1];
                }
                each(member, text, depth == 1 && !is_name);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
}

/// Whether a JSON string has only ASCII that everybody sees, and nothing that is escaped or encoded in its text.
fn is_ordinary(written: &[u8]) -> bool {
    let is_sign = |byte: u8| !(0x20..0x7f).contains(&byte) || escapes::may_begin(byte);
    let mut from = 0;
    while let Some(at) = find(written, from, is_sign) {
        from = at + 1;
        match (written[at], written.get(from)) {
            (b'\\', Some(b'\\')) if matches!(written.get(at + 2), Some(b'u' | b'U' | b'x' | b'\\')) => return false,
            (b'\\', Some(b'u' | b'b' | b'f')) => return false,
            (b'\\', _) => from += 1,
            (b'%' | b'&', _) => {
                let escape = &written[at..written.len().min(at + 40)];
                if std::str::from_utf8(escape).map_or(true, |text| escapes::first(text).is_some()) {
                    return false;
                }
            }
            _ => return false,
        }
    }
    !encoded::any(written.get(1..written.len() - 1).unwrap_or_default())
}
