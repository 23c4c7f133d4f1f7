//! The nodes over the same tables and what they tell each other, as the rest of the program sees it.

use std::{
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
    time::Duration,
};

use host::Clock;
use ingest::Ingest;

use crate::{
    change_log::ChangeLog,
    follower::Followed,
    head_asker::{HeadAsker, HeadTransport},
    head_giver::HeadGiver,
    members::{Member, Members},
};

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
    pub(crate) log: Arc<ChangeLog>,
    pub(crate) followed: Arc<Followed>,
    pub(crate) heads: OnceLock<Heads>,
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
    /// Sets where other nodes reach this one over HTTP: host and port.
    pub fn set_address(&self, address: String) {
        self.members.set_address(address);
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
