//! `format=rickshaw`: `[{"target", "datapoints": [{"x", "y"}, …]}, …]`.

use render::Series;

use super::{
    contract::{Format, FormatInput, SeriesChunk, Span},
    json_text::{TimeTexts, content_type, json_value, rickshaw_len, write_list},
};
use crate::encode::json::{JsonStyle, json_string};

/// The format.
struct Rickshaw {
    style: JsonStyle,
}

/// Makes the format.
pub(super) fn make(input: FormatInput<'_>) -> Box<dyn Format> {
    Box::new(Rickshaw { style: input.options.style })
}

impl Format for Rickshaw {
    fn content_type(&self) -> &'static str {
        content_type(&self.style)
    }

    fn least_bytes_per_point(&self, _: &Series) -> usize {
        "{\"x\": 1700000000, \"y\": 1.0}, ".len()
    }

    fn write(&self, chunk: &SeriesChunk<'_>, out: &mut Vec<u8>) {
        chunk.reserve(out, 40, 200);
        write_list(chunk, &self.style, out, |series, span, out| write_span(series, span, &self.style, out));
    }
}

fn write_span(series: &Series, span: &Span, style: &JsonStyle, out: &mut Vec<u8>) {
    if span.is_first() {
        out.push(b'{');
        style.line(out, 2);
        out.extend_from_slice(b"\"target\": ");
        json_string(out, &series.name, style.ascii);
        style.comma(out, 2);
        out.extend_from_slice(b"\"datapoints\": [");
    }
    let until = span.until.min(rickshaw_len(series));
    let from = span.from.min(until);
    let mut times = TimeTexts::of(series, from);
    for (index, &value) in series.values[from..until].iter().enumerate() {
        if from + index > 0 {
            style.comma(out, 3);
        } else {
            style.line(out, 3);
        }
        out.push(b'{');
        style.line(out, 4);
        out.extend_from_slice(b"\"x\": ");
        out.extend_from_slice(times.text());
        style.comma(out, 4);
        out.extend_from_slice(b"\"y\": ");
        json_value(value, series.integers, out);
        style.line(out, 3);
        out.push(b'}');
        times.advance();
    }
    if span.is_last(series) {
        if until > 0 {
            style.line(out, 2);
        }
        out.push(b']');
        style.line(out, 1);
        out.push(b'}');
    }
}
