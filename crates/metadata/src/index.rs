//! The path index: the names that a pattern matches.
//!
//! Log-structured. A new name goes to the tail, a plain list that finds read one by one. The maintenance thread
//! seals the tail into a segment and merges segments, always outside the lock: a find or a creation waits for the
//! exchange of a list of pointers, never for a merge. Finds leave out the removed metrics that are still in a segment; when
//! they are many, their segments are built without them.

use std::{collections::HashSet, sync::Arc};

use metric::{MetricId, is_tagged};

use crate::{
    found::Found,
    limits::{Budget, FindError, FindLimits},
    names::text,
    registry::Registry,
    segment::{Merge, Segment, SegmentBuilder},
    walk::{self, Glob},
};

/// Names in the tail from which on it is sealed. A look through as many takes about half a millisecond.
const SEAL: usize = 8192;

/// As [`SEAL`], when few names are coming: sealing then delays no batch.
const SEAL_WHEN_QUIET: usize = 256;

/// Names sealed at once, at most: what bounds the memory of a seal after a restore.
const SEAL_MOST: usize = 1 << 18;

/// New names between two calls of `compact` below which it is quiet.
const QUIET: usize = 1000;

/// Segments of similar size that are left side by side while names are streaming in. More make fewer
/// merges and slower finds: with 8, a million new names are each merged twice.
const FAN_IN: usize = 8;

/// When it is quiet, segments that together have this part of the next larger one are merged into it.
const QUIET_RATIO: usize = 4;

/// Names looked at in one hold of the lock.
const TAIL_BATCH: usize = 1024;

/// Segments are built without removed metrics when these are this part of the names in them.
const REMOVED_RATIO: usize = 8;

/// The parts of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexStatistics {
    /// Names in segments.
    pub indexed: usize,
    /// Names that wait in the tail.
    pub tail: usize,
    /// Segments.
    pub segments: usize,
    /// Bytes of the segments.
    pub memory_bytes: usize,
}

