//! The regular-expression builtins that rules use most, on compiled patterns that are shared and not copied.
//!
//! The crate keeps compiled patterns too, and hands out copies; a copy of a pattern starts without its matching state
//! and builds it anew (measured: 2 to 3 µs a call, against 0.1). The meaning is the crate's own.
#![forbid(unsafe_code)]

use anyhow::Result;
use regex::{Regex, RegexBuilder};
use regorus::unstable::{Expr, Ref, Span};
use regorus::{LimitError, Value};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, RwLock};

/// Bytes of a compiled pattern: the crate's ceiling.
const MAX_PATTERN_BYTES: usize = 100 * 1024;
/// Patterns kept: more than a large set has. Patterns made from input could be any number, so a full store is emptied.
const MAX_PATTERNS: usize = 8_192;

fn store() -> &'static RwLock<HashMap<Arc<str>, Arc<Regex>>> {
    static STORE: OnceLock<RwLock<HashMap<Arc<str>, Arc<Regex>>>> = OnceLock::new();
    STORE.get_or_init(RwLock::default)
}

fn compiled(pattern: &Arc<str>) -> Result<Arc<Regex>> {
    if let Some(found) = store().read().ok().and_then(|patterns| patterns.get(pattern).cloned()) {
        return Ok(found);
    }
    let built = RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(limit) => anyhow::Error::new(LimitError::RegexSizeLimitExceeded { limit }),
        _ => anyhow::anyhow!("invalid pattern"),
    })?;
    let built = Arc::new(built);
    if let Ok(mut patterns) = store().write() {
        if patterns.len() >= MAX_PATTERNS {
            patterns.clear();
        }
        patterns.insert(Arc::clone(pattern), Arc::clone(&built));
    }
    Ok(built)
}

fn texts(args: &[Value]) -> Result<(&Arc<str>, &Arc<str>)> {
    match args {
        [Value::String(pattern), Value::String(text), ..] => Ok((pattern, text)),
        _ => Err(anyhow::anyhow!("not strings")),
    }
}

/// How many matches are asked for: a negative number is all.
fn most(args: &[Value]) -> Result<usize> {
    let limit = args.get(2).and_then(|n| n.as_i64().ok()).ok_or_else(|| anyhow::anyhow!("not an integer"))?;
    Ok(usize::try_from(limit).unwrap_or(usize::MAX))
}

pub fn matches(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let (pattern, text) = texts(args)?;
    Ok(Value::Bool(compiled(pattern)?.is_match(text)))
}

pub fn find_n(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let (pattern, text) = texts(args)?;
    let found = compiled(pattern)?;
    Ok(Value::from(found.find_iter(text).take(most(args)?).map(|m| Value::from(m.as_str())).collect::<Vec<_>>()))
}

pub fn find_groups_n(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let (pattern, text) = texts(args)?;
    let groups = |captures: regex::Captures<'_>| {
        let group = |found: Option<regex::Match<'_>>| Value::from(found.map_or("", |m| m.as_str()));
        Value::from(captures.iter().map(group).collect::<Vec<_>>())
    };
    let found = compiled(pattern)?;
    Ok(Value::from(found.captures_iter(text).take(most(args)?).map(groups).collect::<Vec<_>>()))
}
