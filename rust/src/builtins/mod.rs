//! The list of builtins that a policy may call, and the limits of each call [ENG-2] [ENG-8].
//!
//! Every call, in both forms, goes through [`guarded`]: it refuses arguments whose result could be too large or slow,
//! records any failure where the engine cannot discard it, and looks at the clock after large work. The compiled form
//! calls these functions in place of those of regorus; the interpreter gets them as extensions, which it looks up
//! first.
//!
//! [`regexes`], [`globs`], [`strings`], [`sprintf`], [`collections`] and [`networks`] answer as OPA, not as regorus.
//!
//! Not allowed, each for a reason: `http.send`, `opa.runtime`, `rand.*`, `uuid.*`, `time.now_ns` (not a function of
//! policy, data and input); `print`, `trace` (leak input); `units.*` (an exponent may run for ever); `net.cidr_expand`
//! (2^32 strings); `regex.template_match`, `json.marshal_with_options`, `time.format`, `time.add_date`, `time.diff`,
//! `time.parse_ns` (differ from OPA or depend on a time-zone table).
#![forbid(unsafe_code)]

pub mod collections;
pub mod globs;
pub mod networks;
pub mod regex_dialect;
pub mod regexes;
pub mod sprintf;
pub mod strings;

use crate::evaluation::watch;
use anyhow::{anyhow, Result};
use regorus::unstable::{Expr, Ref, Span, BUILTINS};
use regorus::{LimitError, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// The largest weight of the arguments of one call, in bytes.
const MAX_ARGUMENT_WEIGHT: usize = 16 << 20;
/// The largest weight of the result of one call, in bytes.
const MAX_RESULT_WEIGHT: usize = 64 << 20;
/// The weight of one member of a collection, in bytes.
const MEMBER_BYTES: usize = 24;
/// Steps of a call whose time is the product of two sizes: about a second at worst.
const MAX_PRODUCT: usize = 1 << 30;
/// Elements of `numbers.range` and factors of `product`.
const MAX_ELEMENTS: i64 = 10_000;
/// Digits in a row in a `sprintf` format: a width of at most 999.
const MAX_WIDTH_DIGITS: usize = 3;
/// Above this weight the clock is checked after a call, and not only at the engine's next check.
const HEAVY: usize = 64 << 10;

pub type Function = fn(&Span, &[Ref<Expr>], &[Value], bool) -> Result<Value>;

/// What limits a call beside the weight of its arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// Result and time are linear in the arguments.
    Linear,
    /// Time is the product of the first two arguments.
    Product,
    Concat,
    Format,
    /// Time and result are those of writing the value out as a tree.
    Tree,
    Elements,
    Range,
    Replace,
    ReplaceMany,
    Shift,
    Split,
}

pub struct Entry {
    name: &'static str,
    pub call: Function,
}

impl Entry {
    /// Whether it is called in place of an operator: a policy cannot name it.
    fn is_internal(&self) -> bool {
        self.name.starts_with("cmf.") || self.name.starts_with("__builtin")
    }
}

macro_rules! entries {
    ($($bound:ident: $($name:literal)*;)*) => {
        &[$($(Entry {
            name: $name,
            call: |span, params, args, _| {
                static INNER: OnceLock<Option<Function>> = OnceLock::new();
                match INNER.get_or_init(|| inner($name)) {
                    Some(function) => guarded($name, Bound::$bound, *function, span, params, args),
                    None => Err(watch::fail("engine.internal", $name)),
                }
            },
        },)*)*]
    };
}

static ENTRIES: &[Entry] = entries! {
    Linear:
        "__builtin_sets.intersection" "__builtin_sets.union" "abs" "array.concat" "array.reverse" "array.slice"
        "base64.decode" "base64.encode" "base64.is_valid" "base64url.decode" "base64url.encode"
        "base64url.encode_no_pad" "bits.and" "bits.negate" "bits.or" "bits.xor" "ceil" "cmf.divide" "cmf.member_2"
        "cmf.member_3" "cmf.minus" "cmf.plus" "cmf.remainder" "cmf.times" "contains" "count" "endswith" "floor"
        "format_int" "glob.match" "glob.quote_meta" "hex.decode" "hex.encode" "indexof" "indexof_n" "intersection"
        "is_array" "is_boolean" "is_null" "is_number" "is_object" "is_set" "is_string" "json.is_valid"
        "json.unmarshal" "lower" "max" "min" "net.cidr_contains" "net.cidr_is_valid" "object.filter" "object.get"
        "object.keys" "object.remove" "regex.find_all_string_submatch_n" "regex.find_n" "regex.is_valid"
        "regex.match" "regex.replace" "regex.split" "round" "semver.compare" "semver.is_valid" "sort" "startswith"
        "strings.count" "strings.reverse" "substring" "sum" "time.clock" "time.date" "time.parse_duration_ns"
        "time.parse_rfc3339_ns" "time.weekday" "to_number" "trim" "trim_left" "trim_prefix" "trim_right"
        "trim_space" "trim_suffix" "type_name" "union" "upper" "urlquery.decode" "urlquery.decode_object"
        "urlquery.encode" "urlquery.encode_object";
    Shift: "bits.lsh" "bits.rsh";
    Concat: "concat";
    Product:
        "graph.reachable" "json.filter" "json.remove" "object.subset" "strings.any_prefix_match"
        "strings.any_suffix_match";
    Tree: "json.marshal" "object.union" "object.union_n" "walk";
    Range: "numbers.range" "numbers.range_step";
    Elements: "product";
    Replace: "replace";
    Split: "split";
    Format: "sprintf";
    ReplaceMany: "strings.replace_n";
};

