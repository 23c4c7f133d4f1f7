//! Python's texts of numbers and strings: read as Python's `int` and `float` do, written as `repr` does.
//!
//! Messages quote the request as graphite-web does, and answers contain its digits.

/// Characters of a text that a message quotes, at most.
const QUOTED: usize = 300;

/// `repr(text)` of a Python string, for messages: of a long text its beginning, and `…` behind the quote.
pub(crate) fn repr(text: &str) -> String {
    let (text, is_cut) = match text.char_indices().nth(QUOTED) {
        Some((end, _)) => (&text[..end], true),
        None => (text, false),
    };
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
    if is_cut {
        out.push('…');
    }
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

/// Writes a whole number.
pub(crate) fn write_int(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Writes a finite float as `repr(value)` of Python.
#[inline]
pub(crate) fn write_float(out: &mut Vec<u8>, value: f64) {
    debug_assert!(value.is_finite());
    ::render::write_python_float(out, value);
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
        check(&"é".repeat(300), &format!("'{}'", "é".repeat(300)));
        check(&"é".repeat(301), &format!("'{}'…", "é".repeat(300)));
    }
}
