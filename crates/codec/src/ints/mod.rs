//! A sequence of integers, in the form that takes the fewest bytes for its length.
//!
//! The forms, smallest first where they apply:
//!
//! 0. *linear*: the first and a step. Constants, and counters of constant rate.
//! 1. *short*: the first, then differences as varints. A few values.
//! 2. *packed*: numbers or differences above their minimum, in one width of bits.
//! 3. *pco*: the same, entropy-coded by pco. Long rows; its tables cost some thirty bytes.
//! 4. *runs*: a difference and how often the value repeats. Steps, and counts with a short tail.
//!
//! Differences are computed here, not by pco, because they fit a narrow type: a table entry takes 16 bits for a
//! 16-bit number and 64 for a 64-bit number. At 1,000 values that saves 3 to 4 % of the bytes, and decoding is faster.

mod decode;
mod encode;

pub(crate) use decode::Ints;
pub(crate) use encode::{Scratch, encode};

const LINEAR: u8 = 0;
const SHORT: u8 = 1;
const PACKED: u8 = 2;
const PCO: u8 = 3;
const RUNS: u8 = 4;

/// Set in the form byte when differences are coded, clear when the numbers themselves are.
const DIFFERENCES: u8 = 1 << 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Reader;

    fn check(numbers: &[i64], form: u8, at_most: usize) {
        let mut bytes = Vec::new();
        encode(numbers, &mut Scratch::default(), &mut bytes);
        assert_eq!(bytes[0] & 7, form, "form of {numbers:?}");
        assert!(bytes.len() <= at_most, "{} bytes for {numbers:?}", bytes.len());
        for end in [0, 1, numbers.len() / 2, numbers.len()] {
            let mut reader = Reader::new(&bytes);
            let ints = Ints::parse(numbers.len(), &mut reader).unwrap();
            assert!(reader.is_empty());
            let mut decoded = Vec::new();
            ints.decode(end, |from, batch| {
                assert_eq!(from, decoded.len());
                decoded.extend_from_slice(batch);
            })
            .unwrap();
            assert_eq!(decoded, numbers[..end]);
        }
    }

    /// Numbers without a pattern below `limit`.
    fn noise(n: usize, limit: u64) -> impl Iterator<Item = i64> {
        (1..=n as u64).map(move |i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as i64 % limit as i64)
    }

    #[test]
    fn each_form_is_chosen_where_it_is_smallest() {
        check(&[5], LINEAR, 2);
        check(&[-7; 1000], LINEAR, 3);
        check(&(0..1000).map(|i| 100_000 + 60 * i).collect::<Vec<_>>(), LINEAR, 6);
        check(&[1000, 1010, 999], SHORT, 5);
        check(&noise(100, 128).collect::<Vec<_>>(), PACKED, 95);
        let counter = |n, limit| noise(n, limit).scan(0, |sum, step| Some(std::mem::replace(sum, *sum + step)));
        check(&counter(100, 128).collect::<Vec<_>>(), PACKED, 95);
        check(&counter(1000, 5).map(|i| i * 40).collect::<Vec<_>>(), PCO, 400);
        check(&counter(1000, 7).map(|i| i * 1_000_003).collect::<Vec<_>>(), PCO, 500);
        check(&counter(1000, 7).map(|i| i * 10_000_000_019).collect::<Vec<_>>(), PCO, 600);
        let tail: Vec<i64> = [60; 999].into_iter().chain([17]).collect();
        check(&tail, RUNS, 8);
    }

    #[test]
    fn the_whole_range_of_integers_survives() {
        let extremes = [i64::MIN, i64::MAX, 0, -1, 1, i64::MAX, i64::MIN, i64::MIN, 77];
        check(&extremes, SHORT, 100);
        let long: Vec<i64> = (0..500).map(|i| extremes[i * 7 % 9].wrapping_add(i as i64)).collect();
        let mut bytes = Vec::new();
        encode(&long, &mut Scratch::default(), &mut bytes);
        let mut decoded = Vec::new();
        let ints = Ints::parse(500, &mut Reader::new(&bytes)).unwrap();
        ints.decode(500, |_, batch| decoded.extend_from_slice(batch)).unwrap();
        assert_eq!(decoded, long);
    }
}
