//! Metrics that others created in a store that is shared.

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use carbon::{RuleFiles, Rules, Sink};
use host::{Host, JudgingTime, ManualClock};
use ingest::{Ingest, Protocol};
use metric::{Aggregation, MetricId, Policy, Timestamp, Window};
use store::{
    DriverFuture, Fetch, Identity, MemoryDriver, MetricRecord, NameStore, OwnRows, PointStore, PolicyChange, Run,
    SeriesRequest, SharedMetric, SharedPoints, Store, StoreError,
};
use support::{now, options, registry_of};

/// Other processes write the same store, and have written nothing so far.
#[derive(Default)]
struct NoPartials {
    /// When a deletion is, 0 where none can be, and when the last one was.
    deletion_time: Timestamp,
    deleted_at: AtomicI64,
    failed: AtomicU32,
}

impl SharedPoints for NoPartials {
    fn deletion_time(&self) -> Timestamp {
        self.deletion_time
    }

    fn delete_metrics(&self, _metrics: Vec<MetricRecord>, at: Timestamp) -> DriverFuture<'_, ()> {
        self.deleted_at.store(at, SeqCst);
        let rejected = || StoreError::Rejected("this store does not delete for others".to_owned());
        Box::pin(std::future::ready(if 0 < self.deletion_time { Ok(()) } else { Err(rejected()) }))
    }

    fn deletion_failed(&self) {
        self.failed.fetch_add(1, SeqCst);
    }

    fn writer_partials(&self, totals: Vec<Run>) -> DriverFuture<'_, OwnRows> {
        Box::pin(std::future::ready(Ok(totals.into())))
    }
}

fn rules(retention: &str) -> Rules {
    let schemas = format!("[all]\npattern = .*\nretentions = {retention}\n");
    Rules::parse(RuleFiles { schemas: Some(&schemas), ..RuleFiles::default() }).unwrap().0
}

async fn open(dir: &std::path::Path, driver: &Arc<MemoryDriver>) -> Arc<Ingest> {
    let registry = registry_of(&**driver).await;
    let options = options(dir, Duration::from_secs(60));
    let store = Store { shared: Some(Arc::new(NoPartials::default())), ..Store::of(driver.clone()) };
    Ingest::open(options, store, registry, rules("60s:1d")).await.unwrap()
}

fn theirs(id: MetricId, name: &str) -> MetricRecord {
    let policy = Policy { retention: "8640*10s".parse().unwrap(), aggregation: Aggregation::Max, ..Policy::default() };
    MetricRecord {
        id,
        name: name.to_owned(),
        created_on: now() - 1000,
        policies: vec![PolicyChange { since: 0, policy }],
    }
}

fn reserve(ingest: &Ingest, names: &[&str]) -> Vec<MetricId> {
    ingest.reserve(names.to_vec(), |name| name).into_iter().map(|(number, _)| number).collect()
}

async fn send(ingest: &Ingest, name: &str, value: f64) {
    let mut batch = ingest.batch(Protocol::LineTcp);
    batch.point(name.as_bytes(), now(), value);
    ingest.accept(&mut batch).await;
}

fn resolution(ingest: &Ingest, number: MetricId) -> u32 {
    let registry = ingest.registry();
    let id = registry.read().policy_id(number);
    registry.policy(id).retention.finest().resolution()
}

#[tokio::test]
async fn a_metric_of_others_keeps_its_policy_until_points_of_it_come_here() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), &driver).await;
    let first = reserve(&ingest, &["theirs.read", "theirs.sent"])[0];
    // Created while the numbers were reserved: states are made for all up to its own.
    send(&ingest, "ours", 1.0).await;
    assert_eq!(ingest.adopt(vec![theirs(first, "theirs.read"), theirs(MetricId(first.0 + 1), "theirs.sent")]), 2);
    driver.put_metrics(vec![theirs(first, "theirs.read"), theirs(MetricId(first.0 + 1), "theirs.sent")]).await.unwrap();
    assert_eq!((resolution(&ingest, first), resolution(&ingest, MetricId(first.0 + 1))), (10, 10));

    send(&ingest, "theirs.sent", 2.0).await;
    ingest.flush().await.unwrap();
    assert_eq!(
        (resolution(&ingest, first), resolution(&ingest, MetricId(first.0 + 1))),
        (10, 60),
        "the rules hold for what comes here"
    );
    ingest.set_rules(rules("30s:1d")).await;
    assert_eq!((resolution(&ingest, first), resolution(&ingest, MetricId(first.0 + 1))), (10, 30));
    ingest.close().await.unwrap();
    drop(ingest);

    // Nor does a restart judge metrics without points.
    let ingest = open(dir.path(), &driver).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(resolution(&ingest, first), 10);
    ingest.close().await.unwrap();
}

