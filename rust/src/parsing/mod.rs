//! Policy text before it is compiled.
//!
//! - [`prescan`] bounds what the parser may be given, [`bracket_limits`] what the analyser may be given;
//! - [`foreign`] refuses what OPA does not read alike;
//! - [`names`] are paths, heads and imports; [`walk`] collects the [`mentions`] of a rule;
//! - [`rule_graph`] refuses what may not run and tells what may be compiled, with the help of [`distinct_keys`];
//! - [`survey`] describes a set for the Python side, with what [`known_text`] can be read from it.

pub mod bracket_limits;
pub mod distinct_keys;
pub mod foreign;
pub mod known_text;
pub mod mentions;
pub mod names;
pub mod prescan;
pub mod rule_graph;
pub mod survey;
pub mod walk;
