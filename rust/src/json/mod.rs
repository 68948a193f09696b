//! JSON, the only way into the engine and out of it: [`parse_object`] and [`write`](write()). What Python needs beside
//! that is in [`escape`], [`selection`] and [`spelling`].

pub mod escape;
pub mod number;
mod parse;
pub mod selection;
pub mod spelling;
mod write;

pub use parse::{merge_under, parse_object, parse_text, JsonFault, MAX_DEPTH, MAX_VALUES};
pub use write::{write, Unwritable};
