//! One walk over the syntax tree of a rule: its references, its calls, and the constructs that decide whether it may be
//! compiled. Local variables shadow rules, query by query, as in Rego; calls are never shadowed.
#![forbid(unsafe_code)]

use crate::parsing::bracket_limits;
use crate::parsing::distinct_keys::{keys_are_distinct, loops_beside};
use crate::parsing::known_text::known;
use crate::parsing::mentions::{Arithmetic, Call, Hoisted, Membership, Mentions, Reference};
use crate::parsing::names::{
    comprehension, constant, first_span, fixed_path, head_of, locals, parts, pattern_names, steps, Head, Names, Step,
};
use regorus::unstable::{ArithOp, AssignOp, BoolOp, Expr, Literal, LiteralStmt, Query, Ref, Rule, RuleHead, Span};
use regorus::Value;
use std::collections::BTreeSet;

/// Above it engines treat whole numbers differently.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

/// What one definition of a rule mentions.
pub fn mentions(rule: &Rule, names: &Names) -> Mentions {
    let mut walker = Walker::new(names);
    walker.rule(rule);
    walker.found
}

/// What a query outside of any rule mentions.
pub fn query_mentions(query: &Query) -> Mentions {
    let names = Names::outside();
    let mut walker = Walker::new(&names);
    walker.query(query);
    walker.found
}

struct Walker<'a> {
    names: &'a Names,
    scopes: Vec<BTreeSet<String>>,
    found: Mentions,
    /// Comprehensions and `every` around the current place.
    depth: u32,
    /// The variables of each `every` around it.
    quantified: Vec<BTreeSet<String>>,
    /// Inside a negated expression, of which OPA evaluates references before.
    hoisting: bool,
    /// The next call is the negated expression itself, and not inside it.
    outermost: bool,
    /// References that have to be defined for the query around them to hold; None where that is not known.
    required: Option<Vec<Vec<Step>>>,
    /// The hoisted operands of that query's negations, with the reference as written.
    pending: Vec<(Hoisted, Vec<Step>)>,
}

impl<'a> Walker<'a> {
    fn new(names: &'a Names) -> Self {
        Self {
            names,
            scopes: vec![BTreeSet::new()],
            found: Mentions::default(),
            depth: 0,
            quantified: Vec::new(),
            hoisting: false,
            outermost: false,
            required: None,
            pending: Vec::new(),
        }
    }

    fn is_local(&self, name: &str) -> bool {
        self.scopes.iter().any(|scope| scope.contains(name))
    }

    fn rule(&mut self, rule: &Rule) {
        let head = head_of(rule, self.names);
        for argument in head.arguments.iter() {
            let mut bound = BTreeSet::new();
            pattern_names(argument, &mut bound);
            self.scopes[0].extend(bound);
        }
        match rule {
            Rule::Default { value, .. } => self.expr(value),
            Rule::Spec { head: spec, bodies, .. } => {
                // A head is evaluated with the variables of its body: what is local in every body is local in the head.
                let mut shared: Option<BTreeSet<String>> = None;
                for body in bodies {
                    let declared = locals(&body.query);
                    if let Some(assign) = &body.assign {
                        self.scopes.push(declared.clone());
                        self.expr(&assign.value);
                        self.scopes.pop();
                    }
                    shared = Some(match shared {
                        None => declared,
                        Some(so_far) => so_far.intersection(&declared).cloned().collect(),
                    });
                    self.query(&body.query);
                }
                self.scopes.push(shared.unwrap_or_default());
                self.head_parts(spec, &head);
                self.scopes.pop();
            }
        }
    }

    fn head_parts(&mut self, spec: &RuleHead, head: &Head<'_>) {
        if let RuleHead::Compr { refr, .. } | RuleHead::Set { refr, .. } = spec {
            self.brackets(refr);
        }
        head.arguments.iter().chain(head.value).for_each(|part| self.expr(part));
    }

