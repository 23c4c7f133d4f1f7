//! gzip: whether a client accepts it, and a stream whose chunks are compressed independently.
//!
//! Chunks compressed on several threads form one gzip member. docs/decisions/10-libraries.md has the measured gain over
//! one encoder for the whole answer.

use flate2::{Compress, Compression, FlushCompress, Status};
use hyper::{HeaderMap, header};

/// The content coding of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Not compressed.
    Identity,
    /// One gzip member.
    Gzip,
}

impl Coding {
    /// The coding for a client's `Accept-Encoding`.
    pub fn of(headers: &HeaderMap) -> Coding {
        let mut values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        let gzip = |coding: &str| {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
            let is_excluded = weight.trim().strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
            name.trim().eq_ignore_ascii_case("gzip") && !is_excluded
        };
        if values.any(|value| value.split(',').any(gzip)) { Coding::Gzip } else { Coding::Identity }
    }
}

/// A compressed chunk, and the checksum of its plain text for the trailer.
pub(crate) struct Deflated {
    /// Deflate blocks that end on a byte.
    pub bytes: Vec<u8>,
    /// Checksum and length of the plain text.
    pub sum: Sum,
}

/// Checksum and length of plain text.
#[derive(Default)]
pub(crate) struct Sum {
    crc: crc32fast::Hasher,
    bytes: u64,
}

impl Sum {
    /// Adds the sum of the text that follows.
    pub fn append(&mut self, later: &Sum) {
        self.crc.combine(&later.crc);
        self.bytes += later.bytes;
    }
}

impl Deflated {
    /// Compresses text into blocks that end on a byte and refer to no earlier text, so that chunks compressed
    /// independently form one stream in a row.
    pub fn of(text: &[u8]) -> Deflated {
        let mut sum = Sum::default();
        sum.crc.update(text);
        sum.bytes = text.len() as u64;
        let mut compress = Compress::new(Compression::fast(), false);
        let mut bytes = Vec::with_capacity(text.len() / 4 + 64);
        // A call may only drain output that waits since the previous call. So everything is flushed after a call that
        // began without waiting output and ended with room left. One more call costs an empty block.
        let mut is_drained = true;
        loop {
            let done = compress.total_in() as usize;
            let status = compress.compress_vec(&text[done..], &mut bytes, FlushCompress::Sync);
            debug_assert!(matches!(status, Ok(Status::Ok | Status::BufError)));
            let room = bytes.len() < bytes.capacity();
            if is_drained && room && compress.total_in() as usize == text.len() {
                return Deflated { bytes, sum };
            }
            is_drained = room;
            bytes.reserve(bytes.capacity().max(64));
        }
    }
}

/// Deflate, no name, no time, fastest, Unix.
pub(crate) const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 3];

/// An empty last block, then the checksum and the length of the plain text.
pub(crate) fn trailer(sum: Sum) -> Vec<u8> {
    let mut trailer = vec![3, 0];
    trailer.extend_from_slice(&sum.crc.finalize().to_le_bytes());
    trailer.extend_from_slice(&(sum.bytes as u32).to_le_bytes());
    trailer
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn a_chunk_is_flushed_for_any_remaining_capacity() {
        let text: Vec<u8> = (0..60_000).flat_map(|i: u32| i.to_string().into_bytes()).collect();
        for len in (1..text.len()).step_by(7919) {
            let mut bytes = Deflated::of(&text[..len]).bytes;
            bytes.extend_from_slice(&[3, 0]);
            let mut plain = Vec::new();
            flate2::read::DeflateDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
            assert!(plain == text[..len]);
        }
    }

    #[test]
    fn incompressible_text_is_deflated_completely() {
        let mut seed = 7u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as u8
        })
        .take(300_000)
        .collect();
        let mut bytes = Deflated::of(&noise).bytes;
        bytes.extend_from_slice(&[3, 0]);
        let mut plain = Vec::new();
        flate2::read::DeflateDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
        assert!(plain == noise);
    }

    #[test]
    fn gzip_is_for_clients_that_accept_it() {
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
