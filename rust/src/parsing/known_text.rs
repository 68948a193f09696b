//! Strings that can be read from a policy's text, without evaluating it.
#![forbid(unsafe_code)]

use crate::parsing::names::{fixed_path, Names};
use regorus::unstable::Expr;
use regorus::Value;

/// What is known of a string.
pub enum Known {
    Text(String),
    /// The value of a reference by plain names, from the root.
    Path(Vec<String>),
    /// `concat(by, parts)`.
    Joined {
        by: Box<Known>,
        parts: Vec<Known>,
    },
    Nothing,
}

/// What is known of an expression that should be a string.
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
                _ => Known::Nothing,
            },
            _ => Known::Nothing,
        },
        _ => match fixed_path(expr) {
            Some(path) => {
                let mut absolute = path.first().map(|root| names.root(root)).unwrap_or_default();
                absolute.extend(path.into_iter().skip(1));
                Known::Path(absolute)
            }
            None => Known::Nothing,
        },
    }
}
