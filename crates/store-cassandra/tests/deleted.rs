//! Detection of deleted names, on a real Cassandra.

mod node;

use metric::{MetricId, Policy};
use store::{MetricRecord, PolicyChange, SharedNames};
use store_cassandra::{
    CassandraDriver,
    schema::{self, Schema},
};

#[tokio::test]
async fn a_name_counts_as_deleted_only_if_the_tables_can_hold_it() {
    let Some(address) = node::address() else { return };
    let keyspace = node::Keyspace::make(address, "deleted").await;
    let options = keyspace.options();
    let schema = Schema::new(&options, &[Policy::default().retention]).with_components(4);
    schema::apply(&options, &schema, &mut |_| ()).await.unwrap();
    let driver = CassandraDriver::connect(options).await.unwrap();

    let names = ["a.b", "a.c", "a.d", "x;t=v;u=w.w.w.w.w", "a.b.c.too.deep"];
    let record = |name: &str| MetricRecord {
        id: MetricId(0),
        name: name.to_owned(),
        created_on: 1,
        policies: vec![PolicyChange { since: 0, policy: Policy::default() }],
    };
    driver.put_names(&names.map(record)).await.unwrap();
    assert_eq!((driver.rejected_names().metrics, driver.rejected_names().example.as_deref()), (1, Some(names[4])));
    let mut scanned = Vec::new();
    driver.scan(&mut |batch, _| scanned.extend(batch.into_iter().map(|metric| metric.name))).await.unwrap();
    assert!(scanned.len() == 4 && !scanned.iter().any(|name| name == names[4]), "{scanned:?}");

    let meta = format!("{}_metadata", keyspace.name);
    keyspace.run(&format!("DELETE FROM {meta}.metrics WHERE name = 'a.c'")).await;
    keyspace.run(&format!("DELETE FROM {meta}.metrics_metadata WHERE name = 'a.d'")).await;
    let asked = names.iter().chain(&["never.was"]).map(|name| (*name).to_owned()).collect();
    assert_eq!(driver.deleted(asked).await.unwrap(), ["a.c", "a.d", "never.was"]);
    keyspace.run(&format!("DROP KEYSPACE {meta}")).await;
    keyspace.drop().await;
}
