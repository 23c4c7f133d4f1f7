//! Stopping: receivers first, then all points in memory to the store, then the names.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Context;
use cluster::Connection;
use ingest::{FlushError, Ingest};
use store::NameStore;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::JoinSet,
};

use crate::listen::Listeners;

/// How long a stop waits for a store that accepts nothing. The journal keeps what the store would get.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// How long a stop waits for the disk of what other nodes changed.
const OWED_PATIENCE: Duration = Duration::from_secs(12);

/// What other nodes changed is not on the disk.
pub const NOT_KEPT: &str = "cannot write policies that other nodes have, or had; the next start asks for them again, and until then reads points of the journal by \
     those before";

/// The signals that stop the program.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// A container's way to stop a program gently (`STOPSIGNAL SIGQUIT`), and a key of terminals.
    quit: Signal,
}

impl Signals {
    /// Handles them from now on: the program does not end by itself any more.
    pub fn new() -> anyhow::Result<Signals> {
        let [terminate, interrupt, quit] =
            [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()].map(signal);
        Ok(Signals { terminate: terminate?, interrupt: interrupt?, quit: quit? })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.quit.recv() => {}
        }
    }

    /// The result of `work`, or `None` when a signal comes first; then the work is dropped.
    pub async fn interrupt<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.next() => None,
        }
    }
}

/// A node that runs, as a stop sees it.
pub struct Running<'a> {
    pub listeners: Listeners,
    pub background: JoinSet<()>,
    /// Tasks that end when the points are written.
    pub until_stored: JoinSet<()>,
    pub ingest: &'a Ingest,
    pub connection: Option<&'a Connection>,
    pub names: &'a dyn NameStore,
    /// The names of this node alone.
    pub embedded: &'a dyn NameStore,
    /// The data folder.
    pub data: &'a Path,
    pub disk: &'a Arc<dyn host::Disk>,
}

impl Running<'_> {
    /// Stops within `timeout`, or at once at another signal. Points not written by then stay in the journal.
    pub async fn stop(self, timeout: Duration, signals: &mut Signals) -> anyhow::Result<()> {
        match signals.interrupt(tokio::time::timeout(timeout, self.stop_cleanly())).await {
            Some(Ok(stopped)) => stopped,
            Some(Err(_)) => {
                tracing::warn!(
                    ?timeout,
                    "stopped before all points were written; the rest is in the journal, and the next start replays it"
                );
                Ok(())
            }
            None => {
                tracing::warn!(
                    "stopped at once; points that were not written are in the journal, and the next start replays it"
                );
                Ok(())
            }
        }
    }

    async fn stop_cleanly(mut self) -> anyhow::Result<()> {
        self.listeners.close();
        // Receivers that wait for room in a full journal would wait until the store is back.
        self.ingest.release_receivers();
        self.listeners.closed().await;
        self.background.shutdown().await;
        let written = self.write_out().await;
        self.until_stored.shutdown().await;
        self.ingest.followed_deletions_end().await;
        let time = self.ingest.time().clone();
        if let Err(error) = tokio::task::spawn_blocking(move || time.save()).await? {
            tracing::warn!(%error, "cannot write the file clock of the data folder");
        }
        // The journal and the saved names do not have them.
        let owed = self.write_owed().await;
        if let (Err(error), Err(_)) = (&owed, &written) {
            tracing::warn!("{error:#}");
        }
        match written {
            Ok(()) => {}
            Err(FlushError::Store { why, held_points, parked_points, unsynced_points }) => {
                tracing::warn!(
                    error = why,
                    held_points,
                    parked_points,
                    unsynced_points,
                    "stopped while the store accepts nothing, or gets nothing to its disk; points that it does not have are in the \
                     journal, and the next start replays it"
                );
                return Ok(());
            }
            Err(error) => {
                return Err(error).context(
                    "cannot write all points to the store; they are in the journal, and the next start replays it",
                );
            }
        }
        if let Some(connection) = self.connection {
            connection.release().await;
        }
        owed?;
        let (registry, mark) = (self.ingest.registry().clone(), self.names.names_mark());
        let (path, disk) = (self.data.join(metadata::SAVED), self.disk.clone());
        let saved = tokio::task::spawn_blocking(move || registry.save(&*disk, &path, mark)).await?;
        saved.context("cannot save the names; the next start reads them from the store")?;
        tracing::info!("stopped");
        Ok(())
    }

    /// Writes what other nodes changed. Disks that are stuck do not keep the other parts of a stop waiting.
    async fn write_owed(&self) -> anyhow::Result<()> {
        match tokio::time::timeout(OWED_PATIENCE, self.ingest.write_owed_records(self.embedded)).await {
            Ok(written) => written.context(NOT_KEPT),
            Err(_) => Err(anyhow::anyhow!("{NOT_KEPT}: the disk did not answer within {} s", OWED_PATIENCE.as_secs())),
        }
    }

    /// Writes all points in memory, and keeps watching the connection: a store that comes back is used at once.
    async fn write_out(&self) -> Result<(), FlushError> {
        let watching = async {
            match self.connection {
                Some(connection) => connection.watch(self.ingest).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            closed = self.ingest.close_patiently(STOP_PATIENCE) => closed,
            () = watching => unreachable!("a watch never ends"),
        }
    }
}
