//! Open connections without a request under way, or with one that its client keeps waiting. At the limit the longest idle one makes
//! room for a new client; without an idle one, the one whose client has kept a request waiting for the longest time.
//!
//! Idle connections of pools would otherwise keep health checks and operators out for as long as the idle timeout, and clients
//! that trickle for as long as a window of the least rate.

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use super::client::network;

/// A client that has just connected, or has read an answer, may be about to send.
const SHORTEST_IDLE: Duration = Duration::from_millis(300);

/// A client that keeps a request waiting for less than this may be sending a body, or reading an answer, as fast as it can.
const SHORTEST_KEPT: Duration = Duration::from_secs(2);

/// The open connections of a listener.
#[derive(Default)]
pub(super) struct OpenConnections {
    next: Mutex<u64>,
    // A scan at the limit costs microseconds; it happens only there.
    open: Mutex<HashMap<u64, (IpAddr, Arc<Idleness>)>>,
}

/// Whether a connection is idle.
pub(super) struct Idleness {
    // None while a request is under way.
    since: Mutex<Option<Instant>>,
    /// Requests under way: several over HTTP/2. Locked before `since` and `head`.
    requests: Mutex<usize>,
    /// When the first byte of a request came whose head is not whole.
    head: Mutex<Option<Instant>>,
    leave: Notify,
    kept: Mutex<Kept>,
    evicted: Notify,
}

/// Since when requests wait for their client.
#[derive(Debug, Default)]
struct Kept {
    /// For room in the connection.
    writes: Option<Instant>,
    /// Each request by itself, for bytes of its body, or for room for its answer over HTTP/2.
    requests: Vec<(u64, Instant)>,
    next: u64,
}

impl Kept {
    fn since(&self) -> Option<Instant> {
        self.requests.iter().map(|(_, since)| *since).chain(self.writes).min()
    }
}

/// A request waits for its client, until this is dropped.
pub(super) struct ClientWait {
    connection: Arc<Idleness>,
    number: u64,
}

impl Drop for ClientWait {
    fn drop(&mut self) {
        self.connection.kept.lock().requests.retain(|(number, _)| *number != self.number);
    }
}

/// A connection in the list, until it is dropped.
pub(super) struct Listed {
    all: Arc<OpenConnections>,
    number: u64,
    pub idleness: Arc<Idleness>,
}

impl OpenConnections {
    /// Adds a connection, which is idle until its first request.
    pub fn add(self: &Arc<Self>, address: IpAddr) -> Listed {
        let since = Mutex::new(Some(tokio::time::Instant::now()));
        let idleness = Arc::new(Idleness {
            since,
            requests: Mutex::new(0),
            head: Mutex::new(None),
            leave: Notify::new(),
            kept: Mutex::default(),
            evicted: Notify::new(),
        });
        let mut next = self.next.lock();
        *next += 1;
        self.open.lock().insert(*next, (network(address), idleness.clone()));
        Listed { all: self.clone(), number: *next, idleness }
    }

    /// Asks the longest idle connection to close; false if none has been idle for long enough.
    pub fn close_longest_idle(&self) -> bool {
        self.close_longest_idle_of(|_| true)
    }

    /// Whether an address may open a connection besides those that it has: up to `most`, or in place of its longest idle one.
    /// Connections of loopback are not counted, because a proxy on this machine has those of all its clients.
    pub fn takes(&self, address: IpAddr, most: usize) -> bool {
        let address = network(address);
        if address.is_loopback() {
            return true;
        }
        let open = self.open.lock().values().filter(|(other, _)| *other == address).count();
        open < most || self.close_longest_idle_of(|other| other == address)
    }

    /// Closes the connection whose client has kept a request waiting for the longest time; false if no client has for long enough.
    pub fn close_longest_kept(&self) -> bool {
        let mut open = self.open.lock();
        let kept = open.iter().filter_map(|(&number, (_, connection))| Some((connection.kept.lock().since()?, number)));
        let Some((since, number)) = kept.min() else { return false };
        if since.elapsed() < SHORTEST_KEPT {
            return false;
        }
        if let Some((_, connection)) = open.remove(&number) {
            connection.evicted.notify_one();
        }
        true
    }

    fn close_longest_idle_of(&self, is_meant: impl Fn(IpAddr) -> bool) -> bool {
        let mut open = self.open.lock();
        let meant = open.iter().filter(|(_, (address, _))| is_meant(*address));
        let idle = meant.filter_map(|(&number, (_, connection))| Some(((*connection.since.lock())?, number)));
        let Some((since, number)) = idle.min() else { return false };
        if since.elapsed() < SHORTEST_IDLE {
            return false;
        }
        // Out of the list, so that another one is next.
        if let Some((_, connection)) = open.remove(&number) {
            connection.leave.notify_one();
        }
        true
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.all.open.lock().remove(&self.number);
    }
}

