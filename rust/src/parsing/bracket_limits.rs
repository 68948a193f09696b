//! Limits on brackets with variables in references [ENG-3].
//!
//! The analyser of regorus visits what stands before each such bracket twice, so that its time and memory double with
//! every bracket: `a[i][j]…` with 26 of them takes 20 GB (measured on 0.14.1).
#![forbid(unsafe_code)]

use crate::failure::PolicyFault;
use crate::parsing::names::{constant, parts, Names};
use crate::parsing::walk::mentions;
use regorus::unstable::{Expr, Module, Ref, Span};

/// Analysis steps for all references of a set: some 20 MB.
const MAX_WORK: u64 = 65_536;
/// Brackets in one reference that are not counted.
const UNCOUNTED: u32 = 4;

/// Refuses a set whose references would take too long to analyse.
pub fn refuse(modules: &[Ref<Module>]) -> Result<(), PolicyFault> {
    let mut work = 0_u64;
    for module in modules {
        let names = Names::of(module);
        for rule in &module.policy {
            work = work.saturating_add(mentions(rule, &names).bracket_work);
            check(work, rule.span())?;
        }
    }
    Ok(())
}

/// Refuses what takes too many steps.
pub fn check(work: u64, span: &Span) -> Result<(), PolicyFault> {
    if work <= MAX_WORK {
        return Ok(());
    }
    let message = "too many brackets with variables in one reference; give a part of it a name first: `x := a[i]`";
    Err(PolicyFault::at_span("policy.nesting", span, message))
}

/// Analysis steps for one reference.
pub fn work(reference: &Expr) -> u64 {
    match count(reference) {
        few if few <= UNCOUNTED => 0,
        many => 1_u64.checked_shl(many).unwrap_or(u64::MAX),
    }
}

/// Brackets with variables, also those inside others.
fn count(expr: &Expr) -> u32 {
    let own = matches!(expr, Expr::RefBrack { index, .. } if constant(index).is_none());
    parts(expr).into_iter().map(|part| count(part)).fold(u32::from(own), u32::saturating_add)
}
