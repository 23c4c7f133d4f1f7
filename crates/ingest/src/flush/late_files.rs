//! Late points that were stored although their stored neighbours cannot be read now, and that could not wait: a file next to
//! the journal keeps them, in its format, until the coarse slots around them can be derived again.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use host::{Host, JudgingTime, Now, replace_file};
use metadata::Registry;
use metric::{Retention, Timestamp};

use super::plan::JobPoints;
use crate::wal::{JournalDamage, LATE_FILE, LoosePoints, loose_segment};

/// The end of the name of a file that is being written, as of all files that are replaced.
const DRAFT: &str = ".new";

/// Keeps such points.
pub(crate) struct LateFiles {
    host: Host,
    time: Arc<JudgingTime>,
    dir: PathBuf,
    damage: JournalDamage,
    files: AtomicU64,
}

impl LateFiles {
    /// In the folder of the journal.
    pub(crate) fn new(host: Host, time: Arc<JudgingTime>, dir: PathBuf, damage: JournalDamage) -> LateFiles {
        // What a process left that ended in the middle: the journal has these points.
        let is_draft = |name: &str| name.starts_with(LATE_FILE) && name.ends_with(DRAFT);
        for entry in host.disk.read_dir(&dir).into_iter().flatten() {
            if entry.name.to_str().is_some_and(is_draft) {
                let _ = host.disk.remove_file(&entry.path);
            }
        }
        LateFiles { host, time, dir, damage, files: AtomicU64::new(0) }
    }

    /// Puts points into a file, which is on the disk when this returns, and reports it. Blocks.
    pub(super) fn put<'a>(&self, jobs: impl Iterator<Item = &'a JobPoints<'a>>, registry: &Registry) -> io::Result<()> {
        let (now, judged) = (self.host.clock.now(), self.time.now());
        let names = registry.read();
        let all: Vec<LoosePoints<'_>> = jobs.map(|job| loose_points(job, names.name(job.job.metric), judged)).collect();
        let points: usize = all.iter().map(|metric| metric.points.len()).sum();
        let bytes = loose_segment(&all, now);
        let metrics = all.len();
        drop(all);
        drop(names);
        let disk = &self.host.disk;
        loop {
            let name = format!("{LATE_FILE}{now}-{}.points", self.files.fetch_add(1, Relaxed));
            let path = self.dir.join(&name);
            // Of an earlier process of the same second.
            if disk.exists(&path) {
                continue;
            }
            // Whole, or not there: the journal has the points until this returns.
            if let Err(error) = replace_file(&**disk, &path, &bytes) {
                // It may be there, and not durable; or a part of it, which takes the room of the next attempt.
                let _ = disk.remove_file(&path);
                let _ = disk.remove_file(&self.dir.join(format!("{name}{DRAFT}")));
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

/// The points of a job, as a replay puts them into the stages that they had. `judged` is the time by which points are judged
/// now, and not the calendar's: that may be years away from the points.
pub(super) fn loose_points<'a>(job: &'a JobPoints<'_>, name: &'a str, judged: Now) -> LoosePoints<'a> {
    let retention = &job.policy.retention;
    let points = job.points.staged_times(retention).filter_map(|(stage, time, value)| {
        Some((accepted(retention, (stage, time), judged), u32::try_from(time).ok()?, value))
    });
    LoosePoints { metric: job.job.metric, name, policy: job.policy, points: points.collect() }
}

/// A time at which a point of this stage and time is accepted for this stage: `judged` where that is one.
fn accepted(retention: &Retention, (stage, time): (usize, Timestamp), judged: Now) -> Now {
    let is_held = retention.stage_holding(time, judged.low()) == Some(stage);
    match is_held && time - judged.high() <= retention.longest().duration() {
        true => judged,
        false => Now::at(time + retention.stages()[stage].duration()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_points_have_a_time_at_which_a_replay_puts_them_into_their_stage() {
        let retention: Retention = "180*1s:90*10s:60*60s".parse().unwrap();
        let (now, years) = (1_800_000_000, 315_000_000);
        let all = [Now::at(now), Now::between(now - years, now), Now::between(now, now + years), Now::at(now - years)];
        for judged in all {
            for (stage, age) in [(0, 0), (0, 180), (0, 500), (1, 181), (1, 100), (2, 901), (2, 0)] {
                let time = now - age;
                let at = accepted(&retention, (stage, time), judged);
                let is_ahead = retention.longest().duration() < time - at.high();
                assert_eq!(
                    (retention.stage_holding(time, at.low()), is_ahead),
                    (Some(stage), false),
                    "{judged:?} {age}"
                );
            }
        }
    }
}
