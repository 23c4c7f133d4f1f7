//! Texts from outside in log lines: names, patterns, requests and their errors.

use std::fmt::{self, Display, Write};

/// Bytes of a text from outside in a log line, at most.
const MOST_BYTES: usize = 200;

/// A text from outside, for a field of a log line: control characters escaped, and cut behind 200 bytes.
#[derive(Debug, Clone, Copy)]
pub struct Excerpt<T>(pub T);

impl<T: Display> Display for Excerpt<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cut = Cut { out: f, left: MOST_BYTES, is_cut: false };
        match write!(cut, "{}", self.0) {
            Err(_) if cut.is_cut => f.write_char('…'),
            written => written,
        }
    }
}

/// Fails behind the last byte that has room, so that no more of the text is made.
struct Cut<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    left: usize,
    is_cut: bool,
}

impl Write for Cut<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|character| {
            let escaped = character.is_control().then(|| character.escape_default());
            let bytes = escaped.as_ref().map_or(character.len_utf8(), ExactSizeIterator::len);
            self.is_cut = self.left < bytes;
            if self.is_cut {
                return Err(fmt::Error);
            }
            self.left -= bytes;
            match escaped {
                Some(escaped) => write!(self.out, "{escaped}"),
                None => self.out.write_char(character),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(Excerpt("a\nb\tc\u{1b}[31mé\u{85}").to_string(), r"a\nb\tc\u{1b}[31mé\u{85}");
    }

    #[test]
    fn a_long_text_is_cut_behind_200_bytes() {
        assert_eq!(Excerpt("x".repeat(200)).to_string(), "x".repeat(200));
        assert_eq!(Excerpt("x".repeat(201)).to_string(), "x".repeat(200) + "…");
        assert_eq!(Excerpt("é".repeat(1 << 20)).to_string(), "é".repeat(100) + "…");
        assert_eq!(Excerpt(format!("{}\n", "x".repeat(199))).to_string(), "x".repeat(199) + "…");
    }
}
