//! A listening socket: its connections, their number and their limits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// Pause after a connection that cannot be accepted.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

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
}

impl Connections {
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
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => break,
        };
        while tasks.try_join_next().is_some() {}
        match accepted {
            Ok((stream, peer)) => {
                if connections.active() >= limits.connections as u64 {
                    let refused = connections.refused.fetch_add(1, Relaxed) + 1;
                    // Logged ever more rarely: senders that are refused come again at once.
                    if refused.is_power_of_two() {
                        tracing::warn!(%peer, refused, limit = limits.connections,
                            "closed a connection beyond the limit; receive.max_connections raises it");
                    }
                    continue;
                }
                connections.accepted.fetch_add(1, Relaxed);
                connections.active.fetch_add(1, Relaxed);
                let (served, connections) = (serve_one(stream), connections.clone());
                tasks.spawn(async move {
                    let _open = Open(connections);
                    served.await;
                });
            }
            Err(error) => {
                // Usually too many open files; waiting lets some close.
                tracing::error!(%error, "cannot accept a connection; retrying");
                tokio::time::sleep(ACCEPT_RETRY).await;
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
    }
}
