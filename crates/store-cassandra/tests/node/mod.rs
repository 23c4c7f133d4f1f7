//! The Cassandra that tests run against, and keyspaces on it.

#![allow(dead_code, reason = "no test target uses all of it")]

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, SystemTime},
};

use metric::Timestamp;
use scylla::client::{session::Session, session_builder::SessionBuilder};
use store_cassandra::{ClusterOptions, Consistencies, Consistency, Indexes, Layout, Options};

/// The node's address, or `None` where tests that need one are left out.
///
/// # Panics
/// There is none, and `PLUMBAGO_TESTS_REQUIRE_CASSANDRA` says that there must be.
pub fn address() -> Option<String> {
    const HOW: &str = "left out: needs Cassandra; run tests/run, or tests/cassandra/node start and set \
                       PLUMBAGO_TEST_CASSANDRA=127.0.0.1:9042";
    let address = std::env::var("PLUMBAGO_TEST_CASSANDRA").ok().filter(|address| !address.is_empty());
    if address.is_none() {
        assert!(std::env::var("PLUMBAGO_TESTS_REQUIRE_CASSANDRA").as_deref() != Ok("1"), "{HOW}");
        eprintln!("{HOW}");
    }
    address
}

/// Unix seconds.
pub fn now() -> Timestamp {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as Timestamp
}

/// A keyspace of the test's own.
pub struct Keyspace {
    pub name: String,
    pub address: String,
    pub session: Session,
}

impl Keyspace {
    /// Makes one whose name begins with `test`.
    pub async fn make(address: String, test: &str) -> Keyspace {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("{test}_{}_{number}", std::process::id());
        let session = SessionBuilder::new().known_node(&address).build().await.expect("the node answers");
        let made = Keyspace { name, address, session };
        made.run(&format!(
            "CREATE KEYSPACE {} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
            made.name
        ))
        .await;
        made
    }

    /// Runs a statement.
    pub async fn run(&self, cql: &str) {
        self.session.query_unpaged(cql, ()).await.unwrap_or_else(|error| panic!("{cql}: {error}"));
    }

    /// Drops it; a failed test leaves it for inspection.
    pub async fn drop(self) {
        self.run(&format!("DROP KEYSPACE {}", self.name)).await;
    }

    /// The options of a driver of this keyspace.
    pub fn options(&self) -> Options {
        options(cluster(&self.address), &self.name)
    }
}

/// The options of a driver.
pub fn options(data: ClusterOptions, keyspace: &str) -> Options {
    Options {
        data,
        metadata: None,
        keyspace: keyspace.to_owned(),
        replication: None,
        layout: Layout::Rows,
        consistency: Consistencies {
            data_write: Consistency::LocalOne,
            data_read: Consistency::LocalOne,
            meta_write: Consistency::LocalOne,
            meta_read: Consistency::LocalOne,
        },
        indexes: Indexes::None,
        writer: 7,
        replica: 0,
        in_flight: 64,
        glob_rows: 5000,
        glob_queries: 42,
        host: host::Host::system(),
        damage: store::DamageLog::new(),
    }
}

/// The cluster at an address, with the times of a test.
pub fn cluster(address: &str) -> ClusterOptions {
    ClusterOptions {
        contact_points: vec![address.to_owned()],
        credentials: None,
        tls: None,
        datacenter: None,
        connect_timeout: Duration::from_secs(5),
        request_timeout: Duration::from_secs(30),
    }
}
