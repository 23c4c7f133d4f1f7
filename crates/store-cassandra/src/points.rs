//! What writing and reading points share: the session, the tables, the bounds.

use std::sync::{Arc, atomic::AtomicU64};

use host::Clock;
use metric::Table;
use scylla::client::session::Session;
use store::StoreError;
use tokio::sync::Semaphore;

use crate::{
    Layout, Options,
    absent::Absent,
    calendar::Calendar,
    damaged_runs::DamagedRuns,
    packed_tables::PackedTables,
    retry::Retry,
    rows,
    tables::{Statements, Tables},
    timestamps::Timestamps,
};

/// The way of the points.
pub(crate) struct Points {
    pub(crate) session: Arc<Session>,
    /// BigGraphite's tables.
    pub(crate) tables: Tables,
    /// Those of them that a keyspace of packed tables does not have.
    absent_rows: Absent<Table>,
    pub(crate) packed: PackedTables,
    pub(crate) damaged: DamagedRuns,
    /// Which tables are written; both are read.
    pub(crate) layout: Layout,
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
            absent_rows: Absent::new(clock.clone()),
            packed: PackedTables::new(session.clone(), options.keyspace.clone(), options.consistency, retry.clone()),
            damaged: DamagedRuns::new(options.damage.clone(), options.keyspace.clone(), clock.clone()),
            layout: options.layout,
            session,
            keyspace: options.keyspace.clone(),
            writer: options.writer,
            replica: options.replica,
            retry,
            in_flight,
            writes: Semaphore::new(in_flight),
            reads: Semaphore::new(in_flight),
            timestamps: Timestamps::new(Arc::new(Calendar::new(clock.clone()))),
            clock,
            acknowledged: AtomicU64::new(0),
        }
    }

    /// The statements of BigGraphite's table, or `None` where it does not exist. A node that does not write it looks for it
    /// once a second.
    pub(crate) async fn existing_rows(&self, table: Table) -> Result<Option<Arc<Statements>>, StoreError> {
        let is_ours = self.layout == Layout::Rows;
        if !is_ours && self.absent_rows.is_known(&table) {
            return Ok(None);
        }
        let asked = self.clock.instant();
        let statements = self.tables.existing(table).await?;
        if statements.is_none() && !is_ours {
            self.absent_rows.note(table, asked);
        }
        Ok(statements)
    }

    /// How many tables were used so far.
    pub(crate) fn tables_len(&self) -> u64 {
        (self.tables.len() + self.packed.len()) as u64
    }

    /// What tells this writer's rows of aggregated tables from others'.
    pub(crate) fn shard(&self) -> i16 {
        rows::shard(self.replica, self.writer)
    }
}
