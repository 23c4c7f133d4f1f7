//! The trait of render's formats, and their input.

use jiff::tz::TimeZone;
use metadata::Registry;
use render::Series;

use crate::{
    encode::json::JsonStyle,
    query::{Times, Viewer},
};

/// A format of `/render`: how series become bytes, a chunk at a time.
pub(crate) trait Format: Send + Sync + 'static {
    /// Content type of the answer.
    fn content_type(&self) -> &'static str;

    /// Fewest bytes of one point, for a lower bound of the answer's size.
    fn least_bytes_per_point(&self, series: &Series) -> usize;

    /// Removes the series that the format omits. Called before the answer is cut into chunks, so that each chunk knows
    /// whether a separator precedes it.
    fn select(&self, series: &mut Vec<Series>) {
        let _ = series;
    }

    /// Whether chunks end between values of one series. Formats with a row for each time are one chunk.
    fn has_chunks(&self) -> bool {
        true
    }

    /// Appends a chunk.
    fn write(&self, chunk: &SeriesChunk<'_>, out: &mut Vec<u8>);
}

/// Parameters of a render that affect its format.
#[derive(Debug, Clone)]
pub(crate) struct FormatOptions {
    /// The style of JSON.
    pub style: JsonStyle,
    /// How JSON shows points without a value.
    pub null_points: NullPoints,
    /// The zone of the times in csv.
    pub zone: TimeZone,
}

/// How an answer shows points without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NullPoints {
    /// As null.
    Kept,
    /// Not at all (`noNullPoints`). A series without values is omitted.
    Dropped,
}

/// The input of a format, after evaluation.
pub(crate) struct FormatInput<'a> {
    /// Parameters of the request.
    pub options: FormatOptions,
    /// Policies of metrics.
    pub registry: &'a Registry,
    /// Who reads the answer.
    pub viewer: &'a Viewer,
    /// The time span of the request.
    pub times: &'a Times,
    /// The series of the answer.
    pub series: &'a [Series],
    /// What was read, for requests that ask where series come from (`meta=true`).
    pub totals: Option<Totals>,
}

/// The counts of a request.
#[derive(Debug, Clone)]
pub(crate) struct Totals {
    /// Series that were read.
    pub series_read: usize,
    /// Points that were read.
    pub points_read: usize,
    /// Points of the answer.
    pub points: usize,
    /// Nodes whose points in memory are not in the answer.
    pub missing_peers: Vec<String>,
}

/// Consecutive values of one series. The first span of a series includes its head, the last span its foot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// Index of the series.
    pub series: usize,
    /// Index of the first value.
    pub from: usize,
    /// Index after the last value.
    pub until: usize,
}

/// A chunk of an answer.
pub(crate) struct SeriesChunk<'a> {
    /// All series of the answer.
    pub all: &'a [Series],
    /// The spans of this chunk.
    pub spans: &'a [Span],
    /// Whether the answer begins with this chunk.
    pub is_first: bool,
    /// Whether the answer ends with this chunk.
    pub is_last: bool,
}

impl<'a> SeriesChunk<'a> {
    /// Each span with its series.
    pub fn parts(&self) -> impl Iterator<Item = (&'a Series, Span)> {
        let all = self.all;
        self.spans.iter().map(move |&span| (&all[span.series], span))
    }

    /// Reserves room for the chunk.
    pub fn reserve(&self, out: &mut Vec<u8>, bytes_per_value: usize, bytes_per_span: usize) {
        let values: usize = self.spans.iter().map(|span| span.until - span.from).sum();
        out.reserve(values * bytes_per_value + self.spans.len() * bytes_per_span + 64);
    }
}

impl Span {
    /// Whether the head of the series belongs to this span.
    pub fn is_first(&self) -> bool {
        self.from == 0
    }

    /// Whether the foot of the series belongs to this span.
    pub fn is_last(&self, series: &Series) -> bool {
        self.until == series.values.len()
    }

    /// Its values.
    pub fn values<'a>(&self, series: &'a Series) -> &'a [f64] {
        &series.values[self.from..self.until]
    }
}
