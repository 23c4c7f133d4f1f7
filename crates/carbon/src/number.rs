//! Numbers as carbon reads them: Python's `float()`, with a quick way for what senders really write.

use metric::Timestamp;

/// Powers of ten that a double holds exactly.
const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// Times are kept within this, so that sums and differences of them cannot overflow. Later and earlier times are far
/// outside every retention.
const FARTHEST_TIME: f64 = 9_007_199_254_740_992.0;

/// Not a timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotATime;

/// A number as Python's `float()` reads it, or `None`. Unicode digits are not read.
#[inline]
pub(crate) fn parse_float(field: &[u8]) -> Option<f64> {
    match parse_short_decimal(field) {
        Some(value) => Some(value),
        None => parse_any_float(field),
    }
}

/// A timestamp: seconds, floored. A number that truncates to -1 means `now`, as in carbon.
#[inline]
pub(crate) fn parse_time(field: &[u8], now: Timestamp) -> Result<Timestamp, NotATime> {
    time_of(parse_float(field).ok_or(NotATime)?, now)
}

/// Ten digits as a number: every timestamp between 2001 and 2286.
#[inline]
pub(crate) fn ten_digits(&[a, b, c, d, e, f, g, h, i, j]: &[u8; 10]) -> Option<Timestamp> {
    let high = eight_digits(u64::from_le_bytes([a, b, c, d, e, f, g, h]))?;
    let (i, j) = (i.wrapping_sub(b'0'), j.wrapping_sub(b'0'));
    let is_number = i < 10 && j < 10;
    is_number.then(|| Timestamp::from(high) * 100 + Timestamp::from(i * 10 + j))
}

/// The timestamp that a float means.
#[inline]
pub(crate) fn time_of(seconds: f64, now: Timestamp) -> Result<Timestamp, NotATime> {
    if !seconds.is_finite() {
        return Err(NotATime);
    }
    if seconds.trunc() == -1.0 {
        return Ok(now);
    }
    Ok(seconds.floor().clamp(-FARTHEST_TIME, FARTHEST_TIME) as Timestamp)
}

/// The timestamp that an integer means.
#[inline]
pub(crate) fn time_of_integer(seconds: i64, now: Timestamp) -> Timestamp {
    if seconds == -1 { now } else { seconds.clamp(-(FARTHEST_TIME as i64), FARTHEST_TIME as i64) }
}

/// Eight ASCII digits, first digit in the lowest byte, as a number; `None` when one of them is not a digit.
/// Three multiplications instead of eight, after Johnny Lee's and Daniel Lemire's descriptions of the trick.
#[inline]
fn eight_digits(text: u64) -> Option<u32> {
    let all_digits = (text & 0xf0f0_f0f0_f0f0_f0f0) == 0x3030_3030_3030_3030
        && (text.wrapping_add(0x0606_0606_0606_0606) & 0xf0f0_f0f0_f0f0_f0f0) == 0x3030_3030_3030_3030;
    if !all_digits {
        return None;
    }
    let digits = text & 0x0f0f_0f0f_0f0f_0f0f;
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(10_000).wrapping_add(fours >> 32) as u32)
}

/// `-12`, `0.25`, `1234.5`: digits with at most one point. Exact, because the digits and the power of ten are
/// both doubles without error and IEEE division rounds once. Anything else, also longer, is `None`.
#[inline]
fn parse_short_decimal(field: &[u8]) -> Option<f64> {
    let (negative, digits) = match field {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, field),
    };
    // Nineteen digits fit in a u64, so that the sum below cannot overflow before it is compared.
    if digits.is_empty() || digits.len() > 20 {
        return None;
    }
    let mut mantissa: u64 = 0;
    let mut point_at = None;
    for (i, &byte) in digits.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digit));
        } else if byte == b'.' && point_at.is_none() {
            point_at = Some(i);
        } else {
            return None;
        }
    }
    let (digit_count, decimals) = match point_at {
        Some(at) => (digits.len() - 1, digits.len() - 1 - at),
        None => (digits.len(), 0),
    };
    if digit_count == 0 || digit_count > 19 || mantissa > 1 << 53 {
        return None;
    }
    let magnitude = mantissa as f64 / EXACT_POWERS.get(decimals)?;
    Some(if negative { -magnitude } else { magnitude })
}

