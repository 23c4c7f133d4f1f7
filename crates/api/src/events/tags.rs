//! Tags of events: their text, and filters over them.

/// How several tags of a filter combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetOf {
    /// Events with every tag.
    All,
    /// Events with every tag as a separate word, without a comma.
    AllShown,
    /// Events with any of the tags.
    Any,
}

impl SetOf {
    /// The value of `set`.
    pub fn named(set: Option<&str>) -> SetOf {
        match set {
            Some("union") => SetOf::Any,
            Some("intersection") => SetOf::AllShown,
            _ => SetOf::All,
        }
    }
}

/// Selects events by their tags.
pub(crate) struct TagFilter {
    tags: Vec<String>,
    set: SetOf,
}

impl TagFilter {
    /// A filter. Empty tags are ignored.
    pub fn new<'a>(tags: impl Iterator<Item = &'a str>, set: SetOf) -> TagFilter {
        TagFilter { tags: tags.filter(|tag| !tag.is_empty()).map(str::to_owned).collect(), set }
    }

    /// Whether an event with these tags matches. A filter without tags matches nothing, as in graphite-web.
    pub fn matches(&self, tags: &str) -> bool {
        let stored = tags_in(tags);
        let is_stored = |expected: &String| stored.iter().any(|tag| tag == expected);
        let is_word = |expected: &String| tags.split_whitespace().any(|tag| tag == expected);
        match self.set {
            _ if self.tags.is_empty() => false,
            SetOf::All => self.tags.iter().all(is_stored),
            SetOf::AllShown => self.tags.iter().all(|tag| is_stored(tag) && is_word(tag)),
            SetOf::Any => self.tags.iter().any(is_stored),
        }
    }
}

/// The tags in a text, as django-tagging reads them. Quoted text is one tag. Commas separate the rest where a comma
/// stands outside of quotes; otherwise blanks do.
fn tags_in(text: &str) -> Vec<&str> {
    let (mut quoted, mut loose) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('"') {
        loose.push(before);
        match after.split_once('"') {
            Some((inside, after)) => {
                quoted.push(inside);
                rest = after;
            }
            // An unclosed quote is ignored.
            None => rest = after,
        }
    }
    loose.push(rest);
    let comma = loose.iter().any(|text| text.contains(','));
    let separated = loose.iter().flat_map(|text| text.split(if comma { ',' } else { ' ' }));
    quoted.into_iter().chain(separated).map(str::trim).filter(|tag| !tag.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_as_django_tagging_reads_them() {
        let check = |text: &str, expected: &[&str]| assert_eq!(tags_in(text), expected, "{text}");
        check("", &[]);
        check("  b   a ", &["b", "a"]);
        check("a b, c", &["a b", "c"]);
        check("one \"two three\"", &["two three", "one"]);
        check("four \"five, six\", seven", &["five, six", "four", "seven"]);
        check("a \"b c", &["a", "b", "c"]);
    }
}
