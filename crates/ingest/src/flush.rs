//! The flush cycle: what is held becomes rows, and the journal is trimmed behind them.
//!
//! 1. The journal begins a new segment. Everything in the older ones is now held, or stored.
//! 2. All metrics are gone through. Each one that holds points has them taken out, its coarser stages
//!    made, and all of it written. It stays readable from memory until it is readable from the store.
//! 3. New metrics are written to the metrics table, the driver is synced, the older segments are deleted.
//!
//! A cycle that nobody waits for is spread over half the time between two, so that the store sees a steady
//! trickle. It hurries when memory or the journal are half full.

use std::{
    collections::HashSet,
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use downsample::{Derivation, Pending};
use metric::Policy;
use store::{Cells, Fetch, Run, StoreError};
use tokio::task::JoinHandle;

use crate::{Ingest, held::Taken};

/// Metrics written together: few enough that the lock is short, enough to keep the driver's threads busy.
const GROUP: usize = 512;

/// States looked at under one lock while searching for a group.
const LOOK: u32 = 16 * 1024;

/// How long to wait before what the driver refused is given to it again.
const RETRY: Duration = Duration::from_secs(1);

/// How a cycle is paced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Spread over this time.
    Over(Duration),
    /// As fast as the driver takes it.
    AtOnce,
}

