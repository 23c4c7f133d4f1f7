//! What each component of a pattern says without a search: the text that it begins with, and whether that is all.

use crate::{
    error::GlobError,
    pattern::{self, Glyph, is_any_depth},
};

/// One of the alternatives of a component.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The component is left out: an empty alternative in braces.
    Nothing,
    /// Exactly this.
    Exact(String),
    /// Begins with this text, which may be empty. What follows may have to match more.
    Prefix(String),
    /// Any number of components, none included; as the last component, at least one.
    AnyDepth,
}

/// The alternatives of each component of a pattern, sorted, each once. Every text that a component matches, its parts
/// match too; when all parts are exact, they match nothing else.
///
/// # Errors
/// The pattern is too long or too deep, or its braces multiply beyond bounds.
pub fn parts(pattern: &str) -> Result<Vec<Vec<Part>>, GlobError> {
    let of_component = |variants: Vec<Vec<Glyph>>| {
        let mut parts: Vec<Part> = variants.iter().map(|variant| part(variant)).collect();
        parts.sort_unstable();
        parts.dedup();
        parts
    };
    Ok(pattern::components(pattern)?.into_iter().map(of_component).collect())
}

fn part(variant: &[Glyph]) -> Part {
    if variant.is_empty() {
        return Part::Nothing;
    }
    if is_any_depth(variant) {
        return Part::AnyDepth;
    }
    // A bracket without its partner is itself, but to stop at it is never wrong.
    let is_wild = |glyph: &Glyph| ['*', '?', '['].iter().any(|&wild| glyph.is(wild));
    let fixed = variant.iter().position(is_wild).unwrap_or(variant.len());
    let text = variant[..fixed].iter().map(|glyph| glyph.char).collect();
    if fixed == variant.len() { Part::Exact(text) } else { Part::Prefix(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, expected: &[&[Part]]) {
        assert_eq!(parts(pattern).unwrap(), expected, "{pattern}");
    }

    fn exact(text: &str) -> Part {
        Part::Exact(text.to_owned())
    }

    fn prefix(text: &str) -> Part {
        Part::Prefix(text.to_owned())
    }

    #[test]
    fn a_component_is_known_up_to_its_first_wildcard() {
        check("a.b*c.?.x[12]", &[&[exact("a")], &[prefix("b")], &[prefix("")], &[prefix("x")]]);
        check(r"a.b\*", &[&[exact("a")], &[exact("b*")]]);
        check("a.**", &[&[exact("a")], &[Part::AnyDepth]]);
        check("a**b", &[&[prefix("a")]]);
        check("...", &[]);
    }

    #[test]
    fn braces_are_alternatives() {
        check(
            "{b,a}x.{c*,,d,**}",
            &[&[exact("ax"), exact("bx")], &[Part::Nothing, exact("d"), prefix("c"), Part::AnyDepth]],
        );
        check("{a}", &[&[exact("a")]]);
        check("{a", &[&[exact("{a")]]);
    }
}
