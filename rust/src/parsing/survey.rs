//! The rules of a set, and what each of them reads, calls and consists of, as JSON: for checks and explanations in
//! Python.
//!
//! Offsets are in bytes of the module's text; lines and columns are the parser's.
#![forbid(unsafe_code)]

use crate::evaluation::loading;
use crate::failure::{column, PolicyFault};
use crate::parsing::known_text::{known, Known};
use crate::parsing::mentions::Mentions;
use crate::parsing::names::{
    assigned_names, comprehension, first_span, head_of, locals, parts, pattern_names, Names, Step,
};
use crate::parsing::rule_graph::Graph;
use crate::parsing::walk::mentions;
use crate::policy_set::{check_modules, engine_of, Options};
use crate::rewriting::edits::{assigned_value, head_value, range};
use crate::rewriting::for_interpreter::is_defined;
use regorus::unstable::{Expr, Import, Literal, LiteralStmt, Module, Query, Rule, RuleBody, Span};
use serde_json::{json, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The survey of `modules`, which need not be a complete set: `{"modules": […], "rules": […]}`.
pub fn survey(modules: &[(String, String)]) -> Result<Vec<u8>, PolicyFault> {
    loading(true, || survey_here(modules))
}

fn survey_here(modules: &[(String, String)]) -> Result<Vec<u8>, PolicyFault> {
    check_modules(modules)?;
    let mut engine = engine_of(modules, Options::default())?;
    let graph = Graph::of(engine.get_modules(), false)?;
    let mut definitions: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
    let mut packages = Vec::new();
    for module in engine.get_modules() {
        let names = Names::of(module);
        packages.push(json!({
            "path": module.package.span.source.get_path(),
            "package": names.package,
            "imports": imports(module),
        }));
        for rule in &module.policy {
            if let Some(node) = graph.index.get(&head_of(rule, &names).path) {
                definitions.entry(*node).or_default().push(definition(rule, &names, &graph, module));
            }
        }
    }
    let rules: Vec<Value> = graph
        .nodes
        .iter()
        .enumerate()
        .map(|(number, node)| {
            json!({
                "path": node.path,
                "function": node.is_function,
                "uses": node.edges,
                "interpreted": node.interpreted_because,
                "definitions": definitions.remove(&number).unwrap_or_default(),
            })
        })
        .collect();
    serde_json::to_vec(&json!({"modules": packages, "rules": rules}))
        .map_err(|_| PolicyFault::new("policy.internal", "the survey could not be written"))
}

fn imports(module: &Module) -> Vec<String> {
    let text = |import: &Import| import_text(&import.refr, import.r#as.as_ref());
    module.imports.iter().filter_map(text).collect()
}

fn import_text(target: &Expr, alias: Option<&Span>) -> Option<String> {
    let (start, end) = range(first_span(target)).zip(range(target.span())).map(|(first, last)| (first.0, last.1))?;
    let text = target.span().source.get_contents().get(start..end)?;
    Some(alias.map_or_else(|| format!("import {text}"), |name| format!("import {text} as {}", name.text())))
}

fn definition(rule: &Rule, names: &Names, graph: &Graph, module: &Module) -> Value {
    let head = head_of(rule, names);
    let found = mentions(rule, names);
    let none = BTreeSet::new();
    let (bodies, is_default): (&[RuleBody], bool) = match rule {
        Rule::Spec { bodies, .. } => (bodies, false),
        Rule::Default { .. } => (&[], true),
    };
    let unconditional = bodies.is_empty() && head.value.is_none_or(|value| is_defined(value, &none));
    let mut own = BTreeSet::new();
    head.arguments.iter().for_each(|argument| pattern_names(argument, &mut own));
    let scope = Scope { names, graph, arguments: own };
    json!({
        "module": module.package.span.source.get_path(),
        "line": rule.span().line,
        "column": column(rule.span()),
        "kind": if head.is_function { "function" } else if head.is_set { "set" } else { "value" },
        "default": is_default,
        "always": is_default || head.is_set || head.computed_key.is_some() || unconditional && !head.is_function,
        "known": head.value.filter(|_| bodies.is_empty()).map(|value| known_json(&known(value, names))),
        "arguments": head.arguments.iter().map(|argument| span_of(argument)).collect::<Vec<_>>(),
        "value": value_of(rule).map(|(start, end)| json!([start, end])),
        "with": found.with.is_some(),
        "bodies": bodies.iter().map(|body| body_json(body, &scope)).collect::<Vec<_>>(),
        "reads": reads(&found),
        "calls": calls(&found),
        "hoisted": hoisted(&found),
        "long_numbers": found.long_numbers.iter().map(place).collect::<Vec<_>>(),
    })
}

/// The bytes of the value in a head, if it gives one.
fn value_of(rule: &Rule) -> Option<(usize, usize)> {
    match rule {
        Rule::Spec { head, .. } => head_value(head),
        Rule::Default { .. } => None,
    }
}

fn place(span: &Span) -> Value {
    json!({"line": span.line, "column": column(span)})
}

/// The names before the first computed step, and whether those are all steps.
fn path_json(path: &[Step]) -> (Vec<&str>, bool) {
    let fixed: Vec<&str> =
        path.iter().map_while(|step| if let Step::Name(name) = step { Some(name.as_str()) } else { None }).collect();
    let whole = fixed.len() == path.len();
    (fixed, whole)
}

fn reads(found: &Mentions) -> Vec<Value> {
    let read = |path: &[Step], span: &Span| {
        let (fixed, whole) = path_json(path);
        json!({"path": fixed, "whole": whole, "line": span.line, "column": column(span)})
    };
    found.references.iter().map(|reference| read(&reference.path, &reference.span)).collect()
}

fn calls(found: &Mentions) -> Vec<Value> {
    let call = |call: &crate::parsing::mentions::Call| {
        let arguments: Vec<Value> = call.arguments_known.iter().map(known_json).collect();
        json!({"name": call.name, "line": call.span.line, "column": column(&call.span), "arguments": arguments})
    };
    found.calls.iter().map(call).collect()
}

fn hoisted(found: &Mentions) -> Vec<Value> {
    let one = |entry: &crate::parsing::mentions::Hoisted| {
        let path = entry.path.as_ref().map(|path| path_json(path).0);
        json!({"path": path, "call": entry.call, "line": entry.span.line, "column": column(&entry.span)})
    };
    found.hoisted.iter().map(one).collect()
}

fn known_json(value: &Known) -> Value {
    match value {
        Known::Text(text) => json!({"text": text}),
        Known::Path(path) => json!({"path": path}),
        Known::Joined { by, parts } => {
            json!({"by": known_json(by), "parts": parts.iter().map(known_json).collect::<Vec<_>>()})
        }
        Known::Nothing => Value::Null,
    }
}

/// Start and end of an expression: the span of a reference is that of its last step.
fn span_of(expr: &Expr) -> Value {
    let ends = range(first_span(expr)).zip(range(expr.span()));
    ends.map_or(Value::Null, |((start, _), (_, end))| json!([start, end]))
}

struct Scope<'a> {
    names: &'a Names,
    graph: &'a Graph,
    arguments: BTreeSet<String>,
}

impl Scope<'_> {
    /// A name that is neither a rule, an import nor a root: a variable.
    fn is_variable(&self, name: &str) -> bool {
        let root = self.names.root(name);
        let is_own = root.len() == self.names.package.len() + 1 && root.starts_with(&self.names.package);
        is_own && name != "_" && !self.graph.nodes.iter().any(|node| node.path.starts_with(&root))
    }
}

