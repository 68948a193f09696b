//! Text in plain letters, as people and models read it, and where in the text each of them stands.
//!
//! Characters that nobody sees are left out, compatibility forms (wide, mathematical, circled letters) are replaced by
//! what they stand for (NFKC), and letters that look like Latin ones become these. `folded` is the same in lower case.
#![forbid(unsafe_code)]

mod look_alikes;
mod origins;

use crate::json::selection::selected;
use icu_normalizer::{ComposingNormalizer, ComposingNormalizerBorrowed};
use icu_properties::props::{DefaultIgnorableCodePoint, GeneralCategory, GeneralCategoryGroup};
use icu_properties::{CodePointMapData, CodePointSetData};
use look_alikes::latin;
use std::borrow::Cow;

pub use origins::in_content;

const NFKC: ComposingNormalizerBorrowed<'static> = ComposingNormalizer::new_nfkc();

/// The JSON of a view with `plain`, if that differs from its `content`, and with `folded`, as far as asked for; None
/// if nothing is added.
pub fn with_letters(view: &[u8], plain_asked: bool, folded_asked: bool) -> Option<Vec<u8>> {
    let (written, is_json) = content_of(view)?;
    let as_written = is_plain_as_written(&written);
    if as_written && !folded_asked {
        return None;
    }
    let content: String = serde_json::from_slice(&written).ok()?;
    let plain = if as_written { Cow::Borrowed(content.as_str()) } else { plain(&content, is_json) };
    let mut whole = Vec::from(view.strip_suffix(b"}")?);
    if plain_asked && plain != content {
        whole.extend_from_slice(b",\"plain\":");
        serde_json::to_writer(&mut whole, &plain).ok()?;
    }
    if folded_asked {
        whole.extend_from_slice(b",\"folded\":");
        serde_json::to_writer(&mut whole, &plain.chars().flat_map(folded).collect::<String>()).ok()?;
    }
    whole.push(b'}');
    (whole.len() > view.len()).then_some(whole)
}

/// `content` as it is written in the JSON of a view, and whether that text is JSON itself.
fn content_of(view: &[u8]) -> Option<(Vec<u8>, bool)> {
    let member = selected(view, &["content"])?;
    let written = member.strip_prefix(b"{\"content\":")?.strip_suffix(b"}")?.to_vec();
    let is_json = selected(view, &["mime_type"])? == br#"{"mime_type":"application/json"}"#;
    Some((written, is_json))
}

/// Whether a JSON string has only ASCII that everybody sees, so that its text is plain.
fn is_plain_as_written(written: &[u8]) -> bool {
    let mut escapes = written.iter().zip(written.get(1..).unwrap_or_default());
    written.iter().all(|byte| byte.is_ascii() && *byte != 0x7f)
        && !escapes.any(|(first, second)| *first == b'\\' && matches!(second, b'u' | b'b' | b'f'))
}

/// `text` in plain letters.
pub fn plain(text: &str, is_json: bool) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte.is_ascii() && !is_unseen(char::from(byte))) && !(is_json && text.contains("\\u")) {
        return Cow::Borrowed(text);
    }
    let seen: String = seen(text, is_json).map(|(_, character)| character).collect();
    let mut plain = String::with_capacity(seen.len());
    let mut last = '\0';
    plain.extend(NFKC.normalize(&seen).chars().filter_map(|character| lettered(character, &mut last)));
    Cow::Owned(plain)
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

/// The characters that somebody sees, each with its index in `text`; of JSON, without those that are escaped there.
fn seen(text: &str, is_json: bool) -> impl Iterator<Item = (usize, char)> + '_ {
    let mut hidden = 0_usize; // characters of an escape that are still to be left out
    let mut escaped = false; // whether the last character was a backslash that escapes this one
    text.char_indices().enumerate().filter_map(move |(index, (at, character))| {
        if hidden > 0 {
            hidden -= 1;
            return None;
        }
        if is_json {
            if character == '\\' && !escaped && escapes_unseen(&text[at..]) {
                hidden = 5;
                return None;
            }
            escaped = character == '\\' && !escaped;
        }
        (!is_unseen(character)).then_some((index, character))
    })
}

/// Whether an escape of JSON begins here that stands for a character nobody sees.
fn escapes_unseen(rest: &str) -> bool {
    let digits = rest.strip_prefix("\\u").and_then(|digits| digits.get(..4));
    let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    code.and_then(char::from_u32).is_some_and(is_unseen)
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
