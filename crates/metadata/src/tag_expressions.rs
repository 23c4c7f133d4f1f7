//! Expressions over tags: how they are written, and whether they hold for a name. The words of errors are graphite-web's.

use std::fmt;

use metric::is_tagged;
use regex_automata::{
    Input,
    hybrid::dfa::{Cache, DFA},
    nfa::thompson,
};

/// Expressions of one question, at most.
const MAX_EXPRESSIONS: usize = 100;

/// Whether a value matches a pattern; the error says what is wrong with the pattern.
type Compare = Box<dyn Fn(&str) -> Result<bool, String> + Send + Sync>;

/// Bytes of the automaton of a pattern before it has states. A pattern that needs more is compared by its test.
const AUTOMATON_BYTES: usize = 2 << 20;

/// A pattern, compiled.
pub struct Matcher {
    test: Compare,
    /// The same, if it needs no more than an automaton: a fifth of the work for a value, where there are many.
    plain: Option<Box<DFA>>,
}

impl Matcher {
    /// Of a test, which says whether a value matches, or what is wrong with the pattern.
    pub fn new(test: impl Fn(&str) -> Result<bool, String> + Send + Sync + 'static) -> Matcher {
        Matcher { test: Box::new(test), plain: None }
    }

    /// The same, of a test that matches as `pattern` of the crate `regex` does, wherever that takes the pattern, and its automaton no
    /// more than so many bytes before it has states.
    pub fn with_pattern(self, pattern: &str, bytes: usize) -> Matcher {
        let limits = thompson::Config::new().nfa_size_limit(Some(bytes.min(AUTOMATON_BYTES)));
        let plain = DFA::builder().thompson(limits).build(pattern).ok().map(Box::new);
        Matcher { plain, ..self }
    }

    /// Whether a value matches.
    pub(crate) fn matches(&self, value: &str) -> Result<bool, String> {
        (self.test)(value)
    }
}

/// A pattern that is compared with many values.
pub(crate) struct Comparison<'a> {
    expression: &'a Expression,
    plain: Option<(&'a DFA, Cache)>,
}

impl Comparison<'_> {
    /// Whether a comparison takes no longer than reading the value.
    pub(crate) fn is_quick(&self) -> bool {
        self.plain.is_some()
    }

    /// Whether a value, UTF-8, passes the test, be it negated or not.
    #[inline]
    pub(crate) fn passes(&mut self, value: &[u8]) -> Result<bool, TagError> {
        if let Some((plain, cache)) = &mut self.plain {
            match plain.try_search_fwd(cache, &Input::new(value).earliest(true)) {
                Ok(found) => return Ok(found.is_some()),
                // It needs too many states, or has to know about letters beyond ASCII.
                Err(_) => self.plain = None,
            }
        }
        self.expression.passes(std::str::from_utf8(value).expect("values come from names, which are UTF-8"))
    }
}

/// Expressions over tags; all must hold: `tag=value`, `tag!=value`, `tag=~pattern`, `tag!=~pattern`.
///
/// A metric that lacks a tag has the empty value, and one of the expressions must not hold for that. `name` is a tag,
/// too: what comes before the first `;`. Patterns begin where the value does and may end before it does.
#[derive(Debug)]
pub struct TagExpressions(
    // Invariant: at least one of them does not take the empty value.
    Vec<Expression>,
);

/// One expression over the value of a tag.
pub(crate) struct Expression {
    text: String,
    /// The tag.
    pub tag: String,
    test: Test,
    /// Whether the value must not pass the test.
    pub is_negated: bool,
    /// Whether the expression holds for metrics without the tag.
    pub takes_empty: bool,
}

