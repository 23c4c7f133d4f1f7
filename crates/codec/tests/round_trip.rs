//! Whatever is encoded is decoded to the bit, in any part, and no bytes make the decoder panic.
//!
//! Every run prints its seed; `SEED=…` repeats one.

use std::time::{SystemTime, UNIX_EPOCH};

use codec::Codec;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

fn seed() -> u64 {
    let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64);
    println!("SEED={seed}");
    seed
}

fn column(random: &mut Random, len: usize) -> Vec<f64> {
    const STRANGE: [f64; 8] =
        [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, f64::MAX, 5e-324, 9_007_199_254_740_993.0];
    let kind = random.below(9);
    let sparse = [1, 1, 1, 2, 10][random.below(5) as usize];
    let mut walk = random.below(1_000_000) as f64;
    (0..len)
        .map(|_| {
            if random.below(sparse) != 0 {
                return f64::NAN;
            }
            walk += random.below(21) as f64 - 10.0;
            match kind {
                0 => walk,
                1 => walk / 100.0,
                2 => 42.5,
                3 => f64::from_bits(random.next()),
                4 => STRANGE[random.below(8) as usize],
                5 => (random.next() >> 11) as f64 / (1u64 << 53) as f64,
                6 => walk * 1e15,
                7 => (walk / 7.0 * 1e6).round() / 1e6,
                _ => {
                    if random.below(50) == 0 {
                        f64::from_bits(random.next())
                    } else {
                        walk / 10.0
                    }
                }
            }
        })
        .collect()
}

fn same(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a.is_nan() && b.is_nan()) || a.to_bits() == b.to_bits())
}

#[test]
fn what_is_encoded_is_decoded_to_the_bit_in_any_part() {
    let mut random = Random(seed());
    let mut codec = Codec::new();
    for _ in 0..3000 {
        let mut row = Vec::new();
        let mut wanted = vec![f64::NAN; 2000];
        let mut wanted_counts = vec![0; 2000];
        let counted = random.below(2) == 0;
        for _ in 0..1 + random.below(4) {
            let first = random.below(1500) as usize;
            let longest = [3, 40, 500][random.below(3) as usize];
            let len = 1 + random.below(longest) as usize;
            let values = column(&mut random, len);
            let counts: Vec<u32> = (0..if counted { len } else { 0 })
                .map(|_| if random.below(9) == 0 { random.next() as u32 } else { 60 })
                .collect();
            codec.encode(first, &values, &counts, &mut row);
            for (i, &value) in values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
                wanted[first + i] = value;
                wanted_counts[first + i] = counts.get(i).copied().unwrap_or(0);
            }
        }
        let from = random.below(2000) as usize;
        let until = from + random.below(2001 - from as u64) as usize;
        for slots in [0..2000, from..until] {
            let mut values = vec![f64::NAN; slots.len()];
            let mut counts = vec![0; if counted { slots.len() } else { 0 }];
            let any = codec.decode(&row, slots.clone(), &mut values, &mut counts).unwrap();
            assert!(same(&values, &wanted[slots.clone()]), "{slots:?}");
            assert!(any || values.iter().all(|value| value.is_nan()));
            if counted {
                assert_eq!(counts, &wanted_counts[slots.clone()]);
            }
        }
    }
}

#[test]
fn no_bytes_make_the_decoder_panic() {
    let mut random = Random(seed());
    let mut codec = Codec::new();
    let (mut values, mut counts) = (vec![0.0; 4096], vec![0; 4096]);
    for _ in 0..20_000 {
        let mut row = Vec::new();
        let len = 1 + random.below(300) as usize;
        let column = column(&mut random, len);
        codec.encode(random.below(1000) as usize, &column, &vec![7; len], &mut row);
        for _ in 0..1 + random.below(4) {
            if row.is_empty() {
                break;
            }
            let at = random.below(row.len() as u64) as usize;
            match random.below(3) {
                0 => row[at] = random.next() as u8,
                1 => row.truncate(at),
                _ => row.insert(at, random.next() as u8),
            }
        }
        let _ = codec.decode(&row, 0..4096, &mut values, &mut counts);
        assert!(codec::segments(&row).count() <= row.len());
    }
}
