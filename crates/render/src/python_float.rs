//! Floats as Python writes them. Names, tags and response bodies must be Python's byte for byte.

/// The longest text of a float: `-1.7976931348623157e+308`.
pub const MAX_FLOAT_BYTES: usize = 24;

/// The text, and after it as many bytes again, for a copy of fixed length.
const ROOM: usize = 2 * MAX_FLOAT_BYTES;

/// `00` to `99`.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut i = 0;
    while i < 100 {
        pairs[i] = [b'0' + (i / 10) as u8, b'0' + (i % 10) as u8];
        i += 1;
    }
    pairs
};

/// Writes `repr(value)` of CPython: the shortest digits that read back as the same float, with an exponent below 1e-4
/// and from 1e16 on (`30.0`, `1e-05`, `1.5e+16`, `inf`, `nan`). At most [`MAX_FLOAT_BYTES`].
///
/// Most points are whole numbers or have at most three decimals. For those the shortest digits need no search:
/// `m / 1000` is correctly rounded, so when it gives the value back, the decimal text of `m` thousandths reads back
/// too, and below 10^15 no shorter text does.
///
/// ```
/// let mut text = Vec::new();
/// render::write_python_float(&mut text, 1e-5);
/// assert_eq!(text, b"1e-05");
/// ```
#[inline]
pub fn write_python_float(out: &mut Vec<u8>, value: f64) {
    let size = value.abs();
    if size < 1e12 {
        let thousandths = (size * 1000.0 + 0.5) as i64;
        if thousandths as f64 / 1000.0 == size {
            return write_thousandths(out, value.is_sign_negative(), thousandths as u64);
        }
    }
    write_shortest(out, value);
}

/// The text of [`write_python_float`].
pub fn python_float(value: f64) -> String {
    let mut text = Vec::with_capacity(MAX_FLOAT_BYTES);
    write_python_float(&mut text, value);
    String::from_utf8(text).expect("digits, signs and points are ASCII")
}

/// Thousandths below 10^15, without the zeros at their end but one digit after the point.
///
/// Digits are written from the last to the first into an array, and copied with the bytes after them: a copy of known
/// length is a few instructions, one of unknown length is a call. It was an eighth of the time of a JSON body.
fn write_thousandths(out: &mut Vec<u8>, negative: bool, thousandths: u64) {
    let (mut whole, rest) = (thousandths / 1000, (thousandths % 1000) as usize);
    let mut text = [b'0'; ROOM];
    let point = MAX_FLOAT_BYTES - 4;
    text[point] = b'.';
    text[point + 1] = b'0' + (rest / 100) as u8;
    text[point + 2..point + 4].copy_from_slice(&PAIRS[rest % 100]);
    let end = point
        + match rest {
            _ if rest.is_multiple_of(100) => 2,
            _ if rest.is_multiple_of(10) => 3,
            _ => 4,
        };
    let mut begin = point;
    while whole >= 100 {
        begin -= 2;
        text[begin..begin + 2].copy_from_slice(&PAIRS[(whole % 100) as usize]);
        whole /= 100;
    }
    if whole >= 10 {
        begin -= 2;
        text[begin..begin + 2].copy_from_slice(&PAIRS[whole as usize]);
    } else {
        begin -= 1;
        text[begin] = b'0' + whole as u8;
    }
    if negative {
        begin -= 1;
        text[begin] = b'-';
    }
    let len = out.len() + end - begin;
    out.extend_from_slice(&text[begin..begin + MAX_FLOAT_BYTES]);
    out.truncate(len);
}

/// Any float, from ryu's shortest digits.
fn write_shortest(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        return out.extend_from_slice(b"nan");
    }
    if value.is_infinite() {
        return out.extend_from_slice(if value < 0.0 { b"-inf" } else { b"inf" });
    }
    let mut buffer = ryu::Buffer::new();
    let text = buffer.format_finite(value);
    if (1e-4..1e16).contains(&value.abs()) {
        return out.extend_from_slice(text.as_bytes());
    }
    write_exponent(out, text);
}

