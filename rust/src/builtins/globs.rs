//! `glob.match` as OPA answers it: `*` and `?` stop at separators, `**` does not, `[…]` and `{…,…}` are alternatives
//! [ENG-2].
//!
//! A glob becomes a regular expression. The builtin of regorus knows only `/` as a separator, and takes `**` for whole
//! segments.
#![forbid(unsafe_code)]

use crate::builtins::beyond;
use crate::builtins::regexes::{Cache, Pattern};
use crate::json::replaced;
use anyhow::{anyhow, Result};
use regorus::unstable::{Expr, Ref, Span};
use regorus::Value;
use std::iter::Peekable;
use std::str::Chars;
use std::sync::Arc;

/// How deeply braces may be nested.
const MAX_DEPTH: u32 = 16;

pub fn matches(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let [Value::String(pattern), separators, Value::String(text)] = args else {
        return Err(anyhow!("not two strings around separators"));
    };
    compiled(pattern, separators_of(separators)?)?.is_match(text).map(Value::Bool)
}

/// The separator characters: none if null is given, and the dot if the array is empty.
fn separators_of(given: &Value) -> Result<String> {
    let listed = match given {
        Value::Null => return Ok(String::new()),
        Value::Array(listed) => listed,
        _ => return Err(anyhow!("separators are not an array")),
    };
    let mut found = String::new();
    for one in listed.iter() {
        match one {
            Value::String(one) if one.chars().count() == 1 => found.push_str(one),
            _ => return Err(anyhow!("a separator is one character")),
        }
    }
    Ok(if found.is_empty() { ".".to_owned() } else { found })
}

fn compiled(pattern: &Arc<str>, separators: String) -> Result<Arc<Pattern>> {
    static CACHE: Cache<(Arc<str>, String)> = Cache::new();
    let key = (Arc::clone(pattern), separators);
    CACHE.get(&key, || regex_of(pattern, &key.1))
}

fn regex_of(pattern: &str, separators: &str) -> Result<String> {
    let within = if separators.is_empty() { ".".to_owned() } else { format!("[^{}]", escaped(separators)) };
    let mut made = String::from("^(?s:");
    let mut rest = pattern.chars().peekable();
    let mut depth = 0_u32;
    while let Some(next) = rest.next() {
        match next {
            '*' if rest.next_if_eq(&'*').is_some() => made.push_str(".*"),
            '*' => made.push_str(&format!("{within}*")),
            '?' => made.push_str(&within),
            '[' => made.push_str(&choice(&mut rest)?),
            '{' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(beyond());
                }
                made.push_str("(?:");
            }
            '}' if depth > 0 => {
                depth -= 1;
                made.push(')');
            }
            ',' if depth > 0 => made.push('|'),
            '\\' => made.push_str(&escaped(rest.next().ok_or_else(unfinished)?.encode_utf8(&mut [0; 4]))),
            other => made.push_str(&escaped(other.encode_utf8(&mut [0; 4]))),
        }
    }
    if depth > 0 {
        return Err(unfinished());
    }
    made.push_str(")$");
    Ok(made)
}

fn unfinished() -> anyhow::Error {
    anyhow!("the glob ends too early")
}

/// The contents of brackets: a range or a list of characters, or all characters but these.
fn choice(rest: &mut Peekable<Chars<'_>>) -> Result<String> {
    let negated = rest.next_if_eq(&'!').is_some();
    let sign = if negated { "^" } else { "" };
    let mut listed = String::new();
    let first = rest.next().ok_or_else(unfinished)?;
    if rest.next_if_eq(&'-').is_some() {
        let last = rest.next().ok_or_else(unfinished)?;
        if rest.next() != Some(']') || last < first {
            return Err(anyhow!("a range is two characters in order"));
        }
        let ends = (escaped(first.encode_utf8(&mut [0; 4])), escaped(last.encode_utf8(&mut [0; 4])));
        return Ok(format!("[{sign}{}-{}]", ends.0, ends.1));
    }
    let mut next = first;
    loop {
        if next == ']' {
            break;
        }
        if next == '\\' {
            next = rest.next().ok_or_else(unfinished)?;
        }
        listed.push(next);
        next = rest.next().ok_or_else(unfinished)?;
    }
    if listed.is_empty() {
        return Err(anyhow!("brackets are empty"));
    }
    Ok(format!("[{sign}{}]", escaped(&listed)))
}

/// The text with a backslash before each character that has a meaning in a glob.
pub fn quote_meta(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let [Value::String(text)] = args else { return Err(anyhow!("not a string")) };
    let quote = |_: &str, out: &mut String| {
        out.push('\\');
        None
    };
    let is_sign = |byte| matches!(byte, b'*' | b'?' | b'\\' | b'[' | b']' | b'{' | b'}');
    Ok(Value::from(replaced(text, is_sign, quote).into_owned()))
}

/// The characters, escaped for a regular expression, inside brackets and outside.
fn escaped(characters: &str) -> String {
    regex::escape(characters)
}
