//! What go-carbon tells of metrics, and carbonapi asks: `/info`, `/metrics/list`, `/metrics/details`.

use std::sync::Arc;

use hyper::{Response, header};
use metric::{Policy, Timestamp};

use crate::{
    Api, Body, Refusal,
    api::{Query, Reply},
    carbonapi::{Protocol, read_names, unreadable},
    find::{all_names, find_work, is_cancelled, refusal},
    json::{JsonStyle, uncached},
    nodes::Listing,
    pieces::{Coding, Pieces, respond},
    protobuf,
    write::{int, json_string},
};

/// Metrics asked for by name in one `/info`, at most.
const MAX_ASKED: usize = 10_000;

/// `/info`: how metrics are kept. They are asked for by name, each a `target` or, in version 3, a name of the message.
pub(crate) async fn info(api: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    check_format(query)?;
    let mut names = match query.protocol {
        Some(Protocol::V3) => read_names(&query.body).map_err(unreadable("MultiMetricsInfoRequest"))?,
        _ => Vec::new(),
    };
    names.extend(query.params.all("target").map(str::to_owned));
    if names.is_empty() {
        return Err(Refusal::Request("there is no target; name a metric: target=a.b.c".to_owned()));
    }
    if names.len() > MAX_ASKED {
        return Err(Refusal::Request(format!(
            "{} metrics are asked for; at most {MAX_ASKED} are told of",
            names.len()
        )));
    }
    let mut kept = Vec::with_capacity(names.len());
    for name in &names {
        kept.push((name.as_str(), policy(api, name).ok_or_else(|| Refusal::NoSuchMetric(name.clone()))?));
    }
    let mut out = Vec::new();
    let content_type = match query.protocol {
        Some(Protocol::V3) => {
            for (name, policy) in &kept {
                let mut message = Vec::new();
                info_message(name, policy, &mut message);
                protobuf::bytes(&mut out, 1, &message);
            }
            Protocol::V3.content_type()
        }
        // One metric is all that this message has room for.
        Some(Protocol::V2) => {
            kept.iter().take(1).for_each(|(name, policy)| info_message(name, policy, &mut out));
            Protocol::V2.content_type()
        }
        None => {
            info_json(&kept, &JsonStyle::of(query), &mut out);
            "application/json"
        }
    };
    let response = Response::builder().header(header::CONTENT_TYPE, content_type);
    Ok(response.body(Body::from(out)).expect("the parts of an answer are ours").into())
}

/// The formats of go-carbon, of which one is no protobuf.
fn check_format(query: &Query) -> Result<(), Refusal> {
    match query.params.last("format") {
        Some(format) if query.protocol.is_none() && format != "json" => Err(Refusal::Format(format!(
            "there is no format {} here; use json, carbonapi_v2_pb or carbonapi_v3_pb",
            crate::python::quoted(format)
        ))),
        _ => Ok(()),
    }
}

fn policy(api: &Api, name: &str) -> Option<Arc<Policy>> {
    let policy = {
        let names = api.registry.read();
        let number = names.find(api.registry.hash(name.as_bytes()), name.as_bytes())?;
        names.policy_id(number)
    };
    Some(api.registry.policy(policy))
}

/// Carbon's name of the aggregation method, with a capital letter as go-carbon writes it.
fn method(policy: &Policy) -> String {
    let name = policy.aggregation.name();
    let (first, rest) = name.split_at(1);
    first.to_ascii_uppercase() + rest
}

/// An `InfoResponse` of version 2 or a `MetricsInfoResponse` of version 3: they have the same fields.
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

/// The message of version 3 as JSON, its numbers as numbers.
fn info_json(kept: &[(&str, Arc<Policy>)], style: &JsonStyle, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"metrics\": ");
    style.items(out, *b"[]", 1, kept, |out, (name, policy)| {
        out.extend_from_slice(b"{\"name\": ");
        json_string(out, name, style.ascii);
        out.extend_from_slice(b", \"consolidationFunc\": ");
        json_string(out, &method(policy), true);
        out.extend_from_slice(b", \"maxRetention\": ");
        int(out, policy.retention.longest().duration());
        out.extend_from_slice(b", \"xFilesFactor\": ");
        crate::write::float(out, policy.x_files_factor);
        out.extend_from_slice(b", \"retentions\": ");
        style.items(out, *b"[]", 2, policy.retention.stages(), |out, stage| {
            out.extend_from_slice(b"{\"secondsPerPoint\": ");
            int(out, i64::from(stage.resolution()));
            out.extend_from_slice(b", \"numberOfPoints\": ");
            int(out, i64::from(stage.points()));
            out.push(b'}');
        });
        out.push(b'}');
    });
    out.push(b'}');
}

/// `/metrics/list`: every metric.
pub(crate) async fn list(api: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    check_format(query)?;
    let listing = match query.protocol {
        Some(protocol) => Listing::Protobuf(protocol),
        None => Listing::Object(JsonStyle::of(query)),
    };
    all_names(api, query, listing).await
}

