//! Draining: a node over Cassandra takes no more points, writes all that it has, and leaves the other nodes, so that its data folder
//! can be removed.
//!
//! 1. `/ready` is a 503 from now on, and the row in the table `nodes` says that this node drains. Others go on asking it for its points.
//! 2. The receivers read what the kernel has for them and close, with all connections; `/ingest` answers 503; the node stores no
//!    metrics of its own any more.
//! 3. Everything is flushed, again and again, until nothing is left in memory, in the journal alone, in segments that are
//!    to be put back, or in the queue of new names, and aggregates that other nodes may have written meanwhile have been checked again.
//! 4. The row in `nodes` is deleted. The node answers queries until it is stopped.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use cluster::Peers;
use host::{Clock, Disk};
use ingest::Ingest;
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::PointStore;
use store_embedded::EmbeddedDriver;

use crate::intake::Intake;

/// How long an attempt waits for a store that takes nothing, before it says why.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// Drains this node, once.
pub struct Drain {
    pub intake: Arc<Intake>,
    pub ingest: Arc<Ingest>,
    /// Other nodes; `None` where points are in the data folder.
    pub peers: Option<Arc<Peers>>,
    /// The store in the data folder.
    pub embedded: Arc<EmbeddedDriver>,
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    /// The data folder.
    pub data: PathBuf,
    /// [`Phase::Off`] at first.
    pub phase: Mutex<Phase>,
}

/// How far it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Phase {
    /// It was not asked for.
    #[default]
    Off,
    /// Points are being written.
    Draining {
        since: Instant,
        /// Why the latest attempt did not end.
        why: Option<String>,
    },
    /// Nothing is left, and this node has left the others.
    Drained { seconds: f64 },
}

/// What Cassandra does not have yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Left {
    /// Points in memory.
    memory: u64,
    /// Points that are in the journal alone.
    journal: u64,
    /// Points that Cassandra has taken in a write that is not over.
    unsynced: u64,
    /// Metrics that are not in the tables of names.
    names: u64,
}

impl Left {
    fn points(&self) -> u64 {
        self.memory + self.journal + self.unsynced
    }

    fn is_none(&self) -> bool {
        self.points() == 0 && self.names == 0
    }
}

/// What only the data folder has, and draining does not move.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Folder {
    /// Events (annotations).
    events: u64,
    /// Whether there are points from a time without Cassandra.
    has_points: bool,
    /// Files with what could not be read, or not be put back, in `damaged/` and `journal/late-…`.
    damaged_files: u64,
}

impl Drain {
    /// Begins, unless it has begun before.
    ///
    /// # Errors
    /// Points are in the data folder: there is nowhere else to write them.
    pub fn begin(self: &Arc<Drain>) -> Result<(), String> {
        let Some(peers) = self.peers.clone() else {
            return Err(
                "it keeps its points in its data folder, not in Cassandra, and there is no other node to take them. \
                        `plumbago backup` and `plumbago restore` move them to another machine"
                    .to_owned(),
            );
        };
        let mut phase = self.phase.lock();
        if *phase == Phase::Off {
            *phase = Phase::Draining { since: self.clock.instant(), why: None };
            tracing::info!("draining: this node takes no more points, and writes all that it has to Cassandra");
            let drain = self.clone();
            let run = move || drain.clone().run(peers.clone());
            tokio::spawn(self.ingest.supervisor().run("drain", run));
        }
        Ok(())
    }

    /// Why this node is not ready, from the begin on.
    pub fn not_ready(&self) -> Option<String> {
        match &*self.phase.lock() {
            Phase::Off => None,
            Phase::Draining { why, .. } => {
                let why = why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
                Some(format!("draining: no points are taken, and {} are to be written{why}", self.left().points()))
            }
            Phase::Drained { .. } => {
                Some("drained: no points are taken, and none are left; stop this server".to_owned())
            }
        }
    }