    /// The computed keys of a head; its own name is not a reference.
    fn brackets(&mut self, refr: &Ref<Expr>) {
        for (_, index) in steps(refr).unwrap_or_default() {
            if let Some(index) = index {
                self.expr(index);
            }
        }
    }

    fn query(&mut self, query: &Query) {
        self.scopes.push(locals(query));
        let required = self.required.replace(Vec::new());
        let pending = std::mem::take(&mut self.pending);
        for statement in &query.stmts {
            if statement.with_mods.is_empty() {
                self.statement(statement);
            } else {
                self.unrequired(|walker| walker.statement(statement));
            }
        }
        let required = std::mem::replace(&mut self.required, required).unwrap_or_default();
        let pending = std::mem::replace(&mut self.pending, pending);
        // What the query needs anyway is defined when the negation is evaluated.
        let may_be_missing =
            |path: &[Step]| path.contains(&Step::Any) || !required.iter().any(|one| one.starts_with(path));
        self.found.hoisted.extend(pending.into_iter().filter(|(_, path)| may_be_missing(path)).map(|(one, _)| one));
        self.scopes.pop();
    }

    /// Visits what the query around it does not need, or needs of another input.
    fn unrequired(&mut self, visit: impl FnOnce(&mut Self)) {
        let required = self.required.take();
        visit(self);
        self.required = required;
    }

    fn hoist(&mut self, hoisted: Hoisted, written: Vec<Step>) {
        if self.required.is_some() {
            self.pending.push((hoisted, written));
        } else {
            self.found.hoisted.push(hoisted);
        }
    }

