//! The files of the embedded store and the scrub over them, as metric families.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prometheus::proto::MetricFamily;
use store_embedded::{EventUsage, StoreStatus};

use super::families::{counter, flag, gauge};
use crate::backups::{BackupCounters, ScrubCounters};

/// The state of the files.
pub(super) fn file_families(files: &StoreStatus) -> [MetricFamily; 10] {
    let debt = "Bytes that merges still have to write: how far they are behind.";
    let missing = "Files of rows that are not there: their rows are missing from answers. Looked for once a minute.";
    let most = "The most files of one window: a read of a row looks at each.";
    let short = "1 while merges wait because they would leave less of the disk free than data.reserve.";
    let behind = "1 while the list of files could not be written; the next sync tries again.";
    let quarantined = "Bytes of damaged rows that merges copied to the folder damaged.";
    [
        gauge("plumbago_store_files", "Files of rows.", files.files as f64),
        gauge("plumbago_store_missing_files", missing, files.missing_files as f64),
        gauge("plumbago_store_window_files", most, files.most_files as f64),
        gauge("plumbago_merge_debt_bytes", debt, files.merge_debt_bytes as f64),
        counter("plumbago_merges_total", "Merges of files of rows.", files.merges as f64),
        counter(
            "plumbago_merges_meanwhile_total",
            "Those of them that ran in the middle of a larger one, so that the files of a window stay few.",
            files.merges_meanwhile as f64,
        ),
        counter("plumbago_merges_failed_total", "Merges that failed and are retried.", files.merges_failed as f64),
        gauge("plumbago_merges_wait", short, flag(files.is_short_of_disk)),
        counter("plumbago_quarantined_bytes_total", quarantined, files.quarantined_bytes as f64),
        gauge("plumbago_manifest_behind", behind, flag(files.is_manifest_behind)),
    ]
}

/// The events.
pub(super) fn event_families(events: &EventUsage, are_taken: bool) -> [MetricFamily; 5] {
    let refused =
        "Events that got status 507, because there were as many as limits.events or limits.events_bytes allows.";
    [
        gauge("plumbago_events", "Events that are kept.", events.events as f64),
        gauge("plumbago_events_bytes", "Bytes of these events.", events.bytes as f64),
        counter("plumbago_events_refused_total", refused, events.refused as f64),
        counter(
            "plumbago_events_failed_total",
            "Events that got status 503, because the disk did not take them.",
            events.failed as f64,
        ),
        gauge(
            "plumbago_events_failing",
            "1 while no events are taken: the disk did not take the last one, or their log was removed or replaced.",
            flag(!are_taken),
        ),
    ]
}

/// What the scrub has read.
pub(super) fn scrub_families(scrub: &ScrubCounters) -> [MetricFamily; 3] {
    let read = |counter: &AtomicU64| counter.load(Relaxed) as f64;
    [
        counter("plumbago_scrub_bytes_total", "Bytes that the scrub has read.", read(&scrub.bytes)),
        counter("plumbago_scrub_damage_total", "Damage that the scrub has found.", read(&scrub.faults)),
        counter("plumbago_scrub_rounds_total", "Rounds of the scrub over all files.", read(&scrub.rounds)),
    ]
}

/// Backups since the start.
pub(super) fn backup_families(backups: &BackupCounters) -> [MetricFamily; 3] {
    let read = |counter: &AtomicU64| counter.load(Relaxed) as f64;
    let last = "The moment of the last backup since the start, Unix seconds; 0 for none.";
    [
        counter("plumbago_backups_total", "Backups that were made.", read(&backups.made)),
        counter("plumbago_backups_failed_total", "Backups that failed.", read(&backups.failed)),
        gauge("plumbago_backup_last_timestamp_seconds", last, read(&backups.last)),
    ]
}
