//! `format=pickle`: a list of dicts, for graphite-web.

use render::Series;

use super::contract::{Format, FormatInput, SeriesChunk, Span};
use crate::encode::{pickle, python::is_whole};

/// The format.
struct Pickle;

/// Makes the format.
pub(super) fn make(_: FormatInput<'_>) -> Box<dyn Format> {
    Box::new(Pickle)
}

impl Format for Pickle {
    fn content_type(&self) -> &'static str {
        "application/pickle"
    }

    fn least_bytes_per_point(&self, _: &Series) -> usize {
        1
    }

    fn write(&self, chunk: &SeriesChunk<'_>, out: &mut Vec<u8>) {
        chunk.reserve(out, 9, 300);
        if chunk.is_first {
            pickle::begin(out);
            pickle::list_begin(out);
        }
        chunk.parts().for_each(|(series, span)| write_span(series, &span, out));
        if chunk.is_last {
            pickle::list_end(out);
            pickle::end(out);
        }
    }
}

fn write_span(series: &Series, span: &Span, out: &mut Vec<u8>) {
    if span.is_first() {
        pickle::dict_begin(out);
        pickle::text(out, "name");
        pickle::text(out, &series.name);
        for (key, value) in [("start", series.start), ("end", series.end), ("step", series.step)] {
            pickle::text(out, key);
            pickle::int(out, value);
        }
        pickle::text(out, "values");
        pickle::list_begin(out);
    }
    for &value in span.values(series) {
        if value.is_nan() {
            pickle::none(out);
        } else if series.integers && is_whole(value) {
            pickle::int(out, value as i64);
        } else {
            pickle::float(out, value);
        }
    }
    if span.is_last(series) {
        pickle::list_end(out);
        pickle::text(out, "pathExpression");
        pickle::text(out, &series.path_expression);
        pickle::text(out, "valuesPerPoint");
        pickle::int(out, 1);
        pickle::text(out, "consolidationFunc");
        pickle::text(out, series.consolidation.name());
        pickle::text(out, "xFilesFactor");
        pickle::float(out, series.x_files_factor);
        pickle::dict_end(out);
    }
}
