//! The line protocol over TCP.

use std::sync::Arc;

use carbon::LineDecoder;
use metric::Timestamp;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::{
    connection::{Connection, Decode},
    listener::{Connections, ReceiverLimits, serve},
};
use crate::{Acceptor, Batch, Protocol};

/// Serves the line protocol until `stop` turns true.
pub async fn serve_lines(
    acceptor: Arc<Acceptor>,
    listener: TcpListener,
    limits: ReceiverLimits,
    connections: Arc<Connections>,
    stop: watch::Receiver<bool>,
) {
    let stopping = stop.clone();
    serve(listener, limits, connections, stop, move |stream: TcpStream| {
        Connection::new(stream, acceptor.clone(), Protocol::LineTcp, limits.idle, stopping.clone())
            .serve(LineDecoder::new())
    })
    .await;
}

impl Decode for LineDecoder {
    fn decode(&mut self, bytes: &[u8], now: Timestamp, batch: &mut Batch) -> usize {
        LineDecoder::decode(self, bytes, now, batch)
    }

    fn missing(&self, _: &[u8]) -> usize {
        // A line that is longer than the buffer is rejected, so that the buffer never has to grow for it.
        0
    }

    fn finish(&mut self, rest: &[u8], now: Timestamp, batch: &mut Batch) {
        LineDecoder::finish(self, rest, now, batch);
    }
}
