//! `format=raw`: `name,start,end,step|value,…` lines.

use render::Series;

use super::{
    contract::{Format, FormatInput, SeriesChunk, Span},
    python_text::python_value,
};
use crate::encode::python::write_int;

/// The format.
struct Raw;

/// Makes the format.
pub(super) fn make(_: FormatInput<'_>) -> Box<dyn Format> {
    Box::new(Raw)
}

impl Format for Raw {
    fn content_type(&self) -> &'static str {
        "text/plain"
    }

    fn least_bytes_per_point(&self, _: &Series) -> usize {
        // `None,` is longer.
        "1.0,".len()
    }

    fn write(&self, chunk: &SeriesChunk<'_>, out: &mut Vec<u8>) {
        chunk.reserve(out, 12, 100);
        chunk.parts().for_each(|(series, span)| write_span(series, &span, out));
    }
}

fn write_span(series: &Series, span: &Span, out: &mut Vec<u8>) {
    if span.is_first() {
        out.extend_from_slice(series.name.as_bytes());
        for (value, mark) in [(series.start, b','), (series.end, b','), (series.step, b',')] {
            out.push(mark);
            write_int(out, value);
        }
        out.push(b'|');
    }
    for (index, &value) in span.values(series).iter().enumerate() {
        if span.from + index > 0 {
            out.push(b',');
        }
        python_value(value, series.integers, b"None", out);
    }
    if span.is_last(series) {
        out.push(b'\n');
    }
}
