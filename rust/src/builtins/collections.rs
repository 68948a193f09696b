//! Builtins on collections and numbers as OPA answers them, where regorus answers otherwise [ENG-2]; and `in`, as a
//! call.
#![forbid(unsafe_code)]

use crate::builtins::{beyond, of_regorus, Function};
use crate::evaluation::watch;
use crate::json;
use crate::json::number::{self, Operation, Unfit};
use anyhow::{anyhow, Result};
use regorus::unstable::{Expr, Ref, Span};
use regorus::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a JSON text.
const MAX_TEXT: usize = 64 << 20;

/// `value in collection` and `key, value in collection` as calls: a policy cannot name them.
const MEMBER_2: &str = "cmf.member_2";
const MEMBER_3: &str = "cmf.member_3";

/// The number of arguments of a function that only rewritten policies call.
pub fn internal_arity(name: &str) -> Option<u8> {
    match name {
        MEMBER_2 | "cmf.divide" | "cmf.minus" | "cmf.plus" | "cmf.remainder" | "cmf.times" => Some(2),
        MEMBER_3 => Some(3),
        _ => None,
    }
}

/// The function to use in place of the one of regorus.
pub fn function(name: &str) -> Option<Function> {
    Some(match name {
        MEMBER_2 => |_, _, args, _| Ok(Value::from(is_member(None, &args[0], &args[1]))),
        MEMBER_3 => |_, _, args, _| Ok(Value::from(is_member(Some(&args[0]), &args[1], &args[2]))),
        "cmf.divide" => |_, _, args, _| arithmetic(Operation::Divide, args),
        "cmf.minus" => |_, _, args, _| match args {
            [Value::Set(left), Value::Set(right)] => Ok(Value::from(left.difference(right))),
            _ => arithmetic(Operation::Minus, args),
        },
        "cmf.plus" => |_, _, args, _| arithmetic(Operation::Plus, args),
        "cmf.remainder" => |_, _, args, _| arithmetic(Operation::Remainder, args),
        "cmf.times" => |_, _, args, _| arithmetic(Operation::Times, args),
        "count" => count,
        "intersection" => intersection,
        "json.filter" => |_, _, args, _| Ok(filtered(object(args)?, &Paths::of(args)?)),
        "json.marshal" => marshal,
        "json.remove" => {
            |_, _, args, _| removed(object(args)?, &Paths::of(args)?).ok_or_else(|| anyhow!("nothing is left"))
        }
        "numbers.range" => range,
        "numbers.range_step" => range_step,
        "object.subset" => subset,
        "object.union" => |_, _, args, _| merged(args.iter()),
        "object.union_n" => |_, _, args, _| match args {
            [Value::Array(objects)] => merged(objects.iter()),
            _ => Err(anyhow!("not an array")),
        },
        "product" => |_, _, args, _| total(Operation::Times, Value::from(1_u64), args),
        "sum" => |_, _, args, _| total(Operation::Plus, Value::from(0_u64), args),
        "union" => union,
        _ => return None,
    })
}

fn arithmetic(operation: Operation, args: &[Value]) -> Result<Value> {
    let [left, right] = args else { return Err(anyhow!("two numbers")) };
    number::compute(operation, left, right).map_err(|unfit| match unfit {
        Unfit::Beyond => beyond(),
        Unfit::Undefined => anyhow!("no such operation"),
    })
}

fn total(operation: Operation, start: Value, args: &[Value]) -> Result<Value> {
    let add = |total: Value, number: &Value| {
        watch::step(64)?;
        arithmetic(operation, &[total, number.clone()])
    };
    match args {
        [Value::Array(numbers)] => numbers.iter().try_fold(start, add),
        [Value::Set(numbers)] => numbers.iter().try_fold(start, add),
        _ => Err(anyhow!("not numbers")),
    }
}

fn is_member(key: Option<&Value>, value: &Value, collection: &Value) -> bool {
    match (collection, key) {
        (Value::Array(items), None) => items.contains(value),
        (Value::Object(members), None) => members.values().any(|member| member == value),
        (Value::Set(items), None) => items.contains(value),
        (Value::Array(_) | Value::Object(_), Some(key)) => collection[key] == *value,
        (Value::Set(items), Some(key)) => key == value && items.contains(value),
        _ => false,
    }
}

