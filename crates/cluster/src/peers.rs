//! The nodes over the same tables and what they tell each other, as the rest of the program sees it.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use host::Clock;
use ingest::Ingest;
use store::StoreError;
use store_cassandra::Calendar;

use crate::{
    change_log::ChangeLog,
    follower::Followed,
    head_asker::{HeadAsker, HeadTransport},
    head_giver::HeadGiver,
    members::{HEARTBEAT, Member, Members},
    nodes_table::NodesTable,
    tables::Tables,
};

/// Interval between two attempts to meet other nodes for the first time.
const FIRST_MEETING: Duration = Duration::from_millis(500);

/// How long a start waits until other nodes know this one.
const INTRODUCTION: Duration = Duration::from_secs(2);

/// Names that nodes tell each other, since the start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangeCounts {
    /// Names of this node that other nodes can read.
    pub written: u64,
    /// Names that were dropped because too many waited.
    pub dropped: u64,
    /// Names of other nodes that it followed.
    pub followed: u64,
    /// Reads of all names because this node could not follow for too long.
    pub scans: u64,
    /// Polls that failed.
    pub failures: u64,
    /// Time since the latest poll that succeeded; `None` before the first.
    pub age: Option<Duration>,
    /// Seconds from the writing of the latest row to its application here, by both nodes' clocks.
    pub delay_seconds: f64,
}

/// Other nodes.
pub struct Peers {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) members: Arc<Members>,
    /// The way to the tables, where names are followed.
    pub(crate) tables: Option<Arc<dyn Tables>>,
    pub(crate) log: Arc<ChangeLog>,
    pub(crate) followed: Arc<Followed>,
    pub(crate) heads: OnceLock<Heads>,
    /// Whether this node was shown to the others since its start.
    pub(crate) is_introduced: AtomicBool,
}

/// Both directions of points in memory.
#[derive(Clone)]
pub struct Heads {
    /// Asks other nodes.
    pub asker: Arc<HeadAsker>,
    /// Answers them.
    pub giver: Arc<HeadGiver>,
}

impl Peers {
    /// Over a table of nodes alone: the names that nodes tell each other are not followed. For rehearsals.
    pub fn over(table: Arc<dyn NodesTable>, clock: Arc<dyn Clock>, version: String) -> Arc<Peers> {
        let members = Arc::new(Members::new(clock.clone(), table, version, 0));
        let calendar = Arc::new(Calendar::new(clock.clone()));
        let (log, followed) = (Arc::new(ChangeLog::new(clock.clone(), calendar)), Arc::default());
        let (heads, is_introduced) = (OnceLock::new(), AtomicBool::new(false));
        Arc::new(Peers { clock, members, tables: None, log, followed, heads, is_introduced })
    }

    /// Sets where other nodes reach this one over HTTP, host and port, and tells them of it: those that answer ask this node from then
    /// on. To await before this node accepts points. It waits 2 s at most; while Cassandra is away the first heartbeat does it.
    pub async fn introduce(&self, address: String) {
        self.members.set_address(address);
        if tokio::time::timeout(INTRODUCTION, self.meet_once()).await.is_err() {
            tracing::warn!("other nodes may not know this one yet; they find it within a heartbeat");
        }
    }

    /// Writes the heartbeat of this node and reads those of others, until dropped.
    pub async fn meet(self: Arc<Peers>) {
        loop {
            let is_introduced = self.is_introduced.load(Relaxed);
            self.meet_once().await;
            tokio::time::sleep(if is_introduced { HEARTBEAT } else { FIRST_MEETING }).await;
        }
    }

    /// The first time that it succeeds, and this node has its address, it is shown to the others.
    async fn meet_once(&self) {
        let has_address = self.members.has_address();
        if self.members.meet().await && has_address && !self.is_introduced.load(Relaxed) {
            if let Some(Heads { asker, .. }) = self.heads() {
                asker.greet().await;
            }
            self.is_introduced.store(true, Relaxed);
        }
    }

    /// Tells other nodes that this one drains: they go on asking it for its points. Where Cassandra is away, the next heartbeat does it.
    pub async fn begin_draining(&self) {
        self.members.set_draining();
        let _ = tokio::time::timeout(INTRODUCTION, self.members.meet()).await;
    }

    /// Leaves the table `nodes` for good: other nodes ask this one no more, and its names are all in the log. It goes on asking them.
    ///
    /// # Errors
    /// Cassandra cannot be reached: this node has not left.
    pub async fn leave(&self) -> Result<(), StoreError> {
        if let Some(tables) = &self.tables {
            tell_all(&self.log, &**tables).await?;
        }
        self.members.leave().await
    }

    /// From now on reads have the points in memory of other nodes, and wait `patience` for them at most. Once.
    pub fn begin_heads(&self, ingest: &Arc<Ingest>, transport: Arc<dyn HeadTransport>, patience: Duration) -> Heads {
        let heads = self.heads.get_or_init(|| Heads {
            asker: HeadAsker::new(self.clock.clone(), self.members.clone(), transport, patience),
            giver: Arc::new(HeadGiver::new(ingest.clone(), self.members.clone())),
        });
        ingest.set_peers(heads.asker.clone());
        heads.clone()
    }

    /// Both directions; `None` where points in memory are neither asked for nor given.
    pub fn heads(&self) -> Option<Heads> {
        self.heads.get().cloned()
    }

    /// The nodes that were seen within a minute, this one too, by id.
    pub fn members(&self) -> Vec<Member> {
        self.members.all()
    }

    /// The names that nodes tell each other.
    pub fn changes(&self) -> ChangeCounts {
        let (written, dropped) = self.log.counts();
        ChangeCounts {
            written,
            dropped,
            followed: self.followed.names.load(Relaxed),
            scans: self.followed.scans.load(Relaxed),
            failures: self.followed.failures.load(Relaxed),
            age: self.followed.age(self.clock.instant()),
            delay_seconds: self.followed.delay_ms.load(Relaxed) as f64 / 1000.0,
        }
    }
}

/// Tells other nodes of all names that wait in the log.
async fn tell_all(log: &ChangeLog, tables: &dyn Tables) -> Result<(), StoreError> {
    let driver = tables.tables()?;
    let Some(node) = tables.own() else { return Ok(()) };
    while !log.is_empty() {
        log.write(driver, node).await?;
    }
    Ok(())
}
