//! The wire formats, written: what relays send, for the load generator and for tests.

use metric::{Point, Timestamp};

/// Appends `name value timestamp\n`. Whole numbers are written without a point.
pub fn line(out: &mut Vec<u8>, name: &[u8], time: Timestamp, value: f64) {
    out.extend_from_slice(name);
    out.push(b' ');
    if value.trunc() == value && value.abs() < 1e15 {
        out.extend_from_slice(itoa::Buffer::new().format(value as i64).as_bytes());
    } else {
        out.extend_from_slice(ryu::Buffer::new().format(value).as_bytes());
    }
    out.push(b' ');
    out.extend_from_slice(itoa::Buffer::new().format(time).as_bytes());
    out.push(b'\n');
}

/// Appends a frame, header included, of a pickle in protocol 2: `[(name, (time, value)), …]`, as
/// carbon-relay's `pickle.dumps(…, protocol=2)` without its memo. The names must be UTF-8 for carbon to read it.
pub fn pickle<'a>(out: &mut Vec<u8>, points: impl IntoIterator<Item = (&'a [u8], Point)>) {
    frame(out, |out| {
        out.extend_from_slice(b"\x80\x02](");
        for (name, point) in points {
            out.push(b'X');
            out.extend_from_slice(&(name.len() as u32).to_le_bytes());
            out.extend_from_slice(name);
            match i32::try_from(point.time) {
                Ok(time) => {
                    out.push(b'J');
                    out.extend_from_slice(&time.to_le_bytes());
                }
                Err(_) => {
                    out.extend_from_slice(b"\x8a\x08");
                    out.extend_from_slice(&point.time.to_le_bytes());
                }
            }
            out.push(b'G');
            out.extend_from_slice(&point.value.to_be_bytes());
            out.extend_from_slice(b"\x86\x86");
        }
        out.extend_from_slice(b"e.");
    });
}

/// Appends a frame, header included, of a `carbon.Payload`. Times are cut to the 32 bits the message has.
pub fn protobuf<'a>(out: &mut Vec<u8>, metrics: impl IntoIterator<Item = (&'a [u8], &'a [Point])>) {
    frame(out, |out| {
        for (name, points) in metrics {
            let points_bytes: usize = points.iter().map(|point| 2 + point_bytes(point)).sum();
            out.push(0x0a);
            varint(out, (1 + varint_bytes(name.len() as u64) + name.len() + points_bytes) as u64);
            out.push(0x0a);
            varint(out, name.len() as u64);
            out.extend_from_slice(name);
            for point in points {
                out.extend_from_slice(&[0x12, point_bytes(point) as u8, 0x08]);
                varint(out, u64::from(point.time as u32));
                out.push(0x11);
                out.extend_from_slice(&point.value.to_le_bytes());
            }
        }
    });
}

/// Bytes of a Point message: tag and varint, tag and double.
fn point_bytes(point: &Point) -> usize {
    1 + varint_bytes(u64::from(point.time as u32)) + 9
}

/// Appends what `body` appends, behind its length.
fn frame(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let header = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = u32::try_from(out.len() - header - 4).expect("a frame is shorter than 4 GiB");
    out[header..header + 4].copy_from_slice(&length.to_be_bytes());
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn varint_bytes(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}
