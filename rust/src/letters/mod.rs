//! Text in plain letters, as people and models read it, and where in the text each of them stands.
//!
//! Escapes are what they stand for, characters that nobody sees are left out, compatibility forms (wide, mathematical,
//! circled letters) are replaced by what they stand for (NFKC), and letters that look like Latin ones become these.
//! `folded` is the same in lower case. [`encoded`] finds the texts that base64 and hex in a text spell.
#![forbid(unsafe_code)]

pub mod encoded;
pub mod escapes;
mod look_alikes;
mod origins;
pub mod references;

use crate::json::find;
use icu_normalizer::{ComposingNormalizer, ComposingNormalizerBorrowed};
use icu_properties::props::{DefaultIgnorableCodePoint, GeneralCategory, GeneralCategoryGroup};
use icu_properties::{CodePointMapData, CodePointSetData};
use look_alikes::latin;
use std::borrow::Cow;

pub use origins::in_content;

const NFKC: ComposingNormalizerBorrowed<'static> = ComposingNormalizer::new_nfkc();
/// How often a text is read again for the escapes that reading brought to light.
const MAX_ROUNDS: usize = 6;

/// `text` in plain letters.
pub fn plain(text: &str) -> Cow<'_, str> {
    let mut read = Cow::Borrowed(text);
    for round in 0..MAX_ROUNDS {
        if is_read(&read, round) {
            break;
        }
        read = Cow::Owned(plain_once(&read));
    }
    read
}

/// Whether there is nothing in a text to be read, after so many rounds.
fn is_read(text: &str, round: usize) -> bool {
    if round > 0 {
        return !escapes::any(text);
    }
    next_unread(text, 0).is_none()
}

fn plain_once(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut done = 0;
    while let Some((start, end)) = unread(text, done) {
        plain.push_str(&text[done..start]);
        let seen: String = seen(&text[start..end]).map(|(_, _, character)| character).collect();
        let mut last = '\0';
        plain.extend(NFKC.normalize(&seen).chars().filter_map(|character| lettered(character, &mut last)));
        done = end;
    }
    plain.push_str(&text[done..]);
    plain
}

/// The next stretch of a text that has to be read, with the character before it: marks may belong to that. Nothing is
/// composed with what is ASCII and stands behind it.
fn unread(text: &str, from: usize) -> Option<(usize, usize)> {
    let place = next_unread(text, from)?;
    let mut end = place;
    while let Some(first) = text[end..].chars().next() {
        end += match escapes::first(&text[end..]) {
            Some((_, length)) => length,
            None if !first.is_ascii() || is_unseen(first) => first.len_utf8(),
            None => break,
        };
    }
    Some((if place > from { place - 1 } else { place }, end))
}

fn next_unread(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_sign =
        |byte: u8| !(0x20..0x7f).contains(&byte) && !matches!(byte, b'\t' | b'\n' | b'\r') || escapes::may_begin(byte);
    let mut at = find(bytes, from, is_sign)?;
    while escapes::may_begin(bytes[at]) && escapes::first(&text[at..]).is_none() {
        at = find(bytes, at + 1, is_sign)?;
    }
    Some(at)
}

/// `text` in lower case; of plain text, that of `folded`.
pub fn folded_text(plain: &str) -> String {
    plain.chars().flat_map(folded).collect()
}

/// `character` as it stands in plain text behind `last`, which it becomes; None if it does not stand there.
///
/// A mark that is left on a Latin letter is a stroke through it, or a circle around it: letters with accents have
/// become one character.
fn lettered(character: char, last: &mut char) -> Option<char> {
    if last.is_ascii_alphanumeric() && is_mark(character) {
        return None;
    }
    *last = latin(character);
    Some(*last)
}

/// The characters of `character` in lower case; of one in plain text, those of `folded`.
fn folded(character: char) -> impl Iterator<Item = char> {
    let (first, second) = match character {
        'ß' | 'ẞ' => ('s', Some('s')),
        'ς' => ('σ', None),
        other => (other, None),
    };
    first.to_lowercase().chain(second)
}

/// The characters that somebody sees, each with where it begins and ends in `text`, in code points.
fn seen(text: &str) -> impl Iterator<Item = (usize, usize, char)> + '_ {
    let (mut rest, mut end) = (text, 0);
    std::iter::from_fn(move || loop {
        let first = rest.chars().next()?;
        let start = end;
        let (character, length) = escapes::first(rest).unwrap_or((first, first.len_utf8()));
        end += if length > first.len_utf8() { length } else { 1 }; // escapes are ASCII
        rest = &rest[length..];
        if !is_unseen(character) {
            return Some((start, end, character));
        }
    })
}

fn is_unseen(character: char) -> bool {
    match character {
        '\t' | '\n' | '\r' | ' '..='~' => false,
        '\u{fff9}'..='\u{fffb}' => true, // of annotations between lines, which hardly anything draws
        other => other.is_control() || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(other),
    }
}

fn is_mark(character: char) -> bool {
    !character.is_ascii()
        && GeneralCategoryGroup::Mark.contains(CodePointMapData::<GeneralCategory>::new().get(character))
}
