//! Policy text, rewritten where this release of regorus gives it another meaning than OPA does [ENG-11].
//!
//! A text is rewritten for both forms first ([`print_calls`], [`head_keys`], [`object_patterns`], [`negation`]), then for the compiler
//! ([`for_compiler`]) or for the interpreter ([`for_interpreter`]). [`edits`] are the changes themselves.

pub mod edits;
pub mod for_compiler;
pub mod for_interpreter;
pub mod head_keys;
pub mod negation;
pub mod object_patterns;
pub mod print_calls;