fn count(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let count = match args {
        [Value::String(text)] => text.chars().count(),
        [Value::Array(items)] => items.len(),
        [Value::Set(items)] => items.len(),
        [Value::Object(members)] => members.len(),
        _ => return Err(anyhow!("cannot be counted")),
    };
    Ok(Value::from(u64::try_from(count)?))
}

/// The members of a set of sets.
fn sets(args: &[Value]) -> Result<Vec<&Value>> {
    match args {
        [Value::Set(sets)] if sets.iter().all(|set| matches!(set, Value::Set(_))) => Ok(sets.iter().collect()),
        _ => Err(anyhow!("not a set of sets")),
    }
}

fn members(set: &Value) -> impl Iterator<Item = &Value> {
    set.as_set().into_iter().flat_map(|members| members.iter())
}

fn intersection(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let sets = sets(args)?;
    let Some((first, others)) = sets.split_first() else { return Ok(Value::from(BTreeSet::new())) };
    let is_common = |item: &&Value| others.iter().all(|set| set.as_set().is_ok_and(|set| set.contains(item)));
    Ok(Value::from(members(first).filter(is_common).cloned().collect::<BTreeSet<_>>()))
}

/// Where regorus copies what it has so far for each set, as it does for each object below.
fn union(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    Ok(Value::from(sets(args)?.into_iter().flat_map(members).cloned().collect::<BTreeSet<_>>()))
}

fn merged<'a>(mut objects: impl Iterator<Item = &'a Value>) -> Result<Value> {
    objects.try_fold(Value::new_object(), |mut all, object| {
        merge(&mut all, object)?;
        Ok(all)
    })
}

fn merge(all: &mut Value, object: &Value) -> Result<()> {
    let all = all.as_object_mut()?;
    for (key, member) in object.as_object()?.iter() {
        match (all.get_mut(key), member) {
            (Some(old @ Value::Object(_)), Value::Object(_)) => merge(old, member)?,
            _ => {
                all.insert(key.clone(), member.clone());
            }
        }
    }
    Ok(())
}

fn object(args: &[Value]) -> Result<&Value> {
    args.first().filter(|value| matches!(value, Value::Object(_))).ok_or_else(|| anyhow!("not an object"))
}

/// Paths as a tree: where one path ends, longer ones through the same place have no effect.
#[derive(Default)]
struct Paths {
    ends: bool,
    below: BTreeMap<Value, Paths>,
}

impl Paths {
    fn of(args: &[Value]) -> Result<Self> {
        let listed: Vec<&Value> = match args.get(1) {
            Some(Value::Array(paths)) => paths.iter().collect(),
            Some(Value::Set(paths)) => paths.iter().collect(),
            _ => return Err(anyhow!("not paths")),
        };
        let mut all = Self::default();
        for path in listed {
            all.add(&steps(path)?);
        }
        Ok(all)
    }

    fn add(&mut self, path: &[Value]) {
        let Some((last, steps)) = path.split_last() else { return };
        let mut here = self;
        for step in steps {
            here = here.below.entry(step.clone()).or_default();
            if here.ends {
                return;
            }
        }
        here.below.insert(last.clone(), Self { ends: true, below: BTreeMap::new() });
    }
}

fn steps(path: &Value) -> Result<Vec<Value>> {
    match path {
        Value::String(path) if path.is_empty() => Ok(Vec::new()),
        Value::String(path) => {
            let steps = path.trim_start_matches('/').split('/');
            Ok(steps.map(|step| Value::from(step.replace("~1", "/").replace("~0", "~"))).collect())
        }
        Value::Array(steps) => Ok(steps.iter().cloned().collect()),
        _ => Err(anyhow!("not a path")),
    }
}

fn place(at: usize) -> Value {
    Value::from(at.to_string())
}

fn filtered(value: &Value, paths: &Paths) -> Value {
    if paths.ends {
        return value.clone();
    }
    match value {
        Value::Object(members) => {
            let found =
                members.iter().filter_map(|(key, member)| Some((key.clone(), filtered(member, paths.below.get(key)?))));
            Value::from(found.collect::<BTreeMap<_, _>>())
        }
        Value::Array(items) => {
            let found =
                items.iter().enumerate().filter_map(|(at, item)| Some(filtered(item, paths.below.get(&place(at))?)));
            Value::from(found.collect::<Vec<_>>())
        }
        Value::Set(items) => {
            let found = items.iter().filter_map(|item| Some(filtered(item, paths.below.get(item)?)));
            Value::from(found.collect::<BTreeSet<_>>())
        }
        other => other.clone(),
    }
}

