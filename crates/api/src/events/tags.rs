//! Tags of events: their text, and filters over them.

use std::collections::HashSet;

/// Tags of a filter, at most. Beyond: 400.
const MOST_TAGS: usize = 1000;

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
    tags: HashSet<String>,
    set: SetOf,
}

impl TagFilter {
    /// A filter. Empty tags are ignored.
    ///
    /// # Errors
    /// More than a thousand tags.
    pub fn new<'a>(tags: impl Iterator<Item = &'a str>, set: SetOf) -> Result<TagFilter, String> {
        let tags: HashSet<String> = tags.filter(|tag| !tag.is_empty()).take(MOST_TAGS + 1).map(str::to_owned).collect();
        if MOST_TAGS < tags.len() {
            return Err(format!("events are selected by more than {MOST_TAGS} tags"));
        }
        Ok(TagFilter { tags, set })
    }

    /// Whether an event with these tags matches. A filter without tags matches nothing, as in graphite-web. Takes time by the
    /// tags of the event, however many the filter has.
    pub fn matches(&self, tags: &str) -> bool {
        let mut stored = tags_in(tags).into_iter().filter(|tag| self.tags.contains(*tag));
        match self.set {
            _ if self.tags.is_empty() => false,
            SetOf::All => self.are_all(stored),
            SetOf::AllShown => {
                self.are_all(stored) && self.are_all(tags.split_whitespace().filter(|tag| self.tags.contains(*tag)))
            }
            SetOf::Any => stored.next().is_some(),
        }
    }

    /// Whether these tags of the filter are all that it has.
    fn are_all<'a>(&self, found: impl Iterator<Item = &'a str>) -> bool {
        found.collect::<HashSet<_>>().len() == self.tags.len()
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
    fn a_filter_selects_by_all_or_any_of_its_tags() {
        let check = |filter: &str, set, tags: &str| TagFilter::new(filter.split(' '), set).unwrap().matches(tags);
        for set in [SetOf::All, SetOf::AllShown, SetOf::Any] {
            assert!(check("a b", set, "b c a") && check("a a", set, "a") && !check("a b", set, "c"));
            assert!(!check("", set, "a") && !check("  ", set, ""));
        }
        assert!(!check("a b", SetOf::All, "a") && check("a b", SetOf::Any, "a"));
        // Where commas separate, a word has one.
        assert!(check("a b", SetOf::All, "a,b") && !check("a b", SetOf::AllShown, "a,b"));
    }

    #[test]
    fn a_filter_of_many_tags_is_refused() {
        let tags: Vec<String> = (0..1001).map(|tag| tag.to_string()).collect();
        let of = |count: usize| TagFilter::new(tags[..count].iter().map(String::as_str), SetOf::Any).err();
        assert_eq!(of(1000), None);
        assert_eq!(of(1001), Some("events are selected by more than 1000 tags".to_owned()));
    }

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