#[tokio::test]
async fn a_changed_policy_of_the_tables_holds_where_no_point_came_and_over_a_restart() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), &driver).await;
    let ids = reserve(&ingest, &["theirs.read", "theirs.sent"]);
    let records = vec![theirs(ids[0], "theirs.read"), theirs(ids[1], "theirs.sent")];
    driver.put_metrics(records.clone()).await.unwrap();
    ingest.adopt(records);
    send(&ingest, "theirs.sent", 2.0).await;

    let policy = Policy { retention: "2880*30s".parse().unwrap(), ..Policy::default() };
    let shared = ["theirs.read", "theirs.sent", "not.known"].map(|name| SharedMetric {
        name: name.to_owned(),
        policy: policy.clone(),
        since: 0,
        earlier: Vec::new(),
        created_on: None,
        updated_on: None,
    });
    let otherwise = ingest.kept_otherwise(&shared);
    assert_eq!(otherwise.iter().map(|record| &*record.name).collect::<Vec<_>>(), ["theirs.read"]);
    assert_eq!(ingest.take_over(otherwise, &*driver).await.unwrap(), 1);
    assert_eq!(resolution(&ingest, ids[0]), 30);
    assert_ne!(resolution(&ingest, ids[1]), 30, "the rules of this node hold where points came");
    assert!(ingest.kept_otherwise(&shared).is_empty(), "it is taken over once");
    // The older policy stays known: its points are still stored.
    assert_eq!(ingest.registry().policies(ids[0]).unwrap().len(), 2);

    // Points that come while a policy is taken over are kept by the rules of this node.
    let other = shared.map(|metric| SharedMetric { policy: Policy::default(), ..metric });
    let otherwise = ingest.kept_otherwise(&other);
    assert_eq!(otherwise.len(), 1);
    send(&ingest, "theirs.read", 3.0).await;
    assert_eq!((ingest.take_over(otherwise, &*driver).await.unwrap(), resolution(&ingest, ids[0])), (0, 30));
    ingest.flush().await.unwrap();
    assert_eq!(resolution(&ingest, ids[0]), 60);
    ingest.close().await.unwrap();
    drop(ingest);
    let ingest = open(dir.path(), &driver).await;
    assert_eq!(resolution(&ingest, ids[0]), 60);
    ingest.close().await.unwrap();
}

/// Names whose sync lets the first point of a metric come, or that cannot be deleted.
struct Names {
    names: Arc<MemoryDriver>,
    first_point: Option<(Arc<Ingest>, &'static str)>,
    stay: bool,
}

impl NameStore for Names {
    fn identity(&self) -> Identity {
        self.names.identity()
    }

    fn begin(&self, first_id: MetricId) -> DriverFuture<'_, Identity> {
        self.names.begin(first_id)
    }

    fn put_opening(&self) -> Result<(), StoreError> {
        self.names.put_opening()
    }

    fn next_id(&self) -> MetricId {
        self.names.next_id()
    }

    fn delete_metrics(&self, ids: Vec<MetricId>) -> DriverFuture<'_, ()> {
        match self.stay {
            true => Box::pin(std::future::ready(Err(StoreError::Unavailable("the disk is full".to_owned())))),
            false => self.names.delete_metrics(ids),
        }
    }

    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        self.names.put_metrics(records)
    }

    fn scan_metrics<'a>(&'a self, each: &'a mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> DriverFuture<'a, ()> {
        self.names.scan_metrics(each)
    }

    fn sync_metrics(&self) -> DriverFuture<'_, ()> {
        Box::pin(async {
            if let Some((ingest, metric)) = &self.first_point {
                send(ingest, metric, 3.0).await;
            }
            self.names.sync_metrics().await
        })
    }
}

/// The name of a metric that others made, as the rules of this node keep it, and what the tables have of it by now.
async fn kept_otherwise_by_others(ingest: &Ingest, driver: &MemoryDriver) -> (Vec<MetricId>, SharedMetric) {
    // So no change of rules writes it again.
    let by_rules = ingest.registry().policy(ingest.registry().intern(&rules("60s:1d").policies()[0]));
    let policies = vec![PolicyChange { since: 0, policy: Policy::clone(&by_rules) }];
    let ids = reserve(ingest, &["theirs"]);
    let record = MetricRecord { policies, ..theirs(ids[0], "theirs") };
    driver.put_metrics(vec![record.clone()]).await.unwrap();
    ingest.adopt(vec![record]);
    let policy = Policy { retention: "2880*30s".parse().unwrap(), ..Policy::default() };
    let (name, earlier, created_on, updated_on) = ("theirs".to_owned(), Vec::new(), None, None);
    (ids, SharedMetric { name, policy, since: 0, earlier, created_on, updated_on })
}

