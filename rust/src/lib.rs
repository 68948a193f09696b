//! The embedded Rego engine of cmf-pipeline [docs/spec/engines.md].
//!
//! `policy_set` compiles and `batch` evaluates. `prescan`, `names`, `outline` and `vet` decide what may be loaded;
//! `strict`, `layout` and `repair` make this release's two forms agree; `builtins`, `patterns`, `watch` and `stack` bound
//! what runs. `json` is the only way in and `written` the only way out; `tooling` is for authors, `python` the binding.

pub mod batch;
pub mod builtins;
pub mod failure;
pub mod json;
pub mod layout;
pub mod names;
pub mod outline;
pub mod patterns;
pub mod policy_set;
pub mod prescan;
pub mod repair;
pub mod stack;
pub mod strict;
pub mod tooling;
pub mod vet;
pub mod watch;
pub mod written;

#[cfg(feature = "python")]
mod python;
