//! Paths, heads, imports and local variables of a module.
#![forbid(unsafe_code)]

use regorus::unstable::{AssignOp, Expr, Literal, Module, Query, Ref, Rule, RuleHead, Span};
use regorus::Value;
use std::collections::{BTreeMap, BTreeSet};

/// One step of a path: a name, or a value that only an evaluation knows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Name(String),
    Any,
}

/// A path of plain names as text, with dots between them.
pub fn dotted(path: &[String]) -> String {
    path.join(".")
}

/// Whether a name is written without quotes, and by the compiler unchanged.
pub fn is_plain(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// The names of a reference of fixed strings: `a.b["c"]`; None where a step is computed.
pub fn fixed_path(expr: &Expr) -> Option<Vec<String>> {
    steps(expr)?
        .into_iter()
        .map(|step| match step {
            (Step::Name(name), _) => Some(name),
            (Step::Any, _) => None,
        })
        .collect()
}

pub type Steps<'a> = Vec<(Step, Option<&'a Ref<Expr>>)>;

/// The root and the steps of a reference, with the expressions in its brackets; None if the root is not a name.
pub fn steps(expr: &Expr) -> Option<Steps<'_>> {
    match expr {
        Expr::Var { span, .. } => Some(vec![(Step::Name(span.text().to_owned()), None)]),
        Expr::RefDot { refr, field, .. } => {
            let mut path = steps(refr)?;
            path.push((Step::Name(field.0.text().to_owned()), None));
            Some(path)
        }
        Expr::RefBrack { refr, index, .. } => {
            let mut path = steps(refr)?;
            path.push(match index.as_ref() {
                Expr::String { value: Value::String(name), .. }
                | Expr::RawString { value: Value::String(name), .. } => (Step::Name(name.to_string()), None),
                _ => (Step::Any, Some(index)),
            });
            Some(path)
        }
        _ => None,
    }
}

/// Where a reference begins: its own span is that of its last step.
pub fn first_span(expr: &Expr) -> &Span {
    first_expr(expr).span()
}

/// The root of a reference, or the expression itself if it is none.
pub fn first_expr(expr: &Expr) -> &Expr {
    match expr {
        Expr::RefDot { refr, .. } | Expr::RefBrack { refr, .. } => first_expr(refr),
        _ => expr,
    }
}

/// The package of a module, and what its imports stand for.
pub struct Names {
    pub package: Vec<String>,
    aliases: BTreeMap<String, Vec<String>>,
}

impl Names {
    /// The names of a query outside of any package.
    pub fn outside() -> Self {
        Self { package: vec!["data".to_owned()], aliases: BTreeMap::new() }
    }

    pub fn of(module: &Module) -> Self {
        let mut package = vec!["data".to_owned()];
        package.extend(fixed_path(&module.package.refr).unwrap_or_default());
        let mut aliases = BTreeMap::new();
        for import in &module.imports {
            let Some(target) = fixed_path(&import.refr) else { continue };
            if !matches!(target.first().map(String::as_str), Some("data" | "input")) {
                continue;
            }
            let alias = import.r#as.as_ref().map(|span| span.text().to_owned());
            if let Some(alias) = alias.or_else(|| target.last().cloned()) {
                aliases.insert(alias, target);
            }
        }
        Self { package, aliases }
    }

    /// The absolute path of a root name that is not a local variable.
    pub fn root(&self, name: &str) -> Vec<String> {
        if matches!(name, "data" | "input") {
            return vec![name.to_owned()];
        }
        if let Some(target) = self.aliases.get(name) {
            return target.clone();
        }
        let mut path = self.package.clone();
        path.push(name.to_owned());
        path
    }

    /// What the name stands for, if it is imported.
    pub fn imported(&self, name: &str) -> Option<&[String]> {
        self.aliases.get(name).map(Vec::as_slice)
    }

    pub fn call_name(&self, path: &[String]) -> String {
        let Some((root, rest)) = path.split_first() else { return String::new() };
        match self.aliases.get(root) {
            Some(target) if root != "data" => {
                let mut full = target.clone();
                full.extend_from_slice(rest);
                dotted(&full)
            }
            _ => dotted(path),
        }
    }
}

/// The absolute path of the value that a head defines, its arguments, and the computed key that it ends in.
pub struct Head<'a> {
    pub path: Vec<String>,
    pub arguments: &'a [Ref<Expr>],
    pub is_function: bool,
    pub is_set: bool,
    /// Whether its path has more steps after that key.
    pub continues: bool,
    /// The bracket of a partial object.
    pub computed_key: Option<&'a Ref<Expr>>,
    /// The value that it gives; None for true.
    pub value: Option<&'a Ref<Expr>>,
}