#[tokio::test]
async fn a_policy_that_is_not_taken_over_because_points_came_is_in_no_table_and_not_on_the_disk_either() {
    for is_while_it_is_written in [false, true] {
        let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
        let ingest = open(dir.path(), &driver).await;
        let (ids, shared) = kept_otherwise_by_others(&ingest, &driver).await;
        let otherwise = ingest.kept_otherwise(&[shared]);
        assert_eq!(otherwise.len(), 1);
        let taken = if is_while_it_is_written {
            let names = Names { names: driver.clone(), first_point: Some((ingest.clone(), "theirs")), stay: false };
            ingest.take_over(otherwise, &names).await.unwrap()
        } else {
            send(&ingest, "theirs", 3.0).await;
            ingest.take_over(otherwise, &*driver).await.unwrap()
        };
        assert_eq!((taken, resolution(&ingest, ids[0])), (0, 60), "{is_while_it_is_written}");
        assert!(ingest.unregistered().is_empty(), "no table gets what this node has not judged");
        let mut stored = Vec::new();
        driver.scan_metrics(&mut |batch| stored.extend(batch)).await.unwrap();
        assert_eq!(stored, ingest.registry().records(&ids), "{is_while_it_is_written}");
        ingest.close().await.unwrap();
    }
}

#[tokio::test]
async fn points_are_found_that_other_nodes_stored_under_a_policy_which_a_metric_never_had_here() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), &driver).await;
    send(&ingest, "sent", 2.0).await;
    ingest.flush().await.unwrap();
    let metric = ingest.registry().read().find(ingest.registry().hash(b"sent"), b"sent").unwrap();
    // Another node stored a point an hour ago, in its own table.
    let policy = Policy { retention: "2880*30s".parse().unwrap(), ..Policy::default() };
    let (stage, at) = (policy.retention.finest(), now() - 3600);
    let run = Run {
        metric,
        name: "sent".to_owned(),
        table: policy.table(0),
        first_slot: stage.slot(at).unwrap(),
        values: vec![7.0],
        counts: Vec::new(),
        aggregation: policy.aggregation,
    };
    driver.write(vec![run]).await.unwrap();
    let shown = async || {
        let window = Window::between(now() - 7200, now() + 60);
        let request = SeriesRequest { metric, window, now: now(), max_points: usize::MAX, rollup: None };
        let series = ingest.series().fetch(vec![request]).await.unwrap().remove(0).unwrap();
        series.values.iter().copied().filter(|value| !value.is_nan()).collect::<Vec<f64>>()
    };
    assert_eq!(shown().await, [2.0]);
    let shared = |earlier: &[Policy], policy: Policy| SharedMetric {
        name: "sent".to_owned(),
        policy,
        since: now() - 1800,
        earlier: earlier.iter().map(|policy| PolicyChange { since: 0, policy: policy.clone() }).collect(),
        created_on: None,
        updated_on: None,
    };
    let own = ingest.registry().policy(ingest.registry().read().policy_id(metric));
    assert_eq!(ingest.learn(&[shared(&[], Policy::clone(&own))]), 0);
    assert_eq!(ingest.learn(&[shared(std::slice::from_ref(&policy), Policy::clone(&own))]), 1);
    assert_eq!(ingest.learn(&[shared(std::slice::from_ref(&policy), Policy::clone(&own))]), 0, "it is known");
    assert_eq!(shown().await, [7.0, 2.0]);
    // A point that comes late under the policy of this node is shown together with it.
    let mut batch = ingest.batch(Protocol::LineTcp);
    batch.point(b"sent", at - 600, 1.0);
    ingest.accept(&mut batch).await;
    ingest.flush().await.unwrap();
    assert_eq!(shown().await, [1.0, 7.0, 2.0]);
    ingest.close().await.unwrap();
    drop(ingest);
    let ingest = open(dir.path(), &driver).await;
    let history = ingest.registry().policies(metric).unwrap();
    assert!(ingest.learn(&[shared(&[policy], Policy::clone(&own))]) + history.len() == 2);
    ingest.close().await.unwrap();
}

#[tokio::test]
async fn rules_without_a_schema_change_no_metrics_policy() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), &driver).await;
    ingest.set_rules(carbon::Rules::default()).await;
    let first = reserve(&ingest, &["theirs"])[0];
    driver.put_metrics(vec![theirs(first, "theirs")]).await.unwrap();
    ingest.adopt(vec![theirs(first, "theirs")]);
    for name in ["theirs", "new"] {
        send(&ingest, name, 2.0).await;
    }
    ingest.flush().await.unwrap();
    assert_eq!(
        (resolution(&ingest, first), resolution(&ingest, MetricId(first.0 + 1))),
        (10, 60),
        "carbon's default is for new ones"
    );
    ingest.set_rules(rules("30s:1d")).await;
    assert_eq!(resolution(&ingest, first), 30);
    ingest.close().await.unwrap();
}

