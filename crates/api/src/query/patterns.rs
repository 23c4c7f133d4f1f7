//! Patterns of tag expressions: Python's regular expressions.

use metadata::Matcher;
use render::PythonRegex;

/// The matcher of a pattern that may match anywhere in a value.
pub(crate) fn compile_pattern(pattern: &str) -> Result<Matcher, String> {
    let regex = PythonRegex::new(pattern)?;
    let plain = regex.plain().map(str::to_owned);
    let matcher = Matcher::new(move |value| regex.finds(value));
    Ok(match plain {
        Some(plain) => matcher.with_pattern(&plain),
        None => matcher,
    })
}
