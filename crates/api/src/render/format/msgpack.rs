//! `format=msgpack`: a list of maps, for graphite-web and carbonapi.

use render::Series;

use super::contract::{Format, FormatInput, SeriesChunk, Span};
use crate::encode::msgpack;

/// The format.
struct MessagePack;

/// Makes the format.
pub(super) fn make(_: FormatInput<'_>) -> Box<dyn Format> {
    Box::new(MessagePack)
}

impl Format for MessagePack {
    fn content_type(&self) -> &'static str {
        "application/x-msgpack"
    }

    fn least_bytes_per_point(&self, _: &Series) -> usize {
        1
    }

    fn write(&self, chunk: &SeriesChunk<'_>, out: &mut Vec<u8>) {
        chunk.reserve(out, 9, 300);
        if chunk.is_first {
            msgpack::array(out, chunk.all.len());
        }
        chunk.parts().for_each(|(series, span)| write_span(series, &span, out));
    }
}

fn write_span(series: &Series, span: &Span, out: &mut Vec<u8>) {
    if span.is_first() {
        msgpack::map(out, 9);
        msgpack::text(out, "name");
        msgpack::text(out, &series.name);
        for (key, value) in [("start", series.start), ("end", series.end), ("step", series.step)] {
            msgpack::text(out, key);
            msgpack::int(out, value);
        }
        msgpack::text(out, "values");
        msgpack::array(out, series.values.len());
    }
    for &value in span.values(series) {
        if value.is_nan() { msgpack::nil(out) } else { msgpack::float(out, value) }
    }
    if span.is_last(series) {
        msgpack::text(out, "pathExpression");
        msgpack::text(out, &series.path_expression);
        msgpack::text(out, "valuesPerPoint");
        msgpack::int(out, 1);
        msgpack::text(out, "consolidationFunc");
        msgpack::text(out, series.consolidation.name());
        msgpack::text(out, "xFilesFactor");
        msgpack::float(out, series.x_files_factor);
    }
}