/// Rules that have no retentions, only this file.
fn x_files_factors(aggregation: &str) -> Rules {
    Rules::parse(RuleFiles { aggregation: Some(aggregation), ..RuleFiles::default() }).unwrap().0
}

/// The last hours of a metric whose hours are stored.
async fn hours(ingest: &Ingest, metric: MetricId) -> Vec<f64> {
    let window = Window::between(now() - 86_400, now());
    let request = SeriesRequest { metric, window, now: now(), max_points: 10_000, rollup: None };
    let series = ingest.series().fetch(vec![request]).await.unwrap().remove(0).unwrap();
    series.values.into_iter().filter(|value| !value.is_nan()).collect()
}

#[tokio::test]
async fn the_rules_of_the_reader_say_how_many_points_a_slot_of_others_needs() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), &driver).await;
    ingest.set_rules(x_files_factors("[zero]\npattern = \\.sparse$\nxFilesFactor = 0\n")).await;
    let first = reserve(&ingest, &["theirs.sparse", "theirs.other"])[0];
    let metrics = [(first, "theirs.sparse"), (MetricId(first.0 + 1), "theirs.other")];
    for (id, name) in metrics {
        let mut record = theirs(id, name);
        // As BigGraphite stores every factor of 0.
        record.policies[0].policy.x_files_factor = 0.5;
        record.policies[0].policy.retention = "360*60s:168*3600s".parse().unwrap();
        let stage = record.policies[0].policy.retention.stages()[1];
        let table = metric::Table { stage, aggregated: true, rollup: None };
        let first_slot = stage.slot(now() - 10 * 3600).unwrap();
        let (values, counts, name) = (vec![7.0, 8.0], vec![1, 30], name.to_owned());
        let run = Run { metric: id, name, table, first_slot, values, counts, aggregation: Aggregation::Max };
        driver.write(vec![run]).await.unwrap();
        ingest.adopt(vec![record]);
    }
    assert_eq!(hours(&ingest, metrics[0].0).await, [7.0, 8.0], "one of sixty is enough for the rule");
    assert_eq!(hours(&ingest, metrics[1].0).await, [8.0], "without a rule the tables say it");
    let factor = |name| ingest.registry().read_policy(name).unwrap().x_files_factor;
    assert_eq!((factor("theirs.sparse"), factor("theirs.other")), (0.0, 0.5));
    ingest.set_rules(x_files_factors("[most]\npattern = .*\nxFilesFactor = 0.9\n")).await;
    assert_eq!(hours(&ingest, metrics[0].0).await, [0.0; 0]);
    ingest.set_rules(Rules::default()).await;
    assert_eq!(hours(&ingest, metrics[0].0).await, [8.0]);
    ingest.close().await.unwrap();
}

#[tokio::test]
async fn points_of_an_adopted_metric_survive_a_crash_by_its_id() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), &driver).await;
    let first = reserve(&ingest, &["theirs"])[0];
    driver.put_metrics(vec![theirs(first, "theirs")]).await.unwrap();
    ingest.adopt(vec![theirs(first, "theirs")]);
    send(&ingest, "theirs", 2.5).await;
    // No close: what is held is in the journal alone.
    drop(ingest);
    let again = open(dir.path(), &driver).await;
    assert_eq!((again.restored().points, again.restored().nameless_points), (1, 0));
    again.flush().await.unwrap();
    let stage = "8640*10s".parse::<metric::Retention>().unwrap();
    let table = metric::Table { stage: stage.finest(), aggregated: false, rollup: None };
    let slot = stage.finest().slot(now()).unwrap();
    let fetch = Fetch {
        metric: first,
        name: "theirs".to_owned(),
        table,
        first_slot: slot - 10,
        end_slot: slot + 1,
        aggregation: Aggregation::Max,
    };
    let cells = driver.fetch(vec![fetch]).await.unwrap().remove(0);
    assert!(cells.values.contains(&2.5), "{cells:?}");
}

#[tokio::test]
async fn a_metric_that_is_sent_while_it_is_adopted_has_one_id() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), &driver).await;
    let theirs_is = reserve(&ingest, &["theirs"])[0];
    // States are made for all numbers up to this one's.
    send(&ingest, "ours", 1.0).await;
    driver.put_metrics(vec![theirs(theirs_is, "theirs")]).await.unwrap();
    send(&ingest, "theirs", 2.5).await;
    ingest.adopt(vec![theirs(theirs_is, "theirs")]);
    send(&ingest, "theirs", 3.5).await;
    ingest.flush().await.unwrap();
    let mut rows = Vec::new();
    driver.scan_metrics(&mut |records| rows.extend(records.into_iter().map(|record| record.name))).await.unwrap();
    rows.sort();
    assert_eq!(rows, ["ours", "theirs"]);
    // What comes now is named by its number alone.
    send(&ingest, "theirs", 4.5).await;
    drop(ingest);
    let again = open(dir.path(), &driver).await;
    assert_eq!((again.restored().points, again.restored().nameless_points), (1, 0));
    again.close().await.unwrap();
}

