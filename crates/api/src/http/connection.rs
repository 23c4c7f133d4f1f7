//! One connection: its handshake, and the version of HTTP that the client chose.

use std::sync::Arc;

use tls::Identity;
use tokio::net::TcpStream;

use super::{
    http1::{Handle, Serving, serve_http1},
    http2::serve_http2,
};

/// Serves a connection until its client or the server ends it. With TLS the client chooses between HTTP/1.1 and HTTP/2.
pub(super) async fn serve_connection<H: Handle>(
    stream: TcpStream,
    tls: Option<Arc<Identity>>,
    mut serving: Serving<H>,
) {
    stream.set_nodelay(true).ok();
    let Some(identity) = tls else { return serve_http1(stream, serving).await };
    // On the heap, so that the state of a connection without TLS stays small.
    Box::pin(async move {
        let handshake = tokio::select! {
            stream = identity.accept(stream, serving.peer) => stream,
            _ = serving.stopped.changed() => None,
            () = serving.listed.idleness.asked_to_leave() => None,
        };
        let Some(stream) = handshake else { return };
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            serve_http2(stream, serving).await;
        } else {
            serve_http1(stream, serving).await;
        }
    })
    .await;
}