/// Cannot be compiled, and always has an output argument.
pub const WALK: &str = "walk";

/// The builtins that a policy may call, sorted.
pub fn allowed() -> Vec<&'static str> {
    entries().values().filter(|entry| !entry.is_internal()).map(|entry| entry.name).collect()
}

/// Every guarded builtin, by name.
pub fn entries() -> &'static BTreeMap<&'static str, &'static Entry> {
    static TABLE: OnceLock<BTreeMap<&'static str, &'static Entry>> = OnceLock::new();
    TABLE.get_or_init(|| ENTRIES.iter().map(|entry| (entry.name, entry)).collect())
}

/// Whether a policy may call a name.
pub enum Permission {
    Allowed { arity: usize },
    Banned,
    Unknown,
}

pub fn permission(name: &str) -> Permission {
    match (entries().get(name), BUILTINS.get(name)) {
        (Some(entry), Some(function)) if !entry.is_internal() => Permission::Allowed { arity: usize::from(function.1) },
        (None, None) if !is_reserved(name) => Permission::Unknown,
        _ => Permission::Banned,
    }
}

/// Builtins that OPA has and this engine has not: a policy that calls one is told that, and not that it does not exist.
fn is_reserved(name: &str) -> bool {
    const NAMESPACES: [&str; 16] = [
        "aws",
        "crypto",
        "graph",
        "graphql",
        "http",
        "io",
        "json",
        "net",
        "opa",
        "providers",
        "rand",
        "rego",
        "time",
        "units",
        "uuid",
        "yaml",
    ];
    const NAMES: [&str; 12] = [
        "array.flatten",
        "cast_array",
        "internal.template_string",
        "print",
        "re_match",
        "regex.globs_match",
        "set_diff",
        "strings.render_template",
        "strings.split_n",
        "trace",
        "uri.is_valid",
        "uri.parse",
    ];
    let is_of = |(namespace, _): (&str, &str)| NAMESPACES.contains(&namespace);
    name.split_once('.').is_some_and(is_of) || NAMES.contains(&name) || name.starts_with("__builtin")
}

/// The function behind an entry: that of regorus, or one of ours where OPA answers otherwise.
fn inner(name: &str) -> Option<Function> {
    match name {
        "glob.match" => Some(globs::matches),
        "glob.quote_meta" => Some(globs::quote_meta),
        "regex.match" => Some(regexes::matches),
        "regex.find_n" => Some(regexes::find_n),
        "regex.find_all_string_submatch_n" => Some(regexes::find_groups_n),
        "regex.is_valid" => Some(regexes::is_valid),
        "regex.replace" => Some(regexes::replace),
        "regex.split" => Some(regexes::split),
        "sprintf" => Some(sprintf::sprintf),
        _ => strings::function(name)
            .or_else(|| collections::function(name))
            .or_else(|| networks::function(name))
            .or_else(|| BUILTINS.get(name).map(|function| function.0)),
    }
}

/// Calls the function of regorus by that name.
fn of_regorus(name: &str, span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    let function = BUILTINS.get(name).ok_or_else(|| anyhow!("no such builtin"))?;
    (function.0)(span, params, args, strict)
}

/// The error of a call that OPA may answer and this engine cannot: never undefined, also where builtin errors are.
fn beyond() -> anyhow::Error {
    anyhow::Error::new(LimitError::RegexSizeLimitExceeded { limit: 0 })
}

/// The argument at a position, which has to be a string.
fn string(args: &[Value], position: usize) -> Result<&Arc<str>> {
    match args.get(position) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(anyhow!("not a string")),
    }
}

fn guarded(
    name: &'static str,
    bound: Bound,
    function: Function,
    span: &Span,
    params: &[Ref<Expr>],
    args: &[Value],
) -> Result<Value> {
    let weight = args.iter().map(weight).fold(0, usize::saturating_add);
    if weight > MAX_ARGUMENT_WEIGHT || !within(bound, args, weight) {
        return Err(watch::fail("engine.builtin-limit", name));
    }
    let strict = watch::is_strict();
    let name = name.strip_prefix("cmf.").map_or(name, |_| "arithmetic");
    match function(span, params, args, strict) {
        // Not all builtins of regorus are strict: an undefined result is an error, except where Rego defines it so (the
        // extremes of an empty collection).
        Ok(Value::Undefined) if strict && !matches!(name, "max" | "min") => {
            Err(watch::fail("engine.builtin-error", name))
        }
        Ok(value) => {
            let produced = self::weight(&value);
            if !watch::spend(produced) {
                return Err(watch::fail("engine.memory", name));
            }
            if weight.saturating_add(produced) > HEAVY && watch::is_late() {
                return Err(watch::late());
            }
            Ok(value)
        }
        Err(error) if error.downcast_ref::<LimitError>().is_some() => Err(watch::fail("engine.builtin-limit", name)),
        Err(_) if strict => Err(watch::fail("engine.builtin-error", name)),
        Err(_) => Ok(Value::Undefined),
    }
}

