//! Pickle and protobuf over TCP: messages behind a four-byte length.

use std::sync::Arc;

use carbon::{FrameDecoder, Progress};
use metric::Timestamp;
use tokio::{net::TcpListener, sync::watch};

use super::{
    budget::ReceiveBudget,
    connection::{Common, Connection, Decode},
    intake::OwnMemory,
    listener::{Connections, ReceiverLimits, Serve, serve},
    message::{FrameFormat, MessageDecoder},
    socket::Socket,
};
use crate::{Acceptor, Batch, Protocol};

/// Serves framed messages until `stop` turns true.
pub async fn serve_frames(
    acceptor: Arc<Acceptor>,
    format: FrameFormat,
    listener: TcpListener,
    limits: ReceiverLimits,
    budget: ReceiveBudget,
    connections: Arc<Connections>,
    stop: watch::Receiver<bool>,
) {
    let protocol = match format {
        FrameFormat::Pickle => Protocol::Pickle,
        FrameFormat::Protobuf => Protocol::Protobuf,
    };
    let common = Common { acceptor, budget, protocol, idle: limits.idle, gate: connections.gate(), stop: stop.clone() };
    let of = FramesOf { common, format, frame_bytes: limits.frame_bytes };
    serve(listener, limits, connections, stop, of).await;
}

struct FramesOf {
    common: Common,
    format: FrameFormat,
    frame_bytes: usize,
}

impl Serve for FramesOf {
    fn serve(&self, stream: impl Socket) -> impl Future<Output = ()> + Send + 'static {
        let frames = FrameDecoder::new(self.frame_bytes);
        let decoder = FramedMessages { frames, messages: MessageDecoder::new(self.format) };
        Connection::new(stream, &self.common).serve(decoder)
    }
}

struct FramedMessages {
    frames: FrameDecoder,
    messages: MessageDecoder,
}

impl OwnMemory for FramedMessages {
    fn memory_bytes(&self) -> usize {
        self.messages.memory_bytes()
    }

    fn release_memory(&mut self) {
        self.messages.release_memory();
    }

    fn refuse_frame(&mut self) {
        self.messages.refuse_frame();
    }
}

impl Decode for FramedMessages {
    fn decode(&mut self, bytes: &[u8], now: Timestamp, batch: &mut Batch, allowed: usize) -> (usize, Progress) {
        let messages = &mut self.messages;
        self.frames.decode_while(bytes, batch, |frame, batch| messages.decode(frame, now, batch, allowed))
    }

    fn missing(&self, rest: &[u8]) -> usize {
        // The decoder rejects frames longer than the limit.
        self.frames.missing(rest)
    }

    fn finish(&mut self, rest: &[u8], _: Timestamp, batch: &mut Batch) {
        self.frames.finish(rest, batch);
    }
}
