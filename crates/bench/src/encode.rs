//! Points in the formats of carbon's senders: plain lines, and frames of pickle and protobuf as carbon-relay makes them.

use clap::ValueEnum;

use crate::values::{Value, write_whole};

/// carbon-relay's MAX_DATAPOINTS_PER_MESSAGE.
const POINTS_PER_FRAME: u32 = 500;

/// The wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    Line,
    Pickle,
    Protobuf,
}

/// Writes points one after another into a growing buffer.
pub(crate) struct Encoder {
    protocol: Protocol,
    /// Points in the frame being written.
    in_frame: u32,
    /// Place of the frame's length, filled in at its end.
    frame_at: usize,
    /// The number of the next memo entry: Python numbers all it pickles.
    memo: u32,
}

impl Encoder {
    pub(crate) fn new(protocol: Protocol) -> Encoder {
        Encoder { protocol, in_frame: 0, frame_at: 0, memo: 0 }
    }

    /// Appends a point. Frames are complete only after [`Encoder::finish`].
    pub(crate) fn point(&mut self, name: &[u8], value: Value, time: u32, out: &mut Vec<u8>) {
        match self.protocol {
            Protocol::Line => {
                out.extend_from_slice(name);
                out.push(b' ');
                value.write(out);
                out.push(b' ');
                write_whole(u64::from(time), out);
                out.push(b'\n');
            }
            Protocol::Pickle => {
                self.open(out);
                self.pickled(name, value, time, out);
                self.close_if_full(out);
            }
            Protocol::Protobuf => {
                self.open(out);
                write_protobuf(name, value, time, out);
                self.close_if_full(out);
            }
        }
    }

    /// Completes the last frame. The buffer must stay unchanged until then.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        if self.in_frame == 0 {
            return;
        }
        if self.protocol == Protocol::Pickle {
            // APPENDS, STOP.
            out.extend_from_slice(b"e.");
        }
        let length = (out.len() - self.frame_at - 4) as u32;
        out[self.frame_at..self.frame_at + 4].copy_from_slice(&length.to_be_bytes());
        self.in_frame = 0;
    }

    fn open(&mut self, out: &mut Vec<u8>) {
        if self.in_frame > 0 {
            return;
        }
        self.frame_at = out.len();
        out.extend_from_slice(&[0; 4]);
        if self.protocol == Protocol::Pickle {
            // PROTO 2, EMPTY_LIST, MARK: what Python's pickle.dumps(points, 2) begins with.
            out.extend_from_slice(b"\x80\x02]");
            self.memo = 0;
            self.memoize(out);
            out.push(b'(');
        }
    }

    fn close_if_full(&mut self, out: &mut Vec<u8>) {
        self.in_frame += 1;
        if self.in_frame == POINTS_PER_FRAME {
            self.finish(out);
        }
    }

    /// `(name, (time, value))` as Python writes it, memo included: parsing that is the receiver's real work.
    fn pickled(&mut self, name: &[u8], value: Value, time: u32, out: &mut Vec<u8>) {
        // BINUNICODE.
        out.push(b'X');
        out.extend_from_slice(&(name.len() as u32).to_le_bytes());
        out.extend_from_slice(name);
        self.memoize(out);
        match i32::try_from(time) {
            // BININT.
            Ok(time) => {
                out.push(b'J');
                out.extend_from_slice(&time.to_le_bytes());
            }
            // LONG1, after 2038.
            Err(_) => {
                out.extend_from_slice(b"\x8a\x05");
                out.extend_from_slice(&time.to_le_bytes());
                out.push(0);
            }
        }
        // BINFLOAT.
        out.push(b'G');
        out.extend_from_slice(&value.number().to_be_bytes());
        // TUPLE2, twice.
        out.push(0x86);
        self.memoize(out);
        out.push(0x86);
        self.memoize(out);
    }

    /// BINPUT or LONG_BINPUT.
    fn memoize(&mut self, out: &mut Vec<u8>) {
        match u8::try_from(self.memo) {
            Ok(memo) => out.extend_from_slice(&[b'q', memo]),
            Err(_) => {
                out.push(b'r');
                out.extend_from_slice(&self.memo.to_le_bytes());
            }
        }
        self.memo += 1;
    }
}

/// One `Metric` of carbon's `Payload`, holding one `Point`.
fn write_protobuf(name: &[u8], value: Value, time: u32, out: &mut Vec<u8>) {
    let point = varint_length(u64::from(time)) + 1 + 9;
    let metric = 1 + varint_length(name.len() as u64) + name.len() + 1 + varint_length(point as u64) + point;
    // Payload.metrics = 1.
    out.push(0x0a);
    write_varint(metric as u64, out);
    // Metric.metric = 1.
    out.push(0x0a);
    write_varint(name.len() as u64, out);
    out.extend_from_slice(name);
    // Metric.points = 2.
    out.push(0x12);
    write_varint(point as u64, out);
    // Point.timestamp = 1 (varint), Point.value = 2 (double).
    out.push(0x08);
    write_varint(u64::from(time), out);
    out.push(0x11);
    out.extend_from_slice(&value.number().to_le_bytes());
}

fn write_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn varint_length(number: u64) -> usize {
    (64 - (number | 1).leading_zeros()).div_ceil(7) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(protocol: Protocol, points: u32) -> Vec<u8> {
        let (mut encoder, mut out) = (Encoder::new(protocol), Vec::new());
        for point in 0..points {
            encoder.point(b"a.b", Value::Hundredths(1205), 1_700_000_000 + point, &mut out);
        }
        encoder.finish(&mut out);
        out
    }

    #[test]
    fn a_line_is_name_value_and_time() {
        assert_eq!(encode(Protocol::Line, 1), b"a.b 12.05 1700000000\n");
    }

    /// What Python 3.11 writes for `pickle.dumps([("a.b", (1700000000, 12.05))], 2)`, but for the list of one, which
    /// it appends without a mark.
    #[test]
    fn a_pickle_is_what_python_writes() {
        let body =
            b"\x80\x02]q\x00(X\x03\x00\x00\x00a.bq\x01J\x00\xf1SeG@(\x19\x99\x99\x99\x99\x9a\x86q\x02\x86q\x03e.";
        let mut frame = (body.len() as u32).to_be_bytes().to_vec();
        frame.extend_from_slice(body);
        assert_eq!(encode(Protocol::Pickle, 1), frame);
    }

    #[test]
    fn a_protobuf_is_a_payload_of_one_metric_a_point() {
        let body = b"\x0a\x16\x0a\x03a.b\x12\x0f\x08\x80\xe2\xcf\xaa\x06\x11\x9a\x99\x99\x99\x99\x19\x28\x40";
        let (body, mut frame) = (&body[..], vec![0, 0, 0]);
        frame.push(body.len() as u8);
        frame.extend_from_slice(body);
        assert_eq!(encode(Protocol::Protobuf, 1), frame);
    }

    #[test]
    fn frames_have_five_hundred_points_and_start_with_their_length() {
        for protocol in [Protocol::Pickle, Protocol::Protobuf] {
            let bytes = encode(protocol, 1_001);
            let (mut rest, mut frames) = (&bytes[..], 0);
            while let Some((length, after)) = rest.split_first_chunk::<4>() {
                rest = &after[u32::from_be_bytes(*length) as usize..];
                frames += 1;
            }
            assert_eq!((frames, rest.len()), (3, 0), "{protocol:?}");
        }
    }
}
