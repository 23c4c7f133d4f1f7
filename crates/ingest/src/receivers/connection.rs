//! One connection over TCP: the read loop of every protocol.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use carbon::Progress;
use host::{Clock, MinuteLog};
use metric::Timestamp;
use tokio::sync::watch;

use super::{
    budget::{Asked, OutOfMemory, ReceiveBudget, Stage},
    intake::{Intake, OwnMemory},
    socket::Socket,
};
use crate::{Acceptor, Batch, ListenerGate, Protocol, long_work::do_work};

/// Bytes read from a socket at once, at most: more than two thousand lines. With half of it a point costs a tenth more CPU,
/// for each read wakes the thread that appends to the journal.
pub(super) const READ_BYTES: usize = 128 << 10;

/// Bytes of a buffer that a connection waits for when memory is short; with more it goes on only where it is free.
const LEAST_WAITED: usize = 64 << 10;

/// Bytes a connection's buffer begins with; it grows only for senders that fill it.
const FIRST_BYTES: usize = 4 << 10;

/// Bytes that a buffer grows by at once, at most.
const LARGEST_STEP: usize = 8 << 20;

/// Bytes of a message that takes longer to decode than others should wait: half a millisecond.
const LONG_MESSAGE: usize = READ_BYTES;

/// How long a stop reads on from a sender that never pauses.
const DRAIN: Duration = Duration::from_secs(2);

/// How long a stop waits to hear that a socket holds something. The runtime learns that from the kernel from time to
/// time, at the latest before it lets a timer ring; until then a socket with bytes in it reads as empty.
pub(super) const LAST_LOOK: Duration = Duration::from_millis(10);

/// Senders that speak TLS to a listener without it.
static ENCRYPTED: MinuteLog = MinuteLog::new();

/// A protocol over TCP: bytes to points.
pub(super) trait Decode: OwnMemory {
    /// Decodes the complete messages in `bytes`, while the batch has room, within so many bytes of memory of its own.
    /// Returns how many bytes it consumed; the caller passes the rest again, with more.
    fn decode(&mut self, bytes: &[u8], now: Timestamp, batch: &mut Batch, allowed: usize) -> (usize, Progress);

    /// How many bytes more than `rest` the message at its front has.
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

/// Whether the sender is another machine. One on this machine, a relay too, has this machine's clock.
fn is_remote(stream: &impl Socket) -> bool {
    matches!(stream.addresses(), Ok((peer, own)) if peer.ip() != own.ip() && !peer.ip().is_loopback())
}

/// The parts of one connection's reader.
pub(super) struct Connection<S> {
    stream: S,
    acceptor: Arc<Acceptor>,
    buffer: Buffer,
    /// Nothing was read yet.
    is_new: bool,
    /// A message was complete since the last look.
    has_consumed: bool,
    intake: Intake,
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
    /// The budget wants memory back.
    Asked(Asked),
}

/// What connections of a receiver share.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) acceptor: Arc<Acceptor>,
    pub(super) budget: ReceiveBudget,
    pub(super) protocol: Protocol,
    pub(super) idle: Option<Duration>,
    /// Of a listener with restrictions.
    pub(super) gate: Option<Arc<ListenerGate>>,
    pub(super) stop: watch::Receiver<bool>,
}

impl<S: Socket> Connection<S> {
    pub(super) fn new(stream: S, common: &Common) -> Connection<S> {
        let Common { acceptor, budget, protocol, idle, gate, stop } = common.clone();
        let mut batch = acceptor.batch(protocol).restricted(gate.as_ref());
        batch.is_remote = is_remote(&stream);
        let drain = Drain::new(acceptor.clock().clone(), stop.clone());
        let intake = Intake::new(batch, budget.share());
        Connection {
            stream,
            acceptor,
            buffer: Buffer::default(),
            is_new: true,
            has_consumed: false,
            intake,
            idle,
            stop,
            drain,
        }
    }

    /// Reads, decodes and accepts until the sender closes, falls silent for too long, or the program stops.
    pub(super) async fn serve(mut self, mut decoder: impl Decode) {
        loop {
            let is_empty = self.buffer.filled == 0;
            if is_empty || std::mem::take(&mut self.has_consumed) {
                self.intake.share.end_message();
            }
            self.intake.share.enter(if is_empty { Stage::Empty } else { Stage::Partial });
            let wake = self.wait().await;
            self.intake.share.enter(Stage::Busy);
            let is_over = match wake {
                Wake::Idle | Wake::Failed | Wake::Asked(Asked::Close) => true,
                Wake::Asked(Asked::Release) => {
                    self.release(&mut decoder);
                    false
                }
                Wake::Readable | Wake::Stopping => self.read_all(&mut decoder, wake).await.unwrap_or(true),
            };
            if is_over {
                break;
            }
        }
        let batch = &mut self.intake.batch;
        batch.allow(usize::MAX);
        decoder.finish(self.buffer.filled(), self.acceptor.time_for_none(), batch);
        self.acceptor.accept(batch).await;
        self.stream.close().await;
    }

