//! Pickle and protobuf over TCP: messages behind a four-byte length.

use std::sync::Arc;

use carbon::{FrameDecoder, pickle, protobuf};
use metric::Timestamp;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::{
    budget::ReceiveBudget,
    connection::{Common, Connection, Decode},
    listener::{Connections, ReceiverLimits, serve},
};
use crate::{Acceptor, Batch, Protocol};

/// The encoding of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameFormat {
    /// Python pickles.
    Pickle,
    /// `carbon.Payload` messages.
    Protobuf,
}

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
    let common = Common { acceptor, budget, protocol, idle: limits.idle, stop: stop.clone() };
    serve(listener, limits, connections, stop, move |stream: TcpStream| {
        let frames = FrameDecoder::new(limits.frame_bytes);
        Connection::new(stream, &common).serve(FramedMessages { frames, format, pickles: pickle::Decoder::new() })
    })
    .await;
}

struct FramedMessages {
    frames: FrameDecoder,
    format: FrameFormat,
    pickles: pickle::Decoder,
}

impl Decode for FramedMessages {
    fn decode(&mut self, bytes: &[u8], now: Timestamp, batch: &mut Batch) -> usize {
        let (format, pickles) = (self.format, &mut self.pickles);
        self.frames.decode(bytes, batch, |frame, batch| match format {
            FrameFormat::Pickle => pickles.decode(frame, now, batch),
            FrameFormat::Protobuf => protobuf::decode(frame, batch),
        })
    }

    fn missing(&self, rest: &[u8]) -> usize {
        // The decoder rejects frames longer than the limit.
        self.frames.missing(rest)
    }

    fn finish(&mut self, rest: &[u8], _: Timestamp, batch: &mut Batch) {
        self.frames.finish(rest, batch);
    }
}
