//! Connections: accepting them, bounding them, letting them finish.

use std::{convert::Infallible, future::Future, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
};

use crate::{Api, stall::Stalling};

/// How long answers that are under way may take once the server stops.
const GRACE: Duration = Duration::from_secs(10);

impl Api {
    /// Serves a listener until `shutdown` resolves; then accepts nothing more, closes idle connections,
    /// and gives the answers under way ten seconds to finish.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, shutdown: impl Future<Output = ()> + Send) {
        let mut shutdown = pin!(shutdown);
        let places = Arc::new(Semaphore::new(self.limits.connections));
        let (stop, stopped) = watch::channel(());
        let mut open = JoinSet::new();
        loop {
            // A connection is accepted only when there is a place for it; until then clients wait in the
            // system's queue.
            let accepted = async {
                let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
                (listener.accept().await, place)
            };
            let (accepted, place) = tokio::select! {
                () = &mut shutdown => break,
                accepted = accepted => accepted,
                Some(_) = open.join_next(), if !open.is_empty() => {
                    self.observer.connections(open.len());
                    continue;
                }
            };
            match accepted {
                Ok((stream, peer)) => {
                    let connection = self.clone().connection(stream, peer, stopped.clone());
                    open.spawn(async move {
                        connection.await;
                        drop(place);
                    });
                    self.observer.connections(open.len());
                }
                // Out of file descriptors, most likely: a place must become free first.
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(listener);
        stop.send(()).ok();
        let finish = async { while open.join_next().await.is_some() {} };
        tokio::time::timeout(GRACE, finish).await.ok();
        open.shutdown().await;
        self.observer.connections(0);
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, mut stopped: watch::Receiver<()>) {
        stream.set_nodelay(true).ok();
        let limits = &self.limits;
        let io = TokioIo::new(Stalling::new(stream, limits.idle));
        let api = self.clone();
        let service = service_fn(move |request| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.handle(request, peer).await) }
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
        // A client that goes away or sends what is no HTTP is its own affair.
        if let Err(error) = result {
            tracing::debug!(%peer, %error, "a connection broke");
        }
    }
}
