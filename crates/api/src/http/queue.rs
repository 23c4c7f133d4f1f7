//! Clients that wait for room at `http.max_connections`: in the order in which they came, but for health checks, which have a
//! reserve. The server peeks at what a client asks. Behind TLS that is not possible: all clients wait in turn.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{io::ReadBuf, net::TcpStream, time::Instant};

use super::client::network;

/// Connections for health checks, besides `http.max_connections`, in all and of an address.
const RESERVE: usize = 16;
const RESERVE_OF_ADDRESS: usize = 2;

/// Time for a health check and its answer.
pub(super) const HEALTH_TIME: Duration = Duration::from_secs(2);

/// While the queue is full, a client that has waited for so long gets status 503, so that health checks behind it come in.
const LONGEST: Duration = Duration::from_millis(500);

/// The same for one that has sent a part of a head, which comes in one piece as a rule.
const LONGEST_HALF: Duration = Duration::from_millis(150);

/// Bytes of a head that [`asks`] reads.
const HEAD: usize = 4 << 10;

/// Reads of 4 KiB of what a client has sent that is turned away, at most.
const PIECES: usize = 32;

/// Beginnings of requests of health.
const HEALTH: [&[u8]; 4] = [b"GET /healthy", b"GET /ready", b"HEAD /healthy", b"HEAD /ready"];

const TURNED_AWAY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\nretry-after: 1\r\n\
    connection: close\r\ncontent-length: 84\r\n\r\n\
    all connections wait for the server; try again later, or raise http.max_connections\n";

/// Accepted clients without room.
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    most: usize,
    has_tls: bool,
    reserve: Arc<Reserve>,
}

/// Addresses of the health checks that are being answered.
#[derive(Default)]
struct Reserve(Mutex<Vec<IpAddr>>);

/// A place in the reserve, until it is dropped.
pub(super) struct Place {
    reserve: Arc<Reserve>,
    address: IpAddr,
}

