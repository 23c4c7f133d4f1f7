//! carbonapi's messages of version 3. The field numbers are those of go-graphite/protocol.

use std::sync::Arc;

use crate::{
    encode::protobuf::{Damaged, Fields, Value, read_text},
    http::Rejection,
    query::{Backend, Query, blocking},
};

/// One entry of a `MultiFetchRequest`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FetchRequest {
    /// A name, a glob or a whole `seriesByTag(...)` call.
    pub name: String,
    /// The path expression in the user's target, which identifies the series in the answer.
    pub path_expression: String,
    /// Begin of the time span, Unix seconds.
    pub start: i64,
    /// End of the time span, Unix seconds.
    pub stop: i64,
}

/// The fixed cost of an entry of a message, in bytes of a target: a message may have many with short names.
const ENTRY_BYTES: usize = 16;

/// Bytes of a message that is read at once. A longer one takes milliseconds, and is read on a thread that may block.
const SHORT_MESSAGE: usize = 64 << 10;

/// Reads the body of a query, called `message`. `read` gives up where the entries have more than `query.max_target_bytes`:
/// it is not known before what they will take in memory.
pub(super) async fn read_body<T: Send + 'static>(
    backend: &Arc<Backend>,
    query: &Query,
    message: &'static str,
    read: impl FnOnce(&[u8], &mut EntryBytes) -> Result<T, Unread> + Send + 'static,
) -> Result<T, Rejection> {
    let (body, limit) = (query.body.clone(), backend.limits.target_bytes);
    let mut entries = EntryBytes { taken: 0, limit };
    let read = if body.len() <= SHORT_MESSAGE {
        read(&body, &mut entries)
    } else {
        blocking(move || Ok(read(&body, &mut entries))).await?
    };
    read.map_err(|error| match error {
        Unread::Damaged(error) => {
            Rejection::Request(format!("the body is not a valid {message} of carbonapi_v3_pb: {error}"))
        }
        Unread::TooLong => Rejection::TooMuch {
            what: "the bytes of the names, and 16 for each, are",
            given: format!("more than {limit}"),
            limit,
            setting: "query.max_target_bytes",
        },
    })
}

/// Why a message was not read.
#[derive(Debug, PartialEq)]
pub(super) enum Unread {
    Damaged(Damaged),
    TooLong,
}

impl From<Damaged> for Unread {
    fn from(error: Damaged) -> Unread {
        Unread::Damaged(error)
    }
}

/// What the entries of a message have, in bytes of targets.
pub(super) struct EntryBytes {
    taken: usize,
    limit: usize,
}

impl EntryBytes {
    fn take(&mut self, name: &str) -> Result<(), Unread> {
        self.taken += name.len() + ENTRY_BYTES;
        if self.taken <= self.limit { Ok(()) } else { Err(Unread::TooLong) }
    }
}

/// Reads a `MultiFetchRequest`. Filter functions and `maxDataPoints` are ignored: the capabilities offer neither, and
/// carbonapi does both itself.
pub(super) fn read_fetches(message: &[u8], bytes: &mut EntryBytes) -> Result<Vec<FetchRequest>, Unread> {
    let mut all = Vec::new();
    for field in Fields::of(message) {
        let (1, Value::Bytes(message)) = field? else { continue };
        let mut request = FetchRequest::default();
        for field in Fields::of(message) {
            match field? {
                (1, Value::Bytes(text)) => request.name = read_text(text)?,
                (2, Value::Int(time)) => request.start = time,
                (3, Value::Int(time)) => request.stop = time,
                (5, Value::Bytes(text)) => request.path_expression = read_text(text)?,
                _ => {}
            }
        }
        if request.path_expression.is_empty() {
            request.path_expression.clone_from(&request.name);
        }
        bytes.take(&request.name)?;
        all.push(request);
    }
    Ok(all)
}

/// A `MultiGlobRequest`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct GlobRequest {
    pub patterns: Vec<String>,
    /// Begin and end of the time span, Unix seconds, where it has them.
    pub start: Option<i64>,
    pub stop: Option<i64>,
}

/// Reads a `MultiGlobRequest`. A time of 0 is none.
pub(super) fn read_globs(message: &[u8], bytes: &mut EntryBytes) -> Result<GlobRequest, Unread> {
    let mut request = GlobRequest { patterns: read_names(message, bytes)?, ..GlobRequest::default() };
    for field in Fields::of(message) {
        match field? {
            (2, Value::Int(time)) => request.start = Some(time).filter(|&time| time > 0),
            (3, Value::Int(time)) => request.stop = Some(time).filter(|&time| time > 0),
            _ => {}
        }
    }
    Ok(request)
}

/// Reads the texts of a `MultiGlobRequest` or a `MultiMetricsInfoRequest`, which both have in their first field.
pub(super) fn read_names(message: &[u8], bytes: &mut EntryBytes) -> Result<Vec<String>, Unread> {
    let mut names = Vec::new();
    for field in Fields::of(message) {
        if let (1, Value::Bytes(text)) = field? {
            let name = read_text(text)?;
            bytes.take(&name)?;
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::protobuf;

    #[test]
    fn a_fetch_without_a_path_expression_is_identified_by_its_name() {
        let mut one = Vec::new();
        protobuf::text(&mut one, 1, "a.*");
        protobuf::int(&mut one, 2, 60);
        protobuf::int(&mut one, 3, 120);
        let mut two = one.clone();
        protobuf::text(&mut two, 5, "{a,b}.*");
        protobuf::int(&mut two, 7, 300);
        let mut message = Vec::new();
        protobuf::bytes(&mut message, 1, &one);
        protobuf::bytes(&mut message, 1, &two);
        let request = |path_expression: &str| FetchRequest {
            name: "a.*".to_owned(),
            path_expression: path_expression.to_owned(),
            start: 60,
            stop: 120,
        };
        let read = |message: &[u8], limit| read_fetches(message, &mut EntryBytes { taken: 0, limit });
        assert_eq!(read(&message, 38), Ok(vec![request("a.*"), request("{a,b}.*")]));
        assert_eq!(read(&message, 37), Err(Unread::TooLong));
        assert_eq!(read(&message[..message.len() - 1], 38), Err(Unread::Damaged(Damaged)));
    }

    #[test]
    fn many_empty_entries_are_read_no_further_than_their_limit() {
        let message = b"\n\0".repeat(1000);
        let mut bytes = EntryBytes { taken: 0, limit: 160 };
        assert_eq!(read_names(&message, &mut bytes), Err(Unread::TooLong));
        assert_eq!(bytes.taken, 176);
        let mut bytes = EntryBytes { taken: 0, limit: 160 };
        assert_eq!(read_fetches(&message, &mut bytes), Err(Unread::TooLong));
        assert_eq!(bytes.taken, 176);
    }
}
