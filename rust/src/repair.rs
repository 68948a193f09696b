//! Policy text as the interpreter has to read it [ENG-11].
//!
//! In this release a head whose value is undefined for one way in which its body holds takes the values of all the
//! other ways with it: `deny contains x.code if some x in input.xs` denies nothing if the last `x` has no code. So the
//! value becomes the last condition of the body, which then does not hold that way:
//! `deny contains cmf_value__ if { some x in input.xs; cmf_value__ := x.code }`. Lines stay where they are.
#![forbid(unsafe_code)]

use crate::mentions::Membership;
use crate::names::{constant, head_of, locals, pattern_names, Names};
use crate::outline::mentions;
use regorus::unstable::{Expr, Module, Query, Ref, Rule, RuleAssign, RuleHead, Span};
use regorus::Value;
use std::collections::BTreeSet;

const VALUE: &str = "cmf_value__";
/// By which a definition of ours is known.
pub const NEVER: &str = "[cmf_key__] := ";

/// New text for some bytes of a module.
#[derive(Clone)]
pub struct Edit {
    pub start: usize,
    pub end: usize,
    pub text: String,
}

/// The module's text with every such head repaired, or None if it has none.
pub fn repaired(module: &Module) -> Option<String> {
    let names = Names::of(module);
    let mut edits = Vec::new();
    let mut empty = BTreeSet::new();
    for rule in &module.policy {
        repair(rule, &names, &mut edits);
        empty.extend(never(rule, &names));
    }
    if !empty.is_empty() {
        let end = module.package.span.source.get_contents().len();
        edits.push(Edit { start: end, end, text: empty.into_iter().collect() });
    }
    apply(module, edits)
}

/// For `p[k] contains v` and the like a definition of `p` that never holds: it makes `p` an empty object where nothing
/// else does, as it is in OPA. In this release only `p[k] := v` does so.
fn never(rule: &Rule, names: &Names) -> Option<String> {
    let head = head_of(rule, names);
    head.computed_key.filter(|_| head.is_set || head.goes_on)?;
    let (first, rest) = head.path.get(names.package.len()..)?.split_first()?;
    let rest: String = rest.iter().map(|name| format!("[{}]", Value::from(name.as_str()))).collect();
    Some(format!("\n{first}{rest}{NEVER}{VALUE} if {{ some cmf_key__, {VALUE} in {{}} }}\n"))
}

/// The module's text with `v in xs` as a call where it is part of an expression, or None if it nowhere is: in this release
/// it is false where `v` or `xs` is not there, and what it is part of goes on.
pub fn called(module: &Module) -> Option<String> {
    let names = Names::of(module);
    let mut edits = Vec::new();
    for rule in &module.policy {
        for membership in mentions(rule, &names).memberships {
            call(&membership, &mut edits);
        }
    }
    edits.sort_by_key(|edit| (edit.start, edit.end));
    // The parts of a head are looked at once for each body.
    edits.dedup_by(|one, other| one.start == other.start && one.end > one.start && other.end > other.start);
    apply(module, edits)
}

fn call(found: &Membership, edits: &mut Vec<Edit>) -> Option<()> {
    let ((start, end), value_end, from) = (range(&found.span)?, range(&found.value)?.1, range(&found.from)?.0);
    let word = found.value.source.get_contents().get(value_end..from)?.find("in")?;
    let name = if found.has_key { "cmf.member_3(" } else { "cmf.member_2(" };
    let word = value_end + word;
    edits.push(Edit { start, end: start, text: name.to_owned() });
    edits.push(Edit { start: word, end: word + 2, text: ",".to_owned() });
    edits.push(Edit { start: end, end, text: ")".to_owned() });
    Some(())
}

/// The module's text with `edits` in it, or None if there are none.
pub fn apply(module: &Module, mut edits: Vec<Edit>) -> Option<String> {
    if edits.is_empty() {
        return None;
    }
    edits.sort_by_key(|edit| (edit.start, edit.end));
    let source = module.package.span.source.get_contents();
    let mut text = String::with_capacity(source.len() + 64 * edits.len());
    let mut at = 0;
    for edit in edits {
        text.push_str(source.get(at..edit.start)?);
        text.push_str(&edit.text);
        at = edit.end;
    }
    text.push_str(source.get(at..)?);
    Some(text)
}

