//! The protobuf protocol, on messages written by hand from the schema.

use carbon::encode;
use metric::Point;

use crate::seen::seen;

fn decoded(frame: &[u8]) -> String {
    seen(|sink| carbon::protobuf::decode(frame, sink))
}

/// A length-delimited field.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
}

/// A Point: timestamp as a varint in field 1, value as a fixed64 in field 2.
fn point(timestamp: &[u8], value: f64) -> Vec<u8> {
    [&[0x08], timestamp, &[0x11], &value.to_le_bytes()].concat()
}

#[test]
fn a_payload_has_metrics_and_they_have_points() {
    let a = [field(1, b"a.b"), field(2, &point(&[1], 1.5)), field(2, &point(&[0x80, 0x01], -2.0))].concat();
    let b = [field(1, b"c"), field(2, &point(&[0xff, 0xff, 0xff, 0xff, 0x0f], f64::INFINITY))].concat();
    assert_eq!(decoded(&[field(1, &a), field(1, &b)].concat()), "a.b 1.5 1\na.b -2 128\nc inf 4294967295\n");
}

#[test]
fn fields_come_in_any_order_and_unknown_ones_are_skipped() {
    let strange = [&[0x18, 0x05][..], &[0x25, 0, 0, 0, 0], &[0x29, 0, 0, 0, 0, 0, 0, 0, 0], &field(6, b"x")].concat();
    let backward = [&[0x11][..], &2.5f64.to_le_bytes(), &strange, &[0x08, 0x07]].concat();
    let metric = [field(2, &backward), strange.clone(), field(1, b"no"), field(1, b"a")].concat();
    assert_eq!(decoded(&[strange, field(1, &metric)].concat()), "a 2.5 7\n");
}

#[test]
fn absent_fields_are_zero_and_empty() {
    assert_eq!(decoded(b""), "");
    assert_eq!(decoded(&field(1, b"")), "");
    assert_eq!(decoded(&field(1, &field(1, b"a"))), "");
    assert_eq!(decoded(&field(1, &field(2, b""))), " 0 0\n");
}

#[test]
fn nan_is_dropped_alone() {
    let a = [field(1, b"a"), field(2, &point(&[1], f64::NAN)), field(2, &point(&[2], 1.0))].concat();
    assert_eq!(decoded(&field(1, &a)), "nan_value: a NaN 1\na 1 2\n");
}

#[test]
fn a_frame_that_is_broken_anywhere_gives_no_point() {
    let good = [field(1, b"a"), field(2, &point(&[1], 1.0))].concat();
    for broken in [
        &b"\x0a"[..],
        b"\x0a\x05a",
        b"\x0b",
        b"\x0c",
        b"\x00\x00",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0a\x02\x12\x05",
        b"\x0a\x03\x12\x01\x08",
        b"\x0a\x04\x12\x02\x11\x00",
        b"not protobuf",
    ] {
        let text = decoded(&[&field(1, &good), broken].concat());
        assert!(text.starts_with("bad_protobuf: ") && text.lines().count() == 1, "{}: {text}", broken.escape_ascii());
    }
}

#[test]
fn a_long_name_is_not_multiplied_by_empty_points() {
    let name = [&b"\x0a\x80\x80\x04"[..], &[b'n'; 65_536]].concat();
    let metric = [name, b"\x12\0".repeat(10_000)].concat();
    let length = metric.len() as u32;
    let payload =
        [&[0x0a, length as u8 | 0x80, (length >> 7) as u8 | 0x80, (length >> 14) as u8], &metric[..]].concat();
    let text = decoded(&payload);
    assert_eq!(text.lines().count(), 1024 + 1);
    assert!(text.lines().last().unwrap().starts_with("frame_expands: "));
}

#[test]
fn encoded_points_are_decoded() {
    let points =
        |times: &[i64]| -> Vec<Point> { times.iter().map(|&time| Point { time, value: time as f64 / 4.0 }).collect() };
    let (few, many) = (points(&[1_700_000_000, 1]), points(&(0..100).collect::<Vec<_>>()));
    let mut frame = Vec::new();
    encode::protobuf(&mut frame, [(&b"a.b"[..], &few[..]), (b"c", &many[..])]);
    assert_eq!(frame[..4], (frame.len() as u32 - 4).to_be_bytes());
    let text = decoded(&frame[4..]);
    assert!(text.starts_with("a.b 425000000 1700000000\na.b 0.25 1\nc 0 0\nc 0.25 1\n"), "{text}");
    assert_eq!(text.lines().count(), 102);
}
