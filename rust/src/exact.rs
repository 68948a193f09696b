//! Objects in patterns and what is negated, made to mean what they mean in OPA [ENG-11].
//!
//! In this release `{"k": v} := x` holds where `x` has other members too; in OPA an object is one of exactly these
//! members. So what is taken apart is compared with the pattern afterwards: `cmf_whole_9__ := x; {"k": v} :=
//! cmf_whole_9__; {"k": v} == cmf_whole_9__`. So it is in `some … in` and in arguments. Lines stay where they are.
//!
//! What is negated is [`crate::negated`]'s.
#![forbid(unsafe_code)]

use crate::failure::PolicyFault;
use crate::names::{constant, head_of, pattern_names, Names};
use crate::negated::{asked_first, flat, lines, skipped, without_a_value, words};
use crate::repair::{apply, range, Edit};
use regorus::unstable::{
    AssignOp, Expr, Literal, LiteralStmt, Module, Query, Ref, Rule, RuleBody, RuleHead, Span, WithModifier,
};
use std::collections::BTreeSet;

/// The text of each module made exact, or None for one that is.
pub fn made_exact(modules: &[Ref<Module>]) -> Vec<Option<String>> {
    let rules = first_names(modules);
    modules.iter().map(|module| apply(module, exact(module, &rules).edits)).collect()
}

/// Refuses what cannot be made exact.
pub fn refuse(modules: &[Ref<Module>]) -> Result<(), PolicyFault> {
    let rules = first_names(modules);
    modules.iter().find_map(|module| exact(module, &rules).refused).map_or(Ok(()), Err)
}

/// The packages' paths, each with the first name of a rule in it.
fn first_names(modules: &[Ref<Module>]) -> BTreeSet<Vec<String>> {
    let of_module = |module: &Ref<Module>| {
        let names = Names::of(module);
        let length = names.package.len() + 1;
        let first = |rule: &Ref<Rule>| head_of(rule, &names).path.into_iter().take(length).collect();
        module.policy.iter().map(first).collect::<Vec<Vec<String>>>()
    };
    modules.iter().flat_map(of_module).collect()
}

fn exact<'a>(module: &'a Module, rules: &'a BTreeSet<Vec<String>>) -> Exact<'a> {
    let mut exact = Exact { names: Names::of(module), rules, text: "", edits: Vec::new(), refused: None };
    for rule in &module.policy {
        exact.text = rule.span().text();
        exact.rule(rule);
    }
    exact
}

struct Exact<'a> {
    names: Names,
    rules: &'a BTreeSet<Vec<String>>,
    /// The text of the rule.
    text: &'a str,
    edits: Vec<Edit>,
    refused: Option<PolicyFault>,
}