/// A read of all names and the log of changes may bring the same metric, from before and after a change of its policy.
#[tokio::test]
async fn a_metric_that_two_calls_adopt_is_not_written_for_all_by_this_node() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), &driver).await;
    let numbers = reserve(&ingest, &["a.b", "own"]);
    let of = |place: usize, name: &str, retention: &str| {
        let policy = Policy { retention: retention.parse().unwrap(), ..Policy::default() };
        MetricRecord { policies: vec![PolicyChange { since: 0, policy }], ..theirs(numbers[place], name) }
    };
    let first = of(0, "a.b", "1440*60s");
    assert_eq!(ingest.adopt(vec![first.clone()]), 1);
    let second = of(0, "a.b", "720*300s");
    driver.put_metrics(vec![second.clone()]).await.unwrap();
    assert_eq!(ingest.adopt(vec![second]), 0);
    assert_eq!(ingest.unregistered(), []);
    // This node says what it has.
    ingest.write_owed_records(&*driver).await.unwrap();
    let mut records = Vec::new();
    driver.scan_metrics(&mut |all| records.extend(all)).await.unwrap();
    assert_eq!(records, [first]);

    // What points made is of this node.
    send(&ingest, "own", 1.0).await;
    ingest.flush().await.unwrap();
    assert_eq!(ingest.adopt(vec![of(1, "own", "720*300s")]), 0);
    assert_eq!(ingest.unregistered(), [numbers[1]]);
    ingest.write_owed_records(&*driver).await.unwrap();
    ingest.close().await.unwrap();
}

#[tokio::test]
async fn policies_beyond_the_limit_are_left_out() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), &driver).await;
    let names: Vec<String> = (0..6_000).map(|number| format!("theirs.{number}")).collect();
    let numbers = reserve(&ingest, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut records: Vec<MetricRecord> =
        numbers.iter().zip(&names).map(|(number, name)| theirs(*number, name)).collect();
    for (number, record) in records.iter_mut().enumerate() {
        record.policies[0].policy.x_files_factor = number as f64 / 6_000.0;
    }
    let added = ingest.adopt(records);
    assert!((4000..=4096).contains(&added), "{added}");
    send(&ingest, "theirs.5999", 1.0).await;
    ingest.flush().await.unwrap();
    assert_eq!(resolution(&ingest, numbers[5_999]), 60);
    ingest.close().await.unwrap();
}

#[tokio::test]
async fn a_metric_of_shared_tables_is_not_deleted_by_one_node_alone() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), &driver).await;
    send(&ingest, "ours", 1.0).await;
    let error = ingest.delete(&[MetricId(0)]).await.unwrap_err();
    assert!(error.to_string().starts_with("nothing was deleted"), "{error}");
    assert_eq!(ingest.registry().len(), 1);
}

#[tokio::test]
async fn others_names_are_read_again_after_a_deletion_that_fails_before_it_reaches_them() {
    for stay in [false, true] {
        let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
        let shared = Arc::new(NoPartials { deletion_time: now() + 1, ..NoPartials::default() });
        let names = Arc::new(Names { names: driver.clone(), first_point: None, stay });
        let store = Store { shared: Some(shared.clone()), names, ..Store::of(driver.clone()) };
        let options = options(dir.path(), Duration::from_secs(60));
        let ingest = Ingest::open(options, store, registry_of(&*driver).await, rules("60s:1d")).await.unwrap();
        send(&ingest, "ours", 1.0).await;
        let deleted = ingest.delete(&[MetricId(0)]).await;
        assert_eq!(deleted.is_err(), stay, "{deleted:?}");
        let (is_known, is_in_tables) = (ingest.registry().len() == 1, shared.deleted_at.load(SeqCst) == 0);
        assert_eq!((is_known, is_in_tables, shared.failed.load(SeqCst)), (false, stay, u32::from(stay)));
    }
}

