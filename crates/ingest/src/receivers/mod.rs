//! The sockets that points come in by. Each connection is one task with one batch: it reads what is there,
//! decodes it, and waits in [`Ingest::accept`] while the pipeline is full, which stops its socket being read.
//!
//! Bad input never ends a connection. A clean stop reads what the kernel already holds before it closes; from a
//! sender that never pauses, for [`DRAIN`] at most.

mod datagrams;
mod frames;
mod lines;

use std::{
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use crate::{Batch, Ingest, Protocol};

pub use datagrams::serve_datagrams;
pub use frames::{FrameFormat, serve_frames};
pub use lines::serve_lines;

/// Bytes read from a socket at once, at most: about a thousand lines.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// Bytes a connection's buffer begins with; it grows only for senders that fill it.
pub(crate) const FIRST_BYTES: usize = 4 << 10;

/// How long a stop reads on from a sender that never pauses.
pub(crate) const DRAIN: Duration = Duration::from_secs(2);

/// How long a stop waits to hear that a socket holds something. The runtime learns that from the kernel from
/// time to time, at the latest before it lets a timer ring; until then a socket with bytes in it reads as empty.
pub(crate) const LAST_LOOK: Duration = Duration::from_millis(10);

/// What a receiver allows its senders.
#[derive(Debug, Clone, Copy)]
pub struct ReceiverLimits {
    /// Connections at once. One more is closed as soon as it is made, and counted.
    pub connections: usize,
    /// A connection from which nothing came for this long is closed.
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

/// Decodes a body of points sent by HTTP POST into the pipeline. Returns how many were taken over and how
/// many inputs were refused; names are judged later.
pub async fn take_body(ingest: &Ingest, format: BodyFormat, body: &[u8]) -> (u64, u64) {
    let mut batch = ingest.batch(Protocol::Http);
    let now = crate::accept::now();
    match format {
        BodyFormat::Lines => {
            let mut decoder = carbon::LineDecoder::new();
            let (mut points, mut refused) = (0, 0);
            let mut rest = body;
            while !rest.is_empty() {
                // In pieces, so that a large body does not become one large batch.
                let piece = &rest[..rest.len().min(READ_BYTES)];
                let consumed = decoder.decode(piece, now, &mut batch);
                if consumed == 0 {
                    decoder.finish(piece, now, &mut batch);
                    rest = &rest[piece.len()..];
                } else {
                    rest = &rest[consumed..];
                }
                points += batch.len() as u64;
                refused += batch.refused();
                ingest.accept(&mut batch).await;
            }
            return (points, refused);
        }
        BodyFormat::Pickle => carbon::pickle::decode(body, now, &mut batch),
        BodyFormat::Protobuf => carbon::protobuf::decode(body, &mut batch),
    }
    let counts = (batch.len() as u64, batch.refused());
    ingest.accept(&mut batch).await;
    counts
}

/// What a body of points is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFormat {
    /// Lines.
    Lines,
    /// One pickle, without the length before it.
    Pickle,
    /// One `carbon.Payload`, without the length before it.
    Protobuf,
}

/// What one connection reads with.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) ingest: Arc<Ingest>,
    pub(crate) batch: Batch,
    pub(crate) idle: Option<Duration>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) draining_since: Option<Instant>,
}

/// Why a wait for bytes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    Readable,
    Stopping,
    Idle,
    Failed,
}

impl Connection {
    /// Waits for bytes, for the stop, or for too long.
    pub(crate) async fn wait(&mut self) -> Wake {
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

    /// Reads what is there into `buffer` from `filled` on. `Ok(0)` is the end of the stream, `None` that
    /// nothing is there now.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.stream.try_read(buffer) {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a sender that goes on through a stop has had its time.
    pub(crate) fn is_drained(&mut self) -> bool {
        *self.stop.borrow() && DRAIN <= self.draining_since.get_or_insert_with(Instant::now).elapsed()
    }

    pub(crate) async fn accept(&mut self) {
        self.ingest.accept(&mut self.batch).await;
    }
}

/// Accepts connections until the stop, then waits for those that are open to end.
pub(crate) async fn serve<F, Served>(
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
                    // Said ever more rarely: senders that are refused come again at once.
                    if refused.is_power_of_two() {
                        tracing::warn!(%peer, refused, limit = limits.connections,
                            "too many connections: one was closed; receive.max_connections raises the limit");
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
                tracing::error!(%error, "a connection cannot be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
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
