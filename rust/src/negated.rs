//! What is negated, asked for first, as in OPA [ENG-11].
//!
//! OPA takes the operands out of a negation: `not f(input.a)` is `x := input.a; not f(x)`, and where `input.a` is not
//! there, nothing holds. It leaves alone a reference, an equality of references, and what is a constant or a local
//! variable. So does the text here: each operand stays where it is, the negation goes behind them, and with it what
//! stood between them: `cmf_asked_8__ := input.a; not f(cmf_asked_8__)`. Lines stay where they are.
#![forbid(unsafe_code)]

use crate::names::{constant, first_expr, steps};
use crate::repair::{range, Edit};
use regorus::unstable::{AssignOp, BoolOp, Expr, LiteralStmt, Ref, Span};

/// What `statement`, the negative of `expr`, is written as: no edits where OPA leaves it as it is, None where it cannot be
/// written again.
/// `with` are the edits of what stands behind it.
pub fn asked_first(
    statement: &LiteralStmt,
    expr: &Expr,
    with: &[Edit],
    is_rule: impl Fn(&str) -> bool,
) -> Option<Vec<Edit>> {
    let (start, last) = range(&statement.span)?;
    let source = statement.span.source.get_contents();
    let mut found = Operands { source, is_rule, asked: Vec::new(), unified: None };
    found.negated(expr)?;
    let Operands { asked, unified, .. } = found;
    let mut behind: Vec<Edit> = unified.into_iter().map(|at| insert(at, "=")).collect();
    let Some((_, last_end)) = asked.last().copied() else { return Some(behind) };
    let end = closed(source, end_of(expr)?, last);
    let with = flat(&spliced(source, end, last, with)?)?;
    let mut edits = Vec::new();
    let mut at = start;
    for (from, to) in asked {
        let name = format!("cmf_asked_{from}__");
        let before = if at == start { String::new() } else { format!("{with}; ") };
        let text = format!("{before}{}{name} := ", lines(source.get(at..from)?));
        edits.push(Edit { start: at, end: from, text });
        behind.push(Edit { start: from, end: to, text: name });
        at = to;
    }
    behind.sort_by_key(|edit| edit.start);
    let negation = flat(&spliced(source, start, end, &behind)?)?;
    let text = format!("{with}; {negation}{}", lines(source.get(last_end..end)?));
    edits.push(Edit { start: last_end, end, text });
    Some(edits)
}

/// A variable of what is negated that is nowhere else in the `rule`'s text: nothing can give it a value, and OPA refuses it.
/// A call inside of it is asked for first, and may go through members.
pub fn without_a_value<'a>(expr: &'a Expr, rule: &str, is_rule: impl Fn(&str) -> bool) -> Option<&'a Span> {
    let mut found = Vec::new();
    match expr {
        Expr::BoolExpr { lhs, rhs, .. }
        | Expr::AssignExpr { lhs, rhs, .. }
        | Expr::ArithExpr { lhs, rhs, .. }
        | Expr::BinExpr { lhs, rhs, .. } => [lhs, rhs].into_iter().for_each(|side| variables(side, &mut found)),
        Expr::Membership { key, value, collection, .. } => {
            key.iter().chain([value, collection]).for_each(|side| variables(side, &mut found));
        }
        Expr::Call { params, .. } => params.iter().for_each(|param| variables(param, &mut found)),
        other => variables(other, &mut found),
    }
    found.iter().copied().find(|span| {
        let name = span.text();
        let here = found.iter().filter(|other| other.text() == name).count();
        let is_alone = || words(rule).filter(|word| *word == name).count() == here;
        name == "_" || !is_rule(name) && is_alone()
    })
}

/// The words of a text, those in quotes and comments too.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
}

/// The variables of an operand, without those of calls and comprehensions in it.
fn variables<'a>(operand: &'a Expr, found: &mut Vec<&'a Span>) {
    match operand {
        Expr::Var { span, .. } => found.push(span),
        Expr::RefDot { refr, .. } => variables(refr, found),
        Expr::RefBrack { refr, index, .. } => [refr, index].into_iter().for_each(|part| variables(part, found)),
        Expr::Array { items, .. } | Expr::Set { items, .. } => items.iter().for_each(|item| variables(item, found)),
        Expr::Object { fields, .. } => {
            fields.iter().flat_map(|(_, key, value)| [key, value]).for_each(|part| variables(part, found));
        }
        _ => {}
    }
}

