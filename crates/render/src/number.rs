//! Numbers as Python writes and rounds them, because names, tags and bodies must come out byte for byte.

/// Appends `repr(value)` of CPython: the shortest digits that read back as the same number, with an
/// exponent below 1e-4 and from 1e16 on (`30.0`, `1e-05`, `1.5e+16`, `inf`, `nan`).
pub fn python_repr(value: f64, out: &mut String) {
    if value.is_nan() {
        return out.push_str("nan");
    }
    if value.is_infinite() {
        return out.push_str(if value < 0.0 { "-inf" } else { "inf" });
    }
    if push_short_decimal(value, out) {
        return;
    }
    let mut buffer = ryu::Buffer::new();
    let shortest = buffer.format_finite(value);
    // Ryu writes no exponent from 1e-5 up to 1e16, which is nearly Python's rule.
    if (1e-4..1e16).contains(&value.abs()) {
        return out.push_str(shortest);
    }
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((shortest, "0"));
    relay(mantissa, exponent.parse().unwrap_or(0), out);
}

/// Appends a value that is a whole number of thousandths, and says whether it was one. Most of what is measured
/// has few decimals, and an integer is written many times faster than the shortest digits are found. The result
/// is the same: below 2^50 thousandths, no two decimals of three places are the same float, so the shortest one
/// is the only one.
fn push_short_decimal(value: f64, out: &mut String) -> bool {
    let thousandths = value * 1e3;
    if !(1.0..(1u64 << 50) as f64).contains(&thousandths.abs()) {
        return false;
    }
    let whole = thousandths.abs() as u64;
    let near = if thousandths.abs() - whole as f64 >= 0.5 { whole + 1 } else { whole };
    // A division of two integers that floats hold is the float nearest to the decimal.
    if near as f64 / 1e3 != value.abs() {
        return false;
    }
    let mut buffer = itoa::Buffer::new();
    if value < 0.0 {
        out.push('-');
    }
    out.push_str(buffer.format(near / 1000));
    let fraction = (near % 1000) as u16;
    let [hundreds, tens, ones] = [fraction / 100, fraction / 10 % 10, fraction % 10];
    let digits = [b'.', b'0' + hundreds as u8, b'0' + tens as u8, b'0' + ones as u8];
    let length = if ones != 0 {
        4
    } else if tens != 0 {
        3
    } else {
        2
    };
    out.push_str(std::str::from_utf8(&digits[..length]).unwrap_or(".0"));
    true
}

/// Lays `mantissa · 10^exponent` out as Python does.
fn relay(mantissa: &str, exponent: i32, out: &mut String) {
    let unsigned = match mantissa.strip_prefix('-') {
        Some(rest) => {
            out.push('-');
            rest
        }
        None => mantissa,
    };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let all: String = [whole, fraction].concat();
    let leading_zeros = all.len() - all.trim_start_matches('0').len();
    let digits = all.trim_matches('0');
    // The power of ten of the first digit that counts.
    let first = exponent + whole.len() as i32 - 1 - leading_zeros as i32;
    let (lead, rest) = digits.split_at(digits.len().min(1));
    if !(-4..16).contains(&first) {
        out.push_str(lead);
        if !rest.is_empty() {
            out.push('.');
            out.push_str(rest);
        }
        let sign = if first < 0 { '-' } else { '+' };
        out.push_str(&format!("e{sign}{:02}", first.abs()));
    } else if first < 0 {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', (-first - 1) as usize));
        out.push_str(digits);
    } else {
        let before = first as usize + 1;
        let (whole, fraction) = digits.split_at(digits.len().min(before));
        out.push_str(whole);
        out.extend(std::iter::repeat_n('0', before - whole.len()));
        out.push('.');
        out.push_str(if fraction.is_empty() { "0" } else { fraction });
    }
}

/// `repr(value)` of CPython as a string of its own.
pub(crate) fn repr(value: f64) -> String {
    let mut text = String::new();
    python_repr(value, &mut text);
    text
}

