//! Lines in pieces are the same as lines at once, and what comes out keeps the sink's promises.
#![no_main]

use carbon::{LineDecoder, RejectReason, Sink, parse_datagram};
use libfuzzer_sys::fuzz_target;

#[derive(Default, PartialEq, Debug)]
struct Seen(Vec<(Vec<u8>, Option<(i64, u64)>, Option<RejectReason>)>);

impl Sink for Seen {
    fn point(&mut self, name: &[u8], time: i64, value: f64) {
        assert!(!value.is_nan());
        assert!((-(1 << 53)..=1 << 53).contains(&time));
        assert!(!name.is_empty() && std::str::from_utf8(name).is_ok());
        self.0.push((name.to_vec(), Some((time, value.to_bits())), None));
    }

    fn reject(&mut self, reason: RejectReason, sample: &[u8]) {
        self.0.push((sample.to_vec(), None, Some(reason)));
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, stream)) = input.split_first() else { return };
    let mut whole = Seen::default();
    LineDecoder::new().finish(stream, 42, &mut whole);

    let mut pieces = Seen::default();
    let mut decoder = LineDecoder::new();
    let mut buffer = Vec::new();
    for piece in stream.chunks(1 + 16 * usize::from(cut)) {
        buffer.extend_from_slice(piece);
        let consumed = decoder.decode(&buffer, 42, &mut pieces);
        buffer.drain(..consumed);
    }
    decoder.finish(&buffer, 42, &mut pieces);
    assert_eq!(whole, pieces);

    parse_datagram(stream, 42, &mut Seen::default());
});
