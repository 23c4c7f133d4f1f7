//! The trait of find's formats, and their input.

use std::borrow::Cow;

use metric::Timestamp;

use crate::{encode::json::JsonStyle, find::nodes::Nodes};

/// Parameters of a find that affect its answer.
pub(crate) struct FindOptions {
    /// The query.
    pub pattern: String,
    /// Whether an entry `*` comes first or last.
    pub wildcards: bool,
    /// Whether `completer` reads `a,b` as `{a,b}`.
    pub automatic_variants: bool,
    /// The position of `nodelist`.
    pub position: i64,
    /// The end of the intervals, Unix seconds.
    pub now: Timestamp,
    /// The style of JSON.
    pub style: JsonStyle,
}

/// A format of `/metrics/find`.
pub(crate) trait FindFormat: Send + Sync {
    /// Content type of the answer.
    fn content_type(&self) -> &'static str;

    /// The pattern to find; formats for programs use the query unchanged.
    fn pattern(&self) -> Cow<'_, str>;

    /// Appends the answer.
    fn write(&self, nodes: &Nodes<'_>, out: &mut Vec<u8>);
}
