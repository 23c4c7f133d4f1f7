//! HTTP/2, for clients that choose it in their TLS handshake. Limits are those of HTTP/1.1; a connection carries several
//! requests at a time.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::{
    Request,
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};

use super::{
    body::{BodyError, Holding},
    http1::{Handle, LEAVE_WITHIN, Serving, paced},
    idle::{Busy, Idleness},
};

/// Concurrent requests of a connection: those of a dashboard.
const STREAMS: u32 = 32;

/// Bytes of request bodies that a connection, and a request, may send ahead of their reader.
const CONNECTION_WINDOW: u32 = 256 << 10;
const STREAM_WINDOW: u32 = 128 << 10;

/// Bytes of an answer that wait for the client.
const SEND_BUFFER: usize = 64 << 10;

/// Time for the answer to a ping.
const PING: Duration = Duration::from_secs(20);

/// Serves a connection until its client or the server ends it.
pub(super) async fn serve_http2<S, H>(stream: S, serving: Serving<H>)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
    H: Handle,
{
    let Serving { peer, limits, handler, mut stopped, listed } = serving;
    let io = paced(stream, &limits, &listed.idleness);
    let (idleness, offers) = (listed.idleness.clone(), Arc::new(Offers::default()));
    let service = service_fn({
        let (idleness, offers) = (idleness.clone(), offers.clone());
        move |mut request: Request<Incoming>| {
            let (busy, offer) = (idleness.busy(), offers.add());
            request.extensions_mut().insert(idleness.clone());
            let answer = handler.clone().handle(request, peer);
            async move { Ok::<_, Infallible>(answer.await.map(|body| Offered { body: body.holding(busy), offer })) }
        }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(Some(limits.idle))
        .keep_alive_timeout(PING)
        .serve_connection(io, service);
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = offers.untaken(limits.idle) => {
            tracing::debug!(%peer, "closed a connection whose client does not read an answer");
            Ok(())
        }
        () = idleness.evicted() => {
            tracing::debug!(%peer, "closed a connection whose client kept a request waiting, for a new client");
            Ok(())
        }
        () = leaves(&idleness, limits.idle) => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(LEAVE_WITHIN, connection.as_mut()).await {
                Ok(result) => result,
                Err(_) if idleness.is_idle() => Ok(()),
                Err(_) => connection.await,
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "a connection broke");
    }
}

/// Resolves when the connection is to make room, or has had no request for too long.
async fn leaves(idleness: &Idleness, longest: Duration) {
    tokio::select! {
        () = idleness.asked_to_leave() => {}
        () = idleness.idle_for(longest) => {}
    }
}

/// Answers of a connection whose next bytes wait for the client. HTTP/2 lets a client stop the bytes of one answer, which
/// a limit on the connection's writes does not notice.
#[derive(Default)]
struct Offers {
    all: Mutex<Vec<Weak<Offer>>>,
}

/// Since when bytes of an answer wait.
#[derive(Default)]
struct Offer {
    since: Mutex<Option<Instant>>,
}

impl Offers {
    fn add(&self) -> Arc<Offer> {
        let offer = Arc::new(Offer::default());
        let mut all = self.all.lock();
        // As many as there are requests under way.
        all.retain(|offer| 0 < offer.strong_count());
        all.push(Arc::downgrade(&offer));
        offer
    }

    /// Resolves when bytes have waited for so long.
    async fn untaken(&self, longest: Duration) {
        loop {
            tokio::time::sleep(longest / 4).await;
            let waits = |offer: Arc<Offer>| offer.since.lock().is_some_and(|since| longest <= since.elapsed());
            if self.all.lock().iter().filter_map(Weak::upgrade).any(waits) {
                return;
            }
        }
    }
}

/// The body of an answer, which notes when the client takes its bytes.
struct Offered {
    body: Holding<Busy>,
    offer: Arc<Offer>,
}

impl HttpBody for Offered {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        // The next poll comes when the client has room for more.
        *self.offer.since.lock() = frame.is_ready().then(tokio::time::Instant::now);
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
