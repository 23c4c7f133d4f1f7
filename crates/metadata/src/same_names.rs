//! A metrics table in which several ids have one name. Earlier programs gave a known name a second id when a start could not
//! read all of the log of names.

use std::collections::BTreeMap;

use metric::MetricId;
use store::{NameStore, StoreError};

use crate::registry::Registry;

/// A name of several ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SameName {
    /// The name.
    pub name: String,
    /// The id that it has: the lowest.
    pub taken: MetricId,
    /// The others, rising. No answer has their points.
    pub others: Vec<MetricId>,
}

impl Registry {
    /// The registry of a metrics table. A name of several ids has the lowest at every start, whatever the order of the table.
    ///
    /// # Errors
    /// Whatever the store says.
    pub async fn of_table(table: &dyn NameStore) -> Result<(Registry, Vec<SameName>), StoreError> {
        let registry = Registry::new();
        let mut conflicts = 0;
        table.scan_metrics(&mut |records| conflicts += registry.restore(records).conflicts).await?;
        if conflicts == 0 {
            return Ok((registry, Vec::new()));
        }
        let (registry, mut all) = (Registry::new(), Vec::new());
        table.scan_metrics(&mut |records| all.extend(records)).await?;
        all.sort_by_key(|record| record.id);
        let mut same: BTreeMap<MetricId, SameName> = BTreeMap::new();
        for record in all {
            let (id, name) = (record.id, record.name.clone());
            if registry.restore(vec![record]).conflicts == 0 {
                continue;
            }
            let taken = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes());
            if let Some(taken) = taken.filter(|taken| *taken != id) {
                same.entry(taken).or_insert(SameName { name, taken, others: Vec::new() }).others.push(id);
            }
        }
        Ok((registry, same.into_values().collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, task::Poll};

    use metric::Policy;
    use store::{MemoryDriver, MetricRecord, PolicyChange};

    use super::*;

    fn now<T>(future: impl Future<Output = T>) -> T {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match pin!(future).poll(&mut context) {
            Poll::Ready(done) => done,
            Poll::Pending => panic!("a store in memory does not wait"),
        }
    }

    #[test]
    fn a_name_of_several_ids_has_the_lowest() {
        let store = MemoryDriver::default();
        let record = |id: u32, name: &str| MetricRecord {
            id: MetricId(id),
            name: name.to_owned(),
            created_on: 3,
            policies: vec![PolicyChange { since: 0, policy: Policy::default() }],
        };
        now(store.put_metrics(vec![record(0, "a"), record(5, "b"), record(7, "c")])).unwrap();
        let (registry, same) = now(Registry::of_table(&store)).unwrap();
        assert_eq!((registry.len(), same), (3, Vec::new()));
        now(store.put_metrics(vec![record(2, "b"), record(9, "b"), record(8, "a")])).unwrap();
        let (registry, same) = now(Registry::of_table(&store)).unwrap();
        let found = |name: &str| registry.read().find(registry.hash(name.as_bytes()), name.as_bytes());
        assert_eq!([found("a"), found("b"), found("c")], [0, 2, 7].map(|id| Some(MetricId(id))));
        let ids = |ids: &[u32]| ids.iter().copied().map(MetricId).collect::<Vec<_>>();
        let of = |name: &str, taken: u32, others: &[u32]| SameName {
            name: name.to_owned(),
            taken: MetricId(taken),
            others: ids(others),
        };
        assert_eq!(same, [of("a", 0, &[8]), of("b", 2, &[5, 9])]);
    }
}
