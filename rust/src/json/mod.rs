//! JSON, the only way into the engine and out of it: [`parse_object`] and [`write`](write()). What Python needs beside
//! that is in [`selection`] and [`spelling`].

pub mod number;
mod parse;
pub mod selection;
pub mod spelling;
mod write;

pub use parse::{merge_under, parse_object, parse_text, JsonFault, MAX_DEPTH, MAX_VALUES};
pub use write::{write, write_text, Unwritable};

/// Where the first of some bytes stands, from a place on.
pub(crate) fn find(bytes: &[u8], from: usize, is_sign: impl Fn(u8) -> bool) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let has_none = |chunk: &&[u8]| !chunk.iter().fold(false, |found, byte| found | is_sign(*byte));
    let skipped = rest.chunks_exact(16).take_while(has_none).count() * 16;
    rest[skipped..].iter().position(|byte| is_sign(*byte)).map(|at| from + skipped + at)
}
