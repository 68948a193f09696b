//! Some members of a JSON object, found without reading what the others hold.
#![forbid(unsafe_code)]

/// The same object with those members alone that are named, as they are spelled; None where that cannot be told quickly.
///
/// `object` is JSON without spaces, as it is written here: what is left out is not held against any rule.
pub fn picked(object: &[u8], names: &[&str]) -> Option<Vec<u8>> {
    let mut rest = object.strip_prefix(b"{")?.strip_suffix(b"}")?;
    let (mut found, mut kept) = (vec![false; names.len()], Vec::from(b"{"));
    while !rest.is_empty() {
        let (key, behind) = rest.split_at_checked(end_of_text(rest)?)?;
        let length = end_of_value(behind.strip_prefix(b":")?)?;
        let (member, more) = rest.split_at_checked(key.len() + 1 + length)?;
        let name = key.get(1..key.len() - 1)?;
        if name.contains(&b'\\') {
            return None; // spelled in a way that may be a name
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

/// Where a text ends that begins here.
fn end_of_text(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    bytes.first().filter(|first| **first == b'"')?;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// Where a value ends that begins here: before a comma or a bracket that is not its own.
fn end_of_value(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at += end_of_text(&bytes[at..])?,
            b'{' | b'[' => (at, depth) = (at + 1, depth + 1),
            b'}' | b']' => (at, depth) = (at + 1, depth.checked_sub(1)?),
            b',' if depth == 0 => break,
            _ => at += 1,
        }
    }
    (at > 0 && depth == 0).then_some(at)
}