impl Ingest {
    pub(crate) fn spawn_cycles(self: Arc<Ingest>) -> JoinHandle<()> {
        tokio::spawn(async move {
            let half = self.options.flush_after / 2;
            loop {
                tokio::select! {
                    () = tokio::time::sleep(half) => {}
                    () = self.pressure.flush.notified() => {}
                }
                let pace = if self.pressure.is_half() { Pace::AtOnce } else { Pace::Over(half) };
                if let Err(error) = self.cycle(pace).await {
                    tracing::error!(%error, "a flush cycle did not end; its points stay in the journal, and the next one takes them again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        })
    }

    /// Writes out everything that is held at this moment, at once. On `Ok` it is durable in the store.
    pub async fn flush(&self) -> io::Result<()> {
        self.cycle(Pace::AtOnce).await
    }

    /// Ends ingestion: what is held is written out, and the background tasks end. Points accepted later
    /// are in the journal only.
    pub async fn close(&self) -> io::Result<()> {
        let tasks: Vec<JoinHandle<()>> = self.tasks.lock().drain(..).collect();
        for task in &tasks {
            task.abort();
        }
        // An aborted task runs on until it next waits.
        for task in tasks {
            let _ = task.await;
        }
        // What a cycle was writing when it was cut off is still being written; the flush waits for it.
        self.flush().await?;
        self.timed_sync()
    }

    async fn cycle(&self, pace: Pace) -> io::Result<()> {
        let _one = self.cycle.lock().await;
        let segment = self.journal.rotate()?;
        let began = Instant::now();
        let count = self.held.lock().states.len() as u32;
        // Every metric below `count` is named in the journal; now that is on the disk. Were its rows there first,
        // a machine that fails would forget the name and later give its number, and its rows, to another.
        self.synced().await;
        let mut next = 0;
        let mut busy = Vec::new();
        while next < count {
            let (taken, after) = self.take_group(next, count, &mut busy);
            next = after;
            self.write_taken(taken).await;
            if let Pace::Over(time) = pace {
                self.pause(began, time.mul_f64(f64::from(next) / f64::from(count))).await;
            }
        }
        // Whatever another caller took is on its way, not stored: the journal still covers it. So it does what
        // came for such a metric meanwhile, which had to wait and is taken now.
        loop {
            while !self.held.lock().flushing.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if busy.is_empty() {
                break;
            }
            let taken = self.take_busy(&mut busy);
            self.write_taken(taken).await;
        }
        // Forgotten only when they are listed: whoever waits for this cycle may go away in the middle of it.
        let unlisted = self.unlisted.lock().clone();
        if let Err(error) = self.list_and_sync(&unlisted).await {
            self.counters.store_errors.fetch_add(1, Relaxed);
            return Err(io::Error::other(error));
        }
        self.unlisted.lock().drain(..unlisted.len());
        self.journal.trim(segment)?;
        self.pressure.shrank(0, self.journal.bytes());
        self.counters.cycles.fetch_add(1, Relaxed);
        Ok(())
    }

    async fn list_and_sync(&self, unlisted: &[u32]) -> Result<(), StoreError> {
        for some in unlisted.chunks(GROUP) {
            self.driver.put_metrics(self.registry.records(some)).await?;
        }
        self.driver.sync().await
    }

    /// Waits until so much of a spread cycle's time has passed, or until there is a reason to hurry.
    async fn pause(&self, began: Instant, due: Duration) {
        while let Some(left) = due.checked_sub(began.elapsed()) {
            if self.pressure.is_half() {
                return;
            }
            tokio::time::sleep(left.min(Duration::from_millis(200))).await;
        }
    }

    /// Takes the points of up to a group of metrics, from number `next` on; also where to go on. Metrics of
    /// which an earlier part is still on its way are noted in `busy`.
    fn take_group(&self, next: u32, count: u32, busy: &mut Vec<u32>) -> (Vec<Arc<Taken>>, u32) {
        let mut held = self.held.lock();
        // Under the lock: no state has a policy that this table lacks.
        let table = self.policies.table();
        let mut taken = Vec::with_capacity(GROUP);
        let end = count.min(next + LOOK);
        for number in next..end {
            if let Some(one) = held.take(number, &table.all) {
                taken.push(one);
                if taken.len() == GROUP {
                    return (taken, number + 1);
                }
            } else if held.is_busy(number) {
                busy.push(number);
            }
        }
        (taken, end)
    }

    /// Takes the points of up to a group of the metrics that were busy; those that still are stay noted.
    fn take_busy(&self, busy: &mut Vec<u32>) -> Vec<Arc<Taken>> {
        let mut held = self.held.lock();
        let table = self.policies.table();
        let some: Vec<u32> = busy.drain(busy.len().saturating_sub(GROUP)..).collect();
        let taken = some.iter().filter_map(|&number| held.take(number, &table.all)).collect();
        busy.extend(some.into_iter().filter(|&number| held.is_busy(number)));
        taken
    }

    /// Stores what was taken, trying until the driver does, and lets go of it. In a task of its own, so that
    /// it comes to its end when nobody waits for it any more.
    pub(crate) async fn write_taken(&self, taken: Vec<Arc<Taken>>) {
        if taken.is_empty() {
            return;
        }
        let me = self.me.upgrade().expect("somebody calls this");
        let written = tokio::spawn(async move { me.write_until_taken(taken).await }).await;
        if let Err(panic) = written.map_err(tokio::task::JoinError::try_into_panic)
            && let Ok(panic) = panic
        {
            std::panic::resume_unwind(panic);
        }
    }

    /// Stores what a replay took out of metrics whose policy changed, in its order: parts of one metric one
    /// after the other.
    pub(crate) async fn write_replayed(&self, taken: Vec<Arc<Taken>>) {
        let mut group: Vec<Arc<Taken>> = Vec::new();
        let mut metrics = HashSet::new();
        for one in taken {
            if group.len() == GROUP || metrics.contains(&one.metric) {
                self.write_taken(std::mem::take(&mut group)).await;
                metrics.clear();
            }
            metrics.insert(one.metric);
            group.push(one);
        }
        self.write_taken(group).await;
    }

    async fn write_until_taken(&self, taken: Vec<Arc<Taken>>) {
        let table = self.policies.table();
        let work: Vec<(&Taken, &Policy, Pending)> = taken
            .iter()
            .map(|taken| {
                let policy = &*table.all[usize::from(taken.policy)];
                (&**taken, policy, Pending::of(&[&taken.open], taken.unstored_from))
            })
            .collect();
        let began = Instant::now();
        while let Err(error) = self.try_write(&work).await {
            self.counters.store_errors.fetch_add(1, Relaxed);
            tracing::error!(%error, "the store does not take points; they are safe in the journal, and it is asked again");
            tokio::time::sleep(RETRY).await;
        }
        self.counters.flush.observe(began.elapsed());
        self.counters.flushed_metrics.fetch_add(taken.len() as u64, Relaxed);
        let points = work.iter().map(|(_, _, pending)| pending.of_stage(0).len() as u64).sum();
        self.counters.flushed_points.fetch_add(points, Relaxed);
        let slots: usize = taken.iter().map(|taken| taken.open.slots()).sum();
        drop(work);
        {
            let mut held = self.held.lock();
            for taken in &taken {
                held.flushing.remove(&taken.metric);
            }
        }
        self.pressure.shrank(slots as u64, self.journal.bytes());
    }

    async fn try_write(&self, work: &[(&Taken, &Policy, Pending)]) -> Result<(), StoreError> {
        let plans: Vec<Derivation<'_>> = work
            .iter()
            .map(|(_, policy, pending)| Derivation::plan(policy, pending, policy.retention.stages().len() - 1))
            .collect();
        let fetches = self.fetches(work, &plans);
        let cells = if fetches.is_empty() { Vec::new() } else { self.driver.fetch(fetches).await? };
        let runs = self.runs(work, plans, &cells);
        self.driver.write(runs).await
    }

    /// What the plans need of the store, in their order.
    fn fetches(&self, work: &[(&Taken, &Policy, Pending)], plans: &[Derivation<'_>]) -> Vec<Fetch> {
        let names = self.registry.read();
        let mut fetches = Vec::new();
        for ((taken, policy, _), plan) in work.iter().zip(plans) {
            for need in plan.needs() {
                fetches.push(Fetch {
                    metric: taken.metric,
                    name: names.name(taken.metric).to_owned(),
                    table: policy.retention.table(need.stage),
                    first_slot: need.slots.start,
                    end_slot: need.slots.end,
                    aggregation: policy.aggregation,
                });
            }
        }
        fetches
    }

    fn runs(&self, work: &[(&Taken, &Policy, Pending)], plans: Vec<Derivation<'_>>, cells: &[Cells]) -> Vec<Run> {
        let names = self.registry.read();
        let mut cells = cells.iter();
        let mut runs = Vec::with_capacity(work.len());
        for ((taken, policy, _), plan) in work.iter().zip(plans) {
            let stored: Vec<(&[f64], &[u32])> =
                cells.by_ref().take(plan.needs().len()).map(|cells| (&cells.values[..], &cells.counts[..])).collect();
            for derived in plan.derive(&stored) {
                runs.push(Run {
                    metric: taken.metric,
                    name: names.name(taken.metric).to_owned(),
                    table: policy.retention.table(derived.stage),
                    first_slot: derived.first_slot,
                    values: derived.values,
                    counts: derived.counts,
                    aggregation: policy.aggregation,
                });
            }
        }
        runs
    }
}
