//! The outcome of sending a load, and its table.

use std::fmt::Write as _;

use serde::Serialize;

use crate::{Error, disk::Disk, process::Memory, readable::Readable, report, verify::Verified};

/// The moment up to which processor time counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CountedUntil {
    /// The process was idle.
    Idle,
    /// Everything sent was stored: written out on request, or readable. The process was never idle afterwards.
    Stored,
    /// The wait timed out while the process still worked, for an unknown reason.
    Timeout,
}

/// The cost of a load. Times are in seconds, sizes in bytes.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Outcome {
    pub(crate) names: u64,
    /// Points measured, without those that made the metrics known.
    pub(crate) points: u64,
    pub(crate) connections: u64,
    pub(crate) bytes: u64,
    pub(crate) written_seconds: f64,
    /// Until the server had read everything.
    pub(crate) accepted_seconds: Option<f64>,
    pub(crate) accepted_per_second: Option<f64>,
    /// Until all was stored, for servers that write out on request, or whose points are read back.
    pub(crate) stored_seconds: Option<f64>,
    pub(crate) stored_per_second: Option<f64>,
    /// The wait until the points could be read.
    pub(crate) readable: Option<Readable>,
    /// How long the server worked on after it had read everything; `None` when that did not end.
    pub(crate) idle_after_seconds: Option<f64>,
    /// Of the server, until `cpu_until`.
    pub(crate) cpu_seconds: Option<f64>,
    /// Of the server, to write out the rest on request after it was idle.
    pub(crate) flush_cpu_seconds: Option<f64>,
    /// Both together, in microseconds.
    pub(crate) cpu_per_point: Option<f64>,
    pub(crate) cpu_per_metric: Option<f64>,
    pub(crate) cpu_until: Option<CountedUntil>,
    /// The same of all processes of the store.
    pub(crate) store_idle_after_seconds: Option<f64>,
    pub(crate) store_cpu_seconds: Option<f64>,
    pub(crate) store_flush_cpu_seconds: Option<f64>,
    pub(crate) store_cpu_per_point: Option<f64>,
    pub(crate) store_cpu_per_metric: Option<f64>,
    pub(crate) store_cpu_until: Option<CountedUntil>,
    /// Of `bench` itself, while sending.
    pub(crate) client_cpu_seconds: f64,
    pub(crate) memory_before: Option<Memory>,
    pub(crate) memory: Option<Memory>,
    pub(crate) resident_per_metric: Option<f64>,
    pub(crate) peak_per_metric: Option<f64>,
    pub(crate) disk_before: Option<Disk>,
    pub(crate) disk: Option<Disk>,
    /// Growth of the folder, divided by all points sent, including those that made the metrics known.
    pub(crate) disk_per_point: Option<f64>,
    pub(crate) apparent_per_point: Option<f64>,
    pub(crate) verified: Option<Verified>,
    /// Remarks on these figures.
    pub(crate) notes: Vec<String>,
}

impl Outcome {
    /// An error unless all points read back were there and unchanged.
    pub(crate) fn faithful(&self) -> Result<(), Error> {
        if let Some(Readable { metrics, whole, lacking, seconds, .. }) = self.readable.filter(|found| !found.complete())
        {
            return Err(Error::Unreadable { metrics, whole, lacking, seconds });
        }
        self.verified.map_or(Ok(()), |verified| verified.faithful())
    }

    /// Fills in the quotients. `sent` counts all points, measured or not.
    pub(crate) fn divide(&mut self, sent: u64) {
        let (points, names) = (self.points as f64, self.names as f64);
        self.accepted_per_second = self.accepted_seconds.map(|seconds| points / seconds);
        self.stored_per_second = self.stored_seconds.map(|seconds| points / seconds);
        let micros = |cpu: Option<f64>, flush: Option<f64>| cpu.map(|cpu| (cpu + flush.unwrap_or(0.0)) * 1e6);
        let cpu = micros(self.cpu_seconds, self.flush_cpu_seconds);
        self.cpu_per_point = cpu.map(|cpu| cpu / points);
        self.cpu_per_metric = cpu.map(|cpu| cpu / names);
        let cpu = micros(self.store_cpu_seconds, self.store_flush_cpu_seconds);
        self.store_cpu_per_point = cpu.map(|cpu| cpu / points);
        self.store_cpu_per_metric = cpu.map(|cpu| cpu / names);
        self.resident_per_metric = self.memory.map(|memory| memory.resident as f64 / names);
        self.peak_per_metric = self.memory.map(|memory| memory.peak as f64 / names);
        if let Some((before, after)) = self.disk_before.zip(self.disk) {
            let grown = |before: u64, after: u64| (after as f64 - before as f64) / sent as f64;
            self.disk_per_point = Some(grown(before.allocated, after.allocated));
            self.apparent_per_point = Some(grown(before.apparent, after.apparent));
        }
    }