/// The weight of a string or collection in bytes. Members of members are not counted here, but where a builtin reads
/// them.
fn weight(value: &Value) -> usize {
    let members = match value {
        Value::String(text) => return text.len(),
        Value::Array(items) => items.len(),
        Value::Set(items) => items.len(),
        Value::Object(members) => members.len(),
        _ => 1,
    };
    members.saturating_mul(MEMBER_BYTES)
}

fn members_weight(value: &Value) -> usize {
    let own = match value {
        Value::Array(items) => items.iter().map(weight).fold(0, usize::saturating_add),
        Value::Set(items) => items.iter().map(weight).fold(0, usize::saturating_add),
        Value::Object(members) => members
            .iter()
            .map(|(key, member)| weight(key).saturating_add(weight(member)))
            .fold(0, usize::saturating_add),
        _ => 0,
    };
    own.saturating_add(weight(value))
}

fn text_len(value: Option<&Value>) -> usize {
    match value {
        Some(Value::String(text)) => text.len(),
        _ => 0,
    }
}

fn within(bound: Bound, args: &[Value], weight: usize) -> bool {
    let at = |index: usize| args.get(index);
    let all_members = || args.iter().map(members_weight).fold(0, usize::saturating_add);
    match bound {
        Bound::Linear => true,
        Bound::Product => {
            let first = at(0).map_or(1, members_weight);
            let second = at(1).map_or(1, members_weight);
            first.saturating_mul(second.max(1)) <= MAX_PRODUCT
        }
        Bound::Concat => {
            let separators = at(1).map_or(0, self::weight) / MEMBER_BYTES * text_len(at(0));
            separators.saturating_add(all_members()) <= MAX_RESULT_WEIGHT
        }
        Bound::Format => at(0).is_none_or(|f| !has_wide_field(f)) && tree_fits(args),
        Bound::Tree => tree_fits(args),
        Bound::Elements => weight / MEMBER_BYTES <= usize::try_from(MAX_ELEMENTS).unwrap_or(0),
        Bound::Range => range_fits(args),
        Bound::Replace => {
            let growth = text_len(at(2)).saturating_sub(text_len(at(1)));
            let places = match (at(0), at(1)) {
                (Some(Value::String(text)), Some(Value::String(old))) if growth > 0 => {
                    text.matches(old.as_ref()).count()
                }
                _ => 0,
            };
            places.saturating_mul(growth).saturating_add(weight) <= MAX_RESULT_WEIGHT
        }
        Bound::ReplaceMany => match at(0) {
            // The empty text stands around each letter.
            Some(Value::Object(texts)) if texts.contains_key(&Value::from("")) => {
                let new: usize = texts.values().map(|new| text_len(Some(new))).sum();
                text_len(at(1)).saturating_add(1).saturating_mul(new.saturating_add(1)) <= MAX_RESULT_WEIGHT
            }
            _ => true,
        },
        Bound::Shift => at(1).is_some_and(|n| n.as_u64().is_ok_and(|bits| bits <= 64)),
        Bound::Split => text_len(at(1)) > 0 || text_len(at(0)) <= 1 << 20,
    }
}

fn has_wide_field(format: &Value) -> bool {
    let Value::String(text) = format else { return false };
    text.split('%')
        .skip(1)
        .any(|field| field.chars().take_while(|c| c.is_numeric() || *c == '.').count() > MAX_WIDTH_DIGITS)
}

/// Whether values are small enough to be written out. A value may share its parts, so its size when written out can be
/// exponential in its size in memory.
fn tree_fits(args: &[Value]) -> bool {
    fn walk(value: &Value, left: &mut usize) -> bool {
        let cost = match value {
            Value::String(text) => text.len().saturating_add(2),
            _ => 8,
        };
        let Some(rest) = left.checked_sub(cost) else { return false };
        *left = rest;
        match value {
            Value::Array(items) => items.iter().all(|item| walk(item, left)),
            Value::Set(items) => items.iter().all(|item| walk(item, left)),
            Value::Object(members) => members.iter().all(|(key, member)| walk(key, left) && walk(member, left)),
            _ => true,
        }
    }
    let mut left = MAX_ARGUMENT_WEIGHT;
    args.iter().all(|arg| walk(arg, &mut left))
}

fn range_fits(args: &[Value]) -> bool {
    let [from, to, ..] = args else { return false };
    match (crate::json::number::whole(from), crate::json::number::whole(to)) {
        (Some(from), Some(to)) => to.checked_sub(from).is_some_and(|n| n.unsigned_abs() < MAX_ELEMENTS.unsigned_abs()),
        // The builtin refuses what is not a number, but would accept a number of more than 64 bits.
        _ => !(matches!(from, Value::Number(_)) && matches!(to, Value::Number(_))),
    }
}