/// `'%g' % value` of Python and C: six significant digits without trailing zeros (`2`, `0.1`, `1e+06`).
pub fn general(value: f64) -> String {
    if !value.is_finite() {
        return repr(value);
    }
    let scientific = format!("{value:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let strip = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..6).contains(&exponent) {
        return strip(&format!("{value:.*}", (5 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", strip(mantissa), exponent.abs())
}

/// `round(value, 6)` of Python: the nearest decimal, ties of the exact binary value going to even.
pub(crate) fn round_to_millionths(value: f64) -> f64 {
    nearest_decimal(value, 6, 1e6)
}

/// `round(value, digits)` of Python: to so many decimals, or to tens, hundreds and so on where `digits` is negative.
/// Ties of the exact binary value go to even. What would be beyond all floats is null.
pub(crate) fn rounded(value: f64, digits: i64) -> f64 {
    const POWERS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    // Floats have no digits beyond these places.
    if !value.is_finite() || digits > 323 {
        return value;
    }
    match usize::try_from(digits) {
        Ok(digits) => match POWERS.get(digits) {
            Some(power) => nearest_decimal(value, digits, *power),
            None => format!("{value:.digits$}").parse().unwrap_or(value),
        },
        Err(_) if digits < -308 => 0.0_f64.copysign(value),
        Err(_) => nearest_multiple(value, digits.unsigned_abs() as usize),
    }
}

/// The nearest number of so many decimals; `power` is ten to the power of their number.
fn nearest_decimal(value: f64, digits: usize, power: f64) -> f64 {
    const TO_INTEGER: f64 = (1u64 << 52) as f64;
    let magnitude = (value * power).abs();
    // Below 2^50 the nearest multiple is an integer that a division turns into the nearest double.
    if magnitude < (1u64 << 50) as f64 {
        // At 2^52 floats are integers: adding that rounds, without the call that rounding would be.
        let nearest = (magnitude + TO_INTEGER) - TO_INTEGER;
        let distance_from_tie = 0.5 - (magnitude - nearest).abs();
        // The product's own rounding may have crossed a tie, or made one.
        let nearest = if distance_from_tie > magnitude * f64::EPSILON { nearest } else { exact_nearest(value, power) };
        return (nearest / power).copysign(value);
    } else if value.is_nan() || value.abs() >= (1u64 << 52) as f64 {
        return value;
    }
    format!("{value:.digits$}").parse().unwrap_or(value)
}

/// The integer nearest to the exact product of the magnitudes of two numbers, which is near a tie and below 2^50. What
/// the product lost by rounding is found by a multiplication and addition in one.
fn exact_nearest(value: f64, power: f64) -> f64 {
    let product = value.abs() * power;
    let lost = value.abs().mul_add(power, -product);
    let below = product.floor();
    let over_half = product - below - 0.5 + lost;
    let tie_to_odd = over_half == 0.0 && below % 2.0 != 0.0;
    if over_half > 0.0 || tie_to_odd { below + 1.0 } else { below }
}

/// The nearest multiple of ten to the power of `zeros`, from the exact digits of a value.
fn nearest_multiple(value: f64, zeros: usize) -> f64 {
    let whole = format!("{:.0}", value.abs().trunc());
    let split = whole.len().saturating_sub(zeros);
    let (kept, dropped) = whole.split_at(split);
    let dropped = format!("{dropped:0>zeros$}");
    let half = format!("5{}", "0".repeat(zeros.saturating_sub(1)));
    let odd = kept.bytes().last().is_some_and(|digit| digit % 2 == 1);
    let up = match dropped.cmp(&half) {
        std::cmp::Ordering::Equal => odd || value.fract() != 0.0,
        order => order.is_gt(),
    };
    let mut digits: Vec<u8> = std::iter::once(b'0').chain(kept.bytes()).collect();
    if up {
        for digit in digits.iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                break;
            }
            *digit = b'0';
        }
    }
    let text: String = digits.iter().map(|digit| char::from(*digit)).chain(std::iter::repeat_n('0', zeros)).collect();
    let nearest: f64 = text.parse().unwrap_or(f64::NAN);
    if nearest.is_finite() { nearest.copysign(value) } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repr_is_cpythons() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (30.0, "30.0"),
            (0.1, "0.1"),
            (-1.5, "-1.5"),
            (1e15, "1000000000000000.0"),
            (9999999999999998.0, "9999999999999998.0"),
            (1e16, "1e+16"),
            (1.5e16, "1.5e+16"),
            (1.2345678901234567e16, "1.2345678901234568e+16"),
            (1e22, "1e+22"),
            (1e300, "1e+300"),
            (0.0001, "0.0001"),
            (0.00012345, "0.00012345"),
            (0.00001, "1e-05"),
            (-0.0000123, "-1.23e-05"),
            (5e-324, "5e-324"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ];
        for (value, text) in cases {
            assert_eq!(repr(value), text);
        }
    }

    /// What Python writes is the shortest text that reads back, and no shorter way to find it may differ.
    #[test]
    fn short_decimals_are_written_as_the_shortest_digits_are() {
        let mut chance: u64 = 88172645463325252;
        for _ in 0..200_000 {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            let decimals = 10f64.powi((chance >> 60) as i32 % 6);
            let value = ((chance >> 8) % (1 << (chance % 50))) as f64 / decimals;
            let (mut short, mut shortest) = (String::new(), ryu::Buffer::new());
            if push_short_decimal(value, &mut short) {
                assert_eq!(short, shortest.format_finite(value));
            }
            assert_eq!(repr(value).parse(), Ok(value));
        }
    }

    #[test]
    fn percent_g_has_six_digits() {
        let cases = [
            (0.0, "0"),
            (2.0, "2"),
            (0.1, "0.1"),
            (100000.0, "100000"),
            (1000000.0, "1e+06"),
            (999999.5, "1e+06"),
            (123456.7, "123457"),
            (0.0001, "0.0001"),
            (0.00001234567, "1.23457e-05"),
            (-2.5, "-2.5"),
            (1e100, "1e+100"),
            (f64::INFINITY, "inf"),
        ];
        for (value, text) in cases {
            assert_eq!(general(value), text);
        }
    }

    /// Python writes the decimal and reads it back; the shorter way may not differ.
    #[test]
    fn rounding_comes_to_what_the_written_decimal_does() {
        let mut chance: u64 = 88172645463325252;
        for _ in 0..200_000 {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            let digits = (chance % 8) as usize;
            // Half of them end in a five behind the last digit that is kept.
            let decimals = 10f64.powi(digits as i32 + 1);
            let whole = (chance >> 20) % (1 << (chance >> 8 & 31));
            let value = if chance >> 16 & 1 == 0 { (whole * 10 + 5) as f64 / decimals } else { whole as f64 / 7.0 };
            let written: f64 = format!("{value:.digits$}").parse().expect("a number");
            assert_eq!(rounded(value, digits as i64), written, "{value:?} to {digits}");
            assert_eq!(rounded(-value, digits as i64), -written, "{value:?} to {digits}");
        }
    }

    #[test]
    fn rounding_to_tens_takes_ties_to_even() {
        for (value, digits, expected) in [
            (15.0, -1, 20.0),
            (25.0, -1, 20.0),
            (25.5, -1, 30.0),
            (-25.0, -1, -20.0),
            (49.0, -2, 0.0),
            (50.0, -2, 0.0),
            (50.1, -2, 100.0),
            (999.0, -1, 1000.0),
            (1e22, -22, 1e22),
            (1.0, -400, 0.0),
            (1.5, 400, 1.5),
            (2.675, 2, 2.67),
        ] {
            assert_eq!(rounded(value, digits), expected, "{value} to {digits}");
        }
        assert!(rounded(f64::MAX, -308).is_nan());
        assert_eq!(rounded(f64::INFINITY, 2), f64::INFINITY);
    }

    #[test]
    fn rounding_is_that_of_the_exact_decimal() {
        let cases = [
            (0.1, 0.1),
            (1.0 / 3.0, 0.333333),
            (2.0 / 3.0, 0.666667),
            (0.0000005, 0.0),
            (0.0000015, 0.000002),
            (0.0000025, 0.000003),
            (5e-7, 0.0),
            (1234567890.1234567, 1234567890.123457),
            (1e20, 1e20),
            (-1.0 / 3.0, -0.333333),
        ];
        for (value, rounded) in cases {
            assert_eq!(round_to_millionths(value), rounded, "{value}");
        }
        assert!(round_to_millionths(f64::NAN).is_nan());
        assert_eq!(round_to_millionths(f64::INFINITY), f64::INFINITY);
    }
}
