//! Translation of patterns from OPA's dialect, RE2, into that of Rust's `regex` [ENG-14].
//!
//! In RE2 `\d`, `\w`, `\s` and `\b` are ASCII, a class has no operators and no nested classes, and a brace that is not
//! a repetition stands for itself. What only one of the two dialects accepts is refused.
#![forbid(unsafe_code)]

/// The largest repetition that RE2 accepts.
const MAX_REPEAT: u32 = 1_000;

const DIGIT: &str = "0-9";
const SPACE: &str = r"\t\n\f\r ";
const WORD: &str = "0-9A-Za-z_";

const NAMED: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// Why a pattern is refused, and what to write instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreign {
    pub what: &'static str,
    pub instead: &'static str,
}

const fn foreign<T>(what: &'static str, instead: &'static str) -> Result<T, Foreign> {
    Err(Foreign { what, instead })
}

/// The pattern in Rust's dialect, with the meaning that it has in OPA.
pub fn translate(pattern: &str) -> Result<String, Foreign> {
    let mut reader = Reader { rest: pattern, out: String::with_capacity(pattern.len() + 16), repeated: true };
    reader.run()?;
    Ok(reader.out)
}

struct Reader<'a> {
    rest: &'a str,
    out: String,
    /// Whether a repetition may not follow: after another one, and where there is nothing to repeat.
    repeated: bool,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<char> {
        let char = self.rest.chars().next()?;
        self.rest = &self.rest[char.len_utf8()..];
        Some(char)
    }

    fn takes(&mut self, text: &str) -> bool {
        self.rest.strip_prefix(text).map(|rest| self.rest = rest).is_some()
    }

    fn run(&mut self) -> Result<(), Foreign> {
        while let Some(char) = self.next() {
            match char {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => self.group()?,
                '*' | '+' | '?' => self.repetition(&char.to_string())?,
                '{' => match self.braces()? {
                    Some(text) => self.repetition(&text)?,
                    None => self.atom(r"\{"),
                },
                '|' => {
                    self.out.push('|');
                    self.repeated = false;
                }
                other => {
                    self.out.push(other);
                    self.repeated = false;
                }
            }
        }
        Ok(())
    }

    fn atom(&mut self, text: &str) {
        self.out.push_str(text);
        self.repeated = false;
    }

    fn repetition(&mut self, text: &str) -> Result<(), Foreign> {
        if self.repeated {
            return foreign("a repetition of nothing or of a repetition", "put what is repeated into a group");
        }
        self.out.push_str(text);
        if self.takes("?") {
            self.out.push('?');
        }
        self.repeated = true;
        Ok(())
    }

    /// `{n}`, `{n,}` or `{n,m}` as it is written; None for a brace that stands for itself in RE2.
    fn braces(&mut self) -> Result<Option<String>, Foreign> {
        let Some(end) = self.rest.find('}') else { return Ok(None) };
        let inside = &self.rest[..end];
        let (least, most) = inside.split_once(',').unwrap_or((inside, ""));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(least) || !(most.is_empty() || is_number(most)) {
            return Ok(None);
        }
        let too_many = |text: &str| text.parse::<u32>().map_or(!text.is_empty(), |n| n > MAX_REPEAT);
        if too_many(least) || too_many(most) {
            return foreign("a repetition of more than 1000", "repeat a group of repetitions");
        }
        let text = format!("{{{inside}}}");
        self.rest = &self.rest[end + 1..];
        Ok(Some(text))
    }

    fn group(&mut self) -> Result<(), Foreign> {
        self.repeated = true;
        if !self.takes("?") {
            self.out.push('(');
            return Ok(());
        }
        let named = self.rest.strip_prefix("P<").or_else(|| self.rest.strip_prefix('<'));
        if let Some(name) = named.filter(|name| !name.starts_with(['=', '!'])) {
            self.out.push_str("(?P<");
            self.rest = name;
            return Ok(());
        }
        let Some(end) = self.rest.find([':', ')']) else {
            return foreign("a group without an end", "close it");
        };
        let flags = &self.rest[..end];
        if !flags.bytes().all(|b| matches!(b, b'i' | b'm' | b's' | b'U' | b'-')) {
            return foreign("a group or flag that RE2 has not", "use (?:…), (?P<name>…), and the flags i, m, s and U");
        }
        self.out.push_str("(?");
        self.out.push_str(&self.rest[..=end]);
        self.rest = &self.rest[end + 1..];
        Ok(())
    }

    fn escape(&mut self) -> Result<(), Foreign> {
        let Some(char) = self.next() else { return foreign("a backslash at the end", "write `\\\\`") };
        match char {
            'd' => self.atom(&format!("[{DIGIT}]")),
            'D' => self.atom(&format!("[^{DIGIT}]")),
            's' => self.atom(&format!("[{SPACE}]")),
            'S' => self.atom(&format!("[^{SPACE}]")),
            'w' => self.atom(&format!("[{WORD}]")),
            'W' => self.atom(&format!("[^{WORD}]")),
            'b' => self.atom(r"(?-u:\b)"),
            'B' => self.atom(r"(?-u:\B)"),
            'A' => self.atom(r"\A"),
            'z' => self.atom(r"\z"),
            'Q' => {
                let (quoted, rest) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
                self.rest = rest;
                quoted.chars().for_each(|char| literal(char, &mut self.out));
                self.repeated = quoted.is_empty() && self.repeated;
            }
            other => {
                let text = self.character(other)?;
                self.atom(&text);
            }
        }
        Ok(())
    }

    /// One character or Unicode class after a backslash; the same inside and outside brackets.
    fn character(&mut self, char: char) -> Result<String, Foreign> {
        match char {
            'p' | 'P' => self.unicode_class(char),
            'a' | 'f' | 't' | 'n' | 'r' | 'v' => Ok(format!("\\{char}")),
            'x' => self.hexadecimal(),
            '0'..='7' => self.octal(char),
            '8' | '9' => foreign("a back reference", "write again what is referred to"),
            _ if char.is_ascii_punctuation() => {
                let mut out = String::new();
                literal(char, &mut out);
                Ok(out)
            }
            _ => foreign("an escape that RE2 has not", r"write the character itself, or \x{…}"),
        }
    }

    /// Up to three digits; one that is not 0, alone, would refer back to a group.
    fn octal(&mut self, first: char) -> Result<String, Foreign> {
        let more = self.rest.bytes().take(2).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
        if first != '0' && more == 0 {
            return foreign("a back reference", "write again what is referred to");
        }
        let (digits, rest) = self.rest.split_at(more);
        self.rest = rest;
        let value =
            format!("{first}{digits}").chars().fold(0, |value, digit| value * 8 + digit.to_digit(8).unwrap_or(0));
        Ok(format!("\\x{{{value:x}}}"))
    }

    fn hexadecimal(&mut self) -> Result<String, Foreign> {
        let digits = match self.rest.strip_prefix('{') {
            Some(inside) => inside.split_once('}'),
            None => self.rest.get(..2).map(|digits| (digits, &self.rest[2..])),
        };
        match digits {
            Some((digits, rest)) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
                self.rest = rest;
                Ok(format!("\\x{{{digits}}}"))
            }
            _ => foreign("an escape that RE2 has not", r"write two digits after \x, or \x{…}"),
        }
    }

    fn unicode_class(&mut self, char: char) -> Result<String, Foreign> {
        let name = match self.rest.strip_prefix('{') {
            Some(inside) => inside.split_once('}'),
            None => self.rest.chars().next().map(|name| self.rest.split_at(name.len_utf8())),
        };
        let is_plain = |name: &str| {
            name.starts_with(|first: char| first.is_ascii_uppercase())
                && name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_')
        };
        let is_negated = |name: &str| (char == 'P') != name.starts_with('^');
        match name.map(|(name, rest)| (name.strip_prefix('^').unwrap_or(name), is_negated(name), rest)) {
            Some((name, is_negated, rest)) if is_plain(name) => {
                self.rest = rest;
                Ok(format!("\\{}{{{name}}}", if is_negated { 'P' } else { 'p' }))
            }
            _ => foreign("a class that RE2 has not", r"write \p{…} with a category or script such as L or Greek"),
        }
    }

    /// A class, with every character in it escaped if it could have another meaning.
    fn class(&mut self) -> Result<(), Foreign> {
        let mut out = String::from(if self.takes("^") { "[^" } else { "[" });
        let mut is_first = true;
        loop {
            if self.rest.is_empty() {
                return foreign("a class without an end", "close it with ]");
            }
            if !is_first && self.takes("]") {
                break;
            }
            is_first = false;
            if self.named_class(&mut out)? {
                continue;
            }
            let Some(low) = self.member()? else { return foreign("a class without an end", "close it with ]") };
            out.push_str(&low.text);
            let is_range = low.is_character && self.rest.starts_with('-') && !self.rest.starts_with("-]");
            if is_range {
                self.takes("-");
                match self.member()? {
                    Some(high) if high.is_character => {
                        out.push('-');
                        out.push_str(&high.text);
                    }
                    _ => return foreign("a range that ends in a class", "write the hyphen first or last"),
                }
            }
        }
        out.push(']');
        self.atom(&out);
        Ok(())
    }

    /// `[:alpha:]`, which both have.
    fn named_class(&mut self, out: &mut String) -> Result<bool, Foreign> {
        let Some((name, rest)) = self.rest.strip_prefix("[:").and_then(|inside| inside.split_once(":]")) else {
            return Ok(false);
        };
        if !NAMED.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return foreign("a class that RE2 has not", "write one such as [:alpha:] or its characters");
        }
        out.push_str(&format!("[:{name}:]"));
        self.rest = rest;
        Ok(true)
    }

    fn member(&mut self) -> Result<Option<Member>, Foreign> {
        let Some(char) = self.next() else { return Ok(None) };
        let mut text = String::new();
        if char != '\\' {
            literal(char, &mut text);
            return Ok(Some(Member { text, is_character: true }));
        }
        let Some(escaped) = self.next() else { return foreign("a backslash at the end", "write `\\\\`") };
        let class = |text: String| Ok(Some(Member { text, is_character: false }));
        match escaped {
            'd' => class(DIGIT.to_owned()),
            's' => class(SPACE.to_owned()),
            'w' => class(WORD.to_owned()),
            'D' => class(format!("[^{DIGIT}]")),
            'S' => class(format!("[^{SPACE}]")),
            'W' => class(format!("[^{WORD}]")),
            'p' | 'P' => class(self.unicode_class(escaped)?),
            other => Ok(Some(Member { text: self.character(other)?, is_character: true })),
        }
    }
}

struct Member {
    text: String,
    is_character: bool,
}

/// A character that stands for itself, inside and outside brackets.
fn literal(char: char, out: &mut String) {
    if char.is_ascii_punctuation() && !matches!(char, '<' | '>' | '_') {
        out.push('\\');
    }
    out.push(char);
}