fn body_json(body: &RuleBody, scope: &Scope<'_>) -> Value {
    json!({
        "else": body.is_else,
        "value": body.assign.as_ref().and_then(assigned_value).map(|(start, end)| json!([start, end])),
        "span": range(&body.query.span).map(|(start, end)| json!([start, end])),
        "statements": statements(&body.query, scope),
    })
}

fn statements(query: &Query, scope: &Scope<'_>) -> Vec<Value> {
    let declared = locals(query);
    // A variable that `some` only declares is bound where a bracket first iterates with it.
    let mut assigned = BTreeSet::new();
    query.stmts.iter().for_each(|statement| assigned_names(&statement.literal, &mut assigned));
    query.stmts.iter().map(|statement| statement_json(statement, &declared, &assigned, scope)).collect()
}

fn statement_json(
    statement: &LiteralStmt,
    declared: &BTreeSet<String>,
    assigned: &BTreeSet<String>,
    scope: &Scope<'_>,
) -> Value {
    let mut found = Parts::new(scope, declared, assigned);
    found.literal(&statement.literal);
    let mut binds = BTreeSet::new();
    assigned_names(&statement.literal, &mut binds);
    binds.extend(found.bound);
    binds.remove("_");
    let kind = match &statement.literal {
        Literal::SomeVars { .. } => "some",
        Literal::NotExpr { .. } => "not",
        Literal::Every { .. } => "every",
        Literal::SomeIn { .. } => "in",
        Literal::Expr { .. } => "expression",
    };
    json!({
        "kind": kind,
        "line": statement.span.line,
        "column": column(&statement.span),
        "span": range(&statement.span).map(|(start, end)| json!([start, end])),
        "binds": binds,
        "needs": found.needs.difference(&binds).collect::<Vec<_>>(),
        "operands": found.operands,
    })
}

