//! What ingestion counts, as metric families.

use ingest::CountersSnapshot;
use prometheus::proto::{MetricFamily, MetricType};

use super::families::{counter, flag, gauge, histogram, labelled};

/// One family a counter of [`CountersSnapshot`].
pub(super) fn ingest_families(counts: &CountersSnapshot) -> Vec<MetricFamily> {
    let points = counts.points.iter().map(|(protocol, points)| (protocol.name(), *points as f64)).collect();
    let rejects = counts.rejects.iter().map(|(reason, points)| (reason.name(), *points as f64)).collect();
    vec![
        labelled("plumbago_points_total", "Points accepted, by protocol.", MetricType::COUNTER, "protocol", points),
        labelled(
            "plumbago_rejected_total",
            "Points, lines and frames refused, by reason; /admin/rejects has the last ones.",
            MetricType::COUNTER,
            "reason",
            rejects,
        ),
        counter("plumbago_batches_total", "Batches accepted.", counts.batches as f64),
        counter("plumbago_created_total", "Metrics created.", counts.created as f64),
        counter(
            "plumbago_stalled_seconds_total",
            "Time that receivers waited for room, all connections together.",
            counts.stalled_seconds,
        ),
        gauge("plumbago_stalled", "1 while receivers wait for room.", flag(counts.stalled)),
        counter(
            "plumbago_journal_errors_total",
            "Appends and syncs of the journal that failed.",
            counts.journal_errors as f64,
        ),
        gauge(
            "plumbago_journal_failing",
            "1 while the journal cannot be written and nothing is accepted.",
            flag(counts.journal_failing),
        ),
        gauge("plumbago_journal_bytes", "Bytes of the journal on disk.", counts.journal_bytes as f64),
        gauge(
            "plumbago_journal_sync_age_seconds",
            "Time since all that was accepted was on the disk.",
            counts.sync_age,
        ),
        counter(
            "plumbago_journal_replayed_points_total",
            "Points replayed by the start.",
            counts.replayed_points as f64,
        ),
        gauge(
            "plumbago_journal_damaged_bytes",
            "Bytes of the journal that the start could not read.",
            counts.damaged_bytes as f64,
        ),
        gauge("plumbago_held_slots", "Slots of points held in memory, not stored yet.", counts.held_slots as f64),
        gauge(
            "plumbago_parked_points",
            "Points that are in the journal alone, because memory was full while the store was away.",
            counts.parked_points as f64,
        ),
        gauge("plumbago_parked_bytes", "Bytes of the journal's records of those points.", counts.parked_bytes as f64),
        counter("plumbago_parked_points_total", "Points that were parked.", counts.parked_points_total as f64),
        gauge("plumbago_store_failing", "1 while the store does not take points.", flag(counts.store_failing)),
        gauge("plumbago_flushing_metrics", "Metrics on their way to the store.", counts.flushing_metrics as f64),
        counter(
            "plumbago_store_errors_total",
            "Writes that the store rejected and that are retried.",
            counts.store_errors as f64,
        ),
        counter("plumbago_flush_cycles_total", "Flush cycles ended.", counts.cycles as f64),
        counter("plumbago_flushed_metrics_total", "Metrics written out.", counts.flushed_metrics as f64),
        counter("plumbago_flushed_points_total", "Points written out.", counts.flushed_points as f64),
        counter("plumbago_series_read_total", "Series read.", counts.fetches as f64),
        histogram("plumbago_flush_seconds", "Time to write out a group of metrics.", &counts.flush),
        histogram("plumbago_read_seconds", "Time to read the series of a request.", &counts.fetch),
        histogram("plumbago_journal_sync_seconds", "Time of an fsync of the journal.", &counts.sync),
    ]
}
