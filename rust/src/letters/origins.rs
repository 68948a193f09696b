//! From plain text back to the text that it was made from.

use super::{folded, is_mark, lettered, plain, seen, NFKC};

/// Where the spans of a text's plain (or folded) form stand in the text itself, in code points.
///
/// A span that ends beyond the form ends as far beyond the text.
pub fn in_content(text: &str, is_json: bool, is_folded: bool, spans: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let origins = origins(text, is_json, is_folded);
    let (length, count) = (text.chars().count(), origins.len());
    let start = |at: usize| origins.get(at).map_or(length + at.saturating_sub(count), |origin| origin.0);
    let end = |at: usize| match at.checked_sub(1).and_then(|before| origins.get(before)) {
        Some(origin) => origin.1,
        None => length + at.saturating_sub(count),
    };
    spans.iter().map(|(first, last)| (start(*first), end(*last))).collect()
}

/// For each character of the plain (or folded) form, where what it was made from begins and ends.
fn origins(text: &str, is_json: bool, is_folded: bool) -> Vec<(usize, usize)> {
    let (mut made, mut origins, mut last) = (String::new(), Vec::new(), '\0');
    let seen: Vec<(usize, char)> = seen(text, is_json).collect();
    for piece in seen.chunk_by(|_, (_, next)| !stands_alone(*next)) {
        let (Some((first, _)), Some((end, _))) = (piece.first(), piece.last()) else { continue };
        let characters: String = piece.iter().map(|(_, character)| *character).collect();
        for character in NFKC.normalize(&characters).chars().filter_map(|one| lettered(one, &mut last)) {
            made.push(character);
            let width = if is_folded { folded(character).count() } else { 1 };
            origins.extend(std::iter::repeat_n((*first, end + 1), width));
        }
    }
    if made != plain(text, is_json) {
        // Composed across what was taken for a border: rather all of it than too little.
        origins.fill((0, text.chars().count()));
    }
    origins
}

/// Whether nothing of `character` is composed with what stands before it.
fn stands_alone(character: char) -> bool {
    let mut buffer = [0; 4];
    let first = NFKC.normalize(character.encode_utf8(&mut buffer)).chars().next();
    character.is_ascii() || first.is_some_and(|first| !is_mark(first) && !('\u{1160}'..='\u{11FF}').contains(&first))
}
