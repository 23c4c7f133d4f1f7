//! A listening socket: its connections, their number and their limits.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use host::Backoff;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// Pauses after a connection that cannot be accepted: they double while that lasts.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_secs(1);

/// Limits of a receiver.
#[derive(Debug, Clone, Copy)]
pub struct ReceiverLimits {
    /// Concurrent connections. A further one is closed at once and counted.
    pub connections: usize,
    /// A connection that sent nothing for this long is closed.
    pub idle: Option<Duration>,
    /// Longest frame; a longer one is skipped and counted.
    pub frame_bytes: usize,
}

/// Connections of a receiver.
#[derive(Debug, Default)]
pub struct Connections {
    active: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    of_all: Arc<ConnectionCap>,
}

/// The open connections of all receivers, and how many there may be: the rest of the process's descriptors is for files
/// and HTTP.
#[derive(Debug)]
pub struct ConnectionCap {
    limit: u64,
    active: AtomicU64,
}

impl Default for ConnectionCap {
    fn default() -> ConnectionCap {
        ConnectionCap::new(u64::MAX)
    }
}

impl ConnectionCap {
    /// At most so many.
    pub fn new(limit: u64) -> ConnectionCap {
        ConnectionCap { limit, active: AtomicU64::new(0) }
    }
}

impl Connections {
    /// Of one receiver, which shares the limit of all.
    pub fn within(of_all: Arc<ConnectionCap>) -> Connections {
        Connections { of_all, ..Connections::default() }
    }

    /// How often accepting failed, mostly because the process had no descriptor left.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    fn is_full(&self, limit: usize) -> bool {
        limit as u64 <= self.active() || self.of_all.limit <= self.of_all.active.load(Relaxed)
    }

    /// Open now.
    pub fn active(&self) -> u64 {
        self.active.load(Relaxed)
    }

    /// Ever accepted.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    /// Closed at once because there were too many.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }
}

/// Accepts connections until the stop, then waits for those that are open to end.
pub(super) async fn serve<F, Served>(
    listener: TcpListener,
    limits: ReceiverLimits,
    connections: Arc<Connections>,
    mut stop: watch::Receiver<bool>,
    serve_one: F,
) where
    F: Fn(TcpStream) -> Served,
    Served: Future<Output = ()> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => break,
        };
        while tasks.try_join_next().is_some() {}
        match accepted {
            Ok((stream, peer)) => {
                if backoff.peek() != FIRST_RETRY {
                    tracing::info!("connections are accepted again");
                    backoff.reset();
                }
                if connections.is_full(limits.connections) {
                    let refused = connections.refused.fetch_add(1, Relaxed) + 1;
                    // Logged ever more rarely: senders that are refused come again at once.
                    if refused.is_power_of_two() {
                        tracing::warn!(%peer, refused, limit = limits.connections,
                            "closed a connection beyond the limit; receive.max_connections raises it, up to the process's limit of open files");
                    }
                    continue;
                }
                connections.accepted.fetch_add(1, Relaxed);
                connections.active.fetch_add(1, Relaxed);
                connections.of_all.active.fetch_add(1, Relaxed);
                let (served, connections) = (serve_one(stream), connections.clone());
                tasks.spawn(async move {
                    let _open = Open(connections);
                    served.await;
                });
            }
            Err(error) => {
                connections.failed.fetch_add(1, Relaxed);
                // The sender gave up before it was accepted; others may wait behind it.
                if error.kind() == io::ErrorKind::ConnectionAborted {
                    continue;
                }
                // Usually too many open files; waiting lets some close. Logged once, until one is accepted.
                if backoff.peek() == FIRST_RETRY {
                    tracing::error!(%error, "cannot accept connections; retrying; senders wait");
                }
                tokio::time::sleep(backoff.next_wait()).await;
            }
        }
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
}

/// Counts a connection as open for as long as it lives.
struct Open(Arc<Connections>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Relaxed);
        self.0.of_all.active.fetch_sub(1, Relaxed);
    }
}
