//! The in-memory driver: the specification of the others. It is written to be seen to be right; nothing
//! in it is fast, and nothing outlives it.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::ready,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use metric::{MetricId, Partial, Slot, Table, Timestamp};

use crate::{
    Cells, DriverFuture, Event, Events, Fetch, Identity, Incarnation, MetricRecord, NameStore, NewEvent, PointStore,
    Run, StoreError, Usage,
};

/// All stores in memory are the same store, emptied at each start.
const STORE: u128 = 1;

/// Openings so far, of all drivers of this process, so that no two have the same id.
static OPENINGS: AtomicU64 = AtomicU64::new(0);

/// Keeps every table in a map. What other drivers do on a disk or over a network, this one does at once.
#[derive(Debug, Default)]
pub struct MemoryDriver {
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    /// A stage-0 slot has the count zero. No value is NaN.
    slots: BTreeMap<Table, BTreeMap<(MetricId, Slot), Partial>>,
    metrics: BTreeMap<MetricId, MetricRecord>,
    deleted: BTreeSet<MetricId>,
    openings: Vec<Incarnation>,
    events: BTreeMap<(Timestamp, u64), NewEvent>,
    last_event: u64,
}

impl MemoryDriver {
    /// An empty store.
    pub fn new() -> MemoryDriver {
        MemoryDriver::default()
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // The maps are never left half changed, so what a panicking thread held is still good.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn identity(&self) -> Identity {
        Identity { store: STORE, chain: self.openings.clone() }
    }

    fn next_id(&self) -> MetricId {
        let in_rows = self.slots.values().filter_map(|slots| slots.last_key_value()).map(|(&(metric, _), _)| metric);
        let in_names = self.metrics.keys().chain(&self.deleted).copied();
        let above = in_rows.chain(in_names).max().map_or(MetricId(0), |id| MetricId(id.0 + 1));
        above.max(self.identity().first_id())
    }

    fn write(&mut self, run: &Run) {
        let slots = self.slots.entry(run.table).or_default();
        for (i, (&value, slot)) in run.values.iter().zip(run.first_slot..=Slot::MAX).enumerate() {
            if !value.is_nan() {
                let count = if run.table.aggregated { run.counts[i] } else { 0 };
                slots.insert((run.metric, slot), Partial { value, count });
            }
        }
    }

    fn fetch(&self, fetch: &Fetch) -> Cells {
        let mut cells = Cells::default();
        let Some(slots) = self.slots.get(&fetch.table) else { return cells };
        for (&(_, slot), partial) in slots.range((fetch.metric, fetch.first_slot)..(fetch.metric, fetch.end_slot)) {
            if cells.values.is_empty() {
                let len = (fetch.end_slot - fetch.first_slot) as usize;
                cells.values.resize(len, f64::NAN);
                cells.counts.resize(if fetch.table.aggregated { len } else { 0 }, 0);
            }
            let i = (slot - fetch.first_slot) as usize;
            cells.values[i] = partial.value;
            if fetch.table.aggregated {
                cells.counts[i] = partial.count;
            }
        }
        cells
    }
}

impl PointStore for MemoryDriver {
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()> {
        let mut tables = self.tables();
        for run in &runs {
            tables.write(run);
        }
        Box::pin(ready(Ok(())))
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
        let tables = self.tables();
        let cells = fetches.iter().map(|fetch| tables.fetch(fetch)).collect();
        Box::pin(ready(Ok(cells)))
    }

    fn sync(&self) -> DriverFuture<'_, ()> {
        Box::pin(ready(Ok(())))
    }

    fn expire(&self, now: Timestamp) -> DriverFuture<'_, ()> {
        for (table, slots) in &mut self.tables().slots {
            let stage = table.stage;
            slots.retain(|&(_, slot), _| now - stage.time(slot) <= stage.duration());
        }
        Box::pin(ready(Ok(())))
    }

    fn usage(&self) -> Usage {
        let tables = self.tables();
        let slots: usize = tables.slots.values().map(BTreeMap::len).sum();
        Usage {
            disk_bytes: 0,
            memory_bytes: (slots * size_of::<((MetricId, Slot), Partial)>()) as u64,
            tables: tables.slots.len() as u64,
        }
    }
}

impl NameStore for MemoryDriver {
    fn identity(&self) -> Identity {
        self.tables().identity()
    }

