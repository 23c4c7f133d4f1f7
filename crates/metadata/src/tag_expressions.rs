//! Expressions over tags: how they are written, and whether they hold for a name. The words of errors are graphite-web's.

use std::fmt;

use metric::is_tagged;

/// Expressions of one question, at most.
const MAX_EXPRESSIONS: usize = 100;

/// Whether a value matches a pattern; the error says what is wrong with the pattern.
pub type Matcher = Box<dyn Fn(&str) -> Result<bool, String> + Send + Sync>;

/// Expressions over tags; all must hold: `tag=value`, `tag!=value`, `tag=~pattern`, `tag!=~pattern`.
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
