//! How many metrics there are below each branch, or with each tag or value.
//!
//! All names are read, a slice at a time, so that no creation waits for longer than a slice.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use metric::{MetricId, Policy, Timestamp};

use crate::{
    limits::{FindError, FindLimits},
    policies::PolicyId,
    registry::Registry,
    seen::SeenSpan,
};

/// Ids read in one hold of the lock of names.
const SLICE: u32 = 1024;

/// Groups that are counted apart, at most.
const GROUPS: usize = 100_000;

/// What metrics are counted by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupBy {
    /// The branches this many components below a branch; below the root if that is empty. The tags of a name do not count.
    Branch {
        /// A path without wildcards.
        below: String,
        /// One or more.
        depth: usize,
    },
    /// The values of a tag.
    ValuesOf(String),
    /// The tags.
    Tags,
}

/// The metrics of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetricCounts {
    /// Metrics.
    pub metrics: u64,
    /// Of these, created since the time that was asked for.
    pub new: u64,
    /// Of these, that may have points since then.
    pub live: u64,
    /// Slots that their stages keep between their first and their last stored point, to the hour, day or week; from their
    /// creation until now where these are not known.
    pub slots: u64,
    /// Of these, those of metrics that are known to have rows.
    pub stored_slots: u64,
}

impl MetricCounts {
    /// Adds those of others.
    pub fn add(&mut self, one: MetricCounts) {
        self.metrics += one.metrics;
        self.new += one.new;
        self.live += one.live;
        self.slots += one.slots;
        self.stored_slots += one.stored_slots;
    }
}

/// Metrics by groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cardinality {
    /// All metrics of this registry.
    pub all: MetricCounts,
    /// Those with tags.
    pub tagged: u64,
    /// Those below the branch, or with the tag.
    pub counted: MetricCounts,
    /// The groups, the largest first; of equals by name.
    pub groups: Vec<(String, MetricCounts)>,
    /// The metrics of groups beyond the first 100,000 that were met.
    pub others: MetricCounts,
}

impl Registry {
    /// Counts metrics. Those created at `since` or later are new, Unix seconds.
    ///
    /// # Errors
    /// The caller has cancelled it.
    pub fn cardinality(
        &self,
        by: &GroupBy,
        since: Timestamp,
        now: Timestamp,
        limits: &FindLimits,
    ) -> Result<Cardinality, FindError> {
        let (mut from, end) = (MetricId(0), self.read().end());
        let unseen = self.seen().filter(SeenSpan { from: Some(since), until: None }, end);
        let (mut counting, mut slots) = (Counting::default(), SlotsOf { now, policies: HashMap::new() });
        while from < end {
            limits.check_cancelled()?;
            if let Some(unseen) = &unseen {
                unseen.prepare(&(from.0..end.0.min(from.0 + SLICE)).map(MetricId).collect::<Vec<_>>());
            }
            let spans = self.seen().spans(from, SLICE);
            let names = self.read();
            let next = names.slice(from, SLICE, |id, name| {
                let (created, span) = (names.created_on(id), spans[(id.0 - from.0) as usize]);
                let slots = slots.of(self, names.policy_id(id), created, span);
                let one = MetricCounts {
                    metrics: 1,
                    new: u64::from(since <= created),
                    live: u64::from(unseen.as_ref().is_none_or(|unseen| !unseen.hides(id))),
                    slots,
                    stored_slots: if span.is_some() { slots } else { 0 },
                };
                counting.count(by, name, one);
            });
            from = next;
        }
        Ok(counting.ended())
    }
}

/// Slots that policies keep.
struct SlotsOf {
    now: Timestamp,
    policies: HashMap<PolicyId, Arc<Policy>>,
}

impl SlotsOf {
    /// Of a metric with rows between two times, if they are known.
    fn of(
        &mut self,
        registry: &Registry,
        id: PolicyId,
        created: Timestamp,
        rows: Option<(Timestamp, Timestamp)>,
    ) -> u64 {
        let policy = self.policies.entry(id).or_insert_with(|| registry.policy(id));
        let (first, last) = rows.unwrap_or((created, self.now));
        // Where the first is not known, a metric has had points since its creation.
        let (first, last) = (if first == Timestamp::MIN { created } else { first }, last.min(self.now));
        let of_stage = |stage: &metric::Stage| {
            let resolution = i64::from(stage.resolution());
            let first = first.max(self.now - resolution * i64::from(stage.points()));
            if last < first { 0 } else { ((last - first) / resolution + 1).min(stage.points().into()) }
        };
        let coarse = policy.methods().len() as i64;
        let stages = policy.retention.stages().iter().enumerate();
        stages.map(|(index, stage)| of_stage(stage) * if index == 0 { 1 } else { coarse }).sum::<i64>() as u64
    }
}

#[derive(Default)]
struct Counting {
    counted: Cardinality,
    groups: HashMap<Box<str>, MetricCounts>,
}

