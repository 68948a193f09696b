//! Builtins for regular expressions, with compiled patterns that are shared and not copied.
//!
//! regorus keeps compiled patterns too, but copies them; a copy begins without its matching state and builds that again
//! (measured: 2 to 3 µs a call, against 0.1). Patterns mean what they mean in OPA: see [`regex_dialect`].
#![forbid(unsafe_code)]

use crate::builtins::regex_dialect;
use crate::builtins::Function;
use anyhow::Result;
use regex::{Regex, RegexBuilder};
use regorus::unstable::{Expr, Ref, Span, BUILTINS};
use regorus::{LimitError, Value};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, OnceLock, RwLock};

/// Bytes of a compiled pattern: the limit of regorus.
const MAX_PATTERN_BYTES: usize = 100 * 1024;
/// Patterns kept: more than a large set has. Since patterns may be made from input, a full cache is emptied.
const MAX_PATTERNS: usize = 8_192;

/// Compiled patterns, by what they were made from.
pub(crate) struct Cache<K> {
    compiled: OnceLock<RwLock<HashMap<K, Arc<Regex>>>>,
}

impl<K: Clone + Eq + Hash> Cache<K> {
    pub(crate) const fn new() -> Self {
        Self { compiled: OnceLock::new() }
    }

    /// The compiled pattern of a key; `pattern_of` gives the pattern, if it was not compiled before.
    pub(crate) fn get(&self, key: &K, pattern_of: impl FnOnce() -> Result<String>) -> Result<Arc<Regex>> {
        let store = self.compiled.get_or_init(RwLock::default);
        if let Some(found) = store.read().ok().and_then(|kept| kept.get(key).cloned()) {
            return Ok(found);
        }
        let built =
            RegexBuilder::new(&pattern_of()?).size_limit(MAX_PATTERN_BYTES).build().map_err(|error| match error {
                regex::Error::CompiledTooBig(limit) => anyhow::Error::new(LimitError::RegexSizeLimitExceeded { limit }),
                _ => anyhow::anyhow!("invalid pattern"),
            })?;
        let built = Arc::new(built);
        if let Ok(mut kept) = store.write() {
            if kept.len() >= MAX_PATTERNS {
                kept.clear();
            }
            kept.insert(key.clone(), Arc::clone(&built));
        }
        Ok(built)
    }
}

fn compiled(pattern: &Arc<str>) -> Result<Arc<Regex>> {
    static CACHE: Cache<Arc<str>> = Cache::new();
    CACHE.get(pattern, || regex_dialect::translate(pattern).map_err(|_| anyhow::anyhow!("invalid pattern")))
}

fn texts(args: &[Value]) -> Result<(&Arc<str>, &Arc<str>)> {
    match args {
        [Value::String(pattern), Value::String(text), ..] => Ok((pattern, text)),
        _ => Err(anyhow::anyhow!("not strings")),
    }
}

/// How many matches are wanted: a negative number stands for all.
fn max_matches(args: &[Value]) -> Result<usize> {
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
    Ok(Value::from(found.find_iter(text).take(max_matches(args)?).map(|m| Value::from(m.as_str())).collect::<Vec<_>>()))
}

pub fn find_groups_n(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let (pattern, text) = texts(args)?;
    let groups = |captures: regex::Captures<'_>| {
        let group = |found: Option<regex::Match<'_>>| Value::from(found.map_or("", |m| m.as_str()));
        Value::from(captures.iter().map(group).collect::<Vec<_>>())
    };
    let found = compiled(pattern)?;
    Ok(Value::from(found.captures_iter(text).take(max_matches(args)?).map(groups).collect::<Vec<_>>()))
}

/// Whether OPA would take the pattern. One that is too large here is an error: OPA would take it.
pub fn is_valid(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let [Value::String(pattern)] = args else { return Ok(Value::Bool(false)) };
    match compiled(pattern) {
        Err(error) if error.downcast_ref::<LimitError>().is_some() => Err(error),
        compiled => Ok(Value::Bool(compiled.is_ok())),
    }
}

/// Why a pattern cannot be used, and what to write instead; None if it can.
pub fn problem(pattern: &str) -> Option<(&'static str, &'static str)> {
    if let Err(foreign) = regex_dialect::translate(pattern) {
        return Some((foreign.what, foreign.instead));
    }
    match compiled(&pattern.into()) {
        Ok(_) => None,
        Err(error) if error.downcast_ref::<LimitError>().is_some() => {
            Some(("too large when it is compiled", "repeat less, and classes of Unicode least"))
        }
        Err(_) => Some(("no pattern", "correct it")),
    }
}

/// The builtin of regorus, with the pattern in its dialect.
pub fn replace(span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    let inner: Function = BUILTINS.get("regex.replace").ok_or_else(|| anyhow::anyhow!("no such builtin"))?.0;
    let mut args = args.to_vec();
    if let Some(Value::String(pattern)) = args.get_mut(1) {
        *pattern = compiled(pattern)?.as_str().into();
    }
    inner(span, params, &args, strict)
}

/// Splits as Go does: the rest is left out if the last match begins at the end, and so is what stands before a first
/// empty match.
pub fn split(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let (pattern, text) = texts(args)?;
    if text.is_empty() && !pattern.is_empty() {
        return Ok(Value::from(vec![Value::from("")]));
    }
    let (mut parts, mut from, mut last) = (Vec::new(), 0, 0);
    for found in compiled(pattern)?.find_iter(text) {
        last = found.start();
        if found.end() != 0 {
            parts.push(Value::from(&text[from..last]));
        }
        from = found.end();
    }
    if last != text.len() {
        parts.push(Value::from(&text[from..]));
    }
    Ok(Value::from(parts))
}
