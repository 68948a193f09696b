//! Rewrites for the interpreter of this release [ENG-11]. Lines keep their numbers.
//!
//! - A head whose value is undefined for one solution of its body loses the values of all other solutions: `deny
//!   contains x.code if some x in input.xs` denies nothing if the last `x` has no code. So the value becomes the last
//!   condition of the body: `deny contains cmf_value__ if { some x in input.xs; cmf_value__ := x.code }`.
//! - `p[k] contains v` that never holds leaves `p` undefined, where OPA has an empty object: `p` gets one more
//!   definition.
//! - Arithmetic on fractions is rounded to doubles: it becomes a call, which is exact [ENG-20].
//! - `v in xs` inside another expression is false where `v` or `xs` is undefined: it becomes a call, which is undefined
//!   then.
#![forbid(unsafe_code)]

use crate::parsing::mentions::{Arithmetic, Membership};
use crate::parsing::names::{comprehension, constant, head_of, locals, parts, pattern_names, Names};
use crate::parsing::walk::mentions;
use crate::rewriting::edits::{
    add_condition, apply, assigned_value, head_value, line_breaks, range, skip_blanks, Edit,
};
use regorus::unstable::{Expr, Module, Rule};
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

/// The module's text with arithmetic, and `v in xs` where it is part of another expression, as calls; None if it has
/// neither.
pub fn with_calls_of_operators(module: &Module) -> Option<String> {
    let names = Names::of(module);
    let mut operations = Vec::new();
    for rule in &module.policy {
        let found = mentions(rule, &names);
        operations.extend(found.memberships.iter().filter_map(membership));
        operations.extend(found.arithmetic.iter().filter_map(arithmetic));
    }
    // The walk visits the parts of a head once for each body. What contains another operation begins before it.
    operations.sort_by_key(|operation| (operation.start, std::cmp::Reverse(operation.end), operation.operator));
    operations.dedup_by_key(|operation| operation.operator);
    let mut edits = Vec::new();
    for Operation { start, end, operator, function } in operations {
        edits.push(Edit::insertion(start, format!("{function}(")));
        edits.push(Edit { start: operator.0, end: operator.1, text: ",".to_owned() });
        edits.push(Edit::insertion(end, ")"));
    }
    apply(module, edits)
}

/// An operation with two sides, and the bytes of its operator.
struct Operation {
    start: usize,
    end: usize,
    operator: (usize, usize),
    function: &'static str,
}

fn membership(found: &Membership) -> Option<Operation> {
    let ((start, end), value_end, from) = (range(&found.span)?, range(&found.value)?.1, range(&found.collection)?.0);
    let word = value_end + found.value.source.get_contents().get(value_end..from)?.find("in")?;
    let function = if found.has_key { "cmf.member_3" } else { "cmf.member_2" };
    Some(Operation { start, end, operator: (word, word + 2), function })
}

fn arithmetic(found: &Arithmetic) -> Option<Operation> {
    let ((start, end), source) = (range(&found.span)?, found.span.source.get_contents());
    let mut sign = skip_blanks(source, range(&found.left)?.1);
    while source.as_bytes().get(sign) == Some(&b')') {
        sign = skip_blanks(source, sign + 1);
    }
    Some(Operation { start, end, operator: (sign, sign + 1), function: found.function })
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
        Expr::Array { .. } | Expr::Set { .. } | Expr::Object { .. } => {
            parts(value).into_iter().all(|part| is_defined(part, known))
        }
        other => constant(other).is_some() || comprehension(other).is_some(),
    }
}

/// Whether a value may differ between solutions of the body. The interpreter evaluates one that cannot before the body,
/// where it could fail although the body does not hold: it is left alone.
fn varies(value: &Expr, known: &BTreeSet<String>) -> bool {
    match value {
        Expr::Var { span, .. } => known.contains(span.text()),
        // A variable that nothing else binds iterates over all members.
        Expr::RefBrack { index, .. } if matches!(index.as_ref(), Expr::Var { .. }) => true,
        Expr::UnaryExpr { .. } | Expr::AssignExpr { .. } => true,
        other if comprehension(other).is_some() => true,
        other => parts(other).into_iter().any(|part| varies(part, known)),
    }
}
