//! HTTP/1.1 over one connection, and what connections of both versions have in common.

use std::{convert::Infallible, future::Future, net::SocketAddr, sync::Arc, time::Duration};

use host::{Clock, MinuteLog, SystemClock};
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};

use super::{
    body::Response,
    idle::{Idleness, Listed},
    limits::Limits,
    paced_stream::PacedStream,
};

/// Time for a connection that is to make room and that a client has sent half a request on.
pub(super) const LEAVE_WITHIN: Duration = Duration::from_millis(10);

/// The first byte of TLS, and not of HTTP.
const TLS_HANDSHAKE: u8 = 0x16;

/// Clients that speak TLS to a listener without it.
static ENCRYPTED: MinuteLog = MinuteLog::new();

/// Answers one request.
pub(crate) trait Handle: Send + Sync + 'static {
    /// Answers a request of `peer`. The connection drops the future when the client disconnects.
    fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> impl Future<Output = Response> + Send + 'static;

    /// A head could not be read, and was answered with its status.
    fn unreadable(&self);
}

/// What a connection needs of its listener.
pub(super) struct Serving<H> {
    pub(super) peer: SocketAddr,
    pub(super) limits: Limits,
    pub(super) handler: Arc<H>,
    /// Changes when the server stops.
    pub(super) stopped: watch::Receiver<()>,
    pub(super) listed: Listed,
    /// Whether the connection ends with its first answer.
    pub(super) is_once: bool,
}

/// Breaks the connection to a client that does not read what is sent, or too slowly.
pub(super) fn paced<S: AsyncRead + AsyncWrite>(
    stream: S,
    limits: &Limits,
    idleness: &Arc<Idleness>,
) -> TokioIo<PacedStream<S>> {
    TokioIo::new(PacedStream::new(stream, limits, idleness.clone()))
}

/// Serves a connection until its client or the server ends it.
pub(super) async fn serve_http1<S, H>(stream: S, serving: Serving<H>)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
    H: Handle,
{
    let Serving { peer, limits, handler, mut stopped, listed, is_once } = serving;
    // For reads, hyper limits headers, and `RequestBody` limits bodies.
    let io = paced(stream, &limits, &listed.idleness);
    let idleness = listed.idleness.clone();
    let counts = handler.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let busy = idleness.busy();
        request.extensions_mut().insert(idleness.clone());
        let answer = handler.clone().handle(request, peer);
        async move { Ok::<_, Infallible>(answer.await.map(|body| body.holding(busy))) }
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(!is_once)
        .header_read_timeout(limits.idle)
        .max_buf_size(limits.header_bytes.max(8192))
        .serve_connection(io, service);
    let result = tokio::select! {
        result = &mut connection => result,
        _ = stopped.changed() => {
            Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
        () = listed.idleness.head_overdue(limits.head_time) => {
            tracing::debug!(%peer, "closed a connection with half a request (http.head_timeout)");
            Ok(())
        }
        () = listed.idleness.evicted() => {
            tracing::debug!(%peer, "closed a connection whose client kept a request waiting, for a new client");
            Ok(())
        }
        () = listed.idleness.asked_to_leave() => {
            Pin::new(&mut connection).graceful_shutdown();
            match tokio::time::timeout(LEAVE_WITHIN, &mut connection).await {
                Ok(result) => result,
                // Half a request, or none.
                Err(_) if listed.idleness.is_idle() => Ok(()),
                Err(_) => (&mut connection).await,
            }
        }
    };
    // Clients cause this: they disconnect, or send bytes that are not HTTP.
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "a connection broke");
        if error.is_parse() {
            counts.unreadable();
        }
        if error.is_parse() && connection.into_parts().read_buf.first() == Some(&TLS_HANDSHAKE) {
            log_encrypted(peer);
        }
    }
}

fn log_encrypted(peer: SocketAddr) {
    if let Some(suppressed) = ENCRYPTED.is_due(SystemClock.instant()) {
        tracing::warn!(%peer, suppressed,
            "a client speaks TLS to an HTTP address without it: use http:// there, or turn TLS on (http.tls_certificate); \
             logging this once a minute");
    }
}
