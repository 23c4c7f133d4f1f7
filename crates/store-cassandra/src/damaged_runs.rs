//! Packed rows that cannot be read: each is reported once, however often it is read, until a read finds it right or gone.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use codec::Damaged;
use host::Clock;
use metric::{Slot, Timestamp};
use parking_lot::Mutex;
use store::{Damage, DamageLog, Fetch};
use uuid::Uuid;

use crate::{
    packed_wire::PackedCell,
    rows::Part,
    run_key::{KeySlots, RUN_SLOTS},
    schema,
};

/// What reports call such a row.
const PACKED_ROW: &str = "packed row";

/// Rows that are remembered. Beyond that the one that was found first is forgotten: read again, it is reported again.
const REMEMBERED: usize = 4096;

/// How long no read has found a row damaged before it counts as right or gone: replicas may differ, and answer by turns.
const SETTLED: Duration = Duration::from_secs(60);

/// Bytes of the column `holes` of a run that a node wrote, at most. A report leaves longer ones out: it would be as long.
const HOLES: usize = RUN_SLOTS as usize / 8 + 2;

/// Lines of a minute in the log. All rows are counted.
const LINES_A_MINUTE: u32 = 60;

/// A row of a packed table that cannot be read.
#[derive(Debug)]
pub(crate) struct DamagedRun {
    /// The CQL that selects it; without `holes` where these are more bytes than a run has that a node wrote.
    row: String,
    /// Offset of its first slot in the partition.
    first: usize,
    bytes: usize,
    why: Damaged,
    /// From its first slot to behind the last one.
    slots: (Slot, Slot),
}

impl DamagedRun {
    pub(crate) fn new(
        (metric, part): (Uuid, Part),
        cell: PackedCell<'_>,
        slots: KeySlots<'_>,
        why: Damaged,
    ) -> DamagedRun {
        let PackedCell { offset, shard, count, holes, points, .. } = cell;
        let mut row = format!(
            "metric = {metric} AND time_start_ms = {} AND offset = {offset} AND shard = {shard} AND count = {count}",
            part.time_start_ms
        );
        if holes.len() <= HOLES {
            row.push_str(" AND holes = 0x");
            holes.iter().for_each(|byte| _ = write!(row, "{byte:02x}"));
        }
        // The part is one of the partition whose first slot is this.
        let (extent, partition) = (slots.extent(), part.first_slot - part.from as Slot);
        let slot = |offset: usize| partition.saturating_add(offset as Slot);
        let slots = (slot(extent.start), slot(extent.end));
        DamagedRun { row, first: extent.start, bytes: points.len(), why, slots }
    }
}

/// The damaged rows that were found.
pub(crate) struct DamagedRuns {
    log: DamageLog,
    keyspace: String,
    clock: Arc<dyn Clock>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    rows: HashMap<Arc<str>, KnownRow>,
    /// The same, in the order in which they were found.
    in_order: VecDeque<Arc<str>>,
    /// When the minute of the last lines began, and how many it has.
    lines: Option<(Instant, u32)>,
}

/// A row that was found damaged.
struct KnownRow {
    partition: Partition,
    /// Offset of its first slot in the partition.
    first: usize,
    /// When a read last found it so.
    found_at: Instant,
    /// The text of its finding.
    how: String,
}

/// Runs of points or of partials of a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Partition {
    metric: Uuid,
    time_start_ms: i64,
    aggregated: bool,
    table: Arc<str>,
}

impl DamagedRuns {
    pub(crate) fn new(log: DamageLog, keyspace: String, clock: Arc<dyn Clock>) -> DamagedRuns {
        DamagedRuns { log, keyspace, clock, known: Mutex::default() }
    }

    /// Takes note of the damaged rows among those of a part: counts and logs those that were not found before, and ends the findings
    /// of others that are right or gone.
    pub(crate) fn note(&self, fetch: &Fetch, (metric, part): (Uuid, Part), found: Vec<DamagedRun>) {
        if found.is_empty() && self.known.lock().rows.is_empty() {
            return;
        }
        let table: Arc<str> = format!("{}.{}", self.keyspace, schema::packed_name(fetch.table.stage)).into();
        let aggregated = fetch.table.aggregated;
        let partition = Partition { metric, time_start_ms: part.time_start_ms, aggregated, table: table.clone() };
        self.report(fetch, &partition, found);
        let over = self.known.lock().take_over(&partition, part, self.clock.instant());
        for row in over {
            self.log.mend(|damage| damage.what == PACKED_ROW && damage.file == *table && damage.how == row.how);
            tracing::info!(table = %table, metric = fetch.name, row = row.how, "a packed row that was damaged is right or gone");
        }
    }

    fn report(&self, fetch: &Fetch, partition: &Partition, found: Vec<DamagedRun>) {
        let table = &partition.table;
        for run in found {
            let row = KnownRow {
                partition: partition.clone(),
                first: run.first,
                found_at: self.clock.instant(),
                how: format!("{}: {}", run.row, run.why),
            };
            let is_logged = self.known.lock().add(&format!("{table} {}", run.row), row);
            let Some(is_logged) = is_logged else { continue };
            let time = |slot: Slot| -> Timestamp { fetch.table.stage.time(slot) };
            let damage = Damage {
                found_at: self.clock.now(),
                what: PACKED_ROW,
                file: table.to_string(),
                how: format!("{}: {}", run.row, run.why),
                bytes: run.bytes as u64,
                moved_to: None,
                metrics: Some((fetch.metric, fetch.metric)),
                span: Some((time(run.slots.0), time(run.slots.1))),
            };
            if self.log.report(damage) && is_logged {
                tracing::error!(
                    table = %table, metric = fetch.name, row = run.row, why = %run.why,
                    "a packed row in Cassandra cannot be read; its slots are null in answers, and nothing is derived from them; \
                     docs/cassandra.md says how to mend it"
                );
            }
        }
    }
}

