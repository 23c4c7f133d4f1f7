//! `/metrics/index.json`, and the list of all names in other formats.

use std::sync::Arc;

use metadata::FindLimits;

use super::work::{Listed, is_cancelled, names_work};
use crate::{
    encode::{
        json::{JsonStyle, json_string},
        protobuf,
    },
    http::{AHEAD, Chunks, Rejection, head, respond},
    query::{Backend, Protocol, Query, Reply},
};

/// `/metrics/index.json`: all metrics, in the order of names.
pub(crate) async fn index(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    all_names(backend, query, ListFormat::Json(query.json_style())).await
}

/// All metrics, in the order of names.
pub(crate) async fn all_names(backend: &Arc<Backend>, query: &Query, format: ListFormat) -> Result<Reply, Rejection> {
    names_work(backend, query, move |backend, limits, coding, work| {
        backend.finder.has_all()?;
        let size = ListSize::of(backend, limits, PUNCTUATION)?;
        let share = work.answer(size.bytes(size_of::<usize>()))?;
        let names = NameList::new(format, &size).filled(backend, limits)?;
        Ok(respond(head(names.content_type()), Arc::new(names), coding, share))
    })
    .await
}

/// The names that a sender sees.
pub(crate) struct ListSize {
    names: usize,
    text: usize,
}

impl ListSize {
    /// Counts them. Fails if a list of them, with so many more bytes for each, is longer than answers may be.
    pub fn of(backend: &Backend, limits: &FindLimits, more: usize) -> Result<ListSize, Rejection> {
        let (mut size, limit) = (ListSize { names: 0, text: 0 }, backend.limits.response_bytes);
        let (mut bytes, mut seen) = (2, 0_usize);
        let listed = Listed::new(backend, limits);
        backend.registry.all(|id, name| {
            seen += 1;
            if listed.has(id, name) {
                size.names += 1;
                size.text += name.len();
                bytes += name.len() + more;
            }
            bytes <= limit && !(seen.is_multiple_of(NAMES_PER_CHUNK) && is_cancelled(limits))
        });
        if is_cancelled(limits) {
            return Err(Rejection::Cancelled);
        }
        if bytes > limit {
            return Err(Rejection::response_too_large(format!("more than {limit}"), limit));
        }
        Ok(size)
    }

    /// Memory for the names, so many bytes besides for each, and the chunks that are ready: an estimate.
    pub fn bytes(&self, besides: usize) -> usize {
        let (names, text) = (self.names.max(1), self.room());
        let ready = names.min(NAMES_PER_CHUNK * (AHEAD + 1));
        text + self.most() * besides + ready * (text / names + PUNCTUATION)
    }

    /// Bytes of all names, and names, with those that may be created meanwhile.
    pub fn room(&self) -> usize {
        self.text + self.text / 64 + (64 << 10)
    }

    pub fn most(&self) -> usize {
        self.names + self.names / 64 + 1024
    }
}

/// More names were created while they were listed than there is memory for.
pub(crate) fn too_many_new_names() -> Rejection {
    Rejection::Names("many were created while they were listed; try again".to_owned())
}

/// Bytes of punctuation of a name in JSON: quotes, comma, blank.
const PUNCTUATION: usize = 4;

/// Names in one chunk of the list.
const NAMES_PER_CHUNK: usize = 8192;

/// How the names are listed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ListFormat {
    /// `/metrics/index.json`: a list.
    Json(JsonStyle),
    /// go-carbon's `/metrics/list` in JSON: `{"Metrics": [...]}`.
    Object(JsonStyle),
    /// go-carbon's `/metrics/list` in protobuf: a `ListMetricsResponse`, the same in both versions.
    Protobuf(Protocol),
}

/// All names in one buffer, encoded while they are sent.
pub(crate) struct NameList {
    format: ListFormat,
    text: String,
    // The end of each name in `text`.
    ends: Vec<usize>,
}

impl NameList {
    pub fn new(format: ListFormat, size: &ListSize) -> NameList {
        NameList { format, text: String::with_capacity(size.room()), ends: Vec::with_capacity(size.most()) }
    }

    pub fn content_type(&self) -> &'static str {
        match &self.format {
            ListFormat::Json(style) | ListFormat::Object(style) => style.content_type(),
            ListFormat::Protobuf(protocol) => protocol.content_type(),
        }
    }

    /// Adds every name that the list has.
    pub fn filled(mut self, backend: &Backend, limits: &FindLimits) -> Result<NameList, Rejection> {
        let mut is_full = false;
        let listed = Listed::new(backend, limits);
        backend.registry.all(|id, name| {
            if !listed.has(id, name) {
                return true;
            }
            is_full = self.text.capacity() < self.text.len() + name.len() || self.ends.capacity() == self.ends.len();
            if is_full {
                return false;
            }
            self.text.push_str(name);
            self.ends.push(self.text.len());
            !(self.ends.len().is_multiple_of(NAMES_PER_CHUNK) && is_cancelled(limits))
        });
        if is_full { Err(too_many_new_names()) } else { Ok(self) }
    }

    fn name(&self, index: usize) -> &str {
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[begin..self.ends[index]]
    }
}

impl Chunks for NameList {
    fn count(&self) -> usize {
        self.ends.len().div_ceil(NAMES_PER_CHUNK).max(1)
    }

    fn write(&self, chunk: usize, out: &mut Vec<u8>) {
        let begin = chunk * NAMES_PER_CHUNK;
        let end = (begin + NAMES_PER_CHUNK).min(self.ends.len());
        let (style, is_object) = match &self.format {
            ListFormat::Json(style) => (style, false),
            ListFormat::Object(style) => (style, true),
            ListFormat::Protobuf(_) => {
                return (begin..end).for_each(|index| protobuf::text(out, 1, self.name(index)));
            }
        };
        if chunk == 0 {
            style.open(out);
            out.extend_from_slice(if is_object { b"{\"Metrics\": [" } else { b"[" });
        }
        for index in begin..end {
            if index > 0 {
                style.comma(out, 1);
            } else {
                style.line(out, 1);
            }
            json_string(out, self.name(index), style.ascii);
        }
        if chunk + 1 == self.count() {
            if !self.ends.is_empty() {
                style.line(out, 0);
            }
            out.extend_from_slice(if is_object { b"]}" } else { b"]" });
            style.close(out);
        }
    }
}
