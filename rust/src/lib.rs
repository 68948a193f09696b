//! The embedded Rego engine of cmf-pipeline [docs/spec/engines.md], and what Python needs in native code.
//!
//! The engine, in the order in which a policy set passes through it:
//! - [`parsing`] reads policy text, refuses what may not run, and finds what each rule reads and calls;
//! - [`rewriting`] changes the text where regorus would give it another meaning than OPA does;
//! - [`program`] compiles it, makes the compiled form as strict as the interpreter, and removes steps that cannot
//!   matter;
//! - [`policy_set`] does all of this at load; [`failure`] is what can go wrong, there and later;
//! - [`evaluation`] evaluates views, within limits of time, memory and stack;
//! - [`builtins`] are the functions that a policy may call, each with its limits and with OPA's results;
//! - [`json`] is the only way into the engine and out of it.
//!
//! [`facts`] adds to a view what its texts say in another form: [`letters`] makes the forms in which patterns are found
//! whatever letters or code a text is written in, [`addresses`] reads addresses, and finds them in a text.
//!
//! `python` is the binding, and writes policy inputs from Python's own objects.

pub mod addresses;
pub mod builtins;
pub mod evaluation;
pub mod facts;
pub mod failure;
pub mod json;
pub mod letters;
pub mod parsing;
pub mod policy_set;
pub mod program;
#[cfg(feature = "python")]
mod python;
pub mod rewriting;
