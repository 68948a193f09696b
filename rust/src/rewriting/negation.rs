//! Operands of a negation, evaluated before it as in OPA [ENG-11].
//!
//! OPA moves the operands out of a negation: `not f(input.a)` is `x := input.a; not f(x)`, so that the body does not
//! hold where `input.a` is undefined. It leaves a plain reference, an equality of references, constants and local
//! variables in place. The same is written here: each operand stays where it is, and the negation, with what stood
//! between the operands, comes after them: `cmf_asked_8__ := input.a; not f(cmf_asked_8__)`. Lines keep their numbers.
#![forbid(unsafe_code)]

use crate::parsing::names::{constant, first_expr, parts, steps};
use crate::rewriting::edits::{line_breaks, on_one_line, range, skip_blanks, spliced, words, Edit};
use regorus::unstable::{AssignOp, BoolOp, Expr, LiteralStmt, Ref, Span};

/// The edits that move the operands of `statement`, which negates `expr`, before it: none where OPA leaves them in
/// place; None where the text cannot be rewritten. `with` are the edits of its `with` modifiers.
pub fn operands_first(
    statement: &LiteralStmt,
    expr: &Expr,
    with: &[Edit],
    is_rule: impl Fn(&str) -> bool,
) -> Option<Vec<Edit>> {
    let (start, last) = range(&statement.span)?;
    let source = statement.span.source.get_contents();
    let mut found = Operands { source, is_rule, places: Vec::new(), unification: None };
    found.negated(expr)?;
    let Operands { places, unification, .. } = found;
    let mut behind: Vec<Edit> = unification.into_iter().map(|at| Edit::insertion(at, "=")).collect();
    let Some((_, last_end)) = places.last().copied() else { return Some(behind) };
    let end = closed(source, end_of(expr)?, last);
    let with = on_one_line(&spliced(source, end, last, with)?)?;
    let mut edits = Vec::new();
    let mut at = start;
    for (from, to) in places {
        let name = format!("cmf_asked_{from}__");
        let before = if at == start { String::new() } else { format!("{with}; ") };
        let text = format!("{before}{}{name} := ", line_breaks(source.get(at..from)?));
        edits.push(Edit { start: at, end: from, text });
        behind.push(Edit { start: from, end: to, text: name });
        at = to;
    }
    behind.sort_by_key(|edit| edit.start);
    let negation = on_one_line(&spliced(source, start, end, &behind)?)?;
    let text = format!("{with}; {negation}{}", line_breaks(source.get(last_end..end)?));
    edits.push(Edit { start: last_end, end, text });
    Some(edits)
}

/// A variable of a negated expression that stands nowhere else in the `rule`'s text: nothing can bind it, and OPA
/// refuses it. Variables of calls inside the expression do not count: those are evaluated before, and may iterate.
pub fn unbound_variable<'a>(expr: &'a Expr, rule: &str, is_rule: impl Fn(&str) -> bool) -> Option<&'a Span> {
    let mut found = Vec::new();
    match expr {
        Expr::Var { .. } | Expr::RefDot { .. } | Expr::RefBrack { .. } => variables(expr, &mut found),
        other => parts(other).into_iter().for_each(|part| variables(part, &mut found)),
    }
    found.iter().copied().find(|span| {
        let name = span.text();
        let here = found.iter().filter(|other| other.text() == name).count();
        let is_alone = || words(rule).filter(|word| *word == name).count() == here;
        name == "_" || !is_rule(name) && is_alone()
    })
}

/// The variables of an operand, without those of calls and comprehensions in it.
fn variables<'a>(operand: &'a Expr, found: &mut Vec<&'a Span>) {
    match operand {
        Expr::Var { span, .. } => found.push(span),
        Expr::RefDot { .. } | Expr::RefBrack { .. } | Expr::Array { .. } | Expr::Set { .. } | Expr::Object { .. } => {
            parts(operand).into_iter().for_each(|part| variables(part, found));
        }
        _ => {}
    }
}

/// The end of an expression that ends at `at`, with the closing parentheses after it and before `limit`.
fn closed(source: &str, mut at: usize, limit: usize) -> usize {
    loop {
        let next = skip_blanks(source, at);
        if next >= limit || source.as_bytes().get(next) != Some(&b')') {
            return at;
        }
        at = next + 1;
    }
}

/// Where an expression ends, without parentheses around it. The parser's span of an empty set includes the next token.
fn end_of(expr: &Expr) -> Option<usize> {
    let (start, end) = range(expr.span())?;
    match expr {
        Expr::Set { items, .. } if items.is_empty() => {
            Some(start + expr.span().source.get_contents().get(start..)?.find(')')? + 1)
        }
        _ => Some(end),
    }
}

/// The bytes of an expression, with the parentheses around it.
type Place = (usize, usize);

/// How operators of two values are written, longer ones first.
const SIGNS: [&str; 15] = ["==", "!=", "<=", ">=", ":=", "<", ">", "=", "+", "-", "*", "/", "%", "&", "|"];