impl Known {
    /// Remembers a row. `None` where it was known, otherwise whether the log has room for it.
    fn add(&mut self, key: &str, row: KnownRow) -> Option<bool> {
        let now = row.found_at;
        if let Some(known) = self.rows.get_mut(key) {
            known.found_at = now;
            return None;
        }
        if self.rows.len() == REMEMBERED
            && let Some(first) = self.in_order.pop_front()
        {
            self.rows.remove(&first);
        }
        let key: Arc<str> = key.into();
        self.rows.insert(key.clone(), row);
        self.in_order.push_back(key);
        let minute = self.lines.filter(|(since, _)| now.saturating_duration_since(*since) < Duration::from_secs(60));
        let (since, lines) = minute.unwrap_or((now, 0));
        self.lines = Some((since, lines.saturating_add(1)));
        Some(lines < LINES_A_MINUTE)
    }

    /// Forgets the rows that a read of this part would have found damaged if they still were, and that no read has for long.
    fn take_over(&mut self, partition: &Partition, part: Part, now: Instant) -> Vec<KnownRow> {
        let slots = part.from as usize..part.until as usize;
        let is_over = |row: &KnownRow| {
            slots.contains(&row.first)
                && row.partition == *partition
                && SETTLED <= now.saturating_duration_since(row.found_at)
        };
        let over: Vec<KnownRow> = self.rows.extract_if(|_, row| is_over(row)).map(|(_, row)| row).collect();
        if !over.is_empty() {
            let Known { rows, in_order, .. } = self;
            in_order.retain(|key| rows.contains_key(key));
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use host::ManualClock;
    use metric::{MetricId, Stage, Table};

    use super::*;

    fn row(found_at: Instant) -> KnownRow {
        let (metric, table) = (Uuid::from_u128(7), Arc::from("k.t"));
        let partition = Partition { metric, time_start_ms: 5000, aggregated: false, table };
        KnownRow { partition, first: 0, found_at, how: String::new() }
    }

    #[test]
    fn a_row_is_reported_once_and_a_minute_has_few_lines() {
        let (mut known, start) = (Known::default(), Instant::now());
        let mut add = |key: &str, at: Instant| known.add(key, row(at));
        for key in 0..LINES_A_MINUTE {
            assert_eq!(add(&key.to_string(), start), Some(true));
            assert_eq!(add(&key.to_string(), start + Duration::from_secs(3600)), None);
        }
        assert_eq!(add("next", start + Duration::from_secs(59)), Some(false));
        assert_eq!(add("later", start + Duration::from_secs(60)), Some(true));
        (0..REMEMBERED).for_each(|key| _ = add(&format!("more {key}"), start));
        assert_eq!(add("more 0", start), None);
        assert!(add("next", start).is_some(), "it was forgotten");
        assert_eq!((known.rows.len(), known.in_order.len()), (REMEMBERED, REMEMBERED));
    }

    #[test]
    fn a_finding_ends_a_minute_after_the_last_damaged_read_with_a_read_of_the_row() {
        let (log, clock) = (DamageLog::new(), Arc::new(ManualClock::at(1_795_000_000)));
        let damaged = DamagedRuns::new(log.clone(), "k".to_owned(), clock.clone());
        let fetch = |aggregated| Fetch {
            metric: MetricId(1),
            name: "a".to_owned(),
            table: Table { stage: Stage::new(60, 1440).unwrap(), aggregated, rollup: None },
            first_slot: 0,
            end_slot: 10,
            aggregation: metric::Aggregation::Sum,
        };
        let (metric, other) = (Uuid::from_u128(7), Uuid::from_u128(8));
        let part = |time_start_ms, from, until| Part { time_start_ms, from, until, first_slot: 0 };
        let run = || DamagedRun {
            row: "metric = 7 AND offset = 600".to_owned(),
            first: 600,
            bytes: 9,
            why: codec::open_run(&[], &[]).unwrap_err(),
            slots: (0, 1),
        };
        let whole = part(5000, 0, 2000);
        let findings = || log.examples().len();
        damaged.note(&fetch(false), (metric, whole), vec![run()]);
        damaged.note(&fetch(false), (metric, whole), vec![run()]);
        assert_eq!((findings(), log.totals().0, log.mended()), (1, 1, 0));
        // Another replica answers by turns.
        for _ in 0..5 {
            clock.advance(Duration::from_secs(40));
            damaged.note(&fetch(false), (metric, whole), vec![run()]);
            clock.advance(Duration::from_secs(40));
            damaged.note(&fetch(false), (metric, whole), vec![]);
            assert_eq!((findings(), log.mended()), (1, 0));
        }
        clock.advance(SETTLED);
        // Reads that do not have the row.
        for (aggregated, of, part) in [
            (false, other, whole),
            (false, metric, part(6000, 0, 2000)),
            (false, metric, part(5000, 0, 600)),
            // Of the rows of this one it sees those that begin before it, and passes over a damaged one without a slot in it.
            (false, metric, part(5000, 601, 2000)),
            (true, metric, whole),
        ] {
            damaged.note(&fetch(aggregated), (of, part), vec![]);
            assert_eq!(findings(), 1);
        }
        damaged.note(&fetch(false), (metric, part(5000, 600, 601)), vec![]);
        assert_eq!((findings(), log.mended()), (0, 1));
        assert!(damaged.known.lock().in_order.is_empty());
        damaged.note(&fetch(false), (metric, whole), vec![run()]);
        assert_eq!((findings(), log.totals().0), (1, 2), "it is damaged again");
    }
}