pub fn head_of<'a>(rule: &'a Rule, names: &Names) -> Head<'a> {
    let none: &[Ref<Expr>] = &[];
    let (refr, arguments, is_function, is_set, value) = match rule {
        Rule::Default { refr, args, value, .. } => (refr, args.as_slice(), !args.is_empty(), false, Some(value)),
        Rule::Spec { head, .. } => match head {
            RuleHead::Compr { refr, assign, .. } => (refr, none, false, false, assign.as_ref().map(|a| &a.value)),
            RuleHead::Set { refr, key, .. } => (refr, none, false, true, key.as_ref()),
            RuleHead::Func { refr, args, assign, .. } => {
                (refr, args.as_slice(), true, false, assign.as_ref().map(|a| &a.value))
            }
        },
    };
    let mut path = names.package.clone();
    let mut computed_key = None;
    let mut continues = false;
    for (step, index) in steps(refr).unwrap_or_default() {
        match step {
            _ if computed_key.is_some() => continues = true,
            Step::Name(name) => path.push(name),
            Step::Any => computed_key = index,
        }
    }
    Head { path, continues, arguments, is_function, is_set, computed_key, value }
}

/// The local variables of a query: from `some`, `:=` and `some … in`.
pub fn locals(query: &Query) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for statement in &query.stmts {
        match &statement.literal {
            Literal::SomeVars { vars, .. } => names.extend(vars.iter().map(|span| span.text().to_owned())),
            literal => assigned_names(literal, &mut names),
        }
    }
    names
}

/// The variables that a statement binds: by `:=` and `some … in`.
pub fn assigned_names(literal: &Literal, names: &mut BTreeSet<String>) {
    match literal {
        Literal::SomeIn { key, value, .. } => {
            if let Some(key) = key {
                pattern_names(key, names);
            }
            pattern_names(value, names);
        }
        Literal::Expr { expr, .. } => {
            if let Expr::AssignExpr { op: AssignOp::ColEq, lhs, .. } = expr.as_ref() {
                pattern_names(lhs, names);
            }
        }
        Literal::SomeVars { .. } | Literal::NotExpr { .. } | Literal::Every { .. } => {}
    }
}

pub fn pattern_names(pattern: &Expr, names: &mut BTreeSet<String>) {
    match pattern {
        Expr::Var { span, .. } => {
            names.insert(span.text().to_owned());
        }
        Expr::Array { items, .. } => items.iter().for_each(|item| pattern_names(item, names)),
        Expr::Object { fields, .. } => fields.iter().for_each(|(_, _, value)| pattern_names(value, names)),
        _ => {}
    }
}

/// The expressions directly inside another; those of comprehensions are not: see [`comprehension`].
pub fn parts(expr: &Expr) -> Vec<&Ref<Expr>> {
    match expr {
        Expr::RefDot { refr, .. } => vec![refr],
        Expr::RefBrack { refr, index, .. } => vec![refr, index],
        Expr::Array { items, .. } | Expr::Set { items, .. } => items.iter().collect(),
        Expr::Object { fields, .. } => fields.iter().flat_map(|(_, key, value)| [key, value]).collect(),
        Expr::Call { params, .. } => params.iter().collect(),
        Expr::UnaryExpr { expr, .. } => vec![expr],
        Expr::BinExpr { lhs, rhs, .. }
        | Expr::BoolExpr { lhs, rhs, .. }
        | Expr::ArithExpr { lhs, rhs, .. }
        | Expr::AssignExpr { lhs, rhs, .. } => vec![lhs, rhs],
        Expr::Membership { key, value, collection, .. } => key.iter().chain([value, collection]).collect(),
        _ => Vec::new(),
    }
}

/// The terms of a comprehension, and its query; None for another expression.
pub fn comprehension(expr: &Expr) -> Option<(Vec<&Ref<Expr>>, &Query)> {
    match expr {
        Expr::ArrayCompr { term, query, .. } | Expr::SetCompr { term, query, .. } => Some((vec![term], query)),
        Expr::ObjectCompr { key, value, query, .. } => Some((vec![key, value], query)),
        _ => None,
    }
}

/// Whether a value without references is computed.
pub fn has_comprehension(value: &Expr) -> bool {
    comprehension(value).is_some() || parts(value).into_iter().any(|part| has_comprehension(part))
}

/// The value of a scalar literal.
pub fn constant(expr: &Expr) -> Option<&Value> {
    match expr {
        Expr::String { value, .. }
        | Expr::RawString { value, .. }
        | Expr::Number { value, .. }
        | Expr::Bool { value, .. }
        | Expr::Null { value, .. } => Some(value),
        _ => None,
    }
}
