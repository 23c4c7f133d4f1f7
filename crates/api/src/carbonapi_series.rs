//! Series as carbonapi's `MultiFetchResponse`s: a message for each, its columns packed, written a piece at a time.

use metric::Aggregation;
use render::Series;

use crate::{Api, protobuf};

/// What a message of version 3 says beside the series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FetchHead {
    /// How carbonapi is to fold points.
    consolidation: &'static str,
    /// The share of known points it needs for that.
    x_files_factor: f32,
    /// The request's own times, Unix seconds.
    request_start: i64,
    request_stop: i64,
}

impl FetchHead {
    /// Says of a metric what its policy says, as go-carbon takes it from the whisper file; and of what a function made,
    /// what the function says.
    pub fn of(api: &Api, series: &Series, request_start: i64, request_stop: i64) -> FetchHead {
        let name = series.name.as_bytes();
        let policy = {
            let names = api.registry.read();
            names.find(api.registry.hash(name), name).map(|number| names.policy_id(number))
        };
        let (consolidation, x_files_factor) = match policy.map(|policy| api.registry.policy(policy)) {
            Some(policy) => (known_to_carbonapi(policy.aggregation), policy.x_files_factor),
            None => (series.consolidation.name(), series.x_files_factor),
        };
        FetchHead { consolidation, x_files_factor: x_files_factor as f32, request_start, request_stop }
    }
}

/// carbonapi crashes on a name it does not have.
fn known_to_carbonapi(aggregation: Aggregation) -> &'static str {
    match aggregation {
        Aggregation::AbsMax => Aggregation::Max.name(),
        Aggregation::AbsMin => Aggregation::Min.name(),
        other => other.name(),
    }
}

/// The values at `from..until` of a `FetchResponse` of version 2. The first piece brings the message's head, and the
/// last the column that says which values are absent.
pub(crate) fn v2_span(series: &Series, from: usize, until: usize, out: &mut Vec<u8>) {
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

/// The values at `from..until` of a `FetchResponse` of version 3, in which an absent value is NaN.
pub(crate) fn v3_span(series: &Series, said: &FetchHead, from: usize, until: usize, out: &mut Vec<u8>) {
    let len = series.values.len();
    // What comes after the values; as long in the first piece, which must know, as in the last.
    let mut foot = Vec::with_capacity(24);
    if from == 0 || until == len {
        protobuf::int(&mut foot, 11, said.request_start);
        protobuf::int(&mut foot, 12, said.request_stop);
    }
    if from == 0 {
        let mut head = Vec::with_capacity(series.name.len() + series.path_expression.len() + 64);
        protobuf::text(&mut head, 1, &series.name);
        protobuf::text(&mut head, 2, &series.path_expression);
        protobuf::text(&mut head, 3, said.consolidation);
        protobuf::int(&mut head, 4, series.start);
        protobuf::int(&mut head, 5, series.end);
        protobuf::int(&mut head, 6, series.step);
        protobuf::float(&mut head, 7, said.x_files_factor);
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

/// Packed doubles, with another in the place of absent ones.
fn doubles(values: &[f64], absent: f64, out: &mut Vec<u8>) {
    let begin = out.len();
    out.resize(begin + 8 * values.len(), 0);
    for (bytes, &value) in out[begin..].chunks_exact_mut(8).zip(values) {
        bytes.copy_from_slice(&if value.is_nan() { absent } else { value }.to_le_bytes());
    }
}
