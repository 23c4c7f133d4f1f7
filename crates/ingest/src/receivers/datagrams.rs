//! The line protocol over UDP.

use std::{io, sync::Arc, time::Instant};

use tokio::{net::UdpSocket, sync::watch};

use super::{DRAIN, LAST_LOOK};
use crate::{BATCH_POINTS, Ingest, Protocol, accept::now};

/// The largest datagram there is.
const DATAGRAM_BYTES: usize = 65_536;

/// Takes datagrams of lines until `stop` turns true. While the pipeline is full none is read, and the kernel
/// drops what does not fit its buffer: UDP has no way to make a sender wait.
pub async fn serve_datagrams(ingest: Arc<Ingest>, socket: UdpSocket, mut stop: watch::Receiver<bool>) {
    let mut batch = ingest.batch(Protocol::LineUdp);
    let mut draining_since = None;
    let mut datagram = vec![0; DATAGRAM_BYTES];
    loop {
        let stopping = tokio::select! {
            readable = socket.readable() => {
                if let Err(error) = readable {
                    tracing::error!(%error, "the UDP socket failed; datagrams are no longer taken");
                    return;
                }
                false
            }
            _ = stop.changed() => {
                let _ = tokio::time::timeout(LAST_LOOK, socket.readable()).await;
                true
            }
        };
        loop {
            match socket.try_recv(&mut datagram) {
                Ok(length) => carbon::parse_datagram(&datagram[..length], now(), &mut batch),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Errors of earlier sends by others to this port are reported here; they mean nothing to us.
                Err(_) => break,
            }
            if batch.len() >= BATCH_POINTS {
                ingest.accept(&mut batch).await;
                let is_drained = *stop.borrow() && DRAIN <= draining_since.get_or_insert_with(Instant::now).elapsed();
                if is_drained {
                    break;
                }
                // Senders that never pause would keep this thread from queries and from other receivers.
                tokio::task::yield_now().await;
            }
        }
        ingest.accept(&mut batch).await;
        if stopping {
            return;
        }
    }
}
