//! carbonapi's `MultiFetchResponse` of version 3: a message for each series, its column packed.

use metadata::Registry;
use metric::Aggregation;
use render::Series;

use super::{
    contract::{Format, FormatInput, SeriesChunk, Span},
    doubles::doubles,
};
use crate::{
    encode::protobuf,
    query::{Protocol, Times, Viewer},
};

/// The format, with the head of each series.
pub(crate) struct CarbonapiV3(pub Vec<FetchHead>);

/// Makes the format. All series get the times of the request.
pub(super) fn make(input: FormatInput<'_>) -> Box<dyn Format> {
    let FormatInput { registry, viewer, times: &Times { from, until, .. }, series, .. } = input;
    Box::new(CarbonapiV3(series.iter().map(|series| FetchHead::of(registry, viewer, series, from, until)).collect()))
}

impl Format for CarbonapiV3 {
    fn content_type(&self) -> &'static str {
        Protocol::V3.content_type()
    }

    fn least_bytes_per_point(&self, _: &Series) -> usize {
        8
    }

    fn write(&self, chunk: &SeriesChunk<'_>, out: &mut Vec<u8>) {
        chunk.reserve(out, 8, 200);
        chunk.parts().for_each(|(series, span)| write_span(series, &self.0[span.series], span, out));
    }
}

/// The fields of a `FetchResponse` that describe the metric and the request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FetchHead {
    /// How carbonapi consolidates points.
    consolidation: &'static str,
    /// The share of known points that consolidation needs.
    x_files_factor: f32,
    /// The request's own times, Unix seconds.
    request_start: i64,
    request_stop: i64,
}

impl FetchHead {
    /// The fields of a series: from the policy of a metric, as go-carbon reads them from the whisper file; otherwise from
    /// the function that produced the series.
    pub fn of(
        registry: &Registry,
        viewer: &Viewer,
        series: &Series,
        request_start: i64,
        request_stop: i64,
    ) -> FetchHead {
        // A function may have given the series the name of any metric.
        let (consolidation, x_files_factor) = match viewer.policy(registry, &series.name) {
            Some(policy) => (known_to_carbonapi(policy.aggregation), policy.x_files_factor),
            None => (series.consolidation.name(), series.x_files_factor),
        };
        FetchHead { consolidation, x_files_factor: x_files_factor as f32, request_start, request_stop }
    }
}

/// The name of a method for carbonapi, which crashes on names that it does not know.
fn known_to_carbonapi(aggregation: Aggregation) -> &'static str {
    match aggregation {
        Aggregation::AbsMax => Aggregation::Max.name(),
        Aggregation::AbsMin => Aggregation::Min.name(),
        other => other.name(),
    }
}

/// Writes a span of a `FetchResponse`, in which an absent value is NaN.
fn write_span(series: &Series, request: &FetchHead, span: Span, out: &mut Vec<u8>) {
    let Span { from, until, .. } = span;
    let len = series.values.len();
    // The fields after the values. The first span needs their length, the last one writes them.
    let mut foot = Vec::with_capacity(24);
    if from == 0 || until == len {
        protobuf::int(&mut foot, 11, request.request_start);
        protobuf::int(&mut foot, 12, request.request_stop);
    }
    if from == 0 {
        let mut head = Vec::with_capacity(series.name.len() + series.path_expression.len() + 64);
        protobuf::text(&mut head, 1, &series.name);
        protobuf::text(&mut head, 2, &series.path_expression);
        protobuf::text(&mut head, 3, request.consolidation);
        protobuf::int(&mut head, 4, series.start);
        protobuf::int(&mut head, 5, series.end);
        protobuf::int(&mut head, 6, series.step);
        protobuf::float(&mut head, 7, request.x_files_factor);
        let column = if len == 0 { 0 } else { protobuf::bytes_len(9, 8 * len) };
        protobuf::bytes_head(out, 1, head.len() + column + foot.len());
        out.extend_from_slice(&head);
        if len > 0 {
            protobuf::bytes_head(out, 9, 8 * len);
        }
    }
    doubles(&series.values[from..until], f64::NAN, out);
    if until == len {
        out.extend_from_slice(&foot);
    }
}
