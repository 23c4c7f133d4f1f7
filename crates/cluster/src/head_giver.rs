//! Gives other nodes the points that are in memory here and not stored yet.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use ingest::Ingest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    head_wire::{MAX_POINTS, WireError, read_request, write_answer},
    members::Members,
};

/// Requests that are read and answered at once, 6 MiB and 16 MiB each at most. Further requests wait; the bound of time is the node's that asks.
const AT_ONCE: usize = 8;

/// How long an answer to a known sender that probes or greets waits for the table `nodes`: shorter than the sender waits for the answer, also while
/// Cassandra answers slowly or not at all.
const LOOK_FOR: Duration = Duration::from_millis(250);

/// Why a request gets no points.
#[derive(Debug, thiserror::Error)]
pub enum GiveError {
    /// The request cannot be read.
    #[error(transparent)]
    Request(#[from] WireError),
    /// There are more than an answer may have; fewer metrics at once have fewer.
    #[error("the answer has more than {MAX_POINTS} points or 16 MiB; ask for fewer metrics at once")]
    TooMany,
    /// This node was drained: everything that it had is in the tables, and its row in the table `nodes` is gone.
    #[error("this node was drained, and has no points that are not in Cassandra")]
    Left,
    /// The thread that made the answer panicked.
    #[error("the answer could not be made")]
    Broken,
}

/// What was given since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// Answers.
    pub answers: u64,
    /// Points in them.
    pub points: u64,
    /// Requests with another secret, or without one.
    pub refused: u64,
    /// Requests that could not be read or were too large.
    pub invalid: u64,
}

/// A turn to read a request and answer it.
pub struct Turn {
    _permit: OwnedSemaphorePermit,
}

/// An answer.
struct Made {
    answer: Vec<u8>,
    points: usize,
    /// The node that asks.
    node: String,
    /// Whether it asks for nothing: it probes, or has just started and greets.
    is_empty: bool,
}

/// Gives points in memory.
pub struct HeadGiver {
    ingest: Arc<Ingest>,
    members: Arc<Members>,
    turns: Arc<Semaphore>,
    answers: AtomicU64,
    points: AtomicU64,
    refused: AtomicU64,
    invalid: AtomicU64,
}

impl HeadGiver {
    /// Of this node's points, in its name.
    pub(crate) fn new(ingest: Arc<Ingest>, members: Arc<Members>) -> HeadGiver {
        let zero = AtomicU64::default;
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        HeadGiver { ingest, members, turns, answers: zero(), points: zero(), refused: zero(), invalid: zero() }
    }

    /// Waits for a turn. Before a request is read: those that wait have no memory.
    pub async fn turn(&self) -> Turn {
        Turn { _permit: self.turns.clone().acquire_owned().await.expect("it is never closed") }
    }

    /// The answer to a request of a node that has the secret. Where this node does not know the sender, it reads the table `nodes` before it
    /// answers, and asks the sender, too, from then on.
    ///
    /// # Errors
    /// The request is not one, or too large.
    pub async fn give(&self, turn: Turn, request: impl AsRef<[u8]> + Send + 'static) -> Result<Vec<u8>, GiveError> {
        let given = if self.members.has_left_for_all() { Err(GiveError::Left) } else { self.made(turn, request).await };
        match &given {
            Ok(_) => self.answers.fetch_add(1, Relaxed),
            Err(GiveError::Left) => 0,
            Err(_) => self.invalid.fetch_add(1, Relaxed),
        };
        let Made { answer, points, node, is_empty } = given?;
        let members = self.members.clone();
        // A task: what it finds counts also where it comes later.
        let is_known = members.knows(&node);
        let looking = tokio::spawn(async move { members.look_for(&node, is_empty).await });
        match is_known {
            true => _ = tokio::time::timeout(LOOK_FOR, looking).await,
            false => _ = looking.await,
        }
        self.points.fetch_add(points as u64, Relaxed);
        Ok(answer)
    }

    async fn made(&self, turn: Turn, request: impl AsRef<[u8]> + Send + 'static) -> Result<Made, GiveError> {
        let ingest = self.ingest.clone();
        // Without an id it is in no table of nodes, and an address that leads here is meant for another.
        let node = self.members.own().map_or_else(String::new, |node| node.to_string());
        // It waits for the memtable's lock.
        let made = host::spawn_blocking(move || {
            // Also where the sender does not wait any more: this goes on.
            let _turn = turn;
            let request = read_request(request.as_ref())?;
            let heads = ingest.heads(&request.metrics, MAX_POINTS).map_err(|_| GiveError::TooMany)?;
            let points = heads.iter().flatten().map(|run| run.values.len()).sum();
            let answer = write_answer(request.version, &node, &heads).ok_or(GiveError::TooMany)?;
            Ok(Made { answer, points, is_empty: request.metrics.is_empty(), node: request.node })
        });
        made.await.unwrap_or(Err(GiveError::Broken))
    }

    /// Counts a request without the secret.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// What was given.
    pub fn given(&self) -> Given {
        Given {
            answers: self.answers.load(Relaxed),
            points: self.points.load(Relaxed),
            refused: self.refused.load(Relaxed),
            invalid: self.invalid.load(Relaxed),
        }
    }
}
