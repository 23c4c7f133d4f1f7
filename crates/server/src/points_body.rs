//! Points sent by HTTP POST: one body in any of carbon's formats, optionally gzipped, in memory of the receivers' budget.

use std::{
    io::{self, Cursor, Read},
    sync::{Arc, Weak},
};

use api::{BodyError, ExtensionRequest};
use flate2::read::MultiGzDecoder;
use hyper::{
    HeaderMap, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use ingest::{
    Ingest,
    receivers::{BodyFormat, BudgetShare, OutOfMemory, ReceiveBudget, TakenBody, take_body},
};

use crate::tokens::TokenGates;

/// The setting that limits a body.
const LIMIT: &str = "receive.max_body";

/// Bytes that are unpacked at once.
const UNPACK_BYTES: usize = 1 << 20;

/// Bytes of the state of a decoder of gzip, about.
const GZIP_BYTES: usize = 64 << 10;

/// Why a body was not taken: the status to answer with, and the reason.
pub type Refused = (StatusCode, String);

/// Accepts the points of a body of at most `limit` bytes, before and after gzip is undone, as far as its sender may write them.
///
/// # Errors
/// The body is too large or not readable, or there is no memory for it.
pub async fn take(
    ingest: Arc<Ingest>,
    gates: &TokenGates,
    budget: &ReceiveBudget,
    request: ExtensionRequest,
    limit: usize,
) -> Result<TakenBody, Refused> {
    let sender = gates.of(&request.sender);
    let format = format_of(&request.headers);
    let is_gzip = is_gzip(&request.headers)?;
    let mut share = budget.share();
    let mut body = read(request, &mut share, limit).await?;
    if is_gzip {
        body = unpack(body, &mut share, limit).await?;
    }
    share.lower(body.capacity());
    Ok(take_body(&ingest.acceptor(), sender.as_ref(), format, body, share).await)
}

async fn read(mut request: ExtensionRequest, share: &mut BudgetShare, limit: usize) -> Result<Vec<u8>, Refused> {
    let too_large = || refused_body(BodyError::TooLarge { limit, setting: LIMIT });
    if request.body.announced().is_some_and(|bytes| bytes > limit as u64) {
        return Err(too_large());
    }
    let mut body = Vec::new();
    loop {
        let chunk = share.unless_closed(request.body.chunk()).await.map_err(out_of_memory)?;
        let Some(chunk) = chunk.map_err(refused_body)? else { return Ok(body) };
        let bytes = body.len() + chunk.len();
        if limit < bytes {
            return Err(too_large());
        }
        if body.capacity() < bytes {
            // Doubled, so that a body is not copied for each of its chunks.
            let capacity = bytes.max(2 * body.capacity()).min(limit);
            // It may be copied: for a moment both are there.
            share.raise(body.capacity() + capacity).await.map_err(out_of_memory)?;
            body.reserve_exact(capacity - body.len());
            share.lower(body.capacity());
        }
        body.extend_from_slice(&chunk);
    }
}

fn refused_body(error: BodyError) -> Refused {
    let status = match error {
        BodyError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        BodyError::TooSlow(_) => StatusCode::REQUEST_TIMEOUT,
        _ => StatusCode::BAD_REQUEST,
    };
    (status, error.to_string())
}

fn out_of_memory(error: OutOfMemory) -> Refused {
    (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

/// Whether a body is packed. `x-gzip` is gzip's old name.
fn is_gzip(headers: &HeaderMap) -> Result<bool, Refused> {
    let codings: Vec<_> = headers.get_all(CONTENT_ENCODING).iter().map(|coding| coding.as_bytes()).collect();
    let is = |coding: &[u8], known: &[&str]| known.iter().any(|known| coding.eq_ignore_ascii_case(known.as_bytes()));
    match codings[..] {
        [] => Ok(false),
        [one] if is(one, &["identity"]) => Ok(false),
        [one] if is(one, &["gzip", "x-gzip"]) => Ok(true),
        _ => {
            let error = "the body has another Content-Encoding than gzip or identity";
            Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, error.to_owned()))
        }
    }
}

/// Bytes that can be read while the client waits for the answer.
struct Awaited {
    bytes: Cursor<Vec<u8>>,
    waiter: Weak<()>,
}

impl Read for Awaited {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.waiter.strong_count() {
            0 => Err(io::ErrorKind::ConnectionAborted.into()),
            _ => self.bytes.read(into),
        }
    }
}

/// Undoes gzip piece by piece, each on a thread that may block, so that memory is taken before it is filled. Ends when its
/// client leaves.
async fn unpack(packed: Vec<u8>, share: &mut BudgetShare, limit: usize) -> Result<Vec<u8>, Refused> {
    let packed_bytes = share.bytes() + GZIP_BYTES;
    // Dropped with this future, when the client leaves: members without contents are not a piece.
    let waiter = Arc::new(());
    let mut unpacking = MultiGzDecoder::new(Awaited { bytes: Cursor::new(packed), waiter: Arc::downgrade(&waiter) });
    let mut body: Vec<u8> = Vec::new();
    loop {
        let capacity = (body.len() + UNPACK_BYTES).max(2 * body.capacity().min(limit / 2 + 1));
        share.raise(packed_bytes + body.capacity() + capacity).await.map_err(out_of_memory)?;
        body.reserve_exact(capacity - body.len());
        share.lower(packed_bytes + body.capacity());
        let before = body.len();
        let piece = tokio::task::spawn_blocking(move || {
            let read = (&mut unpacking).take((capacity - before) as u64).read_to_end(&mut body);
            (read, unpacking, body)
        });
        let (read, rest, unpacked) = piece.await.expect("unpacking does not panic");
        (unpacking, body) = (rest, unpacked);
        let read = read.map_err(|error| (StatusCode::BAD_REQUEST, format!("the body is not gzip: {error}")))?;
        if limit < body.len() {
            let error = format!("the body is larger than {limit} bytes when unpacked; {LIMIT} raises this");
            return Err((StatusCode::BAD_REQUEST, error));
        }
        if read < capacity - before {
            return Ok(body);
        }
    }
}

/// go-carbon's choice by content type; anything else is lines.
fn format_of(headers: &HeaderMap) -> BodyFormat {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    match kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase().as_str() {
        "application/python-pickle" | "application/pickle" => BodyFormat::Pickle,
        "application/protobuf" | "application/x-protobuf" => BodyFormat::Protobuf,
        _ => BodyFormat::Lines,
    }
}
