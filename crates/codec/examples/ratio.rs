//! Bytes and nanoseconds a value, by kind of values and length of row: `cargo run --release -p codec --example ratio`.

use std::time::Instant;

use codec::Codec;

fn noise(i: u64) -> f64 {
    let mut z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

fn columns(kind: &str, len: usize, rows: usize) -> Vec<Vec<f64>> {
    let row = |row: usize| {
        let mut level = (noise(row as u64) * 1000.0).round();
        (0..len as u64)
            .map(|i| {
                let step = noise(row as u64 * 100_003 + i);
                match kind {
                    "gauge, 2 decimals" => {
                        level = (level * 100.0 + (step * 20.0 - 10.0).round()).round() / 100.0;
                        level
                    }
                    "counter" => {
                        level += (step * 8.0).round();
                        level
                    }
                    "float" => step,
                    "constant" => level,
                    _ => {
                        if step < 0.9 {
                            f64::NAN
                        } else {
                            (step * 1000.0).round()
                        }
                    }
                }
            })
            .collect()
    };
    (0..rows).map(row).collect()
}

fn main() {
    println!("{:<20} {:>6} {:>12} {:>12} {:>12}", "values", "slots", "bytes/slot", "encode ns", "decode ns");
    let mut codec = Codec::new();
    for kind in ["gauge, 2 decimals", "counter", "float", "constant", "sparse, 1 in 10"] {
        for len in [3, 30, 360, 1000, 1440] {
            let rows = 300_000 / len;
            let columns = columns(kind, len, rows);
            let began = Instant::now();
            let encoded: Vec<Vec<u8>> = columns
                .iter()
                .map(|column| {
                    let mut row = Vec::new();
                    codec.encode(0, column, &[], &mut row);
                    row
                })
                .collect();
            let encode = began.elapsed();
            let mut values = vec![f64::NAN; len];
            let began = Instant::now();
            for row in &encoded {
                codec.decode(row, 0..len, &mut values, &mut []).expect("what was encoded");
            }
            let decode = began.elapsed();
            let slots = (rows * len) as f64;
            let bytes: usize = encoded.iter().map(Vec::len).sum();
            let (encode, decode) = (encode.as_secs_f64() * 1e9 / slots, decode.as_secs_f64() * 1e9 / slots);
            println!("{kind:<20} {len:>6} {:>12.3} {encode:>12.2} {decode:>12.2}", bytes as f64 / slots);
        }
    }
}
