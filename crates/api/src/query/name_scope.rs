//! The names that a sender sees.

use std::fmt;

use metadata::NameFilter;

/// Names that begin with a prefix, or that have all of some tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameScope {
    // Invariant: no prefix is empty or has a character of globs or tags; prefixes or tags are not empty.
    pub(super) prefixes: Vec<String>,
    // `tag=value` each.
    pub(super) tags: Vec<String>,
}

impl NameScope {
    /// Names that begin with one of these prefixes, or that have all of these tags (`tag=value`).
    ///
    /// # Errors
    /// The prefix or tag that is not one.
    pub fn new(prefixes: Vec<String>, tags: Vec<String>) -> Result<NameScope, String> {
        let is_prefix = |text: &str| !text.is_empty() && !text.starts_with('.') && !text.contains(SPECIAL);
        let is_tag = |text: &str| text.split_once('=').is_some_and(|(tag, value)| !tag.is_empty() && !value.is_empty());
        if let Some(bad) = prefixes.iter().find(|prefix| !is_prefix(prefix)) {
            return Err(format!("'{bad}' is not the beginning of names, such as 'servers.web.'"));
        }
        if let Some(bad) = tags.iter().find(|tag| !is_tag(tag) || tag.contains(';')) {
            return Err(format!("'{bad}' is not a tag with its value, such as 'tenant=blue'"));
        }
        if prefixes.is_empty() && tags.is_empty() {
            return Err("neither prefixes nor tags are given".to_owned());
        }
        Ok(NameScope { prefixes, tags })
    }

    /// Whether a name begins with one of the prefixes.
    pub(super) fn has_prefix_of(&self, name: &str) -> bool {
        self.prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    /// Whether there are tags, and a name has all of them.
    pub(super) fn has_tags_of(&self, name: &str) -> bool {
        let has = |tag: &String| name.split(';').skip(1).any(|known| known == tag);
        !self.tags.is_empty() && self.tags.iter().all(has)
    }
}

impl fmt::Display for NameScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefixes = self.prefixes.iter().map(|prefix| format!("{prefix}*"));
        let tags = (!self.tags.is_empty()).then(|| self.tags.join("+"));
        f.write_str(&prefixes.chain(tags).collect::<Vec<_>>().join(" "))
    }
}

/// Characters of globs, tags and line protocols.
const SPECIAL: [char; 12] = ['*', '?', '[', ']', '{', '}', ',', '\\', ';', ' ', '\n', '\t'];

impl NameFilter for NameScope {
    fn shows_metric(&self, name: &str) -> bool {
        self.has_prefix_of(name) || self.has_tags_of(name)
    }

    fn shows_branch(&self, path: &str) -> bool {
        let leads_to = |prefix: &str| prefix.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        self.prefixes.iter().any(|prefix| path.starts_with(prefix.as_str()) || leads_to(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(prefixes: &[&str], tags: &[&str]) -> Result<NameScope, String> {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        NameScope::new(owned(prefixes), owned(tags))
    }

    #[test]
    fn names_are_seen_by_prefix_or_by_all_tags() {
        let blue = scope(&["blue.", "shared.web"], &["tenant=blue", "dc=a"]).unwrap();
        for name in ["blue.a", "shared.web1.load", "shared.web", "x;dc=a;tenant=blue", "x;a=b;dc=a;tenant=blue"] {
            assert!(blue.shows_metric(name), "{name}");
        }
        for name in
            ["blue", "bluer.a", "red.a", "shared.db", "x;tenant=blue", "x;dc=a;tenant=bluer", "tenant=blue;dc=a"]
        {
            assert!(!blue.shows_metric(name), "{name}");
        }
        for path in ["blue", "blue.a", "shared", "shared.web1"] {
            assert!(blue.shows_branch(path), "{path}");
        }
        for path in ["bluer", "b", "red", "shared.db", "share"] {
            assert!(!blue.shows_branch(path), "{path}");
        }
    }

    #[test]
    fn a_prefix_has_no_glob_and_a_tag_has_a_value() {
        for bad in ["", "a*", ".a", "a;b", "{a,b}."] {
            assert!(scope(&[bad], &[]).is_err(), "{bad}");
        }
        for bad in ["", "a", "=b", "a=", "a=b;c=d"] {
            assert!(scope(&[], &[bad]).is_err(), "{bad}");
        }
        assert!(scope(&[], &[]).is_err());
    }
}