struct Operands<'a, F> {
    source: &'a str,
    /// Whether a name is that of a rule or a document, and not of a variable.
    is_rule: F,
    /// The operands that OPA evaluates first, in order.
    places: Vec<Place>,
    /// Where the `=` of a negated unification stands: it binds nothing, and becomes `==`.
    unification: Option<usize>,
}

impl<F: Fn(&str) -> bool> Operands<'_, F> {
    fn negated(&mut self, expr: &Expr) -> Option<()> {
        match expr {
            Expr::BoolExpr { op: BoolOp::Eq, lhs, rhs, .. } | Expr::AssignExpr { lhs, rhs, .. } => {
                let (left, right, at) = self.sides(expr, lhs)?;
                self.unification = matches!(expr, Expr::AssignExpr { op: AssignOp::Eq, .. }).then_some(at);
                self.side(lhs, left)?;
                self.side(rhs, right)
            }
            Expr::BoolExpr { lhs, rhs, .. } | Expr::ArithExpr { lhs, rhs, .. } | Expr::BinExpr { lhs, rhs, .. } => {
                let (left, right, _) = self.sides(expr, lhs)?;
                self.operand(lhs, left);
                self.operand(rhs, right);
                Some(())
            }
            Expr::Membership { key, value, collection, .. } => {
                let (mut at, end) = range(expr.span())?;
                if let Some(key) = key {
                    let place = self.before(at, key, end, ",")?;
                    self.operand(key, place);
                    at = skip_blanks(self.source, place.1) + 1;
                    at = skip_blanks(self.source, at);
                }
                let place = self.before(at, value, end, "in")?;
                self.operand(value, place);
                let from = skip_blanks(self.source, skip_blanks(self.source, place.1) + 2);
                self.operand(collection, (from, end));
                Some(())
            }
            Expr::Call { fcn, params, .. } => self.arguments(expr, fcn, params),
            other => self.side(other, (range(other.span())?.0, end_of(other)?)),
        }
    }

    /// Both sides of an operator, and where it stands.
    fn sides(&self, expr: &Expr, lhs: &Expr) -> Option<(Place, Place, usize)> {
        let (start, end) = range(expr.span())?;
        let left = (start, closed(self.source, end_of(lhs)?, end));
        let at = skip_blanks(self.source, left.1);
        let behind = self.source.get(at..)?;
        let sign = SIGNS.iter().find(|sign| behind.starts_with(**sign))?;
        Some((left, (skip_blanks(self.source, at + sign.len()), end), at))
    }

    /// From `start` to the end of an operand that `sign` follows.
    fn before(&self, start: usize, operand: &Expr, limit: usize, sign: &str) -> Option<Place> {
        let end = closed(self.source, end_of(operand)?, limit);
        self.source.get(skip_blanks(self.source, end)..)?.starts_with(sign).then_some((start, end))
    }

    fn arguments(&mut self, call: &Expr, name: &Expr, arguments: &[Ref<Expr>]) -> Option<()> {
        let end = range(call.span())?.1 - 1;
        let mut at = skip_blanks(self.source, range(name.span())?.1) + 1;
        for argument in arguments {
            let start = skip_blanks(self.source, at);
            let to = closed(self.source, end_of(argument)?, end);
            self.operand(argument, (start, to));
            at = skip_blanks(self.source, to) + 1;
        }
        Some(())
    }

    /// One side of an equality, or the whole negated expression: of a reference only its root and the contents of its
    /// brackets.
    fn side(&mut self, expr: &Expr, place: Place) -> Option<()> {
        match expr {
            Expr::Var { .. } => Some(()),
            Expr::RefDot { .. } | Expr::RefBrack { .. } => {
                if steps(expr).is_none() {
                    let root = first_expr(expr);
                    self.operand(root, (place.0, end_of(root)?));
                }
                self.brackets(expr)
            }
            other => {
                self.operand(other, place);
                Some(())
            }
        }
    }

    fn brackets(&mut self, expr: &Expr) -> Option<()> {
        match expr {
            Expr::RefDot { refr, .. } => self.brackets(refr),
            Expr::RefBrack { refr, index, .. } => {
                self.brackets(refr)?;
                let from = skip_blanks(self.source, end_of(refr)? + 1);
                let to = closed(self.source, end_of(index)?, range(expr.span())?.1);
                self.operand(index, (from, to));
                Some(())
            }
            _ => Some(()),
        }
    }

    fn operand(&mut self, operand: &Expr, (start, end): Place) {
        let stays = match operand {
            Expr::Var { span, .. } => !(self.is_rule)(span.text()),
            // A string of several lines has to be moved, since the negation is written on one line.
            other => constant(other).is_some() && !self.source.get(start..end).is_some_and(|text| text.contains('\n')),
        };
        if !stays {
            self.places.push((start, end));
        }
    }
}
