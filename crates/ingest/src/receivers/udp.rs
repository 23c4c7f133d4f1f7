//! The line protocol over UDP.

use std::{io, sync::Arc, time::Duration};

use tokio::{net::UdpSocket, sync::watch};

use super::{
    connection::{Drain, LAST_LOOK},
    door::Door,
};
use crate::{Acceptor, BATCH_POINTS, Protocol};

/// Bytes of the largest datagram that UDP has.
const DATAGRAM_BYTES: usize = 65_536;

/// Datagrams that are read before other tasks of the thread have a turn, whatever the datagrams hold.
const DATAGRAMS_IN_TURN: u32 = 64;

/// Pause after an error of the socket.
const RETRY: Duration = Duration::from_secs(1);

/// Takes datagrams of lines until `stop` turns true. While the pipeline is full none is read, and the kernel
/// drops what does not fit its buffer: UDP has no way to make a sender wait.
pub async fn serve_datagrams(acceptor: Arc<Acceptor>, socket: UdpSocket, stop: watch::Receiver<bool>) {
    serve_datagrams_behind(Arc::default(), acceptor, socket, stop).await;
}

/// The same for a listener that not all may send to.
pub async fn serve_datagrams_behind(
    door: Arc<Door>,
    acceptor: Arc<Acceptor>,
    socket: UdpSocket,
    mut stop: watch::Receiver<bool>,
) {
    let mut batch = acceptor.batch(Protocol::LineUdp).restricted(door.gate.as_ref());
    let mut drain = Drain::new(acceptor.clock().clone(), stop.clone());
    let mut datagram = vec![0; DATAGRAM_BYTES];
    loop {
        let stopping = tokio::select! {
            readable = socket.readable() => {
                if let Err(error) = readable {
                    tracing::error!(%error, "cannot read the UDP socket; retrying");
                    tokio::time::sleep(RETRY).await;
                }
                false
            }
            _ = stop.changed() => {
                let _ = tokio::time::timeout(LAST_LOOK, socket.readable()).await;
                true
            }
        };
        let mut in_turn = 0;
        loop {
            match read(&socket, &door, &mut datagram) {
                Ok(length) => carbon::parse_datagram(&datagram[..length], acceptor.now(), &mut batch),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Errors of earlier sends by others to this port are reported here; they mean nothing to us.
                Err(_) => break,
            }
            in_turn += 1;
            let is_full = batch.len() >= BATCH_POINTS;
            if is_full {
                acceptor.accept(&mut batch).await;
            }
            if is_full || in_turn == DATAGRAMS_IN_TURN {
                if drain.is_over() {
                    break;
                }
                // Senders that never pause would keep this thread from queries and from other receivers.
                tokio::task::yield_now().await;
                in_turn = 0;
            }
        }
        acceptor.accept(&mut batch).await;
        if stopping {
            return;
        }
    }
}

/// A datagram; an empty one in place of one that is not allowed.
fn read(socket: &UdpSocket, door: &Door, datagram: &mut [u8]) -> io::Result<usize> {
    if door.allows.is_none() {
        return socket.try_recv(datagram);
    }
    let (length, peer) = socket.try_recv_from(datagram)?;
    Ok(if door.allows(peer) { length } else { 0 })
}
