//! Bodies of requests and responses.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
    http::request::Parts,
};
use tokio::sync::oneshot;

use super::{
    idle::{ClientWait, Idleness},
    pace::{BodyPace, SlowBody},
};

/// Bounds of the rest of a body that is read and forgotten when its request is refused: bytes, time, and the longest pause of
/// the client. A client that still sends when its connection is closed finds a broken connection in place of the answer.
const DISCARDED_BYTES: usize = 16 << 20;
const DISCARDED_WITHIN: Duration = Duration::from_secs(10);
const DISCARDED_PAUSE: Duration = Duration::from_secs(1);

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
    /// The client sends too slowly.
    #[error(transparent)]
    TooSlow(#[from] SlowBody),
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
    /// Nothing once it is dropped.
    incoming: Option<Incoming>,
    pace: BodyPace,
    /// Takes what is not read.
    rest: Option<oneshot::Sender<Incoming>>,
    /// The connection, which has to know that a request waits for its client.
    connection: Option<Arc<Idleness>>,
    wait: Option<ClientWait>,
}

/// What is unread of a body when its [`RequestBody`] is dropped.
pub(crate) struct UnreadBody {
    rest: oneshot::Receiver<Incoming>,
    connection: Option<Arc<Idleness>>,
}

impl UnreadBody {
    /// Reads and forgets up to 16 MiB, for 10 s at most.
    pub(crate) async fn discard(mut self) {
        let Ok(mut incoming) = self.rest.try_recv() else { return };
        // Its client keeps the server waiting, and makes room for others.
        let _wait = self.connection.as_ref().map(Idleness::waits_for_client);
        let all = async {
            let mut bytes = 0;
            while bytes <= DISCARDED_BYTES
                && let Ok(Some(Ok(frame))) = tokio::time::timeout(DISCARDED_PAUSE, incoming.frame()).await
            {
                bytes += frame.data_ref().map_or(0, Bytes::len);
            }
        };
        // The connection of a client that sends more, or slowly, is closed.
        _ = tokio::time::timeout(DISCARDED_WITHIN, all).await;
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let (Some(incoming), Some(rest)) = (self.incoming.take(), self.rest.take())
            && !incoming.is_end_stream()
        {
            _ = rest.send(incoming);
        }
    }
}

impl RequestBody {
    /// The body, and what will be left of it.
    pub(crate) fn new(incoming: Incoming, pace: BodyPace, head: &Parts) -> (RequestBody, UnreadBody) {
        let (rest, unread) = oneshot::channel();
        let connection: Option<Arc<Idleness>> = head.extensions.get().cloned();
        let left = UnreadBody { rest: unread, connection: connection.clone() };
        (RequestBody { incoming: Some(incoming), pace, rest: Some(rest), connection, wait: None }, left)
    }

    /// Number of bytes that the headers announce.
    pub fn announced(&self) -> Option<u64> {
        self.incoming.as_ref()?.size_hint().exact()
    }

    /// The next bytes, or `None` at the end. Fails when the client sends nothing within the idle timeout, or too slowly.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        let Some(incoming) = &mut self.incoming else { return Ok(None) };
        if self.wait.is_none() {
            self.wait = self.connection.as_ref().map(Idleness::waits_for_client);
        }
        loop {
            let began = tokio::time::Instant::now();
            let Ok(frame) = tokio::time::timeout(self.pace.patience(), incoming.frame()).await else {
                self.pace.waited(began.elapsed(), 0)?;
                continue;
            };
            let Some(frame) = frame else {
                // The server's turn.
                (self.connection, self.wait) = (None, None);
                return Ok(None);
            };
            let frame = frame.map_err(|error| BodyError::Broken(error.into()))?;
            // Trailers are ignored.
            if let Ok(bytes) = frame.into_data() {
                self.pace.waited(began.elapsed(), bytes.len())?;
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
