//! Patterns of tag expressions: Python's regular expressions.

use metadata::Matcher;
use render::PythonRegex;

/// The matcher of a pattern that may match anywhere in a value.
pub(crate) fn compile_pattern(pattern: &str) -> Result<Matcher, String> {
    let regex = PythonRegex::new(pattern)?;
    Ok(Box::new(move |value| regex.finds(value)))
}