/// `/metrics/details`: every metric, with what its whisper file would weigh and since when it is there.
pub(crate) async fn details(api: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    check_format(query)?;
    let (protocol, style) = (query.protocol, JsonStyle::of(query));
    let response = find_work(api, query, move |api, limits, permit, headers| {
        let details = Details::read(api, protocol, style, || is_cancelled(limits))?;
        let content_type = protocol.map_or("application/json", Protocol::content_type);
        Ok(respond(uncached(content_type), Arc::new(details), Coding::of(headers), permit))
    });
    Ok(response.await?.into())
}

/// Metrics of one piece of the details.
const METRICS_PER_PIECE: usize = 4096;

/// Every metric's details, written as they are sent.
struct Details {
    protocol: Option<Protocol>,
    style: JsonStyle,
    text: String,
    // Where the name ends, what the metric weighs, and since when it is there.
    metrics: Vec<(usize, u64, Timestamp)>,
}

impl Details {
    fn read(
        api: &Api,
        protocol: Option<Protocol>,
        style: JsonStyle,
        cancelled: impl Fn() -> bool,
    ) -> Result<Details, Refusal> {
        api.finder.has_all().map_err(refusal)?;
        // The lock of the names must not be taken while they are listed.
        let (mut text, mut ends) = (String::new(), Vec::new());
        let limit = api.limits.response_bytes;
        let mut bytes = 0;
        api.registry.all(|number, name| {
            bytes += name.len() + METRIC_BYTES;
            text.push_str(name);
            ends.push((number, text.len()));
            bytes <= limit && !(ends.len().is_multiple_of(METRICS_PER_PIECE) && cancelled())
        });
        if bytes > limit {
            let (what, setting) = ("the bytes of the answer come to", "query.max_response_bytes");
            return Err(Refusal::TooMuch { what, given: format!("more than {limit}"), limit, setting });
        }
        let mut metrics = Vec::with_capacity(ends.len());
        for some in ends.chunks(METRICS_PER_PIECE) {
            let names = api.registry.read();
            metrics.extend(some.iter().map(|&(number, end)| {
                let policy = api.registry.policy(names.policy_id(number));
                (end, whisper_bytes(&policy), names.created_on(number))
            }));
        }
        Ok(Details { protocol, style, text, metrics })
    }

    fn name(&self, index: usize) -> &str {
        let begin = if index == 0 { 0 } else { self.metrics[index - 1].0 };
        &self.text[begin..self.metrics[index].0]
    }
}

/// The fewest bytes of a metric's details beside its name.
const METRIC_BYTES: usize = 16;

/// Bytes of the file in which whisper would keep a metric: what go-carbon calls its logical size.
fn whisper_bytes(policy: &Policy) -> u64 {
    let stages = policy.retention.stages();
    16 + stages.iter().map(|stage| 12 + 12 * u64::from(stage.points())).sum::<u64>()
}

impl Pieces for Details {
    fn count(&self) -> usize {
        self.metrics.len().div_ceil(METRICS_PER_PIECE).max(1)
    }

    fn write(&self, piece: usize, out: &mut Vec<u8>) {
        let begin = piece * METRICS_PER_PIECE;
        let end = (begin + METRICS_PER_PIECE).min(self.metrics.len());
        if self.protocol.is_some() {
            return (begin..end).for_each(|index| self.message(index, out));
        }
        if piece == 0 {
            self.style.open(out);
            out.extend_from_slice(b"{\"Metrics\": [");
        }
        for index in begin..end {
            if index > 0 {
                self.style.comma(out, 1);
            } else {
                self.style.line(out, 1);
            }
            let (_, bytes, created_on) = self.metrics[index];
            out.extend_from_slice(b"{\"Name\": ");
            json_string(out, self.name(index), self.style.ascii);
            out.extend_from_slice(b", \"Size\": ");
            int(out, bytes as i64);
            out.extend_from_slice(b", \"ModTime\": ");
            int(out, created_on);
            out.extend_from_slice(b", \"ATime\": 0, \"RdTime\": 0}");
        }
        if piece + 1 == self.count() {
            if !self.metrics.is_empty() {
                self.style.line(out, 0);
            }
            out.extend_from_slice(b"], \"FreeSpace\": 0, \"TotalSpace\": 0}");
            self.style.close(out);
        }
    }
}

impl Details {
    /// An entry of the map in a `MetricDetailsResponse`: a name and a `MetricDetails`.
    fn message(&self, index: usize, out: &mut Vec<u8>) {
        let (_, bytes, created_on) = self.metrics[index];
        let mut details = Vec::new();
        protobuf::int(&mut details, 2, bytes as i64);
        protobuf::int(&mut details, 3, created_on);
        let mut entry = Vec::new();
        protobuf::text(&mut entry, 1, self.name(index));
        protobuf::bytes(&mut entry, 2, &details);
        protobuf::bytes(out, 1, &entry);
    }
}
