//! Questions about tagged metrics: which have some tags, which tags and values there are.
//!
//! The next question updates the tag index, or the next [`Registry::compact`], whichever comes first: so no creation
//! waits for a question, and no question misses a metric. A question that takes long lets such updates pass, so that others
//! do not wait for its end.

use std::{convert::Infallible, time::Duration};

use metric::MetricId;
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use roaring::RoaringBitmap;

use crate::{
    found::Found,
    limits::{Budget, FindError, FindLimits},
    registry::Registry,
    tag_changes::TagChanges,
    tag_expressions::TagExpressions,
    tag_index::{
        ListedTag, ListedValue, ReadNames, STEPS_PER_NAME, SharedIndex, TagIndex, TagListing, list_tags, list_values,
        search,
    },
};

/// Names that are copied in one hold of their lock.
const BATCH: usize = 256;

/// Bytes of them from which on a batch is full.
const BATCH_BYTES: usize = 64 << 10;

/// Records that are read together: the processor fetches several at a time.
const TOGETHER: usize = 32;

/// Between looks at the cancel flag, while another thread updates the index.
const POLL: Duration = Duration::from_millis(20);

/// Tagged metrics that were found, whose names are not read yet.
pub struct TaggedIds {
    ids: RoaringBitmap,
    // Steps that finding them took.
    steps: u64,
}

impl Registry {
    /// The tagged metrics for which all expressions hold, in the order of names.
    pub fn tagged(&self, expressions: &TagExpressions, limits: &FindLimits) -> Result<Found, FindError> {
        self.read_tagged(&self.find_tagged(expressions, limits)?, limits)
    }

    /// The first part of [`Registry::tagged`], whose memory does not grow with names. The second part may be done several
    /// times, with more memory each time.
    pub fn find_tagged(&self, expressions: &TagExpressions, limits: &FindLimits) -> Result<TaggedIds, FindError> {
        let mut budget = self.budget(limits);
        let mut index = self.tag_index(limits)?;
        let ids = search(&mut index, expressions, self, &mut budget).map_err(|error| in_names(error, limits))?;
        drop(index);
        let ids = seen_in(ids, &budget);
        if limits.filter.is_none() && ids.len() > limits.nodes as u64 {
            return Err(FindError::TooManyNodes { limit: limits.nodes });
        }
        Ok(TaggedIds { ids, steps: budget.steps() })
    }

    /// Bytes that [`Registry::read_tagged`] will return, if the names are about as long as all are on average. 0 where the
    /// caller may not see all of them.
    pub fn expected_bytes(&self, tagged: &TaggedIds, limits: &FindLimits) -> usize {
        if limits.filter.is_some() {
            return 0;
        }
        self.expected_text(tagged).saturating_add((tagged.ids.len() as usize).saturating_mul(Found::NODE_BYTES))
    }

    /// Bytes of the names of what was found, if they are about as long as all are on average, and an eighth more.
    fn expected_text(&self, tagged: &TaggedIds) -> usize {
        let bytes = tagged.ids.len().saturating_mul(self.names.read().bytes_per_name() as u64);
        usize::try_from(bytes.saturating_add(bytes / 8)).unwrap_or(usize::MAX)
    }

    /// The second part of [`Registry::tagged`]: the names of what was found, in order. Those of metrics that are gone are left out.
    pub fn read_tagged(&self, tagged: &TaggedIds, limits: &FindLimits) -> Result<Found, FindError> {
        let mut budget = self.budget(limits);
        budget.spend(tagged.steps).map_err(|error| in_names(error, limits))?;
        let order = self.order.lock().clone();
        let sorted = order.sorted(&tagged.ids);
        drop(order);
        let mut found = match limits.filter {
            None => Found::with_room(tagged.ids.len() as usize, self.expected_text(tagged), limits.bytes),
            Some(_) => Found::default(),
        };
        let mut push = |found: &mut Found, ids: &mut dyn Iterator<Item = u32>| {
            let read = self.read_names(ids, &mut |id, name| {
                budget.spend(STEPS_PER_NAME)?;
                if limits.shown(name, id, false).0 != MetricId::NONE {
                    found.push(name, id, false)?;
                    budget.check(found.bytes(), found.len())?;
                }
                Ok(())
            });
            read.map_err(|error| in_names(error, limits))
        };
        let Some((sorted, others)) = sorted else {
            push(&mut found, &mut tagged.ids.iter())?;
            return Ok(found.sorted());
        };
        push(&mut found, &mut sorted.into_iter())?;
        let first = found.len();
        push(&mut found, &mut others.iter())?;
        Ok(found.sorted_behind(first))
    }

