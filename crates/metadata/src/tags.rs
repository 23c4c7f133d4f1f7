//! Tags: expressions over them, and the metrics they stand for.
//!
//! Every tagged metric is looked at. An index over tags and values would take the place of that walk behind the same
//! call, [`Registry::tagged`].

use std::fmt;

use metric::is_tagged;

use crate::{FindError, FindLimits, Found, Registry, find::Budget};

/// Names looked at in one hold of the lock.
const BATCH: usize = 1024;

/// What a name costs, in steps of [`FindLimits::steps`]: with its limit as it is by default, ten million names.
const STEPS_PER_NAME: u64 = 10;

/// Expressions of one question, at most.
const MAX_EXPRESSIONS: usize = 100;

/// Whether a value matches a pattern; the error says what is wrong with the pattern.
pub type Matcher = Box<dyn Fn(&str) -> Result<bool, String> + Send + Sync>;

/// Expressions over tags, all of which must hold: `tag=value`, `tag!=value`, `tag=~pattern`, `tag!=~pattern`.
///
/// A metric that lacks a tag has the empty value, and one of the expressions must not hold for that. `name` is a tag,
/// too: what comes before the first `;`. Patterns begin where the value does and may end before it does.
#[derive(Debug)]
pub struct TagExpressions(
    // Invariant: at least one of them does not take the empty value.
    Vec<Expression>,
);

struct Expression {
    text: String,
    tag: String,
    test: Test,
    is_negated: bool,
}

enum Test {
    Is(String),
    Matches(Matcher),
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
    /// A pattern that is none, or that takes too long.
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
        if texts.len() > MAX_EXPRESSIONS {
            return Err(TagError::TooMany { limit: MAX_EXPRESSIONS });
        }
        let mut expressions = Vec::with_capacity(texts.len());
        let mut asks = false;
        for text in texts {
            let expression = Expression::read(text.as_ref(), &compile)?;
            asks |= !expression.takes("")?;
            expressions.push(expression);
        }
        if asks { Ok(TagExpressions(expressions)) } else { Err(TagError::AsksForNothing) }
    }

    /// Whether all hold for a tagged name. A name whose tags cannot be read has none and is never meant.
    pub fn take(&self, name: &str) -> Result<bool, TagError> {
        if !has_readable_tags(name) {
            return Ok(false);
        }
        for expression in &self.0 {
            if !expression.takes(value(name, &expression.tag))? {
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
            Test::Matches(matcher.map_err(|reason| TagError::Pattern { expression: text.to_owned(), reason })?)
        };
        Ok(Expression { text: text.to_owned(), tag: tag.to_owned(), test, is_negated })
    }

    fn takes(&self, value: &str) -> Result<bool, TagError> {
        let holds = match &self.test {
            Test::Is(wanted) => value == wanted,
            Test::Matches(matcher) => {
                let matches = matcher(value);
                matches.map_err(|reason| TagError::Pattern { expression: self.text.clone(), reason })?
            }
        };
        Ok(holds != self.is_negated)
    }
}

/// The tags of a name: each part after a `;` is a tag, a `=` and a value, neither empty.
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
fn value<'a>(name: &'a str, tag: &str) -> &'a str {
    let (metric, tags) = name.split_once(';').unwrap_or((name, ""));
    if tag == "name" {
        return metric.trim_start_matches('~');
    }
    let of_tag = |part: &'a str| part.strip_prefix(tag)?.strip_prefix('=');
    tags.split(';').find_map(of_tag).unwrap_or_default()
}

impl Registry {
    /// The tagged metrics for which all expressions hold, in the order of names.
    pub fn tagged(&self, expressions: &TagExpressions, limits: &FindLimits) -> Result<Found, FindError> {
        let mut budget = Budget::new(limits);
        let tagged = self.names.read().tagged.clone();
        let mut found = Found::default();
        for ids in tagged.chunks(BATCH) {
            let names = self.read();
            for &id in ids {
                budget.spend(STEPS_PER_NAME).map_err(|error| match error {
                    FindError::TooMuchWork => FindError::TooManyTagged { limit: limits.steps / STEPS_PER_NAME },
                    other => other,
                })?;
                let name = names.name(id);
                if names.is_shown(id) && expressions.take(name)? {
                    found.push(name, id, false)?;
                }
            }
            drop(names);
            budget.check_nodes(found.len())?;
        }
        found.sorted()
    }
}

