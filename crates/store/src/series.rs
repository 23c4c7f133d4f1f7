//! Whole series, as a query asks for them.

use std::{future::Future, pin::Pin, sync::Arc};

use metric::{Aggregation, Methods, MetricId, Retention, Timestamp, Window};

use crate::StoreError;

/// One series wanted by a query.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesRequest {
    /// The metric's id in this node's registry.
    pub metric: MetricId,
    /// The request's `from` and `until`. The answer holds the points of `(from, until]`, as whisper's does.
    pub window: Window,
    /// The request's idea of the current time, Unix seconds: chooses the stage and hides the future.
    pub now: Timestamp,
    /// Points of this series beyond which a coarser stage is read instead, where there is one.
    pub max_points: usize,
    /// The method whose rollup a coarse stage is read of, where the metric's policy has several and this is one of them; the
    /// first of them otherwise.
    pub rollup: Option<Aggregation>,
}

/// The points of one series, dense.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FetchedSeries {
    /// Time of `values[0]`, Unix seconds, a multiple of `step`.
    pub start: Timestamp,
    /// Seconds from a value to the next.
    pub step: u32,
    /// One value a step; NaN is null. The series ends at `start + step * values.len()`, exclusive.
    pub values: Vec<f64>,
    /// How the values of a coarse stage are made: the method of the policy, or the one that was read of several.
    pub aggregation: Aggregation,
    /// Whether the metric's policy has several methods.
    pub is_of_list: bool,
    /// Further methods whose values are among these, from before the policy had the one above.
    pub earlier: Methods,
    /// Coarser slots of earlier policies that stand at their beginning, where nothing finer is stored. Each once.
    pub coarser: Vec<CoarserSlots>,
    /// Addresses of other nodes that may have points of it in memory and did not give them.
    pub missing_peers: Option<Arc<[String]>>,
}

/// A stage of an earlier policy of a metric, some of whose slots are among its values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CoarserSlots {
    /// The stages of that policy.
    pub retention: Retention,
    /// The index of the stage among them.
    pub stage: usize,
    /// The method that made the slots.
    pub method: Aggregation,
}

impl FetchedSeries {
    /// All methods whose values are among these, but for the one that was read.
    pub fn other_methods(&self) -> Methods {
        let mut all = Methods::NONE;
        let of_coarser = self.coarser.iter().map(|slots| slots.method);
        let others = self.earlier.iter().chain(of_coarser).filter(|method| *method != self.aggregation);
        others.for_each(|method| _ = all.add(method));
        all
    }
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The driver could not.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Where a query's series come from: what is stored and what is still in memory, merged.
pub trait SeriesSource: Send + Sync + 'static {
    /// Reads series, concurrently; answers are in the order of the requests. `None` where whisper would
    /// return no series: the metric does not exist, or the window is outside its retention or in the
    /// future. Dropping the future stops the work.
    #[allow(clippy::type_complexity, reason = "a boxed future of a list; a name would hide that")]
    fn fetch(
        self: Arc<Self>,
        requests: Vec<SeriesRequest>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Option<FetchedSeries>>, FetchError>> + Send>>;

    /// As [`SeriesSource::fetch`], for a query that has read other series before and whose answer names these as missing already: they
    /// are not waited for again, and are missing from this part of the answer too.
    #[allow(clippy::type_complexity, reason = "as above")]
    fn fetch_further(
        self: Arc<Self>,
        requests: Vec<SeriesRequest>,
        missing: Vec<String>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Option<FetchedSeries>>, FetchError>> + Send>> {
        drop(missing);
        self.fetch(requests)
    }

    /// The time from which the ages of points count, for a request whose window ends at `until` and whose clock says `now`:
    /// another one while the source doubts the clock.
    fn now_for(&self, now: Timestamp, until: Timestamp) -> Timestamp {
        let _ = until;
        now
    }
}
