//! Points that the store can never take, put into a file of their own, so that all others go on.
//!
//! The file is in the folder `damaged` next to the journal, in the journal's format. It is never deleted by the program.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use host::{Excerpt, Host, JudgingTime, Open};
use metadata::Registry;
use metric::Timestamp;
use store::{Damage, DamageLog};

use super::{late_files::loose_points, plan::JobPoints};
use crate::{no_panic::CallError, wal::loose_segment};

/// Where points go that the store cannot take.
pub(crate) struct Aside {
    host: Host,
    time: Arc<JudgingTime>,
    dir: PathBuf,
    damage: DamageLog,
    points: AtomicU64,
    files: AtomicU64,
}

impl Aside {
    /// Files go to the folder `damaged` next to the journal's.
    pub(crate) fn new(host: Host, time: Arc<JudgingTime>, journal_dir: &Path, damage: DamageLog) -> Aside {
        let dir = journal_dir.parent().unwrap_or(Path::new("")).join("damaged");
        Aside { host, time, dir, damage, points: AtomicU64::new(0), files: AtomicU64::new(0) }
    }

    /// Points set aside since the start.
    pub(crate) fn points(&self) -> u64 {
        self.points.load(Relaxed)
    }

    /// Puts the points of one metric into a file, which is on the disk when this returns, and reports it.
    pub(super) fn put(&self, job: &JobPoints<'_>, registry: &Registry, error: &CallError) -> io::Result<()> {
        let now = self.host.clock.now();
        let name = registry.read().name(job.job.metric).to_owned();
        let metric = loose_points(job, &name, self.time.now());
        let bytes = loose_segment(std::slice::from_ref(&metric), now);
        let file = self.write(&bytes, now)?;
        let count = metric.points.len() as u64;
        let times = || metric.points.iter().map(|&(_, time, _)| Timestamp::from(time));
        let (from, until) = (times().min().unwrap_or(now), times().max().map_or(now, |last| last + 1));
        self.points.fetch_add(count, Relaxed);
        self.damage.report(Damage {
            found_at: now,
            what: "points that the store cannot take",
            file: file.clone(),
            how: format!("{name}: {error}"),
            bytes: bytes.len() as u64,
            moved_to: Some(file.clone()),
            metrics: Some((job.job.metric, job.job.metric)),
            span: Some((from, until)),
        });
        tracing::error!(
            metric = %Excerpt(name), points = count, from, until, file, error = %Excerpt(&error),
            "the store cannot take points of a metric, and a retry does not help; they are in a file of the journal's \
             format, and all others are stored"
        );
        Ok(())
    }

    fn write(&self, bytes: &[u8], now: Timestamp) -> io::Result<String> {
        let disk = &self.host.disk;
        disk.create_dir_all(&self.dir)?;
        loop {
            let name = format!("points-{now}-{}.journal", self.files.fetch_add(1, Relaxed));
            let path = self.dir.join(&name);
            let file = match disk.open(&path, Open::CreateNew) {
                // Of an earlier process of the same second.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                file => file?,
            };
            let written = file.write_shared(bytes).and_then(|()| file.sync_all());
            if let Err(error) = written.and_then(|()| disk.sync_dir(&self.dir)) {
                let _ = disk.remove_file(&path);
                return Err(error);
            }
            return Ok(format!("damaged/{name}"));
        }
    }
}
