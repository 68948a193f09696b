//! `sprintf` as Go's `fmt.Sprintf` formats what OPA passes to it [ENG-2]: whole numbers, fractions and strings. Formats
//! for which the same result is not certain (`%*d`, `%[1]d`, `#`, fractions in `%x`) fail.
#![forbid(unsafe_code)]

use crate::builtins::{beyond, of_regorus};
use crate::json;
use anyhow::{anyhow, Result};
use regorus::unstable::{Expr, Ref, Span};
use regorus::Value;

/// The largest width and precision.
const MAX_WIDTH: usize = 999;

/// A value as OPA passes it to Go.
enum Argument {
    Whole { is_negative: bool, digits: String, is_long: bool },
    Fraction(f64),
    Text(String),
}

/// Flags, width and precision of a verb.
#[derive(Default)]
struct Format {
    left: bool,
    plus: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

impl Format {
    fn is_plain(&self) -> bool {
        !(self.left || self.plus || self.space || self.zero) && self.width.is_none() && self.precision.is_none()
    }
}

pub fn sprintf(span: &Span, params: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let (Some(Value::String(format)), Some(Value::Array(values))) = (args.first(), args.get(1)) else {
        return Err(anyhow!("a text and an array"));
    };
    let quote = |text: &str| quoted(span, params, text);
    let mut left = values.iter();
    let mut made = String::with_capacity(format.len() + 16 * values.len());
    let mut rest: &str = format;
    while let Some((before, behind)) = rest.split_once('%') {
        made.push_str(before);
        let (options, behind) = format_of(behind)?;
        let Some(verb) = behind.chars().next() else {
            made.push_str("%!(NOVERB)");
            rest = "";
            break;
        };
        rest = &behind[verb.len_utf8()..];
        match (verb, left.len()) {
            ('%', _) => made.push('%'),
            (_, 0) => made.push_str(&format!("%!{verb}(MISSING)")),
            _ => {
                let value = left.next().ok_or_else(|| anyhow!("no value"))?;
                made.push_str(&formatted(&argument_of(value, &quote)?, verb, &options, &quote)?);
            }
        }
    }
    made.push_str(rest);
    if left.len() > 0 {
        let extra: Result<Vec<String>> =
            left.map(|value| argument_of(value, &quote).map(|argument| named(&argument))).collect();
        made.push_str(&format!("%!(EXTRA {})", extra?.join(", ")));
    }
    Ok(Value::from(made))
}

/// The flags, width and precision after a percent sign, and the rest of the text.
fn format_of(text: &str) -> Result<(Format, &str)> {
    let mut options = Format::default();
    let mut rest = text;
    loop {
        match rest.as_bytes().first() {
            Some(b'-') => options.left = true,
            Some(b'+') => options.plus = true,
            Some(b' ') => options.space = true,
            Some(b'0') => options.zero = true,
            Some(b'#' | b'*' | b'[') => return Err(beyond()),
            _ => break,
        }
        rest = &rest[1..];
    }
    (options.width, rest) = number(rest)?;
    if let Some(behind) = rest.strip_prefix('.') {
        (options.precision, rest) = number(behind)?;
        options.precision.get_or_insert(0);
    }
    if rest.starts_with(['*', '[']) {
        return Err(beyond());
    }
    Ok((options, rest))
}

fn number(text: &str) -> Result<(Option<usize>, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() {
        return Ok((None, rest));
    }
    let number = digits.parse::<usize>().ok().filter(|number| *number <= MAX_WIDTH);
    Ok((Some(number.ok_or_else(beyond)?), rest))
}

fn argument_of(value: &Value, quote: &impl Fn(&str) -> Result<String>) -> Result<Argument> {
    match value {
        Value::String(text) => Ok(Argument::Text(text.to_string())),
        Value::Number(number) => {
            if let Ok(small) = value.as_i64() {
                let digits = small.unsigned_abs().to_string();
                return Ok(Argument::Whole { is_negative: small < 0, digits, is_long: false });
            }
            if let Some(long) = number.as_big().filter(|_| number.is_integer()) {
                let text = long.to_string();
                let digits = text.trim_start_matches('-').to_owned();
                return Ok(Argument::Whole { is_negative: text.starts_with('-'), digits, is_long: true });
            }
            Ok(Argument::Fraction(value.as_f64()?))
        }
        other => written(other, quote).map(Argument::Text),
    }
}

/// A value as OPA prints it.
fn written(value: &Value, quote: &impl Fn(&str) -> Result<String>) -> Result<String> {
    let all = |items: Vec<Result<String>>| items.into_iter().collect::<Result<Vec<_>>>().map(|all| all.join(", "));
    Ok(match value {
        Value::Null => "null".to_owned(),
        Value::Bool(holds) => holds.to_string(),
        Value::String(text) => quote(text)?,
        Value::Number(_) => match argument_of(value, quote)? {
            Argument::Fraction(_) => json::number::written(value).ok_or_else(beyond)?,
            whole => plain(&whole),
        },
        Value::Array(items) => format!("[{}]", all(items.iter().map(|item| written(item, quote)).collect())?),
        Value::Set(items) if items.is_empty() => "set()".to_owned(),
        Value::Set(items) => format!("{{{}}}", all(items.iter().map(|item| written(item, quote)).collect())?),
        Value::Object(members) => {
            let member =
                |(key, member): (&Value, &Value)| Ok(format!("{}: {}", written(key, quote)?, written(member, quote)?));
            format!("{{{}}}", all(members.iter_sorted().map(member).collect())?)
        }
        Value::Undefined => return Err(anyhow!("no value")),
    })
}

/// Quotes as Go's `strconv.Quote`, which regorus has.
fn quoted(span: &Span, params: &[Ref<Expr>], text: &str) -> Result<String> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')) {
        return Ok(format!("\"{text}\""));
    }
    let args = [Value::from("%q"), Value::from(vec![Value::from(text)])];
    match of_regorus("sprintf", span, params, &args, true)? {
        Value::String(text) => Ok(text.to_string()),
        _ => Err(anyhow!("no text")),
    }
}

