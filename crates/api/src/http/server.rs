//! Connections: accepts them up to a limit, closes idle ones for new clients there, and lets them finish when the server stops.

use std::{future::Future, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use host::{Backoff, Clock, MinuteLog, SystemClock};
use tls::Identity;
use tokio::{
    net::TcpListener,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};

use super::{
    connection::serve_connection,
    http1::{Handle, Serving},
    idle::OpenConnections,
    limits::Limits,
    observation::Observer,
    queue::{HEALTH_TIME, Queue},
};

/// Time for unfinished answers once the server stops.
const GRACE: Duration = Duration::from_secs(10);

/// Pauses after a connection that cannot be accepted: they double while that lasts.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_secs(1);

/// Interval between two looks for an idle connection while all are busy or new.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Interval between two lines of the log about connections at their limit.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Addresses with as many connections as they may have.
static REFUSED: MinuteLog = MinuteLog::new();

/// Serves a listener, with TLS or without, until `shutdown` resolves. Then it stops accepting, closes idle connections, and gives unfinished
/// answers ten seconds.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Arc<Identity>>,
    limits: &Limits,
    observer: &dyn Observer,
    handler: Arc<impl Handle>,
    shutdown: impl Future<Output = ()> + Send,
) {
    let mut shutdown = pin!(shutdown);
    let mut room = Room {
        permits: Arc::new(Semaphore::new(limits.connections)),
        connections: Arc::default(),
        limit: limits.connections,
        by_address: by_address(limits),
        logged: None,
    };
    let (stop, stopped) = watch::channel(());
    let mut open = JoinSet::new();
    let serving = |peer, listed| Serving {
        peer,
        limits: limits.clone(),
        handler: handler.clone(),
        stopped: stopped.clone(),
        listed,
        is_once: false,
    };
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    // Others wait in the queue of the operating system.
    let mut queue = Queue::new(limits.connections, tls.is_some());
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            // In this order: clients wait only while there is no room for them.
            biased;
            () = &mut shutdown => break,
            Some(_) = open.join_next(), if !open.is_empty() => {
                observer.connections(open.len());
                continue;
            }
            permit = room.permit(observer), if !queue.is_empty() => {
                let Some((stream, peer)) = queue.next() else { continue };
                // Others of its address may have had their turn since it came.
                if !room.takes(peer, 0, observer) {
                    continue;
                }
                let connection = serve_connection(stream, tls.clone(), serving(peer, room.connections.add(peer.ip())));
                open.spawn(async move {
                    connection.await;
                    drop(permit);
                });
                observer.connections(open.len());
                continue;
            }
            _ = looks.tick(), if !queue.is_empty() => {
                for (stream, peer, place) in queue.look() {
                    let serving = Serving { is_once: true, ..serving(peer, room.connections.add(peer.ip())) };
                    let check = serve_connection(stream, None, serving);
                    open.spawn(async move {
                        tokio::time::timeout(HEALTH_TIME, check).await.ok();
                        drop(place);
                    });
                }
                continue;
            }
            accepted = listener.accept(), if !queue.is_full() => accepted,
        };
        match accepted {
            Ok(accepted) => {
                if backoff.peek() != FIRST_RETRY {
                    tracing::info!("HTTP connections are accepted again");
                    backoff.reset();
                }
                if room.takes(accepted.1, queue.waiting_of(accepted.1.ip()), observer) {
                    queue.push(accepted);
                }
            }
            Err(error) => {
                observer.accept_failed();
                // A client that gave up before it was accepted has others behind it.
                if error.kind() == io::ErrorKind::ConnectionAborted {
                    continue;
                }
                // Usually the process is out of file descriptors: a connection must close first. Logged once, until one
                // is accepted.
                if backoff.peek() == FIRST_RETRY {
                    tracing::error!(%error, "cannot accept HTTP connections; retrying; clients wait");
                }
                tokio::select! {
                    () = &mut shutdown => break,
                    () = tokio::time::sleep(backoff.next_wait()) => {}
                }
            }
        }
    }
    drop((listener, queue));
    stop.send(()).ok();
    let finish = async { while open.join_next().await.is_some() {} };
    tokio::time::timeout(GRACE, finish).await.ok();
    open.shutdown().await;
    observer.connections(0);
}

/// Connections that one address may have: a quarter of all is always for others.
fn by_address(limits: &Limits) -> usize {
    limits.connections_per_address.min((limits.connections - limits.connections / 4).max(1))
}

/// Room for connections.
struct Room {
    permits: Arc<Semaphore>,
    connections: Arc<OpenConnections>,
    limit: usize,
    /// Of one address.
    by_address: usize,
    /// The last line of the log about the limit.
    logged: Option<Instant>,
}

impl Room {
    /// A permit for one more connection. At the limit the longest idle connection is closed for it, or one whose client keeps a
    /// request waiting.
    async fn permit(&mut self, observer: &dyn Observer) -> OwnedSemaphorePermit {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return permit;
        }
        self.log();
        loop {
            if self.connections.close_longest_idle() || self.connections.close_longest_kept() {
                observer.made_room();
            }
            let permit = self.permits.clone().acquire_owned();
            if let Ok(permit) = tokio::time::timeout(LOOK_EVERY, permit).await {
                return permit.expect("the semaphore is never closed");
            }
        }
    }

    /// Whether the address of a new connection may have one more; `waiting` others of it wait.
    fn takes(&self, peer: SocketAddr, waiting: usize, observer: &dyn Observer) -> bool {
        if self.connections.takes(peer.ip(), self.by_address.saturating_sub(waiting)) {
            return true;
        }
        observer.refused();
        if let Some(suppressed) = REFUSED.is_due(SystemClock.instant()) {
            tracing::warn!(%peer, suppressed, limit = self.by_address,
                "an address has as many HTTP connections as http.connections_per_address allows, none of them idle; further \
                 ones are closed; logging this once a minute");
        }
        false
    }

    fn log(&mut self) {
        let now = tokio::time::Instant::now();
        if self.logged.is_none_or(|last| LOG_EVERY <= now - last) {
            self.logged = Some(now);
            tracing::warn!(
                limit = self.limit,
                "as many HTTP connections are open as http.max_connections allows; the longest idle ones are closed for new \
                 clients, and these otherwise wait; logging this once a minute"
            );
        }
    }
}
