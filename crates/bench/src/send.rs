//! Sending a load over TCP: buffers are made beforehand, so that while the clock runs the client only copies bytes.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    ops::Range,
    sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    Error,
    load::{BUFFER_BYTES, Part},
};

/// Longest wait for a server to read the rest of the socket and close it, after we closed our side. After that the time of
/// acceptance stays unknown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(120);

/// Longest wait of one write. Back-pressure is allowed; a server that reads nothing for this long is stuck.
const STALL_TIMEOUT: Duration = Duration::from_secs(300);

/// A part of the load with a connection and its first buffers.
struct Ready {
    stream: TcpStream,
    buffers: Receiver<Vec<u8>>,
    maker: JoinHandle<Part>,
}

/// Rows that are ready to be sent.
pub(crate) struct Prepared {
    address: String,
    connections: Vec<Ready>,
}

/// The result of sending.
pub(crate) struct Sent {
    /// Until the last byte was written to the sockets.
    pub(crate) written: Duration,
    /// Until the server had read the last byte and closed; `None` when it left a connection open.
    pub(crate) accepted: Option<Duration>,
    pub(crate) bytes: u64,
    /// The parts, for the rows that follow.
    pub(crate) parts: Vec<Part>,
}

impl Prepared {
    /// Connects once for each part, and makes buffers of up to `ahead` bytes in total; the rest is made while sending.
    pub(crate) fn new(address: &str, parts: Vec<Part>, rows: Range<u32>, ahead: u64) -> Result<Prepared, Error> {
        let buffers = (ahead / BUFFER_BYTES as u64 / parts.len().max(1) as u64).max(2) as usize;
        let (ready, all_ready) = channel();
        let mut making = Vec::new();
        for part in parts {
            let (full, buffers) = sync_channel(buffers);
            let (rows, ready) = (rows.clone(), ready.clone());
            making.push((buffers, thread::spawn(move || make(part, &rows, &full, || _ = ready.send(())))));
        }
        drop(ready);
        // Each maker reports at least once: when it is full or done.
        for _ in &making {
            all_ready.recv().expect("a maker reports before it ends");
        }
        let mut connections = Vec::new();
        for (buffers, maker) in making {
            let socket = |source| Error::Socket { what: "connecting to", address: address.to_owned(), source };
            let stream = TcpStream::connect(address).map_err(socket)?;
            stream.set_write_timeout(Some(STALL_TIMEOUT)).map_err(socket)?;
            stream.set_read_timeout(Some(CLOSE_TIMEOUT)).map_err(socket)?;
            connections.push(Ready { stream, buffers, maker });
        }
        Ok(Prepared { address: address.to_owned(), connections })
    }

    /// Sends everything and waits until the server has read all of it.
    pub(crate) fn send(self) -> Result<Sent, Error> {
        let started = Instant::now();
        let senders: Vec<_> = self
            .connections
            .into_iter()
            .map(|ready| {
                let sender = thread::spawn(move || write(ready.stream, &ready.buffers, started));
                (sender, ready.maker)
            })
            .collect();
        let mut sent = Sent { written: Duration::ZERO, accepted: Some(Duration::ZERO), bytes: 0, parts: Vec::new() };
        for (sender, maker) in senders {
            let written = sender.join().expect("a sender does not panic");
            let (bytes, written, accepted) = written.map_err(|source| Error::Socket {
                what: "sending to",
                address: self.address.clone(),
                source,
            })?;
            sent.bytes += bytes;
            sent.written = sent.written.max(written);
            sent.accepted = sent.accepted.zip(accepted).map(|(one, other)| one.max(other));
            sent.parts.push(maker.join().expect("a maker does not panic"));
        }
        Ok(sent)
    }
}

/// Makes buffers until the rows end or the sender is gone. Calls `ready` once, when no more can be made ahead.
fn make(mut part: Part, rows: &Range<u32>, full: &SyncSender<Vec<u8>>, ready: impl Fn()) -> Part {
    let mut is_ready = false;
    loop {
        let mut buffer = Vec::with_capacity(BUFFER_BYTES + 4096);
        if !part.fill(rows, &mut buffer) {
            break;
        }
        match full.try_send(buffer) {
            Ok(()) => {}
            Err(TrySendError::Full(buffer)) => {
                if !is_ready {
                    ready();
                    is_ready = true;
                }
                if full.send(buffer).is_err() {
                    break;
                }
            }
            Err(TrySendError::Disconnected(_)) => break,
        }
    }
    if !is_ready {
        ready();
    }
    part
}

/// Writes all buffers and waits for the server to close. Returns bytes, time written and time accepted.
fn write(
    mut stream: TcpStream,
    buffers: &Receiver<Vec<u8>>,
    started: Instant,
) -> std::io::Result<(u64, Duration, Option<Duration>)> {
    let mut bytes = 0;
    for buffer in buffers {
        stream.write_all(&buffer)?;
        bytes += buffer.len() as u64;
    }
    let written = started.elapsed();
    stream.shutdown(Shutdown::Write)?;
    // carbon's protocols say nothing back: the end of the stream is the only sign that all was read.
    let accepted = match stream.read(&mut [0; 16]) {
        Ok(_) => Some(started.elapsed()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
        // Some servers reset rather than close, once everything is read.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Some(started.elapsed()),
        Err(error) => return Err(error),
    };
    Ok((bytes, written, accepted))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::{encode::Protocol, load::tests::small};

    #[test]
    fn every_byte_arrives_even_when_little_is_made_ahead() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
        let address = listener.local_addr().expect("a bound socket has an address").to_string();
        let server = thread::spawn(move || {
            let mut lines = Vec::new();
            for _ in 0..2 {
                let mut text = String::new();
                let (mut stream, _) = listener.accept().expect("the sender connects");
                stream.read_to_string(&mut text).expect("lines are ASCII");
                lines.extend(text.lines().map(str::to_owned).collect::<Vec<_>>());
            }
            lines
        });
        let load = small(2_000, 40);
        // One connection after the other, because the server here takes them in turn.
        let mut bytes = 0;
        for part in 0..2 {
            let part = load.part(part, 2, Protocol::Line);
            let sent = Prepared::new(&address, vec![part], 0..40, 1).expect("it connects").send().expect("it sends");
            assert!(sent.accepted.is_some());
            bytes += sent.bytes;
        }
        let lines = server.join().expect("the server does not panic");
        assert_eq!(lines.len(), 80_000);
        assert_eq!(lines.iter().map(|line| line.len() as u64 + 1).sum::<u64>(), bytes);
    }
}
