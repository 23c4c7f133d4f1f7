//! Clients that wait for room at `http.max_connections`: in the order in which they came, but for health checks, which have a
//! reserve. The server peeks at what a client asks. Behind TLS that is not possible: all clients wait in turn.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    io::ReadBuf,
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// Connections for health checks, besides `http.max_connections`.
const RESERVE: usize = 16;

/// Time for a health check and its answer.
pub(super) const HEALTH_TIME: Duration = Duration::from_secs(2);

/// While the queue is full, a client that has waited for so long gets status 503, so that health checks behind it come in.
const LONGEST: Duration = Duration::from_millis(500);

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
    reserve: Arc<Semaphore>,
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
    Health,
    Other,
    Gone,
}

impl Queue {
    /// For a listener of so many connections. The queue has few descriptors compared with these.
    pub(super) fn new(connections: usize, has_tls: bool) -> Queue {
        let most = (connections / 8).clamp(2, 256);
        Queue { waiting: VecDeque::new(), most, has_tls, reserve: Arc::new(Semaphore::new(RESERVE)) }
    }

    pub(super) fn is_full(&self) -> bool {
        self.most <= self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
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
    pub(super) fn look(&mut self) -> Vec<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        let mut checks = Vec::new();
        if self.has_tls {
            return checks;
        }
        let is_full = self.is_full();
        for waiting in std::mem::take(&mut self.waiting) {
            let Waiting { stream, peer, since } = waiting;
            match asks(&stream) {
                Asks::Gone => {}
                Asks::Health => match self.reserve.clone().try_acquire_owned() {
                    Ok(permit) => checks.push((stream, peer, permit)),
                    Err(_) => self.waiting.push_back(Waiting { stream, peer, since }),
                },
                Asks::Nothing | Asks::Other if is_full && LONGEST <= since.elapsed() => turn_away(&stream),
                Asks::Nothing | Asks::Other => self.waiting.push_back(Waiting { stream, peer, since }),
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
    let mut bytes = [0; 16];
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
    if HEALTH.iter().any(is_path) { Asks::Health } else { Asks::Other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_health_check_is_known_by_its_path() {
        for check in ["GET /healthy HTTP/1.1", "GET /ready?x HTTP/1.1", "HEAD /ready HTTP/1."] {
            assert_eq!(asked(&check.as_bytes()[..16]), Asks::Health, "{check}");
        }
        for other in ["GET /render HTTP/1.1", "GET /healthyx HTTP/1.1", "POST /healthy HTTP", "GET /readyx HTTP/1.1"] {
            assert_eq!(asked(&other.as_bytes()[..16]), Asks::Other, "{other}");
        }
        let length = TURNED_AWAY.split(|byte| *byte == b'\n').rev().nth(1).unwrap().len() + 1;
        assert_eq!(length, 84);
    }
}
