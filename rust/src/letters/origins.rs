//! From plain text back to the text that it was made from.

use super::{folded, is_mark, is_read, lettered, plain_once, seen, unread, MAX_ROUNDS, NFKC};
use std::borrow::Cow;

/// Where the spans of a text's plain (or folded) form stand in the text itself, in code points.
///
/// A span that ends beyond the form ends as far beyond the text.
pub fn in_content(text: &str, is_folded: bool, spans: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let origins = origins(text, is_folded);
    let (length, count) = (text.chars().count(), origins.len());
    let start = |at: usize| origins.get(at).map_or(length + at.saturating_sub(count), |origin| origin.0);
    let end = |at: usize| match at.checked_sub(1).and_then(|before| origins.get(before)) {
        Some(origin) => origin.1,
        None => length + at.saturating_sub(count),
    };
    spans.iter().map(|(first, last)| (start(*first), end(*last))).collect()
}

/// For each character of the plain (or folded) form, where what it was made from begins and ends.
fn origins(text: &str, is_folded: bool) -> Vec<(usize, usize)> {
    let mut origins: Vec<_> = (0..text.chars().count()).map(|at| (at, at + 1)).collect();
    let mut read = Cow::Borrowed(text);
    for round in 0..MAX_ROUNDS {
        if is_read(&read, round) {
            break;
        }
        let next = plain_once(&read);
        let made = origins_once(&read, &next);
        origins = made.into_iter().map(|(start, end)| (origins[start].0, origins[end - 1].1)).collect();
        read = Cow::Owned(next);
    }
    if is_folded {
        let widths = read.chars().map(|character| folded(character).count());
        origins = origins.iter().zip(widths).flat_map(|(origin, width)| std::iter::repeat_n(*origin, width)).collect();
    }
    origins
}

fn origins_once(text: &str, plain: &str) -> Vec<(usize, usize)> {
    let (mut made, mut origins) = (String::new(), Vec::new());
    let (mut done, mut point) = (0, 0); // the same place, in bytes and in code points
    let as_it_is = |made: &mut String, origins: &mut Vec<_>, point: &mut usize, stretch: &str| {
        made.push_str(stretch);
        origins.extend((*point..).take(stretch.len()).map(|at| (at, at + 1))); // ASCII
        *point += stretch.len();
    };
    while let Some((start, end)) = unread(text, done) {
        as_it_is(&mut made, &mut origins, &mut point, &text[done..start]);
        let (seen, mut last): (Vec<(usize, usize, char)>, _) = (seen(&text[start..end]).collect(), '\0');
        for piece in seen.chunk_by(|_, (_, _, next)| !stands_alone(*next)) {
            let (Some((first, ..)), Some((_, behind, _))) = (piece.first(), piece.last()) else { continue };
            let characters: String = piece.iter().map(|(_, _, character)| *character).collect();
            for character in NFKC.normalize(&characters).chars().filter_map(|one| lettered(one, &mut last)) {
                made.push(character);
                origins.push((point + first, point + behind));
            }
        }
        point += text[start..end].chars().count();
        done = end;
    }
    as_it_is(&mut made, &mut origins, &mut point, &text[done..]);
    if made != plain {
        // Composed across what was taken for a border: rather all of it than too little.
        origins = vec![(0, text.chars().count()); plain.chars().count()];
    }
    origins
}

/// Whether nothing of `character` is composed with what stands before it.
fn stands_alone(character: char) -> bool {
    let mut buffer = [0; 4];
    let first = NFKC.normalize(character.encode_utf8(&mut buffer)).chars().next();
    character.is_ascii() || first.is_some_and(|first| !is_mark(first) && !('\u{1160}'..='\u{11FF}').contains(&first))
}
