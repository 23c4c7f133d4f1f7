//! The plaintext protocol: `name value timestamp`, one line a point.
//!
//! The tolerant superset of carbon and go-carbon: fields are separated and surrounded by any whitespace that
//! Python's `str.split()` knows, so CRLF and tabs pass; empty lines are skipped in silence; a bad line costs
//! only itself. A line with four fields is rejected, as carbon and go-carbon do.

use memchr::{memchr, memchr2};
use metric::Timestamp;

use crate::{
    RejectReason, Sink,
    number::{parse_float, parse_time, ten_digits},
};

/// Bytes of a line on a stream, without its LF, at most; carbon's own limit. A longer line is rejected once and
/// skipped up to its LF.
pub const MAX_LINE_BYTES: usize = 16_384;

/// Decodes the lines of one stream. The decoder keeps no bytes: an incomplete line stays in the caller's buffer, which
/// never needs more than [`MAX_LINE_BYTES`] and one byte.
#[derive(Debug, Clone, Default)]
pub struct LineDecoder {
    /// Within a line that was rejected for its length.
    skipping: bool,
}

impl LineDecoder {
    /// A decoder at the beginning of a stream.
    pub fn new() -> LineDecoder {
        LineDecoder::default()
    }

    /// Parses every whole line at the front of `buffer`, while the sink has room, and returns how many bytes they had. The
    /// caller drops those bytes and appends the next ones. A timestamp of -1 means `now` (Unix seconds).
    #[inline]
    pub fn decode<S: Sink>(&mut self, buffer: &[u8], now: Timestamp, sink: &mut S) -> usize {
        let mut rest = buffer;
        while let Some(end) = memchr(b'\n', rest) {
            let line = &rest[..end];
            if !sink.has_room(end.min(MAX_LINE_BYTES)) {
                return buffer.len() - rest.len();
            }
            rest = &rest[end + 1..];
            if self.skipping {
                self.skipping = false;
            } else if line.len() > MAX_LINE_BYTES {
                sink.reject(RejectReason::LineTooLong, &line[..MAX_LINE_BYTES]);
            } else {
                parse_line(line, now, sink);
            }
        }
        if self.skipping {
            return buffer.len();
        }
        if rest.len() > MAX_LINE_BYTES {
            sink.reject(RejectReason::LineTooLong, &rest[..MAX_LINE_BYTES]);
            self.skipping = true;
            return buffer.len();
        }
        buffer.len() - rest.len()
    }

    /// Ends a stream: parses the rest, whole lines and a last one without LF. A sink that may have no room gets whole lines
    /// by `decode` before. The decoder is then at the beginning of a stream again.
    pub fn finish<S: Sink>(&mut self, rest: &[u8], now: Timestamp, sink: &mut S) {
        let consumed = self.decode(rest, now, sink);
        if !self.skipping {
            parse_line(&rest[consumed..], now, sink);
        }
        self.skipping = false;
    }
}

/// Parses the lines of a datagram; the last needs no LF. As in carbon, a lone CR ends a line too.
#[inline]
pub fn parse_datagram<S: Sink>(datagram: &[u8], now: Timestamp, sink: &mut S) {
    let mut rest = datagram;
    while let Some(end) = memchr2(b'\n', b'\r', rest) {
        parse_line(&rest[..end], now, sink);
        rest = &rest[end + 1..];
    }
    parse_line(rest, now, sink);
}

/// Parses one line without its LF.
#[inline]
pub fn parse_line<S: Sink>(line: &[u8], now: Timestamp, sink: &mut S) {
    match parse_usual_line(line, now) {
        Some((name, time, value)) => sink.point(name, time, value),
        None => parse_unusual_line(line, now, sink),
    }
}

/// The point of a good line of printable ASCII with single spaces, as nearly all lines are; `None` for any other
/// line, good or bad. It is read from the right, where the short fields are, so that the name is only checked and
/// never searched: 25 ns a line.
#[inline(always)]
fn parse_usual_line(line: &[u8], now: Timestamp) -> Option<(&[u8], Timestamp, f64)> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (rest, time) = match split_ten_digits(line) {
        Some(split) => split,
        None => {
            let (rest, time) = split_at_last_space(line)?;
            (rest, parse_time(time, now).ok()?)
        }
    };
    let (name, value) = split_at_last_space(rest)?;
    let value = parse_float(value)?;
    let is_usual = !value.is_nan() && !name.is_empty() && is_printable_ascii(name);
    is_usual.then_some((name, time, value))
}

/// Splits at the last space when ten digits follow it.
#[inline(always)]
fn split_ten_digits(text: &[u8]) -> Option<(&[u8], Timestamp)> {
    let (rest, digits) = text.split_last_chunk()?;
    let (b' ', rest) = rest.split_last()? else { return None };
    Some((rest, ten_digits(digits)?))
}

/// Splits at the last space when what is right of it is printable ASCII and not empty.
#[inline(always)]
fn split_at_last_space(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = text.len();
    while let Some(&byte) = text.get(at.wrapping_sub(1)) {
        if !(b'!'..=b'~').contains(&byte) {
            let is_split = byte == b' ' && at < text.len();
            return is_split.then(|| (&text[..at - 1], &text[at..]));
        }
        at -= 1;
    }
    None
}

/// Whether every byte is in `!..=~`. Eight bytes at a time: names are short and this is most of a line.
#[inline(always)]
fn is_printable_ascii(text: &[u8]) -> bool {
    const EVERY: u64 = 0x0101_0101_0101_0101;
    let (words, tail) = text.as_chunks::<8>();
    let mut strange = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        // The high bit of a byte is set when it is not ASCII, when it is below '!' (subtraction borrows) or
        // when it is DEL (addition carries). A borrow or carry from a neighbour needs a strange neighbour.
        strange |= word | word.wrapping_sub(EVERY * 0x21) | word.wrapping_add(EVERY);
    }
    strange & (EVERY * 0x80) == 0 && tail.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// Any line at all: any whitespace, any UTF-8.
#[cold]
#[inline(never)]
fn parse_unusual_line<S: Sink>(line: &[u8], now: Timestamp, sink: &mut S) {
    let Ok(text) = std::str::from_utf8(line) else {
        return sink.reject(RejectReason::NotUtf8, line);
    };
    let mut fields = text.split(is_python_space).filter(|field| !field.is_empty());
    let Some(name) = fields.next() else {
        return;
    };
    let (Some(value), Some(time), None) = (fields.next(), fields.next(), fields.next()) else {
        return sink.reject(RejectReason::BadLine, line);
    };
    let Some(value) = parse_float(value.as_bytes()) else {
        return sink.reject(RejectReason::BadValue, line);
    };
    let Ok(time) = parse_time(time.as_bytes(), now) else {
        return sink.reject(RejectReason::BadTimestamp, line);
    };
    if value.is_nan() {
        return sink.reject(RejectReason::NanValue, line);
    }
    sink.point(name.as_bytes(), time, value);
}

/// What `str.split()` splits at: Unicode's White_Space, and four separators that Python adds.
fn is_python_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_ascii_is_recognised_at_every_place() {
        for byte in 0..=255u8 {
            for place in 0..11 {
                let mut text = [b'a'; 11];
                text[place] = byte;
                assert_eq!(is_printable_ascii(&text), (b'!'..=b'~').contains(&byte), "{byte:#x} at {place}");
            }
        }
        for byte in 0..=255u8 {
            assert_eq!(is_printable_ascii(&[byte; 8]), (b'!'..=b'~').contains(&byte), "{byte:#x}");
        }
    }
}
