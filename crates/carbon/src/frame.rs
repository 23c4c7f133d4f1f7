//! Frames: the four-byte big-endian length that pickle and protobuf messages travel behind.

use crate::{Progress, RejectReason, Sink};

/// The default limit on the bytes of a frame's body, go-carbon's. Carbon's is 1 MiB, and relays stay
/// under it.
pub const DEFAULT_MAX_FRAME_BYTES: usize = 64 << 20;

/// Bytes of the length before a frame.
const HEADER_BYTES: usize = 4;

/// The points and name bytes that a frame may still expand to. Items of a pickle can share parts, and points of a
/// payload share their metric's name: a few bytes of a frame may stand for a point with a long name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expansion {
    points: usize,
    name_bytes: usize,
}

impl Expansion {
    /// Bytes that the names of a small frame may expand to, repetitions included.
    const NAME_BYTES: usize = 64 << 20;

    /// The same for each byte of a large frame. A point is about 17 bytes without its name, so a frame of nothing but
    /// points of one name of 270 bytes passes.
    const NAME_BYTES_PER_BYTE: usize = 16;

    /// The limits of a frame of so many bytes: no more points than bytes.
    pub(crate) fn of(frame_bytes: usize) -> Expansion {
        let name_bytes = frame_bytes.saturating_mul(Expansion::NAME_BYTES_PER_BYTE).max(Expansion::NAME_BYTES);
        Expansion { points: frame_bytes, name_bytes }
    }

    /// Takes one point of this name from the limits; `None` when they are used up.
    #[inline]
    pub(crate) fn take(&mut self, name: &[u8]) -> Option<()> {
        self.points = self.points.checked_sub(1)?;
        self.name_bytes = self.name_bytes.checked_sub(name.len())?;
        Some(())
    }
}

/// Finds the frames of one stream. The decoder keeps no bytes: an incomplete frame stays in the caller's buffer, which
/// grows to at most four bytes more than the limit.
#[derive(Debug, Clone)]
pub struct FrameDecoder {
    max_bytes: usize,
    /// Bytes still to come of a frame that was rejected for its length.
    skip_bytes: u64,
}

impl Default for FrameDecoder {
    fn default() -> FrameDecoder {
        FrameDecoder::new(DEFAULT_MAX_FRAME_BYTES)
    }
}

impl FrameDecoder {
    /// A decoder at the beginning of a stream, for bodies of up to `max_bytes`. A larger frame is rejected once,
    /// and its body skipped as it comes; the stream goes on behind it.
    pub fn new(max_bytes: usize) -> FrameDecoder {
        FrameDecoder { max_bytes, skip_bytes: 0 }
    }

    /// Calls `each` with the body of every whole frame at the front of `buffer`, and returns how many bytes that
    /// was, headers included. The caller drops those and appends what it reads next.
    pub fn decode<S: Sink>(&mut self, buffer: &[u8], sink: &mut S, mut each: impl FnMut(&[u8], &mut S)) -> usize {
        let whole = |body: &[u8], sink: &mut S| {
            each(body, sink);
            Progress::Done
        };
        self.decode_while(buffer, sink, whole).0
    }

    /// As `decode`, until `each` returns something else than done, which is returned too. The next call begins with the
    /// same frame.
    pub fn decode_while<S: Sink>(
        &mut self,
        buffer: &[u8],
        sink: &mut S,
        mut each: impl FnMut(&[u8], &mut S) -> Progress,
    ) -> (usize, Progress) {
        let mut rest = self.skip(buffer);
        while let Some((header, after)) = rest.split_first_chunk::<HEADER_BYTES>() {
            let length = u32::from_be_bytes(*header);
            if length as usize > self.max_bytes {
                sink.reject(RejectReason::FrameTooLong, &rest[..rest.len().min(256)]);
                self.skip_bytes = u64::from(length);
                rest = self.skip(after);
                continue;
            }
            let Some((body, after)) = after.split_at_checked(length as usize) else {
                break;
            };
            match each(body, sink) {
                Progress::Done => rest = after,
                pause => return (buffer.len() - rest.len(), pause),
            }
        }
        (buffer.len() - rest.len(), Progress::Done)
    }

    /// Bytes that the frame at the front of `buffer`, as `decode` left it, still lacks: what to make room for.
    pub fn missing(&self, buffer: &[u8]) -> usize {
        match buffer.first_chunk::<HEADER_BYTES>() {
            _ if self.skip_bytes > 0 => 0,
            Some(header) => (u32::from_be_bytes(*header) as usize + HEADER_BYTES).saturating_sub(buffer.len()),
            None => HEADER_BYTES - buffer.len(),
        }
    }

    /// Ends a stream: `rest` is what `decode` left. Part of a frame is rejected, since it cannot be read. The
    /// decoder is then at the beginning of a stream again.
    pub fn finish<S: Sink>(&mut self, rest: &[u8], sink: &mut S) {
        self.skip_bytes = 0;
        if !rest.is_empty() {
            sink.reject(RejectReason::FrameCutShort, rest);
        }
    }

    fn skip<'a>(&mut self, buffer: &'a [u8]) -> &'a [u8] {
        let skipped = usize::try_from(self.skip_bytes).unwrap_or(usize::MAX).min(buffer.len());
        self.skip_bytes -= skipped as u64;
        &buffer[skipped..]
    }
}
