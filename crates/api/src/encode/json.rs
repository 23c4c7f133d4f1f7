//! JSON as Python's `json.dumps` writes it.

/// The brackets of a list.
pub(crate) const LIST: [u8; 2] = *b"[]";

/// The brackets of an object.
pub(crate) const OBJECT: [u8; 2] = *b"{}";

/// How a JSON answer is written: the arguments of Python's `json.dumps`, and the callback of JSONP.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JsonStyle {
    /// Whether characters beyond ASCII are escaped.
    pub ascii: bool,
    /// `indent=2`.
    pub pretty: bool,
    /// The function whose call contains the answer, for JSONP.
    pub callback: Option<String>,
}

impl JsonStyle {
    /// Content type of an answer to `/metrics/...`.
    pub fn content_type(&self) -> &'static str {
        match (self.callback.is_some(), self.ascii) {
            (false, true) => "application/json",
            (false, false) => "application/json;charset=utf-8",
            (true, true) => "text/javascript",
            (true, false) => "text/javascript;charset=utf-8",
        }
    }

    /// Begins the document.
    pub fn open(&self, out: &mut Vec<u8>) {
        if let Some(callback) = &self.callback {
            out.extend_from_slice(callback.as_bytes());
            out.push(b'(');
        }
    }

    /// Ends the document.
    pub fn close(&self, out: &mut Vec<u8>) {
        if self.callback.is_some() {
            out.push(b')');
        }
    }

    /// Breaks the line: nothing, or a new line with `depth` steps of indentation.
    pub fn line(&self, out: &mut Vec<u8>, depth: usize) {
        if self.pretty {
            out.push(b'\n');
            out.resize(out.len() + 2 * depth, b' ');
        }
    }

    /// Separates two items of a list or an object: `, `, or `,` and a new line.
    pub fn comma(&self, out: &mut Vec<u8>, depth: usize) {
        if self.pretty {
            out.push(b',');
            self.line(out, depth);
        } else {
            out.extend_from_slice(b", ");
        }
    }

    /// Writes a list or an object; `item` writes each item, at `depth`. Without items it is `[]` or `{}`.
    pub fn items<T>(
        &self,
        out: &mut Vec<u8>,
        brackets: [u8; 2],
        depth: usize,
        items: impl IntoIterator<Item = T>,
        item: impl FnMut(&mut Vec<u8>, T),
    ) {
        self.part(out, brackets, depth, Part { is_first: true, is_last: true }, items, item);
    }

    /// As [`JsonStyle::items`], but a part of the items alone. Only a first part may have none.
    pub fn part<T>(
        &self,
        out: &mut Vec<u8>,
        brackets: [u8; 2],
        depth: usize,
        part: Part,
        items: impl IntoIterator<Item = T>,
        mut item: impl FnMut(&mut Vec<u8>, T),
    ) {
        if part.is_first {
            out.push(brackets[0]);
        }
        let mut any = !part.is_first;
        for each in items {
            if any {
                self.comma(out, depth);
            } else {
                self.line(out, depth);
            }
            any = true;
            item(out, each);
        }
        if part.is_last {
            if any {
                self.line(out, depth.saturating_sub(1));
            }
            out.push(brackets[1]);
        }
    }
}

/// Where a part of a list is in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub is_first: bool,
    pub is_last: bool,
}

/// Writes a JSON string with its quotes. `ascii` escapes other characters, as Python does by default.
pub(crate) fn json_string(out: &mut Vec<u8>, text: &str, ascii: bool) {
    out.push(b'"');
    json_text(out, text, ascii);
    out.push(b'"');
}

/// Writes the inside of a JSON string.
pub(crate) fn json_text(out: &mut Vec<u8>, text: &str, ascii: bool) {
    let is_special = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\' || (0x7f <= byte && ascii);
    let mut rest = text;
    loop {
        // Plain bytes are copied together; nearly always they are the whole text.
        let Some(special) = position(rest.as_bytes(), is_special) else {
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
            // Python does not escape DEL, which is ASCII.
            '\u{7f}' => out.push(0x7f),
            _ => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                }
            }
        }
    }
}

/// The place of the first byte that is special.
fn position(bytes: &[u8], is_special: impl Fn(u8) -> bool) -> Option<usize> {
    // The compiler compares all bytes of a block at once, where it need not know which of them is special.
    let (blocks, _) = bytes.as_chunks::<16>();
    let is_plain = |block: &&[u8; 16]| !block.iter().fold(false, |any, &byte| any | is_special(byte));
    let plain = 16 * blocks.iter().take_while(is_plain).count();
    bytes[plain..].iter().position(|&byte| is_special(byte)).map(|place| plain + place)
}

/// `{"error": "…"}`.
pub(crate) fn error_object(message: &str) -> Vec<u8> {
    let mut out = b"{\"error\": ".to_vec();
    json_string(&mut out, message, true);
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Wherever it is among others.
        for length in [0, 1, 15, 16, 17, 40] {
            for place in 0..=length {
                let (before, after) = ("a".repeat(place), "z".repeat(length - place));
                for (char, ascii, escaped) in
                    [('"', false, "\\\""), ('\u{1f}', true, "\\u001f"), ('é', true, "\\u00e9"), ('é', false, "é")]
                {
                    check(&format!("{before}{char}{after}"), ascii, &format!("\"{before}{escaped}{after}\""));
                }
            }
        }
    }
}