fn repair(rule: &Rule, names: &Names, edits: &mut Vec<Edit>) {
    let Rule::Spec { head, bodies, .. } = rule else { return };
    if !mentions(rule, names).iterates {
        return;
    }
    let head_value = head_of(rule, names).value;
    if bodies.is_empty() {
        if let Some(((start, end), _)) = term_of(head).zip(head_value) {
            let Some(text) = rule.span().source.get_contents().get(start..end) else { return };
            let condition = format!(" {VALUE} if {{ {VALUE} := {} }}", on_one_line(text));
            edits.push(Edit { start, end, text: format!("{condition}{}", "\n".repeat(text.matches('\n').count())) });
        }
        return;
    }
    for (position, body) in bodies.iter().enumerate() {
        let term = match (&body.assign, position) {
            (Some(assign), _) => assigned(assign).map(|range| (range, &assign.value)),
            (None, 0) => term_of(head).zip(head_value),
            (None, _) => None,
        };
        let Some(((start, end), value)) = term else { continue };
        let mut known = locals(&body.query);
        head_of(rule, names).arguments.iter().for_each(|argument| pattern_names(argument, &mut known));
        if is_defined(value, &known) || !varies(value, &known) {
            continue;
        }
        let Some(text) = body.span.source.get_contents().get(start..end) else { continue };
        let lines = "\n".repeat(text.matches('\n').count());
        edits.push(Edit { start, end, text: format!(" {VALUE}{lines} ") });
        add_condition(&body.query, &format!("{VALUE} := {}", on_one_line(text)), edits);
    }
}

/// The bytes of the value in a head.
pub fn term_of(head: &RuleHead) -> Option<(usize, usize)> {
    match head {
        RuleHead::Set { span, refr, key: Some(_) } => {
            let (start, end) = range(span)?;
            let after_name = range(refr.span())?.1;
            let word = span.source.get_contents().get(after_name..end)?.find("contains")?;
            let term = after_name + word + "contains".len();
            (term > start).then_some((term, end))
        }
        RuleHead::Compr { assign: Some(assign), .. } | RuleHead::Func { assign: Some(assign), .. } => assigned(assign),
        _ => None,
    }
}

/// The bytes behind `:=` or `=`.
pub fn assigned(assign: &RuleAssign) -> Option<(usize, usize)> {
    let (start, end) = range(&assign.span)?;
    let operator = if assign.span.text().starts_with(":=") { 2 } else { 1 };
    Some((start + operator, end))
}

fn add_condition(query: &Query, condition: &str, edits: &mut Vec<Edit>) {
    let (Some((start, end)), Some(first)) = (range(&query.span), query.stmts.first()) else { return };
    let is_braced = query.span.text().starts_with('{') && range(&first.span).is_some_and(|(at, _)| at > start);
    if is_braced {
        edits.push(Edit { start: end - 1, end: end - 1, text: format!("; {condition} ") });
    } else {
        edits.push(Edit { start, end: start, text: "{ ".to_owned() });
        edits.push(Edit { start: end, end, text: format!("; {condition} }}") });
    }
}

/// The bytes of a span. The parser's span of a text is without its quotes, also where it begins or ends something.
pub fn range(span: &Span) -> Option<(usize, usize)> {
    let (mut start, mut end) = (usize::try_from(span.start).ok()?, usize::try_from(span.end).ok()?);
    let source = span.source.get_contents().as_bytes();
    let is_quote = |at: usize| matches!(source.get(at), Some(b'"' | b'`'));
    if is_quote(start.wrapping_sub(1)) {
        start -= 1;
    }
    if is_quote(end) {
        end += 1;
    }
    Some((start, end))
}

fn on_one_line(text: &str) -> String {
    // A comment or a raw string needs its line ends: then later lines move, and only their numbers are wrong.
    if text.contains(['#', '`']) {
        return format!("{}\n", text.trim());
    }
    text.trim().replace('\n', " ")
}

/// Whether a value is there whenever the body holds.
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

/// Whether a value is another for each way in which the body holds. One that is not would be asked for first, and
/// could fail where the body does not hold.
fn varies(value: &Expr, known: &BTreeSet<String>) -> bool {
    let any = |items: &[Ref<Expr>]| items.iter().any(|item| varies(item, known));
    match value {
        Expr::Var { span, .. } => known.contains(span.text()),
        Expr::RefDot { refr, .. } => varies(refr, known),
        // A variable that nothing else binds goes through every member.
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
