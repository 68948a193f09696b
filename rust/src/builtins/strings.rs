//! Builtins on strings, and on what strings encode, as OPA answers them, where regorus answers otherwise [ENG-2].
//!
//! - A letter has one letter as its other case, as in Go.
//! - A value that is not a string is not JSON; the empty string is found nowhere.
//! - Replacements are made all at once.
//! - Days, weeks and years are durations.
//! - A whole number that is written has digits, and zero no sign.
//! - Decoded bytes need not be UTF-8; a percent sign without two digits is an error.
#![forbid(unsafe_code)]

use crate::builtins::{beyond, of_regorus, string, Function, MAX_RESULT_WEIGHT};
use crate::evaluation::watch;
use crate::json;
use anyhow::{anyhow, Result};
use regorus::unstable::{Expr, Ref, Span};
use regorus::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The function to use in place of the one of regorus.
pub fn function(name: &str) -> Option<Function> {
    Some(match name {
        "base64.is_valid" => {
            |_, _, args, _| Ok(Value::from(string(args, 0).is_ok_and(|text| decoded(text, STANDARD).is_ok())))
        }
        "base64.decode" => |_, _, args, _| decoded(string(args, 0)?, STANDARD).map(|bytes| shown(&bytes)),
        "base64url.decode" => base64url_decode,
        "format_int" => format_int,
        "indexof" => |_, _, args, _| Ok(places(args, 1)?.into_iter().next().unwrap_or_else(|| Value::from(-1_i64))),
        "indexof_n" => |_, _, args, _| places(args, usize::MAX).map(Value::from),
        "json.is_valid" => |_, _, args, _| match args {
            [Value::String(text)] => Ok(Value::from(parsed(text)?.is_some())),
            _ => Ok(Value::from(false)),
        },
        "json.unmarshal" => |_, _, args, _| parsed(string(args, 0)?)?.ok_or_else(|| anyhow!("not JSON")),
        "lower" => |_, _, args, _| Ok(Value::from(lower(string(args, 0)?))),
        "strings.count" => {
            |_, _, args, _| Ok(Value::from(u64::try_from(string(args, 0)?.matches(string(args, 1)?.as_ref()).count())?))
        }
        "strings.replace_n" => replace_n,
        "substring" => substring,
        "time.clock" => |span, params, args, strict| in_zone("time.clock", span, params, args, strict),
        "time.date" => |span, params, args, strict| in_zone("time.date", span, params, args, strict),
        "time.parse_duration_ns" => parse_duration,
        "time.parse_rfc3339_ns" => parse_rfc3339,
        "time.weekday" => |span, params, args, strict| in_zone("time.weekday", span, params, args, strict),
        "to_number" => to_number,
        "trim" => |_, _, args, _| trimmed(args, |text, cut| text.trim_matches(cut)),
        "trim_left" => |_, _, args, _| trimmed(args, |text, cut| text.trim_start_matches(cut)),
        "trim_right" => |_, _, args, _| trimmed(args, |text, cut| text.trim_end_matches(cut)),
        "upper" => |_, _, args, _| Ok(Value::from(upper(string(args, 0)?))),
        "urlquery.decode" => |_, _, args, _| percent_decoded(string(args, 0)?).map(Value::from),
        "urlquery.decode_object" => query_decode_object,
        "urlquery.encode" => |span, params, args, strict| escaped("urlquery.encode", span, params, args, strict),
        "urlquery.encode_object" => {
            |span, params, args, strict| escaped("urlquery.encode_object", span, params, args, strict)
        }
        _ => return None,
    })
}

/// Zero has no sign, and digits that regorus cannot write are no empty text.
fn format_int(span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    match of_regorus("format_int", span, params, args, strict)? {
        Value::String(text) if matches!(text.as_ref(), "" | "-") => Err(beyond()),
        Value::String(text) if text.as_ref() == "-0" => Ok(Value::from("0")),
        formatted => Ok(formatted),
    }
}

/// The value of a JSON text; None if it is none. Go reads half of a pair of surrogates as U+FFFD.
fn parsed(text: &str) -> Result<Option<Value>> {
    match json::parse_text(text) {
        Ok(value) => Ok(Some(value)),
        Err(fault) if fault.code == "input.surrogate" => {
            let whole = without_halves(text);
            if whole == text {
                Ok(None)
            } else {
                parsed(&whole)
            }
        }
        // Go reads these.
        Err(fault) if matches!(fault.code, "input.number" | "input.too-deep" | "input.too-many-values") => {
            Err(beyond())
        }
        Err(_) => Ok(None),
    }
}

