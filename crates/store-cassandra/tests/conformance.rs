//! The suites that every driver passes, on a real Cassandra.

mod node;

use std::sync::Arc;

use store::{
    PointStore,
    conformance::{Fixture, points_suite, shared_points_suite},
};
use store_cassandra::{CassandraDriver, Options};

/// The largest count that BigGraphite's `smallint` column holds.
const LARGEST_COUNT: u32 = 32767;

struct OnANode(Options);

impl OnANode {
    async fn connect(&self) -> Arc<CassandraDriver> {
        Arc::new(CassandraDriver::connect(self.0.clone()).await.expect("the node answers"))
    }
}

impl Fixture<dyn PointStore> for OnANode {
    const OUTLIVES: bool = true;

    async fn open(&mut self) -> Arc<dyn PointStore> {
        self.connect().await
    }
}

#[tokio::test]
async fn points_conform_to_the_suites_of_all_drivers() {
    let Some(address) = node::address() else { return };
    let keyspace = node::Keyspace::make(address, "conformance").await;
    let mut fixture = OnANode(keyspace.options());
    let driver = fixture.connect().await;
    shared_points_suite(&*driver, &*driver, node::now()).await;
    drop(driver);
    points_suite(&mut fixture, LARGEST_COUNT, node::now()).await;
    keyspace.drop().await;
}
