//! Bodies of queries, whose memory is counted.

use bytes::{Bytes, BytesMut};

use super::{
    body::{BodyError, RequestBody},
    memory::MemoryShare,
    rejection::Rejection,
};

/// Bytes of a body that are not counted: `http.max_connections` bounds them.
const FREE_BYTES: usize = 16 << 10;

/// A body, the buffer that grows to it, and its parameters, in lengths of the body.
const TIMES: usize = 4;

/// All bytes, at most `limit`; the error for a longer body names `setting`. The share takes memory for them, and for what is
/// made of them, before they are kept.
pub(crate) async fn read_counted(
    mut body: RequestBody,
    limit: usize,
    setting: &'static str,
    share: &mut MemoryShare,
) -> Result<Bytes, Rejection> {
    if body.announced().is_some_and(|bytes| bytes > limit as u64) {
        return Err(BodyError::TooLarge { limit, setting }.into());
    }
    let mut all = BytesMut::new();
    while let Some(more) = body.chunk().await? {
        let bytes = all.len() + more.len();
        if bytes > limit {
            return Err(BodyError::TooLarge { limit, setting }.into());
        }
        if bytes > FREE_BYTES {
            share.raise(TIMES * bytes).await?;
        }
        all.extend_from_slice(&more);
    }
    Ok(all.freeze())
}
