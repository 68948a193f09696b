//! Object patterns, `with` values and negations, rewritten to mean what they mean in OPA [ENG-11]. Lines keep their
//! numbers.
//!
//! - In this release `{"k": v} := x` also holds where `x` has other members; in OPA only where it has exactly these. So
//!   the value is compared with the pattern afterwards: `cmf_whole_9__ := x; {"k": v} := cmf_whole_9__; {"k": v} ==
//!   cmf_whole_9__`. The same in `some … in` and in arguments.
//! - `x := h with input.a as h`: a rule that the value of a `with` reads is evaluated with the replaced input. So the
//!   value is evaluated before, as in OPA: `cmf_with_30__ := h; x := h with input.a as cmf_with_30__`.
//! - Operands of negations: see [`negation`](crate::rewriting::negation).
#![forbid(unsafe_code)]

use crate::failure::PolicyFault;
use crate::parsing::names::{comprehension, constant, head_of, parts, pattern_names, Names};
use crate::rewriting::edits::{
    add_braces, apply, is_braced, line_breaks, on_one_line, range, skip_blanks, words, Edit,
};
use crate::rewriting::negation::{operands_first, unbound_variable};
use regorus::unstable::{
    AssignOp, Expr, Literal, LiteralStmt, Module, Query, Ref, Rule, RuleBody, RuleHead, Span, WithModifier,
};
use std::collections::BTreeSet;

/// The text of each module, rewritten; None for a module that needs no change.
pub fn with_exact_patterns(modules: &[Ref<Module>]) -> Vec<Option<String>> {
    let rules = first_names(modules);
    modules.iter().map(|module| apply(module, rewrite(module, &rules).edits)).collect()
}

/// Refuses what cannot be rewritten.
pub fn refuse(modules: &[Ref<Module>]) -> Result<(), PolicyFault> {
    let rules = first_names(modules);
    modules.iter().find_map(|module| rewrite(module, &rules).refused).map_or(Ok(()), Err)
}

/// The path of each package, followed by the first name of each of its rules.
fn first_names(modules: &[Ref<Module>]) -> BTreeSet<Vec<String>> {
    let of_module = |module: &Ref<Module>| {
        let names = Names::of(module);
        let length = names.package.len() + 1;
        let first = |rule: &Ref<Rule>| head_of(rule, &names).path.into_iter().take(length).collect();
        module.policy.iter().map(first).collect::<Vec<Vec<String>>>()
    };
    modules.iter().flat_map(of_module).collect()
}

fn rewrite<'a>(module: &'a Module, rules: &'a BTreeSet<Vec<String>>) -> Rewriter<'a> {
    let mut rewriter = Rewriter { names: Names::of(module), rules, text: "", edits: Vec::new(), refused: None };
    for rule in &module.policy {
        rewriter.text = rule.span().text();
        rewriter.rule(rule);
    }
    rewriter
}

struct Rewriter<'a> {
    names: Names,
    rules: &'a BTreeSet<Vec<String>>,
    /// The text of the rule.
    text: &'a str,
    edits: Vec<Edit>,
    refused: Option<PolicyFault>,
}

