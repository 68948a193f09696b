//! Rewrites for the interpreter of this release [ENG-11]. Lines keep their numbers.
//!
//! - A head whose value is undefined for one solution of its body loses the values of all other solutions: `deny
//!   contains x.code if some x in input.xs` denies nothing if the last `x` has no code. So the value becomes the last
//!   condition of the body: `deny contains cmf_value__ if { some x in input.xs; cmf_value__ := x.code }`.
//! - `p[k] contains v` that never holds leaves `p` undefined, where OPA has an empty object: `p` gets one more
//!   definition.
//! - `v in xs` inside another expression is false where `v` or `xs` is undefined: it becomes a call, which is undefined
//!   then.
#![forbid(unsafe_code)]

use crate::parsing::mentions::Membership;
use crate::parsing::names::{constant, head_of, locals, pattern_names, Names};
use crate::parsing::walk::mentions;
use crate::rewriting::edits::{add_condition, apply, assigned_value, head_value, line_breaks, range, Edit};
use regorus::unstable::{Expr, Module, Ref, Rule};
use regorus::Value;
use std::collections::BTreeSet;

const VALUE: &str = "cmf_value__";
/// The text by which a definition that was added here is recognized.
pub const ADDED_DEFINITION: &str = "[cmf_key__] := ";

/// The module's text with such values as conditions and with the added definitions; None if nothing changes.
pub fn with_value_conditions(module: &Module) -> Option<String> {
    let names = Names::of(module);
    let mut edits = Vec::new();
    let mut empty = BTreeSet::new();
    for rule in &module.policy {
        value_conditions(rule, &names, &mut edits);
        empty.extend(empty_object(rule, &names));
    }
    if !empty.is_empty() {
        let end = module.package.span.source.get_contents().len();
        edits.push(Edit::insertion(end, empty.into_iter().collect::<String>()));
    }
    apply(module, edits)
}

/// For `p[k] contains v` and the like: a definition `p[k] := v` that never holds. It makes `p` an empty object where no
/// other definition holds.
fn empty_object(rule: &Rule, names: &Names) -> Option<String> {
    let head = head_of(rule, names);
    head.computed_key.filter(|_| head.is_set || head.continues)?;
    let (first, rest) = head.path.get(names.package.len()..)?.split_first()?;
    let rest: String = rest.iter().map(|name| format!("[{}]", Value::from(name.as_str()))).collect();
    Some(format!("\n{first}{rest}{ADDED_DEFINITION}{VALUE} if {{ some cmf_key__, {VALUE} in {{}} }}\n"))
}

/// The module's text with `v in xs` as a call where it is part of another expression; None if it never is.
pub fn with_membership_calls(module: &Module) -> Option<String> {
    let names = Names::of(module);
    let mut edits = Vec::new();
    for rule in &module.policy {
        for membership in mentions(rule, &names).memberships {
            membership_call(&membership, &mut edits);
        }
    }
    edits.sort_by_key(|edit| (edit.start, edit.end));
    // The walk visits the parts of a head once for each body.
    edits.dedup_by(|one, other| one.start == other.start && one.end > one.start && other.end > other.start);
    apply(module, edits)
}

fn membership_call(found: &Membership, edits: &mut Vec<Edit>) -> Option<()> {
    let ((start, end), value_end, from) = (range(&found.span)?, range(&found.value)?.1, range(&found.collection)?.0);
    let word = found.value.source.get_contents().get(value_end..from)?.find("in")?;
    let name = if found.has_key { "cmf.member_3(" } else { "cmf.member_2(" };
    let word = value_end + word;
    edits.push(Edit::insertion(start, name));
    edits.push(Edit { start: word, end: word + 2, text: ",".to_owned() });
    edits.push(Edit::insertion(end, ")"));
    Some(())
}

fn value_conditions(rule: &Rule, names: &Names, edits: &mut Vec<Edit>) {
    let Rule::Spec { head, bodies, .. } = rule else { return };
    if !mentions(rule, names).iterates {
        return;
    }
    let given = head_of(rule, names).value;
    if bodies.is_empty() {
        if let Some(((start, end), _)) = head_value(head).zip(given) {
            let Some(text) = rule.span().source.get_contents().get(start..end) else { return };
            let condition = format!(" {VALUE} if {{ {VALUE} := {} }}{}", joined_lines(text), line_breaks(text));
            edits.push(Edit { start, end, text: condition });
        }
        return;
    }
    for (position, body) in bodies.iter().enumerate() {
        let term = match (&body.assign, position) {
            (Some(assign), _) => assigned_value(assign).map(|range| (range, &assign.value)),
            (None, 0) => head_value(head).zip(given),
            (None, _) => None,
        };
        let Some(((start, end), value)) = term else { continue };
        let mut known = locals(&body.query);
        head_of(rule, names).arguments.iter().for_each(|argument| pattern_names(argument, &mut known));
        if is_defined(value, &known) || !varies(value, &known) {
            continue;
        }
        let Some(text) = body.span.source.get_contents().get(start..end) else { continue };
        edits.push(Edit { start, end, text: format!(" {VALUE}{} ", line_breaks(text)) });
        add_condition(&body.query, &format!("{VALUE} := {}", joined_lines(text)), edits);
    }
}

/// The text on one line. One with a comment or a raw string keeps its line breaks: then only line numbers are wrong.
fn joined_lines(text: &str) -> String {
    if text.contains(['#', '`']) {
        return format!("{}\n", text.trim());
    }
    text.trim().replace('\n', " ")
}

/// Whether a value is defined whenever the body holds; `known` are the variables that the body binds.
pub fn is_defined(value: &Expr, known: &BTreeSet<String>) -> bool {
    match value {
        Expr::Var { span, .. } => known.contains(span.text()) || span.text() == "input",
        Expr::ArrayCompr { .. } | Expr::SetCompr { .. } | Expr::ObjectCompr { .. } => true,
        Expr::Array { items, .. } | Expr::Set { items, .. } => items.iter().all(|item| is_defined(item, known)),
        Expr::Object { fields, .. } => {
            fields.iter().all(|(_, key, value)| is_defined(key, known) && is_defined(value, known))
        }
        other => constant(other).is_some(),
    }
}

/// Whether a value may differ between solutions of the body. The interpreter evaluates one that cannot before the body,
/// where it could fail although the body does not hold: it is left alone.
fn varies(value: &Expr, known: &BTreeSet<String>) -> bool {
    let any = |items: &[Ref<Expr>]| items.iter().any(|item| varies(item, known));
    match value {
        Expr::Var { span, .. } => known.contains(span.text()),
        Expr::RefDot { refr, .. } => varies(refr, known),
        // A variable that nothing else binds iterates over all members.
        Expr::RefBrack { refr, index, .. } => {
            matches!(index.as_ref(), Expr::Var { .. }) || any(&[refr.clone(), index.clone()])
        }
        Expr::Array { items, .. } | Expr::Set { items, .. } => any(items),
        Expr::Object { fields, .. } => fields.iter().any(|(_, key, value)| varies(key, known) || varies(value, known)),
        Expr::Call { params, .. } => any(params),
        Expr::BinExpr { lhs, rhs, .. } | Expr::BoolExpr { lhs, rhs, .. } | Expr::ArithExpr { lhs, rhs, .. } => {
            varies(lhs, known) || varies(rhs, known)
        }
        Expr::Membership { value, collection, .. } => varies(value, known) || varies(collection, known),
        other => constant(other).is_none(),
    }
}
