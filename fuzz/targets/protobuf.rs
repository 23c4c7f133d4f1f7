//! Protobuf payloads: a frame that fails gives no point, and points are the same when written and read again.
#![no_main]

use carbon::{RejectReason, Sink, encode, protobuf};
use libfuzzer_sys::fuzz_target;
use metric::Point;

#[derive(Default, PartialEq, Debug)]
struct Seen {
    points: Vec<(Vec<u8>, i64, u64)>,
    rejects: Vec<RejectReason>,
}

impl Sink for Seen {
    fn point(&mut self, name: &[u8], time: i64, value: f64) {
        assert!(!value.is_nan());
        self.points.push((name.to_vec(), time, value.to_bits()));
    }

    fn reject(&mut self, reason: RejectReason, _: &[u8]) {
        self.rejects.push(reason);
    }
}

fuzz_target!(|frame: &[u8]| {
    let mut seen = Seen::default();
    protobuf::decode(frame, &mut seen);
    if seen.rejects.contains(&RejectReason::BadProtobuf) {
        assert_eq!((seen.points.len(), seen.rejects.len()), (0, 1));
    }
    let metrics: Vec<(&[u8], Point)> = seen
        .points
        .iter()
        .map(|(name, time, bits)| (&name[..], Point { time: *time, value: f64::from_bits(*bits) }))
        .collect();
    let mut written = Vec::new();
    encode::protobuf(&mut written, metrics.iter().map(|(name, point)| (*name, std::slice::from_ref(point))));
    let mut again = Seen::default();
    protobuf::decode(&written[4..], &mut again);
    assert_eq!(seen.points, again.points);
    assert!(again.rejects.is_empty());
});