fn insert(at: usize, text: &str) -> Edit {
    Edit { start: at, end: at, text: text.to_owned() }
}

pub fn lines(text: &str) -> String {
    "\n".repeat(text.matches('\n').count())
}

/// What stands from `start` to `end`, with `edits` in it.
fn spliced(source: &str, start: usize, end: usize, edits: &[Edit]) -> Option<String> {
    let (mut text, mut at) = (String::new(), start);
    for edit in edits {
        text.push_str(source.get(at..edit.start)?);
        text.push_str(&edit.text);
        at = edit.end;
    }
    text.push_str(source.get(at..end)?);
    Some(text)
}

/// The same in one line, without comments; None where ends of lines have a meaning: in a text, and behind a `|`.
pub fn flat(text: &str) -> Option<String> {
    let (mut made, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(next) = rest.chars().next() {
        let length = match next {
            '"' => quoted(rest),
            '`' => rest.get(1..)?.find('`')? + 2,
            '#' => rest.find('\n').unwrap_or(rest.len()),
            other => other.len_utf8(),
        };
        let (part, behind) = rest.split_at_checked(length)?;
        match next {
            '#' => {}
            '\n' => made.push(' '),
            '`' if part.contains('\n') => return None,
            '|' if text.contains('\n') => return None,
            _ => made.push_str(part),
        }
        rest = behind;
    }
    Some(made)
}

/// The bytes of the text in quotes that `text` begins with.
fn quoted(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Where the next word begins: behind blanks and comments.
pub fn skipped(source: &str, mut at: usize) -> usize {
    let bytes = source.as_bytes();
    while let Some(byte) = bytes.get(at) {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => at += 1,
            b'#' => at += bytes[at..].iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len() - at),
            _ => break,
        }
    }
    at
}

/// The end of what ends at `at`, with the round brackets that close behind it and before `limit`.
fn closed(source: &str, mut at: usize, limit: usize) -> usize {
    loop {
        let next = skipped(source, at);
        if next >= limit || source.as_bytes().get(next) != Some(&b')') {
            return at;
        }
        at = next + 1;
    }
}

/// Where an expression ends, without the brackets around it. The parser's span of an empty set takes in the next word.
fn end_of(expr: &Expr) -> Option<usize> {
    let (start, end) = range(expr.span())?;
    match expr {
        Expr::Set { items, .. } if items.is_empty() => {
            Some(start + expr.span().source.get_contents().get(start..)?.find(')')? + 1)
        }
        _ => Some(end),
    }
}

/// The bytes of an expression, with the brackets around it.
type Place = (usize, usize);

struct Operands<'a, F> {
    source: &'a str,
    /// Whether a name stands for a rule or a document, and not for a variable.
    is_rule: F,
    /// What OPA asks for first, in order.
    asked: Vec<Place>,
    /// The `=` of a negated unification, which binds nothing.
    unified: Option<usize>,
}

