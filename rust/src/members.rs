//! Builtins on collections and numbers as OPA answers them, where the crate answers otherwise [ENG-2].
#![forbid(unsafe_code)]

use crate::builtins::Function;
use crate::written;
use anyhow::{anyhow, Result};
use regorus::unstable::{Expr, Ref, Span, BUILTINS};
use regorus::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a JSON text.
const MAX_TEXT: usize = 64 << 20;

/// What answers in place of the crate's own.
pub fn function(name: &str) -> Option<Function> {
    Some(match name {
        "json.filter" => |_, _, args, _| Ok(kept(object(args)?, &Paths::of(args)?)),
        "json.marshal" => marshal,
        "json.remove" => {
            |_, _, args, _| removed(object(args)?, &Paths::of(args)?).ok_or_else(|| anyhow!("nothing left"))
        }
        "numbers.range_step" => range_step,
        "object.subset" => subset,
        _ => return None,
    })
}

fn of_crate(name: &str, span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    let function = BUILTINS.get(name).ok_or_else(|| anyhow!("no such builtin"))?;
    (function.0)(span, params, args, strict)
}

fn object(args: &[Value]) -> Result<&Value> {
    args.first().filter(|value| matches!(value, Value::Object(_))).ok_or_else(|| anyhow!("not an object"))
}

/// Paths put together: where one ends, what is below it is of no account.
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
            _ => return Err(anyhow!("no paths")),
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
        _ => Err(anyhow!("no path")),
    }
}

fn place(at: usize) -> Value {
    Value::from(at.to_string())
}

fn kept(value: &Value, paths: &Paths) -> Value {
    if paths.ends {
        return value.clone();
    }
    match value {
        Value::Object(members) => {
            let found =
                members.iter().filter_map(|(key, member)| Some((key.clone(), kept(member, paths.below.get(key)?))));
            Value::from(found.collect::<BTreeMap<_, _>>())
        }
        Value::Array(items) => {
            let found =
                items.iter().enumerate().filter_map(|(at, item)| Some(kept(item, paths.below.get(&place(at))?)));
            Value::from(found.collect::<Vec<_>>())
        }
        Value::Set(items) => {
            let found = items.iter().filter_map(|item| Some(kept(item, paths.below.get(item)?)));
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

/// Go writes what could begin or end a tag as an escape.
fn marshal(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    const ESCAPED: [(char, &str); 5] =
        [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];
    let [value] = args else { return Err(anyhow!("one value")) };
    let plain = written::write(value, MAX_TEXT).map_err(|_| anyhow!("not to be written"))?;
    let plain = String::from_utf8(plain)?;
    // 0xE2 begins the last two of them.
    if !plain.bytes().any(|byte| matches!(byte, b'<' | b'>' | b'&' | 0xE2)) {
        return Ok(Value::from(plain));
    }
    let escape = |letter: char| ESCAPED.iter().find(|(plain, _)| *plain == letter);
    let mut text = String::with_capacity(plain.len() + 32);
    for letter in plain.chars() {
        match escape(letter) {
            Some((_, escaped)) => text.push_str(escaped),
            None => text.push(letter),
        }
    }
    Ok(Value::from(text))
}

fn range_step(span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    match args.get(2) {
        Some(step @ Value::Number(_)) if *step > Value::from(0_u64) => {
            of_crate("numbers.range_step", span, params, args, strict)
        }
        _ => Err(anyhow!("no step forward")),
    }
}

fn subset(span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    let [whole, part] = args else { return Err(anyhow!("two values")) };
    let holds = match (whole, part) {
        (Value::Array(_), Value::Array(part)) if part.is_empty() => true, // of which the crate's panics
        (Value::Array(_), Value::Array(_)) => return of_crate("object.subset", span, params, args, strict),
        (Value::Array(whole), Value::Set(part)) => are_among(part.len(), |item| part.contains(item), whole.as_slice()),
        _ => is_within(part, whole).ok_or_else(|| anyhow!("two kinds of values"))?,
    };
    Ok(Value::from(holds))
}

/// None for two kinds of values.
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

/// OPA counts what stands twice in the array twice.
fn are_among(count: usize, is_part: impl Fn(&Value) -> bool, whole: &[Value]) -> bool {
    !whole.is_empty() && whole.iter().filter(|item| is_part(item)).count() >= count
}
