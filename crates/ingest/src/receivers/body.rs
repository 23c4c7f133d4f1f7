//! Points in the body of an HTTP request.

use super::connection::READ_BYTES;
use crate::{Acceptor, Protocol};

/// Decodes a body of points sent by HTTP POST, and accepts them. Returns how many points were decoded and how many inputs
/// were rejected; names are judged later.
pub async fn take_body(acceptor: &Acceptor, format: BodyFormat, body: &[u8]) -> (u64, u64) {
    let mut batch = acceptor.batch(Protocol::Http);
    let now = acceptor.now();
    match format {
        BodyFormat::Lines => {
            let mut decoder = carbon::LineDecoder::new();
            let (mut points, mut rejected) = (0, 0);
            let mut rest = body;
            while !rest.is_empty() {
                // In chunks, so that a large body does not become one large batch.
                let chunk = &rest[..rest.len().min(READ_BYTES)];
                let consumed = decoder.decode(chunk, now, &mut batch);
                if consumed == 0 {
                    decoder.finish(chunk, now, &mut batch);
                    rest = &rest[chunk.len()..];
                } else {
                    rest = &rest[consumed..];
                }
                points += batch.len() as u64;
                rejected += batch.rejected();
                acceptor.accept(&mut batch).await;
            }
            return (points, rejected);
        }
        BodyFormat::Pickle => carbon::pickle::decode(body, now, &mut batch),
        BodyFormat::Protobuf => carbon::protobuf::decode(body, &mut batch),
    }
    let counts = (batch.len() as u64, batch.rejected());
    acceptor.accept(&mut batch).await;
    counts
}

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
