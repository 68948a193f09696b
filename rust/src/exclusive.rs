//! Whether two definitions of a rule can never hold together.
//!
//! Known are: different constants for one argument; one expression compared with different constants; a condition in
//! one and its `not` in the other. An expression counts only if it means the same in both, that is if it reads
//! nothing but input, data and arguments of the same name. Where this cannot tell, the interpreter serves.
#![forbid(unsafe_code)]

use crate::outline::{constant, Head};
use regorus::unstable::{BoolOp, Expr, Literal, Ref, Rule};
use regorus::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What must be so for a definition to hold.
#[derive(Default)]
struct Conditions<'a> {
    equal: BTreeMap<&'a str, &'a Value>,
    holds: BTreeSet<&'a str>,
    fails: BTreeSet<&'a str>,
}

pub fn are_apart(one: (&Rule, &Head<'_>), two: (&Rule, &Head<'_>)) -> bool {
    let ((one, head), (two, other_head)) = (one, two);
    let by_argument = head
        .arguments
        .iter()
        .zip(other_head.arguments)
        .any(|(a, b)| matches!((constant(a), constant(b)), (Some(a), Some(b)) if a != b));
    if by_argument {
        return true;
    }
    let same_arguments = head.arguments.len() == other_head.arguments.len()
        && head.arguments.iter().zip(other_head.arguments).all(|(a, b)| a.span().text() == b.span().text());
    if !same_arguments {
        return false;
    }
    let (Some(a), Some(b)) = (conditions(one, head), conditions(two, other_head)) else {
        return false;
    };
    let compared = a.equal.iter().any(|(text, value)| b.equal.get(text).is_some_and(|other| other != value));
    compared || !a.holds.is_disjoint(&b.fails) || !a.fails.is_disjoint(&b.holds)
}

/// The conditions of a definition with one body; None for one with several, of which any may hold.
fn conditions<'a>(rule: &'a Rule, head: &Head<'a>) -> Option<Conditions<'a>> {
    let Rule::Spec { bodies, .. } = rule else { return None };
    let [body] = bodies.as_slice() else { return None };
    let mut found = Conditions::default();
    for statement in &body.query.stmts {
        if !statement.with_mods.is_empty() {
            continue;
        }
        match &statement.literal {
            Literal::Expr { expr, .. } if is_fixed(expr, head) => {
                found.holds.insert(expr.span().text());
                if let Expr::BoolExpr { op: BoolOp::Eq, lhs, rhs, .. } = expr.as_ref() {
                    if let Some(value) = constant(rhs) {
                        found.equal.insert(lhs.span().text(), value);
                    } else if let Some(value) = constant(lhs) {
                        found.equal.insert(rhs.span().text(), value);
                    }
                }
            }
            Literal::NotExpr { expr, .. } if is_fixed(expr, head) => {
                found.fails.insert(expr.span().text());
            }
            _ => {}
        }
    }
    Some(found)
}

/// Whether an expression reads only input, data and plain arguments, and has one value.
fn is_fixed(expr: &Expr, head: &Head<'_>) -> bool {
    let all = |items: &[Ref<Expr>]| items.iter().all(|item| is_fixed(item, head));
    match expr {
        Expr::Var { span, .. } => {
            let name = span.text();
            let is_argument =
                || head.arguments.iter().any(|a| matches!(a.as_ref(), Expr::Var { span, .. } if span.text() == name));
            matches!(name, "input" | "data") || is_argument()
        }
        Expr::RefDot { refr, .. } => is_fixed(refr, head),
        Expr::RefBrack { refr, index, .. } => is_fixed(refr, head) && is_fixed(index, head),
        Expr::Call { params, .. } => all(params),
        Expr::BoolExpr { lhs, rhs, .. } => is_fixed(lhs, head) && is_fixed(rhs, head),
        Expr::Membership { key, value, collection, .. } => {
            key.is_none() && is_fixed(value, head) && is_fixed(collection, head)
        }
        Expr::Array { items, .. } | Expr::Set { items, .. } => all(items),
        other => constant(other).is_some(),
    }
}
