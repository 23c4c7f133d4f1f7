//! carbonapi's `MultiFetchResponse` of version 2: a message for each series, its columns packed.

use render::Series;

use super::{
    contract::{Format, FormatInput, SeriesChunk, Span},
    doubles::doubles,
};
use crate::{encode::protobuf, query::Protocol};

/// The format.
struct CarbonapiV2;

/// Makes the format.
pub(super) fn make(_: FormatInput<'_>) -> Box<dyn Format> {
    Box::new(CarbonapiV2)
}

impl Format for CarbonapiV2 {
    fn content_type(&self) -> &'static str {
        Protocol::V2.content_type()
    }

    fn least_bytes_per_point(&self, _: &Series) -> usize {
        // A double, and whether it is absent.
        9
    }

    fn write(&self, chunk: &SeriesChunk<'_>, out: &mut Vec<u8>) {
        chunk.reserve(out, 9, 100);
        chunk.parts().for_each(|(series, span)| write_span(series, span, out));
    }
}

/// Writes a span of a `FetchResponse`. The first span includes the head, the last one the column of absent values.
fn write_span(series: &Series, span: Span, out: &mut Vec<u8>) {
    let Span { from, until, .. } = span;
    let len = series.values.len();
    if from == 0 {
        let mut head = Vec::with_capacity(series.name.len() + 32);
        protobuf::text(&mut head, 1, &series.name);
        protobuf::int(&mut head, 2, series.start);
        protobuf::int(&mut head, 3, series.end);
        protobuf::int(&mut head, 4, series.step);
        let columns = if len == 0 { 0 } else { protobuf::bytes_len(5, 8 * len) + protobuf::bytes_len(6, len) };
        protobuf::bytes_head(out, 1, head.len() + columns);
        out.extend_from_slice(&head);
        if len > 0 {
            protobuf::bytes_head(out, 5, 8 * len);
        }
    }
    doubles(&series.values[from..until], 0.0, out);
    if until == len && len > 0 {
        protobuf::bytes_head(out, 6, len);
        out.extend(series.values.iter().map(|value| u8::from(value.is_nan())));
    }
}
