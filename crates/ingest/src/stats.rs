//! Everything that ingestion counts: one table of names, helps and the owners they are read from.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use carbon::RejectReason;

use crate::{
    accept::{Acceptor, NewMetrics},
    back_pressure::BackPressure,
    counters::Histogram,
    deletion::Deletion,
    flush::{FlushCycle, RowWriter},
    memtable::Memtable,
    protocol::Protocol,
    read::Reader,
    registration::Registration,
    spill::Spill,
    store_health::StoreHealth,
    wal::Journal,
};

/// The owners that count.
pub(crate) struct Stats {
    pub(crate) acceptor: Arc<Acceptor>,
    pub(crate) new_metrics: Arc<NewMetrics>,
    pub(crate) back_pressure: Arc<BackPressure>,
    pub(crate) spill: Arc<Spill>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) health: Arc<StoreHealth>,
    pub(crate) registration: Arc<Registration>,
    pub(crate) deletion: Deletion,
    pub(crate) cycle: Arc<FlushCycle>,
    pub(crate) writer: Arc<RowWriter>,
    pub(crate) reader: Arc<Reader>,
}

/// A counter as a scrape of `/metrics` has it.
#[derive(Debug, Clone)]
pub enum CounterValue {
    /// A total since the start.
    Total(f64),
    /// A value now.
    Now(f64),
    /// Totals since the start by the values of a label.
    ByLabel(&'static str, Vec<(&'static str, f64)>),
    /// Durations since the start.
    Durations(Histogram),
}

/// A counter, its name and its help.
#[derive(Debug, Clone)]
pub struct Counter {
    /// Name in `/metrics`.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Its value.
    pub value: CounterValue,
}

/// Points by protocol, as counted.
type ByProtocol = [(Protocol, u64); Protocol::ALL.len()];

/// Rejected inputs by reason, as counted.
type ByReason = [(RejectReason, u64); RejectReason::ALL.len()];

/// A type of value that counters have.
trait Count {
    /// A total since the start.
    fn total(&self) -> CounterValue;

    /// A value now.
    fn now(&self) -> CounterValue {
        match self.total() {
            CounterValue::Total(value) => CounterValue::Now(value),
            other => other,
        }
    }
}

impl Count for u64 {
    fn total(&self) -> CounterValue {
        CounterValue::Total(*self as f64)
    }
}

impl Count for f64 {
    fn total(&self) -> CounterValue {
        CounterValue::Total(*self)
    }
}

impl Count for bool {
    fn total(&self) -> CounterValue {
        CounterValue::Total(f64::from(u8::from(*self)))
    }
}

impl Count for Histogram {
    fn total(&self) -> CounterValue {
        CounterValue::Durations(self.clone())
    }
}

impl Count for ByProtocol {
    fn total(&self) -> CounterValue {
        let values = self.iter().map(|&(protocol, points)| (protocol.name(), points as f64));
        CounterValue::ByLabel("protocol", values.collect())
    }
}

impl Count for ByReason {
    fn total(&self) -> CounterValue {
        let values = self.iter().map(|&(reason, inputs)| (reason.name(), inputs as f64));
        CounterValue::ByLabel("reason", values.collect())
    }
}

