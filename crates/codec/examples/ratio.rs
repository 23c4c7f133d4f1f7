//! How many bytes a point takes and how long it takes, by kind of data and length of row:
//! `cargo run --release -p codec --example ratio`.

use std::time::Instant;

use codec::Codec;
use host::{Random, SeededRandom};

const ROWS: usize = 400;

/// Near enough to a normal distribution: the sum of twelve numbers.
fn normal(random: &SeededRandom) -> f64 {
    (0..12).map(|_| random.unit()).sum::<f64>() - 6.0
}

fn row(random: &SeededRandom, kind: &str, slots: usize) -> Vec<f64> {
    let mut level = (random.unit() * 10_000.0).round();
    let mut next = |random: &SeededRandom| match kind {
        "gauge" => {
            level += (normal(random) * 20.0).round();
            level / 100.0
        }
        "counter" => {
            level += (100.0 + random.unit() * 100.0).round();
            level
        }
        "float" => {
            level += normal(random);
            level / 3.0
        }
        "sparse" if random.unit() < 0.7 => f64::NAN,
        "sparse" => (random.unit() * 1000.0).round() / 10.0,
        "constant" => 42.0,
        _ => unreachable!("a kind of the list"),
    };
    (0..slots).map(|_| next(random)).collect()
}

fn main() {
    let random = SeededRandom::new(0x5EED);
    let mut codec = Codec::new();
    println!("{:>9} {:>6} {:>8} {:>12} {:>12}", "kind", "slots", "B/point", "encode ns/pt", "decode ns/pt");
    for kind in ["gauge", "counter", "float", "sparse", "constant"] {
        for slots in [3, 30, 100, 360, 500, 1000, 1440, 2000] {
            let rows: Vec<Vec<f64>> = (0..ROWS).map(|_| row(&random, kind, slots)).collect();
            let points: usize = rows.iter().map(|row| row.iter().filter(|value| !value.is_nan()).count()).sum();
            let mut encoded: Vec<Vec<u8>> = vec![Vec::new(); ROWS];
            // The fastest of several: the machine has other work.
            let encode = fastest(|| {
                for (row, bytes) in rows.iter().zip(&mut encoded) {
                    bytes.clear();
                    codec.encode(100, row, &[], bytes);
                }
            });
            let mut decoded = vec![f64::NAN; slots];
            let decode = fastest(|| {
                for bytes in &encoded {
                    codec.decode(bytes, 100..100 + slots, &mut decoded, &mut []).expect("what was encoded");
                }
            });
            let bytes: usize = encoded.iter().map(Vec::len).sum();
            let per_point = |n: f64| n / points as f64;
            println!(
                "{kind:>9} {slots:>6} {:>8.3} {:>12.1} {:>12.2}",
                per_point(bytes as f64),
                per_point(encode),
                per_point(decode)
            );
        }
    }
}

fn fastest(mut run: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        run();
        start.elapsed().as_nanos() as f64
    };
    (0..7).map(time).fold(f64::INFINITY, f64::min)
}
