//! `/metrics/index.json`, and the list of all names in other formats.

use std::sync::Arc;

use metadata::{FindLimits, Registry};

use super::work::{is_cancelled, is_shown, names_work};
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
        let limit = backend.limits.response_bytes;
        let share = work.answer(list_bytes(backend))?;
        let names = NameList::new(format, limit).filled(&backend.registry, limits);
        let names = names.map_err(|given| Rejection::response_too_large(format!("more than {given}"), limit))?;
        Ok(respond(head(names.content_type()), Arc::new(names), coding, share))
    })
    .await
}

/// Memory for the list of all names, and the chunks that are ready: an estimate from above for names of usual length.
pub(crate) fn list_bytes(backend: &Backend) -> usize {
    let ready = backend.registry.len().min(NAMES_PER_CHUNK * (AHEAD + 1));
    (backend.registry.len() + ready) * LISTED_NAME_BYTES
}

/// Bytes of a name in the list, with its end.
const LISTED_NAME_BYTES: usize = 72;

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
    limit: usize,
    text: String,
    // The end of each name in `text`.
    ends: Vec<usize>,
}

impl NameList {
    pub fn new(format: ListFormat, limit: usize) -> NameList {
        NameList { format, limit, text: String::new(), ends: Vec::new() }
    }

    pub fn content_type(&self) -> &'static str {
        match &self.format {
            ListFormat::Json(style) | ListFormat::Object(style) => style.content_type(),
            ListFormat::Protobuf(protocol) => protocol.content_type(),
        }
    }

    /// Adds every name that the sender sees. The error is the limit, when the names exceed it.
    pub fn filled(mut self, registry: &Registry, limits: &FindLimits) -> Result<NameList, usize> {
        let mut bytes = 2;
        registry.all(|_, name| {
            if !is_shown(limits, name) {
                return true;
            }
            bytes += name.len() + PUNCTUATION;
            self.text.push_str(name);
            self.ends.push(self.text.len());
            bytes <= self.limit && !(self.ends.len().is_multiple_of(NAMES_PER_CHUNK) && is_cancelled(limits))
        });
        if bytes > self.limit { Err(self.limit) } else { Ok(self) }
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
