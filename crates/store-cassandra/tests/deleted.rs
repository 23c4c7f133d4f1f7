//! Deletion of names and points, and detection of deleted names, on a real Cassandra.

mod node;

use metric::{Aggregation, MetricId, Policy, Timestamp};
use store::{Fetch, MetricRecord, PointStore, PolicyChange, Run, ScanPace, SharedNames, SharedPoints};
use store_cassandra::{
    CassandraDriver, Layout,
    schema::{self, Schema},
};

fn record(name: &str, policy: &Policy) -> MetricRecord {
    let policies = vec![PolicyChange { since: 0, policy: policy.clone() }];
    MetricRecord { id: MetricId(0), name: name.to_owned(), created_on: 1, policies }
}

/// A run of one value in each stage of a policy, at each of these times: seconds before `now`.
fn runs(name: &str, policy: &Policy, now: Timestamp, ago: &[i64]) -> Vec<Run> {
    let run = |(stage, &ago): (usize, &i64)| {
        let table = policy.table(stage);
        let first_slot = table.stage.slot(now - ago).unwrap();
        let counts = if table.aggregated { vec![2] } else { vec![] };
        let (metric, name, aggregation) = (MetricId(0), name.to_owned(), Aggregation::Average);
        Run { metric, name, table, first_slot, values: vec![2.0], counts, aggregation }
    };
    (0..policy.retention.stages().len()).flat_map(|stage| ago.iter().map(move |ago| (stage, ago))).map(run).collect()
}

/// How many values are stored of these.
async fn stored(driver: &CassandraDriver, runs: Vec<Run>) -> usize {
    let fetch = |run: Run| {
        let Run { metric, name, table, first_slot, aggregation, .. } = run;
        Fetch { metric, name, table, first_slot, end_slot: first_slot + 1, aggregation }
    };
    let cells = driver.fetch(runs.into_iter().map(fetch).collect()).await.unwrap();
    cells.iter().flat_map(|cells| &cells.values).filter(|value| !value.is_nan()).count()
}

#[tokio::test]
async fn a_name_counts_as_deleted_only_if_the_tables_can_hold_it() {
    let Some(address) = node::address() else { return };
    let keyspace = node::Keyspace::make(address, "deleted").await;
    let options = keyspace.options();
    let schema = Schema::new(&options, &[Policy::default().retention]).with_components(4);
    schema::apply(&options, &schema, &mut |_| ()).await.unwrap();
    let driver = CassandraDriver::connect(options).await.unwrap();

    let names = ["a.b", "a.c", "a.d", "x;t=v;u=w.w.w.w.w", "a.b.c.too.deep"];
    driver.put_names(&names.map(|name| record(name, &Policy::default()))).await.unwrap();
    assert_eq!((driver.rejected_names().metrics, driver.rejected_names().example.as_deref()), (1, Some(names[4])));
    let mut scanned = Vec::new();
    driver
        .scan(ScanPace::default(), &mut |batch, _| scanned.extend(batch.into_iter().map(|metric| metric.name)))
        .await
        .unwrap();
    assert!(scanned.len() == 4 && !scanned.iter().any(|name| name == names[4]), "{scanned:?}");

    let meta = format!("{}_metadata", keyspace.name);
    keyspace.run(&format!("DELETE FROM {meta}.metrics WHERE name = 'a.c'")).await;
    keyspace.run(&format!("DELETE FROM {meta}.metrics_metadata WHERE name = 'a.d'")).await;
    let asked = names.iter().chain(&["never.was"]).map(|name| (*name).to_owned()).collect();
    assert_eq!(driver.deleted(asked).await.unwrap(), ["a.c", "a.d", "never.was"]);
    keyspace.run(&format!("DROP KEYSPACE {meta}")).await;
    keyspace.drop().await;
}

#[tokio::test]
async fn a_deleted_metric_has_neither_names_nor_points_and_begins_again() {
    let Some(address) = node::address() else { return };
    let keyspace = node::Keyspace::make(address, "delete").await;
    let options = keyspace.options();
    let policy = Policy { retention: "10080*60s:7200*3600s".parse().unwrap(), ..Policy::default() };
    let schema = Schema::new(&options, std::slice::from_ref(&policy.retention));
    schema::apply(&options, &schema, &mut |_| ()).await.unwrap();
    let driver = CassandraDriver::connect(options).await.unwrap();
    let record = |name: &str| record(name, &policy);
    driver.put_names(&["a.b", "a.c"].map(record)).await.unwrap();
    let now = node::now();
    let runs = |name: &str, ago: &[i64]| runs(name, &policy, now, ago);
    // In many partitions, also of the future.
    let ago = [-86_400, 0, 86_400, 6 * 86_400];
    driver.write([runs("a.b", &ago), runs("a.c", &ago)].concat()).await.unwrap();
    let stored = async |name: &str| stored(&driver, runs(name, &ago)).await;
    assert_eq!((stored("a.b").await, stored("a.c").await), (8, 8));
    driver.delete_metrics(vec![record("a.b")], 0).await.unwrap();
    assert_eq!((stored("a.b").await, stored("a.c").await), (0, 8));
    let both = || vec!["a.b".to_owned(), "a.c".to_owned()];
    assert_eq!(driver.deleted(both()).await.unwrap(), ["a.b"]);
    assert_eq!(driver.lookup(both()).await.unwrap().len(), 1);
    driver.put_names(&[record("a.b")]).await.unwrap();
    driver.write(runs("a.b", &ago[1..2])).await.unwrap();
    assert_eq!((stored("a.b").await, driver.deleted(both()).await.unwrap().len()), (2, 0));
    keyspace.run(&format!("DROP KEYSPACE {}_metadata", keyspace.name)).await;
    keyspace.drop().await;
}

/// As another node stored them, under rules that were over before this one knew the metric.
#[tokio::test]
async fn points_of_policies_that_the_deleting_node_does_not_know_are_deleted_too() {
    let Some(address) = node::address() else { return };
    for layout in [Layout::Rows, Layout::Packed] {
        let keyspace = node::Keyspace::make(address.clone(), "deleteolder").await;
        let options = store_cassandra::Options { layout, ..keyspace.options() };
        let policies = ["60*1s:1440*60s:100*3600s", "10080*60s:7200*3600s"]
            .map(|retention| Policy { retention: retention.parse().unwrap(), ..Policy::default() });
        let schema = Schema::new(&options, &policies.each_ref().map(|policy| policy.retention.clone()));
        schema::apply(&options, &schema, &mut |_| ()).await.unwrap();
        let driver = CassandraDriver::connect(options).await.unwrap();
        let [earlier, current] = &policies;
        driver.put_names(&["a.b", "a.c"].map(|name| record(name, current))).await.unwrap();
        let now = node::now();
        let of = |name: &str| policies.iter().flat_map(|policy| runs(name, policy, now, &[0])).collect::<Vec<Run>>();
        driver.write([of("a.b"), of("a.c")].concat()).await.unwrap();
        let stored = async |name: &str| stored(&driver, of(name)).await;
        assert_eq!((stored("a.b").await, stored("a.c").await), (5, 5));
        driver.delete_metrics(vec![record("a.b", current)], 0).await.unwrap();
        assert_eq!((stored("a.b").await, stored("a.c").await), (0, 5), "{layout:?}");
        // Stored under the earlier policy again.
        driver.write(runs("a.b", earlier, now, &[0])).await.unwrap();
        assert_eq!(stored("a.b").await, 3);
        keyspace.run(&format!("DROP KEYSPACE {}_metadata", keyspace.name)).await;
        keyspace.drop().await;
    }
}
