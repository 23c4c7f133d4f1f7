//! Nanoseconds and allocations per point of every decoder, and per decision of the rules:
//! `cargo run --release -p carbon --example parse`.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use carbon::{FrameDecoder, LineDecoder, RejectReason, RuleFiles, Rules, Sink, encode, pickle, protobuf};
use metric::Point;

/// Counts allocations, so that "none" is a measurement.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Takes a little of everything, so that nothing is optimised away.
#[derive(Default)]
struct Sum {
    points: u64,
    name_bytes: u64,
    times: i64,
    values: f64,
}

impl Sink for Sum {
    #[inline]
    fn point(&mut self, name: &[u8], time: i64, value: f64) {
        self.points += 1;
        self.name_bytes += name.len() as u64;
        self.times ^= time;
        self.values += value;
    }

    fn reject(&mut self, reason: RejectReason, sample: &[u8]) {
        panic!("{reason}: {}", sample.escape_ascii());
    }
}

const ROUNDS: u64 = 20;
const TIMES: u64 = 200;
const NOW: i64 = 1_700_000_000;

/// Prints the best of many short times, so that a busy machine disturbs little.
fn measure(what: &str, per_round: u64, mut round: impl FnMut()) {
    round();
    let mut best = f64::INFINITY;
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..TIMES {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            round();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / (ROUNDS * per_round) as f64);
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    let per_point = allocations as f64 / (TIMES * ROUNDS * per_round) as f64;
    println!("{what:<44} {best:>7.1} ns   {per_point:.3} allocations");
}

type NamedPoints = Vec<(Vec<u8>, Point)>;

/// A thousand points of different names and values of a kind; what a collector sends in a minute.
fn points(value: impl Fn(u64) -> f64) -> NamedPoints {
    (0..1000u64)
        .map(|i| {
            let name = format!("servers.dc{}.web{:03}.cpu.{}.user", i % 3, i % 100, i % 8);
            (
                name.into_bytes(),
                Point { time: NOW - (i as i64 % 60), value: value(i.wrapping_mul(2_654_435_761) % 10_000) },
            )
        })
        .collect()
}

fn main() {
    let kinds: [(&str, NamedPoints); 3] = [
        ("small integers", points(|i| i as f64)),
        ("two decimals", points(|i| i as f64 / 100.0)),
        ("sixteen digits", points(|i| (i + 1) as f64 / 7.0)),
    ];
    for (kind, points) in &kinds {
        let mut stream = Vec::new();
        points.iter().for_each(|(name, point)| encode::line(&mut stream, name, point.time, point.value));
        let mut sum = Sum::default();
        let mut decoder = LineDecoder::new();
        let what = format!("line, {kind}, {} bytes", stream.len() / points.len());
        measure(&what, 1000, || assert_eq!(decoder.decode(black_box(&stream), NOW, &mut sum), stream.len()));
        black_box(sum.times);
    }
    let (_, points) = &kinds[1];
    let stream: Vec<u8> = points
        .iter()
        .flat_map(|(name, point)| [&name[..], format!(" {} {}.25\n", point.value, point.time).as_bytes()].concat())
        .collect();
    let mut sum = Sum::default();
    let mut decoder = LineDecoder::new();
    measure("line, fractions of seconds", 1000, || {
        decoder.decode(black_box(&stream), NOW, &mut sum);
    });
    let stream: Vec<u8> = points
        .iter()
        .flat_map(|(name, point)| [&name[..], format!("  {}\t{}\r\n", point.value, point.time).as_bytes()].concat())
        .collect();
    let mut sum = Sum::default();
    let mut decoder = LineDecoder::new();
    measure("line, other blanks (the slow way)", 1000, || {
        decoder.decode(black_box(&stream), NOW, &mut sum);
    });

    let borrowed = || points.iter().map(|(name, point)| (&name[..], *point));
    let mut frame = Vec::new();
    encode::pickle(&mut frame, borrowed());
    let mut decoder = pickle::Decoder::new();
    let mut framer = FrameDecoder::default();
    let mut sum = Sum::default();
    measure("pickle, frames of 1000", 1000, || {
        framer.decode(black_box(&frame), &mut sum, |body, sum| decoder.decode(body, NOW, sum));
    });
    let singles: Vec<u8> = borrowed()
        .flat_map(|point| {
            let mut frame = Vec::new();
            encode::pickle(&mut frame, [point]);
            frame
        })
        .collect();
    measure("pickle, frames of one", 1000, || {
        framer.decode(black_box(&singles), &mut sum, |body, sum| decoder.decode(body, NOW, sum));
    });

    let mut frame = Vec::new();
    encode::protobuf(&mut frame, points.iter().map(|(name, point)| (&name[..], std::slice::from_ref(point))));
    measure("protobuf, one point a metric", 1000, || {
        framer.decode(black_box(&frame), &mut sum, protobuf::decode);
    });
    black_box((sum.points, sum.name_bytes, sum.values));

    let schemas: String = [
        r"^carbon\.",
        r"^stats\.gauges\.",
        r"^stats\.timers\.",
        r"^stats.counters.*",
        r"\.60s$",
        r"^collectd\.[^.]+\.df",
        r"^apps\.(prod|stage)\.",
        r"^servers\.[^.]+\.[^.]+\.disk\.",
        r"^servers\.",
        ".*",
    ]
    .iter()
    .enumerate()
    .map(|(i, pattern)| format!("[{i}]\npattern = {pattern}\nretentions = 60s:{}d\n", i + 1))
    .collect();
    let aggregation = "[min]\npattern = \\.min$\naggregationMethod = min\n[max]\npattern = \\.max$\naggregationMethod = max\n[sum]\npattern = \\.count$\naggregationMethod = sum\n[rest]\npattern = .*\n";
    let files = RuleFiles { schemas: Some(&schemas), aggregation: Some(aggregation), ..RuleFiles::default() };
    let (rules, _) = Rules::parse(files).expect("good files");
    let names: Vec<&str> = points.iter().map(|(name, _)| std::str::from_utf8(name).expect("ASCII")).collect();
    measure("a decision of 10 schemas and 4 aggregations", 1000, || {
        for name in &names {
            black_box(rules.decide(black_box(name)));
        }
    });
}
