//! JSON answers as graphite-web's views send them.

use hyper::{Response, header, http::response::Builder};

use crate::api::Query;

/// How a JSON answer is written: what `json.dumps` is told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JsonStyle {
    /// Whether everything beyond ASCII is escaped.
    pub ascii: bool,
    /// `indent=2`.
    pub pretty: bool,
    /// The function that a browser of old wraps the answer in.
    pub callback: Option<String>,
}

impl JsonStyle {
    /// The style of `/metrics/...`: raw UTF-8 unless the client accepts `application/json` and nothing else.
    pub fn of(query: &Query) -> JsonStyle {
        let accept = query.headers.get(header::ACCEPT).map_or(&b"application/json"[..], |accept| accept.as_bytes());
        JsonStyle {
            ascii: accept == b"application/json",
            pretty: query.params.truthy("pretty"),
            callback: query.params.last("jsonp").filter(|name| !name.is_empty()).map(str::to_owned),
        }
    }

    /// The content type that goes with it in `/metrics/...`.
    pub fn content_type(&self) -> &'static str {
        match (self.callback.is_some(), self.ascii) {
            (false, true) => "application/json",
            (false, false) => "application/json;charset=utf-8",
            (true, true) => "text/javascript",
            (true, false) => "text/javascript;charset=utf-8",
        }
    }

    /// What comes before the document.
    pub fn open(&self, out: &mut Vec<u8>) {
        if let Some(callback) = &self.callback {
            out.extend_from_slice(callback.as_bytes());
            out.push(b'(');
        }
    }

    /// What comes after the document.
    pub fn close(&self, out: &mut Vec<u8>) {
        if self.callback.is_some() {
            out.push(b')');
        }
    }

    /// A break in the document: nothing, or a new line with `depth` steps of indentation.
    pub fn line(&self, out: &mut Vec<u8>, depth: usize) {
        if self.pretty {
            out.push(b'\n');
            out.resize(out.len() + 2 * depth, b' ');
        }
    }

    /// What separates two items of a list or an object: `, `, or `,` and a new line.
    pub fn comma(&self, out: &mut Vec<u8>, depth: usize) {
        if self.pretty {
            out.push(b',');
            self.line(out, depth);
        } else {
            out.extend_from_slice(b", ");
        }
    }

    /// A list or an object whose items are written one by one at `depth`; `[]` and `{}` when there are none.
    pub fn items<T>(
        &self,
        out: &mut Vec<u8>,
        brackets: [u8; 2],
        depth: usize,
        items: impl IntoIterator<Item = T>,
        mut item: impl FnMut(&mut Vec<u8>, T),
    ) {
        out.push(brackets[0]);
        let mut any = false;
        for each in items {
            if any {
                self.comma(out, depth);
            } else {
                self.line(out, depth);
            }
            any = true;
            item(out, each);
        }
        if any {
            self.line(out, depth.saturating_sub(1));
        }
        out.push(brackets[1]);
    }
}

/// The headers of a `/metrics/...` answer, which nobody may keep.
pub(crate) fn uncached(content_type: &'static str) -> Builder {
    Response::builder()
        .header(header::CONTENT_TYPE, content_type)
        .header(header::PRAGMA, "no-cache")
        .header(header::CACHE_CONTROL, "no-cache")
}
