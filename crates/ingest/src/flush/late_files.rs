//! Late points that were stored although their stored neighbours cannot be read now, and that could not wait: a file next to
//! the journal keeps them, in its format, until the coarse slots around them can be derived again.

use std::{
    io,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use host::{Host, Open};
use metadata::Registry;
use metric::Timestamp;

use super::plan::JobPoints;
use crate::wal::{JournalDamage, LATE_FILE, LoosePoints, loose_segment};

/// Keeps such points.
pub(crate) struct LateFiles {
    host: Host,
    dir: PathBuf,
    damage: JournalDamage,
    files: AtomicU64,
}

impl LateFiles {
    /// In the folder of the journal.
    pub(crate) fn new(host: Host, dir: PathBuf, damage: JournalDamage) -> LateFiles {
        LateFiles { host, dir, damage, files: AtomicU64::new(0) }
    }

    /// Puts points into a file, which is on the disk when this returns, and reports it. Blocks.
    pub(super) fn put<'a>(&self, jobs: impl Iterator<Item = &'a JobPoints<'a>>, registry: &Registry) -> io::Result<()> {
        let now = self.host.clock.now();
        let names = registry.read();
        let all: Vec<LoosePoints<'_>> = jobs.map(|job| loose_points(job, names.name(job.job.metric), now)).collect();
        let points: usize = all.iter().map(|metric| metric.points.len()).sum();
        let bytes = loose_segment(&all, now);
        let metrics = all.len();
        drop(all);
        drop(names);
        let disk = &self.host.disk;
        loop {
            let name = format!("{LATE_FILE}{now}-{}.points", self.files.fetch_add(1, Relaxed));
            let path = self.dir.join(&name);
            let file = match disk.open(&path, Open::CreateNew) {
                // Of an earlier process of the same second.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                file => file?,
            };
            let written = file.write_shared(&bytes).and_then(|()| file.sync_all());
            if let Err(error) = written.and_then(|()| disk.sync_dir(&self.dir)) {
                let _ = disk.remove_file(&path);
                return Err(error);
            }
            self.damage.report_late(&path, bytes.len() as u64);
            tracing::warn!(
                points, metrics, file = %path.display(),
                "late points are stored without their stored neighbours, which cannot be read now; coarse slots around them are \
                 derived again when they can"
            );
            return Ok(());
        }
    }
}

/// The points of a job, as a replay puts them into the stages that they had.
pub(super) fn loose_points<'a>(job: &'a JobPoints<'_>, name: &'a str, now: Timestamp) -> LoosePoints<'a> {
    let retention = &job.policy.retention;
    let points = job.points.staged_times(retention).filter_map(|(stage, time, value)| {
        let is_held = retention.stage_holding(time, now) == Some(stage);
        let accepted = if is_held { now } else { time + retention.stages()[stage].duration() };
        Some((accepted, u32::try_from(time).ok()?, value))
    });
    LoosePoints { metric: job.job.metric, name, policy: job.policy, points: points.collect() }
}
