//! Values are the same bits after encoding and decoding, and bytes that no encoder wrote are harmless.

use codec::{Codec, MAX_SLOTS, segments};
use host::{Random, SeededRandom};

fn seeded() -> SeededRandom {
    SeededRandom::new(SeededRandom::test_seed(0x5EED))
}

const KINDS: usize = 19;

/// Values of one of the usual kinds of metrics, or of an unusual one.
fn values(random: &SeededRandom, kind: usize, len: usize) -> Vec<f64> {
    let mut level = random.index(100_000) as f64;
    let mut value = |random: &SeededRandom| match kind {
        0 => {
            level += random.index(41) as f64 - 20.0;
            level / 100.0
        }
        1 => {
            level += (100 + random.index(100)) as f64;
            level
        }
        2 => 42.5,
        3 => level + 60.0,
        4 => f64::from_bits(random.bits()),
        5 => random.index(1000) as f64 / 7.0,
        6 => [-0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, 1e300][random.index(6)],
        7 if random.index(50) == 0 => -0.0,
        7 => random.index(100) as f64 / 10.0,
        8 => (random.bits() as i64) as f64,
        9 => [9_007_199_254_740_993.0, 1e18, -9.3e18, 9.3e18, 0.1 + 0.2][random.index(5)],
        10 if random.index(40) == 0 => {
            level = random.index(9) as f64;
            level
        }
        10 => level,
        11 => random.index(1_000_000_000) as f64 / 1e9,
        12 if random.index(300) == 0 => {
            level = 0.0;
            level
        }
        12 => {
            level += random.index(1_000_000_000) as f64;
            level
        }
        13 => f64::from(random.index(1 << 20) as u32) / 1024.0,
        14 => sum_of_decimals(random),
        15 if random.index(20) == 0 => f64::from_bits(random.bits()),
        15 => -sum_of_decimals(random),
        // Off by so much that some are near decimals and some are not.
        16 => off_by(random.index(9) as f64 / 10.0, random.index(1100) as i64 - 550),
        17 => off_by(random.index(3) as f64 - 1.0, random.index(20) as i64 - 10),
        // Where products and sums round, and beyond.
        _ => off_by((1_u64 << (44 + random.index(12))) as f64 / 1000.0, random.index(5) as i64 - 2),
    };
    (0..len).map(|_| value(random)).collect()
}

/// The sum of a few decimals, as an aggregation makes it.
fn sum_of_decimals(random: &SeededRandom) -> f64 {
    (0..random.index(60) + 2).map(|_| random.index(100_000) as f64 / 100.0).sum()
}

/// The double so many units in the last place away.
fn off_by(value: f64, units: i64) -> f64 {
    f64::from_bits((value.to_bits() as i64).wrapping_add(units) as u64)
}

/// Makes slots absent: none, some, most, or in stretches.
fn punch(random: &SeededRandom, values: &mut [f64]) {
    let how = random.index(6);
    let mut stretch = false;
    for value in values {
        let gone = match how {
            0 => random.index(20) == 0,
            1 => random.index(20) != 0,
            2 => {
                stretch ^= random.index(60) == 0;
                stretch
            }
            _ => false,
        };
        if gone {
            *value = f64::NAN;
        }
    }
}

fn same(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan())
}

#[test]
fn encoded_values_are_decoded_to_the_bit() {
    let random = seeded();
    let mut codec = Codec::new();
    for round in 0..4000 {
        let mut row = Vec::new();
        let mut model = vec![f64::NAN; MAX_SLOTS];
        let mut model_counts = vec![0; MAX_SLOTS];
        let counted = random.index(2) == 0;
        for _ in 0..random.index(5) + 1 {
            let len = match random.index(3) {
                0 => random.index(8),
                1 => random.index(300),
                _ => random.index(2000),
            };
            let first = random.index(MAX_SLOTS - len);
            let kind = random.index(KINDS);
            let mut values = values(&random, kind, len);
            punch(&random, &mut values);
            let varied = random.index(3);
            let count = |random: &SeededRandom| match varied {
                0 => 60,
                1 => 60 - random.index(3) as u32,
                _ => random.bits() as u32,
            };
            let counts: Vec<u32> = (0..if counted { len } else { 0 }).map(|_| count(&random)).collect();
            codec.encode(first, &values, &counts, &mut row);
            for (i, &value) in values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
                model[first + i] = value;
                model_counts[first + i] = counts.get(i).copied().unwrap_or(0);
            }
        }
        for part in 0..4 {
            let from = if part == 0 { 0 } else { random.index(MAX_SLOTS) };
            let until = if part == 0 { MAX_SLOTS } else { from + random.index(MAX_SLOTS - from + 1) };
            let mut decoded = vec![f64::NAN; until - from];
            let mut counts = vec![0; if part == 1 { 0 } else { until - from }];
            let any = codec.decode(&row, from..until, &mut decoded, &mut counts).unwrap();
            assert!(same(&decoded, &model[from..until]), "round {round}, slots {from}..{until}");
            assert_eq!(any, decoded.iter().any(|value| !value.is_nan()), "round {round}, slots {from}..{until}");
            if part != 1 {
                assert_eq!(counts, model_counts[from..until], "round {round}, slots {from}..{until}");
            }
        }
    }
}

#[test]
fn segments_are_found_without_decoding_them() {
    let mut codec = Codec::new();
    let mut row = Vec::new();
    codec.encode(7, &[f64::NAN, 1.0, f64::NAN, 2.0, f64::NAN], &[], &mut row);
    let end = row.len();
    codec.encode(0, &[f64::NAN; 9], &[], &mut row);
    assert_eq!(row.len(), end, "nothing present, nothing written");
    codec.encode(10, &vec![0.1 + 0.2; 1000], &[3; 1000], &mut row);
    let found: Vec<_> = segments(&row).map(Result::unwrap).collect();
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].slots.clone(), found[0].bytes.clone()), (8..11, 0..end));
    assert_eq!((found[1].slots.clone(), found[1].bytes.clone()), (10..1010, end..row.len()));
}

