//! Connections: accepts them up to a limit, and lets them finish when the server stops.

use std::{convert::Infallible, future::Future, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use host::Backoff;
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
};
use tokio_io_timeout::TimeoutStream;

use super::{body::Response, limits::Limits, observation::Observer};

/// Time for unfinished answers once the server stops.
const GRACE: Duration = Duration::from_secs(10);

/// Pauses after a connection that cannot be accepted: they double while that lasts.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_secs(1);

/// Answers one request.
pub(crate) trait Handle: Send + Sync + 'static {
    /// Answers a request of `peer`. The connection drops the future when the client disconnects.
    fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> impl Future<Output = Response> + Send + 'static;
}

/// Serves a listener until `shutdown` resolves. Then it stops accepting, closes idle connections, and gives unfinished
/// answers ten seconds.
pub(crate) async fn serve(
    listener: TcpListener,
    limits: &Limits,
    observer: &dyn Observer,
    handler: Arc<impl Handle>,
    shutdown: impl Future<Output = ()> + Send,
) {
    let mut shutdown = pin!(shutdown);
    let permits = Arc::new(Semaphore::new(limits.connections));
    let (stop, stopped) = watch::channel(());
    let mut open = JoinSet::new();
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    loop {
        // Without a free permit, clients wait in the queue of the operating system.
        let accepted = async {
            let permit = permits.clone().acquire_owned().await.expect("the semaphore is never closed");
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            () = &mut shutdown => break,
            accepted = accepted => accepted,
            Some(_) = open.join_next(), if !open.is_empty() => {
                observer.connections(open.len());
                continue;
            }
        };
        match accepted {
            Ok((stream, peer)) => {
                if backoff.peek() != FIRST_RETRY {
                    tracing::info!("HTTP connections are accepted again");
                    backoff.reset();
                }
                let connection = serve_connection(stream, peer, limits.clone(), handler.clone(), stopped.clone());
                open.spawn(async move {
                    connection.await;
                    drop(permit);
                });
                observer.connections(open.len());
            }
            Err(error) => {
                observer.accept_failed();
                // A client that gave up before it was accepted has others behind it.
                if error.kind() == io::ErrorKind::ConnectionAborted {
                    continue;
                }
                // Usually the process is out of file descriptors: a connection must close first. Logged once, until one
                // is accepted.
                if backoff.peek() == FIRST_RETRY {
                    tracing::error!(%error, "cannot accept HTTP connections; retrying; clients wait");
                }
                tokio::select! {
                    () = &mut shutdown => break,
                    () = tokio::time::sleep(backoff.next_wait()) => {}
                }
            }
        }
    }
    drop(listener);
    stop.send(()).ok();
    let finish = async { while open.join_next().await.is_some() {} };
    tokio::time::timeout(GRACE, finish).await.ok();
    open.shutdown().await;
    observer.connections(0);
}

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    limits: Limits,
    handler: Arc<impl Handle>,
    mut stopped: watch::Receiver<()>,
) {
    stream.set_nodelay(true).ok();
    // Breaks the connection to a client that does not read its answer. For reads, hyper limits headers, and
    // `RequestBody` limits bodies.
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.idle));
    let io = TokioIo::new(Box::pin(stream));
    let service = service_fn(move |request| {
        let answer = handler.clone().handle(request, peer);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_buf_size(limits.header_bytes.max(8192))
        .serve_connection(io, service);
    let mut connection = pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // Clients cause this: they disconnect, or send bytes that are not HTTP.
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "a connection broke");
    }
}
