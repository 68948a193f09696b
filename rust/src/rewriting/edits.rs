//! Changes to the text of a module, and where in that text its parts stand. All places are byte offsets.
#![forbid(unsafe_code)]

use regorus::unstable::{Module, Query, RuleAssign, RuleHead, Span};

/// New text in the place of some bytes of a module.
#[derive(Clone)]
pub struct Edit {
    pub start: usize,
    pub end: usize,
    pub text: String,
}

impl Edit {
    /// Text put in before the byte at `at`.
    pub fn insertion(at: usize, text: impl Into<String>) -> Self {
        Self { start: at, end: at, text: text.into() }
    }
}

/// The module's text with `edits` applied, or None if there are none.
pub fn apply(module: &Module, mut edits: Vec<Edit>) -> Option<String> {
    if edits.is_empty() {
        return None;
    }
    edits.sort_by_key(|edit| (edit.start, edit.end));
    let source = module.package.span.source.get_contents();
    spliced(source, 0, source.len(), &edits)
}

/// The text from `start` to `end` with `edits` applied, which are in order.
pub fn spliced(source: &str, start: usize, end: usize, edits: &[Edit]) -> Option<String> {
    let mut text = String::with_capacity(end.saturating_sub(start) + 64 * edits.len());
    let mut at = start;
    for edit in edits {
        text.push_str(source.get(at..edit.start)?);
        text.push_str(&edit.text);
        at = edit.end;
    }
    text.push_str(source.get(at..end)?);
    Some(text)
}

/// The bytes of a span. The parser's span of a string leaves its quotes out, also where a string begins or ends
/// something.
pub fn range(span: &Span) -> Option<(usize, usize)> {
    let (mut start, mut end) = (usize::try_from(span.start).ok()?, usize::try_from(span.end).ok()?);
    let source = span.source.get_contents().as_bytes();
    let is_quote = |at: usize| matches!(source.get(at), Some(b'"' | b'`'));
    if is_quote(start.wrapping_sub(1)) {
        start -= 1;
    }
    if is_quote(end) {
        end += 1;
    }
    Some((start, end))
}

/// The bytes of the value that a head gives: behind `contains`, `:=` or `=`.
pub fn head_value(head: &RuleHead) -> Option<(usize, usize)> {
    match head {
        RuleHead::Set { span, refr, key: Some(_) } => {
            let (start, end) = range(span)?;
            let after_name = range(refr.span())?.1;
            let word = span.source.get_contents().get(after_name..end)?.find("contains")?;
            let value = after_name + word + "contains".len();
            (value > start).then_some((value, end))
        }
        RuleHead::Compr { assign: Some(assign), .. } | RuleHead::Func { assign: Some(assign), .. } => {
            assigned_value(assign)
        }
        _ => None,
    }
}

/// The bytes behind `:=` or `=`.
pub fn assigned_value(assign: &RuleAssign) -> Option<(usize, usize)> {
    let (start, end) = range(&assign.span)?;
    let operator = if assign.span.text().starts_with(":=") { 2 } else { 1 };
    Some((start + operator, end))
}

/// Whether a body has braces around it: `if …` without braces is one statement.
pub fn is_braced(query: &Query) -> bool {
    let first = query.stmts.first().and_then(|first| range(&first.span));
    query.span.text().starts_with('{') && range(&query.span).zip(first).is_some_and(|(all, first)| first.0 > all.0)
}

/// Puts braces around a body that has none. `before` is the number of edits that are not of this body.
pub fn add_braces(query: &Query, before: usize, edits: &mut Vec<Edit>) {
    if let Some((start, end)) = range(&query.span).filter(|_| !is_braced(query)) {
        edits.insert(before, Edit::insertion(start, "{ "));
        edits.push(Edit::insertion(end, " }"));
    }
}

/// Makes `condition` the last of a body.
pub fn add_condition(query: &Query, condition: &str, edits: &mut Vec<Edit>) {
    let Some((_, end)) = range(&query.span).filter(|_| !query.stmts.is_empty()) else { return };
    if is_braced(query) {
        edits.push(Edit::insertion(end - 1, format!("; {condition} ")));
    } else {
        edits.push(Edit::insertion(end, format!("; {condition}")));
        add_braces(query, edits.len() - 1, edits);
    }
}

/// As many line breaks as a text has: put in where that text is removed, so that what follows stays on its line.
pub fn line_breaks(text: &str) -> String {
    "\n".repeat(text.matches('\n').count())
}

/// The words of a text, also those in strings and comments.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
}

/// Where the next token begins, at `at` or after it: blanks and comments are skipped.
pub fn skip_blanks(source: &str, mut at: usize) -> usize {
    let bytes = source.as_bytes();
    while let Some(byte) = bytes.get(at) {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => at += 1,
            b'#' => at += bytes[at..].iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len() - at),
            _ => break,
        }
    }
    at
}

/// The text on one line and without comments; None where a line break has a meaning: in a raw string, and where a `|`
/// stands, which may begin the body of a comprehension.
pub fn on_one_line(text: &str) -> Option<String> {
    let (mut made, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(next) = rest.chars().next() {
        let length = match next {
            '"' => string_length(rest),
            '`' => rest.get(1..)?.find('`')? + 2,
            '#' => rest.find('\n').unwrap_or(rest.len()),
            other => other.len_utf8(),
        };
        let (part, behind) = rest.split_at_checked(length)?;
        match next {
            '#' => {}
            '\n' => made.push(' '),
            '`' if part.contains('\n') => return None,
            '|' if text.contains('\n') => return None,
            _ => made.push_str(part),
        }
        rest = behind;
    }
    Some(made)
}

/// Where the bracket at `open` closes.
pub fn closing(source: &str, open: usize) -> Option<usize> {
    let (mut at, mut depth) = (open, 0_u32);
    loop {
        let rest = source.get(at..)?;
        at += match rest.chars().next()? {
            '"' => string_length(rest),
            '`' => rest.get(1..)?.find('`')? + 2,
            '[' | '(' | '{' => {
                depth += 1;
                1
            }
            ']' | ')' | '}' if depth == 1 => return Some(at),
            ']' | ')' | '}' => {
                depth -= 1;
                1
            }
            other => other.len_utf8(),
        };
    }
}

/// Bytes of the string literal that `text` begins with, with its quotes.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}
