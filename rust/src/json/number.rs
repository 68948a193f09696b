//! Numbers as decimals: read exactly or not at all, and computed exactly or not at all [ENG-20].
//!
//! The engine holds whole numbers exactly and fractions as doubles. A double stands for the shortest decimal that is
//! read as it: so a decimal that is not the shortest for its double is refused, and all others compare as decimals do.
#![forbid(unsafe_code)]

use num_bigint::{BigInt, Sign};
use regorus::Value;

/// Characters of a number, and bits of a whole one: well above any amount, time or token count, and far below what takes
/// noticeable time.
const MAX_CHARS: usize = 400;
const MAX_BITS: u64 = 4_096;
const MAX_EXPONENT: i32 = 2_000;
/// Digits up to which every decimal is the shortest for its double.
const SHORT: usize = 15;
/// Digits of a quotient that does not end, before it is rounded to a double.
const QUOTIENT_DIGITS: u64 = 40;

/// Why there is no result: no such operation, or one whose result cannot be held.
pub enum Unfit {
    Undefined,
    Beyond,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Plus,
    Minus,
    Times,
    Divide,
    Remainder,
}

/// `digits * 10^exponent`, without zeros at the end.
#[derive(Clone, PartialEq, Eq)]
struct Decimal {
    digits: BigInt,
    exponent: i32,
}

/// The value of a JSON number; None if it cannot be held exactly. `keeps_doubles`: a whole number that is written as a
/// double is that double, which is another number beyond 2^53 than its shortest text.
pub fn read(text: &str, keeps_doubles: bool) -> Option<Value> {
    if text.len() > MAX_CHARS {
        return None;
    }
    if !text.contains(['.', 'e', 'E']) {
        let small = text.parse::<u64>().map(Value::from).or_else(|_| text.parse::<i64>().map(Value::from));
        return small.ok().or_else(|| Value::from_numeric_string(text).ok());
    }
    let double = text.parse::<f64>().ok().filter(|double| double.is_finite())?;
    if double.fract() != 0.0 && shortest(double)? == text {
        return Some(Value::from(double));
    }
    let (decimal, double) = (Decimal::of_text(text)?, Value::from(double));
    if decimal.digits.sign() == Sign::NoSign {
        return Some(double);
    }
    let whole = decimal.whole();
    match Decimal::of(&double)? == decimal && (keeps_doubles || whole.as_ref().is_none_or(|whole| *whole == double)) {
        true => Some(double),
        false => whole,
    }
}

/// A number as JSON: whole ones with all their digits, doubles as doubles.
pub fn written(value: &Value) -> Option<String> {
    let Value::Number(number) = value else { return None };
    match (double(value), number.as_i64()) {
        (Some(double), _) => shortest(double),
        (None, Some(small)) => Some(small.to_string()),
        (None, None) => number.as_big().map(|whole| whole.to_string()),
    }
}

/// The shortest text that is read as this double; of two, the one that Python writes too.
fn shortest(double: f64) -> Option<String> {
    serde_json::to_string(&double).ok()
}

/// The double, if the number is held as one.
fn double(value: &Value) -> Option<f64> {
    match (value, Value::from(0.5)) {
        (Value::Number(number), Value::Number(half))
            if std::mem::discriminant(number) == std::mem::discriminant(&half) =>
        {
            number.as_f64()
        }
        _ => None,
    }
}

/// As a whole number of 64 bits. A double beyond 2^53 stands for another whole number than its bits are.
fn small(value: &Value) -> Option<i64> {
    value.as_i64().ok().filter(|_| double(value).is_none_or(|double| double.abs() < 9_007_199_254_740_992.0))
}

/// The whole number of 64 bits that a value stands for, as an integer: a double beyond 2^53 stands for what it is written as.
pub fn whole(value: &Value) -> Option<i64> {
    small(value).or_else(|| Decimal::of(value)?.whole()?.as_i64().ok())
}

/// The exact result, or the nearest double of a quotient that does not end.
pub fn compute(operation: Operation, left: &Value, right: &Value) -> Result<Value, Unfit> {
    if let (Some(left), Some(right)) = (small(left), small(right)) {
        let result = match operation {
            Operation::Plus => left.checked_add(right),
            Operation::Minus => left.checked_sub(right),
            Operation::Times => left.checked_mul(right),
            Operation::Divide => left.checked_rem(right).filter(|rest| *rest == 0).and(left.checked_div(right)),
            Operation::Remainder => left.checked_rem(right),
        };
        if let Some(result) = result {
            return Ok(Value::from(result));
        }
    }
    let [left, right] = [left, right].map(Decimal::of);
    let (left, right) = left.zip(right).ok_or(Unfit::Undefined)?;
    let is_zero = right.digits.sign() == Sign::NoSign;
    let exact = match operation {
        Operation::Plus => left.plus(&right),
        Operation::Minus => left.plus(&Decimal { digits: -&right.digits, exponent: right.exponent }),
        Operation::Times => Decimal::new(&left.digits * &right.digits, left.exponent + right.exponent),
        Operation::Divide if is_zero => return Err(Unfit::Undefined),
        Operation::Divide => return left.divided_by(&right),
        Operation::Remainder if is_zero || left.exponent < 0 || right.exponent < 0 => return Err(Unfit::Undefined),
        Operation::Remainder => Decimal::new(left.at(0) % right.at(0), 0),
    };
    let value = exact.value().ok_or(Unfit::Beyond)?;
    // A long fraction may be a quotient that was rounded, and then what looks short beside the result may be the result.
    match (left.is_long() || right.is_long()) && is_beside_short(&value) {
        true => Err(Unfit::Beyond),
        false => Ok(value),
    }
}

