//! Points sent by HTTP POST: one body in any of carbon's formats, optionally gzipped.

use std::{io::Read, sync::Arc};

use api::{BodyError, ExtensionRequest};
use hyper::{
    HeaderMap, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use ingest::{
    Ingest,
    receivers::{BodyFormat, take_body},
};

/// How many points of a body were accepted.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    /// Accepted.
    pub points: u64,
    /// Rejected: points, lines and frames.
    pub rejected: u64,
}

/// Accepts the points of a body of at most `limit` bytes, before and after gzip is undone.
///
/// # Errors
/// The body is too large or not readable: the status to answer with, and the reason.
pub async fn take(ingest: Arc<Ingest>, request: ExtensionRequest, limit: usize) -> Result<Taken, (StatusCode, String)> {
    let format = format_of(&request.headers);
    let is_gzip =
        request.headers.get(CONTENT_ENCODING).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"gzip"));
    let body = request.body.read(limit, "receive.max_body").await.map_err(|error| {
        let status = match error {
            BodyError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        };
        (status, error.to_string())
    })?;
    let (points, rejected) = if is_gzip {
        let bytes = unpack(&body, limit).map_err(|error| (StatusCode::BAD_REQUEST, error))?;
        take_body(&ingest.acceptor(), format, &bytes).await
    } else {
        take_body(&ingest.acceptor(), format, &body).await
    };
    Ok(Taken { points, rejected })
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

fn unpack(body: &[u8], limit: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut unpacking = flate2::read::MultiGzDecoder::new(body).take(limit as u64 + 1);
    unpacking.read_to_end(&mut bytes).map_err(|error| format!("the body is not gzip: {error}"))?;
    if bytes.len() > limit {
        return Err(format!("the body is larger than {limit} bytes when unpacked; receive.max_body raises this"));
    }
    Ok(bytes)
}