    /// How many tagged metrics there are for which all expressions hold.
    pub fn count_tagged(&self, expressions: &TagExpressions, limits: &FindLimits) -> Result<u64, FindError> {
        let mut budget = self.budget(limits);
        let mut index = self.tag_index(limits)?;
        let ids = search(&mut index, expressions, self, &mut budget).map_err(|error| in_names(error, limits))?;
        drop(index);
        let ids = seen_in(ids, &budget);
        match &limits.filter {
            None => Ok(ids.len()),
            Some(_) => Ok(self.shown(&ids, &mut budget)?.len()),
        }
    }

    /// The tags of metrics, by text. Tags that the expressions use are left out.
    pub fn list_tags(&self, asked: &TagListing, limits: &FindLimits) -> Result<Vec<ListedTag>, FindError> {
        let mut budget = self.budget(limits);
        let mut index = self.tag_index(limits)?;
        let within = self.within(&mut index, asked, &mut budget)?;
        list_tags(&mut index, asked, within.as_ref(), &mut budget)
    }

    /// The values of a tag, by text; `None` when no metric has the tag.
    pub fn list_values(
        &self,
        tag: &str,
        asked: &TagListing,
        limits: &FindLimits,
    ) -> Result<Option<Vec<ListedValue>>, FindError> {
        let mut budget = self.budget(limits);
        let mut index = self.tag_index(limits)?;
        let within = self.within(&mut index, asked, &mut budget)?;
        list_values(&mut index, tag, asked, within.as_ref(), self, &mut budget)
    }

    /// Tells the tag index of changes, and returns whether there were any. For a maintenance thread.
    pub(crate) fn index_tags(&self) -> bool {
        // Behind a long question it waits no longer: the path index has its turn, too.
        let is_due = !self.names.read().tag_changes.is_empty();
        is_due && self.tags.try_write_for(POLL).is_some_and(|mut index| self.tell(&mut index))
    }

    /// As [`Registry::index_tags`], however long questions take.
    pub(crate) fn update_tags(&self) {
        self.tell(&mut self.tags.write());
    }

    /// The metrics that a listing is about; all without.
    fn within(
        &self,
        index: &mut RwLockReadGuard<'_, TagIndex>,
        asked: &TagListing,
        budget: &mut Budget<'_>,
    ) -> Result<Option<RoaringBitmap>, FindError> {
        let found = asked.expressions.as_ref().map(|expressions| search(index, expressions, self, budget)).transpose();
        let found = found.map_err(|error| in_names(error, budget.limits))?;
        if budget.unseen.is_none() && budget.limits.filter.is_none() {
            return Ok(found);
        }
        let found = found.unwrap_or_else(|| index.all().clone());
        RwLockReadGuard::unlocked(index, || {
            let found = seen_in(found, budget);
            if budget.limits.filter.is_none() { Ok(Some(found)) } else { self.shown(&found, budget).map(Some) }
        })
    }

    /// Those of metrics that the caller may see.
    fn shown(&self, ids: &RoaringBitmap, budget: &mut Budget<'_>) -> Result<RoaringBitmap, FindError> {
        let limits = budget.limits;
        let mut shown = Vec::new();
        let read = self.read_names(&mut ids.iter(), &mut |id, name| {
            budget.spend(STEPS_PER_NAME)?;
            if limits.shown(name, id, false).0 != MetricId::NONE {
                shown.push(id.0);
            }
            Ok(())
        });
        read.map_err(|error| in_names(error, limits))?;
        Ok(shown.into_iter().collect())
    }