#[test]
fn few_values_take_few_bytes() {
    let check = |values: &[f64], at_most: usize| {
        let mut row = Vec::new();
        Codec::new().encode(1500, values, &[], &mut row);
        assert!(row.len() <= at_most, "{} bytes for {values:?}", row.len());
    };
    check(&[0.0], 6);
    check(&[42.0, 42.0, 42.0], 7);
    check(&[12.34, 12.40, 12.29], 9);
    check(&[100_000.0, 100_060.0, 100_125.0], 12);
    check(&[1.0 / 3.0; 3], 14);
    check(&[0.1 + 0.2, 1.1 + 2.2, 0.7 + 0.1], 15);
}

#[test]
fn each_bit_pattern_survives_also_among_decimals_and_sums_of_decimals() {
    let mut unusual = vec![-0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, f64::EPSILON];
    // Every exponent with a few fractions: subnormals, and integers that no longer are exact.
    for exponent in 0..0x7ff_u64 {
        for fraction in [0, 1, 511, 513, (1 << 52) - 1, 0x5_5555_5555_5555] {
            let value = f64::from_bits(exponent << 52 | fraction);
            unusual.extend([value, -value]);
        }
    }
    let (random, mut codec) = (seeded(), Codec::new());
    for (i, &value) in unusual.iter().enumerate() {
        // One alone, one of three and one of forty: the only value, a float, an exception.
        for (kind, len) in [(0, 1), (14, 3), (0, 40), (14, 40), (6, 40)] {
            let mut values = values(&random, kind, len);
            values[i % len] = value;
            let (mut row, mut decoded) = (Vec::new(), vec![f64::NAN; len]);
            codec.encode(0, &values, &[], &mut row);
            codec.decode(&row, 0..len, &mut decoded, &mut []).unwrap();
            assert!(same(&decoded, &values), "{value:e} in {values:?}");
        }
    }
    // Whatever its payload, a NaN is an absent slot.
    for nan in [0x7ff0_0000_0000_0001, 0x7ff8_dead_beef_0000, u64::MAX] {
        let (mut row, mut decoded) = (Vec::new(), [1.5; 3]);
        codec.encode(0, &[0.1 + 0.2, f64::from_bits(nan), 1.1 + 2.2], &[], &mut row);
        codec.decode(&row, 0..3, &mut decoded, &mut []).unwrap();
        assert_eq!(decoded, [0.1 + 0.2, 1.5, 1.1 + 2.2]);
    }
}

#[test]
fn rows_of_version_1_have_sums_of_decimals_as_doubles_and_are_read() {
    let sums: [f64; 3] = [0.1 + 0.2, 1.1 + 2.2, 0.7 + 0.1];
    // Floats, offset 5, three slots, one double each.
    let mut row = vec![0x10, 5, 3, 1];
    sums.iter().for_each(|sum| row.extend_from_slice(&sum.to_le_bytes()));
    Codec::new().encode(8, &sums, &[], &mut row);
    assert_eq!(row[28] >> 3 & 3, 3, "version 2 has them near decimals");
    let mut decoded = [0.0; 6];
    assert_eq!(Codec::new().decode(&row, 5..11, &mut decoded, &mut []), Ok(true));
    assert!(same(&decoded, &[sums, sums].concat()));
}

#[test]
fn damaged_bytes_never_panic_and_never_take_much() {
    let random = seeded();
    let mut codec = Codec::new();
    let mut decoded = vec![0.0; MAX_SLOTS];
    let mut counts = vec![0; MAX_SLOTS];
    for round in 0..6000 {
        let mut row = Vec::new();
        for _ in 0..random.index(3) + 1 {
            let len = if round % 3 == 0 { random.index(1200) } else { random.index(40) };
            let kind = random.index(KINDS);
            let mut values = values(&random, kind, len);
            punch(&random, &mut values);
            let counts = if random.index(2) == 0 { vec![60; len] } else { vec![] };
            codec.encode(random.index(100), &values, &counts, &mut row);
        }
        for _ in 0..random.index(4) + 1 {
            match random.index(4) {
                _ if row.is_empty() => row.push(random.bits() as u8),
                0 => row.truncate(random.index(row.len())),
                1 => {
                    let i = random.index(row.len());
                    row[i] = random.bits() as u8;
                }
                2 => {
                    // A single bit has the largest effect in a head.
                    let i = random.index(row.len().min(12));
                    row[i] ^= 1 << random.index(8);
                }
                _ => {
                    let i = random.index(row.len() + 1);
                    row.insert(i, [0, 0x80, 0xff][random.index(3)]);
                }
            }
        }
        let from = random.index(200);
        let until = from + random.index(1500);
        let len = until - from;
        let _ = codec.decode(&row, from..until, &mut decoded[..len], &mut counts[..len]);
        for segment in segments(&row).flatten() {
            assert!(segment.slots.end <= MAX_SLOTS && segment.bytes.end <= row.len());
        }
    }
}

#[test]
fn noise_is_damaged_or_decodes_to_something() {
    let random = seeded();
    let mut codec = Codec::new();
    let mut decoded = vec![0.0; 100];
    for _ in 0..20_000 {
        let row: Vec<u8> = (0..random.index(60)).map(|_| random.bits() as u8).collect();
        let _ = codec.decode(&row, 0..100, &mut decoded, &mut []);
    }
}
