//! Answers in chunks: several threads produce them ahead of the client, and the client gets them in order.
//!
//! A large answer is never whole in memory. Producing, compressing and sending overlap, and the work stops when the
//! client disconnects.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::{
    body::{Body as HttpBody, Frame},
    header::{self, HeaderValue},
};
use tokio::task::{JoinHandle, spawn_blocking};

use super::{
    body::{Body, BodyError, Response},
    gzip::{self, Coding, Deflated, Sum},
    memory::AnswerShare,
    response::Head,
};

/// An answer whose chunks can be written independently, in any order.
pub(crate) trait Chunks: Send + Sync + 'static {
    /// Number of chunks, at least one.
    fn count(&self) -> usize;

    /// Appends one chunk. Called once a chunk, on a thread that may block.
    fn write(&self, chunk: usize, out: &mut Vec<u8>);
}

/// Answers up to this number of bytes are not compressed: graphite-web's bound.
const SMALLEST_GZIP: usize = 200;

/// Adds a body in chunks to a head. The body holds `share` until its last byte is sent. A single chunk is produced at once,
/// so call this on a thread that may block.
pub(crate) fn respond(mut head: Head, chunks: Arc<dyn Chunks>, coding: Coding, share: AnswerShare) -> Response {
    if chunks.count() == 1 {
        let mut text = Vec::new();
        chunks.write(0, &mut text);
        return respond_text(head, text, coding, share);
    }
    set_coding(&mut head, coding);
    head.map(|()| Body::stream(ChunkedBody::new(chunks, coding, share)))
}

/// Adds a text as the body to a head.
pub(crate) fn respond_text(mut head: Head, text: Vec<u8>, coding: Coding, share: AnswerShare) -> Response {
    let coding = if text.len() > SMALLEST_GZIP { coding } else { Coding::Identity };
    if coding == Coding::Gzip && text.len() > TEXT_CHUNK_BYTES {
        return respond(head, Arc::new(Text(text)), coding, share);
    }
    set_coding(&mut head, coding);
    head.map(|()| match coding {
        Coding::Identity => Body::from(counted(text, share)),
        Coding::Gzip => {
            let deflated = Deflated::of(&text);
            let mut member = gzip::HEADER.to_vec();
            member.extend_from_slice(&deflated.bytes);
            member.extend_from_slice(&gzip::trailer(deflated.sum));
            Body::from(counted(member, share))
        }
    })
}

/// Bytes that hold the share of their answer until they are sent.
fn counted(bytes: Vec<u8>, share: AnswerShare) -> Bytes {
    struct Counted(Vec<u8>, #[allow(dead_code, reason = "held until it is dropped")] AnswerShare);
    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Counted(bytes, share))
}

fn set_coding(head: &mut Head, coding: Coding) {
    let headers = head.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if coding == Coding::Gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
}

/// A text that is compressed in chunks.
struct Text(Vec<u8>);

const TEXT_CHUNK_BYTES: usize = 256 << 10;

impl Chunks for Text {
    fn count(&self) -> usize {
        self.0.len().div_ceil(TEXT_CHUNK_BYTES).max(1)
    }

    fn write(&self, chunk: usize, out: &mut Vec<u8>) {
        let begin = chunk * TEXT_CHUNK_BYTES;
        out.extend_from_slice(&self.0[begin..self.0.len().min(begin + TEXT_CHUNK_BYTES)]);
    }
}

/// Chunks that are being produced and sent.
struct ChunkedBody {
    chunks: Arc<dyn Chunks>,
    coding: Coding,
    // The next chunk to start.
    next: usize,
    // Started but not sent, in order. At most AHEAD.
    ahead: VecDeque<JoinHandle<Deflated>>,
    // Sum of the text sent so far, for gzip's trailer.
    sum: Sum,
    state: State,
    share: AnswerShare,
}

#[derive(PartialEq)]
enum State {
    Header,
    Chunks,
    Trailer,
    Done,
}

/// Chunks that are produced before the client asks for them.
pub(crate) const AHEAD: usize = 4;

impl ChunkedBody {
    fn new(chunks: Arc<dyn Chunks>, coding: Coding, share: AnswerShare) -> ChunkedBody {
        let state = if coding == Coding::Gzip { State::Header } else { State::Chunks };
        ChunkedBody {
            chunks,
            coding,
            next: 0,
            ahead: VecDeque::with_capacity(AHEAD),
            sum: Sum::default(),
            state,
            share,
        }
    }