/// `%v`.
fn plain(argument: &Argument) -> String {
    match argument {
        Argument::Whole { is_negative, digits, .. } => format!("{}{digits}", if *is_negative { "-" } else { "" }),
        Argument::Fraction(number) => shortest(*number),
        Argument::Text(text) => text.clone(),
    }
}

fn kind(argument: &Argument) -> &'static str {
    match argument {
        Argument::Whole { is_long: false, .. } => "int64",
        Argument::Whole { .. } => "*big.Int",
        Argument::Fraction(_) => "float64",
        Argument::Text(_) => "string",
    }
}

fn named(argument: &Argument) -> String {
    format!("{}={}", kind(argument), plain(argument))
}

fn formatted(
    argument: &Argument,
    verb: char,
    options: &Format,
    quote: &impl Fn(&str) -> Result<String>,
) -> Result<String> {
    let unsigned = |text: String| (false, text);
    let (is_negative, text) = match (verb, argument) {
        ('T', _) if options.is_plain() => return Ok(kind(argument).to_owned()),
        ('v' | 's', Argument::Text(text)) => unsigned(cut(text, options)),
        ('q', Argument::Text(text)) => unsigned(quote(&cut(text, options))?),
        ('x', Argument::Text(text)) if options.precision.is_none() => {
            unsigned(text.bytes().map(|b| format!("{b:02x}")).collect())
        }
        ('X', Argument::Text(text)) if options.precision.is_none() => {
            unsigned(text.bytes().map(|b| format!("{b:02X}")).collect())
        }
        ('v' | 'd', Argument::Whole { is_negative, digits, .. }) => (*is_negative, at_least(digits, options)?),
        ('s', Argument::Whole { is_negative, digits, is_long: true }) => (*is_negative, at_least(digits, options)?),
        ('b' | 'o' | 'O' | 'x' | 'X', Argument::Whole { is_negative, digits, is_long: false }) => {
            let number = digits.parse::<u64>()?;
            let text = match verb {
                'b' => format!("{number:b}"),
                'x' => format!("{number:x}"),
                'X' => format!("{number:X}"),
                _ => format!("{number:o}"),
            };
            let text = at_least(&text, options)?;
            (*is_negative, if verb == 'O' { format!("0o{text}") } else { text })
        }
        ('c', Argument::Whole { is_negative: false, digits, is_long: false }) if options.precision.is_none() => {
            let letter = digits.parse::<u32>().ok().and_then(char::from_u32);
            unsigned(letter.unwrap_or(char::REPLACEMENT_CHARACTER).to_string())
        }
        ('U', Argument::Whole { is_negative: false, digits, is_long: false }) if options.is_plain() => {
            unsigned(format!("U+{:04X}", digits.parse::<u64>()?))
        }
        ('v' | 'g', Argument::Fraction(number)) if options.precision.is_none() => signed(shortest(*number)),
        ('G', Argument::Fraction(number)) if options.precision.is_none() => signed(shortest(*number).to_uppercase()),
        ('f' | 'F', Argument::Fraction(number)) => signed(format!("{number:.*}", options.precision.unwrap_or(6))),
        ('e', Argument::Fraction(number)) => {
            signed(with_exponent(&format!("{number:.*e}", options.precision.unwrap_or(6))))
        }
        ('E', Argument::Fraction(number)) => {
            signed(with_exponent(&format!("{number:.*e}", options.precision.unwrap_or(6))).to_uppercase())
        }
        ('b' | 'x' | 'X' | 'g' | 'G' | 'v', Argument::Fraction(_))
        | ('q' | 'c' | 'U' | 'b' | 'o' | 'O' | 'x' | 'X', Argument::Whole { .. })
        | ('x' | 'X', Argument::Text(_)) => return Err(beyond()),
        _ if !options.is_plain() => return Err(beyond()),
        (_, Argument::Whole { is_long: true, .. }) => return Ok(format!("%!{verb}(big.Int={})", plain(argument))),
        _ => return Ok(format!("%!{verb}({})", named(argument))),
    };
    padded(is_negative, &text, matches!(argument, Argument::Text(_)), options)
}

