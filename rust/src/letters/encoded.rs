//! Texts that base64 and hex spell, and where in a text they stand.
//!
//! A run is of the letters of base64 (of either alphabet) and has a word long enough to be no word. It is read with what
//! stands around it, lines and blanks left out, from each of its first four letters on: nobody has to say where it begins.
//! What stands around it may be no part of it, so each word and each block of even lines is read by itself, too.
#![forbid(unsafe_code)]

use std::collections::HashSet;

/// Letters of a word that may be encoded: 16 spell 12 bytes, less says nothing.
pub const SHORTEST: usize = 16;
/// Digits of hexadecimal that may be text.
const SHORTEST_HEX: usize = 32;
/// Characters of a text among bytes: shorter ones are in random bytes, too.
const READABLE: usize = 12;
/// Characters of a text that is all that a run spells.
const READABLE_ALONE: usize = 8;

/// A text that is spelled, and where its spelling begins and ends, in bytes.
pub struct Piece {
    pub text: String,
    pub span: (usize, usize),
}

/// The texts that are encoded in a text.
pub fn pieces(text: &str) -> Vec<Piece> {
    let bytes = text.as_bytes();
    let (mut found, mut done) = (Vec::new(), 0);
    if is_one_run(bytes) {
        Run::of(bytes, (0, bytes.len())).read_all(&mut found);
        return found;
    }
    while let Some(at) = long_word(bytes, done) {
        let run = (start_of_run(bytes, at, done), end_of_run(bytes, at));
        Run::of(bytes, run).read_all(&mut found);
        done = run.1;
    }
    found
}

/// Whether there may be something encoded in a text.
pub fn any(bytes: &[u8]) -> bool {
    long_word(bytes, 0).is_some() || is_one_run(bytes)
}

/// Whether a text is nothing but one run, in words of whatever length.
fn is_one_run(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some((byte, more)) = rest.split_first() {
        rest = match byte {
            byte if is_letter(*byte) || is_blank(*byte) || *byte == b'=' => more,
            _ => match line_end(rest) {
                Some(length) => &rest[length..],
                None => return false,
            },
        };
    }
    bytes.len() >= SHORTEST
}

/// Where the first long word begins, from a place on: no letter of it is looked at that need not be.
fn long_word(bytes: &[u8], from: usize) -> Option<usize> {
    let mut start = from;
    while let Some(window) = bytes.get(start..start + SHORTEST) {
        match window.iter().rposition(|byte| !is_letter(*byte)) {
            Some(last) => start += last + 1,
            None => return Some(start),
        }
    }
    None
}

fn start_of_run(bytes: &[u8], at: usize, done: usize) -> usize {
    let before = bytes[done..at].iter().rposition(|byte| !is_letter(*byte) && !is_blank(*byte));
    before.map_or(done, |place| done + place + 1)
}

fn end_of_run(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(byte) = bytes.get(at) {
        match byte {
            byte if is_letter(*byte) || is_blank(*byte) => at += 1,
            b'\\' => match line_end(&bytes[at..]) {
                Some(length) => at += length,
                None => break,
            },
            _ => break,
        }
    }
    at
}

/// The length of the escape of a blank at the beginning of a text, as it stands in JSON, or in JSON within that.
fn line_end(bytes: &[u8]) -> Option<usize> {
    let slashes = bytes.iter().take(8).take_while(|byte| **byte == b'\\').count();
    (slashes > 0 && matches!(bytes.get(slashes), Some(b'n' | b'r' | b't'))).then_some(slashes + 1)
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// The letters of a run, and the place of each.
struct Run<'a> {
    bytes: &'a [u8],
    letters: Vec<(u8, usize)>,
}

impl<'a> Run<'a> {
    fn of(bytes: &'a [u8], (mut at, end): (usize, usize)) -> Self {
        let mut letters = Vec::with_capacity(end - at);
        while at < end {
            match bytes[at] {
                b'\\' => at += line_end(&bytes[at..]).unwrap_or(1),
                byte => {
                    if is_letter(byte) {
                        letters.push((byte, at));
                    }
                    at += 1;
                }
            }
        }
        Self { bytes, letters }
    }

    /// Adds what the run spells, and what its words and blocks spell by themselves where that is something else.
    fn read_all(&self, found: &mut Vec<Piece>) {
        let before = found.len();
        self.read(found);
        let parts = self.words_and_blocks();
        if parts.is_empty() {
            return;
        }
        let mut told: HashSet<_> = found[before..].iter().map(|piece| piece.span).collect();
        for part in parts {
            let mut own = Vec::new();
            Run { bytes: self.bytes, letters: part.to_vec() }.read(&mut own);
            found.extend(own.into_iter().filter(|piece| told.insert(piece.span)));
        }
    }

