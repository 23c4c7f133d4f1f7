//! Points of segments that no start could read whole, put back once their disk returns them.
//!
//! They are older than everything that came since: they take slots that are empty, in the store and in memory, and those that
//! got nothing since (`since.rs`).
//! They go to the journal and to memory as they would have at first, and are derived as any late point is. To do it twice
//! changes nothing. The newest segment is first: of two points of one slot, that one counts.
//!
//! A point keeps the stage that it came for. Where its slot has expired since, it is put back as long as its neighbours are
//! stored for certain, so that the coarser slots over it are exact; after that it is not, and a finding stays.
//!
//! ```text
//! names     whose the points of a segment are
//! parts     the owners that points are put back to, and how a segment is read
//! slots     the slots that the points of a metric are for
//! putting   points into slots that are empty
//! since     what came for a slot behind a segment
//! replacing points into slots that have an older value
//! ```

mod names;
mod parts;
mod slots;

mod putting;
mod replacing;
mod since;

use std::{
    collections::HashMap,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;

pub(crate) use self::parts::PutBackParts;
use self::{
    names::Named,
    putting::{Done, Put},
};
use crate::wal::Segment;

/// Interval of attempts, and how many of them are between two reads of segments: those are long, and their disk is bad.
const INTERVAL: Duration = Duration::from_secs(10);
const INTERVALS_OF_SEGMENTS: u64 = 6;

/// Rounds in which the folder for what is kept is not found, before it counts as removed.
const ROUNDS_WITHOUT_FOLDER: u32 = 3;

/// Puts points back.
pub(crate) struct PutBack {
    with: Arc<PutBackParts>,
    /// One at a time. Of files with late points, what is put of each that is not done.
    turn: tokio::sync::Mutex<HashMap<PathBuf, Done>>,
    /// Whether the last attempt failed, which is logged once.
    is_failing: AtomicBool,
    /// Rounds in a row without a folder for what is kept.
    rounds_without_folder: AtomicU32,
    /// Whether this process has looked at the points that nothing named: the log of names may be back.
    has_looked: AtomicBool,
}

impl PutBack {
    pub(crate) fn new(with: PutBackParts) -> PutBack {
        PutBack {
            with: Arc::new(with),
            turn: tokio::sync::Mutex::default(),
            is_failing: AtomicBool::new(false),
            rounds_without_folder: AtomicU32::new(0),
            has_looked: AtomicBool::new(false),
        }
    }

    /// Tries again and again, until the task is aborted.
    pub(crate) async fn run(self: Arc<PutBack>) {
        for tick in 1_u64.. {
            tokio::time::sleep(INTERVAL).await;
            let put_back = if tick.is_multiple_of(INTERVALS_OF_SEGMENTS) { self.put_back().await } else { Ok(0) };
            let derived = self.derive_again().await;
            match put_back.and(derived) {
                Ok(_) => self.is_failing.store(false, Relaxed),
                Err(error) if !self.is_failing.swap(true, Relaxed) => {
                    tracing::warn!(%error, "points of journal segments in damaged/, or late points in the journal's folder, cannot be put back; retrying");
                }
                Err(_) => {}
            }
        }
    }

    /// Reads the segments that were not read whole, and puts back their points. Returns how many points were put back; a
    /// segment that still cannot be read stays, and so do older ones.
    pub(crate) async fn put_back(self: &Arc<PutBack>) -> io::Result<u64> {
        let _turn = self.turn.lock().await;
        let this = self.clone();
        let segments = self.with.elsewhere(move || this.with.waiting()).await?;
        let count = segments.len();
        let (named, mut all, mut readable) = (Arc::new(Mutex::new(Named::default())), 0, Vec::new());
        for segment in segments {
            let (this, of, named) = (self.clone(), segment.clone(), named.clone());
            if self.with.elsewhere(move || Ok(this.with.load(&of, &mut named.lock())?.is_none())).await? {
                break;
            }
            readable.push(segment);
        }
        let is_all = readable.len() == count;
        if !readable.is_empty() || !self.has_looked.load(Relaxed) {
            // Points of metrics that only these segments name, and that came later; or that the log of names has again.
            let this = self.clone();
            for segment in self.with.elsewhere(move || this.nameless_points()).await? {
                // Its names are in segments that must not count as done before it.
                let Some(points) = self.put_segment(&segment, &named, false).await? else { return Ok(all) };
                all += points;
            }
            self.has_looked.store(true, Relaxed);
        }
        for segment in readable {
            let Some(points) = self.put_segment(&segment, &named, true).await? else { return Ok(all) };
            all += points;
        }
        if !is_all {
            return Ok(all);
        }
        if self.with.deletions.is_noting() {
            let this = self.clone();
            self.with.elsewhere(move || this.end_noting()).await?;
        }
        Ok(all)
    }

    /// Nothing waits any more, unless segments are missing that may come back, or an operator may have points put back at last.
    fn end_noting(&self) -> io::Result<()> {
        let PutBackParts { damage, journal, deletions, .. } = &*self.with;
        // What is kept is in it: a disk that does not find it may have lost it for a moment.
        if damage.has_folder() {
            self.rounds_without_folder.store(0, Relaxed);
        } else if self.rounds_without_folder.fetch_add(1, Relaxed) < ROUNDS_WITHOUT_FOLDER {
            return Ok(());
        }
        // A flush may have kept one meanwhile.
        let none_waits = self.with.waiting()?.is_empty() && damage.points_to_try_again()?.is_empty();
        if none_waits && damage.missing()?.is_empty() && damage.cut_short()?.is_empty() {
            journal.folder().forget_since()?;
            deletions.end()?;
        }
        Ok(())
    }

    /// The files of points that nothing named, of the latest writer first.
    fn nameless_points(&self) -> io::Result<Vec<Segment>> {
        let mut files = self.with.damage.nameless_points()?;
        let first_segment = |file: &Segment| {
            let planned = self.with.journal.folder().plan_alone(file.clone()).ok()?;
            Some(planned.header?.segment)
        };
        files.sort_by_cached_key(|file| std::cmp::Reverse(first_segment(file)));
        Ok(files)
    }

    /// Puts the points of a segment back. `None` while it cannot be read, and where all must be known but is not.
    async fn put_segment(
        self: &Arc<PutBack>,
        segment: &Segment,
        named: &Arc<Mutex<Named>>,
        may_leave_out: bool,
    ) -> io::Result<Option<u64>> {
        let (this, of, names) = (self.clone(), segment.clone(), named.clone());
        let Some(late) = self.with.elsewhere(move || this.with.load(&of, &mut names.lock())).await? else {
            return Ok(None);
        };
        let (left_out, undecided, has_damage) = (late.left_out, late.undecided, late.has_damage);
        let found = (late.known.len() + late.unknown.len()) as u64 + left_out + undecided;
        let Put { mut points, taken, mut left, .. } = self.with.put(late).await?;
        // Of nameless points it is not known behind which others they came.
        if may_leave_out {
            let replaced = self.with.replace(segment, taken, named).await?;
            points += replaced.points;
            if replaced.is_waiting {
                return Ok(None);
            }
            left.add(replaced.left);
        } else {
            left.older += taken.len() as u64;
        }
        left.undecided = undecided;
        let _ = self.with.journal.synced().await;
        let (older, expired) = (left.older, left.expired());
        tracing::info!(file = %segment.path.display(), points, left_out, undecided, older, expired, "put points of a journal segment back");
        if may_leave_out || left_out + undecided == 0 {
            let (this, of) = (self.clone(), segment.clone());
            self.with
                .elsewhere(move || this.with.damage.was_put_back(this.with.journal.folder(), &of, has_damage, &left))
                .await?;
            self.with.damage.found_again(found);
        }
        Ok(Some(points))
    }

    /// Has coarse slots derived again around late points that were stored without their neighbours. A file whose rows still
    /// cannot be read stays. Returns how many points there were.
    pub(crate) async fn derive_again(self: &Arc<PutBack>) -> io::Result<u64> {
        let mut begun = self.turn.lock().await;
        let this = self.clone();
        let (mut all, mut failed) = (0, None);
        for file in self.with.elsewhere(move || this.with.journal.folder().late_files()).await? {
            let (this, of) = (self.clone(), file.clone());
            let load = move || this.with.load(&of, &mut Named::of_rows());
            let Some(mut late) = self.with.elsewhere(load).await? else { continue };
            let has_damage = late.has_damage;
            late.known.iter_mut().for_each(|point| point.is_again = true);
            match self.with.put_again(late, begun.entry(file.path.clone()).or_default()).await {
                // As long as a file is missing that a restored backup lacked.
                Ok(Put { is_away: true, points, .. }) => all += points,
                Ok(Put { points, left, .. }) => {
                    begun.remove(&file.path);
                    let _ = self.with.journal.synced().await;
                    let with = self.with.clone();
                    let done = move || with.damage.late_file_is_done(with.journal.folder(), &file, &left, has_damage);
                    self.with.elsewhere(done).await?;
                    all += points;
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(all), Err)
    }
}