fn removed(value: &Value, paths: &Paths) -> Option<Value> {
    if paths.ends {
        return None;
    }
    let without = |member: &Value, key: &Value| match paths.below.get(key) {
        Some(below) => removed(member, below),
        None => Some(member.clone()),
    };
    Some(match value {
        Value::Object(members) => {
            let left = members.iter().filter_map(|(key, member)| Some((key.clone(), without(member, key)?)));
            Value::from(left.collect::<BTreeMap<_, _>>())
        }
        Value::Array(items) => {
            let left = items.iter().enumerate().filter_map(|(at, item)| without(item, &place(at)));
            Value::from(left.collect::<Vec<_>>())
        }
        Value::Set(items) => Value::from(items.iter().filter_map(|item| without(item, item)).collect::<BTreeSet<_>>()),
        other => other.clone(),
    })
}

/// Go escapes what could begin or end a tag in HTML.
fn marshal(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    const ESCAPED: [(char, &str); 5] =
        [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];
    let [value] = args else { return Err(anyhow!("one value")) };
    let plain = json::write(value, MAX_TEXT).map_err(|_| anyhow!("cannot be written"))?;
    let plain = String::from_utf8(plain)?;
    let escape = |rest: &str, out: &mut String| {
        let (letter, escaped) = ESCAPED.iter().find(|(letter, _)| rest.starts_with(*letter))?;
        out.push_str(escaped);
        Some(letter.len_utf8())
    };
    // 0xE2 is the first byte of the last two.
    let is_sign = |byte| matches!(byte, b'<' | b'>' | b'&' | 0xE2);
    Ok(Value::from(json::replaced(&plain, is_sign, escape).into_owned()))
}

fn range(span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    let [from, to] = args else { return Err(anyhow!("two numbers")) };
    of_regorus("numbers.range", span, params, &[whole(from), whole(to)], strict)
}

fn range_step(span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    match args {
        [from, to, step @ Value::Number(number)] if *step > Value::from(0_u64) => {
            // A range has fewer numbers than that: see `Bound::Range`.
            let step = if number.is_integer() && step.as_i64().is_err() { Value::from(i64::MAX) } else { whole(step) };
            of_regorus("numbers.range_step", span, params, &[whole(from), whole(to), step], strict)
        }
        _ => Err(anyhow!("not a positive step")),
    }
}

/// A whole number that is held as a double, as an integer: one added to a double beyond 2^53 is that double, for ever.
fn whole(value: &Value) -> Value {
    number::whole(value).map_or_else(|| value.clone(), Value::from)
}

fn subset(span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    let [whole, part] = args else { return Err(anyhow!("two values")) };
    let holds = match (whole, part) {
        (Value::Array(_), Value::Array(part)) if part.is_empty() => true, // regorus panics
        (Value::Array(_), Value::Array(_)) => return of_regorus("object.subset", span, params, args, strict),
        (Value::Array(whole), Value::Set(part)) => are_among(part.len(), |item| part.contains(item), whole.as_slice()),
        _ => is_within(part, whole).ok_or_else(|| anyhow!("values of different kinds"))?,
    };
    Ok(Value::from(holds))
}

/// None for values of different kinds.
fn is_within(part: &Value, whole: &Value) -> Option<bool> {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => Some(part.iter().all(|(key, own)| match whole.get(key) {
            Some(other) => own == other || is_within(own, other) == Some(true),
            None => false,
        })),
        (Value::Set(part), Value::Set(whole)) => Some(part.iter().all(|item| whole.contains(item))),
        (Value::Array(part), Value::Array(whole)) => Some(is_run(part.as_slice(), whole.as_slice())),
        _ => None,
    }
}

fn is_run(part: &[Value], whole: &[Value]) -> bool {
    part.is_empty() || whole.windows(part.len()).any(|window| window == part)
}

/// OPA counts an item that the array has twice as two.
fn are_among(count: usize, is_part: impl Fn(&Value) -> bool, whole: &[Value]) -> bool {
    !whole.is_empty() && whole.iter().filter(|item| is_part(item)).count() >= count
}