fn signed(text: String) -> (bool, String) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest.to_owned()),
        None => (false, text),
    }
}

fn cut(text: &str, options: &Format) -> String {
    options.precision.map_or_else(|| text.to_owned(), |letters| text.chars().take(letters).collect())
}

/// A precision is the smallest number of digits.
fn at_least(digits: &str, options: &Format) -> Result<String> {
    match options.precision {
        Some(0) if digits == "0" => Err(beyond()),
        Some(_) if options.zero => Err(beyond()),
        Some(fewest) => Ok(format!("{digits:0>fewest$}")),
        None => Ok(digits.to_owned()),
    }
}

fn padded(is_negative: bool, text: &str, is_text: bool, options: &Format) -> Result<String> {
    if is_text && (options.zero || options.plus || options.space) {
        return Err(beyond());
    }
    let sign = match (is_negative, options.plus, options.space) {
        (true, ..) => "-",
        (_, true, _) => "+",
        (_, _, true) => " ",
        _ => "",
    };
    let missing = options.width.unwrap_or(0).saturating_sub(sign.len() + text.chars().count());
    Ok(if options.left {
        format!("{sign}{text}{}", " ".repeat(missing))
    } else if options.zero {
        format!("{sign}{}{text}", "0".repeat(missing))
    } else {
        format!("{}{sign}{text}", " ".repeat(missing))
    })
}

/// Formats as Go's `%g` without a precision.
fn shortest(number: f64) -> String {
    let text = format!("{number:e}");
    let exponent = text.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok()).unwrap_or(0);
    if !(-4..6).contains(&exponent) {
        with_exponent(&text)
    } else {
        format!("{number}")
    }
}

/// Go's exponents have a sign and two digits.
fn with_exponent(text: &str) -> String {
    let Some((digits, exponent)) = text.split_once('e') else { return text.to_owned() };
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>2}")
}
