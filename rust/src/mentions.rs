//! What one definition of a rule mentions, as the walk in `outline` finds it.
#![forbid(unsafe_code)]

use crate::known::Known;
use crate::names::Step;
use regorus::unstable::Span;

pub struct Reference {
    /// From the root: `data` or `input`.
    pub path: Vec<Step>,
    pub span: Span,
}

/// What OPA asks for before it asks whether a negated expression holds: if it is not there, nothing holds. References
/// that the query around the negation needs anyway are left out.
pub struct Hoisted {
    /// From the root; None for a member of a local, and for a call.
    pub path: Option<Vec<Step>>,
    /// The function, if it is a call inside of another expression.
    pub call: Option<String>,
    pub span: Span,
}

/// Where `k, v in xs` stands, and what is on either side of its `in`, without brackets around them.
pub struct Membership {
    pub span: Span,
    pub has_key: bool,
    pub value: Span,
    pub from: Span,
}

pub struct Call {
    /// As written, aliases resolved: `data.lib.f`, `count`.
    pub name: String,
    pub arguments: usize,
    pub span: Span,
    /// All of the call, where it is a condition by itself.
    pub statement: Option<Span>,
    /// What is known of each argument before any evaluation.
    pub arguments_known: Vec<Known>,
}

/// What one definition of a rule mentions.
#[derive(Default)]
pub struct Mentions {
    pub references: Vec<Reference>,
    pub calls: Vec<Call>,
    /// First `with`, and every one whose target is neither input nor data.
    pub with: Option<Span>,
    pub with_function: Option<Span>,
    /// First object comprehension whose keys could meet with different values.
    pub keyed: Option<Span>,
    /// First minus before a literal, which the compiler takes for the bitwise complement, and first before anything
    /// else, which no form can evaluate.
    pub minus: Option<Span>,
    /// First bracket that names a variable of an `every` around it: the compiler takes it for a loop of its own.
    pub every_index: Option<Span>,
    /// First `_ := …`: the compiled form does not ask whether there is a value.
    pub discarded: Option<Span>,
    pub minus_of_expression: Option<Span>,
    /// First `k, v in xs`: the compiler does not look at the key.
    pub keyed_member: Option<Span>,
    /// Every `v in xs` that is part of another expression.
    pub memberships: Vec<Membership>,
    pub hoisted: Vec<Hoisted>,
    /// The first names of references that an import gave, and what they stand for.
    pub imported: Vec<(Span, Vec<String>)>,
    /// Whole numbers beyond ±2^53.
    pub long_numbers: Vec<Span>,
    /// Whether the body can hold in more than one way, outside of comprehensions.
    pub iterates: bool,
    /// Steps of the crate's analysis for references with brackets.
    pub bracket_work: u64,
}