impl Exact<'_> {
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
        self.edits.push(Edit { start: at, end: at, text });
    }

    fn refuse(&mut self, span: &Span) {
        self.refuse_with(span, "an object is taken apart as a condition of its own: `{…} := x`");
    }

    fn refuse_with(&mut self, span: &Span, message: &str) {
        self.refuse_as("policy.unsupported", span, message);
    }

    fn refuse_as(&mut self, code: &'static str, span: &Span, message: &str) {
        let fault = PolicyFault::at(code, span.source.get_path(), span.line, span.col, message);
        self.refused.get_or_insert(fault);
    }

    fn body(&mut self, query: &Query) {
        let before = self.edits.len();
        self.query(query);
        let Some((start, end)) = range(&query.span).filter(|_| self.edits.len() > before) else { return };
        // `if …` without braces holds one statement only.
        if !is_braced(query) {
            self.edits.insert(before, Edit { start, end: start, text: "{ ".to_owned() });
            self.insert(end, " }".to_owned());
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
        if let Some(span) = without_a_value(expr, self.text, is_rule) {
            return self.refuse_as("policy.analysis", span, "a variable of what is negated has no value");
        }
        match asked_first(statement, expr, with, is_rule) {
            // What a copy of `with` holds would need edits of its own.
            Some(edits) if edits.is_empty() || !self.changes_with(statement) => self.edits.extend(edits),
            _ => self.refuse_with(expr.span(), "give what is negated a name first: `x := …`, and then `not f(x)`"),
        }
        self.inside(expr);
    }

    fn changes_with(&mut self, statement: &LiteralStmt) -> bool {
        let before = self.edits.len();
        statement.with_mods.iter().for_each(|modifier| self.inside(&modifier.r#as));
        let changes = self.edits.len() > before;
        self.edits.truncate(before);
        changes
    }

    /// `x := h with input.a as h`: in this release a rule that a value of `with` asks for is not there for what it stands
    /// with. So the value gets a name before, as in OPA: `cmf_with_30__ := h; x := h with input.a as cmf_with_30__`.
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
            let text = source.get(start..end).and_then(flat).filter(|_| self.edits.len() == before);
            let (Some(text), Some((first, _))) = (text, range(&statement.span)) else {
                self.refuse_with(&modifier.span, "give what `with` puts there a name first: `x := …`");
                continue;
            };
            let name = format!("cmf_with_{start}__");
            self.insert(first, format!("{name} := {text}; "));
            named.push(Edit { start, end, text: name + &lines(source.get(start..end).unwrap_or_default()) });
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
        let places = whole(pattern).zip(whole_reference(other)).zip(range(&statement.span));
        let (Some(((pattern_at, other_at), all)), Some(apart)) = (places, taken_apart(pattern, sign)) else {
            return self.refuse(pattern.span());
        };
        let (one, two) = if is_last { (other_at, pattern_at) } else { (pattern_at, other_at) };
        let between = statement.span.source.get_contents().get(one.1..two.0);
        // With brackets around either, or a `with`, it is not told what belongs to what.
        if between.map(str::trim) != Some(sign) || (one.0, two.1) != all || !statement.with_mods.is_empty() {
            return self.refuse(pattern.span());
        }
        let TakenApart { name, conditions, lines } = apart;
        if is_last {
            self.insert(all.0, format!("{name} := "));
            self.edits.push(Edit { start: one.1, end: two.1, text: format!("; {conditions}{lines}") });
        } else {
            self.edits.push(Edit { start: one.0, end: two.0, text: format!("{name} := {lines}") });
            self.insert(all.1, format!("; {conditions}"));
        }
    }

    /// Comprehensions have bodies too.
    fn inside(&mut self, expr: &Expr) {
        match expr {
            Expr::ArrayCompr { term, query, .. } | Expr::SetCompr { term, query, .. } => {
                self.inside(term);
                self.query(query);
            }
            Expr::ObjectCompr { key, value, query, .. } => {
                self.inside(key);
                self.inside(value);
                self.query(query);
            }
            Expr::Array { items, .. } | Expr::Set { items, .. } => items.iter().for_each(|item| self.inside(item)),
            Expr::Object { fields, .. } => fields.iter().for_each(|(_, key, value)| {
                self.inside(key);
                self.inside(value);
            }),
            Expr::Call { params, .. } => params.iter().for_each(|param| self.inside(param)),
            Expr::UnaryExpr { expr, .. } => self.inside(expr),
            Expr::RefDot { refr, .. } => self.inside(refr),
            Expr::RefBrack { refr, index, .. } => {
                self.inside(refr);
                self.inside(index);
            }
            Expr::BinExpr { lhs, rhs, .. }
            | Expr::BoolExpr { lhs, rhs, .. }
            | Expr::ArithExpr { lhs, rhs, .. }
            | Expr::AssignExpr { lhs, rhs, .. } => {
                self.inside(lhs);
                self.inside(rhs);
            }
            Expr::Membership { key, value, collection, .. } => {
                key.iter().for_each(|key| self.inside(key));
                self.inside(value);
                self.inside(collection);
            }
            _ => {}
        }
    }
}

/// Whether OPA takes it for a default: what asks for nothing outside of a comprehension.
fn is_fixed(value: &Expr) -> bool {
    match value {
        Expr::ArrayCompr { .. } | Expr::SetCompr { .. } | Expr::ObjectCompr { .. } => true,
        Expr::Array { items, .. } | Expr::Set { items, .. } => items.iter().all(|item| is_fixed(item)),
        Expr::Object { fields, .. } => fields.iter().all(|(_, key, value)| is_fixed(key) && is_fixed(value)),
        Expr::UnaryExpr { expr, .. } => is_fixed(expr),
        other => constant(other).is_some(),
    }
}

/// The bytes of what a `with` puts there.
fn value_of(modifier: &WithModifier) -> Option<(usize, usize)> {
    let source = modifier.span.source.get_contents();
    let word = skipped(source, range(modifier.refr.span())?.1);
    source.get(word..)?.starts_with("as").then_some((skipped(source, word + 2), range(&modifier.span)?.1))
}

fn is_braced(query: &Query) -> bool {
    let first = query.stmts.first().and_then(|first| range(&first.span));
    query.span.text().starts_with('{') && range(&query.span).zip(first).is_some_and(|(all, first)| first.0 > all.0)
}

/// Whether a pattern has an object in it.
fn has_object(pattern: &Expr) -> bool {
    match pattern {
        Expr::Object { .. } => true,
        Expr::Array { items, .. } => items.iter().any(|item| has_object(item)),
        _ => false,
    }
}

/// The bytes of a pattern. The parser's span of an object begins at its last member.
fn whole(pattern: &Expr) -> Option<(usize, usize)> {
    let (start, end) = range(pattern.span())?;
    let Expr::Object { fields, .. } = pattern else { return Some((start, end)) };
    let Some((_, first, _)) = fields.first() else { return Some((start, end)) };
    let before = pattern.span().source.get_contents().get(..whole(first)?.0)?.trim_end();
    before.ends_with('{').then_some((before.len() - 1, end))
}

/// The same, of what may be a reference, whose span is that of its last step.
fn whole_reference(expr: &Expr) -> Option<(usize, usize)> {
    let (_, end) = range(expr.span())?;
    Some((whole(crate::names::first_expr(expr))?.0, end))
}

fn names_in(pattern: &Expr) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    pattern_names(pattern, &mut names);
    names
}

/// A name for what is taken apart, the conditions that do it, and the ends of lines that the pattern had.
struct TakenApart {
    name: String,
    conditions: String,
    lines: String,
}

/// None where the text cannot be written again.
fn taken_apart(pattern: &Ref<Expr>, sign: &str) -> Option<TakenApart> {
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
    let lines = "\n".repeat(text.matches('\n').count());
    let text = text.replace('\n', " ");
    let name = format!("cmf_whole_{start}__");
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
