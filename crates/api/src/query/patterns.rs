//! Patterns of tag expressions: Python's regular expressions.

use metadata::{Matcher, TagError, TagExpressions};
use render::PythonRegex;

/// Bytes that all patterns of a question may take once compiled; each has its share of them.
const QUESTION_BYTES: usize = 16 << 20;

/// Reads tag expressions. Compiling takes up to a second: not for a thread that serves sockets.
pub fn read_tag_expressions(texts: &[impl AsRef<str>]) -> Result<TagExpressions, TagError> {
    // No expression without this is a pattern.
    let patterns = texts.iter().filter(|text| text.as_ref().contains("=~")).count();
    TagExpressions::read(texts, |pattern| compile_pattern(pattern, patterns))
}

/// The matcher of a pattern that may match anywhere in a value, one of so many of a question.
pub(crate) fn compile_pattern(pattern: &str, patterns: usize) -> Result<Matcher, String> {
    let bytes = QUESTION_BYTES / patterns.max(1);
    let regex = PythonRegex::within(pattern, bytes)?;
    let plain = regex.plain().map(str::to_owned);
    let matcher = Matcher::new(move |value| regex.finds(value));
    Ok(match plain {
        Some(plain) => matcher.with_pattern(&plain, bytes),
        None => matcher,
    })
}
