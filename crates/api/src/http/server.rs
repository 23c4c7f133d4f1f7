//! Connections: accepts them up to a limit, closes idle ones for new clients there, and lets them finish when the server stops.

use std::{convert::Infallible, future::Future, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use host::Backoff;
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_io_timeout::TimeoutStream;

use super::{
    body::Response,
    idle::{Listed, OpenConnections},
    limits::Limits,
    observation::Observer,
};

/// Time for unfinished answers once the server stops.
const GRACE: Duration = Duration::from_secs(10);

/// Pauses after a connection that cannot be accepted: they double while that lasts.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_secs(1);

/// Interval between two looks for an idle connection while all are busy or new.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Time for a connection that is to make room and that a client has sent half a request on.
const LEAVE_WITHIN: Duration = Duration::from_millis(10);

/// Interval between two lines of the log about connections at their limit.
const LOG_EVERY: Duration = Duration::from_secs(60);

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
    let mut room = Room {
        permits: Arc::new(Semaphore::new(limits.connections)),
        connections: Arc::default(),
        limit: limits.connections,
        logged: None,
    };
    let (stop, stopped) = watch::channel(());
    let mut open = JoinSet::new();
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    // Accepted, and waiting for room. Others wait in the queue of the operating system.
    let mut waiting = None;
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = open.join_next(), if !open.is_empty() => {
                observer.connections(open.len());
                continue;
            }
            accepted = listener.accept(), if waiting.is_none() => accepted,
            permit = room.permit(observer), if waiting.is_some() => {
                let Some((stream, peer)) = waiting.take() else { continue };
                let listed = room.connections.add();
                let connection = serve_connection(stream, peer, limits.clone(), handler.clone(), stopped.clone(), listed);
                open.spawn(async move {
                    connection.await;
                    drop(permit);
                });
                observer.connections(open.len());
                continue;
            }
        };
        match accepted {
            Ok(accepted) => {
                if backoff.peek() != FIRST_RETRY {
                    tracing::info!("HTTP connections are accepted again");
                    backoff.reset();
                }
                waiting = Some(accepted);
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
    drop((listener, waiting));
    stop.send(()).ok();
    let finish = async { while open.join_next().await.is_some() {} };
    tokio::time::timeout(GRACE, finish).await.ok();
    open.shutdown().await;
    observer.connections(0);
}

/// Room for connections.
struct Room {
    permits: Arc<Semaphore>,
    connections: Arc<OpenConnections>,
    limit: usize,
    /// The last line of the log about the limit.
    logged: Option<Instant>,
}

impl Room {
    /// A permit for one more connection. At the limit the longest idle connection is closed for it.
    async fn permit(&mut self, observer: &dyn Observer) -> OwnedSemaphorePermit {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return permit;
        }
        self.log();
        loop {
            if self.connections.close_longest_idle() {
                observer.made_room();
            }
            let permit = self.permits.clone().acquire_owned();
            if let Ok(permit) = tokio::time::timeout(LOOK_EVERY, permit).await {
                return permit.expect("the semaphore is never closed");
            }
        }
    }

    fn log(&mut self) {
        let now = tokio::time::Instant::now();
        if self.logged.is_none_or(|last| LOG_EVERY <= now - last) {
            self.logged = Some(now);
            tracing::warn!(
                limit = self.limit,
                "as many HTTP connections are open as http.max_connections allows; the longest idle ones are closed for new \
                 clients, and these otherwise wait; logging this once a minute"
            );
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    limits: Limits,
    handler: Arc<impl Handle>,
    mut stopped: watch::Receiver<()>,
    listed: Listed,
) {
    stream.set_nodelay(true).ok();
    // Breaks the connection to a client that does not read its answer. For reads, hyper limits headers, and
    // `RequestBody` limits bodies.
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.idle));
    let io = TokioIo::new(Box::pin(stream));
    let idleness = listed.idleness.clone();
    let service = service_fn(move |request| {
        let busy = idleness.busy();
        let answer = handler.clone().handle(request, peer);
        async move { Ok::<_, Infallible>(answer.await.map(|body| body.holding(busy))) }
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
        () = listed.idleness.asked_to_leave() => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(LEAVE_WITHIN, connection.as_mut()).await {
                Ok(result) => result,
                // Half a request, or none.
                Err(_) if listed.idleness.is_idle() => Ok(()),
                Err(_) => connection.await,
            }
        }
    };
    // Clients cause this: they disconnect, or send bytes that are not HTTP.
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "a connection broke");
    }
}
