//! Numbers as Python writes and rounds them, because names, tags and bodies must agree byte for byte.

pub(crate) use crate::python_float::python_float as repr;

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
/// Ties of the exact binary value go to even. An overflow is null.
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

/// The integer nearest to the exact product of the magnitudes of two numbers, which is near a tie and below 2^50. A
/// fused multiply-add finds the rounding error of the product.
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
    fn rounding_agrees_with_the_written_decimal() {
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
