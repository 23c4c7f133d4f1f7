//! The body of an answer with numbers: series cut into chunks, each encoded while the client reads.

use std::sync::Arc;

use render::Series;

use super::format::{Format, SeriesChunk, Span};
use crate::{
    http::{AHEAD, Chunks, Coding, Rejection, Response, head, respond},
    query::Work,
};

/// Values in one chunk: about 400 kB of JSON, one or two milliseconds of work.
const VALUES_PER_CHUNK: usize = 16_384;

/// Bytes of a value in an answer, with its time: an estimate for memory.
const BYTES_PER_VALUE: usize = 28;

/// The fixed cost of a series, in values.
const SERIES_COST: usize = 16;

/// Sends series in a format, unless the answer is certain to exceed `limit` bytes.
pub(crate) fn respond_series(
    format: Box<dyn Format>,
    series: Vec<Series>,
    limit: usize,
    coding: Coding,
    work: &Work,
) -> Result<Response, Rejection> {
    let body = SeriesBody::new(format, series);
    let least = body.least_bytes();
    if least > limit {
        return Err(Rejection::response_too_large(format!("at least {least}"), limit));
    }
    let share = work.answer(body.memory())?;
    Ok(respond(head(body.format.content_type()), Arc::new(body), coding, share))
}

/// Series in a format.
struct SeriesBody {
    format: Box<dyn Format>,
    series: Vec<Series>,
    spans: Vec<Span>,
    // The end of the spans of each chunk.
    chunks: Vec<usize>,
}

impl SeriesBody {
    /// Cuts series into chunks.
    fn new(format: Box<dyn Format>, mut series: Vec<Series>) -> SeriesBody {
        format.select(&mut series);
        let has_chunks = format.has_chunks();
        let mut spans = Vec::with_capacity(series.len());
        let mut chunks = Vec::new();
        let mut cost = 0;
        for (index, each) in series.iter().enumerate() {
            let len = each.values.len();
            let mut from = 0;
            loop {
                let until = if has_chunks { len.min(from + VALUES_PER_CHUNK) } else { len };
                spans.push(Span { series: index, from, until });
                cost += SERIES_COST + until - from;
                if cost >= VALUES_PER_CHUNK && has_chunks {
                    chunks.push(spans.len());
                    cost = 0;
                }
                if until == len {
                    break;
                }
                from = until;
            }
        }
        if chunks.last() != Some(&spans.len()) {
            chunks.push(spans.len());
        }
        SeriesBody { format, series, spans, chunks }
    }

    /// Bytes in memory while the answer is sent: the series, and the chunks that are ready.
    fn memory(&self) -> usize {
        let series: usize = self.series.iter().map(Series::bytes).sum();
        let values = self.series.iter().map(|series| SERIES_COST + series.values.len()).sum::<usize>();
        let names = self.series.iter().map(|series| series.name.len()).sum::<usize>();
        let text = values.saturating_mul(BYTES_PER_VALUE).saturating_add(names);
        let ready = if self.chunks.len() == 1 { text } else { text / self.chunks.len() * (AHEAD + 1) };
        series + ready
    }

    /// A lower bound of the answer's bytes.
    fn least_bytes(&self) -> usize {
        let bytes = |series: &Series| {
            let per_point = self.format.least_bytes_per_point(series);
            series.name.len().saturating_add(per_point.saturating_mul(series.values.len()))
        };
        self.series.iter().map(bytes).fold(0, usize::saturating_add)
    }
}

impl Chunks for SeriesBody {
    fn count(&self) -> usize {
        self.chunks.len()
    }

    fn write(&self, chunk: usize, out: &mut Vec<u8>) {
        let begin = if chunk == 0 { 0 } else { self.chunks[chunk - 1] };
        let chunk = SeriesChunk {
            all: &self.series,
            spans: &self.spans[begin..self.chunks[chunk]],
            is_first: chunk == 0,
            is_last: chunk + 1 == self.chunks.len(),
        };
        self.format.write(&chunk, out);
    }
}
