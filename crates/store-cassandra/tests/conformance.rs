//! The suite that every driver passes, on a real Cassandra. The numbers of metrics, which the tables do not
//! have, are kept in memory beside.

mod node;

use std::sync::Arc;

use metric::Timestamp;
use store::{
    Cells, Driver, DriverFuture, Fetch, MemoryDriver, MetricRecord, Run, Usage,
    conformance::{Fixture, suite},
};
use store_cassandra::{CassandraDriver, Options};

/// Points in Cassandra, numbers beside.
struct Composite {
    cassandra: CassandraDriver,
    numbers: Arc<MemoryDriver>,
}

impl Driver for Composite {
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()> {
        self.cassandra.write(runs)
    }

    fn own_part(&self, wholes: Vec<Run>) -> DriverFuture<'_, Vec<Run>> {
        self.cassandra.own_part(wholes)
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
        self.cassandra.fetch(fetches)
    }

    fn sync(&self) -> DriverFuture<'_, ()> {
        self.cassandra.sync()
    }

    fn expire(&self, now: Timestamp) -> DriverFuture<'_, ()> {
        self.cassandra.expire(now)
    }

    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        self.numbers.put_metrics(records)
    }

    fn scan_metrics<'a>(&'a self, each: &'a mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> DriverFuture<'a, ()> {
        self.numbers.scan_metrics(each)
    }

    fn usage(&self) -> Usage {
        self.cassandra.usage()
    }
}

struct OnANode {
    options: Options,
    numbers: Arc<MemoryDriver>,
}

impl Fixture for OnANode {
    const OUTLIVES: bool = true;
    const LARGEST_COUNT: u32 = 32767;

    async fn open(&mut self) -> Arc<dyn Driver> {
        let cassandra = CassandraDriver::connect(self.options.clone()).await.expect("the node answers");
        Arc::new(Composite { cassandra, numbers: self.numbers.clone() })
    }
}

#[tokio::test]
async fn it_conforms_to_the_suite_of_all_drivers() {
    let Some(address) = node::address() else { return };
    let keyspace = node::Keyspace::make(address, "conformance").await;
    let mut fixture = OnANode { options: keyspace.options(), numbers: Arc::default() };
    suite(&mut fixture, node::now()).await;
    keyspace.drop().await;
}
