//! `/info`: the policies of metrics.

use std::sync::Arc;

use hyper::StatusCode;
use metric::Policy;

use super::{
    formats::check_format,
    messages::{read_body, read_names},
};
use crate::{
    encode::{
        json::{JsonStyle, LIST, json_string},
        protobuf,
        python::{write_float, write_int},
    },
    http::Rejection,
    query::{Backend, Protocol, Query, Reply},
};

/// Metrics of one request, at most.
const MAX_METRICS: usize = 10_000;

/// `/info`: the policies of metrics. Each `target` is a name, and in version 3 each name of the message.
pub(crate) async fn info(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    check_format(query)?;
    let mut names = match query.protocol {
        Some(Protocol::V3) => read_body(backend, query, "MultiMetricsInfoRequest", read_names).await?,
        _ => Vec::new(),
    };
    names.extend(query.parameters.all("target").map(str::to_owned));
    if names.is_empty() {
        return Err(Rejection::Request("the target is missing; name a metric: target=a.b.c".to_owned()));
    }
    if names.len() > MAX_METRICS {
        let text = format!("the request names {} metrics; the limit is {MAX_METRICS}", names.len());
        return Err(Rejection::Request(text));
    }
    let mut metrics = Vec::with_capacity(names.len());
    for name in &names {
        metrics.push((
            name.as_str(),
            query.viewer.policy(&backend.registry, name).ok_or_else(|| Rejection::NoSuchMetric(name.clone()))?,
        ));
    }
    let mut out = Vec::new();
    let content_type = match query.protocol {
        Some(Protocol::V3) => {
            for (name, policy) in &metrics {
                let mut message = Vec::new();
                info_message(name, policy, &mut message);
                protobuf::bytes(&mut out, 1, &message);
            }
            Protocol::V3.content_type()
        }
        // This message has room for one metric.
        Some(Protocol::V2) => {
            metrics.iter().take(1).for_each(|(name, policy)| info_message(name, policy, &mut out));
            Protocol::V2.content_type()
        }
        None => {
            info_json(&metrics, &query.json_style(), &mut out);
            "application/json"
        }
    };
    Ok(Reply::short(StatusCode::OK, content_type, out))
}

/// Carbon's name of the aggregation method, with an initial capital as in go-carbon.
fn method(policy: &Policy) -> String {
    let name = policy.aggregation.name();
    let (first, rest) = name.split_at(1);
    first.to_ascii_uppercase() + rest
}

/// Writes an `InfoResponse` of version 2 or a `MetricsInfoResponse` of version 3, which have the same fields.
fn info_message(name: &str, policy: &Policy, out: &mut Vec<u8>) {
    protobuf::text(out, 1, name);
    protobuf::text(out, 2, &method(policy));
    protobuf::int(out, 3, policy.retention.longest().duration());
    protobuf::float(out, 4, policy.x_files_factor as f32);
    for stage in policy.retention.stages() {
        let mut message = Vec::new();
        protobuf::int(&mut message, 1, i64::from(stage.resolution()));
        protobuf::int(&mut message, 2, i64::from(stage.points()));
        protobuf::bytes(out, 5, &message);
    }
}

/// Writes the message of version 3 as JSON.
fn info_json(metrics: &[(&str, Arc<Policy>)], style: &JsonStyle, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"metrics\": ");
    style.items(out, LIST, 1, metrics, |out, (name, policy)| {
        out.extend_from_slice(b"{\"name\": ");
        json_string(out, name, style.ascii);
        out.extend_from_slice(b", \"consolidationFunc\": ");
        json_string(out, &method(policy), true);
        out.extend_from_slice(b", \"maxRetention\": ");
        write_int(out, policy.retention.longest().duration());
        out.extend_from_slice(b", \"xFilesFactor\": ");
        write_float(out, policy.x_files_factor);
        out.extend_from_slice(b", \"retentions\": ");
        style.items(out, LIST, 2, policy.retention.stages(), |out, stage| {
            out.extend_from_slice(b"{\"secondsPerPoint\": ");
            write_int(out, i64::from(stage.resolution()));
            out.extend_from_slice(b", \"numberOfPoints\": ");
            write_int(out, i64::from(stage.points()));
            out.push(b'}');
        });
        out.push(b'}');
    });
    out.push(b'}');
}
