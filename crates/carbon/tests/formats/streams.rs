//! Random streams in random pieces: where a read ends must change nothing, and no bytes may panic.

use carbon::{FrameDecoder, LineDecoder, parse_datagram, pickle, protobuf};

use host::{Random, SeededRandom};

use crate::seen::{NOW, Seen, seen};

/// Good lines, bad lines, long lines, all kinds of blanks.
fn lines(random: &SeededRandom) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..random.index(40) {
        match random.index(12) {
            0 => stream.extend(vec![b'x'; random.index(60_000)]),
            1 => stream.extend((0..random.index(50)).map(|_| random.index(256) as u8)),
            _ => {
                stream.extend_from_slice(random.choose(&[
                    &b"a.b.c"[..],
                    b"servers.dc1.web01.cpu.0.user",
                    b"\xc3\xa9",
                    b"\xff",
                    b"n;a=b",
                ]));
                stream.extend_from_slice(random.choose(&[&b" "[..], b" ", b" ", b"\t", b"  ", b"\xc2\xa0", b""]));
                stream.extend_from_slice(random.choose(&[
                    &b"1"[..],
                    b"-2.5",
                    b"nan",
                    b"1e5",
                    b"0.30000000000000004",
                    b"x",
                    b"",
                ]));
                stream.extend_from_slice(random.choose(&[&b" "[..], b" ", b" ", b"\t "]));
                stream.extend_from_slice(random.choose(&[
                    &b"1700000000"[..],
                    b"1700000000",
                    b"-1",
                    b"17.5",
                    b"N",
                    b"1 2",
                ]));
            }
        }
        stream.extend_from_slice(random.choose(&[&b"\n"[..], b"\n", b"\n", b"\r\n", b"\n\n", b" \n"]));
    }
    // Sometimes the last line has no LF.
    stream.truncate(stream.len() - random.index(2).min(stream.len()));
    stream
}

/// Feeds a stream in pieces, keeping what is not consumed.
fn in_pieces(
    stream: &[u8],
    random: &SeededRandom,
    mut decode: impl FnMut(&[u8], &mut Seen) -> usize,
) -> (Vec<u8>, Seen) {
    let mut rest = stream;
    let mut buffer = Vec::new();
    let mut seen = Seen::default();
    let longest = *random.choose(&[&3, &100, &20_000]);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.len().min(1 + random.index(longest)));
        rest = after;
        buffer.extend_from_slice(piece);
        let consumed = decode(&buffer, &mut seen);
        buffer.drain(..consumed);
    }
    (buffer, seen)
}

#[test]
fn lines_in_pieces_are_the_same_as_lines_at_once() {
    for seed in 1..300 {
        let random = SeededRandom::new(seed);
        let stream = lines(&random);
        let whole = seen(|sink| LineDecoder::new().finish(&stream, NOW, sink));
        let mut decoder = LineDecoder::new();
        let (rest, mut pieces) = in_pieces(&stream, &random, |buffer, sink| decoder.decode(buffer, NOW, sink));
        decoder.finish(&rest, NOW, &mut pieces);
        assert_eq!(pieces.text, whole, "seed {seed}");
    }
}

#[test]
fn frames_in_pieces_are_the_same_as_frames_at_once() {
    for seed in 1..300 {
        let random = SeededRandom::new(seed);
        let mut stream = Vec::new();
        for _ in 0..random.index(20) {
            let length = random.index(600);
            stream.extend((length as u32).to_be_bytes());
            stream.extend((0..length).map(|_| random.index(256) as u8));
        }
        stream.truncate(stream.len() - random.index(9).min(stream.len()));
        let show = |body: &[u8], sink: &mut Seen| sink.text += &format!("frame {}\n", body.escape_ascii());
        let without_samples = |text: String| -> Vec<String> {
            text.lines().map(|line| line.split(": ").next().unwrap().to_owned()).collect()
        };
        let whole = seen(|sink| {
            let mut decoder = FrameDecoder::new(500);
            let consumed = decoder.decode(&stream, sink, show);
            decoder.finish(&stream[consumed..], sink);
        });
        let mut decoder = FrameDecoder::new(500);
        let (rest, mut pieces) = in_pieces(&stream, &random, |buffer, sink| decoder.decode(buffer, sink, show));
        decoder.finish(&rest, &mut pieces);
        // What is shown of a frame that is too long depends on how much of it was there.
        assert_eq!(without_samples(pieces.text), without_samples(whole), "seed {seed}");
    }
}

#[test]
fn no_bytes_panic() {
    let opcodes = b".(01234KMJGXUTSVILFN]})letasuqrhjgpcRob\x80\x81\x85\x86\x87\x88\x8a\x8c\x94\x95'\n\0\x01\x02\xff";
    let mut seen = Seen::default();
    let mut decoder = pickle::Decoder::new();
    for seed in 1..30_000 {
        let random = SeededRandom::new(seed);
        let bytes: Vec<u8> = (0..random.index(60))
            .map(|_| if seed % 2 == 0 { random.index(256) as u8 } else { opcodes[random.index(opcodes.len())] })
            .collect();
        LineDecoder::new().finish(&bytes, NOW, &mut seen);
        parse_datagram(&bytes, NOW, &mut seen);
        decoder.decode(&bytes, NOW, &mut seen);
        protobuf::decode(&bytes, &mut seen);
        FrameDecoder::new(40).decode(&bytes, &mut seen, |_, _| {});
        seen.text.clear();
    }
}