/// Ryu's text of a number that Python writes with an exponent: `1e16` becomes `1e+16`, `1.5e-5` and `0.000015`
/// both become `1.5e-05`.
fn write_exponent(out: &mut Vec<u8>, text: &str) {
    let (mantissa, exponent) = match text.split_once('e') {
        Some((mantissa, exponent)) => (mantissa.to_owned(), exponent.parse::<i32>().unwrap_or(0)),
        // Ryu turns to exponents one decimal later than Python: only 0.0000… is left here, as zero never is.
        None => {
            let (sign, digits) = match text.strip_prefix('-') {
                Some(digits) => ("-", digits),
                None => ("", text),
            };
            let decimals = digits.strip_prefix("0.").unwrap_or(digits);
            let significant = decimals.trim_start_matches('0');
            let exponent = -((decimals.len() - significant.len()) as i32) - 1;
            let (first, rest) = significant.split_at(significant.len().min(1));
            let point = if rest.is_empty() { "" } else { "." };
            (format!("{sign}{first}{point}{rest}"), exponent)
        }
    };
    out.extend_from_slice(mantissa.as_bytes());
    let sign = if exponent < 0 { '-' } else { '+' };
    out.extend_from_slice(format!("e{sign}{:02}", exponent.abs()).as_bytes());
}

#[cfg(test)]
mod tests {
    use host::{Random, SeededRandom};

    use super::*;

    #[test]
    fn floats_are_written_as_cpython_writes_them() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (5.0, "5.0"),
            (30.0, "30.0"),
            (-1.5, "-1.5"),
            (-12.5, "-12.5"),
            (0.1, "0.1"),
            (0.001, "0.001"),
            (100.25, "100.25"),
            (1.0 / 3.0, "0.3333333333333333"),
            (0.0001, "0.0001"),
            (0.0001234, "0.0001234"),
            (0.00012345, "0.00012345"),
            (0.00001, "1e-05"),
            (-0.0000123, "-1.23e-05"),
            (-0.00001234, "-1.234e-05"),
            (0.0000012, "1.2e-06"),
            (1.5e-7, "1.5e-07"),
            (999999999999.999, "999999999999.999"),
            (123456789012.345, "123456789012.345"),
            (1e15, "1000000000000000.0"),
            (9007199254740993.0, "9007199254740992.0"),
            (9999999999999998.0, "9999999999999998.0"),
            (1e16, "1e+16"),
            (1.5e16, "1.5e+16"),
            (1.2345678901234567e16, "1.2345678901234568e+16"),
            (1e22, "1e+22"),
            (1e300, "1e+300"),
            (1.5e300, "1.5e+300"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::MIN, "-1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ];
        for (value, text) in cases {
            assert_eq!(python_float(value), text);
        }
    }

    #[test]
    fn every_float_reads_back_and_none_is_longer_than_the_shortest() {
        let random = SeededRandom::new(0x9e37_79b9_7f4a_7c15);
        for round in 0..200_000u64 {
            let bits = random.bits();
            let value = match round % 5 {
                0 => f64::from_bits(bits),
                1 => (bits % 2_000_000_000) as f64 / 1000.0,
                2 => (bits % 1_000_000_000_000) as f64 / 100.0,
                3 => ((bits >> 8) % (1 << (bits % 50))) as f64 / 10f64.powi((bits >> 60) as i32 % 6),
                _ => (bits >> 40) as f64 * 1e-9,
            };
            if !value.is_finite() {
                continue;
            }
            let text = python_float(value);
            assert!(text.len() <= MAX_FLOAT_BYTES);
            assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits(), "{text}");
            let digits = |text: &str| {
                let mantissa = text.split('e').next().unwrap_or_default();
                let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
                digits.trim_matches('0').len()
            };
            assert_eq!(digits(&text), digits(&format!("{value:e}")), "{text}");
        }
    }
}