impl Counting {
    fn count(&mut self, by: &GroupBy, name: &str, one: MetricCounts) {
        let (path, tags) = name.split_once(';').map_or((name, None), |(path, tags)| (path, Some(tags)));
        self.counted.all.add(one);
        self.counted.tagged += u64::from(tags.is_some());
        let mut tags = tags.into_iter().flat_map(|tags| tags.split(';')).filter_map(|tag| tag.split_once('='));
        match by {
            GroupBy::Branch { below, depth } => {
                if let Some(branch) = branch_of(path, below, *depth) {
                    self.counted.counted.add(one);
                    self.add(branch, one);
                }
            }
            GroupBy::ValuesOf(tag) => {
                let value = if tag == "name" {
                    Some(path)
                } else {
                    tags.find(|(known, _)| known == tag).map(|(_, value)| value)
                };
                if let Some(value) = value.filter(|_| name.contains(';')) {
                    self.counted.counted.add(one);
                    self.add(value, one);
                }
            }
            GroupBy::Tags => {
                if name.contains(';') {
                    self.counted.counted.add(one);
                }
                tags.for_each(|(tag, _)| self.add(tag, one));
            }
        }
    }

    fn add(&mut self, group: &str, one: MetricCounts) {
        if let Some(known) = self.groups.get_mut(group) {
            return known.add(one);
        }
        if self.groups.len() == GROUPS {
            return self.counted.others.add(one);
        }
        match self.groups.entry(group.into()) {
            Entry::Occupied(mut known) => known.get_mut().add(one),
            Entry::Vacant(new) => _ = new.insert(one),
        }
    }

    fn ended(self) -> Cardinality {
        let mut groups: Vec<(String, MetricCounts)> =
            self.groups.into_iter().map(|(name, counts)| (name.into_string(), counts)).collect();
        groups.sort_unstable_by(|a, b| b.1.metrics.cmp(&a.1.metrics).then_with(|| a.0.cmp(&b.0)));
        Cardinality { groups, ..self.counted }
    }
}

/// The part of a path down to so many components below a branch; the whole path if it has fewer. `None` if it is not below.
fn branch_of<'a>(path: &'a str, below: &str, depth: usize) -> Option<&'a str> {
    let begin = match below {
        "" => 0,
        below => path.strip_prefix(below)?.starts_with('.').then_some(below.len() + 1)?,
    };
    let end = path[begin..].match_indices('.').nth(depth.max(1) - 1).map_or(path.len(), |(at, _)| begin + at);
    Some(&path[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = 1_800_000_000;

    fn groups(by: GroupBy) -> (Vec<String>, Cardinality) {
        let registry = Registry::new();
        let policy = registry.intern(&Policy { retention: "1440*60s".parse().unwrap(), ..Policy::default() });
        let names = [
            "web.a.cpu",
            "web.a.load",
            "web.b.cpu",
            "webs.c",
            "db",
            "cpu;dc=x;host=a",
            "cpu;dc=y;host=b",
            "net.in;dc=x",
        ];
        for (age, name) in names.into_iter().enumerate() {
            let created = NOW - 3600 * age as Timestamp;
            registry.write().create(registry.hash(name.as_bytes()), name, policy, created);
        }
        let counted = registry.cardinality(&by, NOW - 7200, NOW, &FindLimits::default()).unwrap();
        let shown = counted.groups.iter().map(|(name, of)| format!("{name} {}+{}", of.metrics, of.new));
        (shown.collect(), counted)
    }

    #[test]
    fn metrics_are_counted_by_branch() {
        let by = |below: &str, depth| GroupBy::Branch { below: below.to_owned(), depth };
        let (shown, counted) = groups(by("", 1));
        assert_eq!(shown, ["web 3+3", "cpu 2+0", "db 1+0", "net 1+0", "webs 1+0"]);
        assert_eq!((counted.all.metrics, counted.all.new, counted.tagged, counted.counted), (8, 3, 3, counted.all));
        assert_eq!(counted.all.slots, (0..8).map(|hours| hours * 60 + 1).sum::<u64>());
        assert_eq!(groups(by("web", 1)).0, ["web.a 2+2", "web.b 1+1"]);
        assert_eq!(groups(by("web", 9)).0, ["web.a.cpu 1+1", "web.a.load 1+1", "web.b.cpu 1+1"]);
        assert_eq!(groups(by("web.c", 1)).1.counted, MetricCounts::default());
    }

    #[test]
    fn slots_of_each_rollup_are_counted() {
        let slots = |methods: &str| {
            let registry = Registry::new();
            let retention = "3600*1s:1440*60s".parse().unwrap();
            let policy = Policy { retention, ..Policy::default() }.with_methods(methods.parse().unwrap());
            registry.write().create(registry.hash(b"m"), "m", registry.intern(&policy), NOW - 6000);
            let by = GroupBy::Branch { below: String::new(), depth: 1 };
            registry.cardinality(&by, NOW - 7200, NOW, &FindLimits::default()).unwrap().all.slots
        };
        let (one, coarse) = (slots("avg"), 6000 / 60 + 1);
        assert_eq!(slots("avg,max,min"), one + 2 * coarse);
    }

    #[test]
    fn metrics_are_counted_by_tag_and_by_value() {
        assert_eq!(groups(GroupBy::Tags).0, ["dc 3+0", "host 2+0"]);
        assert_eq!(groups(GroupBy::ValuesOf("dc".to_owned())).0, ["x 2+0", "y 1+0"]);
        assert_eq!(groups(GroupBy::ValuesOf("name".to_owned())).0, ["cpu 2+0", "net.in 1+0"]);
        assert_eq!(groups(GroupBy::ValuesOf("rack".to_owned())).1.counted.metrics, 0);
    }
}