    /// The tag index, which knows of every metric that is there now.
    fn tag_index(&self, limits: &FindLimits) -> Result<RwLockReadGuard<'_, TagIndex>, FindError> {
        loop {
            if self.names.read().tag_changes.is_empty() {
                if let Some(index) = self.tags.try_read_for(POLL) {
                    return Ok(index);
                }
            } else if let Some(mut index) = self.tags.try_write_for(POLL) {
                self.tell(&mut index);
                return Ok(RwLockWriteGuard::downgrade(index));
            }
            limits.check_cancelled()?;
        }
    }

    /// Tells the index of all changes, and returns whether there were any.
    fn tell(&self, index: &mut TagIndex) -> bool {
        let mut changes = std::mem::take(&mut self.names.write().tag_changes);
        if changes.is_empty() {
            return false;
        }
        if let Some(saved) = self.saved_tags.lock().take().and_then(|(saved, names)| saved.read(names)) {
            *index = saved;
        }
        changes.ids.sort_unstable();
        changes.ids.dedup();
        for ids in changes.ids.chunks(BATCH) {
            self.tell_some(index, ids, &changes);
        }
        index.settle();
        let bytes = index.memory_after(changes.ids.len(), changes.estimated_bytes);
        self.names.write().tag_index_bytes = bytes;
        true
    }

    /// Brings some metrics in the index to what they are now. One that is removed meanwhile is among the next changes.
    fn tell_some(&self, index: &mut TagIndex, ids: &[MetricId], changes: &TagChanges) {
        let names = self.read();
        for &id in ids {
            let name = names.name(id);
            match (names.is_shown(id), index.contains(id)) {
                (true, false) => index.add(id, name),
                (false, true) if !name.is_empty() => index.remove(id, name),
                (false, true) => {
                    if let Some(name) = changes.removed.get(&id) {
                        index.remove(id, name);
                    }
                }
                _ => {}
            }
        }
    }

    /// Calls `each` without the lock of names: a comparison with a pattern may take a tenth of a second, and everything that looks
    /// a name up would wait behind the next new metric.
    fn read_names(
        &self,
        mut ids: &mut dyn Iterator<Item = u32>,
        each: &mut dyn FnMut(MetricId, &str) -> Result<(), FindError>,
    ) -> Result<(), FindError> {
        let mut together = [MetricId::NONE; TOGETHER];
        let mut copied = CopiedNames::default();
        let mut is_more = true;
        while is_more {
            let names = self.read();
            for _ in 0..BATCH / TOGETHER {
                let mut count = 0;
                for (place, id) in together.iter_mut().zip(&mut ids) {
                    *place = MetricId(id);
                    count += 1;
                }
                let Ok(()) = names.shown::<Infallible>(&together[..count], &mut |id, name| {
                    copied.push(id, name);
                    Ok(())
                });
                is_more = count == TOGETHER;
                if !is_more || copied.is_full() {
                    break;
                }
            }
            drop(names);
            copied.drain(each)?;
        }
        Ok(())
    }
}

/// Names of some metrics, for a look at them without the lock.
#[derive(Default)]
struct CopiedNames {
    text: String,
    /// Each with the end of its name in the text.
    ends: Vec<(MetricId, usize)>,
}

impl CopiedNames {
    fn push(&mut self, id: MetricId, name: &str) {
        self.text.push_str(name);
        self.ends.push((id, self.text.len()));
    }

    fn is_full(&self) -> bool {
        BATCH_BYTES <= self.text.len()
    }

    fn drain(&mut self, each: &mut dyn FnMut(MetricId, &str) -> Result<(), FindError>) -> Result<(), FindError> {
        let mut begin = 0;
        for &(id, end) in &self.ends {
            each(id, &self.text[begin..end])?;
            begin = end;
        }
        self.text.clear();
        self.ends.clear();
        Ok(())
    }
}

impl SharedIndex for RwLockReadGuard<'_, TagIndex> {
    fn index(&self) -> &TagIndex {
        self
    }

    fn let_pass(&mut self) {
        RwLockReadGuard::bump(self);
    }

    fn without(&mut self, work: &mut dyn FnMut()) {
        RwLockReadGuard::unlocked(self, work);
    }
}

impl ReadNames for Registry {
    fn read(
        &self,
        ids: &RoaringBitmap,
        each: &mut dyn FnMut(MetricId, &str) -> Result<(), FindError>,
    ) -> Result<(), FindError> {
        self.read_names(&mut ids.iter(), each)
    }
}

/// Those of metrics that may have points in the span that is asked for.
fn seen_in(ids: RoaringBitmap, budget: &Budget<'_>) -> RoaringBitmap {
    match &budget.unseen {
        Some(unseen) => ids.into_iter().filter(|&id| !unseen.hides(MetricId(id))).collect(),
        None => ids,
    }
}

