//! What a policy's text tells of a value before any evaluation.
#![forbid(unsafe_code)]

use crate::names::{fixed_path, Names};
use regorus::unstable::Expr;
use regorus::Value;

/// A text as far as it can be read off the policy.
pub enum Known {
    Text(String),
    /// A reference by plain names.
    Path(Vec<String>),
    /// `concat(by, parts)`.
    Joined {
        by: Box<Known>,
        parts: Vec<Known>,
    },
    No,
}

/// What is known of an expression that should be a text.
pub fn known(expr: &Expr, names: &Names) -> Known {
    match expr {
        Expr::String { value: Value::String(text), .. } | Expr::RawString { value: Value::String(text), .. } => {
            Known::Text(text.to_string())
        }
        Expr::Call { fcn, params, .. } => match (fixed_path(fcn).as_deref(), params.as_slice()) {
            (Some([name]), [by, parts]) if name == "concat" => match parts.as_ref() {
                Expr::Array { items, .. } => Known::Joined {
                    by: Box::new(known(by, names)),
                    parts: items.iter().map(|item| known(item, names)).collect(),
                },
                _ => Known::No,
            },
            _ => Known::No,
        },
        _ => match fixed_path(expr) {
            Some(path) => {
                let mut absolute = path.first().map(|root| names.root(root)).unwrap_or_default();
                absolute.extend(path.into_iter().skip(1));
                Known::Path(absolute)
            }
            None => Known::No,
        },
    }
}
