//! The line protocol over TCP.

use std::sync::Arc;

use carbon::{LineDecoder, Progress};
use metric::Timestamp;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::{
    budget::ReceiveBudget,
    connection::{Common, Connection, Decode},
    intake::OwnMemory,
    listener::{Connections, ReceiverLimits, serve},
};
use crate::{Acceptor, Batch, Protocol};

/// Serves the line protocol until `stop` turns true.
pub async fn serve_lines(
    acceptor: Arc<Acceptor>,
    listener: TcpListener,
    limits: ReceiverLimits,
    budget: ReceiveBudget,
    connections: Arc<Connections>,
    stop: watch::Receiver<bool>,
) {
    let common = Common { acceptor, budget, protocol: Protocol::LineTcp, idle: limits.idle, stop: stop.clone() };
    serve(listener, limits, connections, stop, move |stream: TcpStream| {
        Connection::new(stream, &common).serve(LineDecoder::new())
    })
    .await;
}

impl OwnMemory for LineDecoder {}

impl Decode for LineDecoder {
    fn decode(&mut self, bytes: &[u8], now: Timestamp, batch: &mut Batch, _: usize) -> (usize, Progress) {
        let consumed = LineDecoder::decode(self, bytes, now, batch);
        (consumed, batch.wanted().map_or(Progress::Done, |_| Progress::SinkFull))
    }

    fn missing(&self, _: &[u8]) -> usize {
        // The length of a line is not known before its end; the decoder rejects one that is too long.
        0
    }

    fn finish(&mut self, rest: &[u8], now: Timestamp, batch: &mut Batch) {
        LineDecoder::finish(self, rest, now, batch);
    }
}