/// The error of a search that takes too much work, in words about metrics with tags.
fn in_names(error: FindError, limits: &FindLimits) -> FindError {
    match error {
        FindError::TooMuchWork => FindError::TooManyTagged { limit: limits.steps / STEPS_PER_NAME },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        path::Path,
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering::Relaxed},
        },
    };

    use metric::Policy;
    use regex_automata::meta::Regex;

    use super::*;
    use crate::{
        saved_tags::{SAVED_TAGS, SavedTags},
        tag_expressions::Matcher,
        tag_index::read_index,
    };

    fn compile(pattern: &str) -> Result<Matcher, String> {
        let regex = Regex::new(pattern).map_err(|error| error.to_string())?;
        Ok(Matcher::new(move |value| Ok(regex.is_match(value))).with_pattern(pattern, usize::MAX))
    }

    fn registry(names: &[&str]) -> Registry {
        let registry = Registry::new();
        let policy = registry.intern(&Policy::default());
        for name in names {
            registry.write().create(registry.hash(name.as_bytes()), name, policy, 7);
        }
        registry
    }

    fn tagged(registry: &Registry, texts: &[&str]) -> Vec<String> {
        let expressions = TagExpressions::read(texts, compile).unwrap();
        let found = registry.tagged(&expressions, &FindLimits::default()).unwrap();
        found.leaves().map(|(_, name)| name.to_owned()).collect()
    }

    #[test]
    fn a_metric_is_found_by_its_tags() {
        let registry = registry(&["b;dc=x;rack=1", "a;dc=x", "a;dc=y;rack=2", "a.dc", "odd;dc", "odd;dc=x;rack=~"]);
        assert_eq!(tagged(&registry, &["dc=x"]), ["a;dc=x", "b;dc=x;rack=1"]);
        assert_eq!(tagged(&registry, &["dc=x", "rack="]), ["a;dc=x"]);
        assert_eq!(tagged(&registry, &["rack!="]), ["a;dc=y;rack=2", "b;dc=x;rack=1"]);
        assert_eq!(tagged(&registry, &["name=a", "dc!=x"]), ["a;dc=y;rack=2"]);
        assert_eq!(tagged(&registry, &["dc=~[xy]", "rack!=~1|3"]), ["a;dc=x", "a;dc=y;rack=2"]);
        assert_eq!(tagged(&registry, &["name=~.", "rack=~(2|)$"]), ["a;dc=x", "a;dc=y;rack=2"]);
    }

    #[test]
    fn nothing_waits_for_names_while_their_values_are_compared() {
        let names: Vec<String> = (0..400).map(|i| format!("m;few=f{};one=o{i}", i / 20)).collect();
        let registry = Arc::new(registry(&names.iter().map(String::as_str).collect::<Vec<_>>()));
        let compared = Arc::new(AtomicU32::new(0));
        let matcher = || {
            let (registry, compared) = (registry.clone(), compared.clone());
            Matcher::new(move |value| {
                compared.fetch_add(u32::from(!value.is_empty()), Relaxed);
                assert!(registry.names.try_write().is_some(), "the lock of names is held while {value} is compared");
                Ok(value.ends_with('5'))
            })
            .with_pattern(".*5", usize::MAX)
        };
        let asked = TagExpressions::read(&["few=f3", "one=~.*5"], |_: &str| Ok(matcher())).unwrap();
        let found = registry.tagged(&asked, &FindLimits::default()).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(compared.swap(0, Relaxed), 20);
        let expressions = TagExpressions::read(&["few=f3"], compile).unwrap();
        let listing = TagListing { expressions: Some(expressions), pattern: Some(matcher()), ..TagListing::default() };
        let values = registry.list_values("one", &listing, &FindLimits::default()).unwrap().unwrap();
        assert_eq!(values.iter().map(|one| one.value.as_str()).collect::<Vec<_>>(), ["o65", "o75"]);
        assert_eq!(compared.load(Relaxed), 20);
    }

    #[test]
    fn metrics_that_other_nodes_made_are_found() {
        let registry = registry(&["a;t=1"]);
        assert_eq!(tagged(&registry, &["t=1"]), ["a;t=1"]);
        let records: Vec<store::MetricRecord> = registry
            .reserve(vec!["b;t=1", "c;t=2"], |name| name, |_, _| ())
            .into_iter()
            .map(|(id, name)| store::MetricRecord {
                id,
                name: name.to_owned(),
                created_on: 7,
                policies: vec![store::PolicyChange { since: 0, policy: Policy::default() }],
            })
            .collect();
        assert_eq!(tagged(&registry, &["t!="]), ["a;t=1"]);
        registry.adopt(&records, |_, _| {});
        assert_eq!(tagged(&registry, &["t!="]), ["a;t=1", "b;t=1", "c;t=2"]);
    }

    #[test]
    fn hidden_metrics_are_not_found_and_saved_ones_are() {
        let hiding = registry(&["a;t=1", "b;t=1"]);
        hiding.hide(&[metric::MetricId(0)]);
        assert_eq!(tagged(&hiding, &["t=1"]), ["b;t=1"]);
        hiding.write().create(hiding.hash(b"a;t=1"), "a;t=1", 0, 8);
        assert_eq!(tagged(&hiding, &["t=1"]), ["a;t=1", "b;t=1"]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names");
        hiding.save(&host::SystemDisk, &path, None).unwrap();
        assert_eq!(tagged(&Registry::open(&host::SystemDisk, &path).unwrap().registry, &["t=1"]), ["a;t=1", "b;t=1"]);
    }

    /// A registry that is saved and opened, whose tag index waits in the file next to it.
    fn saved(registry: &Registry, folder: &Path) -> Registry {
        let path = folder.join("names");
        registry.save(&host::SystemDisk, &path, None).unwrap();
        let disk: Arc<dyn host::Disk> = Arc::new(host::SystemDisk);
        Registry::open(&host::SystemDisk, &path).unwrap().expecting_tags(&disk, folder)
    }

    /// Metrics whose tags have sets of all sizes.
    fn many() -> Registry {
        let names: Vec<String> = (0..1500)
            .map(|i| format!("m{};all=é;half=h{};few=f{};one=o{i:04};two=t{}", i % 3, i % 2, i / 3, i / 2))
            .chain(["odd;dc".to_owned(), "plain".to_owned()])
            .collect();
        registry(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// What an index answers to questions of all kinds.
    fn answers(registry: &Registry) -> Vec<Vec<String>> {
        let mut all: Vec<Vec<String>> = [
            ["all=é", "one=~o000."],
            ["half=h1", "few=~f7"],
            ["two=t700", "all!="],
            ["few=f499", "name!=m1"],
            ["name=~m", "one=~.*99$"],
            ["late=1", "name!="],
        ]
        .iter()
        .map(|texts| tagged(registry, texts))
        .collect();
        let listing = TagListing::default();
        let tags = registry.list_tags(&listing, &FindLimits::default()).unwrap();
        for tag in &tags {
            let values = registry.list_values(&tag.tag, &listing, &FindLimits::default()).unwrap().unwrap();
            all.push(values.into_iter().map(|one| format!("{} {}", one.value, one.count)).collect());
        }
        all.push(tags.into_iter().map(|one| one.tag).collect());
        all
    }

    #[test]
    fn a_saved_tag_index_answers_as_one_made_from_the_names() {
        let folder = tempfile::tempdir().unwrap();
        let registry = many();
        registry.hide(&[metric::MetricId(4)]);
        registry.remove(&[metric::MetricId(7), metric::MetricId(1499)]);
        registry.write().create(registry.hash(b"m0;all=x"), "m0;all=x", 0, 7);
        let opened = saved(&registry, folder.path());
        // What changes before the first question counts, too. A start shows hidden metrics until they are found deleted again.
        for registry in [&registry, &opened] {
            registry.write().create(registry.hash(b"a;late=1"), "a;late=1", 0, 7);
            registry.remove(&[metric::MetricId(9)]);
            registry.hide(&[metric::MetricId(4), metric::MetricId(11)]);
        }
        assert_eq!(answers(&opened), answers(&registry));
        assert!(!folder.path().join(SAVED_TAGS).exists());
        let again = saved(&opened, folder.path());
        let (saved, names) = again.saved_tags.lock().take().unwrap();
        let read = saved.read(names).expect("an index that was saved is read");
        assert_eq!(read.all().len(), opened.tags.read().all().len());
    }

    #[test]
    fn a_tag_index_that_is_damaged_or_of_other_names_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let (path, registry) = (folder.path().join(SAVED_TAGS), registry(&["a;t=1", "b;t=1;u=2", "c;t=1", "d;u=é"]));
        let opened = saved(&registry, folder.path());
        let (bytes, of) =
            (std::fs::read(&path).unwrap(), Registry::open(&host::SystemDisk, &folder.path().join("names")));
        let of = of.unwrap().file;
        assert_eq!(read_index(&bytes).map(|(names, _)| names).ok(), Some(of));
        let others = crate::tag_index::NamesFile { checksum: of.checksum ^ 1, ..of };
        let disk: Arc<dyn host::Disk> = Arc::new(host::SystemDisk);
        assert!(SavedTags::begin(&disk, path.clone()).unwrap().read(others).is_none());
        for at in 0..bytes.len() {
            assert!(read_index(&bytes[..at]).is_err(), "{at}");
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(read_index(&damaged).is_err(), "{at} {bit}");
                // A forged file has a right checksum.
                let end = damaged.len() - 4;
                let crc = crc32fast::hash(&damaged[..end]);
                damaged[end..].copy_from_slice(&crc.to_le_bytes());
                _ = read_index(&damaged);
            }
        }
        std::fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
        assert_eq!(tagged(&opened, &["t=1", "u!=2"]), ["a;t=1", "c;t=1"]);
        assert!(!path.exists());
    }

    #[test]
    fn an_invalid_tag_expression_is_an_error_with_a_reason() {
        let check = |texts: &[&str], words: &str| {
            assert_eq!(TagExpressions::read(texts, compile).unwrap_err().to_string(), words);
        };
        check(&[], "At least one tagspec must not match the empty string");
        check(&["a=", "b!=c", "d=~.*", "e!=~x"], "At least one tagspec must not match the empty string");
        for text in ["", "a", "=b", "a;b=c", "a=b;c", "a!b"] {
            check(&["x=y", text], &format!("Invalid tagspec {text}"));
        }
        assert!(
            TagExpressions::read(&["a=~("], compile).unwrap_err().to_string().starts_with("the pattern of 'a=~(' ")
        );
        check(&["a=b"; 101], "there are more than 100 tag expressions");
        assert!(TagExpressions::read(&["a~=b"], compile).is_ok(), "a tag may end in a tilde");
    }

    #[test]
    fn lists_stay_within_their_bytes() {
        let names: Vec<String> = (0..100).map(|i| format!("m;tag{i:03}=v;t=value{i:03};one=1")).collect();
        let registry = registry(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let check = |texts: &[&str], bytes: usize, fits: bool| {
            let limits = FindLimits { bytes, ..FindLimits::default() };
            let expressions = || (!texts.is_empty()).then(|| TagExpressions::read(texts, compile).unwrap());
            let listing = || TagListing { expressions: expressions(), ..TagListing::default() };
            let too_many = FindError::TooManyBytes { limit: bytes };
            let tags = registry.list_tags(&listing(), &limits).map(|tags| tags.len());
            let values = registry.list_values("t", &listing(), &limits).map(|values| values.unwrap().len());
            assert_eq!(tags.err(), (!fits).then(|| too_many.clone()), "{texts:?}");
            assert_eq!(values.err(), (!fits).then_some(too_many), "{texts:?}");
        };
        check(&[], 2000, false);
        check(&[], 10_000, true);
        check(&["one=1"], 2000, false);
        check(&["one=1"], 10_000, true);
        check(&["t=~value00."], 200, false);
        check(&["t=~value00."], 10_000, true);
    }

    #[test]
    fn a_search_through_too_many_names_is_an_error() {
        let names: Vec<String> = (0..5000).map(|i| format!("m{i};t=1")).collect();
        let registry = registry(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let all = TagExpressions::read(&["t=1"], compile).unwrap();
        let limits = FindLimits { nodes: 100, ..FindLimits::default() };
        assert_eq!(registry.tagged(&all, &limits), Err(FindError::TooManyNodes { limit: 100 }));
        let limits = FindLimits { steps: 1000, ..FindLimits::default() };
        assert_eq!(registry.tagged(&all, &limits), Err(FindError::TooManyTagged { limit: 100 }));
    }
}
