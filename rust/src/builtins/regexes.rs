//! Builtins for regular expressions, whose searches end at the deadline, with compiled patterns that are shared.
//!
//! regorus copies its compiled patterns; a copy begins without its matching state and builds that again (measured: 2 to
//! 3 µs a call, against 0.1). Patterns mean what they mean in OPA: see [`regex_dialect`].
//!
//! A search is linear in the text, so the clock is looked at between matches [ENG-8]. What a byte costs differs: an
//! automaton whose states are kept takes a nanosecond; one that has too many of them takes one for each state of the
//! pattern. Where that could be long, a search is given up once its automaton does not fit.
#![forbid(unsafe_code)]

use crate::builtins::{beyond, regex_dialect, MAX_RESULT_WEIGHT, MEMBER_BYTES};
use crate::evaluation::watch;
use anyhow::{anyhow, Result};
use regex_automata::hybrid::{dfa, regex as hybrid};
use regex_automata::meta::{self, Regex};
use regex_automata::util::captures::Captures;
use regex_automata::util::interpolate;
use regex_automata::util::iter::Searcher;
use regex_automata::util::prefilter::Prefilter;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, Match, MatchKind, PatternID};
use regorus::unstable::{Expr, Ref, Span};
use regorus::{LimitError, Value};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, OnceLock, RwLock};

/// Bytes of a compiled pattern: the limit of regorus.
const MAX_PATTERN_BYTES: usize = 100 * 1024;
/// Patterns kept: more than a large set has. Since patterns may be made from input, a full cache is emptied.
const MAX_PATTERNS: usize = 8_192;
/// The most states that a pattern of that size has.
const MAX_STATES: usize = 8_192;
/// Bytes of text times states of the pattern that one search may take: about a tenth of a second, if no state is kept.
const MAX_STEPS: usize = 1 << 25;
/// The same for finding the groups of one match, which seldom keeps more than a few states busy.
const MAX_GROUP_STEPS: usize = 1 << 28;
/// How often a long search may fill the memory of its automaton: about 20 ms each time.
const MAX_REFILLS: usize = 4;

pub(crate) struct Pattern {
    text: String,
    regex: Regex,
    lazy: OnceLock<Option<hybrid::Regex>>,
}

impl Pattern {
    fn compile(text: String) -> Result<Self> {
        let config = meta::Config::new().nfa_size_limit(Some(MAX_PATTERN_BYTES));
        let regex = Regex::builder().configure(config).build(&text).map_err(|error| match error.size_limit() {
            Some(limit) => anyhow::Error::new(LimitError::RegexSizeLimitExceeded { limit }),
            None => anyhow!("invalid pattern"),
        })?;
        Ok(Self { text, regex, lazy: OnceLock::new() })
    }

    /// The automaton to search a long text with; None if the text is short enough for any search.
    fn lazy(&self, text: &str) -> Result<Option<(&hybrid::Regex, hybrid::Cache)>> {
        if text.len() <= MAX_STEPS / MAX_STATES {
            return Ok(None);
        }
        let lazy = self.lazy.get_or_init(|| {
            let prefixes = Prefilter::from_hir_prefix(MatchKind::LeftmostFirst, &syntax::parse(&self.text).ok()?);
            let config = dfa::Config::new().minimum_cache_clear_count(Some(MAX_REFILLS)).prefilter(prefixes);
            hybrid::Regex::builder().dfa(config.skip_cache_capacity_check(true)).build(&self.text).ok()
        });
        let lazy = lazy.as_ref().ok_or_else(beyond)?;
        Ok((text.len().saturating_mul(states(lazy)) > MAX_STEPS).then(|| (lazy, lazy.create_cache())))
    }

    pub(crate) fn is_match(&self, text: &str) -> Result<bool> {
        Ok(match self.lazy(text)? {
            None => self.regex.is_match(text),
            Some((lazy, mut cache)) => {
                lazy.try_search(&mut cache, &Input::new(text).earliest(true)).map_err(|_| beyond())?.is_some()
            }
        })
    }

    /// Gives `take` each match of a text, at most `limit`; and its groups, if they are wanted.
    fn each(
        &self,
        text: &str,
        limit: usize,
        with_groups: bool,
        mut take: impl FnMut(Match, &Captures) -> Result<()>,
    ) -> Result<()> {
        let mut lazy = self.lazy(text)?;
        let mut groups = match with_groups {
            true => self.regex.create_captures(),
            false => Captures::matches(self.regex.group_info().clone()),
        };
        let mut searcher = Searcher::new(Input::new(text));
        for count in 0..limit {
            let found = searcher.try_advance(|input| match &mut lazy {
                None => {
                    self.regex.search_captures(input, &mut groups);
                    Ok(groups.get_match())
                }
                Some((lazy, cache)) => lazy.try_search(cache, input),
            });
            let Some(found) = found.map_err(|_| beyond())? else { break };
            if let Some((lazy, _)) = lazy.as_ref().filter(|_| with_groups) {
                if found.len().saturating_mul(states(lazy)) > MAX_GROUP_STEPS {
                    return Err(beyond());
                }
                let place = Input::new(text).span(found.range()).anchored(Anchored::Yes);
                self.regex.search_captures(&place, &mut groups);
            }
            take(found, &groups)?;
            if watch::is_late() {
                return Err(watch::late());
            }
            if count > MAX_RESULT_WEIGHT / MEMBER_BYTES {
                return Err(beyond());
            }
        }
        Ok(())
    }
}

