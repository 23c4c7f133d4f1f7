//! One connection over TCP: the read loop of every protocol.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use host::Clock;
use metric::Timestamp;
use tokio::{net::TcpStream, sync::watch};

use crate::{Acceptor, Batch, Protocol};

/// Bytes read from a socket at once, at most: about a thousand lines.
pub(super) const READ_BYTES: usize = 64 << 10;

/// Bytes a connection's buffer begins with; it grows only for senders that fill it.
const FIRST_BYTES: usize = 4 << 10;

/// How long a stop reads on from a sender that never pauses.
const DRAIN: Duration = Duration::from_secs(2);

/// How long a stop waits to hear that a socket holds something. The runtime learns that from the kernel from time to
/// time, at the latest before it lets a timer ring; until then a socket with bytes in it reads as empty.
pub(super) const LAST_LOOK: Duration = Duration::from_millis(10);

/// A protocol over TCP: bytes to points.
pub(super) trait Decode {
    /// Decodes the complete messages in `bytes`. Returns how many bytes it consumed; the caller passes the rest again, with more.
    fn decode(&mut self, bytes: &[u8], now: Timestamp, batch: &mut Batch) -> usize;

    /// How many bytes more than `rest` the buffer must have room for.
    fn missing(&self, rest: &[u8]) -> usize;

    /// Decodes or rejects the remaining bytes at the end of the connection.
    fn finish(&mut self, rest: &[u8], now: Timestamp, batch: &mut Batch);
}

/// Whether a sender that keeps sending during a stop has used up its time.
pub(super) struct Drain {
    clock: Arc<dyn Clock>,
    stop: watch::Receiver<bool>,
    since: Option<Instant>,
}

impl Drain {
    pub(super) fn new(clock: Arc<dyn Clock>, stop: watch::Receiver<bool>) -> Drain {
        Drain { clock, stop, since: None }
    }

    pub(super) fn is_over(&mut self) -> bool {
        if !*self.stop.borrow() {
            return false;
        }
        let now = self.clock.instant();
        DRAIN <= now.saturating_duration_since(*self.since.get_or_insert(now))
    }
}

/// The parts of one connection's reader.
pub(super) struct Connection {
    stream: TcpStream,
    acceptor: Arc<Acceptor>,
    batch: Batch,
    /// A connection that sent nothing for this long is closed.
    idle: Option<Duration>,
    stop: watch::Receiver<bool>,
    drain: Drain,
}

/// Why a wait for bytes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    Readable,
    Stopping,
    Idle,
    Failed,
}

impl Connection {
    pub(super) fn new(
        stream: TcpStream,
        acceptor: Arc<Acceptor>,
        protocol: Protocol,
        idle: Option<Duration>,
        stop: watch::Receiver<bool>,
    ) -> Connection {
        let batch = acceptor.batch(protocol);
        let drain = Drain::new(acceptor.clock().clone(), stop.clone());
        Connection { stream, acceptor, batch, idle, stop, drain }
    }

    /// Reads, decodes and accepts until the sender closes, falls silent for too long, or the program stops.
    pub(super) async fn serve(mut self, mut decoder: impl Decode) {
        let mut buffer = Buffer { bytes: vec![0; FIRST_BYTES], filled: 0 };
        loop {
            let wake = self.wait().await;
            if matches!(wake, Wake::Idle | Wake::Failed) || self.read_all(&mut buffer, &mut decoder, wake).await {
                break;
            }
        }
        decoder.finish(buffer.filled(), self.acceptor.now(), &mut self.batch);
        self.acceptor.accept(&mut self.batch).await;
    }

    /// Reads and accepts the available bytes. Returns whether the connection has ended.
    async fn read_all(&mut self, buffer: &mut Buffer, decoder: &mut impl Decode, wake: Wake) -> bool {
        loop {
            match self.read(&mut buffer.bytes[buffer.filled..]) {
                Ok(Some(0)) | Err(_) => return true,
                Ok(None) => return wake == Wake::Stopping,
                Ok(Some(read)) => buffer.filled += read,
            }
            let was_full = buffer.filled == buffer.bytes.len();
            let consumed = decoder.decode(buffer.filled(), self.acceptor.now(), &mut self.batch);
            buffer.consume(consumed);
            self.acceptor.accept(&mut self.batch).await;
            buffer.fit(was_full, decoder.missing(buffer.filled()));
            if self.drain.is_over() {
                return true;
            }
            if !was_full && wake != Wake::Stopping {
                return false;
            }
            // A sender that never pauses would keep this thread from queries and from other senders.
            tokio::task::yield_now().await;
        }
    }

    /// Waits for bytes, for the stop, or for too long.
    async fn wait(&mut self) -> Wake {
        if *self.stop.borrow() {
            return self.last_look().await;
        }
        let readable = async {
            match self.idle {
                None => Ok(self.stream.readable().await),
                Some(idle) => tokio::time::timeout(idle, self.stream.readable()).await,
            }
        };
        tokio::select! {
            readable = readable => match readable {
                Ok(Ok(())) => Wake::Readable,
                Ok(Err(_)) => Wake::Failed,
                Err(_) => Wake::Idle,
            },
            _ = self.stop.changed() => self.last_look().await,
        }
    }

    async fn last_look(&self) -> Wake {
        let _ = tokio::time::timeout(LAST_LOOK, self.stream.readable()).await;
        Wake::Stopping
    }

    /// Reads the available bytes. `Ok(0)` is the end of the stream, `None` means none are available now.
    fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.stream.try_read(buffer) {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Bytes that were read and not decoded yet.
struct Buffer {
    bytes: Vec<u8>,
    filled: usize,
}

impl Buffer {
    fn filled(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    fn consume(&mut self, bytes: usize) {
        self.bytes.copy_within(bytes..self.filled, 0);
        self.filled -= bytes;
    }

    /// Makes room for `missing` bytes, and more room for a sender that filled the buffer; gives back the memory of a
    /// large frame.
    fn fit(&mut self, was_full: bool, missing: usize) {
        let len = self.bytes.len();
        let wanted = self.filled + missing;
        let grown = if was_full { (2 * len).min(READ_BYTES) } else { len };
        if len < wanted.max(grown) {
            self.bytes.resize(wanted.max(grown), 0);
        } else if len > READ_BYTES && wanted <= READ_BYTES {
            self.bytes.truncate(READ_BYTES);
            self.bytes.shrink_to_fit();
        }
    }
}
