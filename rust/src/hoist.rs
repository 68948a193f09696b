//! Policy text as the compiler has to read it [ENG-11].
//!
//! In this release it reads `lib.rule`, where `lib` is imported, as the whole package and takes one member of it: every
//! rule of the package is evaluated. So imported names are written out: `data.lib.rule`.
//!
//! And the compiler refuses `some k, v in xs[_]`: one statement, two loops. So the inner loop becomes a
//! statement of its own: `cmf_in_1__ := xs[_]; some k, v in cmf_in_1__`. Lines stay where they are.
#![forbid(unsafe_code)]

use crate::distinct::has_bracket_variable;
use crate::names::{dotted, Names};
use crate::outline::mentions;
use crate::repair::{apply, range, Edit};
use regorus::unstable::{Expr, Literal, Module, Query, Ref, Rule, RuleHead};

/// The module's text with imported names written out, or None if it has none.
pub fn written_out(module: &Module) -> Option<String> {
    let names = Names::of(module);
    let mut edits = Vec::new();
    for rule in &module.policy {
        for (span, target) in mentions(rule, &names).imported {
            let Some((start, end)) = range(&span) else { continue };
            // Only what stands there as a word: the parser's span of a text in a reference is another.
            if names.imported(span.text()).is_some() && target.iter().all(|name| is_word(name)) {
                edits.push(Edit { start, end, text: dotted(&target) });
            }
        }
    }
    edits.sort_by_key(|edit| edit.start);
    edits.dedup_by_key(|edit| edit.start);
    apply(module, edits)
}

fn is_word(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// The module's text with every such loop apart, or None if it has none.
pub fn hoisted(module: &Module) -> Option<String> {
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
                brace(&body.query, &mut edits);
            }
        }
    }
    apply(module, edits)
}

/// `if some …` without braces holds one statement only.
fn brace(query: &Query, edits: &mut Vec<Edit>) {
    let Some(((start, end), (first, _))) = range(&query.span).zip(query.stmts.first().and_then(|s| range(&s.span)))
    else {
        return;
    };
    if !(query.span.text().starts_with('{') && first > start) {
        edits.insert(0, Edit { start, end: start, text: "{ ".to_owned() });
        edits.push(Edit { start: end, end, text: " }".to_owned() });
    }
}

fn query(found: &Query, edits: &mut Vec<Edit>) {
    let source = found.span.source.get_contents();
    for statement in &found.stmts {
        match &statement.literal {
            Literal::SomeIn { collection, .. }
                if has_bracket_variable(collection) && statement.with_mods.is_empty() =>
            {
                let ends = range(&statement.span).zip(range(crate::names::first_span(collection)));
                let Some((((start, _), (from, _)), (_, to))) = ends.zip(range(collection.span())) else { continue };
                // In one line: where it began is where it stays.
                let Some(text) = source.get(from..to).filter(|text| !text.contains(['\n', '#'])) else { continue };
                let name = format!("cmf_in_{start}__");
                edits.push(Edit { start, end: start, text: format!("{name} := {text}; ") });
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
    let mut each = |items: &[Ref<Expr>]| items.iter().for_each(|item| inside(item, edits));
    match expr {
        Expr::ArrayCompr { query: body, .. }
        | Expr::SetCompr { query: body, .. }
        | Expr::ObjectCompr { query: body, .. } => {
            query(body, edits);
        }
        Expr::Array { items, .. } | Expr::Set { items, .. } => each(items),
        Expr::Call { params, .. } => each(params),
        Expr::AssignExpr { lhs, rhs, .. }
        | Expr::BoolExpr { lhs, rhs, .. }
        | Expr::BinExpr { lhs, rhs, .. }
        | Expr::ArithExpr { lhs, rhs, .. } => each(&[lhs.clone(), rhs.clone()]),
        Expr::Membership { value, collection, .. } => each(&[value.clone(), collection.clone()]),
        _ => {}
    }
}