/// A JSON text with `\ufffd` in the place of each escaped surrogate that is not one of a pair.
fn without_halves(text: &str) -> String {
    let unit = |text: &str| {
        let digits =
            text.strip_prefix("\\u")?.get(..4).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
        u16::from_str_radix(digits, 16).ok()
    };
    let read = |rest: &str, out: &mut String| match (unit(rest), rest.get(6..).and_then(unit)) {
        (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => {
            out.push_str(&rest[..12]);
            Some(12)
        }
        (Some(0xD800..=0xDFFF), _) => {
            out.push_str("\\ufffd");
            Some(6)
        }
        _ => {
            let length = 1 + rest.chars().nth(1).map_or(0, char::len_utf8);
            out.push_str(&rest[..length]);
            Some(length)
        }
    };
    json::replaced(text, |byte| byte == b'\\', read).into_owned()
}

/// Texts as Go's `strconv.ParseFloat` reads them: a plus sign, leading zeros, and a point without digits on one side.
fn to_number(span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    let [Value::String(text)] = args else { return of_regorus("to_number", span, params, args, strict) };
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (number, exponent) = unsigned.split_at(unsigned.find(['e', 'E']).unwrap_or(unsigned.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !are_digits(whole) || !are_digits(fraction) {
        let is_hexadecimal =
            unsigned.starts_with(['0']) && unsigned.contains(['x', 'X']) && unsigned.contains(['p', 'P']);
        let is_parted = unsigned.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
        return Err(if is_hexadecimal || is_parted && !unsigned.is_empty() {
            beyond()
        } else {
            anyhow!("not a number")
        });
    }
    let sign = if text.starts_with('-') { "-" } else { "" };
    let whole = Some(whole.trim_start_matches('0')).filter(|whole| !whole.is_empty()).unwrap_or("0");
    let point = if fraction.is_empty() { "" } else { "." };
    let digits = exponent.get(1..).map(|digits| digits.strip_prefix(['+', '-']).unwrap_or(digits));
    if digits.is_some_and(|digits| digits.is_empty() || !are_digits(digits)) {
        return Err(anyhow!("not a number"));
    }
    json::number::read(&format!("{sign}{whole}{point}{fraction}{exponent}"), false).ok_or_else(beyond)
}

/// Where a text occurs in another, in characters: the first `limit` places, which may overlap.
fn places(args: &[Value], limit: usize) -> Result<Vec<Value>> {
    let (text, needle) = (string(args, 0)?, string(args, 1)?);
    let first = needle.chars().next().ok_or_else(|| anyhow!("the empty string is not looked for"))?;
    let (mut listed, mut from, mut passed) = (Vec::new(), 0, 0_u64);
    while let Some(length) = text[from..].find(needle.as_ref()).filter(|_| listed.len() < limit) {
        let (before, behind) = (u64::try_from(text[from..from + length].chars().count())?, from + length);
        listed.push(Value::from(passed + before));
        (from, passed) = (behind + first.len_utf8(), passed + before + 1);
        watch::step(needle.len() + length)?;
    }
    Ok(listed)
}

fn trimmed(args: &[Value], trim: for<'a> fn(&'a str, &dyn Fn(char) -> bool) -> &'a str) -> Result<Value> {
    let cut: BTreeSet<char> = string(args, 1)?.chars().collect();
    Ok(Value::from(trim(string(args, 0)?, &|letter| cut.contains(&letter))))
}

fn lower(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars().map(lower_letter).collect()
}

fn upper(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_uppercase();
    }
    text.chars().map(upper_letter).collect()
}

/// The one letter that is this letter's upper case in Go, or the letter itself.
fn upper_letter(letter: char) -> char {
    match letter {
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => moved(letter, 8),
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => moved(letter, 9),
        _ => only(letter.to_uppercase()).unwrap_or(letter),
    }
}

fn lower_letter(letter: char) -> char {
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
const URL_SAFE: [u8; 2] = *b"-_";

/// Base64 as Go decodes it: line breaks are skipped, and unused bits of the last letter may have any value. `last` are
/// the last two letters of the alphabet.
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

/// Bytes as Go shows them: each that is not UTF-8 as U+FFFD.
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
    let given = string(args, 0)?;
    let padding = match given.len() % 4 {
        _ if given.ends_with('=') => "",
        0 => "",
        2 => "==",
        3 => "=",
        _ => return Err(anyhow!("one letter too many")),
    };
    decoded(&format!("{given}{padding}"), URL_SAFE).map(|bytes| shown(&bytes))
}

fn escaped(name: &str, span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    match of_regorus(name, span, params, args, strict)? {
        Value::String(text) if text.contains('*') => Ok(Value::from(text.replace('*', "%2A"))),
        other => Ok(other),
    }
}

fn substring(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let given = string(args, 0)?;
    let (start, length) = (whole_number(args.get(1))?, whole_number(args.get(2))?);
    let start = usize::try_from(start).map_err(|_| anyhow!("a negative offset"))?;
    let rest = given.chars().skip(start);
    Ok(Value::from(match usize::try_from(length) {
        Ok(length) => rest.take(length).collect::<String>(),
        Err(_) => rest.collect(),
    }))
}

/// A whole number of 64 bits.
fn whole_number(value: Option<&Value>) -> Result<i64> {
    let value = value.filter(|value| matches!(value, Value::Number(_))).ok_or_else(|| anyhow!("not a number"))?;
    value.as_i64().map_err(|_| anyhow!("not a whole number"))
}

/// As Go's `time.ParseDuration`, with `d`, `w` and `y` as days, weeks and years of 365 days.
fn parse_duration(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let given = string(args, 0)?;
    let unsigned = given.strip_prefix(['+', '-']).unwrap_or(given);
    if unsigned == "0" {
        return Ok(Value::from(0_i64));
    }
    let (mut rest, mut total) = (unsigned, 0_u64);
    if rest.is_empty() {
        return Err(anyhow!("not a duration"));
    }
    while !rest.is_empty() {
        let number = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        let (digits, behind) = rest.split_at(number);
        let end = behind.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        total = total
            .checked_add(nanoseconds_of(digits, unit)?)
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

/// The nanoseconds of a number with its unit.
fn nanoseconds_of(digits: &str, unit: &str) -> Result<u64> {
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
        return Err(anyhow!("not a number"));
    }
    let too_long = || anyhow!("too long");
    let seconds = if before.is_empty() { 0 } else { before.parse::<u64>().map_err(|_| too_long())? };
    let seconds = seconds.checked_mul(nanoseconds).filter(|all| *all <= 1 << 63).ok_or_else(too_long)?;
    // Go collects the digits after the point as long as they fit, and multiplies as a float.
    let (mut fraction, mut scale) = (0_u64, 1.0_f64);
    for digit in after.bytes() {
        let next = fraction.checked_mul(10).and_then(|tens| tens.checked_add(u64::from(digit - b'0')));
        let Some(next) = next.filter(|next| *next <= 1 << 63) else { break };
        fraction = next;
        scale *= 10.0;
    }
    // Such a fraction is far below what a float holds exactly to the nanosecond; the rest is cut off.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let fraction = (fraction as f64 * (nanoseconds as f64 / scale)) as u64;
    seconds.checked_add(fraction).ok_or_else(too_long)
}

fn parse_rfc3339(span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    let given = string(args, 0)?;
    if given.contains(['t', 'z', ' ']) || given.get(17..19) == Some("60") {
        return Err(anyhow!("not a time"));
    }
    of_regorus("time.parse_rfc3339_ns", span, params, args, strict)
}

/// At each place the first of the sorted strings that stands there is replaced. Replacements are not searched again.
fn replace_n(span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    let given = string(args, 1)?;
    let Some(Value::Object(pairs)) = args.first() else { return Err(anyhow!("not an object")) };
    let mut by_first: BTreeMap<u8, Vec<(&str, &str)>> = BTreeMap::new();
    for (old, new) in pairs.iter() {
        let (Value::String(old), Value::String(new)) = (old, new) else { return Err(anyhow!("not strings")) };
        let Some(&first) = old.as_bytes().first() else {
            return of_regorus("strings.replace_n", span, params, args, strict); // the empty string stands everywhere
        };
        by_first.entry(first).or_default().push((old, new));
    }
    by_first.values_mut().for_each(|listed| listed.sort_unstable());
    let mut made = String::with_capacity(given.len());
    let mut rest: &str = given;
    while let Some(next) = rest.chars().next() {
        let stands_here = |(old, _): &&(&str, &str)| rest.starts_with(*old);
        let candidates = by_first.get(&rest.as_bytes()[0]).map_or(&[][..], Vec::as_slice);
        watch::step(1 + candidates.len())?;
        if made.len() > MAX_RESULT_WEIGHT {
            return Err(beyond());
        }
        match candidates.iter().find(stands_here) {
            Some((old, new)) => {
                made.push_str(new);
                rest = &rest[old.len()..];
            }
            None => {
                made.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }
    Ok(Value::from(made))
}

fn query_decode_object(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let mut found: BTreeMap<Value, Vec<Value>> = BTreeMap::new();
    for pair in string(args, 0)?.split('&').filter(|pair| !pair.is_empty()) {
        if pair.contains(';') {
            return Err(anyhow!("a semicolon separates nothing"));
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        found.entry(Value::from(percent_decoded(key)?)).or_default().push(Value::from(percent_decoded(value)?));
    }
    Ok(Value::from(found.into_iter().map(|(key, values)| (key, Value::from(values))).collect::<BTreeMap<_, _>>()))
}

fn percent_decoded(given: &str) -> Result<String> {
    let mut made = Vec::with_capacity(given.len());
    let mut bytes = given.bytes();
    while let Some(byte) = bytes.next() {
        made.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
                let (high, low) = digit().zip(digit()).ok_or_else(|| anyhow!("not an escape"))?;
                u8::try_from(high * 16 + low)?
            }
            other => other,
        });
    }
    Ok(String::from_utf8(made).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// regorus knows the summer time of a zone up to 2099, and its past less well than Go.
fn in_zone(name: &str, span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    const KNOWN: Range<i64> = 0..4_102_444_800_000_000_000;
    if let [Value::Array(given)] = args {
        if let [Value::Number(moment), Value::String(zone), ..] = given.as_slice() {
            let is_known = moment.as_i64().is_none_or(|moment| KNOWN.contains(&moment));
            if !is_known && !matches!(zone.as_ref(), "" | "UTC") {
                return Err(beyond());
            }
        }
    }
    of_regorus(name, span, params, args, strict)
}
