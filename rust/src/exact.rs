//! Objects in patterns, made as exact as in OPA [ENG-11].
//!
//! In this release `{"k": v} := x` holds where `x` has other members too; in OPA an object is one of exactly these
//! members. So what is taken apart is compared with the pattern afterwards: `cmf_whole_9__ := x; {"k": v} :=
//! cmf_whole_9__; {"k": v} == cmf_whole_9__`. So it is in `some … in` and in arguments. Lines stay where they are.
#![forbid(unsafe_code)]

use crate::failure::PolicyFault;
use crate::names::{constant, first_span, head_of, pattern_names, steps, Names};
use crate::repair::{apply, range, Edit};
use regorus::unstable::{
    AssignOp, BoolOp, Expr, Literal, LiteralStmt, Module, Query, Ref, Rule, RuleBody, RuleHead, Span,
};
use std::collections::BTreeSet;

/// The module's text with every pattern exact, or None if it has none with an object.
pub fn made_exact(module: &Module) -> Option<String> {
    apply(module, exact(module).edits)
}

/// Refuses a pattern that cannot be made exact.
pub fn refuse(modules: &[Ref<Module>]) -> Result<(), PolicyFault> {
    modules.iter().find_map(|module| exact(module).refused).map_or(Ok(()), Err)
}

fn exact(module: &Module) -> Exact {
    let names = Names::of(module);
    let name = |rule: &Ref<Rule>| head_of(rule, &names).path.get(names.package.len()).cloned();
    let rules = module.policy.iter().filter_map(name).collect();
    let mut exact = Exact { rules, edits: Vec::new(), refused: None };
    module.policy.iter().for_each(|rule| exact.rule(rule));
    exact
}

struct Exact {
    /// First names of the module's rules.
    rules: BTreeSet<String>,
    edits: Vec<Edit>,
    refused: Option<PolicyFault>,
}

impl Exact {
    fn rule(&mut self, rule: &Rule) {
        let Rule::Spec { head, bodies, .. } = rule else { return };
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
        let message = "an object is taken apart as a condition of its own: `{…} := x`";
        let fault = PolicyFault::at("policy.unsupported", span.source.get_path(), span.line, span.col, message);
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
                Expr::AssignExpr { lhs, rhs, .. } | Expr::BoolExpr { op: BoolOp::Eq, lhs, rhs, .. } => {
                    self.brackets(statement, expr, lhs);
                    self.brackets(statement, expr, rhs);
                }
                _ => self.brackets(statement, expr, expr),
            },
            Literal::SomeVars { .. } => {}
        }
    }

    /// `not xs[input.a]`: OPA asks for `input.a` first, and does not negate what is not there.
    fn brackets(&mut self, statement: &LiteralStmt, negated: &Expr, side: &Expr) {
        let Some(steps) = steps(side) else { return self.inside(side) };
        for index in steps.into_iter().filter_map(|(_, index)| index) {
            if constant(index).is_some()
                || matches!(index.as_ref(), Expr::Var { span, .. } if !self.rules.contains(span.text()))
            {
                continue;
            }
            let source = index.span().source.get_contents();
            let places = range(first_span(index)).zip(range(index.span())).zip(range(&statement.span));
            let Some((((start, _), (_, end)), (first, last))) = places else { return self.refuse(index.span()) };
            let Some(text) = source.get(start..end).filter(|text| !text.contains(['\n', '#'])) else {
                return self.refuse(index.span());
            };
            let with = statement.with_mods.first().and_then(|_| source.get(range(negated.span())?.1..last));
            let name = format!("cmf_index_{start}__");
            self.insert(first, format!("{name} := {text}{}; ", with.unwrap_or_default()));
            self.edits.push(Edit { start, end, text: name });
        }
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
