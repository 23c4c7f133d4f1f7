//! Which names a sender may write: those that it sees, without those of others.

use std::{collections::HashMap, sync::Arc};

use metadata::NameFilter;

use super::name_scope::NameScope;

/// The names of everyone: prefixes of all senders and listeners, and tags of senders that write.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NameOwners {
    // Ascending, none the beginning of another.
    prefixes: Vec<String>,
    /// Senders with tags, by the first of these.
    tagged: HashMap<String, Vec<Arc<NameScope>>>,
}

/// The names that a sender may write:
///
/// 1. Untagged names that begin with one of its prefixes.
/// 2. Tagged names that have all of its tags or, if it has no tags, begin with one of its prefixes. Not those that begin
///    with a prefix of others alone, and not those that have all tags of another: unless both have the name by prefixes, or
///    the tags of one are among those of the other.
#[derive(Debug, PartialEq, Eq)]
pub struct WriteScope {
    own: Arc<NameScope>,
    all: Arc<NameOwners>,
}

impl NameOwners {
    /// The owners among senders: `reading` all with restrictions, `writing` those of them that write. `prefixes` are those of
    /// listeners.
    pub fn new<'a>(
        prefixes: impl Iterator<Item = &'a str>,
        reading: impl Iterator<Item = &'a NameScope>,
        writing: impl Iterator<Item = &'a Arc<NameScope>>,
    ) -> NameOwners {
        let mut all: Vec<String> = prefixes.map(str::to_owned).collect();
        all.extend(reading.flat_map(|scope| scope.prefixes.iter().cloned()));
        all.sort_unstable();
        // In this order a beginning comes right before what it begins.
        all.dedup_by(|next, before| next.starts_with(before.as_str()));
        let mut tagged: HashMap<String, Vec<Arc<NameScope>>> = HashMap::new();
        for scope in writing {
            if let Some(first) = scope.tags.first() {
                let same = tagged.entry(first.clone()).or_default();
                if !same.contains(scope) {
                    same.push(scope.clone());
                }
            }
        }
        NameOwners { prefixes: all, tagged }
    }

    fn has_prefix_of(&self, name: &str) -> bool {
        let after = self.prefixes.partition_point(|prefix| prefix.as_str() <= name);
        after.checked_sub(1).is_some_and(|place| name.starts_with(self.prefixes[place].as_str()))
    }

    /// Those whose tags a name has all of.
    fn with_tags_of(&self, name: &str) -> impl Iterator<Item = &NameScope> {
        let begun = name.split(';').skip(1).filter_map(|tag| self.tagged.get(tag));
        begun.flatten().map(|scope| &**scope).filter(move |scope| scope.has_tags_of(name))
    }
}

impl WriteScope {
    /// Of a sender that sees these names.
    pub fn new(own: Arc<NameScope>, all: Arc<NameOwners>) -> WriteScope {
        WriteScope { own, all }
    }

    fn may_write(&self, name: &str) -> bool {
        let WriteScope { own, all } = self;
        let has_prefix = own.has_prefix_of(name);
        if !name.contains(';') {
            return has_prefix;
        }
        let has_own = if own.tags.is_empty() { has_prefix } else { own.has_tags_of(name) };
        let is_free = || has_prefix || !all.has_prefix_of(name);
        let shares = |other: &NameScope| {
            let are_among = |a: &[String], b: &[String]| a.iter().all(|tag| b.contains(tag));
            has_prefix && other.has_prefix_of(name)
                || !own.tags.is_empty() && (are_among(&own.tags, &other.tags) || are_among(&other.tags, &own.tags))
        };
        has_own && is_free() && all.with_tags_of(name).all(shares)
    }
}

impl NameFilter for WriteScope {
    fn shows_metric(&self, name: &str) -> bool {
        self.may_write(name)
    }

    fn shows_branch(&self, path: &str) -> bool {
        self.own.shows_branch(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(prefixes: &[&str], tags: &[&str]) -> Arc<NameScope> {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Arc::new(NameScope::new(owned(prefixes), owned(tags)).unwrap())
    }

    /// The names that the first of the writers may write.
    fn check(writing: &[Arc<NameScope>], reading: &[Arc<NameScope>], may: &[&str], may_not: &[&str]) {
        let seeing = writing.iter().chain(reading).map(|scope| &**scope);
        let all = NameOwners::new(["office."].into_iter(), seeing, writing.iter());
        let scope = WriteScope::new(writing[0].clone(), Arc::new(all));
        may.iter().for_each(|name| assert!(scope.shows_metric(name), "{name}"));
        may_not.iter().for_each(|name| assert!(!scope.shows_metric(name), "{name}"));
    }

    #[test]
    fn names_of_others_are_not_written() {
        let (blue, red) = (scope(&["blue."], &[]), scope(&[], &["tenant=red"]));
        let both = scope(&["green."], &["dc=a", "tenant=green"]);
        let writing = [blue.clone(), red.clone(), both.clone()];
        let reader = scope(&["web."], &["dc=b"]);
        let reading = [reader.clone()];
        check(
            &writing,
            &reading,
            &["blue.a", "blue.a;x=1", "blue.a;dc=a", "blue.a;dc=b"],
            &["a", "red.a", "blue.a;tenant=red", "blue.a;dc=a;tenant=green", "x;tenant=blue", "blue"],
        );
        let order = [red.clone(), blue.clone(), both.clone()];
        check(
            &order,
            &reading,
            &["x;tenant=red", "webb;tenant=red", "blu;tenant=red", "x;dc=a;tenant=red"],
            &["x", "blue.a", "blue.a;tenant=red", "web.a;tenant=red", "office.a;tenant=red", "x;dc=a;tenant=green"],
        );
        let order = [both, blue, red];
        check(
            &order,
            &reading,
            &["green.a", "green.a;dc=a;tenant=green", "x;dc=a;tenant=green"],
            &["green.a;dc=a", "green.a;tenant=red", "green.a;dc=a;other=1", "blue.a;dc=a;tenant=green"],
        );
    }

    #[test]
    fn those_of_one_team_share_names() {
        let (wide, narrow) = (scope(&["p."], &[]), scope(&["p.blue."], &["tenant=blue"]));
        check(&[wide.clone(), narrow.clone()], &[], &["p.a", "p.blue.a", "p.blue.a;tenant=blue"], &["p.a;tenant=blue"]);
        check(
            &[narrow, wide],
            &[],
            &["p.blue.a", "p.blue.a;tenant=blue", "x;tenant=blue"],
            &["p.a", "p.a;tenant=blue"],
        );
        let (team, part) = (scope(&[], &["team=a"]), scope(&[], &["team=a", "dc=x"]));
        let other = scope(&[], &["owner=b"]);
        check(&[team.clone(), part.clone(), other.clone()], &[], &["x;team=a", "x;dc=x;team=a"], &["x;owner=b;team=a"]);
        check(&[part, team, other], &[], &["x;dc=x;team=a"], &["x;team=a", "x;dc=x;owner=b;team=a"]);
    }
}
