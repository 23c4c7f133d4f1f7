//! Limits on metrics: new names beyond them are rejected and counted, and known names go on.

mod support;

use std::{path::Path, sync::Arc, time::Duration};

use carbon::{RejectReason, Sink};
use ingest::{Ingest, IngestOptions, NameLimits, PrefixLimit, Protocol};
use metadata::Registry;
use store::{MemoryDriver, Store};
use support::{THREE_STAGES, now, options, rules};

async fn open(dir: &Path, name_limits: NameLimits) -> Arc<Ingest> {
    let driver = Arc::new(MemoryDriver::new());
    let options = IngestOptions { name_limits, ..options(dir, Duration::from_secs(3600)) };
    Ingest::open(options, Store::of(driver), Arc::new(Registry::new()), rules(THREE_STAGES)).await.unwrap()
}

async fn send(ingest: &Ingest, names: impl Iterator<Item = String>) {
    let mut batch = ingest.batch(Protocol::LineTcp);
    for name in names {
        batch.point(name.as_bytes(), now(), 1.0);
        if batch.len() == 1024 {
            ingest.accept(&mut batch).await;
        }
    }
    ingest.accept(&mut batch).await;
}

fn rejected(ingest: &Ingest, reason: RejectReason) -> u64 {
    ingest.counters().rejects[reason as usize].1
}

#[tokio::test]
async fn three_hundred_thousand_long_names_stay_within_the_memory_for_names() {
    const LIMIT: u64 = 8 << 20;
    let dir = tempfile::tempdir().unwrap();
    let ingest = open(dir.path(), NameLimits { names_bytes: LIMIT, ..NameLimits::default() }).await;
    // The end differs, so that the index cannot share it.
    let name =
        |i: u64| format!("{:x<880}.{:x}", i.wrapping_mul(0x9E37_79B9_7F4A_7C15), i.wrapping_mul(0xD6E8_FEB8_6659_FD93));
    send(&ingest, (0..300_000).map(name)).await;
    while ingest.registry().compact() {}
    ingest.registry().compact_fully();
    let (metrics, bytes) = (ingest.registry().len() as u64, ingest.registry().memory_bytes() as u64);
    println!("{metrics} metrics, {bytes} bytes");
    // Each has a slot of 48 bytes, and partials of two coarse stages with its first points.
    let bytes = bytes + metrics * (48 + 32);
    assert!(2000 < metrics && bytes <= LIMIT, "{metrics} metrics, {bytes} bytes");
    assert_eq!(rejected(&ingest, RejectReason::NamesFull), 300_000 - metrics);
    let reject = &ingest.rejects()[0];
    assert_eq!(reject.reason, RejectReason::NamesFull);
    assert_eq!(reject.limit.as_deref(), Some("ingest.names_limit = 8388608 bytes"));
    send(&ingest, (0..1000).map(name)).await;
    assert_eq!(ingest.registry().len() as u64, metrics, "known names go on");
    assert_eq!(rejected(&ingest, RejectReason::NamesFull), 300_000 - metrics);
}