    fn statement(&mut self, statement: &LiteralStmt) {
        for modifier in &statement.with_mods {
            self.found.with.get_or_insert_with(|| modifier.span.clone());
            let target = fixed_path(&modifier.refr).unwrap_or_default();
            if !matches!(target.first().map(String::as_str), Some("data" | "input")) {
                self.found.with_function.get_or_insert_with(|| modifier.span.clone());
            }
            self.found.with_targets.push((target, modifier.span.clone()));
            self.expr(&modifier.refr);
            self.expr(&modifier.r#as);
        }
        match &statement.literal {
            Literal::SomeVars { .. } => self.found.iterates |= self.depth == 0,
            Literal::SomeIn { key, value, collection, .. } => {
                self.found.iterates |= self.depth == 0;
                if let Some(key) = key {
                    self.expr(key);
                }
                self.expr(value);
                self.expr(collection);
            }
            Literal::Expr { expr, .. } => match expr.as_ref() {
                Expr::Call { span, fcn, params, .. } => self.call(fcn, params, Some(span)),
                Expr::Membership { key, .. } => {
                    self.expr(expr);
                    // As a condition it means the same in regorus, but for the keys of sets.
                    if key.is_none() {
                        self.found.memberships.pop();
                    }
                }
                _ => self.expr(expr),
            },
            Literal::NotExpr { expr, .. } => self.negated(expr),
            Literal::Every { key, value, domain, query, .. } => {
                self.expr(domain);
                let mut bound: BTreeSet<String> = key.iter().map(|span| span.text().to_owned()).collect();
                bound.insert(value.text().to_owned());
                self.scopes.push(bound.clone());
                self.quantified.push(bound);
                self.inside(|walker| walker.query(query));
                self.quantified.pop();
                self.scopes.pop();
            }
        }
    }

    /// OPA leaves `not <reference>` and equalities of references as they are, and moves references out of all other
    /// negations.
    fn negated(&mut self, expr: &Expr) {
        let is_plain = |side: &Expr| constant(side).is_some() || steps(side).is_some();
        let is_alone = match expr {
            Expr::BoolExpr { op: BoolOp::Eq, lhs, rhs, .. } | Expr::AssignExpr { lhs, rhs, .. } => {
                is_plain(lhs) && is_plain(rhs)
            }
            other => is_plain(other),
        };
        self.hoisting = !is_alone;
        self.outermost = matches!(expr, Expr::Call { .. });
        if is_alone {
            self.unrequired(|walker| walker.expr(expr));
        } else {
            self.expr(expr);
        }
        self.hoisting = false;
    }

    fn inside(&mut self, visit: impl FnOnce(&mut Self)) {
        let hoisting = std::mem::replace(&mut self.hoisting, false);
        self.depth += 1;
        self.unrequired(visit);
        self.depth -= 1;
        self.hoisting = hoisting;
    }

    fn comprehension(&mut self, expr: &Expr, terms: &[&Ref<Expr>], query: &Query) {
        if let Expr::ObjectCompr { span, key, value, .. } = expr {
            if (!keys_are_distinct(key, query) || loops_beside(value, key)) && constant(value).is_none() {
                self.found.keyed.get_or_insert_with(|| span.clone());
            }
        }
        self.inside(|walker| {
            walker.query(query);
            walker.scopes.push(locals(query));
            for term in terms {
                walker.expr(term);
            }
            walker.scopes.pop();
        });
    }

    fn expr(&mut self, expr: &Expr) {
        match expr {
            Expr::Number { span, .. } => {
                let magnitude = span.text().parse::<f64>().unwrap_or_default().abs();
                if magnitude > MAX_SAFE_INTEGER && !span.text().contains(['.', 'e', 'E']) {
                    self.found.long_numbers.push(span.clone());
                }
            }
            Expr::Var { .. } | Expr::RefDot { .. } | Expr::RefBrack { .. } => self.reference(expr),
            Expr::Call { fcn, params, .. } => self.call(fcn, params, None),
            Expr::UnaryExpr { span, expr, .. } => {
                self.found.minus.get_or_insert_with(|| span.clone());
                if constant(expr).is_none() {
                    self.found.minus_of_expression.get_or_insert_with(|| span.clone());
                }
                self.expr(expr);
            }
            Expr::ArithExpr { span, op, lhs, rhs, .. } => {
                let function = match op {
                    ArithOp::Add => "cmf.plus",
                    ArithOp::Sub => "cmf.minus",
                    ArithOp::Mul => "cmf.times",
                    ArithOp::Div => "cmf.divide",
                    ArithOp::Mod => "cmf.remainder",
                };
                self.found.arithmetic.push(Arithmetic { span: span.clone(), left: lhs.span().clone(), function });
                self.expr(lhs);
                self.expr(rhs);
            }
            Expr::AssignExpr { span, op, lhs, rhs, .. } => {
                if *op == AssignOp::ColEq && matches!(lhs.as_ref(), Expr::Var { span, .. } if span.text() == "_") {
                    self.found.discarded.get_or_insert_with(|| span.clone());
                }
                self.expr(lhs);
                self.expr(rhs);
            }
            Expr::Membership { span, key, value, collection, .. } => {
                if let Some(key) = key {
                    self.found.keyed_member.get_or_insert_with(|| span.clone());
                    self.expr(key);
                }
                self.expr(value);
                self.expr(collection);
                self.found.memberships.push(Membership {
                    span: span.clone(),
                    has_key: key.is_some(),
                    value: value.span().clone(),
                    collection: first_span(collection).clone(),
                });
            }
            _ => match comprehension(expr) {
                Some((terms, query)) => self.comprehension(expr, &terms, query),
                None => parts(expr).into_iter().for_each(|part| self.expr(part)),
            },
        }
    }

    fn call(&mut self, fcn: &Expr, params: &[Ref<Expr>], statement: Option<&Span>) {
        let path = fixed_path(fcn).unwrap_or_default();
        let name = self.names.call_name(&path);
        let is_inside = self.hoisting && !std::mem::replace(&mut self.outermost, false);
        if is_inside {
            let span = first_span(fcn).clone();
            self.found.hoisted.push(Hoisted { path: None, call: Some(name.clone()), span });
        }
        let object_get_path = object_get_path(&name, params).filter(|_| !self.is_local("input"));
        self.found.calls.push(Call {
            name,
            arguments: params.len(),
            span: first_span(fcn).clone(),
            statement: statement.cloned(),
            arguments_known: params.iter().map(|param| known(param, self.names)).collect(),
        });
        if let (Some(path), [document, _, default]) = (object_get_path, params) {
            // Only that member is read, and it may be undefined.
            self.found.references.push(Reference { path, span: first_span(document).clone() });
            self.expr(default);
            return;
        }
        for param in params {
            self.expr(param);
        }
    }

    fn reference(&mut self, expr: &Expr) {
        self.found.bracket_work = self.found.bracket_work.saturating_add(bracket_limits::work(expr));
        let Some(path) = steps(expr) else {
            // `f(x).a`, `[1, 2][i]`: the root is an expression of its own.
            if self.hoisting {
                self.hoist(Hoisted { path: None, call: None, span: first_span(expr).clone() }, vec![Step::Any]);
            }
            match expr {
                Expr::RefDot { refr, .. } => self.expr(refr),
                Expr::RefBrack { refr, index, .. } => {
                    self.expr(refr);
                    self.index(index);
                }
                _ => {}
            }
            return;
        };
        for (_, index) in &path {
            if let Some(index) = index {
                self.index(index);
            }
        }
        let Some((Step::Name(root), _)) = path.first() else { return };
        let span = first_span(expr);
        let written: Vec<Step> = path.iter().map(|(step, _)| step.clone()).collect();
        if let (false, Some(required)) = (self.hoisting, &mut self.required) {
            required.push(written.clone());
        }
        if self.hoisting && self.is_local(root) && path.len() > 1 {
            self.hoist(Hoisted { path: None, call: None, span: span.clone() }, written.clone());
        }
        if self.is_local(root) || root.starts_with('_') && root.chars().all(|c| c == '_') {
            return;
        }
        if let Some(target) = self.names.imported(root).filter(|_| path.len() > 1) {
            self.found.imported.push((span.clone(), target.to_vec()));
        }
        let mut absolute: Vec<Step> = self.names.root(root).into_iter().map(Step::Name).collect();
        absolute.extend(path.iter().skip(1).map(|(step, _)| step.clone()));
        if self.hoisting {
            self.hoist(Hoisted { path: Some(absolute.clone()), call: None, span: span.clone() }, written);
        }
        self.found.references.push(Reference { path: absolute, span: span.clone() });
    }

    /// A bracket whose variable is not bound iterates over all members. OPA evaluates its contents before a negation
    /// too.
    fn index(&mut self, index: &Expr) {
        if let Expr::Var { span, .. } = index {
            let name = span.text();
            self.found.iterates |= self.depth == 0 && (name == "_" || !self.is_local(name));
            if self.quantified.iter().any(|bound| bound.contains(name)) {
                self.found.every_index.get_or_insert_with(|| span.clone());
            }
        }
        self.expr(index);
    }
}

/// `object.get(input.a, "b", …)` or `object.get(input, ["a", "b"], …)`: the path of the member.
fn object_get_path(name: &str, params: &[Ref<Expr>]) -> Option<Vec<Step>> {
    let ("object.get", [document, key, _]) = (name, params) else { return None };
    let mut path: Vec<Step> = fixed_path(document)?.into_iter().map(Step::Name).collect();
    let text = |expr: &Expr| match constant(expr) {
        Some(Value::String(text)) => Some(Step::Name(text.to_string())),
        _ => None,
    };
    match key.as_ref() {
        Expr::Array { items, .. } => path.extend(items.iter().map(|item| text(item)).collect::<Option<Vec<_>>>()?),
        key => path.push(text(key)?),
    }
    matches!(path.first(), Some(Step::Name(root)) if root == "input").then_some(path)
}
