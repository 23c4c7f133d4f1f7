//! Points in the body of an HTTP request, whose sender gets an answer.

use std::time::Duration;

use super::connection::READ_BYTES;
use crate::{Acceptor, Batch, Protocol, Tally};

/// How long a body waits for a full pipeline: its sender can send again.
const PATIENCE: Duration = Duration::from_secs(10);

/// Poll interval for a pipeline that accepts nothing.
const POLL: Duration = Duration::from_millis(250);

/// The encoding of a body of points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFormat {
    /// Lines.
    Lines,
    /// One pickle, without the length before it.
    Pickle,
    /// One `carbon.Payload`, without the length before it.
    Protobuf,
}

/// What became of a body.
#[derive(Debug, Clone, PartialEq)]
pub struct TakenBody {
    /// Accepted and rejected points.
    pub tally: Tally,
    /// Why the rest of the body was not accepted; `None` when the body was gone through.
    pub refusal: Option<String>,
}

/// Decodes a body of points sent by HTTP POST, and accepts them. While the pipeline takes nothing this waits ten seconds
/// at most, one second for a journal that fails.
pub async fn take_body(acceptor: &Acceptor, format: BodyFormat, body: Vec<u8>) -> TakenBody {
    let mut batch = acceptor.batch(Protocol::Http);
    batch.begin_tally();
    let taken = match format {
        BodyFormat::Lines => take_lines(acceptor, &mut batch, &body).await,
        BodyFormat::Pickle | BodyFormat::Protobuf => {
            let now = acceptor.now();
            // A body of this size may have millions of points: decoding it would hold up queries and other senders.
            let decoded = tokio::task::spawn_blocking(move || {
                match format {
                    BodyFormat::Pickle => carbon::pickle::decode(&body, now, &mut batch),
                    _ => carbon::protobuf::decode(&body, &mut batch),
                }
                batch
            });
            batch = decoded.await.expect("a decoder does not panic");
            accept(acceptor, &mut batch).await
        }
    };
    TakenBody { tally: batch.take_tally(), refusal: taken.err() }
}

async fn take_lines(acceptor: &Acceptor, batch: &mut Batch, body: &[u8]) -> Result<(), String> {
    let mut decoder = carbon::LineDecoder::new();
    let now = acceptor.now();
    let mut rest = body;
    while !rest.is_empty() {
        // In chunks, so that a large body does not become one large batch.
        let chunk = &rest[..rest.len().min(READ_BYTES)];
        let consumed = decoder.decode(chunk, now, batch);
        if consumed == 0 {
            decoder.finish(chunk, now, batch);
            rest = &rest[chunk.len()..];
        } else {
            rest = &rest[consumed..];
        }
        accept(acceptor, batch).await?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Accepts a batch, or says why the pipeline takes nothing.
async fn accept(acceptor: &Acceptor, batch: &mut Batch) -> Result<(), String> {
    tokio::select! {
        biased;
        () = acceptor.accept(batch) => Ok(()),
        why = given_up(acceptor) => Err(why),
    }
}

/// Returns the reason when the pipeline takes nothing for too long.
async fn given_up(acceptor: &Acceptor) -> String {
    let began = acceptor.clock().instant();
    loop {
        tokio::time::sleep(POLL).await;
        let waited = acceptor.clock().instant().saturating_duration_since(began);
        let refusal = acceptor.refusal();
        if let Some(why) = refusal.journal.filter(|_| PATIENCE / 10 <= waited) {
            return why;
        }
        if let Some(why) = refusal.full.filter(|_| PATIENCE <= waited) {
            return why;
        }
    }
}