impl Rewriter<'_> {
    fn rule(&mut self, rule: &Rule) {
        let (head, bodies) = match rule {
            Rule::Spec { head, bodies, .. } => (head, bodies),
            Rule::Default { value, .. } if is_fixed(value) => return,
            Rule::Default { value, .. } => return self.refuse_with(value.span(), "a default is a constant"),
        };
        let assign = match head {
            RuleHead::Compr { assign, .. } => assign.as_ref(),
            RuleHead::Func { args, assign, .. } => {
                self.arguments(rule, args, bodies);
                assign.as_ref()
            }
            RuleHead::Set { key, .. } => {
                key.iter().for_each(|key| self.inside(key));
                None
            }
        };
        assign.iter().for_each(|assign| self.inside(&assign.value));
        for body in bodies {
            body.assign.iter().for_each(|assign| self.inside(&assign.value));
            self.body(&body.query);
        }
    }

    fn arguments(&mut self, rule: &Rule, arguments: &[Ref<Expr>], bodies: &[RuleBody]) {
        let mut conditions = Vec::new();
        for argument in arguments.iter().filter(|argument| has_object(argument)) {
            let Some(((start, end), apart)) = whole(argument).zip(taken_apart(argument, ":=")) else {
                return self.refuse(argument.span());
            };
            self.edits.push(Edit { start, end, text: apart.name + &apart.lines });
            conditions.push(apart.conditions);
        }
        if conditions.is_empty() {
            return;
        }
        let conditions = conditions.join("; ");
        match bodies {
            [] => match range(rule.span()) {
                Some((_, end)) => self.insert(end, format!(" if {{ {conditions} }}")),
                None => self.refuse(rule.span()),
            },
            [body] => {
                let places = range(&body.query.span).zip(body.query.stmts.first().and_then(|first| range(&first.span)));
                let Some(((start, end), (first, _))) = places else { return self.refuse(rule.span()) };
                if is_braced(&body.query) {
                    self.insert(first, format!("{conditions}; "));
                } else {
                    self.insert(start, format!("{{ {conditions}; "));
                    self.insert(end, " }".to_owned());
                }
            }
            _ => self.refuse(rule.span()),
        }
    }

    fn insert(&mut self, at: usize, text: String) {
        self.edits.push(Edit::insertion(at, text));
    }

    fn refuse(&mut self, span: &Span) {
        self.refuse_with(
            span,
            "take the object apart in a condition of its own: `{…} := x`; or give it a name first: `x := {…}`",
        );
    }

    fn refuse_with(&mut self, span: &Span, message: &str) {
        self.refuse_as("policy.unsupported", span, message);
    }

    fn refuse_as(&mut self, code: &'static str, span: &Span, message: &str) {
        self.refused.get_or_insert_with(|| PolicyFault::at_span(code, span, message));
    }

    fn body(&mut self, query: &Query) {
        let before = self.edits.len();
        self.query(query);
        if self.edits.len() > before {
            add_braces(query, before, &mut self.edits);
        }
    }

    fn query(&mut self, query: &Query) {
        query.stmts.iter().for_each(|statement| self.statement(statement));
    }

    fn statement(&mut self, statement: &LiteralStmt) {
        let with = self.with_values(statement);
        match &statement.literal {
            Literal::SomeIn { value, collection, .. } => {
                self.inside(collection);
                if has_object(value) {
                    self.member(statement, value);
                }
            }
            Literal::Every { domain, query, .. } => {
                self.inside(domain);
                self.query(query);
            }
            Literal::Expr { expr, .. } => match expr.as_ref() {
                Expr::AssignExpr { op, lhs, rhs, .. } => {
                    let is_pattern = |side: &Ref<Expr>| has_object(side) && !names_in(side).is_empty();
                    let from_right = *op != AssignOp::ColEq && is_pattern(rhs);
                    match (is_pattern(lhs), from_right) {
                        (false, false) => self.inside(expr),
                        (true, true) => self.refuse(lhs.span()),
                        (true, false) => self.assignment(statement, op, lhs, rhs, false),
                        (false, true) => self.assignment(statement, op, rhs, lhs, true),
                    }
                }
                _ => self.inside(expr),
            },
            Literal::NotExpr { expr, .. } => match expr.as_ref() {
                Expr::AssignExpr { lhs, rhs, .. } if has_object(lhs) || has_object(rhs) => self.refuse(expr.span()),
                _ => self.negated(statement, expr, &with),
            },
            Literal::SomeVars { .. } => {}
        }
    }

    fn is_rule(&self, name: &str) -> bool {
        name == "data" || self.names.imported(name).is_some() || self.rules.contains(&self.names.root(name))
    }

    fn negated(&mut self, statement: &LiteralStmt, expr: &Expr, with: &[Edit]) {
        let is_rule = |name: &str| name == "input" || self.is_rule(name);
        if let Some(span) = unbound_variable(expr, self.text, is_rule) {
            return self.refuse_as("policy.analysis", span, "a variable of what is negated has no value");
        }
        match operands_first(statement, expr, with, is_rule) {
            // A copy of a `with` that changes would need edits of its own.
            Some(edits) if edits.is_empty() || !self.changes_with(statement) => self.edits.extend(edits),
            _ => self.refuse_with(expr.span(), "give what is negated a name first: `x := …`, and then `not f(x)`"),
        }
        self.inside(expr);
    }

    fn changes_with(&mut self, statement: &LiteralStmt) -> bool {
        statement.with_mods.iter().any(|modifier| self.changes(&modifier.r#as))
    }

    /// Whether something inside an expression has to be rewritten.
    fn changes(&mut self, expr: &Expr) -> bool {
        let before = self.edits.len();
        self.inside(expr);
        let changes = self.edits.len() > before;
        self.edits.truncate(before);
        changes
    }

    /// Evaluates the values of `with` that read a rule before the statement; gives the edits of the modifiers.
    fn with_values(&mut self, statement: &LiteralStmt) -> Vec<Edit> {
        let mut named = Vec::new();
        for modifier in &statement.with_mods {
            let source = modifier.span.source.get_contents();
            let is_rule = |word: &str| self.is_rule(word);
            let place = value_of(modifier)
                .filter(|(start, end)| source.get(*start..*end).is_some_and(|text| words(text).any(is_rule)));
            let before = self.edits.len();
            self.inside(&modifier.r#as);
            let Some((start, end)) = place else { continue };
            let text = source.get(start..end).and_then(on_one_line).filter(|_| self.edits.len() == before);
            let (Some(text), Some((first, _))) = (text, range(&statement.span)) else {
                self.refuse_with(&modifier.span, "give the value of `with` a name first: `x := …`");
                continue;
            };
            let name = format!("cmf_with_{start}__");
            self.insert(first, format!("{name} := {text}; "));
            named.push(Edit { start, end, text: name + &line_breaks(source.get(start..end).unwrap_or_default()) });
        }
        self.edits.extend(named.iter().cloned());
        named
    }

    /// `some {…} in xs`.
    fn member(&mut self, statement: &LiteralStmt, value: &Ref<Expr>) {
        let places = whole(value).zip(range(&statement.span));
        let (Some(((start, end), (_, last))), Some(apart)) = (places, taken_apart(value, ":=")) else {
            return self.refuse(value.span());
        };
        if !statement.with_mods.is_empty() {
            return self.refuse(value.span());
        }
        self.edits.push(Edit { start, end, text: apart.name + &apart.lines });
        self.insert(last, format!("; {}", apart.conditions));
    }

    /// `{…} := x`, `{…} = x`, `x = {…}`.
    fn assignment(
        &mut self,
        statement: &LiteralStmt,
        op: &AssignOp,
        pattern: &Ref<Expr>,
        other: &Ref<Expr>,
        is_last: bool,
    ) {
        self.inside(other);
        let sign = if *op == AssignOp::ColEq { ":=" } else { "=" };
        let variable = variable(other).filter(|_| sign == "=");
        let apart = match variable {
            Some(name) => taken_apart_as(pattern, sign, name.to_owned()),
            None => taken_apart(pattern, sign),
        };
        let places = whole(pattern).zip(whole_reference(other)).zip(range(&statement.span));
        let (Some(((pattern_at, other_at), all)), Some(apart), false) = (places, apart, self.changes(pattern)) else {
            return self.refuse(pattern.span());
        };
        let (one, two) = if is_last { (other_at, pattern_at) } else { (pattern_at, other_at) };
        let between = statement.span.source.get_contents().get(one.1..two.0);
        // With parentheses around a side, or with a `with`, the text does not show what belongs to which side.
        if between.map(str::trim) != Some(sign) || (one.0, two.1) != all || !statement.with_mods.is_empty() {
            return self.refuse(pattern.span());
        }
        let TakenApart { name, conditions, lines } = apart;
        if variable.is_some() {
            // It may get its value here: `x = {"k": v}`.
            self.edits.push(Edit { start: all.0, end: all.1, text: conditions + &lines });
        } else if is_last {
            self.insert(all.0, format!("{name} := "));
            self.edits.push(Edit { start: one.1, end: two.1, text: format!("; {conditions}{lines}") });
        } else {
            self.edits.push(Edit { start: one.0, end: two.0, text: format!("{name} := {lines}") });
            self.insert(all.1, format!("; {conditions}"));
        }
    }

    /// The bodies of comprehensions inside an expression.
    fn inside(&mut self, expr: &Expr) {
        let (terms, query) =
            comprehension(expr).map_or_else(|| (parts(expr), None), |(terms, query)| (terms, Some(query)));
        terms.into_iter().for_each(|part| self.inside(part));
        query.into_iter().for_each(|query| self.query(query));
    }
}

/// Whether OPA takes it for the value of a default: outside of comprehensions it reads nothing.
fn is_fixed(value: &Expr) -> bool {
    match value {
        Expr::Array { .. } | Expr::Set { .. } | Expr::Object { .. } | Expr::UnaryExpr { .. } => {
            parts(value).into_iter().all(|part| is_fixed(part))
        }
        other => constant(other).is_some() || comprehension(other).is_some(),
    }
}

/// The bytes of the value of a `with`.
fn value_of(modifier: &WithModifier) -> Option<(usize, usize)> {
    let source = modifier.span.source.get_contents();
    let word = skip_blanks(source, range(modifier.refr.span())?.1);
    source.get(word..)?.starts_with("as").then_some((skip_blanks(source, word + 2), range(&modifier.span)?.1))
}

/// Whether a pattern has an object in it.
fn has_object(pattern: &Expr) -> bool {
    match pattern {
        Expr::Object { .. } => true,
        Expr::Array { items, .. } => items.iter().any(|item| has_object(item)),
        _ => false,
    }
}

/// The bytes of a pattern: the parser's span of an object begins at its last member.
fn whole(pattern: &Expr) -> Option<(usize, usize)> {
    let (start, end) = range(pattern.span())?;
    let Expr::Object { fields, .. } = pattern else { return Some((start, end)) };
    let Some((_, first, _)) = fields.first() else { return Some((start, end)) };
    let before = pattern.span().source.get_contents().get(..whole(first)?.0)?.trim_end();
    before.ends_with('{').then_some((before.len() - 1, end))
}

/// The same of an expression that may be a reference: the span of a reference is that of its last step.
fn whole_reference(expr: &Expr) -> Option<(usize, usize)> {
    let (_, end) = range(expr.span())?;
    Some((whole(crate::parsing::names::first_expr(expr))?.0, end))
}

fn names_in(pattern: &Expr) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    pattern_names(pattern, &mut names);
    names
}

/// A name for the value, the conditions that take it apart, and the line breaks that the pattern had.
struct TakenApart {
    name: String,
    conditions: String,
    lines: String,
}

/// The name of a variable.
fn variable(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Var { span, .. } if span.text() != "_" => Some(span.text()),
        _ => None,
    }
}