    /// Reads and accepts the available bytes. Returns whether the connection has ended.
    async fn read_all(&mut self, decoder: &mut impl Decode, wake: Wake) -> Result<bool, OutOfMemory> {
        loop {
            self.make_room(decoder).await?;
            match self.read() {
                Ok(Some(0)) | Err(_) => return Ok(true),
                Ok(None) => return Ok(wake == Wake::Stopping),
                Ok(Some(read)) => self.buffer.filled += read,
            }
            if std::mem::take(&mut self.is_new) && self.is_encrypted() {
                return Ok(true);
            }
            let was_full = self.buffer.is_full();
            self.take(decoder).await?;
            self.fit(decoder, was_full);
            if self.drain.is_over() {
                return Ok(true);
            }
            if !was_full && wake != Wake::Stopping {
                return Ok(false);
            }
            // A sender that never pauses would keep this thread from queries and from other senders.
            tokio::task::yield_now().await;
        }
    }

    /// Decodes and accepts the complete messages, in pieces where memory does not hold all points at once.
    async fn take(&mut self, decoder: &mut impl Decode) -> Result<(), OutOfMemory> {
        loop {
            let (consumed, progress) = self.decode(decoder);
            self.buffer.consume(consumed);
            self.has_consumed |= 0 < consumed;
            let held = self.buffer.bytes.len();
            match progress {
                Progress::Done => {
                    self.acceptor.accept(&mut self.intake.batch).await;
                    return Ok(());
                }
                Progress::NeedsMemory(bytes) => self.intake.lend(decoder, held, bytes).await?,
                Progress::SinkFull if self.intake.try_give_room(held) => {}
                Progress::SinkFull if self.intake.batch.is_empty() => self.intake.give_room(held).await?,
                Progress::SinkFull => self.acceptor.accept(&mut self.intake.batch).await,
            }
        }
    }

    /// Whether the sender begins with TLS, which this listener would take for a very long frame.
    #[cold]
    fn is_encrypted(&mut self) -> bool {
        // A record of a handshake, which begins with the greeting of a client.
        let is_encrypted = matches!(self.buffer.filled(), [0x16, 3, _, _, _, 1, ..]);
        if is_encrypted {
            self.buffer.consume(self.buffer.filled);
            if let Some(suppressed) = ENCRYPTED.is_due(self.acceptor.clock().instant()) {
                let peer = self.stream.addresses().ok().map(|(peer, _)| peer);
                tracing::warn!(
                    ?peer,
                    suppressed,
                    "a sender speaks TLS to a listener without it, and was closed: turn TLS off there, or send to a [[listener]] with a \
                     certificate; logging this once a minute"
                );
            }
        }
        is_encrypted
    }

    /// Decodes what is there. A long message takes longer than queries and other senders on this thread should wait:
    /// they move to another.
    fn decode(&mut self, decoder: &mut impl Decode) -> (usize, Progress) {
        let allowed = self.intake.allow(self.buffer.bytes.len());
        let (bytes, now) = (self.buffer.filled(), self.acceptor.time_for_none());
        let is_long = LONG_MESSAGE < bytes.len() && decoder.missing(bytes) == 0;
        do_work(is_long, || decoder.decode(bytes, now, &mut self.intake.batch, allowed))
    }

    /// Makes room for a read, where the buffer has none: a message is longer. Waits for the budget.
    async fn make_room(&mut self, decoder: &impl Decode) -> Result<(), OutOfMemory> {
        let len = self.buffer.bytes.len();
        if self.buffer.filled < len {
            return Ok(());
        }
        let message = self.buffer.filled + decoder.missing(self.buffer.filled());
        let most = message.max(LEAST_WAITED);
        let grown = (len + len.clamp(FIRST_BYTES, LARGEST_STEP)).min(most);
        self.intake.share.raise(grown + self.intake.memory_bytes()).await?;
        self.buffer.resize(grown);
        Ok(())
    }

    /// After a read: more room for a sender that filled the buffer, if the budget has it; gives back the memory of a
    /// large message.
    fn fit(&mut self, decoder: &impl Decode, was_full: bool) {
        let len = self.buffer.bytes.len();
        if READ_BYTES < len && self.buffer.filled <= READ_BYTES {
            self.buffer.resize(READ_BYTES);
        } else if was_full && len < READ_BYTES {
            let grown = (2 * len).min(READ_BYTES);
            if self.intake.share.try_raise(grown + self.intake.memory_bytes()) {
                self.buffer.resize(grown);
            }
        }
        self.intake.fit(self.buffer.bytes.len(), decoder);
    }

    /// Frees the memory of an empty connection.
    fn release(&mut self, decoder: &mut impl Decode) {
        if self.buffer.filled == 0 {
            self.buffer = Buffer::default();
            self.intake.release(0, decoder);
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
            asked = self.intake.share.asked() => Wake::Asked(asked),
        }
    }

    async fn last_look(&self) -> Wake {
        let _ = tokio::time::timeout(LAST_LOOK, self.stream.readable()).await;
        Wake::Stopping
    }

    /// Reads the available bytes. `Ok(0)` is the end of the stream, `None` means none are available now.
    fn read(&mut self) -> io::Result<Option<usize>> {
        match self.stream.try_read(&mut self.buffer.bytes[self.buffer.filled..]) {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Bytes that were read and not decoded yet.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    filled: usize,
}

impl Buffer {
    fn filled(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    fn is_full(&self) -> bool {
        self.filled == self.bytes.len()
    }

    fn consume(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.bytes.copy_within(bytes..self.filled, 0);
        self.filled -= bytes;
    }

    /// To at least what is filled.
    fn resize(&mut self, len: usize) {
        debug_assert!(self.filled <= len);
        if len < self.bytes.len() {
            self.bytes.truncate(len);
            self.bytes.shrink_to_fit();
        } else {
            self.bytes.reserve_exact(len - self.bytes.len());
            self.bytes.resize(len, 0);
        }
    }
}
