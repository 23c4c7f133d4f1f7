//! Packed rows that cannot be read: each is reported once, however often it is read.

use std::{
    collections::{HashSet, VecDeque},
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

use crate::{packed_wire::PackedCell, rows::Part, run_key::KeySlots, schema};

/// Rows that are remembered. Beyond that the one that was found first is forgotten: read again, it is reported again.
const REMEMBERED: usize = 4096;

/// Lines of a minute in the log. All rows are counted.
const LINES_A_MINUTE: u32 = 60;

/// A row of a packed table that cannot be read.
#[derive(Debug)]
pub(crate) struct DamagedRun {
    /// The CQL that selects it.
    row: String,
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
            "metric = {metric} AND time_start_ms = {} AND offset = {offset} AND shard = {shard} AND count = {count} AND holes = 0x",
            part.time_start_ms
        );
        holes.iter().for_each(|byte| _ = write!(row, "{byte:02x}"));
        // The part is one of the partition whose first slot is this.
        let (extent, partition) = (slots.extent(), part.first_slot - part.from as Slot);
        let slot = |offset: usize| partition.saturating_add(offset as Slot);
        DamagedRun { row, bytes: points.len(), why, slots: (slot(extent.start), slot(extent.end)) }
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
    rows: HashSet<Arc<str>>,
    /// The same, in the order in which they were found.
    in_order: VecDeque<Arc<str>>,
    /// When the minute of the last lines began, and how many it has.
    lines: Option<(Instant, u32)>,
}

impl DamagedRuns {
    pub(crate) fn new(log: DamageLog, keyspace: String, clock: Arc<dyn Clock>) -> DamagedRuns {
        DamagedRuns { log, keyspace, clock, known: Mutex::default() }
    }

    /// Counts the rows that were not found before, and logs them.
    pub(crate) fn report(&self, fetch: &Fetch, found: Vec<DamagedRun>) {
        for run in found {
            let table = format!("{}.{}", self.keyspace, schema::packed_name(fetch.table.stage));
            let is_logged = self.known.lock().add(&format!("{table} {}", run.row), self.clock.instant());
            let Some(is_logged) = is_logged else { continue };
            let time = |slot: Slot| -> Timestamp { fetch.table.stage.time(slot) };
            let damage = Damage {
                found_at: self.clock.now(),
                what: "packed row",
                file: table.clone(),
                how: format!("{}: {}", run.row, run.why),
                bytes: run.bytes as u64,
                moved_to: None,
                metrics: Some((fetch.metric, fetch.metric)),
                span: Some((time(run.slots.0), time(run.slots.1))),
            };
            if self.log.report(damage) && is_logged {
                tracing::error!(
                    table, metric = fetch.name, row = run.row, why = %run.why,
                    "a packed row in Cassandra cannot be read; its slots are null in answers, and nothing is derived from them; \
                     docs/cassandra.md says how to mend it"
                );
            }
        }
    }
}

impl Known {
    /// Remembers a row. `None` where it was known, otherwise whether the log has room for it.
    fn add(&mut self, row: &str, now: Instant) -> Option<bool> {
        if self.rows.contains(row) {
            return None;
        }
        if self.rows.len() == REMEMBERED
            && let Some(first) = self.in_order.pop_front()
        {
            self.rows.remove(&first);
        }
        let row: Arc<str> = row.into();
        self.rows.insert(row.clone());
        self.in_order.push_back(row);
        let minute = self.lines.filter(|(since, _)| now.saturating_duration_since(*since) < Duration::from_secs(60));
        let (since, lines) = minute.unwrap_or((now, 0));
        self.lines = Some((since, lines.saturating_add(1)));
        Some(lines < LINES_A_MINUTE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_reported_once_and_a_minute_has_few_lines() {
        let (mut known, start) = (Known::default(), Instant::now());
        for row in 0..LINES_A_MINUTE {
            assert_eq!(known.add(&row.to_string(), start), Some(true));
            assert_eq!(known.add(&row.to_string(), start + Duration::from_secs(3600)), None);
        }
        assert_eq!(known.add("next", start + Duration::from_secs(59)), Some(false));
        assert_eq!(known.add("later", start + Duration::from_secs(60)), Some(true));
        (0..REMEMBERED).for_each(|row| _ = known.add(&format!("more {row}"), start));
        assert_eq!((known.rows.len(), known.in_order.len()), (REMEMBERED, REMEMBERED));
        assert_eq!(known.add("more 0", start), None);
        assert!(known.add("next", start).is_some(), "it was forgotten");
    }
}