#[tokio::test]
async fn what_another_node_deleted_is_gone_here_with_its_points_and_later_ones_begin_it_again() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), &driver).await;
    let deleted_at = now() - 150;
    let send_at = async |name: &str, time: i64, value: f64| {
        let mut batch = ingest.batch(Protocol::LineTcp);
        batch.point(name.as_bytes(), time, value);
        ingest.accept(&mut batch).await;
    };
    for (name, times) in [("silent", &[-300, -60][..]), ("received", &[-120, 0, 70, 130])] {
        for &time in times {
            send_at(name, deleted_at + time, 1.0).await;
        }
    }
    let id = |ingest: &Ingest, name: &str| {
        let registry = ingest.registry();
        registry.read().find(registry.hash(name.as_bytes()), name.as_bytes())
    };
    let (silent, received) = (id(&ingest, "silent").unwrap(), id(&ingest, "received").unwrap());
    let turn = ingest.registration_turn().await;
    assert_eq!(ingest.delete_followed(vec![(silent, deleted_at), (received, deleted_at)], 0, turn).await.unwrap(), 2);
    assert_eq!(id(&ingest, "silent"), None);
    let again = id(&ingest, "received").expect("it has points that came after the deletion");
    assert_ne!(again, received);
    assert_eq!(
        ingest.registry().read().creation(again),
        Some(deleted_at + 1),
        "another deletion since then ends it, too"
    );
    let held = |ingest: &Ingest| ingest.counters().held_slots;
    assert_eq!(held(&ingest), 2, "those of slots that begin later");
    drop(ingest);

    // After a crash the journal tells the same.
    let ingest = open(dir.path(), &driver).await;
    assert_eq!((id(&ingest, "silent"), held(&ingest)), (None, 2));
    assert!(id(&ingest, "received").is_some());
    ingest.close().await.unwrap();
}

#[tokio::test]
async fn a_metric_that_is_made_after_a_deletion_by_a_clock_that_is_ahead_is_of_after_it() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), &driver).await;
    let deleted_at = now() + 240;
    ingest.note_deletions([("again", deleted_at), ("earlier", now() - 60)].into_iter());
    for name in ["again", "earlier", "other"] {
        send(&ingest, name, 1.0).await;
    }
    let creation = |ingest: &Ingest, name: &str| {
        let names = ingest.registry().read();
        names.creation(names.find(ingest.registry().hash(name.as_bytes()), name.as_bytes()).unwrap()).unwrap()
    };
    assert_eq!(creation(&ingest, "again"), deleted_at + 1);
    assert!(creation(&ingest, "earlier") <= now() && creation(&ingest, "other") <= now());
    drop(ingest);
    // As the journal has it.
    assert_eq!(creation(&*open(dir.path(), &driver).await, "again"), deleted_at + 1);
}

#[tokio::test]
async fn a_metric_that_comes_again_while_its_deletion_runs_is_of_after_it_for_all() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    // Another node's calendar is ahead.
    let shared = Arc::new(NoPartials { deletion_time: now() + 240, ..NoPartials::default() });
    let store = Store { shared: Some(shared.clone()), ..Store::of(driver.clone()) };
    let registry = registry_of(&*driver).await;
    let ingest =
        Ingest::open(options(dir.path(), Duration::from_millis(20)), store, registry, rules("60s:1d")).await.unwrap();
    send(&ingest, "again", 1.0).await;
    let id = |ingest: &Ingest| {
        let registry = ingest.registry();
        registry.read().find(registry.hash(b"again"), b"again")
    };
    let first = id(&ingest).unwrap();
    assert_eq!(ingest.delete(&[first]).await.unwrap(), 1);
    assert_eq!(shared.deleted_at.load(SeqCst), shared.deletion_time);
    send(&ingest, "again", 2.0).await;
    let second = id(&ingest).unwrap();
    assert_ne!(second, first);
    assert_eq!(ingest.registry().read().creation(second), Some(shared.deletion_time + 1));
    ingest.close().await.unwrap();
}

fn policy(aggregation: Aggregation) -> Policy {
    Policy { retention: "1440*60s".parse().unwrap(), aggregation, ..Policy::default() }
}

/// What the tables have of a metric: policies and since when, the last one in force.
fn elsewhere(name: &str, policies: &[(Timestamp, Aggregation)]) -> SharedMetric {
    let change = |&(since, aggregation): &(Timestamp, Aggregation)| PolicyChange { since, policy: policy(aggregation) };
    let mut earlier: Vec<PolicyChange> = policies.iter().map(change).collect();
    let PolicyChange { since, policy } = earlier.pop().unwrap();
    SharedMetric { name: name.to_owned(), policy, since, earlier, created_on: None, updated_on: None }
}

/// The methods of a metric, and since when, as this node knows them.
fn methods(ingest: &Ingest, name: &str) -> Vec<(Timestamp, Aggregation)> {
    let registry = ingest.registry();
    let id = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes()).unwrap();
    let history = registry.policies(id).unwrap();
    history.iter().map(|span| (span.since, registry.policy(span.policy).aggregation)).collect()
}

#[tokio::test]
async fn a_node_that_makes_a_metric_again_learns_which_methods_it_had() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), &driver).await;
    send(&ingest, "made.here", 1.0).await;
    use Aggregation::{Average, Max, Sum};
    // What this node stored in the time of the others is by its own method.
    let later = now() + 100;
    assert_eq!(ingest.learn(&[elsewhere("made.here", &[(0, Max), (later - 50, Sum), (later, Average)])]), 0);
    let long_ago = now() - 5000;
    let elsewhere = [elsewhere("made.here", &[(0, Max), (long_ago, Sum), (long_ago + 1000, Average)])];
    assert_eq!(ingest.learn(&elsewhere), 1);
    assert_eq!(methods(&ingest, "made.here"), [(0, Max), (long_ago, Sum), (long_ago + 1000, Average)]);
    assert_eq!(ingest.learn(&elsewhere), 0, "it is known");
    ingest.close().await.unwrap();
}

