//! Facts about a store of names.

use metric::{Aggregation, MetricId, Policy};

use super::Fixture;
use crate::{Identity, MetricRecord, NameStore, PolicyChange};

/// Checks every fact about the metrics table.
pub async fn names_suite<F: Fixture<dyn NameStore>>(fixture: &mut F) {
    let store = fixture.open().await;
    metrics_are_scanned_as_they_were_put(&*store).await;
    deleted_metrics_stay_deleted(&*store).await;
    ids_that_were_seen_are_below_the_next(&*store).await;
    an_opening_is_added_to_the_chain(&*store).await;
    drop(store);
    synced_metrics_outlive_the_driver(fixture).await;
    deletions_and_openings_outlive_the_driver(fixture).await;
}

/// A deleted row is not scanned, and a later put of its id has no effect: a writer that did not know of the deletion
/// must not bring the name back under an id that is gone.
async fn deleted_metrics_stay_deleted(store: &dyn NameStore) {
    store.put_metrics((21_000..21_010).map(record).collect()).await.unwrap();
    store.delete_metrics(vec![MetricId(21_003), MetricId(21_007), MetricId(21_020)]).await.unwrap();
    let left: Vec<MetricRecord> = [21_000, 21_001, 21_002, 21_004, 21_005, 21_006, 21_008, 21_009].map(record).to_vec();
    assert_eq!(scan(store, 21_000..21_030).await, left);
    store.put_metrics(vec![record(21_003), record(21_020), record(21_021)]).await.unwrap();
    let left = [left, vec![record(21_021)]].concat();
    assert_eq!(scan(store, 21_000..21_030).await, left);
    store.delete_metrics(vec![]).await.unwrap();
    store.delete_metrics(vec![MetricId(21_003)]).await.unwrap();
    assert_eq!(scan(store, 21_000..21_030).await, left);
}

/// The next id is above ids with a name, and above deleted ones even if they never had one.
async fn ids_that_were_seen_are_below_the_next(store: &dyn NameStore) {
    store.put_metrics(vec![record(22_000)]).await.unwrap();
    assert!(store.next_id() > MetricId(22_000), "{}", store.next_id());
    store.delete_metrics(vec![MetricId(22_000), MetricId(22_010)]).await.unwrap();
    assert!(store.next_id() > MetricId(22_010), "{}", store.next_id());
}

/// `begin` adds one opening, above every id that the store or the caller has seen, and `identity` says so from then on.
async fn an_opening_is_added_to_the_chain(store: &dyn NameStore) {
    let before = store.identity();
    let seen = store.next_id();
    let first = store.begin(MetricId(0)).await.unwrap();
    assert_eq!(first, store.identity());
    assert_eq!((first.store, first.chain.len()), (before.store, before.chain.len() + 1));
    assert!(first.store != 0 && first.chain.starts_with(&before.chain), "{before:?} {first:?}");
    assert_eq!(first.chain.last().unwrap().first_id, seen, "no id that was seen is given out again");

    let above = MetricId(seen.0 + 500);
    let second = store.begin(above).await.unwrap();
    let [.., one, two] = &second.chain[..] else { panic!("two openings: {second:?}") };
    assert_ne!(one.id, two.id);
    assert_eq!(two.first_id, above);
    assert_eq!(store.next_id(), above, "openings count as seen");
}

/// What was deleted and which openings there were is there when the store is opened again; a store in memory is exempt.
async fn deletions_and_openings_outlive_the_driver<F: Fixture<dyn NameStore>>(fixture: &mut F) {
    if !F::OUTLIVES {
        return;
    }
    let store = fixture.open().await;
    store.put_metrics((23_000..23_003).map(record).collect()).await.unwrap();
    store.delete_metrics(vec![MetricId(23_001), MetricId(23_004)]).await.unwrap();
    store.sync_metrics().await.unwrap();
    let above = MetricId(store.next_id().0 + 100);
    let identity: Identity = store.begin(above).await.unwrap();
    drop(store);
    let store = fixture.open().await;
    assert_eq!(store.identity(), identity);
    assert_eq!(store.next_id(), above);
    store.put_metrics(vec![record(23_001), record(23_004)]).await.unwrap();
    assert_eq!(scan(&*store, 23_000..23_010).await, [record(23_000), record(23_002)]);
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
        ..Policy::default()
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
