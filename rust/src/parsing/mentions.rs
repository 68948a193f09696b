//! What one definition of a rule reads, calls and contains, as [`walk`](crate::parsing::walk) finds it.
#![forbid(unsafe_code)]

use crate::parsing::known_text::Known;
use crate::parsing::names::Step;
use regorus::unstable::Span;

pub struct Reference {
    /// From the root: `data` or `input`.
    pub path: Vec<Step>,
    pub span: Span,
}

/// An operand that OPA evaluates before a negation: if it is undefined, the body does not hold. References that the
/// query needs anyway are left out.
pub struct Hoisted {
    /// From the root; None for a member of a local variable, and for a call.
    pub path: Option<Vec<Step>>,
    /// The function, if it is a call inside another expression.
    pub call: Option<String>,
    pub span: Span,
}

/// Where `k, v in xs` stands, and both sides of its `in`, without parentheses around them.
pub struct Membership {
    pub span: Span,
    pub has_key: bool,
    pub value: Span,
    pub collection: Span,
}

/// Where an arithmetic expression stands, and where its left side ends.
pub struct Arithmetic {
    pub span: Span,
    pub left: Span,
    /// The function that computes it.
    pub function: &'static str,
}

pub struct Call {
    /// As written, with imports resolved: `data.lib.f`, `count`.
    pub name: String,
    pub arguments: usize,
    pub span: Span,
    /// The whole call, where it is a condition by itself.
    pub statement: Option<Span>,
    /// What is known of each argument without evaluation.
    pub arguments_known: Vec<Known>,
}

/// What one definition of a rule mentions.
#[derive(Default)]
pub struct Mentions {
    pub references: Vec<Reference>,
    pub calls: Vec<Call>,
    /// The first `with`, and the first whose target is neither input nor data.
    pub with: Option<Span>,
    pub with_function: Option<Span>,
    /// What each `with` replaces.
    pub with_targets: Vec<(Vec<String>, Span)>,
    /// The first object comprehension that could give one key two values.
    pub keyed: Option<Span>,
    /// The first minus sign before a literal, which the compiler takes for the bitwise complement.
    pub minus: Option<Span>,
    /// The first bracket with a variable of an `every` around it: the compiler takes it for a loop of its own.
    pub every_index: Option<Span>,
    /// The first `_ := …`: the compiled form does not check that the value is defined.
    pub discarded: Option<Span>,
    /// The first minus sign before anything else, which no form can evaluate.
    pub minus_of_expression: Option<Span>,
    /// The first `k, v in xs`: the compiler ignores the key.
    pub keyed_member: Option<Span>,
    /// Every `v in xs` that is part of another expression.
    pub memberships: Vec<Membership>,
    pub arithmetic: Vec<Arithmetic>,
    pub hoisted: Vec<Hoisted>,
    /// Names at the beginning of references that are imported, and what they stand for.
    pub imported: Vec<(Span, Vec<String>)>,
    /// Whole numbers beyond ±2^53.
    pub long_numbers: Vec<Span>,
    /// Whether the body can have more than one solution, outside of comprehensions.
    pub iterates: bool,
    /// Analysis steps for references with brackets: see [`bracket_limits`](crate::parsing::bracket_limits).
    pub bracket_work: u64,
}