/// A node whose process begins then, over a folder whose mark of the time is kept.
async fn open_at(
    dir: &std::path::Path,
    driver: &Arc<MemoryDriver>,
    at: Timestamp,
    method: &str,
) -> (Arc<Ingest>, Arc<JudgingTime>) {
    let host = Host { clock: Arc::new(ManualClock::at(at)), ..Host::system() };
    let mut options = options(&dir.join("journal"), Duration::from_millis(20));
    let time = Arc::new(JudgingTime::open(&host, dir).unwrap());
    options.host = host;
    options.time = Some(time.clone());
    let aggregation = format!("[all]\npattern = .*\nxFilesFactor = 0.5\naggregationMethod = {method}\n");
    let schemas = "[all]\npattern = .*\nretentions = 60s:1d\n";
    let files = RuleFiles { schemas: Some(schemas), aggregation: Some(&aggregation), ..RuleFiles::default() };
    let store = Store { shared: Some(Arc::new(NoPartials::default())), ..Store::of(driver.clone()) };
    let registry = registry_of(&**driver).await;
    (Ingest::open(options, store, registry, Rules::parse(files).unwrap().0).await.unwrap(), time)
}

#[tokio::test]
async fn changes_of_a_method_that_others_made_while_a_node_did_not_run_are_of_their_times() {
    use Aggregation::{Average, Max, Sum};
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let begin = now() - 1000;
    let (ingest, time) = open_at(dir.path(), &driver, begin, "average").await;
    for name in ["there.and.back", "sent.first", "changed"] {
        let mut batch = ingest.batch(Protocol::LineTcp);
        batch.point(name.as_bytes(), begin, 1.0);
        ingest.accept(&mut batch).await;
    }
    ingest.close().await.unwrap();
    time.save().unwrap();
    drop(ingest);

    let there_and_back = [(0, Average), (begin, Max), (begin + 200, Average)];
    let changed = [(0, Average), (begin + 100, Max), (begin + 200, Sum)];
    let (ingest, time) = open_at(dir.path(), &driver, begin + 300, "average").await;
    let mut batch = ingest.batch(Protocol::LineTcp);
    batch.point(b"sent.first", begin + 300, 1.0);
    ingest.accept(&mut batch).await;
    let all = [
        elsewhere("there.and.back", &there_and_back),
        elsewhere("sent.first", &there_and_back),
        elsewhere("changed", &changed),
    ];
    let otherwise = ingest.kept_otherwise(&all);
    assert_eq!(ingest.take_over(otherwise, &*driver).await.unwrap(), 1);
    assert_eq!(ingest.learn(&all), 3);
    ingest.write_owed_records(&*driver).await.unwrap();
    for (name, expected) in [("there.and.back", there_and_back), ("sent.first", there_and_back), ("changed", changed)] {
        assert_eq!(methods(&ingest, name), expected, "{name}");
    }
    assert_eq!(ingest.learn(&all), 0, "they are known");
    ingest.flush().await.unwrap();
    ingest.close().await.unwrap();
    time.save().unwrap();
    drop(ingest);

    // The next process cannot tell that this one was absent.
    let (ingest, _) = open_at(dir.path(), &driver, begin + 400, "average").await;
    assert_eq!(methods(&ingest, "there.and.back"), there_and_back);
    assert_eq!(methods(&ingest, "sent.first"), there_and_back);
    assert_eq!(ingest.learn(&all), 0);
    ingest.close().await.unwrap();
}

#[tokio::test]
async fn what_a_node_went_on_with_at_its_start_is_between_the_changes_of_others_and_its_own() {
    use Aggregation::{Average, Max};
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let begin = now() - 1000;
    let (ingest, time) = open_at(dir.path(), &driver, begin, "average").await;
    let send = async |ingest: &Ingest, at: Timestamp| {
        let mut batch = ingest.batch(Protocol::LineTcp);
        batch.point(b"m", at, 1.0);
        ingest.accept(&mut batch).await;
    };
    send(&ingest, begin).await;
    ingest.close().await.unwrap();
    time.save().unwrap();
    drop(ingest);
    // The rules are new here as well; points come before anything was read, and until the first flush by the method of before.
    let (ingest, _) = open_at(dir.path(), &driver, begin + 300, "max").await;
    send(&ingest, begin + 300).await;
    ingest.flush().await.unwrap();
    let own = methods(&ingest, "m");
    assert!(own.len() == 2 && own[0] == (0, Average) && own[1].1 == Max && begin + 300 <= own[1].0, "{own:?}");
    // A row of the log has no policies before, and the time when it was written.
    assert_eq!(ingest.learn(&[SharedMetric { earlier: Vec::new(), ..elsewhere("m", &[(begin + 90, Max)]) }]), 0);
    let table = elsewhere("m", &[(0, Average), (begin + 100, Max)]);
    assert_eq!(ingest.learn(std::slice::from_ref(&table)), 1);
    let at_start = (begin + 300, Average);
    assert_eq!(methods(&ingest, "m"), [own[0], (begin + 100, Max), at_start, (own[1].0.max(begin + 301), Max)]);
    assert_eq!(ingest.learn(&[table]), 0, "it is known");
    ingest.close().await.unwrap();
}