/// Every other form of Python's `float()`: exponents, `inf`, `nan`, long digits, underscores between digits.
#[cold]
fn parse_any_float(field: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(field).ok()?;
    if let Ok(value) = text.parse() {
        return Some(value);
    }
    let misplaced = field.iter().enumerate().any(|(i, &byte)| {
        let digit_at = |i: Option<usize>| i.and_then(|i| field.get(i)).is_some_and(u8::is_ascii_digit);
        byte == b'_' && !(digit_at(i.checked_sub(1)) && digit_at(i.checked_add(1)))
    });
    if misplaced || !text.contains('_') {
        return None;
    }
    text.replace('_', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use host::{Random, SeededRandom};

    use super::*;

    #[test]
    fn values_are_read_as_pythons_float_reads_them() {
        let check = |text: &str, expected: Option<f64>| assert_eq!(parse_float(text.as_bytes()), expected, "{text}");
        for (text, value) in [
            ("0", 0.0),
            ("1.", 1.0),
            (".5", 0.5),
            ("+1", 1.0),
            ("-.5", -0.5),
            ("1e3", 1000.0),
            ("1E-3", 0.001),
            ("1_000", 1000.0),
            ("1_0.5_0e0_1", 105.0),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("+INF", f64::INFINITY),
            ("1e400", f64::INFINITY),
            ("9007199254740993", 9007199254740992.0),
            ("0.1234567890123456789012345", 0.123_456_789_012_345_68),
            ("000000000000000000000001.5", 1.5),
            ("18446744073709551617", 18446744073709551616.0),
            ("99999999999999999999", 1e20),
        ] {
            check(text, Some(value));
        }
        for text in ["", ".", "-", "+", "1-", "0x1", "1__0", "_1", "1_", "1_.0", "1e", "e5", "--1", "1.2.3", "1,5", "١"]
        {
            check(text, None);
        }
        assert!(parse_float(b"NaN").unwrap().is_nan());
        assert!(parse_float(b"-nan").unwrap().is_nan());
        assert!(parse_float(b"-0").unwrap().is_sign_negative());
    }

    #[test]
    fn the_quick_way_gives_the_same_double_as_the_long_way() {
        let source = SeededRandom::new(1);
        let random = || source.bits() >> 11;
        for _ in 0..200_000 {
            let whole = random() >> (random() % 53);
            let decimals = random() % 18;
            let text = format!(
                "{}{whole}.{:0>width$}",
                if random() & 1 == 0 { "-" } else { "" },
                random() % 10u64.pow(decimals.min(15) as u32),
                width = decimals as usize
            );
            let expected: f64 = text.parse().unwrap();
            assert_eq!(parse_float(text.as_bytes()).map(f64::to_bits), Some(expected.to_bits()), "{text}");
        }
    }

    #[test]
    fn times_are_floored_and_minus_one_is_now() {
        let check = |text: &str, expected| assert_eq!(parse_time(text.as_bytes(), 42), expected, "{text}");
        check("1700000000", Ok(1_700_000_000));
        check("1700000000.9", Ok(1_700_000_000));
        check("1.7e9", Ok(1_700_000_000));
        check("-1", Ok(42));
        check("-1.5", Ok(42));
        check("-1.0", Ok(42));
        check("-2.5", Ok(-3));
        check("0", Ok(0));
        check("170000000000", Ok(170_000_000_000));
        check("1e300", Ok(1 << 53));
        check("-1e300", Ok(-(1 << 53)));
        for text in ["nan", "inf", "-inf", "N", "", "170000000x"] {
            check(text, Err(NotATime));
        }
    }

    #[test]
    fn ten_digits_are_read_and_nothing_else() {
        assert_eq!(ten_digits(b"1700000000"), Some(1_700_000_000));
        assert_eq!(ten_digits(b"0123456789"), Some(123_456_789));
        assert_eq!(ten_digits(b"9999999999"), Some(9_999_999_999));
        for place in 0..10 {
            for byte in 0..=255u8 {
                let mut text = *b"1234567890";
                text[place] = byte;
                let expected = std::str::from_utf8(&text).ok().filter(|_| byte.is_ascii_digit());
                assert_eq!(ten_digits(&text), expected.and_then(|text| text.parse().ok()));
            }
        }
    }
}
