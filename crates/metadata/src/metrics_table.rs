//! Rows of the metrics table: what the registry takes over from a store, and what it gives to one.

use metric::{MAX_NAME_BYTES, MetricId, Policy, Timestamp};
use store::{MetricRecord, PolicyChange};

use crate::{names::text, policies::PolicySpan, registry::Registry};

/// The result of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restored {
    /// Metrics that were not known.
    pub added: usize,
    /// Metrics that were known by the same id and name; their policies were replaced.
    pub known: usize,
    /// Records left out: the id has another name, the name has another id, or the name
    /// is longer than names may be. Zero in an intact store that belongs to this registry.
    pub conflicts: usize,
}

/// The result of [`Registry::adopt`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Adopted {
    /// Metrics that were not known.
    pub added: usize,
    /// Ids of metrics that became known meanwhile, by points or by another call, under another policy than their record has.
    pub known_meanwhile: Vec<MetricId>,
}

impl Registry {
    /// Takes over rows of the metrics table, in any order and any batches, each any number of times.
    pub fn restore(&self, records: Vec<MetricRecord>) -> Restored {
        let mut restored = Restored::default();
        let mut table = self.names.write();
        let mut policies = self.policies.write();
        for record in &records {
            let Some(last) = record.policies.last() else {
                restored.conflicts += 1;
                continue;
            };
            let hash = self.hash(record.name.as_bytes());
            let known = table.find(hash, record.name.as_bytes());
            let holder = table.record(record.id).is_some();
            if known.is_some_and(|id| id != record.id)
                || (known.is_none() && holder)
                || record.name.len() > MAX_NAME_BYTES
                || record.id == MetricId::NONE
            {
                restored.conflicts += 1;
                continue;
            }
            let policy = policies.intern(&last.policy);
            if known.is_some() {
                let place = *table.places.get(record.id).expect("a known name has a record");
                table.arena.set_policy(place, policy);
                table.show(record.id);
                restored.known += 1;
            } else {
                table.insert(hash, record.id, &record.name, policy, record.created_on);
                restored.added += 1;
            }
            let spans = record.policies.iter();
            let spans = spans.map(|change| PolicySpan { since: change.since, policy: policies.intern(&change.policy) });
            let spans = spans.collect();
            policies.set_history(record.id, spans);
        }
        restored
    }

    /// Rows for the metrics table, in the order of `ids`. Ids that no metric has are left out.
    pub fn records(&self, ids: &[MetricId]) -> Vec<MetricRecord> {
        let table = self.names.read();
        let policies = self.policies.read();
        let known = ids.iter().filter_map(|&id| table.record(id));
        let rows = known.map(|record| MetricRecord {
            id: record.id,
            name: text(record.name).to_owned(),
            created_on: Timestamp::from(record.created),
            policies: policies
                .history(record.id, record.policy)
                .iter()
                .filter_map(|span| {
                    let policy = policies.get(span.policy)?;
                    Some(PolicyChange { since: span.since, policy: Policy::clone(policy) })
                })
                .collect(),
        });
        rows.collect()
    }

    /// Reserves ids for metrics of shared tables; [`Registry::adopt`] makes them known. Leaves out known metrics,
    /// which it shows again if they were hidden, and names longer than names may be. Calls `shown` with the id and name of each
    /// that was hidden, while the names are locked.
    ///
    /// From here on the id belongs to its name: [`NamesMut::create`](crate::NamesMut::create) and the next call of this
    /// method give the same one. So no name ever has two ids, although the caller has not stored them yet.
    pub fn reserve<T>(
        &self,
        found: Vec<T>,
        name_of: impl Fn(&T) -> &str,
        mut shown: impl FnMut(MetricId, &str),
    ) -> Vec<(MetricId, T)> {
        let mut table = self.names.write();
        let mut unknown = Vec::with_capacity(found.len());
        for one in found {
            let name = name_of(&one);
            // Another program may make such names; this one cannot keep them.
            if name.is_empty() || name.len() > MAX_NAME_BYTES {
                continue;
            }
            if let Some(id) = table.find(self.hash(name.as_bytes()), name.as_bytes()) {
                if table.show(id) {
                    shown(id, name);
                }
                continue;
            }
            let id = match table.reserved.get(name) {
                Some(&id) => id,
                None => {
                    let id = table.places.end();
                    assert!(id != MetricId::NONE, "a registry gives out at most 2^32 - 1 metrics");
                    table.places.extend_to(MetricId(id.0 + 1));
                    table.reserved.insert(name.into(), id);
                    id
                }
            };
            unknown.push((id, one));
        }
        unknown
    }

