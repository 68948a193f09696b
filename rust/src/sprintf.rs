//! `sprintf` as Go's `fmt.Sprintf` answers what OPA gives it [ENG-2]: whole numbers, fractions and texts. What neither
//! can be told of alike (`%*d`, `%[1]d`, `#`, fractions in `%x`) fails.
#![forbid(unsafe_code)]

use anyhow::{anyhow, Result};
use regorus::unstable::{Expr, Ref, Span, BUILTINS};
use regorus::Value;

/// Letters of a verb's place, at most.
const MAX_WIDTH: usize = 999;

/// What Go is given for a value.
enum Given {
    Whole { is_negative: bool, digits: String, is_long: bool },
    Fraction(f64),
    Text(String),
}

#[derive(Default)]
struct Place {
    left: bool,
    plus: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

impl Place {
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
        let (place, behind) = place_of(behind)?;
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
                made.push_str(&shown(&given(value, &quote)?, verb, &place, &quote)?);
            }
        }
    }
    made.push_str(rest);
    if left.len() > 0 {
        let extra: Result<Vec<String>> = left.map(|value| given(value, &quote).map(|given| named(&given))).collect();
        made.push_str(&format!("%!(EXTRA {})", extra?.join(", ")));
    }
    Ok(Value::from(made))
}

/// Flags, width and precision behind a percent sign, and what follows.
fn place_of(text: &str) -> Result<(Place, &str)> {
    let mut place = Place::default();
    let mut rest = text;
    loop {
        match rest.as_bytes().first() {
            Some(b'-') => place.left = true,
            Some(b'+') => place.plus = true,
            Some(b' ') => place.space = true,
            Some(b'0') => place.zero = true,
            Some(b'#' | b'*' | b'[') => return Err(anyhow!("not to be told alike")),
            _ => break,
        }
        rest = &rest[1..];
    }
    (place.width, rest) = number(rest)?;
    if let Some(behind) = rest.strip_prefix('.') {
        (place.precision, rest) = number(behind)?;
        place.precision.get_or_insert(0);
    }
    if rest.starts_with(['*', '[']) {
        return Err(anyhow!("not to be told alike"));
    }
    Ok((place, rest))
}

fn number(text: &str) -> Result<(Option<usize>, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() {
        return Ok((None, rest));
    }
    let number = digits.parse::<usize>().ok().filter(|number| *number <= MAX_WIDTH);
    Ok((Some(number.ok_or_else(|| anyhow!("too wide"))?), rest))
}

fn given(value: &Value, quote: &impl Fn(&str) -> Result<String>) -> Result<Given> {
    match value {
        Value::String(text) => Ok(Given::Text(text.to_string())),
        Value::Number(number) => {
            if let Ok(small) = value.as_i64() {
                let digits = small.unsigned_abs().to_string();
                return Ok(Given::Whole { is_negative: small < 0, digits, is_long: false });
            }
            if let Some(long) = number.as_big().filter(|_| number.is_integer()) {
                let text = long.to_string();
                let digits = text.trim_start_matches('-').to_owned();
                return Ok(Given::Whole { is_negative: text.starts_with('-'), digits, is_long: true });
            }
            Ok(Given::Fraction(value.as_f64()?))
        }
        other => written(other, quote).map(Given::Text),
    }
}

