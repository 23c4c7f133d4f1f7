//! `format=json`: `[{"target", "tags", "datapoints": [[value, time], …]}, …]`; with `meta=true` as Metrictank's,
//! `{"version", "meta", "series": [{"target", "tags", "datapoints", "meta"}, …]}`.

use render::{MAX_FLOAT_BYTES, Series};

use super::{
    contract::{Format, FormatInput, NullPoints, SeriesChunk, Span, Totals},
    json_text::{TimeTexts, content_type, json_len, json_value, write_items},
    lineage,
};
use crate::encode::json::{JsonStyle, OBJECT, json_string};

/// The format.
struct Json {
    style: JsonStyle,
    null_points: NullPoints,
    // For answers with lineage.
    totals: Option<Totals>,
}

/// Makes the format.
pub(super) fn make(input: FormatInput<'_>) -> Box<dyn Format> {
    Box::new(Json { style: input.options.style, null_points: input.options.null_points, totals: input.totals })
}

impl Format for Json {
    fn content_type(&self) -> &'static str {
        content_type(&self.style)
    }

    fn least_bytes_per_point(&self, _: &Series) -> usize {
        match self.null_points {
            NullPoints::Kept => "[1.0, 1700000000], ".len(),
            NullPoints::Dropped => 0,
        }
    }

    fn select(&self, series: &mut Vec<Series>) {
        match self.null_points {
            NullPoints::Dropped => series.retain(|series| series.values.iter().any(|value| value.is_finite())),
            // graphite-web checks `any(data)`: whether one of the series has a point, null or not.
            NullPoints::Kept if series.iter().all(|series| series.values.is_empty()) => series.clear(),
            NullPoints::Kept => {}
        }
    }

    fn write(&self, chunk: &SeriesChunk<'_>, out: &mut Vec<u8>) {
        chunk.reserve(out, 28, 200);
        if chunk.is_first {
            self.style.open(out);
            if let Some(totals) = &self.totals {
                lineage::write_head(totals, &self.style, out);
            }
        }
        write_items(chunk, &self.style, out, |series, span, out| self.write_span(series, span, out));
        if chunk.is_last {
            if self.totals.is_some() {
                lineage::write_foot(out);
            }
            self.style.close(out);
        }
    }
}

impl Json {
    fn write_span(&self, series: &Series, span: &Span, out: &mut Vec<u8>) {
        let Json { style, null_points, totals } = self;
        let null_points = *null_points;
        if span.is_first() {
            write_head(series, style, out);
        }
        let until = span.until.min(json_len(series));
        let from = span.from.min(until);
        let points = Points {
            values: &series.values[from..until],
            times: TimeTexts::of(series, from),
            integers: series.integers,
            null_points,
            any: match null_points {
                NullPoints::Kept => from > 0,
                NullPoints::Dropped => series.values[..from].iter().any(|value| value.is_finite()),
            },
        };
        let any = if style.pretty { points.write_pretty(style, out) } else { points.write_compact(out) };
        if span.is_last(series) {
            if any {
                style.line(out, 2);
            }
            out.push(b']');
            if totals.is_some() {
                style.comma(out, 2);
                lineage::write_origins(series.lineage.as_deref().map_or(&[], Vec::as_slice), style, out);
            }
            style.line(out, 1);
            out.push(b'}');
        }
    }
}

fn write_head(series: &Series, style: &JsonStyle, out: &mut Vec<u8>) {
    out.push(b'{');
    style.line(out, 2);
    out.extend_from_slice(b"\"target\": ");
    json_string(out, &series.name, style.ascii);
    style.comma(out, 2);
    out.extend_from_slice(b"\"tags\": ");
    style.items(out, OBJECT, 3, series.tags.iter(), |out, (tag, value)| {
        json_string(out, tag, style.ascii);
        out.extend_from_slice(b": ");
        json_string(out, value, style.ascii);
    });
    style.comma(out, 2);
    out.extend_from_slice(b"\"datapoints\": [");
}

/// The points of a span.
struct Points<'a> {
    values: &'a [f64],
    times: TimeTexts,
    integers: bool,
    null_points: NullPoints,
    // Whether a point precedes the next one.
    any: bool,
}

impl Points<'_> {
    /// Writes the points in one line; returns whether the series has a point so far.
    fn write_compact(self, out: &mut Vec<u8>) -> bool {
        // Locals, which stay in registers.
        let Points { values, mut times, integers, null_points, mut any } = self;
        for &value in values {
            out.reserve(MAX_FLOAT_BYTES + 32);
            if value.is_finite() {
                out.extend_from_slice(if any { b", [" } else { b"[" });
                json_value(value, integers, out);
            } else if null_points == NullPoints::Kept {
                out.extend_from_slice(if any { b", [null" } else { b"[null" });
            } else {
                times.advance();
                continue;
            }
            any = true;
            times.end_point(out);
            times.advance();
        }
        any
    }

    /// Writes the points with indentation; returns whether the series has a point so far.
    fn write_pretty(self, style: &JsonStyle, out: &mut Vec<u8>) -> bool {
        let Points { values, mut times, integers, null_points, mut any } = self;
        for &value in values {
            if value.is_finite() || null_points == NullPoints::Kept {
                if any {
                    style.comma(out, 3);
                } else {
                    style.line(out, 3);
                }
                any = true;
                out.push(b'[');
                style.line(out, 4);
                json_value(value, integers, out);
                style.comma(out, 4);
                out.extend_from_slice(times.text());
                style.line(out, 3);
                out.push(b']');
            }
            times.advance();
        }
        any
    }
}
