//! Carbon's protobuf protocol: one `carbon.Payload` a frame.
//!
//! ```text
//! message Point   { uint32 timestamp = 1; double value = 2; }
//! message Metric  { string metric = 1; repeated Point points = 2; }
//! message Payload { repeated Metric metrics = 1; }
//! ```
//!
//! Unknown fields are skipped, as protobuf requires. A metric without points is valid.

use std::ops::Range;

use metric::Timestamp;

use crate::{Progress, RejectReason, Sink, frame::Expansion};

/// Bytes of a rejected point's name that are handed on for the operator.
const SAMPLE_BYTES: usize = 512;

/// Decodes the body of a frame. It is checked as a whole first: a frame that is not a payload gives no points
/// and one rejection. Nothing is allocated but for rejected points. Timestamps are unsigned here, so that -1
/// cannot mean now.
pub fn decode<S: Sink>(frame: &[u8], sink: &mut S) {
    Decoder::new().decode(frame, sink);
}

/// Decodes frames for a sink that may have no room: it knows how far it came in a frame.
#[derive(Debug, Default)]
pub struct Decoder {
    place: Option<Place>,
}

/// A place in a frame.
#[derive(Debug)]
struct Place {
    /// Where the metrics begin that are not begun.
    next_metric: usize,
    name: Range<usize>,
    /// What is left of the metric before them.
    points: Range<usize>,
    expansion: Expansion,
}

impl Decoder {
    /// A decoder in front of a frame.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// As [`decode`], until the sink has no room; the next call goes on there, with the same frame.
    pub fn decode<S: Sink>(&mut self, frame: &[u8], sink: &mut S) -> Progress {
        let Place { next_metric, name, points, mut expansion } = match self.place.take() {
            Some(place) => place,
            None if is_payload(frame) => {
                Place { next_metric: 0, name: 0..0, points: 0..0, expansion: Expansion::of(frame.len()) }
            }
            None => {
                sink.reject(RejectReason::BadProtobuf, frame);
                return Progress::Done;
            }
        };
        let (mut rest, mut name, mut points) = (&frame[next_metric..], &frame[name], &frame[points]);
        loop {
            loop {
                if !sink.has_room(name.len()) {
                    let (name, points) = (range_in(frame, name), range_in(frame, points));
                    self.place = Some(Place { next_metric: frame.len() - rest.len(), name, points, expansion });
                    return Progress::SinkFull;
                }
                // Checked above, all of it.
                let Some(Some((time, value))) = next_point(&mut points) else { break };
                if expansion.take(name).is_none() {
                    sink.reject(RejectReason::FrameExpands, name);
                    return Progress::Done;
                }
                if value.is_nan() {
                    let sample = [beginning(name), format!(" {value} {time}").as_bytes()].concat();
                    sink.reject(RejectReason::NanValue, &sample);
                } else {
                    sink.point(name, time, value);
                }
            }
            let Some(Some(metric)) = next_metric_of(&mut rest) else { return Progress::Done };
            (name, points) = metric;
        }
    }
}

fn beginning(name: &[u8]) -> &[u8] {
    &name[..name.len().min(SAMPLE_BYTES)]
}

/// Where a part of a frame is in it.
fn range_in(frame: &[u8], part: &[u8]) -> Range<usize> {
    if part.is_empty() {
        return 0..0;
    }
    let start = part.as_ptr() as usize - frame.as_ptr() as usize;
    start..start + part.len()
}

fn is_payload(frame: &[u8]) -> bool {
    let mut rest = frame;
    loop {
        let mut points = match next_metric_of(&mut rest) {
            None => return false,
            Some(None) => return true,
            Some(Some((_, points))) => points,
        };
        loop {
            match next_point(&mut points) {
                None => return false,
                Some(None) => break,
                Some(Some(_)) => {}
            }
        }
    }
}

/// Takes the next metric of a payload, its name and its bytes: `Some(None)` at the end, `None` when the bytes are not a
/// payload.
#[allow(clippy::option_option, reason = "as for `next_field`")]
fn next_metric_of<'a>(rest: &mut &'a [u8]) -> Option<Option<(&'a [u8], &'a [u8])>> {
    while let Some(field) = next_field(rest)? {
        let (1, Content::Bytes(metric)) = field else { continue };
        // The name may come behind the points; the last one counts.
        let mut name: &[u8] = b"";
        let mut fields = metric;
        while let Some(field) = next_field(&mut fields)? {
            if let (1, Content::Bytes(text)) = field {
                name = text;
            }
        }
        return Some(Some((name, metric)));
    }
    Some(None)
}

/// Takes the next point of a metric: `Some(None)` at the end, `None` when the bytes are not a metric.
#[inline]
#[allow(clippy::option_option, reason = "as for `next_field`")]
fn next_point(rest: &mut &[u8]) -> Option<Option<(Timestamp, f64)>> {
    while let Some(field) = next_field(rest)? {
        let (2, Content::Bytes(mut point)) = field else { continue };
        let (mut time, mut value) = (0, 0.0);
        while let Some(field) = next_field(&mut point)? {
            match field {
                (1, Content::Varint(number)) => time = Timestamp::from(number as u32),
                (2, Content::Fixed64(bits)) => value = f64::from_bits(bits),
                _ => {}
            }
        }
        return Some(Some((time, value)));
    }
    Some(None)
}

/// The content of a field, by wire type.
enum Content<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

/// Takes a field from the front: `Some(None)` at the end, `None` when it is broken.
#[inline]
#[allow(clippy::option_option, reason = "broken, ended, and a field are three things, and `?` reads the first")]
fn next_field<'a>(rest: &mut &'a [u8]) -> Option<Option<(u64, Content<'a>)>> {
    if rest.is_empty() {
        return Some(None);
    }
    let key = varint(rest)?;
    let content = match key & 7 {
        0 => Content::Varint(varint(rest)?),
        1 => Content::Fixed64(u64::from_le_bytes(*take_chunk(rest)?)),
        2 => {
            let length = varint(rest)?;
            let (bytes, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            *rest = after;
            Content::Bytes(bytes)
        }
        5 => {
            take_chunk::<4>(rest)?;
            Content::Fixed32
        }
        // proto3 has no groups, and no client sends them.
        _ => return None,
    };
    let number = key >> 3;
    if number == 0 {
        return None;
    }
    Some(Some((number, content)))
}

#[inline]
fn take_chunk<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (chunk, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(chunk)
}

/// A base-128 number of up to ten bytes; bits beyond 64 are dropped, as protobuf does.
#[inline]
fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..70).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}
