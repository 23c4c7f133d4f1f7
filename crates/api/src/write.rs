//! Python's way to write numbers and strings as bytes, fast: formats are this and punctuation.

/// The longest text of a finite float: `-1.7976931348623157e+308`.
pub(crate) const MAX_FLOAT_BYTES: usize = 24;

/// A whole number.
pub(crate) fn int(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// A finite float as Python's `repr`: the shortest digits that read back, `5.0`, `1e+16`, `1e-05`.
///
/// Most points are whole numbers or have at most three decimals. For those the shortest digits need no
/// search: `m / 1000` is correctly rounded, so when it gives the value back, the decimal text of `m`
/// thousandths reads back too, and below 10^15 no shorter text does.
pub(crate) fn float(out: &mut Vec<u8>, value: f64) {
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

/// Room for the digits below, and for as many bytes again to be copied blindly.
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

/// Thousandths below 10^15, without the zeros at their end but one digit after the point.
///
/// Digits are written from the last to the first into a place of their own and copied with what lies behind them: a
/// copy of known length is a few instructions, one of unknown length is a call. It was an eighth of all time.
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

/// Ryu's text of a number that Python writes with an exponent: `1e16` becomes `1e+16`, `1.5e-5` and `0.000015`
/// both become `1.5e-05`.
fn exponent(out: &mut Vec<u8>, text: &str) {
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

/// A string in JSON, quotes included. `ascii` escapes everything else, as Python does by default.
pub(crate) fn json_string(out: &mut Vec<u8>, text: &str, ascii: bool) {
    out.push(b'"');
    json_text(out, text, ascii);
    out.push(b'"');
}

/// The inside of a JSON string.
pub(crate) fn json_text(out: &mut Vec<u8>, text: &str, ascii: bool) {
    let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\' && (byte < 0x7f || !ascii);
    let mut rest = text;
    loop {
        // Bytes that need nothing go in one piece; all of the text, nearly always.
        let Some(special) = rest.bytes().position(|byte| !plain(byte)) else {
            return out.extend_from_slice(rest.as_bytes());
        };
        let (before, after) = rest.split_at(special);
        out.extend_from_slice(before.as_bytes());
        let mut chars = after.chars();
        let Some(char) = chars.next() else { return };
        rest = chars.as_str();
        match char {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\u{8}' => out.extend_from_slice(b"\\b"),
            '\u{c}' => out.extend_from_slice(b"\\f"),
            // DEL is ASCII, and Python leaves it as it is.
            '\u{7f}' => out.push(0x7f),
            _ => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: f64, text: &str) {
        let mut out = Vec::new();
        float(&mut out, value);
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
            float(&mut out, value);
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

    #[test]
    fn strings_are_written_as_pythons_json_writes_them() {
        let check = |text: &str, ascii: bool, expected: &str| {
            let mut out = Vec::new();
            json_string(&mut out, text, ascii);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check("a.b", true, r#""a.b""#);
        check("a\"b\\c\n\r\t\u{8}\u{c}\u{1}\u{7f}", true, "\"a\\\"b\\\\c\\n\\r\\t\\b\\f\\u0001\u{7f}\"");
        check("é😀", true, r#""\u00e9\ud83d\ude00""#);
        check("é😀\u{1}", false, "\"é😀\\u0001\"");
    }
}
