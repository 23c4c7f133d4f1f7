//! Frames in chunks are the same as whole frames, and the caller's buffer stays within the limit.
#![no_main]

use carbon::{FrameDecoder, RejectReason, Sink};
use libfuzzer_sys::fuzz_target;

const MAX_BYTES: usize = 100;

#[derive(Default, PartialEq, Debug)]
struct Seen {
    frames: Vec<Vec<u8>>,
    rejects: Vec<RejectReason>,
}

impl Sink for Seen {
    fn point(&mut self, _: &[u8], _: i64, _: f64) {}

    fn reject(&mut self, reason: RejectReason, _: &[u8]) {
        self.rejects.push(reason);
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, stream)) = input.split_first() else { return };
    let mut whole = Seen::default();
    let mut decoder = FrameDecoder::new(MAX_BYTES);
    let consumed = decoder.decode(stream, &mut whole, |frame, seen| seen.frames.push(frame.to_vec()));
    decoder.finish(&stream[consumed..], &mut whole);

    let mut pieces = Seen::default();
    let mut decoder = FrameDecoder::new(MAX_BYTES);
    let mut buffer = Vec::new();
    for piece in stream.chunks(usize::from(cut).max(1)) {
        buffer.extend_from_slice(piece);
        let consumed = decoder.decode(&buffer, &mut pieces, |frame, seen| seen.frames.push(frame.to_vec()));
        buffer.drain(..consumed);
        assert!(buffer.len() < MAX_BYTES + 4);
        assert!(decoder.missing(&buffer) <= MAX_BYTES + 4);
    }
    decoder.finish(&buffer, &mut pieces);
    assert_eq!(whole, pieces);
});