    async fn run(self: Arc<Drain>, peers: Arc<Peers>) {
        peers.begin_draining().await;
        self.intake.close();
        // Receivers that wait for room in a full journal would wait until the store is back.
        self.ingest.release_receivers();
        self.intake.closed().await;
        while let Err(why) = self.attempt(&peers).await {
            self.failed(why);
            tokio::time::sleep(PAUSE).await;
        }
        let seconds = match &*self.phase.lock() {
            Phase::Draining { since, .. } => (self.clock.instant() - *since).as_secs_f64(),
            Phase::Off | Phase::Drained { .. } => 0.0,
        };
        *self.phase.lock() = Phase::Drained { seconds };
        tracing::info!(
            seconds,
            "drained: all points are in Cassandra, and other nodes stop asking this one within seconds"
        );
    }

    fn failed(&self, error: String) {
        if let Phase::Draining { why, .. } = &mut *self.phase.lock() {
            if why.is_none() {
                tracing::warn!(error, "cannot drain yet; nothing is lost; retrying");
            }
            *why = Some(error);
        }
    }

    /// Writes all, and leaves.
    async fn attempt(&self, peers: &Peers) -> Result<(), String> {
        self.ingest.put_back().await.map_err(|error| format!("points of the journal cannot be put back: {error}"))?;
        self.ingest.flush_patiently(PATIENCE).await.map_err(|error| error.to_string())?;
        let left = self.left();
        if !left.is_none() {
            return Err(format!("{} points and {} new names wait to be written", left.points(), left.names));
        }
        let rechecks = self.ingest.rechecks_soon();
        if rechecks > 0 {
            return Err(format!(
                "all points are written; aggregates of {rechecks} metrics, which other nodes may have written at the same moment, are \
                 checked again within 30 seconds"
            ));
        }
        peers.leave().await.map_err(|error| error.to_string())
    }

    fn left(&self) -> Left {
        let progress = self.ingest.flush_progress();
        Left {
            memory: progress.held_slots,
            journal: progress.parked_points,
            unsynced: progress.unsynced_points,
            names: self.ingest.unregistered().len() as u64,
        }
    }

    /// What `/admin/drain` answers. Waits for the disk.
    pub fn status(&self) -> Value {
        let phase = self.phase.lock().clone();
        let (state, why, seconds) = match phase {
            Phase::Off => ("off", None, 0.0),
            Phase::Draining { since, why } => ("draining", why, (self.clock.instant() - since).as_secs_f64()),
            Phase::Drained { seconds } => ("drained", None, seconds),
        };
        let (left, folder) = (self.left(), self.folder());
        let folder = match folder {
            Ok(Folder { events, has_points, damaged_files }) => {
                json!({"events": events, "points_without_cassandra": has_points, "damaged_files": damaged_files})
            }
            Err(error) => json!({"error": format!("cannot list {}: {error}", self.data.display())}),
        };
        json!({
            "state": state,
            "seconds": seconds,
            "points_left": left.points(),
            "in_memory": left.memory,
            "in_journal": left.journal,
            "unsynced": left.unsynced,
            "names_left": left.names,
            "why": why,
            "only_in_data_folder": folder,
        })
    }

    fn folder(&self) -> io::Result<Folder> {
        Ok(Folder {
            events: self.embedded.event_usage().events,
            has_points: 0 < PointStore::usage(&*self.embedded).tables,
            damaged_files: files(&*self.disk, &self.data.join("damaged"), "")?
                + files(&*self.disk, &self.data.join("journal"), "late-")?,
        })
    }
}

/// The files of a folder whose names begin so; none where there is no folder.
fn files(disk: &dyn Disk, folder: &Path, prefix: &str) -> io::Result<u64> {
    match disk.read_dir(folder) {
        Ok(entries) => {
            Ok(entries.iter().filter(|entry| entry.name.to_string_lossy().starts_with(prefix)).count() as u64)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}