fn states(lazy: &hybrid::Regex) -> usize {
    lazy.forward().get_nfa().states().len()
}

/// Compiled patterns, by what they were made from.
pub(crate) struct Cache<K> {
    compiled: OnceLock<RwLock<HashMap<K, Arc<Pattern>>>>,
}

impl<K: Clone + Eq + Hash> Cache<K> {
    pub(crate) const fn new() -> Self {
        Self { compiled: OnceLock::new() }
    }

    /// The compiled pattern of a key; `pattern_of` gives the pattern, if it was not compiled before.
    pub(crate) fn get(&self, key: &K, pattern_of: impl FnOnce() -> Result<String>) -> Result<Arc<Pattern>> {
        let store = self.compiled.get_or_init(RwLock::default);
        if let Some(found) = store.read().ok().and_then(|kept| kept.get(key).cloned()) {
            return Ok(found);
        }
        let built = Arc::new(Pattern::compile(pattern_of()?)?);
        if let Ok(mut kept) = store.write() {
            if kept.len() >= MAX_PATTERNS {
                kept.clear();
            }
            kept.insert(key.clone(), Arc::clone(&built));
        }
        Ok(built)
    }
}

fn compiled(pattern: &Arc<str>) -> Result<Arc<Pattern>> {
    static CACHE: Cache<Arc<str>> = Cache::new();
    CACHE.get(pattern, || regex_dialect::translate(pattern).map_err(|_| anyhow!("invalid pattern")))
}

fn texts(args: &[Value]) -> Result<(&Arc<str>, &Arc<str>)> {
    match args {
        [Value::String(pattern), Value::String(text), ..] => Ok((pattern, text)),
        _ => Err(anyhow!("not strings")),
    }
}

/// How many matches are wanted: a negative number stands for all.
fn max_matches(args: &[Value]) -> Result<usize> {
    let limit = args.get(2).and_then(|n| n.as_i64().ok()).ok_or_else(|| anyhow!("not an integer"))?;
    Ok(usize::try_from(limit).unwrap_or(usize::MAX))
}

pub fn matches(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let (pattern, text) = texts(args)?;
    compiled(pattern)?.is_match(text).map(Value::Bool)
}

pub fn find_n(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let (pattern, text) = texts(args)?;
    let mut listed = Vec::new();
    compiled(pattern)?.each(text, max_matches(args)?, false, |found, _| {
        listed.push(Value::from(&text[found.range()]));
        Ok(())
    })?;
    Ok(Value::from(listed))
}

pub fn find_groups_n(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let (pattern, text) = texts(args)?;
    let mut listed = Vec::new();
    compiled(pattern)?.each(text, max_matches(args)?, true, |_, groups| {
        let group = |place: Option<regex_automata::Span>| Value::from(place.map_or("", |place| &text[place.range()]));
        listed.push(Value::from(groups.iter().map(group).collect::<Vec<_>>()));
        Ok(())
    })?;
    Ok(Value::from(listed))
}

/// Whether OPA would take the pattern. One that is too large here is an error: OPA would take it.
pub fn is_valid(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let [Value::String(pattern)] = args else { return Ok(Value::Bool(false)) };
    match compiled(pattern) {
        Err(error) if error.downcast_ref::<LimitError>().is_some() => Err(error),
        compiled => Ok(Value::Bool(compiled.is_ok())),
    }
}

/// Why a pattern cannot be used, and what to write instead; None if it can.
pub fn problem(pattern: &str) -> Option<(&'static str, &'static str)> {
    if let Err(foreign) = regex_dialect::translate(pattern) {
        return Some((foreign.what, foreign.instead));
    }
    match compiled(&pattern.into()) {
        Ok(_) => None,
        Err(error) if error.downcast_ref::<LimitError>().is_some() => {
            Some(("too large when it is compiled", "repeat less, and classes of Unicode least"))
        }
        Err(_) => Some(("no pattern", "correct it")),
    }
}

pub fn replace(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let [Value::String(text), Value::String(pattern), Value::String(new)] = args else {
        return Err(anyhow!("not strings"));
    };
    let (mut made, mut from) = (String::with_capacity(text.len()), 0);
    compiled(pattern)?.each(text, usize::MAX, new.contains('$'), |found, groups| {
        made.push_str(&text[from..found.start()]);
        let append = |group, made: &mut String| {
            made.push_str(groups.get_group(group).map_or("", |place| &text[place.range()]));
        };
        interpolate::string(new, append, |name| groups.group_info().to_index(PatternID::ZERO, name), &mut made);
        from = found.end();
        if made.len() > MAX_RESULT_WEIGHT {
            return Err(beyond());
        }
        Ok(())
    })?;
    made.push_str(&text[from..]);
    Ok(Value::from(made))
}

/// Splits as Go does: the rest is left out if the last match begins at the end, and so is what stands before a first
/// empty match.
pub fn split(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let (pattern, text) = texts(args)?;
    if text.is_empty() && !pattern.is_empty() {
        return Ok(Value::from(vec![Value::from("")]));
    }
    let (mut parts, mut from, mut last) = (Vec::new(), 0, 0);
    compiled(pattern)?.each(text, usize::MAX, false, |found, _| {
        last = found.start();
        if found.end() != 0 {
            parts.push(Value::from(&text[from..last]));
        }
        from = found.end();
        Ok(())
    })?;
    if last != text.len() {
        parts.push(Value::from(&text[from..]));
    }
    Ok(Value::from(parts))
}
