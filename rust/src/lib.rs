//! The embedded Rego engine of cmf-pipeline [docs/spec/engines.md].
//!
//! Loading a set:
//! - `policy_set` and `programs` compile; `failure` is what can go wrong, here and later;
//! - `prescan`, `names`, `mentions`, `outline`, `brackets`, `distinct` and `vet` decide what may be loaded, `survey` tells what it reads;
//! - `exact` and `negated` make patterns and negations mean what they mean in OPA;
//! - `strict`, `layout`, `hoist` and `repair` make this release's two forms agree, `prints` takes out what is for authors;
//! - `folding` and `ruled_out` evaluate ahead what `known` and `literals` allow, `lean` and `asked_once` leave out steps.
//!
//! Evaluating a view:
//! - `batch` evaluates; `json` is the only way in, `written` the only way out;
//! - `builtins`, `patterns`, `watch` and `stack` bound what runs;
//! - `dialect` spells patterns as OPA reads them, `globs` globs, and `corrected`, `texts`, `members` and `sprintf` answer other builtins
//!   as OPA does;
//! - `tooling` is for authors.
//!
//! What Python holds, for Python; `python` is the binding, `c_functions` for what it would slow down:
//! - `value_bytes` writes it, `json_text` its texts; `by_type` is what Python said of its types;
//! - `input`, `template` and `context` write policy inputs from views;
//! - `fingerprints` tells whether it came again, by the hash of `polynomial` and by `rows` of the same objects;
//! - `picking` finds members, `spelling` tells how a text is spelled, `copying` copies plain JSON, `making` and `filling`
//!   fill values, `freezing` freezes JSON and compares it.

pub mod asked_once;
pub mod batch;
pub mod brackets;
pub mod builtins;
#[cfg(feature = "python")]
mod by_type;
#[cfg(feature = "python")]
mod c_functions;
#[cfg(feature = "python")]
mod context;
#[cfg(feature = "python")]
mod copying;
pub mod corrected;
pub mod dialect;
pub mod distinct;
pub mod exact;
pub mod failure;
#[cfg(feature = "python")]
mod filling;
#[cfg(feature = "python")]
mod fingerprints;
pub mod folding;
#[cfg(feature = "python")]
mod freezing;
pub mod globs;
pub mod hoist;
#[cfg(feature = "python")]
mod input;
pub mod json;
#[cfg(feature = "python")]
mod json_text;
pub mod known;
pub mod layout;
pub mod lean;
pub mod literals;
#[cfg(feature = "python")]
mod making;
pub mod members;
pub mod mentions;
pub mod names;
pub mod negated;
pub mod outline;
pub mod patterns;
pub mod picking;
pub mod policy_set;
#[cfg(feature = "python")]
mod polynomial;
pub mod prescan;
pub mod prints;
pub mod programs;
pub mod repair;
#[cfg(feature = "python")]
mod rows;
pub mod ruled_out;
pub mod spelling;
pub mod sprintf;
pub mod stack;
pub mod strict;
pub mod survey;
#[cfg(feature = "python")]
mod template;
pub mod texts;
pub mod tooling;
#[cfg(feature = "python")]
mod value_bytes;
pub mod vet;
pub mod watch;
pub mod written;

#[cfg(feature = "python")]
mod python;