impl<F: Fn(&str) -> bool> Operands<'_, F> {
    fn negated(&mut self, expr: &Expr) -> Option<()> {
        match expr {
            Expr::BoolExpr { op: BoolOp::Eq, lhs, rhs, .. } => {
                let (left, right, _) = self.sides(expr, lhs, "==")?;
                self.side(lhs, left)?;
                self.side(rhs, right)
            }
            Expr::AssignExpr { op, lhs, rhs, .. } => {
                let sign = if *op == AssignOp::ColEq { ":=" } else { "=" };
                let (left, right, at) = self.sides(expr, lhs, sign)?;
                self.unified = (sign == "=").then_some(at);
                self.side(lhs, left)?;
                self.side(rhs, right)
            }
            Expr::BoolExpr { lhs, rhs, .. } | Expr::ArithExpr { lhs, rhs, .. } | Expr::BinExpr { lhs, rhs, .. } => {
                let (left, right, _) = self.sides(expr, lhs, operator(expr)?)?;
                self.one(lhs, left);
                self.one(rhs, right);
                Some(())
            }
            Expr::Membership { key, value, collection, .. } => {
                let (mut at, end) = range(expr.span())?;
                if let Some(key) = key {
                    let place = self.before(at, key, end, ",")?;
                    self.one(key, place);
                    at = skipped(self.source, place.1) + 1;
                    at = skipped(self.source, at);
                }
                let place = self.before(at, value, end, "in")?;
                self.one(value, place);
                let from = skipped(self.source, skipped(self.source, place.1) + 2);
                self.one(collection, (from, end));
                Some(())
            }
            Expr::Call { fcn, params, .. } => self.arguments(expr, fcn, params),
            other => self.side(other, (range(other.span())?.0, end_of(other)?)),
        }
    }

    /// Both sides of an operator, and where it stands.
    fn sides(&self, expr: &Expr, lhs: &Expr, sign: &str) -> Option<(Place, Place, usize)> {
        let (start, end) = range(expr.span())?;
        let left = self.before(start, lhs, end, sign)?;
        let at = skipped(self.source, left.1);
        Some((left, (skipped(self.source, at + sign.len()), end), at))
    }

    /// From `start` to the end of an operand that `sign` stands behind.
    fn before(&self, start: usize, operand: &Expr, limit: usize, sign: &str) -> Option<Place> {
        let end = closed(self.source, end_of(operand)?, limit);
        self.source.get(skipped(self.source, end)..)?.starts_with(sign).then_some((start, end))
    }

    fn arguments(&mut self, call: &Expr, name: &Expr, arguments: &[Ref<Expr>]) -> Option<()> {
        let end = range(call.span())?.1 - 1;
        let mut at = skipped(self.source, range(name.span())?.1) + 1;
        for argument in arguments {
            let start = skipped(self.source, at);
            let to = closed(self.source, end_of(argument)?, end);
            self.one(argument, (start, to));
            at = skipped(self.source, to) + 1;
        }
        Some(())
    }

    /// One side of an equality, or all that is negated: of a reference what it begins with, and what its brackets ask for.
    fn side(&mut self, expr: &Expr, place: Place) -> Option<()> {
        match expr {
            Expr::Var { .. } => Some(()),
            Expr::RefDot { .. } | Expr::RefBrack { .. } => {
                if steps(expr).is_none() {
                    let root = first_expr(expr);
                    self.one(root, (place.0, end_of(root)?));
                }
                self.brackets(expr)
            }
            other => {
                self.one(other, place);
                Some(())
            }
        }
    }

    fn brackets(&mut self, expr: &Expr) -> Option<()> {
        match expr {
            Expr::RefDot { refr, .. } => self.brackets(refr),
            Expr::RefBrack { refr, index, .. } => {
                self.brackets(refr)?;
                let from = skipped(self.source, end_of(refr)? + 1);
                let to = closed(self.source, end_of(index)?, range(expr.span())?.1);
                self.one(index, (from, to));
                Some(())
            }
            _ => Some(()),
        }
    }

    fn one(&mut self, operand: &Expr, (start, end): Place) {
        let is_there = match operand {
            Expr::Var { span, .. } => !(self.is_rule)(span.text()),
            // A text of several lines is moved as it is.
            other => constant(other).is_some() && !self.source.get(start..end).is_some_and(|text| text.contains('\n')),
        };
        if !is_there {
            self.asked.push((start, end));
        }
    }
}

/// How an operator of two values is written. A minus may be the first byte of a number.
fn operator(expr: &Expr) -> Option<&'static str> {
    use regorus::unstable::{ArithOp, BinOp};
    Some(match expr {
        Expr::BoolExpr { op, .. } => match op {
            BoolOp::Lt => "<",
            BoolOp::Le => "<=",
            BoolOp::Eq => "==",
            BoolOp::Ge => ">=",
            BoolOp::Gt => ">",
            BoolOp::Ne => "!=",
        },
        Expr::ArithExpr { op, .. } => match op {
            ArithOp::Add => "+",
            ArithOp::Sub => "-",
            ArithOp::Mul => "*",
            ArithOp::Div => "/",
            ArithOp::Mod => "%",
        },
        Expr::BinExpr { op, .. } => match op {
            BinOp::Intersection => "&",
            BinOp::Union => "|",
        },
        _ => return None,
    })
}
