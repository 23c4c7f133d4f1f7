//! Facts about a store of names.

use metric::{Aggregation, MetricId, Policy};

use super::Fixture;
use crate::{MetricRecord, NameStore, PolicyChange};

/// Checks every fact about the metrics table.
pub async fn names_suite<F: Fixture<dyn NameStore>>(fixture: &mut F) {
    let store = fixture.open().await;
    metrics_are_scanned_as_they_were_put(&*store).await;
    drop(store);
    synced_metrics_outlive_the_driver(fixture).await;
}

/// Every field of a row of the metrics table comes back, and a second put of an id replaces the first.
async fn metrics_are_scanned_as_they_were_put(store: &dyn NameStore) {
    let records: Vec<MetricRecord> = (20_000..20_700).map(record).collect();
    store.put_metrics(records.clone()).await.unwrap();
    assert_eq!(scan(store, 20_000..20_700).await, records);

    let mut changed = records[33].clone();
    changed.policies.push(PolicyChange { since: 1_700_000_000, policy: Policy::default() });
    store.put_metrics(vec![changed.clone()]).await.unwrap();
    assert_eq!(scan(store, 20_033..20_034).await, [changed]);
    assert_eq!(scan(store, 20_000..20_700).await.len(), records.len());
    store.put_metrics(vec![]).await.unwrap();
}

/// Synced rows are there when the store is opened again; a store in memory is exempt.
async fn synced_metrics_outlive_the_driver<F: Fixture<dyn NameStore>>(fixture: &mut F) {
    if !F::OUTLIVES {
        return;
    }
    let store = fixture.open().await;
    store.put_metrics(vec![record(14)]).await.unwrap();
    store.sync_metrics().await.unwrap();
    drop(store);
    let store = fixture.open().await;
    assert_eq!(scan(&*store, 14..15).await, [record(14)]);
}

fn record(id: u32) -> MetricRecord {
    let policy = Policy {
        retention: "11520*60s:720*3600s:730*86400s".parse().expect("a retention"),
        aggregation: Aggregation::ALL[id as usize % 8],
        x_files_factor: f64::from(id % 11) / 10.0,
    };
    MetricRecord {
        id: MetricId(id),
        name: format!("servers.dc{}.é.conformance-{id};role=db", id % 4),
        created_on: 1_600_000_000 + i64::from(id),
        policies: vec![PolicyChange { since: 0, policy }],
    }
}

/// The rows with these ids, sorted by id.
async fn scan(store: &dyn NameStore, ids: std::ops::Range<u32>) -> Vec<MetricRecord> {
    let mut found = Vec::new();
    let mut each = |batch: Vec<MetricRecord>| {
        found.extend(batch.into_iter().filter(|record| ids.contains(&record.id.0)));
    };
    store.scan_metrics(&mut each).await.unwrap();
    found.sort_by_key(|record| record.id);
    found
}
