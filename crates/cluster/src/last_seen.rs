//! Reports to the shared tables which metrics live: `updated_on` for points, `read_on` for a sample of reads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use host::Clock;
use metric::MetricId;
use parking_lot::Mutex;
use store::{Fetch, Run};

use crate::{schedule::Schedule, tables::Tables};

/// Metrics in one statement.
const BATCH: usize = 500;

/// Names that wait for their report. Further ones are reported when their metric is due again.
const QUEUED: usize = 100_000;

/// Interval between two rounds of reports.
const ROUND: Duration = Duration::from_secs(5);

/// Which metrics were written and read, and which of them are due.
pub(crate) struct LastSeen {
    clock: Arc<dyn Clock>,
    written: Mutex<Schedule>,
    read: Mutex<Schedule>,
    read_sample: f64,
    reads: AtomicU64,
    queues: Mutex<Queues>,
}

/// Names that are due, for the task that reports them.
#[derive(Default)]
struct Queues {
    written: Vec<String>,
    read: Vec<String>,
}

impl LastSeen {
    /// One report per metric every `every`; `read_sample` is the share of reads that count.
    pub(crate) fn new(clock: Arc<dyn Clock>, every: Duration, read_sample: f64) -> LastSeen {
        let seconds = u32::try_from(every.as_secs()).unwrap_or(u32::MAX);
        let schedule = || Mutex::new(Schedule::new(seconds, clock.now()));
        let (written, read) = (schedule(), schedule());
        LastSeen { clock, written, read, read_sample, reads: AtomicU64::new(0), queues: Mutex::default() }
    }

    /// The metrics of these runs that are due. Asked before the write, which consumes the runs.
    pub(crate) fn due(&self, runs: &[Run]) -> Vec<String> {
        let now = self.clock.now();
        let mut written = self.written.lock();
        let points = runs.iter().filter(|run| !run.table.aggregated);
        points
            .filter(|run| !run.name.is_empty() && written.is_due(run.metric, now))
            .map(|run| run.name.clone())
            .collect()
    }

    /// Queues metrics that got points.
    pub(crate) fn written(&self, names: impl IntoIterator<Item = String>) {
        let mut queues = self.queues.lock();
        let room = QUEUED.saturating_sub(queues.written.len());
        queues.written.extend(names.into_iter().take(room));
    }

    /// Notes metrics that were just created: a creation is a report.
    pub(crate) fn created(&self, metrics: &[MetricId]) {
        let now = self.clock.now();
        let mut written = self.written.lock();
        metrics.iter().for_each(|&metric| written.reported(metric, now));
    }

    /// Queues a sample of the metrics that are read.
    pub(crate) fn read(&self, fetches: &[Fetch]) {
        if self.read_sample <= 0.0 {
            return;
        }
        let now = self.clock.now();
        let mut read = self.read.lock();
        let mut queues = self.queues.lock();
        // A metric that was deleted meanwhile has no name, which Cassandra refuses with all others of its statement.
        for fetch in fetches.iter().filter(|fetch| !fetch.name.is_empty()) {
            if queues.read.len() < QUEUED && self.is_sampled() && read.is_due(fetch.metric, now) {
                queues.read.push(fetch.name.clone());
            }
        }
    }

    /// True for [`LastSeen::read_sample`] of the calls, evenly spread: Weyl's sequence of the golden ratio.
    fn is_sampled(&self) -> bool {
        let call = self.reads.fetch_add(1, Relaxed);
        (call as f64 * 0.618_033_988_749_894_9).fract() < self.read_sample
    }

    /// Reports what is due, until dropped. While Cassandra is away the queues keep their names.
    pub(crate) async fn report(self: Arc<LastSeen>, tables: Arc<dyn Tables>) {
        loop {
            tokio::time::sleep(ROUND).await;
            let Ok(driver) = tables.tables() else { continue };
            let Queues { written, read } = std::mem::take(&mut *self.queues.lock());
            for (nth, names) in written.chunks(BATCH).enumerate() {
                if let Err(error) = driver.mark_updated(names.to_vec()).await {
                    let rest = &written[nth * BATCH..];
                    tracing::warn!(%error, metrics = rest.len(), "cannot write updated_on; retrying");
                    self.written(rest.iter().cloned());
                    break;
                }
            }
            for names in read.chunks(BATCH) {
                if let Err(error) = driver.mark_read(names.to_vec()).await {
                    tracing::warn!(%error, metrics = names.len(), "cannot write read_on; retrying when the metrics are due again");
                    break;
                }
            }
        }
    }
}