    /// Makes metrics known under the ids that [`Registry::reserve`] gave them. Those that became known meanwhile stay as
    /// they are. Calls `each` with the id and name of those that were not known, while the names are locked.
    pub fn adopt(&self, records: &[MetricRecord], mut each: impl FnMut(MetricId, &str)) -> Adopted {
        let mut taken = Adopted::default();
        let mut table = self.names.write();
        let mut policies = self.policies.write();
        for record in records {
            let Some(last) = record.policies.last() else { continue };
            let policy = policies.intern(&last.policy);
            if table.reserved.get(&*record.name) == Some(&record.id) {
                table.reserved.remove(&*record.name);
                let hash = self.hash(record.name.as_bytes());
                table.insert(hash, record.id, &record.name, policy, record.created_on);
                let span =
                    |change: &PolicyChange| PolicySpan { since: change.since, policy: policies.intern(&change.policy) };
                let spans: Vec<PolicySpan> = record.policies.iter().map(span).collect();
                policies.set_history(record.id, spans);
                each(record.id, &record.name);
                taken.added += 1;
            } else if table.record(record.id).is_some_and(|known| known.policy != policy) {
                taken.known_meanwhile.push(record.id);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_id_whichever_call_comes_first() {
        let registry = Registry::new();
        let own = registry.intern(&Policy::default());
        let theirs = Policy { x_files_factor: 0.25, ..Policy::default() };
        let create = |name: &str| registry.write().create(registry.hash(name.as_bytes()), name, own, 7);
        let known = create("a");
        let reserve = |names: &[&'static str]| registry.reserve(names.to_vec(), |name| name, |_, _| ());
        assert_eq!(
            reserve(&["a", "b", "c;t=v", "d"]),
            [(MetricId(1), "b"), (MetricId(2), "c;t=v"), (MetricId(3), "d")]
        );
        assert_eq!(
            (reserve(&["d", "e", "d"]), registry.len()),
            (vec![(MetricId(3), "d"), (MetricId(4), "e"), (MetricId(3), "d")], 1)
        );
        assert_eq!(registry.read().find(registry.hash(b"b"), b"b"), None);
        // One of them and a new metric receive a point.
        assert_eq!((create("d"), create("f")), (MetricId(3), MetricId(5)));

        let record = |id: u32, name: &str| MetricRecord {
            id: MetricId(id),
            name: name.to_owned(),
            created_on: 3,
            policies: vec![PolicyChange { since: 0, policy: theirs.clone() }],
        };
        let records = [record(1, "b"), record(2, "c;t=v"), record(3, "d")];
        assert_eq!(registry.adopt(&records, |_, _| {}), Adopted { added: 2, known_meanwhile: vec![MetricId(3)] });
        assert_eq!(registry.adopt(&records, |_, _| {}), Adopted { added: 0, known_meanwhile: vec![MetricId(3)] });
        let names = registry.read();
        let found: Vec<Option<MetricId>> = ["a", "b", "c;t=v", "d", "e"]
            .map(|name| names.find(registry.hash(name.as_bytes()), name.as_bytes()))
            .into();
        assert_eq!(found, [Some(known), Some(MetricId(1)), Some(MetricId(2)), Some(MetricId(3)), None]);
        assert_eq!(
            (names.policy_id(MetricId(3)), names.policy_id(MetricId(1)) != own, names.created_on(MetricId(1))),
            (own, true, 3)
        );
        drop(names);
        registry.hide(&[MetricId(1)]);
        assert_eq!((reserve(&["b"]), registry.len()), (vec![], 5));
    }
}
