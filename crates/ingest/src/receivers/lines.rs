//! The line protocol over TCP.

use std::sync::Arc;

use carbon::LineDecoder;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::{Connection, Connections, FIRST_BYTES, READ_BYTES, ReceiverLimits, Wake, serve};
use crate::{Ingest, Protocol, accept::now};

/// Serves the line protocol until `stop` turns true.
pub async fn serve_lines(
    ingest: Arc<Ingest>,
    listener: TcpListener,
    limits: ReceiverLimits,
    connections: Arc<Connections>,
    stop: watch::Receiver<bool>,
) {
    let stopping = stop.clone();
    serve(listener, limits, connections, stop, move |stream: TcpStream| {
        let batch = ingest.batch(Protocol::LineTcp);
        let connection = Connection {
            stream,
            ingest: ingest.clone(),
            batch,
            idle: limits.idle,
            stop: stopping.clone(),
            draining_since: None,
        };
        serve_connection(connection)
    })
    .await;
}

async fn serve_connection(mut connection: Connection) {
    let mut decoder = LineDecoder::new();
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
            let consumed = decoder.decode(&buffer[..filled], now(), &mut connection.batch);
            buffer.copy_within(consumed..filled, 0);
            filled -= consumed;
            connection.accept().await;
            if full && buffer.len() < READ_BYTES {
                buffer.resize(2 * buffer.len(), 0);
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
    decoder.finish(&buffer[..filled], now(), &mut connection.batch);
    connection.accept().await;
}