/// A value as OPA prints it.
fn written(value: &Value, quote: &impl Fn(&str) -> Result<String>) -> Result<String> {
    let all = |items: Vec<Result<String>>| items.into_iter().collect::<Result<Vec<_>>>().map(|all| all.join(", "));
    Ok(match value {
        Value::Null => "null".to_owned(),
        Value::Bool(holds) => holds.to_string(),
        Value::String(text) => quote(text)?,
        Value::Number(_) => match given(value, quote)? {
            Given::Fraction(_) => value.to_json_str()?,
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

/// As Go's `strconv.Quote`, which the crate has.
fn quoted(span: &Span, params: &[Ref<Expr>], text: &str) -> Result<String> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')) {
        return Ok(format!("\"{text}\""));
    }
    let function = BUILTINS.get("sprintf").ok_or_else(|| anyhow!("no such builtin"))?;
    let args = [Value::from("%q"), Value::from(vec![Value::from(text)])];
    match (function.0)(span, params, &args, true)? {
        Value::String(text) => Ok(text.to_string()),
        _ => Err(anyhow!("no text")),
    }
}

/// `%v`.
fn plain(given: &Given) -> String {
    match given {
        Given::Whole { is_negative, digits, .. } => format!("{}{digits}", if *is_negative { "-" } else { "" }),
        Given::Fraction(number) => shortest(*number),
        Given::Text(text) => text.clone(),
    }
}

fn kind(given: &Given) -> &'static str {
    match given {
        Given::Whole { is_long: false, .. } => "int64",
        Given::Whole { .. } => "*big.Int",
        Given::Fraction(_) => "float64",
        Given::Text(_) => "string",
    }
}

fn named(given: &Given) -> String {
    format!("{}={}", kind(given), plain(given))
}

fn shown(given: &Given, verb: char, place: &Place, quote: &impl Fn(&str) -> Result<String>) -> Result<String> {
    let unsigned = |text: String| (false, text);
    let (is_negative, text) = match (verb, given) {
        ('T', _) if place.is_plain() => return Ok(kind(given).to_owned()),
        ('v' | 's', Given::Text(text)) => unsigned(cut(text, place)),
        ('q', Given::Text(text)) => unsigned(quote(&cut(text, place))?),
        ('x', Given::Text(text)) if place.precision.is_none() => {
            unsigned(text.bytes().map(|b| format!("{b:02x}")).collect())
        }
        ('X', Given::Text(text)) if place.precision.is_none() => {
            unsigned(text.bytes().map(|b| format!("{b:02X}")).collect())
        }
        ('v' | 'd', Given::Whole { is_negative, digits, .. }) => (*is_negative, at_least(digits, place)?),
        ('s', Given::Whole { is_negative, digits, is_long: true }) => (*is_negative, at_least(digits, place)?),
        ('b' | 'o' | 'O' | 'x' | 'X', Given::Whole { is_negative, digits, is_long: false }) => {
            let number = digits.parse::<u64>()?;
            let text = match verb {
                'b' => format!("{number:b}"),
                'x' => format!("{number:x}"),
                'X' => format!("{number:X}"),
                _ => format!("{number:o}"),
            };
            let text = at_least(&text, place)?;
            (*is_negative, if verb == 'O' { format!("0o{text}") } else { text })
        }
        ('c', Given::Whole { is_negative: false, digits, is_long: false }) if place.precision.is_none() => {
            let letter = digits.parse::<u32>().ok().and_then(char::from_u32);
            unsigned(letter.unwrap_or(char::REPLACEMENT_CHARACTER).to_string())
        }
        ('U', Given::Whole { is_negative: false, digits, is_long: false }) if place.is_plain() => {
            unsigned(format!("U+{:04X}", digits.parse::<u64>()?))
        }
        ('v' | 'g', Given::Fraction(number)) if place.precision.is_none() => signed(shortest(*number)),
        ('G', Given::Fraction(number)) if place.precision.is_none() => signed(shortest(*number).to_uppercase()),
        ('f' | 'F', Given::Fraction(number)) => signed(format!("{number:.*}", place.precision.unwrap_or(6))),
        ('e', Given::Fraction(number)) => signed(with_exponent(&format!("{number:.*e}", place.precision.unwrap_or(6)))),
        ('E', Given::Fraction(number)) => {
            signed(with_exponent(&format!("{number:.*e}", place.precision.unwrap_or(6))).to_uppercase())
        }
        ('b' | 'x' | 'X' | 'g' | 'G' | 'v', Given::Fraction(_))
        | ('q' | 'c' | 'U' | 'b' | 'o' | 'O' | 'x' | 'X', Given::Whole { .. })
        | ('x' | 'X', Given::Text(_)) => return Err(anyhow!("not to be told alike")),
        _ if !place.is_plain() => return Err(anyhow!("not to be told alike")),
        (_, Given::Whole { is_long: true, .. }) => return Ok(format!("%!{verb}(big.Int={})", plain(given))),
        _ => return Ok(format!("%!{verb}({})", named(given))),
    };
    padded(is_negative, &text, matches!(given, Given::Text(_)), place)
}

fn signed(text: String) -> (bool, String) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest.to_owned()),
        None => (false, text),
    }
}

fn cut(text: &str, place: &Place) -> String {
    place.precision.map_or_else(|| text.to_owned(), |letters| text.chars().take(letters).collect())
}

/// A precision is the fewest digits.
fn at_least(digits: &str, place: &Place) -> Result<String> {
    match place.precision {
        Some(0) if digits == "0" => Err(anyhow!("not to be told alike")),
        Some(_) if place.zero => Err(anyhow!("not to be told alike")),
        Some(fewest) => Ok(format!("{digits:0>fewest$}")),
        None => Ok(digits.to_owned()),
    }
}

fn padded(is_negative: bool, text: &str, is_text: bool, place: &Place) -> Result<String> {
    if is_text && (place.zero || place.plus || place.space) {
        return Err(anyhow!("not to be told alike"));
    }
    let sign = match (is_negative, place.plus, place.space) {
        (true, ..) => "-",
        (_, true, _) => "+",
        (_, _, true) => " ",
        _ => "",
    };
    let missing = place.width.unwrap_or(0).saturating_sub(sign.len() + text.chars().count());
    Ok(if place.left {
        format!("{sign}{text}{}", " ".repeat(missing))
    } else if place.zero {
        format!("{sign}{}{text}", "0".repeat(missing))
    } else {
        format!("{}{sign}{text}", " ".repeat(missing))
    })
}

/// As Go's `%g` without a precision.
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
