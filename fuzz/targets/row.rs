//! Rows: any bytes decode or are damaged; encoded values decode to the bit, in whole and in part.
#![no_main]

use codec::{Codec, MAX_SLOTS, segments};
use libfuzzer_sys::fuzz_target;

fn bits(values: &[f64]) -> Vec<Option<u64>> {
    values.iter().map(|value| (!value.is_nan()).then(|| value.to_bits())).collect()
}

/// Any bytes at all.
fn decode(row: &[u8]) {
    let mut codec = Codec::new();
    let mut values = vec![f64::NAN; MAX_SLOTS];
    let mut counts = vec![0; MAX_SLOTS];
    let decoded = codec.decode(row, 0..MAX_SLOTS, &mut values, &mut counts);
    let found: Result<Vec<_>, _> = segments(row).collect();
    let Ok(found) = found else { return assert!(decoded.is_err()) };
    let mut end = 0;
    for segment in found {
        assert_eq!(segment.bytes.start, end);
        assert!(segment.slots.end <= MAX_SLOTS);
        end = segment.bytes.end;
    }
    assert_eq!(end, row.len());
}

/// Segments of values of every kind, made from the input.
fn encode(input: &[u8]) {
    let mut codec = Codec::new();
    let mut row = Vec::new();
    let mut expected = vec![f64::NAN; MAX_SLOTS];
    let mut expected_counts = vec![0u32; MAX_SLOTS];
    for piece in input.chunks(200) {
        let [kind, first_high, first_low, numbers @ ..] = piece else { break };
        let first = usize::from(u16::from_be_bytes([*first_high, *first_low])) % (MAX_SLOTS - 200);
        let values: Vec<f64> = match kind % 4 {
            // Near decimals: two bytes of the integer, and a distance.
            1 if kind & 0x80 != 0 => numbers
                .chunks_exact(3)
                .map(|n| f64::from(i16::from_be_bytes([n[0], n[1]])) / 100.0)
                .zip(numbers.chunks_exact(3).map(|n| i64::from(n[2] as i8)))
                .map(|(decimal, distance)| f64::from_bits((decimal.to_bits() as i64).wrapping_add(distance) as u64))
                .collect(),
            0 => numbers.iter().map(|&n| if n == 255 { f64::NAN } else { f64::from(n) }).collect(),
            1 => numbers.iter().map(|&n| f64::from(n as i8) / 100.0).collect(),
            2 => numbers.chunks_exact(2).map(|n| f64::from(u16::from_be_bytes([n[0], n[1]])) * 1e7 / 7.0).collect(),
            _ => numbers
                .chunks_exact(8)
                .map(|n| f64::from_bits(u64::from_be_bytes(n.try_into().expect("eight bytes"))))
                .collect(),
        };
        let counts: Vec<u32> = match kind & 4 {
            0 => Vec::new(),
            _ => values.iter().enumerate().map(|(i, _)| u32::from(numbers[i]) << (kind >> 3 & 15)).collect(),
        };
        codec.encode(first, &values, &counts, &mut row);
        for (i, value) in values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
            expected[first + i] = *value;
            if let Some(count) = counts.get(i) {
                expected_counts[first + i] = *count;
            }
        }
    }
    let middle = input.len() % MAX_SLOTS;
    for slots in [0..MAX_SLOTS, 0..middle, middle..MAX_SLOTS, middle..(middle + 1).min(MAX_SLOTS)] {
        let mut values = vec![f64::NAN; slots.len()];
        let mut counts = vec![0; slots.len()];
        codec.decode(&row, slots.clone(), &mut values, &mut counts).expect("encoded values");
        assert_eq!(bits(&values), bits(&expected[slots.clone()]));
        assert_eq!(counts, expected_counts[slots]);
    }
}

fuzz_target!(|input: &[u8]| {
    match input.split_first() {
        Some((b'e', input)) => encode(input),
        _ => decode(input),
    }
});
