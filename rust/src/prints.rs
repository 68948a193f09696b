//! `print(…)` is for who writes a policy: what is served is read without it, as OPA compiles it away [ENG-19].
//!
//! What it would say is content. So it is taken out of the text before anything reads it, and kept only for a tool that
//! asks to be told.
#![forbid(unsafe_code)]

use crate::failure::PolicyFault;
use crate::names::{head_of, Names};
use crate::outline::mentions;
use crate::policy_set::{check_modules, read_as_written};
use crate::repair::{apply, range, Edit};
use crate::stack::{on_large_stack, NO_STACK};
use crate::watch;
use regorus::unstable::{Module, Ref};
use std::collections::BTreeSet;

/// The function, and what stands for a call of it: as long, and on as many lines.
pub const PRINT: &str = "print";
const NOTHING: &[u8] = b"true";

/// The modules without it, those that say it not at all as they are.
pub fn without_prints(modules: &[(String, String)]) -> Result<Vec<(String, String)>, PolicyFault> {
    let read = on_large_stack(|| {
        watch::start(None, true);
        let read = watch::shielded(|| {
            check_modules(modules)?;
            Ok(taken_out(read_as_written(modules, true)?.get_modules(), modules).unwrap_or_else(|| modules.to_vec()))
        });
        watch::finish();
        read.ok_or_else(|| PolicyFault::new("policy.panic", "the engine panicked while it read the set"))
    });
    read.ok_or_else(|| PolicyFault::new(NO_STACK, "no address space is left for a stack"))??
}

/// The same of modules that were read; None if no module says it.
pub fn taken_out(read: &[Ref<Module>], modules: &[(String, String)]) -> Option<Vec<(String, String)>> {
    if !modules.iter().any(|(_, text)| text.contains(PRINT)) {
        return None;
    }
    let own = packages_with_their_own(read);
    let texts: Vec<Option<String>> = read.iter().map(|module| silenced(module, &own)).collect();
    if texts.iter().all(Option::is_none) {
        return None;
    }
    let silent = modules.iter().zip(texts).map(|((path, text), new)| (path.clone(), new.unwrap_or(text.clone())));
    Some(silent.collect())
}

/// The packages in which the name is that of a rule of theirs.
fn packages_with_their_own(read: &[Ref<Module>]) -> BTreeSet<Vec<String>> {
    let mut own = BTreeSet::new();
    for module in read {
        let names = Names::of(module);
        for rule in &module.policy {
            let path = head_of(rule, &names).path;
            if path.split_last().is_some_and(|(last, package)| last == PRINT && package == names.package.as_slice()) {
                own.insert(names.package.clone());
            }
        }
    }
    own
}

fn silenced(module: &Module, own: &BTreeSet<Vec<String>>) -> Option<String> {
    let names = Names::of(module);
    if own.contains(&names.package) {
        return None;
    }
    let source = module.package.span.source.get_contents();
    let mut edits: Vec<Edit> = Vec::new();
    for rule in &module.policy {
        for call in mentions(rule, &names).calls {
            let Some(whole) = call.statement.filter(|_| call.name == PRINT) else { continue };
            let (start, end) = range(&whole)?;
            let text = silence(source.get(start..end)?);
            edits.push(Edit { start, end, text });
        }
    }
    edits.sort_by_key(|edit| edit.start);
    let mut end = 0;
    edits.retain(|edit| {
        let is_outer = edit.start >= end; // a comprehension in what is printed may print too
        end = end.max(edit.end);
        is_outer
    });
    apply(module, edits)
}

/// `true`, as long as `call` and on as many lines: places of what follows stay what they are.
fn silence(call: &str) -> String {
    let kept = |(at, byte): (usize, u8)| match (byte, NOTHING.get(at)) {
        (_, Some(&letter)) => char::from(letter),
        (b'\n' | b'\r', None) => char::from(byte),
        _ => ' ',
    };
    call.bytes().enumerate().map(kept).collect()
}
