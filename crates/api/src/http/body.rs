//! Bodies of requests and responses.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};

/// The answer to a request.
pub type Response = hyper::Response<Body>;

/// The body of an answer: bytes in memory, or a stream.
pub struct Body(UnsyncBoxBody<Bytes, BodyError>);

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The body is longer than its limit.
    #[error("the body is larger than {limit} bytes; {setting} raises this")]
    TooLarge {
        /// Bytes allowed.
        limit: usize,
        /// The setting that raises it.
        setting: &'static str,
    },
    /// The client sent no byte within the idle timeout.
    #[error("the client sent no byte of the body for {0:?}")]
    TooSlow(Duration),
    /// The connection broke, or the body does not match its headers.
    #[error("the body is incomplete: {0}")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Body {
    /// A body without bytes.
    pub fn empty() -> Body {
        Body::from(Bytes::new())
    }

    /// A body that is produced while the client reads it.
    pub fn stream<B>(body: B) -> Body
    where
        B: HttpBody<Data = Bytes, Error = BodyError> + Send + 'static,
    {
        Body(UnsyncBoxBody::new(body))
    }
}

/// A body that holds something until it is sent or dropped.
pub(super) struct Holding<T> {
    body: Body,
    _held: T,
}

impl Body {
    /// The same body, which drops `held` when it is sent or the client goes away.
    pub(super) fn holding<T>(self, held: T) -> Holding<T> {
        Holding { body: self, _held: held }
    }
}

impl<T: Unpin> HttpBody for Holding<T> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body(UnsyncBoxBody::new(Full::new(bytes).map_err(|never: Infallible| match never {})))
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Body::from(Bytes::from(bytes))
    }
}

impl From<String> for Body {
    fn from(text: String) -> Body {
        Body::from(Bytes::from(text))
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Body {
        Body::from(Bytes::from_static(text.as_bytes()))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// The body of a request, not read yet.
pub struct RequestBody {
    incoming: Incoming,
    idle: Duration,
}

impl RequestBody {
    pub(crate) fn new(incoming: Incoming, idle: Duration) -> RequestBody {
        RequestBody { incoming, idle }
    }

    /// Number of bytes that the headers announce.
    pub fn announced(&self) -> Option<u64> {
        self.incoming.size_hint().exact()
    }

    /// The next bytes, or `None` at the end. Fails when the client sends nothing within the idle timeout.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            let frame = tokio::time::timeout(self.idle, self.incoming.frame());
            let Some(frame) = frame.await.map_err(|_| BodyError::TooSlow(self.idle))? else { return Ok(None) };
            let frame = frame.map_err(|error| BodyError::Broken(error.into()))?;
            // Trailers are ignored.
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
    }

    /// All bytes, at most `limit`. The error for a longer body names `setting`.
    pub async fn read(mut self, limit: usize, setting: &'static str) -> Result<Bytes, BodyError> {
        let too_large = BodyError::TooLarge { limit, setting };
        if self.announced().is_some_and(|bytes| bytes > limit as u64) {
            return Err(too_large);
        }
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        let mut all = BytesMut::from(first);
        while let Some(more) = self.chunk().await? {
            if all.len() + more.len() > limit {
                return Err(too_large);
            }
            all.extend_from_slice(&more);
        }
        if all.len() > limit { Err(too_large) } else { Ok(all.freeze()) }
    }
}
