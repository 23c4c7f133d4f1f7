//! Who may connect to a listener: networks, connections by address, and TLS. Each refusal is counted and logged.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use host::{Clock, MinuteLog, SystemClock};
use parking_lot::Mutex;
use tls::Identity;

use crate::ListenerGate;

/// Whether an address may connect.
pub type Allows = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// Who may connect to a listener, and what its senders may send.
#[derive(Default)]
pub struct Door {
    /// The listener, as logs name it.
    pub name: String,
    /// Addresses that may connect; `None` is all.
    pub allows: Option<Allows>,
    /// Concurrent connections of one address; `None` has no limit of its own.
    pub connections_per_address: Option<usize>,
    /// The certificate; `None` without TLS.
    pub identity: Option<Arc<Identity>>,
    /// What senders may send; `None` is everything.
    pub gate: Option<Arc<ListenerGate>>,
    /// What was refused.
    pub refused: Refused,
}

/// Connections and datagrams that a listener refused.
#[derive(Default)]
pub struct Refused {
    network: AtomicU64,
    address: AtomicU64,
    logs: [MinuteLog; 2],
    open: Mutex<HashMap<IpAddr, usize>>,
}

impl Refused {
    /// From an address that is not allowed.
    pub fn network(&self) -> u64 {
        self.network.load(Relaxed)
    }

    /// From an address with too many connections.
    pub fn address(&self) -> u64 {
        self.address.load(Relaxed)
    }
}

/// A connection that counts for its address.
pub(super) struct Entered {
    door: Arc<Door>,
    address: IpAddr,
}

impl Door {
    /// Whether a datagram or connection of this address is allowed.
    pub(super) fn allows(&self, peer: SocketAddr) -> bool {
        let is_allowed = self.allows.as_ref().is_none_or(|allows| allows(peer.ip()));
        if !is_allowed {
            self.refused.network.fetch_add(1, Relaxed);
            if let Some(suppressed) = self.refused.logs[0].is_due(SystemClock.instant()) {
                tracing::warn!(listener = self.name, %peer, suppressed,
                    "refused an address outside the networks of this listener; logging this once a minute");
            }
        }
        is_allowed
    }

    /// Lets a new connection in; the outer `None` refuses it. The inner one needs no count.
    pub(super) fn enter(self: &Arc<Door>, peer: SocketAddr) -> Option<Option<Entered>> {
        if !self.allows(peer) {
            return None;
        }
        let Some(limit) = self.connections_per_address else { return Some(None) };
        let address = one_of(peer.ip());
        let mut open = self.refused.open.lock();
        let count = open.entry(address).or_default();
        if *count < limit {
            *count += 1;
            return Some(Some(Entered { door: self.clone(), address }));
        }
        self.refused.address.fetch_add(1, Relaxed);
        if let Some(suppressed) = self.refused.logs[1].is_due(SystemClock.instant()) {
            tracing::warn!(listener = self.name, %peer, suppressed, limit,
                "closed a connection: its address has as many as this listener allows (connections_per_address); logging this once a minute");
        }
        None
    }
}

/// The address by which connections are counted: one of IPv4, or the first half of one of IPv6, which has 2^64 addresses for
/// each network. As at HTTP.
fn one_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut open = self.door.refused.open.lock();
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_an_address_are_counted_while_they_are_open() {
        let door = Arc::new(Door { connections_per_address: Some(2), ..Door::default() });
        let enter = |address: &str| door.enter(SocketAddr::new(address.parse().unwrap(), 1));
        let (first, second) = (enter("10.0.0.1"), enter("::ffff:10.0.0.1"));
        assert!(first.is_some() && second.is_some() && enter("10.0.0.1").is_none());
        assert!(enter("10.0.0.2").is_some());
        drop(first);
        assert!(enter("10.0.0.1").is_some());
        drop(second);
        assert_eq!((door.refused.address(), door.refused.open.lock().len()), (1, 0));
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_count_together() {
        let door = Arc::new(Door { connections_per_address: Some(1), ..Door::default() });
        let enter = |address: &str| door.enter(SocketAddr::new(address.parse().unwrap(), 1));
        let first = enter("fd00::1");
        assert!(first.is_some() && enter("fd00::2:3").is_none());
        assert!(enter("fd00:0:0:1::1").is_some() && enter("::1").is_some());
    }

    #[test]
    fn addresses_outside_the_networks_are_refused() {
        let allows: Allows = Arc::new(|address| address.is_loopback());
        let door = Arc::new(Door { allows: Some(allows), ..Door::default() });
        let enter = |address: &str| door.enter(SocketAddr::new(address.parse().unwrap(), 1)).is_some();
        assert!(enter("127.0.0.1") && !enter("10.0.0.1"));
        assert_eq!(door.refused.network(), 1);
    }
}
