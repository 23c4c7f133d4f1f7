//! Answers made in pieces: several at a time on other threads, in order on the wire.
//!
//! A large answer is never whole in memory. Its pieces are made as the client reads, a few ahead of it, so
//! formatting, compressing and sending overlap, and an answer nobody reads any more costs nothing.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress, Status};
use hyper::{
    HeaderMap,
    body::{Body as HttpBody, Frame},
    header::{self, HeaderValue},
    http::response::Builder,
};
use tokio::{
    sync::OwnedSemaphorePermit,
    task::{JoinHandle, spawn_blocking},
};

use crate::{Body, BodyError, Response};

/// An answer that can be written a piece at a time, in any order.
pub(crate) trait Pieces: Send + Sync + 'static {
    /// How many pieces there are; at least one.
    fn count(&self) -> usize;

    /// Appends one piece. Called once for each, on a thread that may be kept busy.
    fn write(&self, piece: usize, out: &mut Vec<u8>);
}

/// How an answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// As it is.
    Identity,
    /// As one gzip member.
    Gzip,
}

/// Answers up to this size are not worth compressing: graphite-web's bound.
const SMALLEST_GZIP: usize = 200;

impl Coding {
    /// What the client's `Accept-Encoding` asks for.
    pub fn of(headers: &HeaderMap) -> Coding {
        let mut values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        let gzip = |coding: &str| {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
            let refused = weight.trim().strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
            name.trim().eq_ignore_ascii_case("gzip") && !refused
        };
        if values.any(|value| value.split(',').any(gzip)) { Coding::Gzip } else { Coding::Identity }
    }
}

/// Makes the body of an answer from its pieces and gives it its length or its encoding. An answer of one
/// piece is made here and now, so call this where work may be done; `permit` is given back with the last
/// byte.
pub(crate) fn respond(
    mut response: Builder,
    pieces: Arc<dyn Pieces>,
    coding: Coding,
    permit: OwnedSemaphorePermit,
) -> Response {
    if pieces.count() == 1 {
        let mut text = Vec::new();
        pieces.write(0, &mut text);
        return respond_text(response, text, coding, permit);
    }
    set_coding(&mut response, coding);
    response.body(Body::stream(Assembly::new(pieces, coding, permit))).expect(OURS)
}

/// Makes the body of an answer from text that is there already.
pub(crate) fn respond_text(
    mut response: Builder,
    text: Vec<u8>,
    coding: Coding,
    permit: OwnedSemaphorePermit,
) -> Response {
    let coding = if text.len() > SMALLEST_GZIP { coding } else { Coding::Identity };
    if coding == Coding::Gzip && text.len() > TEXT_PER_PIECE {
        return respond(response, Arc::new(Text(text)), coding, permit);
    }
    set_coding(&mut response, coding);
    let body = match coding {
        Coding::Identity => Body::from(text),
        Coding::Gzip => {
            let piece = Piece::deflated(&text);
            let mut member = GZIP_HEADER.to_vec();
            member.extend_from_slice(&piece.bytes);
            member.extend_from_slice(&gzip_trailer(piece.sum));
            Body::from(member)
        }
    };
    response.body(body).expect(OURS)
}

const OURS: &str = "the parts of an answer are ours";

fn set_coding(response: &mut Builder, coding: Coding) {
    let headers = response.headers_mut().expect(OURS);
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if coding == Coding::Gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
}

/// A text that is compressed in pieces.
struct Text(Vec<u8>);

const TEXT_PER_PIECE: usize = 256 << 10;

impl Pieces for Text {
    fn count(&self) -> usize {
        self.0.len().div_ceil(TEXT_PER_PIECE).max(1)
    }

    fn write(&self, piece: usize, out: &mut Vec<u8>) {
        let begin = piece * TEXT_PER_PIECE;
        out.extend_from_slice(&self.0[begin..self.0.len().min(begin + TEXT_PER_PIECE)]);
    }
}

/// Pieces being made and sent.
struct Assembly {
    pieces: Arc<dyn Pieces>,
    coding: Coding,
    // The next piece to start.
    next: usize,
    // Started and not sent, in order. At most AHEAD.
    ahead: VecDeque<JoinHandle<Piece>>,
    // Of everything sent so far, for gzip's trailer.
    sum: Sum,
    state: State,
    // Given back when the last byte is made or the client is gone.
    permit: Option<OwnedSemaphorePermit>,
}

