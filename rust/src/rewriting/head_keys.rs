//! Computed keys in heads, of which regorus reads only names [ENG-11]: `p[x.id] contains x if { … }` becomes `p[k___]
//! contains x if { …; k___ := x.id }`, as in OPA. Lines keep their numbers, and the head its width.
#![forbid(unsafe_code)]

use crate::parsing::names::constant;
use crate::rewriting::edits::{add_condition, apply, closing, head_value, range, words, Edit};
use regorus::unstable::{Expr, Module, Rule, RuleHead};
use std::collections::BTreeSet;

/// The module's text with names for such keys; None if it has none. A key of several lines, or beside another bracket,
/// stays, and is refused.
pub fn with_named_keys(module: &Module) -> Option<String> {
    let taken: BTreeSet<&str> = words(module.package.span.source.get_contents()).collect();
    let mut edits = Vec::new();
    for rule in &module.policy {
        if let Some(named) = named_key(rule, &taken) {
            edits.extend(named);
        }
    }
    apply(module, edits)
}

fn named_key(rule: &Rule, taken: &BTreeSet<&str>) -> Option<Vec<Edit>> {
    let Rule::Spec { head, bodies, .. } = rule else { return None };
    let (RuleHead::Compr { refr, .. } | RuleHead::Set { refr, .. }) = head else { return None };
    let before = before_key(refr)?;
    let source = rule.span().source.get_contents();
    let from = before + source.get(before..)?.find('[')? + 1;
    let to = closing(source, from - 1)?;
    let key = source.get(from..to).filter(|key| !key.contains(['\n', '#']))?;
    let width = key.chars().count();
    let name = fresh_name(width, taken)?;
    let condition = format!("{name} := {}", key.trim());
    let mut edits = vec![Edit { start: from, end: to, text: format!("{name:width$}") }];
    if bodies.is_empty() {
        let end = range(rule.span())?.1.max(head_value(head).map_or(0, |(_, end)| end));
        edits.push(Edit::insertion(end, format!(" if {{ {condition} }}")));
    }
    for body in bodies {
        add_condition(&body.query, &condition, &mut edits);
    }
    Some(edits)
}

/// The end of the name before the only bracket of a head, if there is a key in it that is no name and no constant.
fn before_key(refr: &Expr) -> Option<usize> {
    match refr {
        Expr::RefDot { refr, .. } => before_key(refr),
        Expr::RefBrack { refr, index, .. } if is_dotted(refr) => {
            let is_plain = constant(index).is_some() || matches!(index.as_ref(), Expr::Var { .. });
            if is_plain {
                None
            } else {
                Some(range(refr.span())?.1)
            }
        }
        _ => None,
    }
}

fn is_dotted(refr: &Expr) -> bool {
    match refr {
        Expr::Var { .. } => true,
        Expr::RefDot { refr, .. } => is_dotted(refr),
        _ => false,
    }
}

/// A name of at most that width which is no word of the module.
fn fresh_name(width: usize, taken: &BTreeSet<&str>) -> Option<String> {
    let underscores = "_".repeat(width.min(16).checked_sub(1)?);
    ('a'..='z').map(|letter| format!("{letter}{underscores}")).find(|name| !taken.contains(name.as_str()))
}
