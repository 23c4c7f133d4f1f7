//! Frames and what becomes of broken ones.

use carbon::FrameDecoder;

use crate::seen::seen;

/// Decodes chunks as a connection would, keeping what is not consumed; bodies are seen as their bytes.
fn frames(max_bytes: usize, chunks: &[&[u8]]) -> String {
    let mut decoder = FrameDecoder::new(max_bytes);
    let mut buffer = Vec::new();
    seen(|sink| {
        for chunk in chunks {
            buffer.extend_from_slice(chunk);
            let consumed = decoder.decode(&buffer, sink, |body, sink| {
                sink.text += &format!("frame {}\n", body.escape_ascii());
            });
            buffer.drain(..consumed);
            assert!(buffer.len() <= max_bytes + 3, "the caller's memory is bounded");
        }
        decoder.finish(&buffer, sink);
    })
}

#[test]
fn frames_are_found_wherever_the_stream_is_cut() {
    let stream = b"\0\0\0\x01a\0\0\0\0\0\0\0\x02bc";
    for cut in 0..stream.len() {
        let (before, after) = stream.split_at(cut);
        assert_eq!(frames(2, &[before, after]), "frame a\nframe \nframe bc\n");
    }
    let bytes: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(frames(2, &bytes), "frame a\nframe \nframe bc\n");
}

#[test]
fn a_frame_that_is_too_long_is_skipped_and_the_stream_goes_on() {
    let stream = b"\0\0\0\x03abc\0\0\0\x02de";
    assert_eq!(frames(2, &[stream]), "frame_too_long: \\x00\\x00\\x00\\x03abc\\x00\\x00\\x00\\x02de\nframe de\n");
    let bytes: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(frames(2, &bytes), "frame_too_long: \\x00\\x00\\x00\\x03\nframe de\n");
    assert_eq!(frames(2, &[b"\xff\xff\xff\xff", b"abc", b"def"]), "frame_too_long: \\xff\\xff\\xff\\xff\n");
}

#[test]
fn a_frame_that_is_cut_short_is_rejected() {
    assert_eq!(frames(9, &[b"\0\0\0\x03ab"]), "frame_cut_short: \\x00\\x00\\x00\\x03ab\n");
    assert_eq!(frames(9, &[b"\0\0"]), "frame_cut_short: \\x00\\x00\n");
    assert_eq!(frames(9, &[b""]), "");
}

#[test]
fn the_caller_can_ask_how_much_is_missing() {
    let decoder = FrameDecoder::new(1 << 20);
    assert_eq!(decoder.missing(b""), 4);
    assert_eq!(decoder.missing(b"\0\0"), 2);
    assert_eq!(decoder.missing(b"\0\x01\0\0"), 65_536);
    assert_eq!(decoder.missing(b"\0\0\0\x05ab"), 3);
}
