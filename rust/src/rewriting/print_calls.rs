//! Calls of `print(…)`, which are for policy authors: policies are served without them, as OPA serves them [ENG-19].
//!
//! What they would print is message content. So they are removed from the text before anything evaluates it, and kept
//! only for a tool that shows what is printed.
#![forbid(unsafe_code)]

use crate::evaluation::loading;
use crate::failure::PolicyFault;
use crate::parsing::names::{head_of, Names};
use crate::parsing::walk::mentions;
use crate::policy_set::{check_modules, read_as_written};
use crate::rewriting::edits::{apply, range, Edit};
use regorus::unstable::{Module, Ref};
use std::collections::BTreeSet;

pub const PRINT: &str = "print";
/// What a call is replaced by.
const REPLACEMENT: &[u8] = b"true";

/// The modules without calls of `print`.
pub fn without_prints(modules: &[(String, String)]) -> Result<Vec<(String, String)>, PolicyFault> {
    loading(true, || {
        check_modules(modules)?;
        Ok(removed(read_as_written(modules, true)?.get_modules(), modules).unwrap_or_else(|| modules.to_vec()))
    })
}

/// The same of modules that were parsed as `read`; None if no module calls it.
pub fn removed(read: &[Ref<Module>], modules: &[(String, String)]) -> Option<Vec<(String, String)>> {
    if !modules.iter().any(|(_, text)| text.contains(PRINT)) {
        return None;
    }
    let own = packages_with_their_own(read);
    let texts: Vec<Option<String>> = read.iter().map(|module| without_calls(module, &own)).collect();
    if texts.iter().all(Option::is_none) {
        return None;
    }
    let new = modules.iter().zip(texts).map(|((path, text), new)| (path.clone(), new.unwrap_or(text.clone())));
    Some(new.collect())
}

/// The packages that have a rule with that name.
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

fn without_calls(module: &Module, own: &BTreeSet<Vec<String>>) -> Option<String> {
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
            let text = blank(source.get(start..end)?);
            edits.push(Edit { start, end, text });
        }
    }
    edits.sort_by_key(|edit| edit.start);
    let mut end = 0;
    edits.retain(|edit| {
        let is_outer = edit.start >= end; // a comprehension in an argument may call it too
        end = end.max(edit.end);
        is_outer
    });
    apply(module, edits)
}

/// `true`, with as many bytes and lines as `call` has: the places of what follows do not change.
fn blank(call: &str) -> String {
    let kept = |(at, byte): (usize, u8)| match (byte, REPLACEMENT.get(at)) {
        (_, Some(&letter)) => char::from(letter),
        (b'\n' | b'\r', None) => char::from(byte),
        _ => ' ',
    };
    call.bytes().enumerate().map(kept).collect()
}
