//! Whether a JSON text differs from what `cmf.json.codec.dumps` writes, or would write, only in spaces between its tokens.
//!
//! Then nothing was lost when it was parsed: no object has a key twice, no number was rounded. The text has to be valid
//! JSON: of other text the answer means nothing, but is safe to ask for.
#![forbid(unsafe_code)]

/// Opening brackets in a text, also in its strings: with so many it cannot be nested more deeply than values may be.
const MAX_BRACKETS: u32 = 64;
/// Keys of one object: of objects with more, a parser that sorts keys tells whether they are distinct.
const MAX_KEYS: usize = 16;
/// Digits up to which every number has its own value: whole numbers, and others.
const WHOLE_DIGITS: usize = 18;
const DIGITS: usize = 15;
/// Bytes that two texts are compared by, as long as they are the same.
const STEP: usize = 16;
/// The longest id of a call that every endpoint accepts.
const TOKEN: usize = 64;
const IN_TOKENS: [bool; 256] = {
    let mut marks = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        marks[byte] = (byte as u8).is_ascii_alphanumeric() || byte == b'_' as usize || byte == b'-' as usize;
        byte += 1;
    }
    marks
};
/// The bytes that matter in a string.
const MARKS: [bool; 256] = {
    let mut marks = [false; 256];
    marks[b'"' as usize] = true;
    marks[b'\\' as usize] = true;
    marks[b'[' as usize] = true;
    marks[b'{' as usize] = true;
    marks
};

/// How many bytes of the text of an object are spaces between tokens; None if it may differ in more than those.
pub fn spaces(text: &[u8]) -> Option<usize> {
    let mut look = Look { text, at: 0, spaces: 0, brackets: 0 };
    look.space();
    if look.peek() != Some(b'{') {
        return None;
    }
    look.value()?;
    look.space();
    (look.at == text.len()).then_some(look.spaces)
}

/// Whether two texts are the same once the spaces of JSON are left out of both, those in strings too.
pub fn same_but_spaces(mut left: &[u8], mut right: &[u8]) -> bool {
    loop {
        // Where both have the same bytes, both can do without them, spaces or not.
        while let (Some((one, after)), Some((other, beyond))) = (left.split_first_chunk(), right.split_first_chunk()) {
            let (one, other): (&[u8; STEP], &[u8; STEP]) = (one, other);
            if one != other {
                break;
            }
            (left, right) = (after, beyond);
        }
        while let ([one, after @ ..], [other, beyond @ ..]) = (left, right) {
            if one != other {
                break;
            }
            (left, right) = (after, beyond);
        }
        (left, right) = (behind_spaces(left), behind_spaces(right));
        if left.first() != right.first() {
            return false;
        }
        if left.is_empty() {
            return true;
        }
    }
}

fn behind_spaces(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\n' | b'\r' | b'\t', after @ ..] = text {
        text = after;
    }
    text
}

/// Whether a text has 1 to `TOKEN` ASCII letters, digits, `_` and `-`, and does not begin with `prefix`.
pub fn is_token(text: &[u8], prefix: &[u8]) -> bool {
    (1..=TOKEN).contains(&text.len())
        && text.iter().all(|byte| IN_TOKENS[usize::from(*byte)])
        && !text.starts_with(prefix)
}

struct Look<'a> {
    text: &'a [u8],
    at: usize,
    spaces: usize,
    brackets: u32,
}

impl<'a> Look<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
            self.spaces += 1;
        }
    }

    fn value(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => {
                self.string()?;
            }
            b'{' => self.nested(Self::object)?,
            b'[' => self.nested(Self::array)?,
            b't' | b'n' => self.at += 4,
            b'f' => self.at += 5,
            _ => self.number()?,
        }
        Some(())
    }

    fn nested(&mut self, look: fn(&mut Self) -> Option<()>) -> Option<()> {
        self.brackets += 1;
        if self.brackets > MAX_BRACKETS {
            return None;
        }
        self.at += 1;
        self.space();
        look(self)
    }

    fn object(&mut self) -> Option<()> {
        let mut keys: [&[u8]; MAX_KEYS] = [b""; MAX_KEYS];
        let mut count = 0;
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        loop {
            let key = self.string()?;
            if keys.get(..count)?.contains(&key) {
                return None;
            }
            *keys.get_mut(count)? = key;
            count += 1;
            self.space();
            self.at += 1; // the colon
            self.space();
            self.value()?;
            if self.ends(b'}')? {
                return Some(());
            }
        }
    }

    fn array(&mut self) -> Option<()> {
        if self.peek()? == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            self.value()?;
            if self.ends(b']')? {
                return Some(());
            }
        }
    }

    /// Whether that bracket is next; otherwise a comma is.
    fn ends(&mut self, bracket: u8) -> Option<bool> {
        self.space();
        let next = self.peek()?;
        self.at += 1;
        if next == bracket {
            return Some(true);
        }
        self.space();
        Some(false)
    }

    /// The bytes between the quotes. Each character has only one accepted spelling, so two strings are equal if their
    /// bytes are.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.at += 1;
        let start = self.at;
        loop {
            while !MARKS[usize::from(self.peek()?)] {
                self.at += 1;
            }
            match self.peek()? {
                b'"' => {
                    let held = self.text.get(start..self.at);
                    self.at += 1;
                    return held;
                }
                b'\\' => {
                    if !matches!(self.text.get(self.at + 1)?, b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't') {
                        return None;
                    }
                    self.at += 2;
                }
                _ => {
                    self.brackets += 1;
                    if self.brackets > MAX_BRACKETS {
                        return None;
                    }
                    self.at += 1;
                }
            }
        }
    }

    fn digits(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.text.get(start..self.at)
    }

    /// A number that is read exactly and in the spelling in which it is written: without an exponent or superfluous
    /// zeros.
    fn number(&mut self) -> Option<()> {
        let negative = self.peek()? == b'-';
        self.at += usize::from(negative);
        let whole = self.digits()?;
        let plain = match self.peek() {
            Some(b'e' | b'E') => false,
            Some(b'.') => {
                self.at += 1;
                let part = self.digits()?;
                let small = whole == b"0" && part.starts_with(b"0000");
                let plain = part == b"0" || !(part.ends_with(b"0") || small);
                plain
                    && whole.len() + part.len() <= DIGITS
                    && !matches!(self.peek(), Some(b'e' | b'E'))
                    && !(negative && whole == b"0" && part == b"0")
            }
            _ => whole.len() <= WHOLE_DIGITS && !(negative && whole == b"0"),
        };
        (plain && !whole.is_empty()).then_some(())
    }
}
