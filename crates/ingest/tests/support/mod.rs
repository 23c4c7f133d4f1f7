//! What the tests of a whole pipeline share: the time, a runtime, rules, options, and the names of a store.
#![allow(dead_code, reason = "each test program uses a part")]

pub mod data_folder;
pub mod shared_tables;

use std::{ops::Range, path::Path, sync::Arc, time::Duration};

use carbon::{RuleFiles, Rules};
use host::Clock as _;
use ingest::{IngestOptions, Sync};
use metadata::Registry;
use metric::{Aggregation, Timestamp};
use store::NameStore;
use tokio::runtime::Runtime;

/// Stages of one second, ten seconds and a minute.
pub const THREE_STAGES: &str = "1s:1h,10s:6h,60s:2d";

/// The seeds of a run: this many, always the same. `SEED` sets the first one and asks for it alone, `SEEDS` sets how many.
pub fn seeds(count: u64) -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("SEED and SEEDS are numbers"));
    let seed = number("SEED");
    let (begin, count) = (seed.unwrap_or(1), number("SEEDS").unwrap_or(if seed.is_some() { 1 } else { count }));
    println!("SEED={begin} SEEDS={count}");
    begin..begin + count
}

pub fn now() -> Timestamp {
    host::SystemClock.now()
}

pub fn runtime(threads: usize) -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
}

/// Every metric has these retentions and is summed.
pub fn rules(retentions: &str) -> Rules {
    parse(retentions, "[all]\npattern = .*\nxFilesFactor = 0\naggregationMethod = sum\n")
}

/// A metric has three stages, and the method that its name begins with.
pub fn rules_by_method(methods: &[(&str, Aggregation)], x_files_factor: f64) -> Rules {
    rules_of(THREE_STAGES, methods, x_files_factor)
}

/// A metric has these retentions, and the method that its name begins with.
pub fn rules_of(retentions: &str, methods: &[(&str, Aggregation)], x_files_factor: f64) -> Rules {
    let rule = |(name, _): &(&str, Aggregation)| {
        format!("[{name}]\npattern = ^{name}\\.\nxFilesFactor = {x_files_factor}\naggregationMethod = {name}\n")
    };
    parse(retentions, &methods.iter().map(rule).collect::<String>())
}

fn parse(retentions: &str, aggregation: &str) -> Rules {
    let schemas = format!("[all]\npattern = .*\nretentions = {retentions}\n");
    let files = RuleFiles { schemas: Some(&schemas), aggregation: Some(aggregation), ..RuleFiles::default() };
    Rules::parse(files).expect("good rules").0
}

/// A journal in `dir` that is synced at this interval.
pub fn options(dir: &Path, sync: Duration) -> IngestOptions {
    IngestOptions { journal_dir: dir.to_owned(), sync: Sync::Every(sync), ..IngestOptions::default() }
}

/// A registry with the names of the store.
pub async fn registry_of(names: &dyn NameStore) -> Arc<Registry> {
    let registry = Arc::new(Registry::new());
    names.scan_metrics(&mut |records| _ = registry.restore(records)).await.unwrap();
    registry
}