/// The operands of a statement, whose values explain it, and the names that it needs and binds.
struct Parts<'a> {
    scope: &'a Scope<'a>,
    declared: &'a BTreeSet<String>,
    assigned: &'a BTreeSet<String>,
    operands: Vec<Value>,
    needs: BTreeSet<String>,
    bound: BTreeSet<String>,
}

impl<'a> Parts<'a> {
    fn new(scope: &'a Scope<'a>, declared: &'a BTreeSet<String>, assigned: &'a BTreeSet<String>) -> Self {
        let (needs, bound) = (BTreeSet::new(), BTreeSet::new());
        Self { scope, declared, assigned, operands: Vec::new(), needs, bound }
    }

    fn literal(&mut self, literal: &Literal) {
        match literal {
            Literal::SomeVars { .. } => {}
            Literal::SomeIn { collection, .. } => self.operand(collection),
            Literal::Every { key, value, domain, query, .. } => {
                self.operand(domain);
                self.nested(query, key.iter().chain([value]).map(|span| span.text().to_owned()).collect());
            }
            Literal::NotExpr { expr, .. } => self.expression(expr, false),
            Literal::Expr { expr, .. } => self.expression(expr, true),
        }
    }

    fn expression(&mut self, expr: &Expr, may_bind: bool) {
        match expr {
            Expr::AssignExpr { lhs, rhs, .. } => {
                for side in [lhs, rhs] {
                    let mut bound = BTreeSet::new();
                    pattern_names(side, &mut bound);
                    bound.retain(|name| self.declared.contains(name) || self.scope.is_variable(name));
                    if bound.is_empty() || !may_bind {
                        self.operand(side);
                    } else {
                        self.bound.extend(bound);
                    }
                }
            }
            Expr::BoolExpr { lhs, rhs, .. } => [lhs, rhs].into_iter().for_each(|side| self.operand(side)),
            Expr::Membership { key, value, collection, .. } => {
                key.iter().for_each(|key| self.operand(key));
                self.operand(value);
                self.operand(collection);
            }
            Expr::Call { params, .. } => params.iter().for_each(|param| self.operand(param)),
            _ => self.operand(expr),
        }
    }

    /// An expression whose value explains something: no constant, and none that iterates.
    fn operand(&mut self, expr: &Expr) {
        self.mention(expr);
        // The parser's spans of array, set and object literals begin too late.
        let is_named = matches!(
            expr,
            Expr::Var { .. } | Expr::RefDot { .. } | Expr::RefBrack { .. } | Expr::Call { .. } | Expr::ArithExpr { .. }
        );
        if is_named && !crate::parsing::distinct_keys::has_bracket_variable(expr) {
            self.operands.push(span_of(expr));
        }
    }

    /// The names that a nested query needs from outside; `own` are those that it has beside its own locals.
    fn nested(&mut self, query: &Query, own: BTreeSet<String>) {
        let mut inner = locals(query);
        inner.extend(own);
        let mut found = Parts::new(self.scope, self.declared, self.assigned);
        query.stmts.iter().for_each(|statement| found.literal(&statement.literal));
        self.needs.extend(found.needs.difference(&inner).cloned());
    }

    /// The variables that an expression needs, and those that its brackets bind.
    fn mention(&mut self, expr: &Expr) {
        match expr {
            Expr::Var { span, .. } => {
                let name = span.text();
                if self.declared.contains(name) || self.scope.arguments.contains(name) || self.scope.is_variable(name) {
                    self.needs.insert(name.to_owned());
                }
            }
            Expr::RefBrack { refr, index, .. } => {
                self.mention(refr);
                match index.as_ref() {
                    Expr::Var { span, .. } if self.scope.is_variable(span.text()) => {
                        let name = span.text().to_owned();
                        if !self.assigned.contains(&name) && !self.scope.arguments.contains(&name) {
                            self.bound.insert(name);
                        } else {
                            self.needs.insert(name);
                        }
                    }
                    index => self.mention(index),
                }
            }
            _ => match comprehension(expr) {
                Some((_, query)) => self.nested(query, BTreeSet::new()),
                None => parts(expr).into_iter().for_each(|part| self.mention(part)),
            },
        }
    }
}
