//! Rewrites for the compiler of this release [ENG-11]. Lines keep their numbers.
//!
//! - It compiles `lib.rule`, where `lib` is imported, as one member of the whole package, and evaluates every rule of
//!   the package. So imported names are written in full: `data.lib.rule`.
//! - It refuses `some k, v in xs[_]`, two loops in one statement. So the inner loop becomes a statement before it:
//!   `cmf_in_1__ := xs[_]; some k, v in cmf_in_1__`.
#![forbid(unsafe_code)]

use crate::parsing::distinct_keys::has_bracket_variable;
use crate::parsing::names::{comprehension, dotted, is_plain, parts, Names};
use crate::parsing::walk::mentions;
use crate::rewriting::edits::{add_braces, apply, range, Edit};
use regorus::unstable::{Expr, Literal, Module, Query, Rule, RuleHead};

/// The module's text with imported names in full; None if it uses none.
pub fn with_full_names(module: &Module) -> Option<String> {
    let names = Names::of(module);
    let mut edits = Vec::new();
    for rule in &module.policy {
        for (span, target) in mentions(rule, &names).imported {
            let Some((start, end)) = range(&span) else { continue };
            // Only plain words: the parser's span of a string in a reference is another one.
            if names.imported(span.text()).is_some() && target.iter().all(|name| is_plain(name)) {
                edits.push(Edit { start, end, text: dotted(&target) });
            }
        }
    }
    edits.sort_by_key(|edit| edit.start);
    edits.dedup_by_key(|edit| edit.start);
    apply(module, edits)
}

/// The module's text with such inner loops as statements of their own; None if it has none.
pub fn with_separate_loops(module: &Module) -> Option<String> {
    let mut edits = Vec::new();
    for rule in &module.policy {
        let Rule::Spec { head, bodies, .. } = rule.as_ref() else { continue };
        let value = match head {
            RuleHead::Compr { assign, .. } | RuleHead::Func { assign, .. } => assign.as_ref().map(|a| &a.value),
            RuleHead::Set { key, .. } => key.as_ref(),
        };
        value.into_iter().for_each(|value| inside(value, &mut edits));
        for body in bodies {
            body.assign.iter().for_each(|assign| inside(&assign.value, &mut edits));
            let before = edits.len();
            query(&body.query, &mut edits);
            if edits.len() > before {
                add_braces(&body.query, before, &mut edits);
            }
        }
    }
    apply(module, edits)
}

fn query(found: &Query, edits: &mut Vec<Edit>) {
    let source = found.span.source.get_contents();
    for statement in &found.stmts {
        match &statement.literal {
            Literal::SomeIn { collection, .. }
                if has_bracket_variable(collection) && statement.with_mods.is_empty() =>
            {
                let ends = range(&statement.span).zip(range(crate::parsing::names::first_span(collection)));
                let Some((((start, _), (from, _)), (_, to))) = ends.zip(range(collection.span())) else { continue };
                // Only what stands on one line can be moved without changing line numbers.
                let Some(text) = source.get(from..to).filter(|text| !text.contains(['\n', '#'])) else { continue };
                let name = format!("cmf_in_{start}__");
                edits.push(Edit::insertion(start, format!("{name} := {text}; ")));
                edits.push(Edit { start: from, end: to, text: name });
            }
            Literal::SomeIn { collection, .. } => inside(collection, edits),
            Literal::Every { query: inner, .. } => query(inner, edits),
            Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => inside(expr, edits),
            _ => {}
        }
    }
}

/// Comprehensions have bodies too.
fn inside(expr: &Expr, edits: &mut Vec<Edit>) {
    match comprehension(expr) {
        Some((_, body)) => query(body, edits),
        None => parts(expr).into_iter().for_each(|part| inside(part, edits)),
    }
}
