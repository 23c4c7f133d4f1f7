//! Removing metrics for good: their names, records and histories are freed.

use std::{collections::HashSet, sync::Arc};

use metric::{MetricId, is_tagged};

use crate::{
    arena::{NOWHERE, Record},
    names::{Table, text},
    registry::Registry,
};

/// Metrics removed in one hold of the lock: about a millisecond.
const AT_ONCE: usize = 4096;

impl Registry {
    /// Removes metrics, and returns how many of the ids had one. From here on [`NamesMut::create`](crate::NamesMut::create)
    /// of the same name makes another metric with another id. Waits for a merge of the path index.
    pub fn remove(&self, ids: &[MetricId]) -> usize {
        self.remove_each(ids, |_, _| {})
    }

    /// As [`Registry::remove`], and calls `each` with the id and name of every metric that was shown, while the names are
    /// locked.
    pub fn remove_each(&self, ids: &[MetricId], mut each: impl FnMut(MetricId, &str)) -> usize {
        let _compacting = self.compacting.lock();
        let mut removed = 0;
        for ids in ids.chunks(AT_ONCE) {
            removed += self.remove_group(ids, &mut each);
            while self.move_sparse_chunk() {}
        }
        removed
    }

    fn remove_group(&self, ids: &[MetricId], each: &mut impl FnMut(MetricId, &str)) -> usize {
        let mut table = self.names.write();
        let mut policies = self.policies.write();
        let before = table.names + table.hidden.len();
        let mut indexed = HashSet::new();
        for &id in ids {
            let Some(record) = table.record(id) else { continue };
            let is_tagged = is_tagged(text(record.name));
            if !table.hidden.contains(&id) {
                each(id, text(record.name));
            }
            let was_hidden = self.free(&mut table, id);
            policies.forget(id);
            self.seen().forget(id);
            self.forget_stale(id);
            if !is_tagged && !was_hidden {
                indexed.insert(id);
            }
        }
        // Those that are in the tail are in no segment.
        table.tail.retain(|id| !indexed.remove(id));
        if !indexed.is_empty() {
            Arc::make_mut(&mut table.removed).extend(indexed);
        }
        before - (table.names + table.hidden.len())
    }

    /// Frees the record of a metric; returns whether it was hidden.
    fn free(&self, table: &mut Table, id: MetricId) -> bool {
        let place = *table.places.get(id).expect("its record was found there");
        let name = table.arena.get(place).name;
        let hash = self.hash(name);
        if is_tagged(text(name)) {
            table.tag_changes.removed(id, text(name));
        }
        table.by_name.remove(hash, place);
        table.arena.remove(place);
        *table.places.entry(id) = NOWHERE;
        table.places.free(id, |&place| place == NOWHERE);
        let was_hidden = table.hidden.remove(&id);
        if !was_hidden {
            table.names -= 1;
        }
        was_hidden
    }

    /// Moves the records of a chunk of names that is mostly gaps. Returns whether there was one.
    fn move_sparse_chunk(&self) -> bool {
        let mut table = self.names.write();
        let table = &mut *table;
        let Some(chunk) = table.arena.sparse_chunk() else { return false };
        let mut name = Vec::new();
        for old in table.arena.places_of(chunk) {
            let record = table.arena.get(old);
            name.clear();
            name.extend_from_slice(record.name);
            let (id, created, policy) = (record.id, record.created, record.policy);
            let new = table.arena.push(Record { id, created, policy, name: &name });
            table.by_name.set_place(self.hash(&name), old, new);
            *table.places.entry(id) = new;
        }
        table.arena.free_chunk(chunk);
        true
    }
}
