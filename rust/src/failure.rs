//! Failures: of a policy set at load, and of one view at evaluation.
//!
//! Neither contains a value from an input: codes are literals, positions are those of the policy [ENG-9].
#![forbid(unsafe_code)]

use regorus::unstable::Span;

/// A policy set that is refused at load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFault {
    /// A stable code, `policy.…`.
    pub code: &'static str,
    /// The module's path as it was given, or empty.
    pub path: String,
    /// From 1, or 0 where there is none.
    pub line: u32,
    /// From 1, or 0 where there is none.
    pub column: u32,
    /// One line, for the author.
    pub message: String,
}

impl PolicyFault {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self::at(code, "", 0, 0, message)
    }

    pub fn at(code: &'static str, path: &str, line: u32, column: u32, message: impl Into<String>) -> Self {
        Self { code, path: path.to_owned(), line, column, message: message.into() }
    }

    /// A fault at a place of a module that was parsed.
    pub fn at_span(code: &'static str, span: &Span, message: impl Into<String>) -> Self {
        Self::at(code, span.source.get_path(), span.line, column(span), message)
    }

    /// What this engine does not do; `message` says what to write instead.
    pub fn unsupported(span: &Span, message: impl Into<String>) -> Self {
        Self::at_span("policy.unsupported", span, message)
    }

    pub fn with_function(span: &Span) -> Self {
        Self::at_span("policy.with-function", span, "`with` may replace parts of input or data only")
    }

    /// The fault behind an error of the engine's parser or analyser, whose text shows an excerpt:
    /// `\n--> path:line:col\n  |\n5 | source\n  | ^\nerror: message`.
    pub fn from_engine(code: &'static str, error: &anyhow::Error) -> Self {
        let text = error.to_string();
        let (path, line, column) = position(&text).unwrap_or_default();
        let message = text
            .lines()
            .find_map(|l| l.strip_prefix("error: "))
            .unwrap_or_else(|| text.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or("refused by the parser"));
        // Names that the author did not write.
        let message = if message.contains("`cmf_") { "what is taken apart has no value" } else { message };
        Self::at(code, &path, line, column, message)
    }
}

/// Path, line and column from the first lines of an engine error, which shows the line.
pub fn position(text: &str) -> Option<(String, u32, u32)> {
    let mut lines = text.trim_start().lines();
    let (rest, column) = lines.next()?.strip_prefix("--> ")?.rsplit_once(':')?;
    let (path, line) = rest.rsplit_once(':')?;
    let shown = lines.nth(1).and_then(|shown| shown.split_once("| ")).map_or("", |(_, shown)| shown);
    Some((path.to_owned(), line.parse().ok()?, characters(shown, column.parse().ok()?)))
}

/// The column of a place in the text of its line: the engine counts a tab as four.
fn characters(line: &str, column: u32) -> u32 {
    let (mut at, mut passed) = (1, 1);
    for letter in line.chars() {
        if at >= column {
            break;
        }
        at += if letter == '\t' { 4 } else { 1 };
        passed += 1;
    }
    passed + column.saturating_sub(at)
}

/// The column at which a span begins, in characters from 1.
pub fn column(span: &Span) -> u32 {
    let start = usize::try_from(span.start).unwrap_or(usize::MAX);
    let before = span.source.get_contents().get(..start).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    u32::try_from(line.chars().count()).unwrap_or(u32::MAX).saturating_add(1)
}

/// The result of evaluating one view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Canonical JSON of the entrypoint's value: keys sorted, sets as sorted arrays.
    Decided(Vec<u8>),
    Undefined,
    Failed(Failure),
    TimedOut,
}

/// Why a view has no decision. `code` is stable; `detail` names a place in the policy, and never contains input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: &'static str,
    pub detail: String,
}

impl Failure {
    pub fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }
}