/// What a value is compared with.
pub(crate) enum Test {
    /// A whole value.
    Is(String),
    /// A pattern. All values that match begin with `prefix`; all that do match if `is_all`.
    Matches {
        /// The pattern.
        matcher: Matcher,
        /// Literal text at the beginning of the pattern.
        prefix: String,
        /// Whether the pattern asks for nothing else.
        is_all: bool,
    },
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why expressions over tags cannot be resolved. The words of the first two are graphite-web's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    /// No expression at all, or none that asks for something.
    #[error("At least one tagspec must not match the empty string")]
    AsksForNothing,
    /// Not of the form `tag=value`.
    #[error("Invalid tagspec {0}")]
    Invalid(String),
    /// More than can be meant.
    #[error("there are more than {limit} tag expressions")]
    TooMany {
        /// Expressions allowed.
        limit: usize,
    },
    /// The pattern is invalid, or matching takes too long.
    #[error("the pattern of '{expression}' {reason}")]
    Pattern {
        /// The whole expression.
        expression: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl TagExpressions {
    /// Reads expressions. `compile` makes a matcher of a pattern that may match anywhere: it is given one that begins
    /// with `^`.
    pub fn read(
        texts: &[impl AsRef<str>],
        compile: impl Fn(&str) -> Result<Matcher, String>,
    ) -> Result<TagExpressions, TagError> {
        let expressions = TagExpressions::read_any(texts, compile)?;
        let asks = expressions.0.iter().any(|expression| !expression.takes_empty);
        if asks { Ok(expressions) } else { Err(TagError::AsksForNothing) }
    }

    /// As [`TagExpressions::read`], for callers who may ask for all metrics: every expression may hold for metrics without
    /// the tag, and there may be none.
    pub fn read_any(
        texts: &[impl AsRef<str>],
        compile: impl Fn(&str) -> Result<Matcher, String>,
    ) -> Result<TagExpressions, TagError> {
        if texts.len() > MAX_EXPRESSIONS {
            return Err(TagError::TooMany { limit: MAX_EXPRESSIONS });
        }
        let read = texts.iter().map(|text| Expression::read(text.as_ref(), &compile));
        Ok(TagExpressions(read.collect::<Result<Vec<_>, _>>()?))
    }

    /// The expressions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Expression> {
        self.0.iter()
    }

    /// Whether all hold for a tagged name. A name whose tags cannot be read has none and is never meant.
    pub fn take(&self, name: &str) -> Result<bool, TagError> {
        if !has_readable_tags(name) {
            return Ok(false);
        }
        for expression in &self.0 {
            if !expression.takes(value_of(name, &expression.tag))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Expression {
    fn read(text: &str, compile: impl Fn(&str) -> Result<Matcher, String>) -> Result<Expression, TagError> {
        let invalid = || TagError::Invalid(text.to_owned());
        let (tag, rest) = text.split_at(text.find([';', '!', '=']).ok_or_else(invalid)?);
        let (is_negated, rest) = rest.strip_prefix('!').map_or((false, rest), |rest| (true, rest));
        let rest = rest.strip_prefix('=').ok_or_else(invalid)?;
        let (is_pattern, spec) = rest.strip_prefix('~').map_or((false, rest), |rest| (true, rest));
        if tag.is_empty() || spec.contains(';') {
            return Err(invalid());
        }
        let test = if !is_pattern {
            Test::Is(spec.to_owned())
        } else {
            let anchored = if spec.starts_with('^') { spec.to_owned() } else { format!("^({spec})") };
            let matcher = compile(&anchored);
            let matcher = matcher.map_err(|reason| TagError::Pattern { expression: text.to_owned(), reason })?;
            let (prefix, is_all) = literal_prefix(spec);
            Test::Matches { matcher, prefix, is_all }
        };
        let mut expression =
            Expression { text: text.to_owned(), tag: tag.to_owned(), test, is_negated, takes_empty: false };
        expression.takes_empty = expression.takes("")?;
        Ok(expression)
    }

    /// What a value is compared with.
    pub(crate) fn test(&self) -> &Test {
        &self.test
    }

    /// The test, for many values.
    pub(crate) fn comparison(&self) -> Comparison<'_> {
        let plain = match &self.test {
            Test::Matches { matcher, .. } => matcher.plain.as_deref().map(|plain| (plain, plain.create_cache())),
            Test::Is(_) => None,
        };
        Comparison { expression: self, plain }
    }

    /// Whether a value passes the test, which the expression may negate.
    pub(crate) fn passes(&self, value: &str) -> Result<bool, TagError> {
        match &self.test {
            Test::Is(wanted) => Ok(value == wanted),
            Test::Matches { matcher, .. } => {
                let matches = matcher.matches(value);
                matches.map_err(|reason| TagError::Pattern { expression: self.text.clone(), reason })
            }
        }
    }

    fn takes(&self, value: &str) -> Result<bool, TagError> {
        Ok(self.passes(value)? != self.is_negated)
    }
}

/// The text that all values begin with that match a pattern, and whether all that do match. Empty where in doubt.
fn literal_prefix(pattern: &str) -> (String, bool) {
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    // An alternative may begin in another way, and a flag in brackets may change what a letter means.
    if pattern.contains('|') || pattern.contains("(?") {
        return (String::new(), false);
    }
    let is_literal = |c: char| c.is_alphanumeric() || "_-:/,@%=&<>~ ".contains(c);
    let mut prefix = String::new();
    let mut rest = pattern.chars();
    loop {
        let before = rest.as_str();
        match rest.next() {
            Some(c) if is_literal(c) => prefix.push(c),
            Some('\\') if rest.as_str().starts_with(['.', '-', '/', ':']) => prefix.extend(rest.next()),
            // The character before may be missing.
            Some('*' | '?' | '{') => {
                prefix.pop();
                return (prefix, false);
            }
            _ => return (prefix, matches!(before, "" | ".*")),
        }
    }
}

/// The tags of a name and their values, `name` among them; none where they cannot be read. A tag may be there twice: the
/// first counts.
pub(crate) fn tags_of(name: &str) -> Option<impl Iterator<Item = (&str, &str)>> {
    if !has_readable_tags(name) {
        return None;
    }
    let (metric, tags) = name.split_once(';')?;
    let metric = metric.trim_start_matches('~');
    let of_metric = (!metric.is_empty()).then_some(("name", metric));
    let others = tags.split(';').filter_map(|part| part.split_once('=')).filter(|&(tag, _)| tag != "name");
    Some(of_metric.into_iter().chain(others))
}

/// Where a tag and its value are in a name: the tag begins, ends, the value begins, ends.
#[derive(Clone, Copy)]
pub(crate) struct TagPlace {
    tag: (u16, u16),
    value: (u16, u16),
}

/// In place of where a tag is: the tag `name`, whose text need not be there.
const OF_METRIC: (u16, u16) = (u16::MAX, u16::MAX);

impl TagPlace {
    /// The tag and its value.
    #[inline]
    pub(crate) fn of(self, name: &str) -> (&str, &str) {
        let text = |(begin, end): (u16, u16)| &name[usize::from(begin)..usize::from(end)];
        (if self.tag == OF_METRIC { "name" } else { text(self.tag) }, text(self.value))
    }
}

/// As [`tags_of`], in one pass over the name, and whether they can be read.
pub(crate) fn read_tags(name: &str, tags: &mut Vec<TagPlace>) -> bool {
    tags.clear();
    let bytes = name.as_bytes();
    let Some(metric) = bytes.iter().position(|&byte| byte == b';') else { return false };
    // Names are shorter than their length in the arena may be.
    if metric == 0 || usize::from(u16::MAX) <= bytes.len() {
        return false;
    }
    let tildes = bytes[..metric].iter().take_while(|&&byte| byte == b'~').count();
    if tildes < metric {
        tags.push(TagPlace { tag: OF_METRIC, value: (tildes as u16, metric as u16) });
    }
    let mut begin = metric + 1;
    loop {
        let mut equals = begin;
        loop {
            match bytes.get(equals) {
                Some(b'=') => break,
                Some(b';' | b'!' | b'^') | None => return false,
                Some(_) => equals += 1,
            }
        }
        let value = equals + 1;
        let end = bytes[value..].iter().position(|&byte| byte == b';').map_or(bytes.len(), |length| value + length);
        if equals == begin || end == value || bytes[value] == b'~' {
            return false;
        }
        if &bytes[begin..equals] != b"name" {
            tags.push(TagPlace { tag: (begin as u16, equals as u16), value: (value as u16, end as u16) });
        }
        if end == bytes.len() {
            return true;
        }
        begin = end + 1;
    }
}

/// Whether a canonical name has no tags, or tags that can be read. One of nothing but `~` cannot be.
pub fn is_plain_or_tagged(name: &str) -> bool {
    !is_tagged(name) && !name.starts_with('~') && !name.ends_with("\"}") || has_readable_tags(name)
}

/// Each part after a `;` is a tag, a `=` and a value, neither empty.
fn has_readable_tags(name: &str) -> bool {
    let mut parts = name.split(';');
    let has_metric = parts.next().is_some_and(|metric| !metric.is_empty());
    let is_readable = |part: &str| {
        let pair = part.split_once('=');
        pair.is_some_and(|(tag, value)| {
            !tag.is_empty() && !tag.contains(['!', '^']) && !value.is_empty() && !value.starts_with('~')
        })
    };
    has_metric && is_tagged(name) && parts.all(is_readable)
}

/// The value of a tag of a name; empty where it has none.
pub(crate) fn value_of<'a>(name: &'a str, tag: &str) -> &'a str {
    let (metric, tags) = name.split_once(';').unwrap_or((name, ""));
    if tag == "name" {
        return metric.trim_start_matches('~');
    }
    let of_tag = |part: &'a str| part.strip_prefix(tag)?.strip_prefix('=');
    tags.split(';').find_map(of_tag).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use host::{Random, SeededRandom};

    use super::*;

    #[test]
    fn tags_are_the_same_in_one_pass_and_in_several() {
        let random = SeededRandom::new(SeededRandom::test_seed(17));
        let (mut read, mut places) = (0, Vec::new());
        for _ in 0..100_000 {
            let pieces = ["a", "name", ";", ";", ";b=1", ";b=2", ";name=x", "=", "~", "!", "^", "é", ";c=~"];
            let name: String = (0..random.index(8)).map(|_| pieces[random.index(pieces.len())]).collect();
            let is_read = read_tags(&name, &mut places);
            let several: Option<Vec<(&str, &str)>> = tags_of(&name).map(Iterator::collect);
            assert_eq!(is_read, several.is_some(), "{name}");
            if let Some(several) = several {
                assert_eq!(places.iter().map(|place| place.of(&name)).collect::<Vec<_>>(), several, "{name}");
                read += 1;
            }
        }
        assert!(10_000 < read, "{read}");
    }
}