#[tokio::test]
async fn what_others_did_in_an_absence_is_noted_by_a_later_process_where_the_next_one_ended_before() {
    use Aggregation::{Average, Max, Sum};
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let begin = now() - 1000;
    let (ingest, time) = open_at(dir.path(), &driver, begin, "average").await;
    let send = async |ingest: &Ingest, name: &str, at: Timestamp| {
        let mut batch = ingest.batch(Protocol::LineTcp);
        batch.point(name.as_bytes(), at, 1.0);
        ingest.accept(&mut batch).await;
    };
    for name in ["kept", "taken.over", "as.before"] {
        send(&ingest, name, begin).await;
    }
    ingest.close().await.unwrap();
    time.save().unwrap();
    drop(ingest);
    // One that reads no names.
    let (ingest, time) = open_at(dir.path(), &driver, begin + 300, "average").await;
    ingest.close().await.unwrap();
    time.save().unwrap();
    drop(ingest);

    let (ingest, time) = open_at(dir.path(), &driver, begin + 400, "average").await;
    send(&ingest, "kept", begin + 400).await;
    let changes = [(0, Average), (begin + 100, Max), (begin + 370, Sum)];
    let all = [elsewhere("kept", &changes), elsewhere("taken.over", &changes), elsewhere("as.before", &changes[..2])];
    let otherwise = ingest.kept_otherwise(&all);
    assert_eq!(ingest.take_over(otherwise, &*driver).await.unwrap(), 2);
    assert_eq!(ingest.learn(&all), 3);
    ingest.write_owed_records(&*driver).await.unwrap();
    // The process in between went on with what it had, and so does this one.
    let between = [changes[0], changes[1], (begin + 300, Average), changes[2]];
    assert_eq!(methods(&ingest, "taken.over"), between);
    assert_eq!(methods(&ingest, "kept"), [&between[..], &[(begin + 400, Average)]].concat());
    assert_eq!(methods(&ingest, "as.before"), [&between[..3], &[(begin + 301, Max)]].concat());
    assert_eq!(ingest.learn(&all), 0, "they are known");
    ingest.all_are_read();
    ingest.close().await.unwrap();
    time.save().unwrap();
    drop(ingest);

    let (ingest, time) = open_at(dir.path(), &driver, begin + 500, "average").await;
    assert_eq!(time.absences().len(), 1, "those before are noted");
    assert_eq!(methods(&ingest, "taken.over"), between);
    assert_eq!(ingest.learn(&all), 0);
    ingest.close().await.unwrap();
}

#[tokio::test]
async fn what_others_did_in_an_absence_is_noted_only_once_its_record_is_on_the_disk() {
    use Aggregation::{Average, Max};
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let begin = now() - 1000;
    let (ingest, time) = open_at(dir.path(), &driver, begin, "average").await;
    let mut batch = ingest.batch(Protocol::LineTcp);
    batch.point(b"m", begin, 1.0);
    ingest.accept(&mut batch).await;
    ingest.close().await.unwrap();
    time.save().unwrap();
    drop(ingest);

    let all = [elsewhere("m", &[(0, Average), (begin + 100, Max), (begin + 200, Average)])];
    for is_written in [false, true] {
        // The store went away, or the process ended, before the record was written.
        let (ingest, time) = open_at(dir.path(), &driver, begin + 300, "average").await;
        assert_eq!(ingest.learn(&all), 1, "{is_written}");
        ingest.all_are_read();
        time.save().unwrap();
        assert_eq!(ingest.learn(&all), 0, "{is_written}: it is known in memory");
        if is_written {
            ingest.write_owed_records(&*driver).await.unwrap();
            ingest.all_are_read();
            time.save().unwrap();
        }
        drop(ingest);
    }
    let (ingest, time) = open_at(dir.path(), &driver, begin + 400, "average").await;
    assert_eq!(time.absences().len(), 1, "that before is noted");
    assert_eq!(ingest.learn(&all), 0);
    ingest.close().await.unwrap();
}
