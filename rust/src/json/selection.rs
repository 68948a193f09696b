//! Some members of a JSON object, selected without parsing the others.
#![forbid(unsafe_code)]

use crate::json::find;

/// The object with only the named members, as they are written; None if that cannot be told without parsing.
///
/// `object` is JSON without spaces, as this library writes it: what is left out is not checked.
pub fn selected(object: &[u8], names: &[&str]) -> Option<Vec<u8>> {
    let mut rest = object.strip_prefix(b"{")?.strip_suffix(b"}")?;
    let (mut found, mut kept) = (vec![false; names.len()], Vec::from(b"{"));
    while !rest.is_empty() {
        let (key, behind) = rest.split_at_checked(end_of_string(rest)?)?;
        let length = end_of_value(behind.strip_prefix(b":")?)?;
        let (member, more) = rest.split_at_checked(key.len() + 1 + length)?;
        let name = key.get(1..key.len() - 1)?;
        if name.contains(&b'\\') {
            return None; // may be one of the names, escaped
        }
        if let Some(at) = names.iter().position(|wanted| wanted.as_bytes() == name) {
            if std::mem::replace(&mut found[at], true) {
                return None;
            }
            if kept.len() > 1 {
                kept.push(b',');
            }
            kept.extend_from_slice(member);
        }
        rest = match more.split_first() {
            Some((b',', next)) if !next.is_empty() => next,
            None => more,
            _ => return None,
        };
    }
    kept.push(b'}');
    Some(kept)
}

/// Where the string ends that begins here.
pub fn end_of_string(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    bytes.first().filter(|first| **first == b'"')?;
    loop {
        at = find(bytes, at, |byte| matches!(byte, b'"' | b'\\'))?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// Where the value ends that begins here: before a comma or closing bracket that is not part of it.
fn end_of_value(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at += end_of_string(&bytes[at..])?,
            b'{' | b'[' => (at, depth) = (at + 1, depth + 1),
            b'}' | b']' => (at, depth) = (at + 1, depth.checked_sub(1)?),
            b',' if depth == 0 => break,
            _ => at += 1,
        }
    }
    (at > 0 && depth == 0).then_some(at)
}
