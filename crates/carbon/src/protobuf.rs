//! Carbon's protobuf protocol: one `carbon.Payload` a frame.
//!
//! ```text
//! message Point   { uint32 timestamp = 1; double value = 2; }
//! message Metric  { string metric = 1; repeated Point points = 2; }
//! message Payload { repeated Metric metrics = 1; }
//! ```
//!
//! Unknown fields are skipped, as protobuf requires. A metric without points is valid.

use metric::Timestamp;

use crate::{RejectReason, Sink, frame::Expansion};

/// Decodes the body of a frame. It is checked as a whole first: a frame that is not a payload gives no points
/// and one rejection. Nothing is allocated but for rejected points. Timestamps are unsigned here, so that -1
/// cannot mean now.
pub fn decode<S: Sink>(frame: &[u8], sink: &mut S) {
    let checked = each_metric(frame, |_, metric| each_point(metric, |_, _| Some(())));
    if checked.is_none() {
        return sink.reject(RejectReason::BadProtobuf, frame);
    }
    let mut expansion = Expansion::of(frame.len());
    each_metric(frame, |name, metric| {
        each_point(metric, |time, value| {
            if expansion.take(name).is_none() {
                sink.reject(RejectReason::FrameExpands, name);
                return None;
            }
            if value.is_nan() {
                let sample = [name, format!(" {value} {time}").as_bytes()].concat();
                sink.reject(RejectReason::NanValue, &sample);
            } else {
                sink.point(name, time, value);
            }
            Some(())
        })
    });
}

/// Calls `each` with the name and the bytes of every metric of a payload; `None` when the bytes are not a
/// payload, or when `each` returns it.
fn each_metric<'a>(payload: &'a [u8], mut each: impl FnMut(&'a [u8], &'a [u8]) -> Option<()>) -> Option<()> {
    let mut rest = payload;
    while let Some(field) = next_field(&mut rest)? {
        let (1, Content::Bytes(metric)) = field else { continue };
        // The name may come behind the points; the last one counts.
        let mut name: &[u8] = b"";
        let mut fields = metric;
        while let Some(field) = next_field(&mut fields)? {
            if let (1, Content::Bytes(text)) = field {
                name = text;
            }
        }
        each(name, metric)?;
    }
    Some(())
}

/// Calls `each` with the time and value of every point of a metric; `None` when the bytes are not
/// a metric, or when `each` returns it.
fn each_point(metric: &[u8], mut each: impl FnMut(Timestamp, f64) -> Option<()>) -> Option<()> {
    let mut rest = metric;
    while let Some(field) = next_field(&mut rest)? {
        let (2, Content::Bytes(mut point)) = field else { continue };
        let (mut time, mut value) = (0, 0.0);
        while let Some(field) = next_field(&mut point)? {
            match field {
                (1, Content::Varint(number)) => time = Timestamp::from(number as u32),
                (2, Content::Fixed64(bits)) => value = f64::from_bits(bits),
                _ => {}
            }
        }
        each(time, value)?;
    }
    Some(())
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
