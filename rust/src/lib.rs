//! The embedded Rego engine of cmf-pipeline [docs/spec/engines.md].
//!
//! `policy_set` compiles and evaluates; `prescan`, `outline` and `vet` decide what may be loaded; `builtins`, `strict`
//! and `watch` bound what runs; `json` is the only way in and out; `python` is the binding.

pub mod batch;
pub mod builtins;
pub mod failure;
pub mod json;
pub mod layout;
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

#[cfg(feature = "python")]
mod python;