    fn begin(&self, first_id: MetricId) -> DriverFuture<'_, Identity> {
        let mut tables = self.tables();
        let first_id = first_id.max(tables.next_id());
        tables.openings.push(Incarnation { id: 1 + OPENINGS.fetch_add(1, Relaxed), first_id });
        Box::pin(ready(Ok(tables.identity())))
    }

    fn put_opening(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn next_id(&self) -> MetricId {
        self.tables().next_id()
    }

    fn delete_metrics(&self, ids: Vec<MetricId>) -> DriverFuture<'_, ()> {
        let mut tables = self.tables();
        tables.metrics.retain(|id, _| !ids.contains(id));
        tables.deleted.extend(ids);
        Box::pin(ready(Ok(())))
    }

    fn is_deleted(&self, id: MetricId) -> bool {
        self.tables().deleted.contains(&id)
    }

    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        let mut tables = self.tables();
        for record in records {
            if !tables.deleted.contains(&record.id) {
                tables.metrics.insert(record.id, record);
            }
        }
        Box::pin(ready(Ok(())))
    }

    fn scan_metrics<'a>(&'a self, each: &'a mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> DriverFuture<'a, ()> {
        let records: Vec<MetricRecord> = self.tables().metrics.values().cloned().collect();
        if !records.is_empty() {
            each(records);
        }
        Box::pin(ready(Ok(())))
    }

    fn sync_metrics(&self) -> DriverFuture<'_, ()> {
        Box::pin(ready(Ok(())))
    }
}

impl Events for MemoryDriver {
    fn put_event(&self, event: NewEvent) -> DriverFuture<'_, u64> {
        let mut tables = self.tables();
        tables.last_event += 1;
        let id = tables.last_event;
        tables.events.insert((event.when, id), event);
        Box::pin(ready(Ok(id)))
    }

    fn events(&self, after: (Timestamp, u64), until: Timestamp, most: usize) -> DriverFuture<'_, Vec<Event>> {
        let tables = self.tables();
        let in_span = tables.events.iter().filter(|&(&place, _)| after < place && place.0 <= until);
        let events = in_span.take(most).map(|(&(_, id), event)| Event { id, content: event.clone() }).collect();
        Box::pin(ready(Ok(events)))
    }

    fn event(&self, id: u64) -> DriverFuture<'_, Option<Event>> {
        let tables = self.tables();
        let found = tables.events.iter().find(|((_, known), _)| *known == id);
        let event = found.map(|(_, event)| Event { id, content: event.clone() });
        Box::pin(ready(Ok(event)))
    }

    fn expire_events(&self, before: Timestamp) -> DriverFuture<'_, u64> {
        let mut tables = self.tables();
        let kept = tables.events.split_off(&(before, 0));
        let expired = std::mem::replace(&mut tables.events, kept);
        Box::pin(ready(Ok(expired.len() as u64)))
    }

    fn delete_events(&self, ids: Vec<u64>) -> DriverFuture<'_, u64> {
        let mut tables = self.tables();
        let before = tables.events.len();
        tables.events.retain(|(_, id), _| !ids.contains(id));
        Box::pin(ready(Ok((before - tables.events.len()) as u64)))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::Arc,
        task::{Context, Poll, Waker},
    };

    use super::*;
    use crate::conformance::{Fixture, events_suite, names_suite, points_suite};

    struct InMemory(Arc<MemoryDriver>);

    impl Fixture<dyn PointStore> for InMemory {
        const OUTLIVES: bool = false;

        async fn open(&mut self) -> Arc<dyn PointStore> {
            self.0.clone()
        }
    }

    impl Fixture<dyn NameStore> for InMemory {
        const OUTLIVES: bool = false;

        async fn open(&mut self) -> Arc<dyn NameStore> {
            self.0.clone()
        }
    }

    impl Fixture<dyn Events> for InMemory {
        const OUTLIVES: bool = false;

        async fn open(&mut self) -> Arc<dyn Events> {
            self.0.clone()
        }
    }

    #[test]
    fn the_specification_conforms_to_itself() {
        let mut fixture = InMemory(Arc::default());
        // Nothing in this driver waits, so that one poll must do.
        let run = pin!(async {
            points_suite(&mut fixture, u32::MAX, 1_800_000_123).await;
            names_suite(&mut fixture).await;
            events_suite(&mut fixture).await;
        });
        assert_eq!(run.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()));
    }

    #[test]
    fn expired_points_are_freed() {
        let stage = metric::Stage::new(60, 10).unwrap();
        let driver = MemoryDriver::new();
        let table = Table { stage, aggregated: false, rollup: None };
        let run = Run {
            metric: MetricId(1),
            name: "a".into(),
            table,
            first_slot: 100,
            values: vec![1.0; 5],
            counts: vec![],
            aggregation: metric::Aggregation::Sum,
        };
        drop(driver.write(vec![run]));
        drop(driver.expire(stage.time(103) + stage.duration()));
        let kept: Vec<Slot> = driver.tables().slots[&table].keys().map(|&(_, slot)| slot).collect();
        assert_eq!(kept, [103, 104]);
    }
}