impl Idleness {
    /// Resolves when the connection is to close.
    pub async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }

    /// Resolves when the connection is to be closed with the request that its client keeps waiting.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Answers wait for room in the connection: until they are sent.
    pub fn keeps_waiting(&self) {
        self.kept.lock().writes.get_or_insert_with(tokio::time::Instant::now);
    }

    /// A request waits for its client, until the result is dropped.
    pub fn waits_for_client(self: &Arc<Self>) -> ClientWait {
        let mut kept = self.kept.lock();
        kept.next += 1;
        let number = kept.next;
        kept.requests.push((number, tokio::time::Instant::now()));
        ClientWait { connection: self.clone(), number }
    }

    /// Whether no request is under way.
    pub fn is_idle(&self) -> bool {
        self.since.lock().is_some()
    }

    /// Resolves when no request has been under way for so long.
    pub async fn idle_for(&self, longest: Duration) {
        loop {
            let since = *self.since.lock();
            match since {
                Some(since) if longest <= since.elapsed() => return,
                Some(since) => tokio::time::sleep_until(since + longest).await,
                None => tokio::time::sleep(longest).await,
            }
        }
    }

    /// Bytes came: those of a head, if no request is under way.
    pub fn receives(&self) {
        let requests = self.requests.lock();
        if *requests == 0 {
            self.head.lock().get_or_insert_with(tokio::time::Instant::now);
        }
    }

    /// Resolves when the head of a request has taken longer than this.
    pub async fn head_overdue(&self, longest: Duration) {
        loop {
            let since = *self.head.lock();
            match since {
                Some(since) if longest <= since.elapsed() => return,
                Some(since) => tokio::time::sleep_until(since + longest).await,
                None => tokio::time::sleep(longest).await,
            }
        }
    }

    /// A request is under way until the result is dropped.
    pub fn busy(self: &Arc<Self>) -> Busy {
        let mut requests = self.requests.lock();
        *requests += 1;
        *self.since.lock() = None;
        *self.head.lock() = None;
        Busy(self.clone())
    }
}

/// A request under way. It is dropped with the body of its answer, or when its client goes away.
pub(super) struct Busy(Arc<Idleness>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut requests = self.0.requests.lock();
        *requests -= 1;
        if *requests == 0 {
            self.0.kept.lock().writes = None;
            *self.0.since.lock() = Some(tokio::time::Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn the_client_that_keeps_a_request_waiting_the_longest_is_closed() {
        let open = Arc::new(OpenConnections::default());
        let all: Vec<Listed> = (0..3).map(|_| open.add(LOCAL)).collect();
        let _busy: Vec<Busy> = all.iter().map(|listed| listed.idleness.busy()).collect();
        let body = all[0].idleness.waits_for_client();
        all[1].idleness.keeps_waiting();
        assert!(!open.close_longest_kept(), "not for long");
        let long_ago = |seconds| tokio::time::Instant::now().checked_sub(Duration::from_secs(seconds));
        all[0].idleness.kept.lock().requests[0].1 = long_ago(9).unwrap();
        all[1].idleness.kept.lock().writes = long_ago(7);
        drop(body);
        assert!(open.close_longest_kept(), "the second");
        assert!(!open.close_longest_kept(), "the body of the first is whole, the third waits for the server");
        assert_eq!(open.open.lock().len(), 2);
    }

    #[test]
    fn an_address_has_a_number_of_connections_and_loopback_any() {
        let open = Arc::new(OpenConnections::default());
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let _local: Vec<Listed> = (0..5).map(|_| open.add(LOCAL)).collect();
        assert!(open.takes(LOCAL, 2) && open.takes(address("::ffff:127.0.0.1"), 2));
        let (one, network) = (address("10.0.0.1"), address("2001:db8::1"));
        let all: Vec<Listed> = [one, one, network, network].map(|address| open.add(address)).into();
        assert!(!open.takes(one, 2) && !open.takes(address("::ffff:10.0.0.1"), 2), "all are new");
        assert!(!open.takes(address("2001:db8::2"), 2) && open.takes(address("2001:db8:0:1::1"), 2));
        assert!(open.takes(address("10.0.0.2"), 2) && open.takes(one, 3));
        *all[1].idleness.since.lock() = tokio::time::Instant::now().checked_sub(Duration::from_secs(9));
        assert!(open.takes(one, 2), "in place of an idle one");
        assert!(open.takes(one, 2), "which is gone");
        drop(all);
        assert_eq!(open.open.lock().len(), 5);
    }

    #[test]
    fn the_longest_idle_connection_without_a_request_is_closed() {
        let open = Arc::new(OpenConnections::default());
        let all: Vec<Listed> = (0..4).map(|_| open.add(LOCAL)).collect();
        assert!(!open.close_longest_idle(), "all are new");
        let long_ago = |seconds| tokio::time::Instant::now().checked_sub(Duration::from_secs(seconds));
        for (listed, seconds) in all.iter().zip([9, 7, 8]) {
            *listed.idleness.since.lock() = long_ago(seconds);
        }
        let busy = all[0].idleness.busy();
        assert!(open.close_longest_idle() && open.close_longest_idle());
        assert!(!open.close_longest_idle(), "one is busy, one is new");
        drop(busy);
        assert!(all[0].idleness.is_idle() && !open.close_longest_idle(), "it has just become idle");
        let (first, second) = (all[3].idleness.busy(), all[3].idleness.busy());
        drop(first);
        assert!(!all[3].idleness.is_idle(), "one of two requests is under way");
        drop(second);
        assert!(all[3].idleness.is_idle());
        assert_eq!(open.open.lock().len(), 2);
        drop(all);
        assert!(open.open.lock().is_empty());
    }
}
