//! The suites that every driver passes, on a real Cassandra.

mod node;

use std::sync::Arc;

use store::{
    PointStore,
    conformance::{Fixture, points_suite, shared_points_suite},
};
use store_cassandra::{CassandraDriver, Layout, Options};

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
    conform("conformance", Layout::Rows, LARGEST_COUNT).await;
}

#[tokio::test]
async fn packed_points_conform_to_the_suites_of_all_drivers() {
    conform("conformance_packed", Layout::Packed, u32::MAX).await;
}

async fn conform(test: &str, layout: Layout, largest_count: u32) {
    let Some(address) = node::address() else { return };
    let keyspace = node::Keyspace::make(address, test).await;
    let mut fixture = OnANode(Options { layout, ..keyspace.options() });
    let driver = fixture.connect().await;
    shared_points_suite(&*driver, &*driver, node::now()).await;
    drop(driver);
    points_suite(&mut fixture, largest_count, node::now()).await;
    keyspace.drop().await;
}
