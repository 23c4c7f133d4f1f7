//! Python's texts of numbers and strings: read as Python's `int` and `float` do, written as `repr` does.
//!
//! Messages quote the request as graphite-web does, and answers contain its digits.

/// `repr(text)` of a Python string.
pub(crate) fn repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if char == quote => out.extend(['\\', char]),
            _ if char < ' ' || char == '\x7f' => out.push_str(&format!("\\x{:02x}", char as u32)),
            _ => out.push(char),
        }
    }
    out.push(quote);
    out
}

/// `int(text)`: surrounding blanks, a sign, and single underscores between digits are valid. Numbers beyond 64 bits
/// saturate.
pub(crate) fn parse_int(text: &str) -> Result<i64, String> {
    optional_int(text).ok_or_else(|| format!("invalid literal for int() with base 10: {}", repr(text)))
}

fn optional_int(text: &str) -> Option<i64> {
    let text = text.trim();
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let mut value = 0i64;
    let mut after_digit = false;
    for byte in digits.bytes() {
        match byte {
            b'0'..=b'9' => {
                let digit = i64::from(byte - b'0');
                value = value.saturating_mul(10);
                value = if negative { value.saturating_sub(digit) } else { value.saturating_add(digit) };
                after_digit = true;
            }
            b'_' if after_digit => after_digit = false,
            _ => return None,
        }
    }
    after_digit.then_some(value)
}

/// `float(text)`: Rust's grammar; surrounding blanks are valid.
pub(crate) fn parse_float(text: &str) -> Result<f64, String> {
    text.trim().parse().map_err(|_| format!("could not convert string to float: {}", repr(text)))
}

/// The longest text of a finite float: `-1.7976931348623157e+308`.
pub(crate) const MAX_FLOAT_BYTES: usize = 24;

/// Writes a whole number.
pub(crate) fn write_int(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Writes a finite float as `repr(value)` of Python: the shortest digits that read back, `5.0`, `1e+16`, `1e-05`.
///
/// Most points are whole numbers or have at most three decimals. Their shortest digits need no search: `m / 1000` is
/// correctly rounded, so when the quotient equals the value, the decimal text of `m` thousandths reads back too, and
/// below 10^15 no shorter text does.
pub(crate) fn write_float(out: &mut Vec<u8>, value: f64) {
    debug_assert!(value.is_finite());
    let size = value.abs();
    if size < 1e12 {
        let thousandths = (size * 1000.0 + 0.5) as i64;
        if thousandths as f64 / 1000.0 == size {
            return decimal(out, value.is_sign_negative(), thousandths as u64);
        }
    }
    let mut buffer = ryu::Buffer::new();
    let text = buffer.format_finite(value);
    if (1e-4..1e16).contains(&size) {
        out.extend_from_slice(text.as_bytes());
    } else {
        exponent(out, text);
    }
}

/// Bytes of the scratch buffer: the digits, and as many bytes again so that a copy of fixed length stays inside.
const DECIMAL_ROOM: usize = 2 * MAX_FLOAT_BYTES;

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

/// Writes thousandths below 10^15 without trailing zeros, but with at least one digit after the point.
///
/// The digits go from the last to the first into a scratch buffer, and a copy of fixed length takes them to `out`. A
/// copy of fixed length is a few instructions, one of variable length is a call, which took an eighth of all time.
fn decimal(out: &mut Vec<u8>, negative: bool, thousandths: u64) {
    let (mut whole, rest) = (thousandths / 1000, (thousandths % 1000) as usize);
    let mut text = [b'0'; DECIMAL_ROOM];
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

/// Turns Ryu's text into Python's, of a number that Python writes with an exponent: `1e16` becomes `1e+16`, `1.5e-5`
/// and `0.000015` become `1.5e-05`.
fn exponent(out: &mut Vec<u8>, text: &str) {
    let (mantissa, exponent) = match text.split_once('e') {
        Some((mantissa, exponent)) => (mantissa.to_owned(), exponent.parse::<i32>().unwrap_or(0)),
        // Ryu changes to exponents one decimal later than Python, so only 0.0000… arrives here; zero never does.
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

/// Writes a finite value that Python holds as an int. From 9e18 on, the text is that of a float, which has fewer digits.
pub(crate) fn write_whole(out: &mut Vec<u8>, value: f64) {
    if is_whole(value) { write_int(out, value as i64) } else { write_float(out, value) }
}

/// Whether a value without its fraction is an `i64` that Python would hold as an int.
pub(crate) fn is_whole(value: f64) -> bool {
    value.fract() == 0.0 && value.abs() < 9e18
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_pythons() {
        let good = [(" 12 ", 12), ("-3", -3), ("+4", 4), ("1_000", 1000), ("99999999999999999999", i64::MAX)];
        for (text, value) in good {
            assert_eq!(parse_int(text), Ok(value), "{text}");
        }
        for text in ["", "-", "1.5", "1__0", "_1", "1_", "0x1", "é"] {
            assert!(parse_int(text).is_err(), "{text}");
        }
        assert_eq!(parse_int("a'b").unwrap_err(), r#"invalid literal for int() with base 10: "a'b""#);
    }

    #[test]
    fn strings_are_quoted_as_python_quotes_them() {
        let check = |text: &str, expected: &str| assert_eq!(repr(text), expected);
        check("a", "'a'");
        check("a'b", "\"a'b\"");
        check("a'b\"c", "'a\\'b\"c'");
        check("a\\\n\u{1}", "'a\\\\\\n\\x01'");
    }

    fn check(value: f64, text: &str) {
        let mut out = Vec::new();
        write_float(&mut out, value);
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }

    #[test]
    fn floats_are_written_as_python_writes_them() {
        check(0.0, "0.0");
        check(-0.0, "-0.0");
        check(5.0, "5.0");
        check(-12.5, "-12.5");
        check(0.1, "0.1");
        check(0.001, "0.001");
        check(100.25, "100.25");
        check(1.0 / 3.0, "0.3333333333333333");
        check(0.0001, "0.0001");
        check(0.0001234, "0.0001234");
        check(0.00001, "1e-05");
        check(-0.00001234, "-1.234e-05");
        check(0.0000012, "1.2e-06");
        check(1.5e-7, "1.5e-07");
        check(9007199254740993.0, "9007199254740992.0");
        check(1e15, "1000000000000000.0");
        check(9999999999999998.0, "9999999999999998.0");
        check(1e16, "1e+16");
        check(1.5e300, "1.5e+300");
        check(f64::MAX, "1.7976931348623157e+308");
        check(5e-324, "5e-324");
        check(999999999999.999, "999999999999.999");
        check(123456789012.345, "123456789012.345");
    }

    #[test]
    fn every_float_reads_back_and_none_is_longer_than_the_shortest() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..200_000u64 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let bits = seed ^ (seed >> 29);
            let value = match round % 4 {
                0 => f64::from_bits(bits),
                1 => (bits % 2_000_000_000) as f64 / 1000.0,
                2 => (bits % 1_000_000_000_000) as f64 / 100.0,
                _ => (bits >> 40) as f64 * 1e-9,
            };
            if !value.is_finite() {
                continue;
            }
            let mut out = Vec::new();
            write_float(&mut out, value);
            assert!(out.len() <= MAX_FLOAT_BYTES);
            let text = String::from_utf8(out).unwrap();
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