    fn start_more(&mut self) {
        while self.ahead.len() < AHEAD && self.next < self.chunks.count() {
            let (chunks, chunk, coding) = (self.chunks.clone(), self.next, self.coding);
            self.next += 1;
            self.ahead.push_back(spawn_blocking(move || {
                let mut text = Vec::new();
                chunks.write(chunk, &mut text);
                match coding {
                    Coding::Identity => Deflated { bytes: text, sum: Sum::default() },
                    Coding::Gzip => Deflated::of(&text),
                }
            }));
        }
    }
}

impl HttpBody for ChunkedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let share = self.share.clone();
        let frame = |bytes: Vec<u8>| Poll::Ready(Some(Ok(Frame::data(counted(bytes, share)))));
        loop {
            match self.state {
                State::Header => {
                    self.start_more();
                    self.state = State::Chunks;
                    return frame(gzip::HEADER.to_vec());
                }
                State::Chunks => {
                    self.start_more();
                    let Some(front) = self.ahead.front_mut() else {
                        self.state = if self.coding == Coding::Gzip { State::Trailer } else { State::Done };
                        continue;
                    };
                    let produced = std::task::ready!(Pin::new(front).poll(cx));
                    self.ahead.pop_front();
                    match produced {
                        Ok(chunk) => {
                            self.sum.append(&chunk.sum);
                            self.start_more();
                            if !chunk.bytes.is_empty() {
                                return frame(chunk.bytes);
                            }
                        }
                        // The head is sent, so only a broken connection can tell the client.
                        Err(error) => {
                            tracing::error!(error = %host::Excerpt(&error), "cannot produce an answer; closing the connection. This is a bug, please report it");
                            self.state = State::Done;
                            return Poll::Ready(Some(Err(BodyError::Broken(error.into()))));
                        }
                    }
                }
                State::Trailer => {
                    self.state = State::Done;
                    return frame(gzip::trailer(std::mem::take(&mut self.sum)));
                }
                State::Done => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for ChunkedBody {
    fn drop(&mut self) {
        // This stops the chunks that have not started; the others take milliseconds.
        for chunk in &self.ahead {
            chunk.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use http_body_util::BodyExt;

    use super::{
        super::{client::Client, memory::MemoryBudget, response::head},
        *,
    };

    struct Numbers {
        chunks: usize,
    }

    impl Chunks for Numbers {
        fn count(&self) -> usize {
            self.chunks
        }

        fn write(&self, chunk: usize, out: &mut Vec<u8>) {
            for i in 0..1000 * (chunk % 3) {
                out.extend_from_slice(format!("{chunk}:{i}\n").as_bytes());
            }
        }
    }

    fn share() -> AnswerShare {
        let client = Client::Named(String::new());
        Arc::new(MemoryBudget::new(1, std::time::Duration::ZERO, "", "").share(&client))
    }

    fn answer(chunks: usize, coding: Coding) -> (Vec<u8>, Response) {
        let numbers = Arc::new(Numbers { chunks });
        let mut whole = Vec::new();
        (0..chunks).for_each(|chunk| numbers.write(chunk, &mut whole));
        (whole, respond(head("text/plain"), numbers, coding, share()))
    }

    fn read(response: Response) -> Vec<u8> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { response.into_body().collect().await.unwrap().to_bytes().to_vec() })
    }

    #[test]
    fn chunks_arrive_in_order() {
        for chunks in [1, 2, 3, 50] {
            let (whole, response) = answer(chunks, Coding::Identity);
            assert_eq!(read(response), whole);
        }
    }

    #[test]
    fn compressed_chunks_are_one_gzip_member() {
        for chunks in [2, 3, 50] {
            let (whole, response) = answer(chunks, Coding::Gzip);
            assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip");
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(&read(response)[..]).read_to_end(&mut plain).unwrap();
            assert!(plain == whole);
        }
    }

    #[test]
    fn a_long_text_is_compressed_in_chunks() {
        let text: Vec<u8> = (0..200_000).flat_map(|i: u32| i.to_string().into_bytes()).collect();
        assert!(text.len() > 3 * TEXT_CHUNK_BYTES);
        let packed = read(respond_text(head("text/plain"), text.clone(), Coding::Gzip, share()));
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut plain).unwrap();
        assert!(plain == text);
        assert!(read(respond_text(head("text/plain"), text.clone(), Coding::Identity, share())) == text);
    }

    #[test]
    fn small_answers_are_not_compressed() {
        let (_, response) = answer(1, Coding::Gzip);
        assert!(!response.headers().contains_key(header::CONTENT_ENCODING));
    }
}
