//! `/metrics/details`: all metrics, with the size of a whisper file and the day of creation.

use std::sync::Arc;

use metadata::FindLimits;
use metric::{MetricId, Policy, Timestamp};

use super::formats::check_format;
use crate::{
    encode::{
        json::{JsonStyle, json_string},
        protobuf,
        python::write_int,
    },
    find::{ListSize, Listed, is_cancelled, names_work, too_many_new_names},
    http::{Chunks, Rejection, respond, uncached_head},
    query::{Backend, Protocol, Query, Reply},
};

/// `/metrics/details`.
pub(crate) async fn details(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    check_format(query)?;
    let (protocol, style) = (query.protocol, query.json_style());
    names_work(backend, query, move |backend, limits, coding, work| {
        backend.finder.has_all()?;
        let size = ListSize::of(backend, limits, METRIC_BYTES)?;
        let share = work.answer(size.bytes(size_of::<(MetricId, usize, MetricDetails)>()))?;
        let details = Details::read(backend, protocol, style, limits, &size)?;
        let content_type = protocol.map_or("application/json", Protocol::content_type);
        Ok(respond(uncached_head(content_type), Arc::new(details), coding, share))
    })
    .await
}

/// Metrics in one chunk.
const METRICS_PER_CHUNK: usize = 4096;

/// The details of all metrics, encoded while they are sent.
struct Details {
    protocol: Option<Protocol>,
    style: JsonStyle,
    text: String,
    metrics: Vec<MetricDetails>,
}

/// The details of one metric.
struct MetricDetails {
    // The end of its name in `text`.
    name_end: usize,
    bytes: u64,
    created_on: Timestamp,
}

impl Details {
    fn read(
        backend: &Backend,
        protocol: Option<Protocol>,
        style: JsonStyle,
        limits: &FindLimits,
        size: &ListSize,
    ) -> Result<Details, Rejection> {
        // The policies are read after it, many under one lock.
        let (mut text, mut ends) = (String::with_capacity(size.room()), Vec::with_capacity(size.most()));
        let mut is_full = false;
        let listed = Listed::new(backend, limits);
        backend.registry.all(|id, name| {
            if !listed.has(id, name) {
                return true;
            }
            is_full = text.capacity() < text.len() + name.len() || ends.capacity() == ends.len();
            if is_full {
                return false;
            }
            text.push_str(name);
            ends.push((id, text.len()));
            !(ends.len().is_multiple_of(METRICS_PER_CHUNK) && is_cancelled(limits))
        });
        if is_full {
            return Err(too_many_new_names());
        }
        let mut metrics = Vec::with_capacity(ends.len());
        for batch in ends.chunks(METRICS_PER_CHUNK) {
            let names = backend.registry.read();
            metrics.extend(batch.iter().map(|&(id, name_end)| {
                let bytes = whisper_bytes(&backend.registry.policy(names.policy_id(id)));
                MetricDetails { name_end, bytes, created_on: names.created_on(id) }
            }));
        }
        Ok(Details { protocol, style, text, metrics })
    }

    fn name(&self, index: usize) -> &str {
        let begin = if index == 0 { 0 } else { self.metrics[index - 1].name_end };
        &self.text[begin..self.metrics[index].name_end]
    }
}

/// Fewest bytes of a metric's details without its name.
const METRIC_BYTES: usize = 16;

/// Bytes of a whisper file for a metric: go-carbon's logical size.
fn whisper_bytes(policy: &Policy) -> u64 {
    let stages = policy.retention.stages();
    16 + stages.iter().map(|stage| 12 + 12 * u64::from(stage.points())).sum::<u64>()
}

impl Chunks for Details {
    fn count(&self) -> usize {
        self.metrics.len().div_ceil(METRICS_PER_CHUNK).max(1)
    }

    fn write(&self, chunk: usize, out: &mut Vec<u8>) {
        let begin = chunk * METRICS_PER_CHUNK;
        let end = (begin + METRICS_PER_CHUNK).min(self.metrics.len());
        if self.protocol.is_some() {
            return (begin..end).for_each(|index| self.message(index, out));
        }
        if chunk == 0 {
            self.style.open(out);
            out.extend_from_slice(b"{\"Metrics\": [");
        }
        for index in begin..end {
            if index > 0 {
                self.style.comma(out, 1);
            } else {
                self.style.line(out, 1);
            }
            let MetricDetails { bytes, created_on, .. } = self.metrics[index];
            out.extend_from_slice(b"{\"Name\": ");
            json_string(out, self.name(index), self.style.ascii);
            out.extend_from_slice(b", \"Size\": ");
            write_int(out, bytes as i64);
            out.extend_from_slice(b", \"ModTime\": ");
            write_int(out, created_on);
            out.extend_from_slice(b", \"ATime\": 0, \"RdTime\": 0}");
        }
        if chunk + 1 == self.count() {
            if !self.metrics.is_empty() {
                self.style.line(out, 0);
            }
            out.extend_from_slice(b"], \"FreeSpace\": 0, \"TotalSpace\": 0}");
            self.style.close(out);
        }
    }
}

impl Details {
    /// Writes an entry of the map in a `MetricDetailsResponse`: a name and a `MetricDetails`.
    fn message(&self, index: usize, out: &mut Vec<u8>) {
        let MetricDetails { bytes, created_on, .. } = self.metrics[index];
        let mut details = Vec::new();
        protobuf::int(&mut details, 2, bytes as i64);
        protobuf::int(&mut details, 3, created_on);
        let mut entry = Vec::new();
        protobuf::text(&mut entry, 1, self.name(index));
        protobuf::bytes(&mut entry, 2, &details);
        protobuf::bytes(out, 1, &entry);
    }
}
