//! The line protocol over TCP.

use std::sync::Arc;

use carbon::{LineDecoder, Progress};
use metric::Timestamp;
use tokio::{net::TcpListener, sync::watch};

use super::{
    budget::ReceiveBudget,
    connection::{Common, Connection, Decode},
    intake::OwnMemory,
    listener::{Connections, ReceiverLimits, Serve, serve},
    socket::Socket,
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
    let common = Common {
        acceptor,
        budget,
        protocol: Protocol::LineTcp,
        idle: limits.idle,
        gate: connections.gate(),
        stop: stop.clone(),
    };
    serve(listener, limits, connections, stop, LinesOf(common)).await;
}

struct LinesOf(Common);

impl Serve for LinesOf {
    fn serve(&self, stream: impl Socket) -> impl Future<Output = ()> + Send + 'static {
        Connection::new(stream, &self.0).serve(LineDecoder::new())
    }
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