#[tokio::test]
async fn spellings_are_part_of_the_memory_for_names_and_give_way_to_new_metrics() {
    const LIMIT: u64 = 8 << 20;
    let dir = tempfile::tempdir().unwrap();
    let ingest = open(dir.path(), NameLimits { names_bytes: LIMIT, ..NameLimits::default() }).await;
    let spelt = |i: u64| format!("requests..{i:a>400}");
    for _ in 0..2 {
        send(&ingest, (0..4000).map(spelt)).await;
    }
    let spelling_bytes = || ingest.counters().spelling_bytes;
    assert!(1 << 20 < spelling_bytes(), "{}", spelling_bytes());
    send(&ingest, (4000..40_000).map(|i| format!("requests.{i:a>400}"))).await;
    assert!(rejected(&ingest, RejectReason::NamesFull) > 0, "the memory is full");
    let metrics = ingest.registry().len() as u64;
    let all = || ingest.registry().memory_bytes() as u64 + metrics * (48 + 32) + spelling_bytes();
    // The index of the last names is merged in the background.
    for _ in 0..100 {
        if all() <= LIMIT {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(4000 < metrics && all() <= LIMIT, "{metrics} metrics, {} bytes, {} of spellings", all(), spelling_bytes());
}

#[tokio::test]
async fn metrics_are_limited_in_all_and_by_prefix_and_deletions_make_room() {
    let dir = tempfile::tempdir().unwrap();
    let prefixes = vec![PrefixLimit { prefix: "dev.".to_owned(), metrics: 10, creations_per_minute: 1000 }];
    let ingest = open(dir.path(), NameLimits { metrics: 30, prefixes, ..NameLimits::default() }).await;
    send(&ingest, (0..20).map(|i| format!("dev.n{i}"))).await;
    assert_eq!((ingest.registry().len(), rejected(&ingest, RejectReason::TooManyMetrics)), (10, 10));
    assert_eq!(ingest.rejects()[0].limit.as_deref(), Some("limits.prefixes = dev.=10/1000"));
    send(&ingest, (0..30).map(|i| format!("prod.n{i}"))).await;
    assert_eq!((ingest.registry().len(), rejected(&ingest, RejectReason::TooManyMetrics)), (30, 20));
    assert_eq!(ingest.rejects()[0].limit.as_deref(), Some("limits.metrics = 30"));
    let found = ingest.registry().leaves("dev.n[0-4]", &metadata::FindLimits::default()).unwrap();
    ingest.delete(&found.leaves().map(|(id, _)| id).collect::<Vec<_>>()).await.unwrap();
    send(&ingest, (20..30).map(|i| format!("dev.n{i}"))).await;
    assert_eq!((ingest.registry().len(), rejected(&ingest, RejectReason::TooManyMetrics)), (30, 25));
}

#[tokio::test]
async fn metrics_that_are_gone_from_shared_tables_make_room_and_count_once_when_they_are_back() {
    let dir = tempfile::tempdir().unwrap();
    let prefixes = vec![PrefixLimit { prefix: "dev.".to_owned(), metrics: 10, creations_per_minute: 1000 }];
    let limits = NameLimits { prefixes, quotas: quotas("[*]\nmetrics = 9\n"), ..NameLimits::default() };
    let ingest = open(dir.path(), limits).await;
    let dev = |numbers: std::ops::Range<u32>| numbers.map(|i| format!("dev.n{i}"));
    send(&ingest, dev(0..9)).await;
    let found = ingest.registry().leaves("dev.n[0-4]", &metadata::FindLimits::default()).unwrap();
    let found: Vec<_> = found.leaves().map(|(id, _)| id).collect();
    assert_eq!(ingest.hide(&found, |name| name != "dev.n4"), 4, "one was made again meanwhile");
    assert_eq!(ingest.hide(&found, |name| name != "dev.n4"), 0, "once");
    assert_eq!(metrics(&ingest), [("dev.".to_owned(), 5), ("dev".to_owned(), 5)]);
    send(&ingest, dev(0..2)).await;
    assert_eq!(metrics(&ingest), [("dev.".to_owned(), 7), ("dev".to_owned(), 7)]);
    for _ in 0..2 {
        assert!(ingest.reserve(vec!["dev.n2"], |name| name).is_empty(), "it has its id");
        assert_eq!(metrics(&ingest), [("dev.".to_owned(), 8), ("dev".to_owned(), 8)], "back through the tables");
    }
    assert_eq!(ingest.delete(&found).await.unwrap(), 5, "hidden ones are subtracted already");
    assert_eq!(metrics(&ingest), [("dev.".to_owned(), 4), ("dev".to_owned(), 4)]);
}

#[tokio::test]
async fn creations_are_limited_by_the_minute() {
    let dir = tempfile::tempdir().unwrap();
    let ingest = open(dir.path(), NameLimits { creations_per_minute: 100, ..NameLimits::default() }).await;
    send(&ingest, (0..150).map(|i| format!("a.n{i}"))).await;
    let created = ingest.registry().len() as u64;
    // A minute may have begun in between.
    assert!((100..=150).contains(&created));
    assert_eq!(rejected(&ingest, RejectReason::TooManyNewMetrics), 150 - created);
    if created < 150 {
        assert_eq!(ingest.rejects()[0].limit.as_deref(), Some("limits.creations_per_minute = 100"));
    }
}

fn quotas(text: &str) -> Vec<carbon::QuotaRule> {
    carbon::read_quotas(text).unwrap().0
}

fn metrics(ingest: &Ingest) -> Vec<(String, u64)> {
    ingest.quotas().into_iter().map(|used| (used.branch, used.metrics)).collect()
}

#[tokio::test]
async fn tagged_metrics_count_for_quotas_after_deletions_and_other_rules_too() {
    let dir = tempfile::tempdir().unwrap();
    let ingest = open(dir.path(), NameLimits { quotas: quotas("[*]\nmetrics = 9\n"), ..NameLimits::default() }).await;
    send(&ingest, ["a.b;x=1", "a.c", "a.d", "b.c;x=1"].map(str::to_owned).into_iter()).await;
    let found = ingest.registry().leaves("a.c", &metadata::FindLimits::default()).unwrap();
    ingest.delete(&found.leaves().map(|(id, _)| id).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(metrics(&ingest), [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    ingest.set_quotas(quotas("[*]\nmetrics = 8\n"));
    assert_eq!(metrics(&ingest), [("a".to_owned(), 2), ("b".to_owned(), 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_metrics_are_accepted_while_other_quotas_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let rules = "[*]\nmetrics = 9000000\n[*.*]\nmetrics = 9000000\nnamespaces = 90000\n";
    let ingest = open(dir.path(), NameLimits { quotas: quotas(rules), ..NameLimits::default() }).await;
    send(&ingest, (0..60_000).map(|i| format!("a.b{}.c{}.d{i}", i % 10, i % 100))).await;
    let (counts, ends) = (ingest.clone(), quotas(&rules.replace("9000000", "8000000")));
    let counting = tokio::task::spawn_blocking(move || counts.set_quotas(ends));
    let mut batches = 0;
    while !counting.is_finished() {
        send(&ingest, std::iter::once(format!("new.b.c{batches}"))).await;
        batches += 1;
    }
    counting.await.unwrap();
    assert!(10 < batches, "{batches} batches");
    let of = |branch: &str| metrics(&ingest).into_iter().find(|(name, _)| name == branch).unwrap().1;
    assert_eq!((of("a"), of("a.b3"), of("new")), (60_000, 6000, batches));
}