impl Decimal {
    fn new(digits: BigInt, exponent: i32) -> Self {
        let text = digits.to_string();
        let kept = text.trim_end_matches('0');
        match kept.trim_start_matches('-').is_empty() {
            true => Self { digits: BigInt::ZERO, exponent: 0 },
            false if kept.len() == text.len() => Self { digits, exponent },
            false => {
                let zeros = i32::try_from(text.len() - kept.len()).unwrap_or(i32::MAX);
                Self { digits: kept.parse().unwrap_or(digits), exponent: exponent.saturating_add(zeros) }
            }
        }
    }

    /// Of a JSON number, or of a double as Rust writes it.
    fn of_text(text: &str) -> Option<Self> {
        let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let exponent = exponent.parse::<i32>().ok()?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
        let digits = format!("{whole}{fraction}").parse().ok()?;
        Some(Self::new(digits, exponent)).filter(|decimal| decimal.exponent.abs() <= MAX_EXPONENT)
    }

    fn of(value: &Value) -> Option<Self> {
        let Value::Number(number) = value else { return None };
        match (double(value), number.as_big()) {
            (Some(double), _) => Self::of_text(&shortest(double)?),
            (None, Some(whole)) => Some(Self::new(whole.as_ref().clone(), 0)),
            (None, None) => None,
        }
    }

    /// Its digits with the given exponent, which is not above its own.
    fn at(&self, exponent: i32) -> BigInt {
        &self.digits * BigInt::from(10).pow(self.exponent.abs_diff(exponent))
    }

    /// As a whole number; None if it is none, or too large.
    fn whole(&self) -> Option<Value> {
        let whole = (self.exponent >= 0).then(|| self.at(0)).filter(|whole| whole.bits() <= MAX_BITS)?;
        Value::from_numeric_string(&whole.to_string()).ok()
    }

    fn value(&self) -> Option<Value> {
        if self.exponent >= 0 {
            return self.whole();
        }
        let double = Value::from(format!("{}e{}", self.digits, self.exponent).parse::<f64>().ok()?);
        Some(double).filter(|double| Self::of(double).as_ref() == Some(self))
    }

    fn plus(&self, other: &Self) -> Self {
        let exponent = self.exponent.min(other.exponent);
        Self::new(self.at(exponent) + other.at(exponent), exponent)
    }

    fn divided_by(&self, divisor: &Self) -> Result<Value, Unfit> {
        // A quotient that ends has no more digits behind the point than the divisor has bits.
        let (length, bits) = (divisor.digits.bits(), self.digits.bits());
        let more =
            u32::try_from(length.max(QUOTIENT_DIGITS + length.saturating_sub(bits))).map_err(|_| Unfit::Beyond)?;
        let scaled = &self.digits * BigInt::from(10).pow(more);
        let exponent = self.exponent - divisor.exponent - i32::try_from(more).map_err(|_| Unfit::Beyond)?;
        let quotient = Self::new(&scaled / &divisor.digits, exponent);
        let ends = (&scaled % &divisor.digits).sign() == Sign::NoSign;
        if let Some(value) = quotient.value().filter(|_| ends) {
            return Ok(value);
        }
        let double = format!("{}e{}", quotient.digits, quotient.exponent).parse::<f64>().map_err(|_| Unfit::Beyond)?;
        let value = Value::from(double);
        match double.is_finite() && double.fract() != 0.0 && !has_short_text(&value) {
            true => Ok(value),
            false => Err(Unfit::Beyond), // it would read as another number, and not as a rounded one
        }
    }

    fn is_long(&self) -> bool {
        self.exponent < 0 && self.digits.magnitude().to_string().len() > SHORT
    }
}

fn has_short_text(value: &Value) -> bool {
    Decimal::of(value).is_none_or(|decimal| decimal.digits.magnitude().to_string().len() <= SHORT)
}

/// Whether one of the doubles around this one, but not this one, has a short text.
fn is_beside_short(value: &Value) -> bool {
    let Some(bits) = double(value).map(f64::to_bits).filter(|_| !has_short_text(value)) else { return false };
    (bits.saturating_sub(3)..=bits.saturating_add(3)).any(|bits| has_short_text(&Value::from(f64::from_bits(bits))))
}
