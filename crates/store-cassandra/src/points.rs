//! What writing and reading points share: the session, the tables, the bounds.

use std::sync::{Arc, atomic::AtomicU64};

use host::Clock;
use scylla::client::session::Session;
use tokio::sync::Semaphore;

use crate::{Options, retry::Retry, rows, tables::Tables, timestamps::Timestamps};

/// The way of the points.
pub(crate) struct Points {
    pub(crate) session: Arc<Session>,
    pub(crate) tables: Tables,
    pub(crate) keyspace: String,
    pub(crate) writer: u16,
    pub(crate) replica: u8,
    pub(crate) retry: Retry,
    /// Concurrent statements, of writes and of reads each. The next waits until one is done.
    pub(crate) in_flight: usize,
    pub(crate) writes: Semaphore,
    pub(crate) reads: Semaphore,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timestamps: Timestamps,
    /// Batches that were acknowledged since the start.
    pub(crate) acknowledged: AtomicU64,
}

impl Points {
    pub(crate) fn new(session: Arc<Session>, options: &Options) -> Points {
        let (retry, clock) = (options.retry(), options.host.clock.clone());
        let in_flight = options.in_flight.clamp(1, Semaphore::MAX_PERMITS);
        Points {
            tables: Tables::new(session.clone(), options.keyspace.clone(), options.consistency, retry.clone()),
            session,
            keyspace: options.keyspace.clone(),
            writer: options.writer,
            replica: options.replica,
            retry,
            in_flight,
            writes: Semaphore::new(in_flight),
            reads: Semaphore::new(in_flight),
            timestamps: Timestamps::new(clock.clone()),
            clock,
            acknowledged: AtomicU64::new(0),
        }
    }

    /// What tells this writer's rows of aggregated tables from others'.
    pub(crate) fn shard(&self) -> i16 {
        rows::shard(self.replica, self.writer)
    }
}
