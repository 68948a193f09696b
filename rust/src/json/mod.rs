//! JSON, the only way into the engine and out of it: [`parse_object`] and [`write`](write()). What Python needs beside
//! that is in [`selection`] and [`spelling`].

pub mod number;
mod parse;
pub mod selection;
pub mod spelling;
mod write;

use std::borrow::Cow;

pub use parse::{merge_under, parse_object, parse_text, JsonFault, MAX_DEPTH, MAX_VALUES};
pub use write::{write, write_text, Unwritable};

/// The text with what `read` writes in the place of what begins with some bytes. `read` is given the text from such
/// a byte on and what was written before it, and gives the length of what it replaced; None if that stays.
pub(crate) fn replaced<'a>(
    text: &'a str,
    is_sign: impl Fn(u8) -> bool,
    mut read: impl FnMut(&'a str, &mut String) -> Option<usize>,
) -> Cow<'a, str> {
    let Some(mut sign) = find(text.as_bytes(), 0, &is_sign) else { return Cow::Borrowed(text) };
    let (mut out, mut done) = (String::with_capacity(text.len()), 0);
    loop {
        out.push_str(&text[done..sign]);
        let length = read(&text[sign..], &mut out);
        done = sign + length.unwrap_or(0);
        match find(text.as_bytes(), sign + length.unwrap_or(1).max(1), &is_sign) {
            Some(next) => sign = next,
            None => break,
        }
    }
    out.push_str(&text[done..]);
    Cow::Owned(out)
}

/// Where the first of some bytes stands, from a place on.
pub(crate) fn find(bytes: &[u8], from: usize, is_sign: impl Fn(u8) -> bool) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let has_none = |chunk: &&[u8]| !chunk.iter().fold(false, |found, byte| found | is_sign(*byte));
    let skipped = rest.chunks_exact(16).take_while(has_none).count() * 16;
    rest[skipped..].iter().position(|byte| is_sign(*byte)).map(|at| from + skipped + at)
}