impl Reserve {
    fn place(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let (address, mut taken) = (network(address), self.0.lock());
        let of_address = taken.iter().filter(|other| **other == address).count();
        if RESERVE <= taken.len() || RESERVE_OF_ADDRESS <= of_address {
            return None;
        }
        taken.push(address);
        Some(Place { reserve: self.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.reserve.0.lock();
        if let Some(own) = taken.iter().position(|other| *other == self.address) {
            taken.swap_remove(own);
        }
    }
}

struct Waiting {
    stream: TcpStream,
    peer: SocketAddr,
    since: Instant,
}

/// What a client has sent.
#[derive(Debug, PartialEq, Eq)]
enum Asks {
    Nothing,
    /// A head that is not whole.
    Half,
    /// A whole head.
    Health,
    Other,
    Gone,
}

impl Queue {
    /// For a listener of so many connections. The queue has few descriptors compared with these.
    pub(super) fn new(connections: usize, has_tls: bool) -> Queue {
        let most = (connections / 8).clamp(2, 256);
        Queue { waiting: VecDeque::new(), most, has_tls, reserve: Arc::default() }
    }

    pub(super) fn is_full(&self) -> bool {
        self.most <= self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Clients of an address that wait.
    pub(super) fn waiting_of(&self, address: IpAddr) -> usize {
        let address = network(address);
        self.waiting.iter().filter(|one| network(one.peer.ip()) == address).count()
    }

    pub(super) fn push(&mut self, (stream, peer): (TcpStream, SocketAddr)) {
        self.waiting.push_back(Waiting { stream, peer, since: tokio::time::Instant::now() });
    }

    /// The client that came first.
    pub(super) fn next(&mut self) -> Option<(TcpStream, SocketAddr)> {
        self.waiting.pop_front().map(|Waiting { stream, peer, .. }| (stream, peer))
    }

    /// Takes out health checks, as many as the reserve has room for, and drops clients that are gone. While the queue is
    /// full, others that have waited for [`LONGEST`] are turned away.
    pub(super) fn look(&mut self) -> Vec<(TcpStream, SocketAddr, Place)> {
        let mut checks = Vec::new();
        if self.has_tls {
            return checks;
        }
        let is_full = self.is_full();
        for waiting in std::mem::take(&mut self.waiting) {
            let asks = asks(&waiting.stream);
            if asks == Asks::Gone {
                continue;
            }
            let place = (asks == Asks::Health).then(|| self.reserve.place(waiting.peer.ip())).flatten();
            let longest = if asks == Asks::Half { LONGEST_HALF } else { LONGEST };
            match place {
                Some(place) => checks.push((waiting.stream, waiting.peer, place)),
                None if is_full && longest <= waiting.since.elapsed() => turn_away(&waiting.stream),
                None => self.waiting.push_back(waiting),
            }
        }
        checks
    }
}

/// Answers a client that is to come again later.
fn turn_away(stream: &TcpStream) {
    // What is unread when a connection is closed breaks it before the client has read the answer.
    let mut unread = [0; 4096];
    for _ in 0..PIECES {
        if !matches!(stream.try_read(&mut unread), Ok(1..)) {
            break;
        }
    }
    // The answer fits into the buffer of the system; where it does not, the client is gone.
    stream.try_write(TURNED_AWAY).ok();
}

fn asks(stream: &TcpStream) -> Asks {
    let mut bytes = [0; HEAD];
    let mut seen = ReadBuf::new(&mut bytes);
    // The next look asks again.
    match stream.poll_peek(&mut Context::from_waker(Waker::noop()), &mut seen) {
        Poll::Pending => Asks::Nothing,
        Poll::Ready(Ok(0) | Err(_)) => Asks::Gone,
        Poll::Ready(Ok(_)) => asked(seen.filled()),
    }
}

fn asked(bytes: &[u8]) -> Asks {
    let is_path = |begin: &&[u8]| {
        let rest = bytes.strip_prefix(*begin).unwrap_or(b"x");
        matches!(rest.first(), Some(b' ' | b'?' | b'/'))
    };
    if !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        return if bytes.len() < HEAD { Asks::Half } else { Asks::Other };
    }
    if HEALTH.iter().any(is_path) { Asks::Health } else { Asks::Other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_health_check_is_known_by_its_path() {
        let asked = |first: &str| asked(format!("{first}\r\nHost: a\r\n\r\n").as_bytes());
        for check in ["GET /healthy HTTP/1.1", "GET /ready?x HTTP/1.1", "HEAD /ready HTTP/1.1"] {
            assert_eq!(asked(check), Asks::Health, "{check}");
        }
        for other in
            ["GET /render HTTP/1.1", "GET /healthyx HTTP/1.1", "POST /healthy HTTP/1.1", "GET /readyx HTTP/1.1"]
        {
            assert_eq!(asked(other), Asks::Other, "{other}");
        }
        for half in ["GET /healthy HTTP/1.1\r\nHost: a\r\n", "GET /rea", "POST /render HTTP/1.1\r\n"] {
            assert_eq!(super::asked(half.as_bytes()), Asks::Half, "{half}");
        }
        assert_eq!(super::asked(&[b'x'; HEAD]), Asks::Other);
        let length = TURNED_AWAY.split(|byte| *byte == b'\n').rev().nth(1).unwrap().len() + 1;
        assert_eq!(length, 84);
    }

    #[test]
    fn an_address_has_two_places_of_the_reserve() {
        let reserve = Arc::<Reserve>::default();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = reserve.place(address("2001:db8::1"));
        let all: Vec<Place> = [first, reserve.place(address("2001:db8::2"))].into_iter().flatten().collect();
        assert!(reserve.place(address("2001:db8::3")).is_none() && all.len() == 2);
        let others: Vec<Place> = (0..20).filter_map(|i| reserve.place(address(&format!("10.0.0.{i}")))).collect();
        assert_eq!(others.len(), RESERVE - 2);
        drop(all);
        assert!(reserve.place(address("2001:db8::3")).is_some());
    }
}