#[cfg(test)]
mod tests {
    use metric::Policy;
    use regex_automata::meta::Regex;

    use super::*;

    fn compile(pattern: &str) -> Result<Matcher, String> {
        let regex = Regex::new(pattern).map_err(|error| error.to_string())?;
        Ok(Box::new(move |value| Ok(regex.is_match(value))))
    }

    fn registry(names: &[&str]) -> Registry {
        let registry = Registry::new();
        let policy = registry.intern(&Policy::default());
        for name in names {
            registry.write().create(registry.hash(name.as_bytes()), name, policy, 7);
        }
        registry
    }

    fn tagged(registry: &Registry, texts: &[&str]) -> Vec<String> {
        let expressions = TagExpressions::read(texts, compile).unwrap();
        let found = registry.tagged(&expressions, &FindLimits::default()).unwrap();
        found.leaves().map(|(_, name)| name.to_owned()).collect()
    }

    #[test]
    fn a_metric_is_found_by_its_tags() {
        let registry = registry(&["b;dc=x;rack=1", "a;dc=x", "a;dc=y;rack=2", "a.dc", "odd;dc", "odd;dc=x;rack=~"]);
        assert_eq!(tagged(&registry, &["dc=x"]), ["a;dc=x", "b;dc=x;rack=1"]);
        assert_eq!(tagged(&registry, &["dc=x", "rack="]), ["a;dc=x"]);
        assert_eq!(tagged(&registry, &["rack!="]), ["a;dc=y;rack=2", "b;dc=x;rack=1"]);
        assert_eq!(tagged(&registry, &["name=a", "dc!=x"]), ["a;dc=y;rack=2"]);
        assert_eq!(tagged(&registry, &["dc=~[xy]", "rack!=~1|3"]), ["a;dc=x", "a;dc=y;rack=2"]);
        assert_eq!(tagged(&registry, &["name=~.", "rack=~(2|)$"]), ["a;dc=x", "a;dc=y;rack=2"]);
    }

    #[test]
    fn what_is_hidden_is_not_found_and_what_is_saved_is() {
        let hiding = registry(&["a;t=1", "b;t=1"]);
        hiding.hide(&[metric::MetricId(0)]);
        assert_eq!(tagged(&hiding, &["t=1"]), ["b;t=1"]);
        hiding.write().create(hiding.hash(b"a;t=1"), "a;t=1", 0, 8);
        assert_eq!(tagged(&hiding, &["t=1"]), ["a;t=1", "b;t=1"]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names");
        hiding.save(&path).unwrap();
        assert_eq!(tagged(&Registry::open(&path).unwrap(), &["t=1"]), ["a;t=1", "b;t=1"]);
    }

    #[test]
    fn questions_that_cannot_be_say_why() {
        let check = |texts: &[&str], words: &str| {
            assert_eq!(TagExpressions::read(texts, compile).unwrap_err().to_string(), words);
        };
        check(&[], "At least one tagspec must not match the empty string");
        check(&["a=", "b!=c", "d=~.*", "e!=~x"], "At least one tagspec must not match the empty string");
        for text in ["", "a", "=b", "a;b=c", "a=b;c", "a!b"] {
            check(&["x=y", text], &format!("Invalid tagspec {text}"));
        }
        assert!(
            TagExpressions::read(&["a=~("], compile).unwrap_err().to_string().starts_with("the pattern of 'a=~(' ")
        );
        check(&["a=b"; 101], "there are more than 100 tag expressions");
        assert!(TagExpressions::read(&["a~=b"], compile).is_ok(), "a tag may end in a tilde");
    }

    #[test]
    fn a_look_through_too_many_names_ends() {
        let names: Vec<String> = (0..5000).map(|i| format!("m{i};t=1")).collect();
        let registry = registry(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let all = TagExpressions::read(&["t=1"], compile).unwrap();
        let limits = FindLimits { nodes: 100, ..FindLimits::default() };
        assert_eq!(registry.tagged(&all, &limits), Err(FindError::TooManyNodes { limit: 100 }));
        let limits = FindLimits { steps: 1000, ..FindLimits::default() };
        assert_eq!(registry.tagged(&all, &limits), Err(FindError::TooManyTagged { limit: 100 }));
    }
}