    /// The table, and the notes below it. The store, and the wait until points are stored, have lines only if measured.
    pub(crate) fn table(&self) -> String {
        let mega = |bytes: u64| bytes as f64 / 1e6;
        let mut rows = vec![
            ("metrics", Some(self.names as f64)),
            ("points", Some(self.points as f64)),
            ("bytes a point sent", Some(self.bytes as f64 / self.points as f64)),
            ("s until written", Some(self.written_seconds)),
            ("s until accepted", self.accepted_seconds),
            ("points/s accepted", self.accepted_per_second),
        ];
        if self.stored_seconds.is_some() || self.readable.is_some() {
            rows.extend([("s until stored", self.stored_seconds), ("points/s stored", self.stored_per_second)]);
        }
        if let Some(Readable { metrics, whole, requests, .. }) = self.readable {
            rows.extend([
                ("metrics waited for", Some(metrics as f64)),
                ("of them readable", Some(whole as f64)),
                ("requests until they were", Some(requests as f64)),
            ]);
        }
        rows.extend([
            ("s until idle after that", self.idle_after_seconds),
            ("s of the server's processors", self.cpu_seconds),
            ("s of them to write out", self.flush_cpu_seconds),
            ("µs of them a point", self.cpu_per_point),
            ("µs of them a metric", self.cpu_per_metric),
        ]);
        if self.store_cpu_seconds.is_some() {
            rows.extend([
                ("s until the store was idle", self.store_idle_after_seconds),
                ("s of the store's processors", self.store_cpu_seconds),
                ("s of the store's to write out", self.store_flush_cpu_seconds),
                ("µs of the store's a point", self.store_cpu_per_point),
                ("µs of the store's a metric", self.store_cpu_per_metric),
            ]);
        }
        rows.extend([
            ("s of the client's processors", Some(self.client_cpu_seconds)),
            ("MB resident before", self.memory_before.map(|memory| mega(memory.resident))),
            ("MB resident", self.memory.map(|memory| mega(memory.resident))),
            ("MB of that in no file", self.memory.map(|memory| mega(memory.anonymous))),
            ("MB resident at most", self.memory.map(|memory| mega(memory.peak))),
            ("bytes resident a metric", self.resident_per_metric),
            ("bytes at most a metric", self.peak_per_metric),
            ("MB of disk allocated", self.disk.map(|disk| mega(disk.allocated))),
            ("MB of disk apparent", self.disk.map(|disk| mega(disk.apparent))),
            ("bytes of disk a point", self.disk_per_point),
            ("bytes of disk a point, apparent", self.apparent_per_point),
        ]);
        if let Some(Verified { series, checked, missing, wrong, extra }) = self.verified {
            rows.extend([
                ("metrics read back", Some(series as f64)),
                ("points read back", Some(checked as f64)),
                ("of them missing", Some(missing as f64)),
                ("of them wrong", Some(wrong as f64)),
                ("never sent", Some(extra as f64)),
            ]);
        }
        let rows: Vec<Vec<String>> =
            rows.into_iter().map(|(what, value)| vec![what.to_owned(), report::optional(value)]).collect();
        let mut out = report::table(&report::row(["measure", "value"]), &rows);
        for (place, note) in self.notes.iter().enumerate() {
            // Writing to a String cannot fail.
            _ = writeln!(out, "{}- {note}", if place == 0 { "\n" } else { "" });
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_divided_by_points_measured_and_disk_by_all_points_sent() {
        let disk = |allocated| Some(Disk { allocated, ..Disk::default() });
        let mut outcome = Outcome {
            names: 100,
            points: 1_000,
            accepted_seconds: Some(0.5),
            stored_seconds: Some(2.0),
            cpu_seconds: Some(0.75),
            flush_cpu_seconds: Some(0.25),
            store_cpu_seconds: Some(3.0),
            disk_before: disk(5_000),
            disk: disk(6_100),
            ..Outcome::default()
        };
        outcome.divide(1_100);
        assert_eq!((outcome.accepted_per_second, outcome.stored_per_second), (Some(2_000.0), Some(500.0)));
        assert_eq!((outcome.cpu_per_point, outcome.cpu_per_metric), (Some(1_000.0), Some(10_000.0)));
        assert_eq!((outcome.store_cpu_per_point, outcome.store_cpu_per_metric), (Some(3_000.0), Some(30_000.0)));
        assert_eq!(outcome.disk_per_point, Some(1.0));
    }

    #[test]
    fn points_that_never_become_readable_are_a_failure_and_have_no_rate() {
        let readable = Readable { metrics: 5, whole: 3, lacking: 2, requests: 9, seconds: 7.0 };
        let mut outcome = Outcome { names: 1, points: 1, readable: Some(readable), ..Outcome::default() };
        outcome.divide(1);
        assert_eq!(outcome.stored_per_second, None);
        let error = outcome.faithful().expect_err("two metrics are not whole").to_string();
        assert_eq!(
            error,
            "after 7.0 s the points of 3 of 5 metrics could be read, and of the next one 2 could not; \
             --timeout gives them longer"
        );
        outcome.readable = Some(Readable { whole: 5, ..readable });
        assert!(outcome.faithful().is_ok());
    }

    #[test]
    fn a_store_has_lines_only_if_measured_and_notes_are_below() {
        let mut outcome = Outcome { names: 1, points: 1, ..Outcome::default() };
        assert!(!outcome.table().contains("store"));
        outcome.store_cpu_seconds = Some(0.5);
        outcome.notes.push("it was hot".into());
        outcome.divide(1);
        let table = outcome.table();
        assert!(table.contains("| µs of the store's a point       | 500,000 |"), "{table}");
        assert!(table.ends_with("|\n\n- it was hot\n"), "{table}");
    }
}