/// Makes of each row a documented field of the snapshot, its reading, and its entry in `/metrics`.
macro_rules! counters {
    ($($field:ident: $type:ty, $kind:ident $name:literal, $help:literal, $read:expr;)+) => {
        /// Everything that ingestion counts, at one moment.
        #[derive(Debug, Clone)]
        pub struct CountersSnapshot {
            $(#[doc = $help] pub $field: $type,)+
        }

        impl Stats {
            pub(crate) fn snapshot(&self) -> CountersSnapshot {
                fn read<T>(stats: &Stats, read: impl Fn(&Stats) -> T) -> T {
                    read(stats)
                }
                CountersSnapshot { $($field: read(self, $read),)+ }
            }
        }

        impl CountersSnapshot {
            /// Every counter with its name and help.
            pub fn counters(&self) -> Vec<Counter> {
                vec![$(Counter { name: $name, help: $help, value: self.$field.$kind() },)+]
            }
        }
    };
}

counters! {
    points: ByProtocol, total "plumbago_points_total", "Points accepted, by protocol.",
        |stats| stats.acceptor.counters().points();
    rejects: ByReason, total "plumbago_rejected_total",
        "Points, lines and frames refused, by reason; /admin/rejects has the last ones.",
        |stats| stats.acceptor.counters().rejects();
    batches: u64, total "plumbago_batches_total", "Batches accepted.",
        |stats| stats.acceptor.counters().batches();
    spelling_bytes: u64, now "plumbago_spelling_bytes",
        "Memory of names as senders spell them, with tags in another order or in OpenMetrics' form; part of ingest.names_limit.",
        |stats| stats.new_metrics.spelling_bytes() as u64;
    created: u64, total "plumbago_created_total", "Metrics created.",
        |stats| stats.new_metrics.created();
    deleted: u64, total "plumbago_deleted_total", "Metrics deleted, those that expired included.",
        |stats| stats.deletion.deleted();
    expired: u64, total "plumbago_expired_metrics_total", "Metrics deleted because they had no points for long.",
        |stats| stats.deletion.expired();
    stalled_seconds: f64, total "plumbago_stalled_seconds_total",
        "Time that receivers waited for room, all connections together.",
        |stats| stats.back_pressure.waited_seconds();
    stalled: bool, now "plumbago_stalled", "1 while receivers wait for room.",
        |stats| stats.back_pressure.is_closed();
    journal_errors: u64, total "plumbago_journal_errors_total", "Appends and syncs of the journal that failed.",
        |stats| stats.journal.counters().errors.load(Relaxed);
    journal_failing: bool, now "plumbago_journal_failing",
        "1 while the journal cannot be written and nothing is accepted.",
        |stats| stats.journal.is_failing();
    journal_bytes: u64, now "plumbago_journal_bytes", "Bytes of the journal on disk.",
        |stats| stats.journal.bytes();
    sync_age: f64, now "plumbago_journal_sync_age_seconds", "Time since all that was accepted was on the disk.",
        |stats| stats.journal.sync_age();
    replayed_points: u64, total "plumbago_journal_replayed_points_total", "Points replayed by the start.",
        |stats| stats.journal.counters().replayed_points.load(Relaxed);
    damaged_bytes: u64, now "plumbago_journal_damaged_bytes", "Bytes of the journal that the start could not read.",
        |stats| stats.journal.counters().damaged_bytes.load(Relaxed);
    nameless_points: u64, now "plumbago_journal_nameless_points",
        "Points of the journal whose metric nothing names, kept in the folder for what is damaged.",
        |stats| stats.journal.counters().nameless_points.load(Relaxed);
    repeated: u64, total "plumbago_journal_repeated_total",
        "Segments given up after a failed fsync, whose records another segment repeats.",
        |stats| stats.journal.counters().repeated.load(Relaxed);
    held_slots: u64, now "plumbago_held_slots", "Slots of points held in memory, not stored yet.",
        |stats| stats.back_pressure.slots();
    parked_points: u64, now "plumbago_parked_points",
        "Points that are in the journal alone, because memory was full while the store was away.",
        |stats| stats.spill.points();
    parked_bytes: u64, now "plumbago_parked_bytes", "Bytes of the journal's records of those points.",
        |stats| stats.spill.bytes();
    parked_points_total: u64, total "plumbago_parked_points_total", "Points that were parked.",
        |stats| stats.spill.total();
    store_failing: bool, now "plumbago_store_failing", "1 while the store takes no points, or does not get them to its disk.",
        |stats| stats.health.is_failing();
    unsynced_points: u64, now "plumbago_unsynced_points",
        "Points that the store has taken since it last had everything on its disk; the journal has them.",
        |stats| stats.cycle.unsynced_points();
    flushing_metrics: u64, now "plumbago_flushing_metrics", "Metrics on their way to the store.",
        |stats| stats.memtable.lock().jobs() as u64;
    store_errors: u64, total "plumbago_store_errors_total", "Writes that the store rejected and that are retried.",
        |stats| stats.writer.counters().store_errors.load(Relaxed) + stats.registration.errors();
    cycles: u64, total "plumbago_flush_cycles_total", "Flush cycles ended.",
        |stats| stats.cycle.cycles();
    flushed_metrics: u64, total "plumbago_flushed_metrics_total", "Metrics written out.",
        |stats| stats.writer.counters().metrics.load(Relaxed);
    flushed_points: u64, total "plumbago_flushed_points_total", "Points written out.",
        |stats| stats.writer.counters().points.load(Relaxed);
    points_aside: u64, total "plumbago_points_set_aside_total",
        "Points that the store cannot take and that are in files of the folder damaged.",
        |stats| stats.writer.points_aside();
    doubtful_slots: u64, total "plumbago_damaged_slots_kept_total",
        "Coarse slots that stayed as they were stored because finer slots under them are damaged.",
        |stats| stats.writer.counters().doubtful.load(Relaxed);
    fetches: u64, total "plumbago_series_read_total", "Series read.",
        |stats| stats.reader.counters().series.load(Relaxed);
    flush: Histogram, total "plumbago_flush_seconds", "Time to write out a group of metrics.",
        |stats| stats.writer.counters().groups.snapshot();
    fetch: Histogram, total "plumbago_read_seconds", "Time to read the series of a request.",
        |stats| stats.reader.counters().requests.snapshot();
    sync: Histogram, total "plumbago_journal_sync_seconds", "Time of an fsync of the journal.",
        |stats| stats.journal.sync_seconds();
}
