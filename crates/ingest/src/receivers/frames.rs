//! Pickle and protobuf over TCP: messages behind a four-byte length.

use std::sync::Arc;

use carbon::{FrameDecoder, pickle, protobuf};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::{Connection, Connections, FIRST_BYTES, READ_BYTES, ReceiverLimits, Wake, serve};
use crate::{Ingest, Protocol, accept::now};

/// What is in the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameFormat {
    /// Python pickles.
    Pickle,
    /// `carbon.Payload` messages.
    Protobuf,
}

/// Serves framed messages until `stop` turns true.
pub async fn serve_frames(
    ingest: Arc<Ingest>,
    format: FrameFormat,
    listener: TcpListener,
    limits: ReceiverLimits,
    connections: Arc<Connections>,
    stop: watch::Receiver<bool>,
) {
    let stopping = stop.clone();
    serve(listener, limits, connections, stop, move |stream: TcpStream| {
        let protocol = match format {
            FrameFormat::Pickle => Protocol::Pickle,
            FrameFormat::Protobuf => Protocol::Protobuf,
        };
        let batch = ingest.batch(protocol);
        let connection = Connection {
            stream,
            ingest: ingest.clone(),
            batch,
            idle: limits.idle,
            stop: stopping.clone(),
            draining_since: None,
        };
        serve_connection(connection, format, limits.frame_bytes)
    })
    .await;
}

async fn serve_connection(mut connection: Connection, format: FrameFormat, frame_bytes: usize) {
    let mut frames = FrameDecoder::new(frame_bytes);
    let mut pickles = pickle::Decoder::new();
    let mut buffer = vec![0; FIRST_BYTES];
    let mut filled = 0;
    loop {
        let wake = connection.wait().await;
        if matches!(wake, Wake::Idle | Wake::Failed) {
            break;
        }
        let ended = loop {
            match connection.read(&mut buffer[filled..]) {
                Ok(Some(0)) | Err(_) => break true,
                Ok(None) => break wake == Wake::Stopping,
                Ok(Some(read)) => filled += read,
            }
            let full = filled == buffer.len();
            let now = now();
            let consumed = frames.decode(&buffer[..filled], &mut connection.batch, |frame, batch| match format {
                FrameFormat::Pickle => pickles.decode(frame, now, batch),
                FrameFormat::Protobuf => protobuf::decode(frame, batch),
            });
            buffer.copy_within(consumed..filled, 0);
            filled -= consumed;
            connection.accept().await;
            // The buffer holds one frame at least; the decoder refuses frames longer than the limit.
            let wanted = filled + frames.missing(&buffer[..filled]);
            let grown = if full { (2 * buffer.len()).min(READ_BYTES) } else { buffer.len() };
            if buffer.len() < wanted.max(grown) {
                buffer.resize(wanted.max(grown), 0);
            } else if buffer.len() > READ_BYTES && wanted <= READ_BYTES {
                // A large frame came and went; its memory is given back.
                buffer.truncate(READ_BYTES);
                buffer.shrink_to_fit();
            }
            if connection.is_drained() {
                break true;
            }
            if !full && wake != Wake::Stopping {
                break false;
            }
            // A sender that never pauses would keep this thread from queries and from other senders.
            tokio::task::yield_now().await;
        };
        if ended {
            break;
        }
    }
    frames.finish(&buffer[..filled], &mut connection.batch);
    connection.accept().await;
}
