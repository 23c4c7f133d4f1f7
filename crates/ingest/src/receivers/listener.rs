//! A listening socket: its connections, their number and their limits.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use host::Backoff;
use tls::Identity;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use super::{
    door::{Door, Entered},
    socket::{Encrypted, Socket},
};
use crate::ListenerGate;

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
#[derive(Default)]
pub struct Connections {
    active: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    /// Open connections within the part that is this receiver's own.
    own: AtomicU64,
    of_all: Arc<ConnectionCap>,
    door: Arc<Door>,
}

/// How many connections all receivers may have: the rest of the process's descriptors is for files and HTTP. A quarter of them
/// is divided, so that the clients of one receiver do not shut those of another out; all may use the rest.
#[derive(Debug)]
pub struct ConnectionCap {
    /// Of each receiver.
    own: u64,
    /// Of all, besides.
    common: u64,
    /// Open ones that are not of the receivers' own part.
    active: AtomicU64,
}

impl Default for ConnectionCap {
    fn default() -> ConnectionCap {
        ConnectionCap::new(u64::MAX, 1)
    }
}

impl ConnectionCap {
    /// At most so many, of so many receivers.
    pub fn new(limit: u64, receivers: u64) -> ConnectionCap {
        let receivers = receivers.max(1);
        let own = limit / 4 / receivers;
        ConnectionCap { own, common: limit - own * receivers, active: AtomicU64::new(0) }
    }
}

impl Connections {
    /// Of one receiver, which shares the limit of all.
    pub fn within(of_all: Arc<ConnectionCap>) -> Connections {
        Connections { of_all, ..Connections::default() }
    }

    /// The same for a listener that not all may connect to.
    pub fn behind(self, door: Arc<Door>) -> Connections {
        Connections { door, ..self }
    }

    /// What senders may send.
    pub(super) fn gate(&self) -> Option<Arc<ListenerGate>> {
        self.door.gate.clone()
    }

    /// How often accepting failed, mostly because the process had no descriptor left.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Counts a connection as open for as long as the result lives; `None` if there are too many.
    fn open(self: &Arc<Connections>, limit: usize) -> Option<Open> {
        // Only the task that accepts counts up, so that no more than this are open.
        if limit as u64 <= self.active() {
            return None;
        }
        let is_own = self.own.load(Relaxed) < self.of_all.own;
        if is_own {
            self.own.fetch_add(1, Relaxed);
        } else if self.of_all.active.fetch_add(1, Relaxed) >= self.of_all.common {
            self.of_all.active.fetch_sub(1, Relaxed);
            return None;
        }
        self.active.fetch_add(1, Relaxed);
        Some(Open { connections: self.clone(), is_own, _entered: None })
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

/// A protocol, as it serves connections.
pub(super) trait Serve: Send + Sync + 'static {
    /// Serves one connection to its end.
    fn serve(&self, stream: impl Socket) -> impl Future<Output = ()> + Send + 'static;
}

/// Accepts connections until the stop, then waits for those that are open to end.
pub(super) async fn serve(
    listener: TcpListener,
    limits: ReceiverLimits,
    connections: Arc<Connections>,
    mut stop: watch::Receiver<bool>,
    of: impl Serve,
) {
    let of = Arc::new(of);
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
                let Some(mut open) = connections.open(limits.connections) else {
                    let refused = connections.refused.fetch_add(1, Relaxed) + 1;
                    // Logged ever more rarely: senders that are refused come again at once.
                    if refused.is_power_of_two() {
                        tracing::warn!(%peer, refused, limit = limits.connections,
                            "closed a connection beyond the limit; receive.max_connections raises it, up to the process's limit of open files");
                    }
                    continue;
                };
                let Some(entered) = connections.door.enter(peer) else { continue };
                open._entered = entered;
                connections.accepted.fetch_add(1, Relaxed);
                match connections.door.identity.clone() {
                    None => {
                        let served = of.serve(stream);
                        tasks.spawn(async move {
                            let _open = open;
                            served.await;
                        });
                    }
                    Some(identity) => {
                        let (of, stop) = (of.clone(), stop.clone());
                        tasks.spawn(async move {
                            let _open = open;
                            if let Some(stream) = handshake(&identity, stream, peer, stop).await {
                                of.serve(Encrypted::new(stream)).await;
                            }
                        });
                    }
                }
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

/// The handshake of a connection, unless the program stops.
async fn handshake(
    identity: &Identity,
    stream: TcpStream,
    peer: SocketAddr,
    mut stop: watch::Receiver<bool>,
) -> Option<tls::Stream> {
    tokio::select! {
        stream = identity.accept(stream, peer) => stream,
        _ = stop.wait_for(|&stop| stop) => None,
    }
}

/// Counts a connection as open for as long as it lives.
struct Open {
    connections: Arc<Connections>,
    /// Whether it is one of the part that is its receiver's own.
    is_own: bool,
    // Dropped with the connection.
    _entered: Option<Entered>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let Connections { active, own, of_all, .. } = &*self.connections;
        active.fetch_sub(1, Relaxed);
        let count = if self.is_own { own } else { &of_all.active };
        count.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_receiver_leave_others_their_part() {
        let cap = Arc::new(ConnectionCap::new(32, 2));
        let (first, second) = (Arc::new(Connections::within(cap.clone())), Arc::new(Connections::within(cap)));
        let mut open: Vec<Open> = std::iter::from_fn(|| first.open(100)).collect();
        assert_eq!((open.len(), first.active()), (28, 28));
        let others: Vec<Open> = std::iter::from_fn(|| second.open(3)).collect();
        assert_eq!(others.len(), 3, "its own limit");
        assert!(second.open(100).is_some() && first.open(100).is_none());
        open.truncate(23);
        assert_eq!(std::iter::from_fn(|| second.open(100)).collect::<Vec<_>>().len(), 6, "one of its own, and five");
        drop((open, others));
        assert_eq!((first.active(), second.active()), (0, 0));
    }
}
