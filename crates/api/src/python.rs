//! Texts as Python quotes them, for messages that must read as graphite-web's.

/// `repr(text)` of a Python string.
pub(crate) fn quoted(text: &str) -> String {
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

/// `int(text)`: blanks around it, a sign, digits that single underscores may part. Numbers beyond 64 bits are
/// cut to the nearest that fits.
pub(crate) fn int(text: &str) -> Result<i64, String> {
    int_or_nothing(text).ok_or_else(|| format!("invalid literal for int() with base 10: {}", quoted(text)))
}

fn int_or_nothing(text: &str) -> Option<i64> {
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

/// `float(text)`: as Rust reads it, and blanks around it.
pub(crate) fn float(text: &str) -> Result<f64, String> {
    text.trim().parse().map_err(|_| format!("could not convert string to float: {}", quoted(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_pythons() {
        let good = [(" 12 ", 12), ("-3", -3), ("+4", 4), ("1_000", 1000), ("99999999999999999999", i64::MAX)];
        for (text, value) in good {
            assert_eq!(int(text), Ok(value), "{text}");
        }
        for text in ["", "-", "1.5", "1__0", "_1", "1_", "0x1", "é"] {
            assert!(int(text).is_err(), "{text}");
        }
        assert_eq!(int("a'b").unwrap_err(), r#"invalid literal for int() with base 10: "a'b""#);
    }

    #[test]
    fn strings_are_quoted_as_python_quotes_them() {
        let check = |text: &str, expected: &str| assert_eq!(quoted(text), expected);
        check("a", "'a'");
        check("a'b", "\"a'b\"");
        check("a'b\"c", "'a\\'b\"c'");
        check("a\\\n\u{1}", "'a\\\\\\n\\x01'");
    }
}