/// None where the text cannot be rewritten.
fn taken_apart(pattern: &Ref<Expr>, sign: &str) -> Option<TakenApart> {
    taken_apart_as(pattern, sign, format!("cmf_whole_{}__", whole(pattern)?.0))
}

fn taken_apart_as(pattern: &Ref<Expr>, sign: &str, name: String) -> Option<TakenApart> {
    let (start, end) = whole(pattern)?;
    let source = pattern.span().source.get_contents();
    let mut wildcards = Vec::new();
    find_wildcards(pattern, &mut wildcards);
    wildcards.sort_unstable();
    let (mut text, mut at) = (String::new(), start);
    for place in wildcards {
        text.push_str(source.get(at..place)?);
        text.push_str(&format!("cmf_any_{place}__"));
        at = place + 1;
    }
    text.push_str(source.get(at..end)?);
    if text.contains(['`', '#']) {
        return None;
    }
    let lines = line_breaks(&text);
    let text = text.replace('\n', " ");
    let compared = format!("{text} == {name}");
    let conditions = if names_in(pattern).is_empty() { compared } else { format!("{text} {sign} {name}; {compared}") };
    Some(TakenApart { name, conditions, lines })
}

/// Where `_` stands, in order.
fn find_wildcards(pattern: &Expr, places: &mut Vec<usize>) {
    match pattern {
        Expr::Var { span, .. } if span.text() == "_" => places.extend(range(span).map(|(start, _)| start)),
        Expr::Array { items, .. } => items.iter().for_each(|item| find_wildcards(item, places)),
        Expr::Object { fields, .. } => fields.iter().for_each(|(_, _, value)| find_wildcards(value, places)),
        _ => {}
    }
}
