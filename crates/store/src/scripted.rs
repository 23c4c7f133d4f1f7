//! A driver for tests of what uses one: it is down, waits or panics when the test says so.

use std::{
    future::{Future, poll_fn, ready},
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    task::{Poll, Waker},
};

use metric::{MetricId, Timestamp};

use crate::{
    Cells, DriverFuture, Fetch, Identity, MemoryDriver, MetricRecord, NameStore, OwnRows, PointStore, Run,
    SharedPoints, Store, StoreError, Usage,
};

/// A [`MemoryDriver`] whose calls a test lets fail, wait or panic, and counts.
#[derive(Debug, Default)]
pub struct ScriptedDriver {
    /// The rows and metrics.
    pub memory: MemoryDriver,
    /// While true, reads, writes and syncs fail as of a store that cannot be reached.
    pub is_down: AtomicBool,
    /// While true, syncs alone fail, as of a store whose disk takes nothing.
    pub is_disk_failing: AtomicBool,
    /// While true, reads, writes and syncs panic.
    pub panics: AtomicBool,
    /// While true, what is read is damaged.
    pub is_damaged: AtomicBool,
    /// Where writes of points wait.
    pub writes: Gate,
    /// Where reads of points wait.
    pub reads: Gate,
    /// Where syncs and writes of metrics wait.
    pub syncs: Gate,
    /// Where writes of points wait for what other processes deleted.
    pub deletions: Gate,
    /// While true, metrics whose policies have changed are gone from the table.
    pub are_changed_gone: AtomicBool,
    /// Whether [`ScriptedDriver::store`] says that other processes write the same points.
    pub has_other_writers: AtomicBool,
    answers: AtomicU32,
}

impl ScriptedDriver {
    /// The driver as the store of a node.
    pub fn store(self: &Arc<ScriptedDriver>) -> Store {
        let shared = self.has_other_writers.load(SeqCst).then(|| self.clone() as Arc<dyn SharedPoints>);
        Store { shared, ..Store::of(self.clone()) }
    }

    /// How many calls were answered so far, with success or without.
    pub fn answers(&self) -> u32 {
        self.answers.load(SeqCst)
    }

    fn answer(&self) -> Result<(), StoreError> {
        self.answers.fetch_add(1, SeqCst);
        assert!(!self.panics.load(SeqCst), "the test lets this call panic");
        if self.is_down.load(SeqCst) {
            return Err(StoreError::Unavailable("it is down".into()));
        }
        Ok(())
    }
}

impl PointStore for ScriptedDriver {
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            self.writes.pass().await;
            self.answer()?;
            self.memory.write(runs).await
        })
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
        Box::pin(async move {
            self.reads.pass().await;
            self.answer()?;
            let mut cells = self.memory.fetch(fetches).await?;
            cells.iter_mut().for_each(|cells| cells.is_damaged |= self.is_damaged.load(SeqCst));
            Ok(cells)
        })
    }

    fn sync(&self) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            self.syncs.pass().await;
            self.answer()?;
            match self.is_disk_failing.load(SeqCst) {
                true => Err(StoreError::Unavailable("its disk is broken".into())),
                false => Ok(()),
            }
        })
    }

    fn expire(&self, now: Timestamp) -> DriverFuture<'_, ()> {
        self.memory.expire(now)
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }
}

impl NameStore for ScriptedDriver {
    fn identity(&self) -> Identity {
        self.memory.identity()
    }

    fn begin(&self, first_id: MetricId) -> DriverFuture<'_, Identity> {
        self.memory.begin(first_id)
    }

    fn put_opening(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn next_id(&self) -> MetricId {
        self.memory.next_id()
    }

    fn delete_metrics(&self, ids: Vec<MetricId>) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            self.syncs.wait().await;
            self.answer()?;
            self.memory.delete_metrics(ids).await
        })
    }

    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            self.syncs.wait().await;
            self.answer()?;
            self.memory.put_metrics(records).await
        })
    }

    fn put_changed_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        match self.are_changed_gone.load(SeqCst) {
            true => Box::pin(std::future::ready(self.answer())),
            false => self.put_metrics(records),
        }
    }

    fn scan_metrics<'a>(&'a self, each: &'a mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> DriverFuture<'a, ()> {
        self.memory.scan_metrics(each)
    }

    fn sync_metrics(&self) -> DriverFuture<'_, ()> {
        Box::pin(ready(Ok(())))
    }
}

impl SharedPoints for ScriptedDriver {
    /// The other processes never write.
    fn writer_partials(&self, totals: Vec<Run>) -> DriverFuture<'_, OwnRows> {
        Box::pin(ready(Ok(totals.into())))
    }

    fn deletions_are_followed(&self) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            self.deletions.pass().await;
            Ok(())
        })
    }
}

/// Where calls wait while a test has closed it. Open at first.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<GateState>,
}

#[derive(Debug, Default)]
struct GateState {
    is_closed: bool,
    arrived: u32,
    waiting: Vec<Waker>,
}

impl Gate {
    /// Lets the calls from now on wait.
    pub fn close(&self) {
        self.state().is_closed = true;
    }

    /// Lets all calls go on.
    pub fn open(&self) {
        let waiting = {
            let mut state = self.state();
            state.is_closed = false;
            mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// How many calls arrived so far, those that wait included.
    pub fn arrived(&self) -> u32 {
        self.state().arrived
    }

    fn pass(&self) -> impl Future<Output = ()> {
        self.state().arrived += 1;
        self.wait()
    }

    fn wait(&self) -> impl Future<Output = ()> {
        poll_fn(|context| {
            let mut state = self.state();
            if !state.is_closed {
                return Poll::Ready(());
            }
            state.waiting.push(context.waker().clone());
            Poll::Pending
        })
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
