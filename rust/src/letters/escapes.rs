//! Escapes that stand for one character: of JSON and of program text, in addresses, in HTML.
#![forbid(unsafe_code)]

use super::references::reference;
use crate::json::find;

/// Backslashes before an escape: it may stand in a text within texts.
const MAX_BACKSLASHES: usize = 16;

/// Whether there is an escape in a text.
pub fn any(text: &str) -> bool {
    let mut from = 0;
    while let Some(at) = find(text.as_bytes(), from, may_begin) {
        if first(&text[at..]).is_some() {
            return true;
        }
        from = at + 1;
    }
    false
}

/// Whether an escape may begin with a byte.
pub(crate) fn may_begin(byte: u8) -> bool {
    matches!(byte, b'\\' | b'%' | b'&')
}

/// The character that the escape at the beginning of a text stands for, and the length of the escape.
pub fn first(text: &str) -> Option<(char, usize)> {
    match text.as_bytes().first()? {
        b'\\' => backslashed(text),
        b'%' => percent(text.as_bytes()),
        b'&' => {
            let (sign, length) = reference(text)?;
            let mut characters = sign.chars();
            characters.next().filter(|_| characters.next().is_none()).map(|character| (character, length))
        }
        _ => None,
    }
}

fn backslashed(text: &str) -> Option<(char, usize)> {
    let slashes = text.bytes().take(MAX_BACKSLASHES).take_while(|byte| *byte == b'\\').count();
    let rest = &text[slashes..];
    let (point, length) = match rest.as_bytes().first()? {
        b'u' if rest.as_bytes().get(1) == Some(&b'{') => {
            let digits = rest.bytes().skip(2).take(9).position(|byte| byte == b'}')?;
            (hexadecimal(&rest.as_bytes()[2..], digits)?, digits + 3)
        }
        b'u' => (hexadecimal(&rest.as_bytes()[1..], 4)?, 5),
        b'U' => (hexadecimal(&rest.as_bytes()[1..], 8)?, 9),
        b'x' => (hexadecimal(&rest.as_bytes()[1..], 2)?, 3),
        _ => return None,
    };
    if let 0xd800..=0xdbff = point {
        let low = &rest[length..];
        let more = low.bytes().take(MAX_BACKSLASHES).take_while(|byte| *byte == b'\\').count();
        let second = hexadecimal(low[more..].strip_prefix('u').filter(|_| more > 0)?.as_bytes(), 4)?;
        let whole = 0x10000 + ((point - 0xd800) << 10) + second.checked_sub(0xdc00)?;
        return char::from_u32(whole).map(|character| (character, slashes + length + more + 5));
    }
    char::from_u32(point).map(|character| (character, slashes + length))
}

fn hexadecimal(bytes: &[u8], count: usize) -> Option<u32> {
    let digits = bytes.get(..count).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// A byte of ASCII, or all bytes of another character in UTF-8.
fn percent(bytes: &[u8]) -> Option<(char, usize)> {
    let byte = |at: usize| {
        let escape = bytes.get(3 * at..)?.strip_prefix(b"%")?;
        u8::try_from(hexadecimal(escape, 2)?).ok()
    };
    let first = byte(0)?;
    let count = match first {
        0..0x80 => 1,
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    };
    let spelled = (0..count).map(byte).collect::<Option<Vec<u8>>>()?;
    std::str::from_utf8(&spelled).ok()?.chars().next().map(|character| (character, 3 * count))
}
