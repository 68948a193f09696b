//! Builtins on texts as OPA answers them, where the crate answers otherwise [ENG-2].
//!
//! A letter has one letter in the other case, as in Go; what is no text is no JSON, version or network; nothing stands
//! at every place; days, weeks and years are durations; what is decoded may be no UTF-8.
#![forbid(unsafe_code)]

use crate::builtins::Function;
use anyhow::{anyhow, Result};
use regorus::unstable::{Expr, Ref, Span, BUILTINS};
use regorus::Value;
use std::sync::Arc;

/// What answers in place of the crate's own.
pub fn function(name: &str) -> Option<Function> {
    Some(match name {
        "base64.is_valid" => {
            |_, _, args, _| Ok(Value::from(text(args, 0).is_ok_and(|text| decoded(text, STANDARD).is_ok())))
        }
        "base64.decode" => |_, _, args, _| decoded(text(args, 0)?, STANDARD).map(|bytes| shown(&bytes)),
        "base64url.decode" => base64url_decode,
        "indexof" => |span, params, args, strict| of_something("indexof", span, params, args, strict),
        "indexof_n" => |span, params, args, strict| of_something("indexof_n", span, params, args, strict),
        "json.is_valid" => |span, params, args, strict| if_text("json.is_valid", span, params, args, strict),
        "lower" => |_, _, args, _| Ok(Value::from(lower(text(args, 0)?))),
        "net.cidr_is_valid" => |span, params, args, strict| if_text("net.cidr_is_valid", span, params, args, strict),
        "semver.compare" => |span, params, args, strict| versions("semver.compare", span, params, args, strict),
        "semver.is_valid" => |span, params, args, strict| versions("semver.is_valid", span, params, args, strict),
        "sprintf" => crate::sprintf::sprintf,
        "substring" => substring,
        "time.parse_duration_ns" => parse_duration,
        "time.parse_rfc3339_ns" => parse_rfc3339,
        "upper" => |_, _, args, _| Ok(Value::from(upper(text(args, 0)?))),
        "urlquery.encode" => |span, params, args, strict| escaped("urlquery.encode", span, params, args, strict),
        "urlquery.encode_object" => {
            |span, params, args, strict| escaped("urlquery.encode_object", span, params, args, strict)
        }
        _ => return None,
    })
}

fn of_crate(name: &str, span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    let function = BUILTINS.get(name).ok_or_else(|| anyhow!("no such builtin"))?;
    (function.0)(span, params, args, strict)
}

fn text(args: &[Value], at: usize) -> Result<&Arc<str>> {
    match args.get(at) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(anyhow!("not a string")),
    }
}

fn if_text(name: &str, span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    match args {
        [Value::String(_)] => of_crate(name, span, params, args, strict),
        _ => Ok(Value::from(false)),
    }
}

fn of_something(name: &str, span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    if text(args, 1)?.is_empty() {
        return Err(anyhow!("nothing to look for"));
    }
    of_crate(name, span, params, args, strict)
}

fn lower(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars().map(lowered).collect()
}

fn upper(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_uppercase();
    }
    text.chars().map(raised).collect()
}

/// Go's: the one letter that is this one's other case, or the letter itself.
fn raised(letter: char) -> char {
    match letter {
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => moved(letter, 8),
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => moved(letter, 9),
        _ => only(letter.to_uppercase()).unwrap_or(letter),
    }
}

fn lowered(letter: char) -> char {
    match letter {
        '\u{130}' => 'i',
        _ => only(letter.to_lowercase()).unwrap_or(letter),
    }
}

fn moved(letter: char, by: u32) -> char {
    char::from_u32(u32::from(letter) + by).unwrap_or(letter)
}

fn only(mut letters: impl Iterator<Item = char>) -> Option<char> {
    letters.next().filter(|_| letters.next().is_none())
}

const STANDARD: [u8; 2] = *b"+/";
const FOR_ADDRESSES: [u8; 2] = *b"-_";

/// As Go decodes: ends of lines are passed over, what is left over in the last letter does not matter.
fn decoded(text: &str, last: [u8; 2]) -> Result<Vec<u8>> {
    let letters: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    if letters.len() % 4 != 0 {
        return Err(anyhow!("not padded"));
    }
    let padding = letters.iter().rev().take(2).take_while(|byte| **byte == b'=').count();
    let mut bytes = Vec::with_capacity(letters.len() / 4 * 3);
    let (mut held, mut bits) = (0_u32, 0);
    for letter in &letters[..letters.len() - padding] {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            _ if *letter == last[0] => 62,
            _ if *letter == last[1] => 63,
            _ => return Err(anyhow!("not of the alphabet")),
        };
        held = held << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff)?);
        }
    }
    Ok(bytes)
}

/// As Go shows bytes that are no UTF-8: each as U+FFFD.
fn shown(mut bytes: &[u8]) -> Value {
    let mut made = String::with_capacity(bytes.len());
    loop {
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                made.push_str(text);
                return Value::from(made);
            }
            Err(error) => {
                let (good, bad) = bytes.split_at(error.valid_up_to());
                made.push_str(&String::from_utf8_lossy(good));
                made.push(char::REPLACEMENT_CHARACTER);
                bytes = &bad[1..];
            }
        }
    }
}