#[derive(PartialEq)]
enum State {
    Header,
    Pieces,
    Trailer,
    Done,
}

/// Pieces made before the client asks for them. Two are being made on two cores while one is sent.
const AHEAD: usize = 4;

impl Assembly {
    fn new(pieces: Arc<dyn Pieces>, coding: Coding, permit: OwnedSemaphorePermit) -> Assembly {
        let state = if coding == Coding::Gzip { State::Header } else { State::Pieces };
        Assembly {
            pieces,
            coding,
            next: 0,
            ahead: VecDeque::with_capacity(AHEAD),
            sum: Sum::default(),
            state,
            permit: Some(permit),
        }
    }

    fn start_more(&mut self) {
        while self.ahead.len() < AHEAD && self.next < self.pieces.count() {
            let (pieces, piece, coding) = (self.pieces.clone(), self.next, self.coding);
            self.next += 1;
            self.ahead.push_back(spawn_blocking(move || {
                let mut text = Vec::new();
                pieces.write(piece, &mut text);
                match coding {
                    Coding::Identity => Piece { bytes: text, sum: Sum::default() },
                    Coding::Gzip => Piece::deflated(&text),
                }
            }));
        }
    }
}

impl HttpBody for Assembly {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = |bytes: Vec<u8>| Poll::Ready(Some(Ok(Frame::data(Bytes::from(bytes)))));
        loop {
            match self.state {
                State::Header => {
                    self.start_more();
                    self.state = State::Pieces;
                    return frame(GZIP_HEADER.to_vec());
                }
                State::Pieces => {
                    self.start_more();
                    let Some(front) = self.ahead.front_mut() else {
                        self.permit = None;
                        self.state = if self.coding == Coding::Gzip { State::Trailer } else { State::Done };
                        continue;
                    };
                    let made = std::task::ready!(Pin::new(front).poll(cx));
                    self.ahead.pop_front();
                    match made {
                        Ok(piece) => {
                            self.sum.append(&piece.sum);
                            self.start_more();
                            if !piece.bytes.is_empty() {
                                return frame(piece.bytes);
                            }
                        }
                        // The head is sent, so breaking the connection is the one way to say it.
                        Err(error) => {
                            tracing::error!(%error, "an answer could not be written");
                            self.state = State::Done;
                            return Poll::Ready(Some(Err(BodyError::Broken(error.into()))));
                        }
                    }
                }
                State::Trailer => {
                    self.state = State::Done;
                    return frame(gzip_trailer(std::mem::take(&mut self.sum)));
                }
                State::Done => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for Assembly {
    fn drop(&mut self) {
        // A piece that has not begun never does; the ones at work are short.
        for piece in &self.ahead {
            piece.abort();
        }
    }
}

/// A piece as it is sent, and what gzip's trailer must know of its plain text.
struct Piece {
    bytes: Vec<u8>,
    sum: Sum,
}

/// Checksum and length of plain text.
#[derive(Default)]
struct Sum {
    crc: crc32fast::Hasher,
    bytes: u64,
}

impl Sum {
    fn append(&mut self, later: &Sum) {
        self.crc.combine(&later.crc);
        self.bytes += later.bytes;
    }
}

impl Piece {
    /// Deflates text into blocks that end on a byte and refer to nothing before them, so that pieces made
    /// apart make one stream when put in a row.
    fn deflated(text: &[u8]) -> Piece {
        let mut sum = Sum::default();
        sum.crc.update(text);
        sum.bytes = text.len() as u64;
        let mut compress = Compress::new(Compression::fast(), false);
        let mut bytes = Vec::with_capacity(text.len() / 4 + 64);
        // A call that finds output waiting from the one before hands that out and may do nothing else, so only
        // one that began with none and ended with room left has flushed all there is. The price of asking
        // once more is an empty block.
        let mut nothing_waits = true;
        loop {
            let done = compress.total_in() as usize;
            let status = compress.compress_vec(&text[done..], &mut bytes, FlushCompress::Sync);
            debug_assert!(matches!(status, Ok(Status::Ok | Status::BufError)));
            let room = bytes.len() < bytes.capacity();
            if nothing_waits && room && compress.total_in() as usize == text.len() {
                return Piece { bytes, sum };
            }
            nothing_waits = room;
            bytes.reserve(bytes.capacity().max(64));
        }
    }
}

/// Deflate, no name, no time, fastest, Unix.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 3];

/// An empty last block, then the checksum and the length of the plain text.
fn gzip_trailer(sum: Sum) -> Vec<u8> {
    let mut trailer = vec![3, 0];
    trailer.extend_from_slice(&sum.crc.finalize().to_le_bytes());
    trailer.extend_from_slice(&(sum.bytes as u32).to_le_bytes());
    trailer
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use http_body_util::BodyExt;
    use tokio::sync::Semaphore;

    use super::*;

    struct Numbers {
        pieces: usize,
    }

    impl Pieces for Numbers {
        fn count(&self) -> usize {
            self.pieces
        }

        fn write(&self, piece: usize, out: &mut Vec<u8>) {
            for i in 0..1000 * (piece % 3) {
                out.extend_from_slice(format!("{piece}:{i}\n").as_bytes());
            }
        }
    }

    fn answer(pieces: usize, coding: Coding) -> (Vec<u8>, Response) {
        let numbers = Arc::new(Numbers { pieces });
        let mut whole = Vec::new();
        (0..pieces).for_each(|piece| numbers.write(piece, &mut whole));
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        (whole, respond(hyper::Response::builder(), numbers, coding, permit))
    }

    fn read(response: Response) -> Vec<u8> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { response.into_body().collect().await.unwrap().to_bytes().to_vec() })
    }

    #[test]
    fn pieces_arrive_in_order() {
        for pieces in [1, 2, 3, 50] {
            let (whole, response) = answer(pieces, Coding::Identity);
            assert_eq!(read(response), whole);
        }
    }

    #[test]
    fn compressed_pieces_are_one_gzip_member() {
        for pieces in [2, 3, 50] {
            let (whole, response) = answer(pieces, Coding::Gzip);
            assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip");
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(&read(response)[..]).read_to_end(&mut plain).unwrap();
            assert!(plain == whole);
        }
    }

    #[test]
    fn a_long_text_is_compressed_in_pieces() {
        let text: Vec<u8> = (0..200_000).flat_map(|i: u32| i.to_string().into_bytes()).collect();
        assert!(text.len() > 3 * TEXT_PER_PIECE);
        let permit = || Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let packed = read(respond_text(hyper::Response::builder(), text.clone(), Coding::Gzip, permit()));
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut plain).unwrap();
        assert!(plain == text);
        assert!(read(respond_text(hyper::Response::builder(), text.clone(), Coding::Identity, permit())) == text);
    }

