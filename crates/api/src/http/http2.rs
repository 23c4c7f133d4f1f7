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
    body::{Body, BodyError, Holding},
    http1::{Handle, LEAVE_WITHIN, Serving, paced},
    idle::{Busy, ClientWait, Idleness},
    limits::Limits,
    pace::{Pace, Waited},
};

/// Concurrent requests of a connection: those of a dashboard.
const STREAMS: u32 = 32;

/// Bytes of request bodies that a connection, and a request, may send ahead of their reader.
const CONNECTION_WINDOW: u32 = 256 << 10;
const STREAM_WINDOW: u32 = 128 << 10;

/// Bytes of an answer that wait for the client.
const SEND_BUFFER: usize = 64 << 10;

/// Bytes of a piece of an answer, and behind a piece that waited for so long.
const PIECE: usize = 64 << 10;
const SLOW_PIECE: usize = 2 << 10;
const SLOW: Duration = Duration::from_secs(1);

/// A client that takes a piece within this time reads as fast as the pieces come.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Time for the answer to a ping.
const PING: Duration = Duration::from_secs(20);

/// Serves a connection until its client or the server ends it.
pub(super) async fn serve_http2<S, H>(stream: S, serving: Serving<H>)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
    H: Handle,
{
    let Serving { peer, limits, handler, mut stopped, listed, .. } = serving;
    let io = paced(stream, &limits, &listed.idleness);
    let (idleness, offers) = (listed.idleness.clone(), Arc::new(Offers::new(&limits)));
    let service = service_fn({
        let (idleness, offers) = (idleness.clone(), offers.clone());
        move |mut request: Request<Incoming>| {
            let (busy, offer) = (idleness.busy(), offers.add());
            request.extensions_mut().insert(idleness.clone());
            let answer = handler.clone().handle(request, peer);
            let idleness = idleness.clone();
            async move { Ok::<_, Infallible>(answer.await.map(|body| offered(body, busy, offer, idleness))) }
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
        () = offers.missed() => {
            tracing::debug!(%peer, "closed a connection whose client does not read an answer, or too slowly (http.min_rate)");
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

/// Answers of a connection whose next bytes wait for the client. HTTP/2 lets a client stop the bytes of one answer, or take
/// them one by one, which a limit on the connection's writes does not notice.
struct Offers {
    idle: Duration,
    pace: Pace,
    all: Mutex<Vec<Weak<Mutex<Offer>>>>,
}

/// How a client takes the pieces of an answer.
#[derive(Debug, Default)]
struct Offer {
    /// Since when the last piece waits; none while the server makes the next one.
    since: Option<Instant>,
    /// Bytes of that piece.
    piece: usize,
    /// How long the piece before it waited.
    last: Duration,
    /// The current window.
    waited: Waited,
    /// Up to when it counts the wait of this piece.
    counted: Option<Instant>,
}

impl Offer {
    /// The client has room for the next piece. The result is how long the last one waited.
    fn taken(&mut self, now: Instant) -> Duration {
        let Some(since) = self.since.take() else { return Duration::ZERO };
        self.last = now - since;
        self.waited.time += now - self.counted.unwrap_or(since);
        self.waited.bytes += self.piece as u64;
        self.last
    }

    fn offered(&mut self, bytes: usize, now: Instant) {
        (self.since, self.counted, self.piece) = (Some(now), Some(now), bytes);
    }

    /// Bytes of the next piece: few for a client that takes long, so that its progress is seen.
    fn next_piece(&self) -> usize {
        if SLOW <= self.last { SLOW_PIECE } else { PIECE }
    }

    /// Whether the piece waits for too long, or too few bytes were taken in a window.
    fn is_missed(&mut self, idle: Duration, pace: Pace, now: Instant) -> bool {
        let Some(since) = self.since else { return false };
        if idle <= now - since {
            return true;
        }
        // The client may have most of the piece.
        let time = self.waited.time + (now - self.counted.unwrap_or(since));
        let mut waited = Waited { time, bytes: self.waited.bytes + self.piece as u64 };
        if pace.is_missed(&mut waited) {
            return true;
        }
        if waited.time.is_zero() {
            // The next window begins; the piece counts in it.
            (self.waited, self.counted) = (Waited::default(), Some(now));
        }
        false
    }
}

impl Offers {
    fn new(limits: &Limits) -> Offers {
        Offers { idle: limits.idle, pace: Pace::new(limits), all: Mutex::default() }
    }

    fn add(&self) -> Arc<Mutex<Offer>> {
        let offer = Arc::<Mutex<Offer>>::default();
        let mut all = self.all.lock();
        // As many as there are requests under way.
        all.retain(|offer| 0 < offer.strong_count());
        all.push(Arc::downgrade(&offer));
        offer
    }

    /// Resolves when the client takes an answer too slowly.
    async fn missed(&self) {
        loop {
            tokio::time::sleep(self.idle.min(self.pace.window) / 4).await;
            let now = tokio::time::Instant::now();
            let is_missed = |offer: Arc<Mutex<Offer>>| offer.lock().is_missed(self.idle, self.pace, now);
            if self.all.lock().iter().filter_map(Weak::upgrade).any(is_missed) {
                return;
            }
        }
    }
}

fn offered(body: Body, busy: Busy, offer: Arc<Mutex<Offer>>, connection: Arc<Idleness>) -> Offered {
    Offered { body: body.holding(busy), rest: Bytes::new(), offer, connection, wait: None, is_slow: false }
}

/// The body of an answer in pieces, which notes when the client takes them.
struct Offered {
    body: Holding<Busy>,
    /// What is left of a frame of the body.
    rest: Bytes,
    offer: Arc<Mutex<Offer>>,
    connection: Arc<Idleness>,
    /// From a piece that was not taken at once to the end of the answer, so that such a client makes room for others.
    wait: Option<ClientWait>,
    is_slow: bool,
}

impl HttpBody for Offered {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        // A poll comes when the client has room for more.
        let was_at_once = self.offer.lock().taken(tokio::time::Instant::now()) <= AT_ONCE;
        if was_at_once && !self.is_slow {
            self.wait = None;
        }
        self.is_slow |= !was_at_once;
        if self.rest.is_empty() {
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else { return Poll::Pending };
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(bytes))) => self.rest = bytes,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let now = tokio::time::Instant::now();
        let bytes = self.offer.lock().next_piece().min(self.rest.len());
        self.offer.lock().offered(bytes, now);
        if self.wait.is_none() {
            self.wait = Some(self.connection.waits_for_client());
        }
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower() + rest);
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::idle::OpenConnections;

    const SECOND: Duration = Duration::from_secs(1);

    /// Seconds until a client is given up that takes a piece of so many bytes each so many seconds.
    fn given_up(limits: &Limits, bytes: usize, every: u64) -> Option<u64> {
        let (begin, offers, mut offer) = (tokio::time::Instant::now(), Offers::new(limits), Offer::default());
        offer.offered(bytes, begin);
        (1..1000).find(|&second| {
            let now = begin + second as u32 * SECOND;
            if second % every == 0 {
                offer.taken(now);
                offer.offered(bytes, now);
            }
            offer.is_missed(offers.idle, offers.pace, now)
        })
    }

    #[test]
    fn a_client_takes_an_answer_at_the_least_rate() {
        let limits = Limits { idle: 75 * SECOND, min_rate: 256, ..Limits::default() };
        assert_eq!(given_up(&limits, 200, 1), Some(30), "it never pauses");
        assert_eq!(given_up(&limits, 4096, 29), None);
        assert_eq!(given_up(&limits, 257, 1), None);
        assert_eq!(given_up(&limits, 64 << 10, 80), Some(75), "a pause");
        let any = Limits { min_rate: 0, ..limits.clone() };
        assert_eq!([given_up(&any, 1, 70), given_up(&any, 1, 80)], [None, Some(75)]);
        let short = Limits { idle: 5 * SECOND, ..limits };
        assert_eq!(given_up(&short, 10, 1), Some(5));
    }

    #[test]
    fn time_in_which_the_server_makes_the_next_piece_does_not_count() {
        let (limits, begin) = (Limits::default(), tokio::time::Instant::now());
        let (offers, mut offer) = (Offers::new(&limits), Offer::default());
        for second in [0, 500, 1000] {
            let now = begin + second * SECOND;
            offer.offered(1, now);
            offer.taken(now + SECOND);
            assert!(!offer.is_missed(offers.idle, offers.pace, now + 400 * SECOND));
        }
        assert_eq!(offer.next_piece(), SLOW_PIECE);
    }

    #[test]
    fn a_body_is_the_same_in_pieces() {
        let whole: Vec<u8> = (0..200_000_u32).map(|i| i as u8).collect();
        let listed = Arc::new(OpenConnections::default()).add(std::net::Ipv4Addr::LOCALHOST.into());
        let idleness = &listed.idleness;
        let mut offered = offered(Body::from(whole.clone()), idleness.busy(), Arc::default(), idleness.clone());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let (mut bytes, mut pieces) = (Vec::new(), 0);
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut offered).poll_frame(&mut cx) {
            bytes.extend_from_slice(frame.data_ref().unwrap());
            pieces += 1;
            assert_eq!(offered.size_hint().exact(), Some((whole.len() - bytes.len()) as u64));
        }
        assert!(bytes == whole && offered.is_end_stream());
        assert_eq!(pieces, 4);
    }
}
