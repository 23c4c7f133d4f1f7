use carbon::{RuleFiles, Rules, Sink as _};
use host::{Host, ManualClock};
use ingest::{IngestOptions, Protocol, Sync};
use metadata::Registry;
use store::{MemoryDriver, SharedNames as _, SharedPoints as _, Store};
use store_cassandra::{Calendar, InMemoryTables, Layout};

use super::*;
use crate::{
    change_reads::bucket_of,
    driver::ClusterDriver,
    last_seen::LastSeen,
    one_node::{OneNode, Reached},
};

const NAME: &str = "a.b";

/// The first deletion fails half way and is logged; the second one ends the name just before the second look at the first, and is
/// logged just after it.
#[tokio::test]
async fn a_name_that_is_deleted_again_before_the_second_look_is_not_made_again() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::at(100_000)));
    let tables = InMemoryTables::default();
    let writer = |number| tables.writer((number, Layout::Rows), clock.clone(), Arc::new(Reached), 0);
    let calendar = || Calendar::new(clock.clone());
    let node = Arc::new(OneNode(writer(1), calendar()));
    let local = Store::of(Arc::new(MemoryDriver::new()));
    let last_seen = Arc::new(LastSeen::new(clock.clone(), Duration::from_secs(1), 0.0));
    let log = Arc::new(ChangeLog::new(clock.clone(), Arc::new(calendar())));
    let driver = Arc::new(ClusterDriver::new(node.clone(), local.clone(), last_seen, log.clone()));
    let store = Store { shared: Some(driver.clone()), ..Store::of(driver) };
    let options = IngestOptions {
        host: Host { clock: clock.clone(), ..Host::system() },
        journal_dir: dir.path().to_owned(),
        sync: Sync::Every(Duration::from_secs(60)),
        ..IngestOptions::default()
    };
    let schemas = "[all]\npattern = .*\nretentions = 1s:1h\n";
    let rules = Rules::parse(RuleFiles { schemas: Some(schemas), ..RuleFiles::default() }).unwrap().0;
    let ingest = Ingest::open(options, store, Arc::new(Registry::new()), rules).await.unwrap();
    let follower = Follower::new(clock.clone(), node.clone(), local.names, ingest.clone(), log.clone(), Arc::default());
    let poll = async || {
        follower.poll(&node.0, NodeId::of_number(1)).await.unwrap();
        log.has_followed(clock.instant());
    };
    let send = async |time| {
        let mut batch = ingest.batch(Protocol::LineTcp);
        batch.point(NAME.as_bytes(), time, 1.0);
        ingest.accept(&mut batch).await;
    };
    let other = writer(2);
    let logs_deletion = async |at: Timestamp| {
        let key = ChangeKey { written: at * 1_000_000, node: NodeId::of_number(2), part: 0 };
        let row = Change { key, changed: Changed::Deleted, names: vec![(NAME.to_owned(), at)] };
        other.append_changes(bucket_of(key.written), &[row]).await.unwrap();
    };
    let is_shown = || {
        let registry = ingest.registry();
        registry.read().find(registry.hash(NAME.as_bytes()), NAME.as_bytes()).is_some()
    };
    poll().await;
    send(100_000).await;
    ingest.flush().await.unwrap();
    let made = ingest.registry().records(&[MetricId(0)]);
    assert_eq!((made[0].name.as_str(), node.0.lookup(vec![NAME.to_owned()]).await.unwrap().len()), (NAME, 1));

    clock.advance(Duration::from_secs(2));
    logs_deletion(100_001).await;
    poll().await;
    assert!(is_shown(), "it is in the tables still");
    clock.advance(Duration::from_secs(4));
    send(100_006).await;
    clock.advance(Duration::from_secs(7));
    other.delete_metrics(made, 100_012).await.unwrap();
    poll().await;
    ingest.flush().await.unwrap();
    logs_deletion(100_012).await;
    poll().await;
    assert!(!is_shown(), "the point came before the second deletion");
    assert_eq!(node.0.lookup(vec![NAME.to_owned()]).await.unwrap(), []);

    // Points of later are another metric.
    clock.advance(Duration::from_secs(1));
    send(100_014).await;
    ingest.flush().await.unwrap();
    for _ in 0..3 {
        clock.advance(Duration::from_secs(11));
        poll().await;
        assert!(is_shown());
    }
    ingest.close().await.unwrap();
}
