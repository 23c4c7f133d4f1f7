//! Reads the series of a render, a part after the other.
//!
//! A source holds more than the series that it answers with: stored rows, points in memory, what it lays over what. Of one
//! part this is bounded, and it is counted as memory of the query. A client that leaves does not end what threads of the
//! store are doing; the turn and the memory of the query are given back behind it.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use store::{FetchError, FetchedSeries, SeriesRequest, SeriesSource};
use tokio::runtime::Handle;

use crate::{http::Rejection, query::Work};

/// Points of a part, for series of at most that many: a few milliseconds.
const MOST_POINTS: usize = 2 << 20;

/// The part of the memory of queries that a part of a read may need.
const PART_OF_MEMORY: usize = 8;

/// What a source holds for each point while it reads: the stored value, and the one in memory.
const BYTES_PER_POINT_READ: usize = 2 * size_of::<f64>();

/// Time for a read whose client is gone. A store that hangs must not keep turns for ever.
const LEFT_ALONE: Duration = Duration::from_secs(2);

/// Requests in parts of about equal size.
pub(super) struct Parts {
    parts: Vec<Vec<SeriesRequest>>,
    /// Points of a part, at most.
    most: usize,
    /// Points of the last part, and of the largest one.
    last: usize,
    largest: usize,
}

impl Parts {
    /// No request yet; all queries together have so much memory.
    pub fn within(memory: usize) -> Parts {
        let most = MOST_POINTS.min(memory / PART_OF_MEMORY / BYTES_PER_POINT_READ);
        Parts { parts: Vec::new(), most, last: 0, largest: 0 }
    }

    /// Adds the request of a series with so many points.
    pub fn push(&mut self, request: SeriesRequest, points: usize) {
        if self.parts.is_empty() || self.last.saturating_add(points) > self.most {
            self.parts.push(Vec::new());
            self.last = 0;
        }
        self.last = self.last.saturating_add(points);
        self.largest = self.largest.max(self.last);
        self.parts.last_mut().expect("one was added").push(request);
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.parts.iter().map(Vec::len).sum()
    }

    /// Memory that the source needs besides that of the answers.
    pub fn memory(&self) -> usize {
        self.largest.saturating_mul(BYTES_PER_POINT_READ)
    }

    /// Reads all, in order.
    pub async fn read(
        self,
        source: &Arc<dyn SeriesSource>,
        work: &Arc<Work>,
    ) -> Result<Vec<Option<FetchedSeries>>, Rejection> {
        let mut answers: Vec<Option<FetchedSeries>> = Vec::with_capacity(self.len());
        // A query waits once for a node that does not answer.
        let mut missing = work.missing_peers();
        for part in self.parts {
            let read = Reading { fetch: Some(source.clone().fetch_further(part, missing.clone())), work: work.clone() };
            let part = read.await?;
            for peer in part.iter().flatten().find_map(|series| series.missing_peers.as_deref()).unwrap_or_default() {
                if !missing.contains(peer) {
                    missing.push(peer.clone());
                }
            }
            answers.extend(part);
        }
        Ok(answers)
    }
}

type Fetch = Pin<Box<dyn Future<Output = Result<Vec<Option<FetchedSeries>>, FetchError>> + Send>>;

/// A read. Where it is dropped before its end, it holds its work until the threads of the store are done with it.
struct Reading {
    fetch: Option<Fetch>,
    work: Arc<Work>,
}

impl Future for Reading {
    type Output = Result<Vec<Option<FetchedSeries>>, FetchError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let fetch = self.fetch.as_mut().expect("a read ends once");
        let answer = std::task::ready!(fetch.as_mut().poll(cx));
        self.fetch = None;
        Poll::Ready(answer)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let (Some(fetch), Ok(runtime)) = (self.fetch.take(), Handle::try_current()) else { return };
        let work = self.work.clone();
        runtime.spawn(async move {
            let _ = tokio::time::timeout(LEFT_ALONE, fetch).await;
            drop(work);
        });
    }
}