fn base64url_decode(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let given = text(args, 0)?;
    let padding = match given.len() % 4 {
        _ if given.ends_with('=') => "",
        0 => "",
        2 => "==",
        3 => "=",
        _ => return Err(anyhow!("one letter too many")),
    };
    decoded(&format!("{given}{padding}"), FOR_ADDRESSES).map(|bytes| shown(&bytes))
}

fn escaped(name: &str, span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    match of_crate(name, span, params, args, strict)? {
        Value::String(text) if text.contains('*') => Ok(Value::from(text.replace('*', "%2A"))),
        other => Ok(other),
    }
}

/// A `v` before a version says nothing.
fn versions(name: &str, span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    let plain: Vec<Value> = args
        .iter()
        .map(|arg| match arg {
            Value::String(text) => Value::from(text.strip_prefix('v').unwrap_or(text)),
            other => other.clone(),
        })
        .collect();
    match plain.as_slice() {
        [Value::String(_)] | [_, _] => of_crate(name, span, params, &plain, strict),
        _ => Ok(Value::from(false)),
    }
}

fn substring(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let given = text(args, 0)?;
    let (start, length) = (whole(args.get(1))?, whole(args.get(2))?);
    let start = usize::try_from(start).map_err(|_| anyhow!("a negative offset"))?;
    let rest = given.chars().skip(start);
    Ok(Value::from(match usize::try_from(length) {
        Ok(length) => rest.take(length).collect::<String>(),
        Err(_) => rest.collect(),
    }))
}

/// A whole number of 64 bits.
fn whole(value: Option<&Value>) -> Result<i64> {
    let value = value.filter(|value| matches!(value, Value::Number(_))).ok_or_else(|| anyhow!("not a number"))?;
    value.as_i64().map_err(|_| anyhow!("not a whole number"))
}

/// As Go's `time.ParseDuration`, with `d`, `w` and `y` as days, weeks and years of 365 days.
fn parse_duration(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let given = text(args, 0)?;
    let unsigned = given.strip_prefix(['+', '-']).unwrap_or(given);
    if unsigned == "0" {
        return Ok(Value::from(0_i64));
    }
    let (mut rest, mut total) = (unsigned, 0_u64);
    if rest.is_empty() {
        return Err(anyhow!("no duration"));
    }
    while !rest.is_empty() {
        let number = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        let (digits, behind) = rest.split_at(number);
        let end = behind.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        total = total
            .checked_add(part(digits, unit)?)
            .filter(|total| *total <= 1 << 63)
            .ok_or_else(|| anyhow!("too long"))?;
        rest = behind;
    }
    let is_negative = given.starts_with('-');
    match i64::try_from(total) {
        Ok(total) => Ok(Value::from(if is_negative { -total } else { total })),
        Err(_) if is_negative => Ok(Value::from(i64::MIN)),
        Err(_) => Err(anyhow!("too long")),
    }
}

/// Nanoseconds of a number and its unit.
fn part(digits: &str, unit: &str) -> Result<u64> {
    const HOUR: u64 = 3_600_000_000_000;
    let nanoseconds: u64 = match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => HOUR,
        "d" => 24 * HOUR,
        "w" => 7 * 24 * HOUR,
        "y" => 365 * 24 * HOUR,
        _ => return Err(anyhow!("no such unit")),
    };
    let (before, after) = digits.split_once('.').unwrap_or((digits, ""));
    if before.is_empty() && after.is_empty() || after.contains('.') {
        return Err(anyhow!("no number"));
    }
    let too_long = || anyhow!("too long");
    let seconds = if before.is_empty() { 0 } else { before.parse::<u64>().map_err(|_| too_long())? };
    let seconds = seconds.checked_mul(nanoseconds).filter(|all| *all <= 1 << 63).ok_or_else(too_long)?;
    // Go adds up the digits behind the point as long as they fit, and multiplies as a float.
    let (mut fraction, mut scale) = (0_u64, 1.0_f64);
    for digit in after.bytes() {
        let next = fraction.checked_mul(10).and_then(|tens| tens.checked_add(u64::from(digit - b'0')));
        let Some(next) = next.filter(|next| *next <= 1 << 63) else { break };
        fraction = next;
        scale *= 10.0;
    }
    // A duration is far below what a float holds exactly to the nanosecond; the fraction's rest is cut off.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let fraction = (fraction as f64 * (nanoseconds as f64 / scale)) as u64;
    seconds.checked_add(fraction).ok_or_else(too_long)
}

fn parse_rfc3339(span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    let given = text(args, 0)?;
    if given.contains(['t', 'z', ' ']) || given.get(17..19) == Some("60") {
        return Err(anyhow!("no time"));
    }
    of_crate("time.parse_rfc3339_ns", span, params, args, strict)
}