    #[test]
    fn a_piece_is_flushed_whatever_room_there_is() {
        let text: Vec<u8> = (0..60_000).flat_map(|i: u32| i.to_string().into_bytes()).collect();
        for len in (1..text.len()).step_by(7919) {
            let mut bytes = Piece::deflated(&text[..len]).bytes;
            bytes.extend_from_slice(&[3, 0]);
            let mut plain = Vec::new();
            flate2::read::DeflateDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
            assert!(plain == text[..len]);
        }
    }

    #[test]
    fn text_that_does_not_shrink_is_deflated_whole() {
        let mut seed = 7u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as u8
        })
        .take(300_000)
        .collect();
        let mut bytes = Piece::deflated(&noise).bytes;
        bytes.extend_from_slice(&[3, 0]);
        let mut plain = Vec::new();
        flate2::read::DeflateDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
        assert!(plain == noise);
    }

    #[test]
    fn small_answers_are_not_compressed() {
        let (_, response) = answer(1, Coding::Gzip);
        assert!(!response.headers().contains_key(header::CONTENT_ENCODING));
    }

    #[test]
    fn gzip_is_sent_to_those_who_ask() {
        let check = |value: &'static str, coding| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(Coding::of(&headers), coding, "{value}");
        };
        check("gzip", Coding::Gzip);
        check("deflate, GZIP;q=0.5", Coding::Gzip);
        check("gzip;q=0", Coding::Identity);
        check("br, deflate", Coding::Identity);
        assert_eq!(Coding::of(&HeaderMap::new()), Coding::Identity);
    }
}
