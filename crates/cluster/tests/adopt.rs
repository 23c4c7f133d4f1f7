//! Metrics of the shared tables in a node that has had them before.

use std::{sync::Arc, time::Duration};

use carbon::{RuleFiles, Rules};
use ingest::{Ingest, IngestOptions, Sync};
use metadata::Registry;
use metric::{Aggregation, Policy, Timestamp};
use store::{
    DriverFuture, MemoryDriver, MetricRecord, NameStore, OwnRows, PolicyChange, Run, SharedMetric, SharedPoints, Store,
    StoreError,
};

/// Others write the store, and have written nothing so far.
struct NoPartials;

impl SharedPoints for NoPartials {
    fn delete_metrics(&self, _metrics: Vec<MetricRecord>, _at: Timestamp) -> DriverFuture<'_, ()> {
        Box::pin(std::future::ready(Err(StoreError::Rejected("this store does not delete for others".to_owned()))))
    }

    fn writer_partials(&self, totals: Vec<Run>) -> DriverFuture<'_, OwnRows> {
        Box::pin(std::future::ready(Ok(totals.into())))
    }
}

fn shared(retention: &str, aggregation: Aggregation, since: Timestamp) -> SharedMetric {
    SharedMetric {
        name: "a.b".to_owned(),
        policy: policy(retention, aggregation),
        since,
        earlier: Vec::new(),
        created_on: Some(5),
        updated_on: None,
    }
}

fn policy(retention: &str, aggregation: Aggregation) -> Policy {
    Policy { retention: retention.parse().unwrap(), aggregation, ..Policy::default() }
}

#[tokio::test]
async fn a_deleted_metric_that_comes_again_under_another_policy_is_read_by_that_one() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let options = IngestOptions {
        journal_dir: dir.path().to_owned(),
        sync: Sync::Every(Duration::from_secs(60)),
        ..IngestOptions::default()
    };
    let rules = Rules::parse(RuleFiles::default()).unwrap().0;
    let store = Store { shared: Some(Arc::new(NoPartials)), ..Store::of(driver.clone()) };
    let ingest = Ingest::open(options, store, Arc::new(Registry::new()), rules).await.unwrap();
    let names: &dyn NameStore = &*driver;
    assert_eq!(cluster::adopt(vec![shared("1440*60s", Aggregation::Sum, 0)], names, &ingest).await.unwrap(), 1);
    let registry = ingest.registry();
    let id = registry.read().find(registry.hash(b"a.b"), b"a.b").unwrap();
    assert_eq!(ingest.hide(&[id], |_| true), 1);

    let again = SharedMetric {
        earlier: vec![PolicyChange { since: 0, policy: policy("1440*60s", Aggregation::Sum) }],
        ..shared("8640*10s", Aggregation::Max, 700)
    };
    assert_eq!(cluster::adopt(vec![again], names, &ingest).await.unwrap(), 0, "it has its id");
    assert!(registry.read().is_shown(id));
    let now = registry.policy(registry.policies(id).unwrap().current());
    assert!(now.is_same(&policy("8640*10s", Aggregation::Max)), "{now:?}");
    ingest.close().await.unwrap();
}