    /// The long words of a run of several, and its blocks: lines of one length, of which the last may be shorter.
    fn words_and_blocks(&self) -> Vec<&[(u8, usize)]> {
        let (mut parts, mut first, mut at, mut words, mut open) = (Vec::new(), 0, 0, 0, true);
        let mut line = 0;
        for word in self.letters.chunk_by(|one, next| one.1 + 1 == next.1) {
            let length = word.len();
            if !(open && length <= line) {
                if words > 1 {
                    parts.push(&self.letters[first..at]);
                }
                (first, line, words) = (at, length, 0);
            }
            open = length == line;
            (at, words) = (at + length, words + 1);
            if length >= SHORTEST {
                parts.push(word);
            }
        }
        if words > 1 {
            parts.push(&self.letters[first..]);
        }
        parts.retain(|part| part.len() >= SHORTEST && part.len() < self.letters.len());
        parts
    }

    fn read(&self, found: &mut Vec<Piece>) {
        let whole: Vec<u8> = self.letters.iter().map(|(letter, _)| sextet(*letter)).collect();
        for phase in 0..whole.len().min(4) {
            let spelled = from_sextets(&whole[phase..]);
            // Of the letters of a byte, the first and the one behind the last.
            let place = |at: usize| phase + at / 3 * 4 + at % 3;
            if self.texts(&spelled, phase == 0, |start, end| (place(start), place(end - 1) + 2), found) {
                break;
            }
        }
        let is_digit = |(letter, _): &(u8, usize)| letter.is_ascii_hexdigit();
        let mut first = 0;
        for digits in self.letters.chunk_by(|one, next| is_digit(one) == is_digit(next)) {
            if digits.len() >= SHORTEST_HEX && digits.first().is_some_and(is_digit) {
                for phase in 0..2 {
                    let spelled = from_hex(&digits[phase..]);
                    let place = |at: usize| first + phase + 2 * at;
                    if self.texts(&spelled, phase == 0, |start, end| (place(start), place(end)), found) {
                        break;
                    }
                }
            }
            first += digits.len();
        }
    }

    /// Adds the texts among bytes; says whether the bytes are one text. `letters` has which of them spell some bytes.
    fn texts(
        &self,
        spelled: &[u8],
        may_be_whole: bool,
        letters: impl Fn(usize, usize) -> (usize, usize),
        found: &mut Vec<Piece>,
    ) -> bool {
        let mut at = 0;
        for chunk in spelled.utf8_chunks() {
            let valid = chunk.valid();
            // Text in UTF-16 has zeros between its letters.
            for text in valid.split(|sign: char| sign.is_control() && !matches!(sign, '\0' | '\t' | '\n' | '\r')) {
                let start = at + (text.as_ptr() as usize - valid.as_ptr() as usize);
                let is_whole = may_be_whole && text.len() == spelled.len();
                let least = if is_whole { READABLE_ALONE } else { READABLE };
                if text.len() >= least && text.chars().filter(|sign| *sign != '\0').take(least).count() == least {
                    let (first, end) = letters(start, start + text.len());
                    found.push(Piece { text: text.to_owned(), span: self.span(first, end) });
                    if is_whole {
                        return true;
                    }
                }
            }
            at += valid.len() + chunk.invalid().len();
        }
        false
    }

    /// Where letters stand in the text, with what fills their last group up.
    fn span(&self, first: usize, end: usize) -> (usize, usize) {
        let last = end.min(self.letters.len()) - 1;
        let mut until = self.letters[last].1 + 1;
        while last + 1 == self.letters.len() && self.bytes.get(until) == Some(&b'=') {
            until += 1;
        }
        (self.letters[first].1, until)
    }
}

fn sextet(letter: u8) -> u8 {
    match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' | b'-' => 62,
        _ => 63,
    }
}

fn from_sextets(sextets: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(sextets.len());
    for group in sextets.chunks(4) {
        let bits = group.iter().fold(0_u32, |bits, sextet| bits << 6 | u32::from(*sextet)) << (6 * (4 - group.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len().max(1)]);
    }
    bytes
}

fn from_hex(digits: &[(u8, usize)]) -> Vec<u8> {
    let digit = |letter: u8| char::from(letter).to_digit(16).map_or(0, |digit| digit as u8);
    digits.chunks_exact(2).map(|pair| digit(pair[0].0) << 4 | digit(pair[1].0)).collect()
}