impl Registry {
    /// The nodes that a pattern names: metrics and branches of exactly its depth (of any, with `**`), as
    /// graphite-web 1.1.10 finds them.
    ///
    /// Tagged metrics are not in the tree; a pattern that has a `;` is the exact name of one.
    pub fn find(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError> {
        if is_tagged(pattern) {
            return self.exact(pattern, limits);
        }
        self.resolve(pattern, limits, false)
    }

    /// The metrics that a pattern names, to be read: nodes with an id. The exact name of a metric, tagged
    /// or not, costs one lookup.
    pub fn leaves(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError> {
        if is_tagged(pattern) {
            return self.exact(pattern, limits);
        }
        if globs::is_pattern(pattern) {
            return self.resolve(pattern, limits, true);
        }
        let found = self.exact(&globs::plain_name(pattern), limits)?;
        // A name that has a backslash is found as it is listed, too.
        if found.is_empty() && pattern.contains('\\') {
            return self.exact(pattern, limits);
        }
        Ok(found)
    }

    /// Calls `each` with the id and name of every untagged metric in the order of names, until it
    /// returns false. Metrics created meanwhile are left out.
    pub fn all(&self, mut each: impl FnMut(MetricId, &str) -> bool) {
        let (segments, tail, removed) = self.index_snapshot();
        let tail = self.copy_names(&tail);
        let sorted = tail.sorted();
        Merge::new(&segments, &sorted, &removed).for_each(|name, id| each(id, text(name)));
    }

    /// Brings the indexes up to date, where that pays, and returns whether there was something to do, in
    /// which case there may be more. For a maintenance thread, every 100 ms to a second.
    pub fn compact(&self) -> bool {
        if self.index_tags() || self.number_stale() {
            return true;
        }
        let Some(mut names_before) = self.compacting.try_lock() else { return false };
        let (names, tail, sizes, removed) = {
            let table = self.names.read();
            let sizes = table.segments.iter().map(|segment| segment.len()).collect::<Vec<_>>();
            (table.names, table.tail.len(), sizes, table.removed.len())
        };
        let quiet = names.saturating_sub(*names_before) < QUIET;
        *names_before = names;
        if tail >= SEAL || quiet && tail >= SEAL_WHEN_QUIET {
            self.seal(tail.min(SEAL_MOST));
            return true;
        }
        if removed > 0 && removed * REMOVED_RATIO >= sizes.iter().sum() {
            self.leave_out_removed();
            return true;
        }
        if let Some(first) = first_to_merge(&sizes, quiet) {
            self.merge_from(first);
            return true;
        }
        drop(names_before);
        quiet && self.order_names()
    }

    /// Brings the order of tagged metrics up to date, where that pays, and returns whether it did.
    fn order_names(&self) -> bool {
        let order = self.order.lock().clone();
        let Some(updated) = order.updated(&self.tags, &self.names) else { return false };
        *self.order.lock() = Arc::new(updated);
        true
    }

    /// Seals the tail and merges every segment into one, whether that pays or not: before a measurement, or
    /// a save that is to be opened fast. Takes half a microsecond a metric or so.
    pub fn compact_fully(&self) {
        let _compacting = self.compacting.lock();
        loop {
            let tail = self.names.read().tail.len();
            if tail == 0 {
                break;
            }
            self.seal(tail.min(SEAL_MOST));
        }
        self.merge_from(0);
        self.leave_out_removed();
    }

    /// The parts of the path index.
    pub fn index_statistics(&self) -> IndexStatistics {
        let table = self.names.read();
        IndexStatistics {
            indexed: table.segments.iter().map(|segment| segment.len()).sum(),
            tail: table.tail.len(),
            segments: table.segments.len(),
            memory_bytes: table.segments.iter().map(|segment| segment.memory_bytes()).sum(),
        }
    }

    /// Hides metrics that another process deleted from shared tables. Their ids, names and policies stay, for points
    /// that are on their way; [`NamesMut::create`](crate::NamesMut::create) of the same name shows one again under its
    /// old id. Rebuilds the path index: seconds for millions of names, outside the lock.
    pub fn hide(&self, ids: &[MetricId]) {
        self.hide_each(ids, |_, _| true);
    }

    /// As [`Registry::hide`], of those for which `is_meant` says so, which gets the id and name of every one that is shown, while the names
    /// are locked. Returns how many there were.
    pub fn hide_each(&self, ids: &[MetricId], mut is_meant: impl FnMut(MetricId, &str) -> bool) -> usize {
        let _compacting = self.compacting.lock();
        let gone: HashSet<MetricId> = {
            let table = &mut *self.names.write();
            let mut is_shown = |id: &MetricId| {
                let record = table.record(*id).filter(|_| !table.hidden.contains(id));
                record.is_some_and(|record| is_meant(*id, text(record.name)))
            };
            let mut gone = HashSet::with_capacity(ids.len());
            for id in ids {
                if !gone.contains(id) && is_shown(id) {
                    gone.insert(*id);
                }
            }
            table.hidden.extend(&gone);
            table.names -= gone.len();
            table.tail.retain(|id| !gone.contains(id));
            for &id in &gone {
                if table.record(id).is_some_and(|record| is_tagged(text(record.name))) {
                    table.tag_changes.hidden_or_shown(id);
                }
            }
            gone
        };
        if !gone.is_empty() {
            self.rebuild_without(&gone);
        }
        gone.len()
    }

    /// Merges the segments from an index on.
    fn merge_from(&self, first: usize) {
        let (old, removed) = {
            let table = self.names.read();
            (table.segments[first..].to_vec(), table.removed.clone())
        };
        if old.len() < 2 {
            return;
        }
        let merged = merge(&old, &[], &removed);
        drop(removed);
        let mut table = self.names.write();
        table.segments.truncate(first);
        table.add_segment(merged);
        table.forget_removed(&old);
        drop(table);
        // The last owner of the old segments frees them: `old`, outside the lock, or a find that still reads.
    }

    /// Builds the segments that have removed metrics again, without these. The caller holds `compacting`.
    fn leave_out_removed(&self) {
        let removed = self.names.read().removed.clone();
        if !removed.is_empty() {
            self.rebuild_without(&removed);
        }
    }

    /// Builds the segments that have some of these metrics again, without these. The caller holds `compacting`.
    pub(crate) fn rebuild_without(&self, gone: &HashSet<MetricId>) {
        let (all, removed) = {
            let table = self.names.read();
            (table.segments.clone(), table.removed.clone())
        };
        // A segment that is built again is without removed metrics, too: from then on they are known nowhere.
        let all_gone: HashSet<MetricId> = gone.union(&removed).copied().collect();
        let old = all.into_iter().filter(|segment| segment.ids.iter().any(|id| gone.contains(id)));
        for segment in old {
            let old = [segment];
            let rest = merge(&old, &[], &all_gone);
            let mut table = self.names.write();
            table.segments.retain(|segment| !Arc::ptr_eq(segment, &old[0]));
            if rest.len() > 0 {
                table.add_segment(rest);
            }
            table.forget_removed(&old);
        }
    }

    /// Makes a segment of the first `count` names of the tail.
    fn seal(&self, count: usize) {
        let tail = self.names.read().tail[..count].to_vec();
        let names = self.copy_names(&tail);
        let segment = merge(&[], &names.sorted(), &HashSet::new());
        let mut table = self.names.write();
        // Names are only ever added behind.
        table.tail.drain(..count);
        if table.tail.is_empty() {
            table.tail.shrink_to(SEAL * 2);
        }
        table.add_segment(segment);
    }

    fn exact(&self, name: &str, limits: &FindLimits) -> Result<Found, FindError> {
        let mut found = Found::default();
        let hash = self.hash(name.as_bytes());
        let id = self.read().find(hash, name.as_bytes()).unwrap_or(MetricId::NONE);
        let budget = self.budget(limits);
        if limits.shown(name, id, false).0 != MetricId::NONE && !budget.hides(id) {
            found.push(name, id, false)?;
        }
        Ok(found)
    }

    fn resolve(&self, pattern: &str, limits: &FindLimits, leaves_only: bool) -> Result<Found, FindError> {
        let Some(mut glob) = Glob::new(pattern)? else { return Ok(Found::default()) };
        let mut budget = self.budget(limits);
        let (segments, tail, removed) = self.index_snapshot();
        let mut parts = Vec::new();
        for segment in &segments {
            let part = walk::segment(segment, &mut glob, leaves_only, &removed, &mut budget)?;
            budget.parts += part.bytes();
            parts.push(part);
        }
        let mut part = Found::default();
        for ids in tail.chunks(TAIL_BATCH) {
            budget.prepare(ids);
            let names = self.read();
            // A metric that was removed meanwhile has no name.
            for &id in ids.iter().filter(|&&id| !names.name(id).is_empty()) {
                if budget.hides(id) {
                    continue;
                }
                walk::name(names.name(id), id, &mut glob, leaves_only, &mut budget, &mut part)?;
            }
            drop(names);
            budget.check(part.bytes(), part.len())?;
        }
        parts.push(part.sorted());
        budget.parts = 0;
        merge_found(parts, &budget)
    }

    fn index_snapshot(&self) -> (Vec<Arc<Segment>>, Vec<MetricId>, Arc<HashSet<MetricId>>) {
        let table = self.names.read();
        (table.segments.clone(), table.tail.clone(), table.removed.clone())
    }

    fn copy_names(&self, ids: &[MetricId]) -> CopiedNames {
        let mut copied = CopiedNames { text: Vec::new(), entries: Vec::with_capacity(ids.len()) };
        for ids in ids.chunks(TAIL_BATCH) {
            let names = self.read();
            for &id in ids.iter().filter(|&&id| !names.name(id).is_empty()) {
                copied.text.extend_from_slice(names.name(id).as_bytes());
                copied.entries.push((copied.text.len(), id));
            }
        }
        copied
    }
}

/// One answer of several, the two smallest at a time, so that large ones are copied seldom.
fn merge_found(mut parts: Vec<Found>, budget: &Budget<'_>) -> Result<Found, FindError> {
    parts.retain(|part| !part.is_empty());
    loop {
        parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
        let Some(last) = parts.pop() else { return Ok(Found::default()) };
        let Some(before) = parts.pop() else { return Ok(last) };
        let merged = before.merge(last)?;
        budget.check(merged.bytes(), merged.len())?;
        parts.push(merged);
    }
}

/// Names copied out of the arena, to be read without the lock.
struct CopiedNames {
    text: Vec<u8>,
    // Where each name ends, and its id.
    entries: Vec<(usize, MetricId)>,
}

impl CopiedNames {
    /// The names in byte order.
    fn sorted(&self) -> Vec<(&[u8], MetricId)> {
        let mut begin = 0;
        let names = self.entries.iter().map(|&(end, id)| {
            let name = &self.text[begin..end];
            begin = end;
            (name, id)
        });
        let mut names: Vec<(&[u8], MetricId)> = names.collect();
        // Hosts send their metrics in the same order each time; a stable sort makes use of such runs.
        names.sort_by(|a, b| a.0.cmp(b.0));
        names
    }
}

fn merge(segments: &[Arc<Segment>], sorted: &[(&[u8], MetricId)], removed: &HashSet<MetricId>) -> Segment {
    let names = segments.iter().map(|segment| segment.len()).sum::<usize>() + sorted.len();
    let mut builder = SegmentBuilder::new(names);
    Merge::new(segments, sorted, removed).for_each(|name, id| {
        builder.push(name, id);
        true
    });
    builder.finish()
}

/// The index of the first of the segments to be merged, from which on all are. `sizes` are in falling order.
fn first_to_merge(sizes: &[usize], quiet: bool) -> Option<usize> {
    let mut smaller = 0;
    let mut first = None;
    for (i, &size) in sizes.iter().enumerate().rev() {
        let is_crowded = i + FAN_IN <= sizes.len() && tier(sizes[i]) == tier(sizes[i + FAN_IN - 1]);
        let is_worth_it = quiet && smaller * QUIET_RATIO >= size;
        if is_crowded || is_worth_it {
            first = Some(i);
        }
        smaller += size;
    }
    // A single segment needs no merge; the loop chooses the last one only when its size is zero.
    first.filter(|&first| first + 1 < sizes.len())
}

/// Sizes of the same tier differ by less than the fan-in.
fn tier(size: usize) -> u32 {
    size.max(1).ilog2() / FAN_IN.ilog2()
}

#[cfg(test)]
mod tests {
    use metric::Policy;

    use super::*;

    #[test]
    fn segments_are_merged_when_they_crowd_or_when_it_is_quiet() {
        assert_eq!(first_to_merge(&[], true), None);
        assert_eq!(first_to_merge(&[9000], true), None);
        assert_eq!(first_to_merge(&[1_000_000, 9000], true), None);
        assert_eq!(first_to_merge(&[1_000_000, 250_000], true), Some(0));
        assert_eq!(first_to_merge(&[1_000_000, 9000, 3000], true), Some(1));
        assert_eq!(first_to_merge(&[9000; 7], false), None);
        assert_eq!(first_to_merge(&[9000; 8], false), Some(0));
        assert_eq!(first_to_merge(&[vec![1_000_000], vec![9000; 8]].concat(), false), Some(1));
    }

    #[test]
    fn a_metric_is_found_the_moment_it_is_created() {
        let registry = Registry::new();
        let policy = registry.intern(&Policy::default());
        for name in ["a.b", "a.b.c", "a.d-é.c", "x;t=v"] {
            registry.write().create(registry.hash(name.as_bytes()), name, policy, 7);
        }
        let paths = |pattern: &str| {
            let found = registry.find(pattern, &FindLimits::default()).unwrap();
            found.iter().map(|n| format!("{}:{}{}", n.path, n.is_leaf as u8, n.is_branch as u8)).collect::<Vec<_>>()
        };
        assert_eq!(paths("a.*"), ["a.b:11", "a.d-é:01"]);
        assert_eq!(paths("a.d-?.[a-c]"), ["a.d-é.c:10"]);
        assert_eq!(paths("a.{b,d-é}.c"), ["a.b.c:10", "a.d-é.c:10"]);
        assert_eq!(paths("x;t=v"), ["x;t=v:10"]);
        assert_eq!(paths("**"), ["a:01", "a.b:11", "a.b.c:10", "a.d-é:01", "a.d-é.c:10"]);
        assert_eq!(paths("a[b.c"), Vec::<String>::new());
    }

    #[test]
    fn a_hidden_metric_is_gone_with_its_directories_and_comes_back_under_its_id() {
        let registry = Registry::new();
        let policy = registry.intern(&Policy::default());
        let create = |name: &str| registry.write().create(registry.hash(name.as_bytes()), name, policy, 7);
        let ids: Vec<MetricId> = ["a.b", "a.c.d", "e.f", "x;t=v"].into_iter().map(create).collect();
        registry.compact_fully();
        let late = create("g.h");
        let paths = |pattern: &str| {
            let found = registry.find(pattern, &FindLimits::default()).unwrap();
            found.iter().map(|node| node.path.to_owned()).collect::<Vec<_>>()
        };
        registry.hide(&[ids[1], ids[2], ids[3], late, MetricId(99)]);
        assert_eq!((paths("**"), registry.len()), (vec!["a".to_owned(), "a.b".to_owned()], 1));
        assert_eq!((paths("e.f"), paths("x;t=v")), (vec![], vec![]));
        assert_eq!(registry.read().name(ids[1]), "a.c.d");
        assert_eq!(create("a.c.d"), ids[1]);
        assert_eq!((paths("a.c.*"), registry.len()), (vec!["a.c.d".to_owned()], 2));
        registry.compact_fully();
        assert_eq!(paths("a.*"), ["a.b", "a.c"]);
        registry.hide(&ids);
        assert_eq!((paths("**"), registry.len()), (vec![], 0));
    }
}
