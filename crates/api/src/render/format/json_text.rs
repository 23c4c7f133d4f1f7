//! Text that the JSON-like formats share: times, values, and the list around the series.

use render::Series;

use super::contract::{SeriesChunk, Span};
use crate::encode::{
    json::JsonStyle,
    python::{write_float, write_whole},
};

/// Writes a chunk of a list of objects, one a series; `write` writes each span.
pub(super) fn write_list(
    chunk: &SeriesChunk<'_>,
    style: &JsonStyle,
    out: &mut Vec<u8>,
    write: impl FnMut(&Series, &Span, &mut Vec<u8>),
) {
    if chunk.is_first {
        style.open(out);
    }
    write_items(chunk, style, out, write);
    if chunk.is_last {
        style.close(out);
    }
}

/// The same without what stands around the list.
pub(super) fn write_items(
    chunk: &SeriesChunk<'_>,
    style: &JsonStyle,
    out: &mut Vec<u8>,
    mut write: impl FnMut(&Series, &Span, &mut Vec<u8>),
) {
    if chunk.is_first {
        out.push(b'[');
    }
    for (series, span) in chunk.parts() {
        if span.is_first() {
            if span.series > 0 {
                style.comma(out, 1);
            } else {
                style.line(out, 1);
            }
        }
        write(series, &span, out);
    }
    if chunk.is_last {
        if !chunk.all.is_empty() {
            style.line(out, 0);
        }
        out.push(b']');
    }
}

/// Content type of the formats in JSON.
pub(super) fn content_type(style: &JsonStyle) -> &'static str {
    if style.callback.is_some() { "text/javascript" } else { "application/json" }
}

/// Number of values that Python's `zip` with `times` times would take.
fn shown_len(series: &Series, times: i64) -> usize {
    series.values.len().min(usize::try_from(times).unwrap_or(0))
}

/// Number of values that JSON shows: Python's `zip` with `range(start, end + 1, step)`.
pub(super) fn json_len(series: &Series) -> usize {
    let span = series.end.saturating_sub(series.start);
    shown_len(series, if span < 0 { 0 } else { span / series.step.max(1) + 1 })
}

/// Number of values that rickshaw and dygraph show: Python's `zip` with `range(start, end, step)`.
pub(super) fn rickshaw_len(series: &Series) -> usize {
    let span = series.end.saturating_sub(series.start);
    shown_len(series, if span <= 0 { 0 } else { (span - 1) / series.step.max(1) + 1 })
}

/// Writes a value as Python's `json` does, and null where it is unknown or infinite: JSON has no infinity, and readers in Go
/// reject a whole answer with graphite-web's `1e9999`.
pub(super) fn json_value(value: f64, integers: bool, out: &mut Vec<u8>) {
    if !value.is_finite() {
        out.extend_from_slice(b"null");
    } else if integers {
        write_whole(out, value);
    } else {
        write_float(out, value);
    }
}

/// The text of the times of a series, one after the other.
pub(super) struct TimeTexts {
    // The time as the end of a JSON point, `, 1700000000]`, with room for any time.
    text: [u8; 24],
    digits: usize,
    time: i64,
    step: i64,
}

impl TimeTexts {
    /// The texts of the times of a series from its value `index` on.
    pub fn of(series: &Series, index: usize) -> TimeTexts {
        let time = series.start.saturating_add(series.step.saturating_mul(index as i64));
        let mut times = TimeTexts { text: *b",                       ", digits: 0, time, step: series.step };
        times.spell();
        times
    }

    fn spell(&mut self) {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(self.time).as_bytes();
        self.digits = digits.len();
        self.text[2..2 + digits.len()].copy_from_slice(digits);
        self.text[2 + digits.len()] = b']';
    }

    /// The current time.
    pub fn text(&self) -> &[u8] {
        &self.text[2..2 + self.digits]
    }

    /// Writes `, 1700000000]`. Copies the whole text and truncates: a copy of fixed length is a few instructions, one of
    /// variable length is a call.
    pub fn end_point(&self, out: &mut Vec<u8>) {
        let len = out.len() + self.digits + 3;
        out.extend_from_slice(&self.text);
        out.truncate(len);
    }

    /// Advances by one step.
    pub fn advance(&mut self) {
        self.time = self.time.saturating_add(self.step);
        self.spell();
    }
}
