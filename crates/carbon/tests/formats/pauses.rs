//! Sinks that have no room, and decoders that have no memory: they get everything once, a little later.

use carbon::{FrameDecoder, LineDecoder, Progress, RejectReason, Sink, encode, pickle, protobuf};
use host::{Random, SeededRandom};
use metric::Point;

use crate::seen::{NOW, Seen, seen};

/// Has room for some points, and then none until it is emptied.
struct Narrow<'a> {
    seen: Seen,
    room: usize,
    random: &'a SeededRandom,
}

impl<'a> Narrow<'a> {
    fn new(random: &'a SeededRandom) -> Narrow<'a> {
        Narrow { seen: Seen::default(), room: 0, random }
    }

    fn empty(&mut self) {
        assert_eq!(self.room, 0, "a decoder that stops had no room");
        self.room = 1 + self.random.index(7);
    }
}

impl Sink for Narrow<'_> {
    fn point(&mut self, name: &[u8], time: i64, value: f64) {
        self.room = self.room.checked_sub(1).expect("no point comes without room");
        self.seen.point(name, time, value);
    }

    fn reject(&mut self, reason: RejectReason, sample: &[u8]) {
        self.seen.reject(reason, sample);
    }

    fn has_room(&mut self, _: usize) -> bool {
        0 < self.room
    }
}

fn points(random: &SeededRandom) -> Vec<(Vec<u8>, Vec<Point>)> {
    let point = |_| Point { time: random.index(1000) as i64, value: *random.choose(&[&1.5, &f64::NAN, &-7.0]) };
    let some = |_| (0..random.index(12)).map(point).collect();
    (0..random.index(30)).map(|i| (vec![b'a'; random.index(i + 1)], some(i))).collect()
}

#[test]
fn lines_wait_for_room() {
    for seed in 1..300 {
        let random = SeededRandom::new(seed);
        let mut stream = Vec::new();
        for (name, points) in points(&random) {
            points.iter().for_each(|point| encode::line(&mut stream, &name, point.time, point.value));
        }
        stream.extend(b"the.rest 1 2");
        let whole = seen(|sink| LineDecoder::new().finish(&stream, NOW, sink));
        let (mut decoder, mut sink, mut rest) = (LineDecoder::new(), Narrow::new(&random), &stream[..]);
        while rest.contains(&b'\n') {
            sink.empty();
            rest = &rest[decoder.decode(rest, NOW, &mut sink)..];
        }
        sink.room = 1;
        decoder.finish(rest, NOW, &mut sink);
        assert_eq!(sink.seen.text, whole, "seed {seed}");
    }
}

/// Frames of one format, each followed by another.
fn frames(random: &SeededRandom, write: impl Fn(&mut Vec<u8>, &[(Vec<u8>, Vec<Point>)])) -> Vec<u8> {
    let mut stream = Vec::new();
    (0..4).for_each(|_| write(&mut stream, &points(random)));
    stream
}

#[test]
fn payloads_wait_for_room() {
    for seed in 1..300 {
        let random = SeededRandom::new(seed);
        let stream = frames(&random, |out, metrics| {
            encode::protobuf(out, metrics.iter().map(|(name, points)| (&name[..], &points[..])));
        });
        let whole = seen(|sink| {
            FrameDecoder::default().decode(&stream, sink, protobuf::decode);
        });
        let (mut frames, mut decoder) = (FrameDecoder::default(), protobuf::Decoder::new());
        let (mut sink, mut rest) = (Narrow::new(&random), &stream[..]);
        loop {
            let (consumed, progress) = frames.decode_while(rest, &mut sink, |frame, sink| decoder.decode(frame, sink));
            rest = &rest[consumed..];
            match progress {
                Progress::SinkFull => sink.empty(),
                Progress::Done => break,
                Progress::NeedsMemory(_) => panic!("a payload needs none"),
            }
        }
        assert_eq!((sink.seen.text, rest.len()), (whole, 0), "seed {seed}");
    }
}

/// Decodes a pickle with little memory first and as much as it asks for next, for a sink with little room.
fn in_small_steps(frame: &[u8], random: &SeededRandom) -> (String, usize) {
    let (mut decoder, mut sink) = (pickle::Decoder::new(), Narrow::new(random));
    let mut allowed = 0;
    loop {
        match decoder.decode_within(frame, NOW, &mut sink, allowed) {
            Progress::SinkFull => sink.empty(),
            Progress::Done => return (sink.seen.text, allowed),
            Progress::NeedsMemory(bytes) => {
                assert!(allowed < bytes, "it asks for more, not for {bytes}");
                allowed = bytes;
                if random.index(2) == 0 {
                    decoder.release_memory();
                }
            }
        }
        assert!(decoder.memory_bytes() <= allowed + 16_384, "{} of {allowed} bytes", decoder.memory_bytes());
    }
}

#[test]
fn pickles_wait_for_room_and_memory() {
    for seed in 1..300 {
        let random = SeededRandom::new(seed);
        let mut frame = Vec::new();
        let points = points(&random);
        let each = points.iter().flat_map(|(name, points)| points.iter().map(|point| (&name[..], *point)));
        encode::pickle(&mut frame, each);
        let whole = seen(|sink| pickle::decode(&frame[4..], NOW, sink));
        assert_eq!(in_small_steps(&frame[4..], &random).0, whole, "seed {seed}");
    }
}

#[test]
fn recorded_pickles_wait_for_room_and_memory() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pickles");
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let frame = std::fs::read(&path).unwrap();
        let whole = seen(|sink| pickle::decode(&frame, NOW, sink));
        for seed in 1..20 {
            assert_eq!(in_small_steps(&frame, &SeededRandom::new(seed)).0, whole, "{}", path.display());
        }
    }
}

#[test]
fn random_programs_wait_for_room_and_memory() {
    let opcodes = b".(0124KMJGUVNee])eattuuqqhhRp\x85\x86\x86\x86\x87\x88\x94\x94\n\0\x01\x02";
    for seed in 1..5_000 {
        let random = SeededRandom::new(seed);
        let mut frame = b"](".to_vec();
        frame.extend((0..random.index(400)).map(|_| opcodes[random.index(opcodes.len())]));
        frame.extend(b"e.");
        let whole = seen(|sink| pickle::decode(&frame, NOW, sink));
        assert_eq!(in_small_steps(&frame, &random).0, whole, "seed {seed}");
    }
}

#[test]
fn a_pickle_of_nothing_but_values_asks_before_it_takes() {
    let frame = [&[b'N'; 1 << 20][..], b"."].concat();
    let random = SeededRandom::new(1);
    let (text, allowed) = in_small_steps(&frame, &random);
    assert!(text.starts_with("bad_pickle"));
    assert!((16 << 20..64 << 20).contains(&allowed), "{allowed}");
    let mut decoder = pickle::Decoder::new();
    let progress = decoder.decode_within(&frame, NOW, &mut Seen::default(), 1 << 20);
    assert!(matches!(progress, Progress::NeedsMemory(bytes) if 1 << 20 < bytes));
    assert!(decoder.memory_bytes() <= 1 << 20);
}
