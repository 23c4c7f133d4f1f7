//! The tables in memory pass the suites that Cassandra passes, in each layout.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, ready};
use host::ManualClock;
use metric::Timestamp;
use store::{
    PointStore,
    conformance::{Fixture, points_suite, shared_points_suite},
};
use store_cassandra::{Fate, InMemoryTables, InMemoryWriter, Layout, Link};

const NOW: Timestamp = 1_800_000_123;

/// The largest count that BigGraphite's `smallint` column holds.
const LARGEST_COUNT: u32 = 32767;

struct AllDone;

impl Link for AllDone {
    fn has_others(&self) -> bool {
        true
    }

    fn statement(&self, _is_write: bool) -> BoxFuture<'_, Fate> {
        ready(Fate::Done).boxed()
    }
}

/// Processes of one writer.
struct Processes {
    tables: InMemoryTables,
    layout: Layout,
    last_timestamp: i64,
}

impl Processes {
    fn start(&mut self) -> Arc<InMemoryWriter> {
        let clock = Arc::new(ManualClock::at(NOW));
        // More than any process takes.
        self.last_timestamp += 1_000_000;
        Arc::new(self.tables.writer((7, self.layout), clock, Arc::new(AllDone), self.last_timestamp))
    }
}

impl Fixture<dyn PointStore> for Processes {
    const OUTLIVES: bool = true;

    async fn open(&mut self) -> Arc<dyn PointStore> {
        self.start()
    }
}

#[tokio::test]
async fn rows_in_memory_conform_to_the_suites_of_all_drivers() {
    conform(Layout::Rows, LARGEST_COUNT).await;
}

#[tokio::test]
async fn packed_tables_in_memory_conform_to_the_suites_of_all_drivers() {
    conform(Layout::Packed, u32::MAX).await;
}

async fn conform(layout: Layout, largest_count: u32) {
    let mut processes = Processes { tables: InMemoryTables::default(), layout, last_timestamp: NOW * 1_000_000 };
    let writer = processes.start();
    shared_points_suite(&*writer, &*writer, NOW).await;
    points_suite(&mut processes, largest_count, NOW).await;
}
