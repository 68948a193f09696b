//! Which comprehensions and partial objects cannot give one key two values.
#![forbid(unsafe_code)]

use crate::parsing::names::{constant, parts};
use regorus::unstable::{Expr, Literal, Query};
use regorus::Value;
use std::collections::BTreeSet;

/// Whether an object comprehension or partial object has one loop, and its key is the index of that loop, or an item of
/// a list of distinct constants: `{k: … | some k, v in …; conditions}`.
pub fn keys_are_distinct(key: &Expr, query: &Query) -> bool {
    let Expr::Var { span: name, .. } = key else { return false };
    let mut loops = 0;
    let mut is_key = false;
    for statement in &query.stmts {
        match &statement.literal {
            Literal::SomeIn { key: index, value, collection, .. } => {
                let is_name = |expr: &Expr| matches!(expr, Expr::Var { span, .. } if span.text() == name.text());
                if loops_beside(collection, key) {
                    return false;
                }
                loops += 1;
                is_key = index.as_deref().is_some_and(is_name) || is_name(value) && are_distinct(collection);
            }
            Literal::SomeVars { .. } => return false,
            Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => {
                if loops_beside(expr, key) {
                    return false;
                }
            }
            Literal::Every { .. } => {}
        }
    }
    loops == 1 && is_key
}

fn are_distinct(collection: &Expr) -> bool {
    match collection {
        Expr::Array { items, .. } | Expr::Set { items, .. } => {
            let values: Option<BTreeSet<&Value>> = items.iter().map(|item| constant(item)).collect();
            values.is_some_and(|values| values.len() == items.len())
        }
        _ => false,
    }
}

/// Whether a bracket in the expression may iterate: it holds a variable.
pub fn has_bracket_variable(expr: &Expr) -> bool {
    loops(expr, "")
}

/// The same, leaving out the variable `key`, which is bound.
pub fn loops_beside(expr: &Expr, key: &Expr) -> bool {
    loops(expr, if let Expr::Var { span, .. } = key { span.text() } else { "" })
}

fn loops(expr: &Expr, bound: &str) -> bool {
    let iterates = |index: &Expr| matches!(index, Expr::Var { span, .. } if span.text() != bound);
    matches!(expr, Expr::RefBrack { index, .. } if iterates(index))
        || parts(expr).into_iter().any(|part| loops(part, bound))
}
