//! The time by which points are judged: the clock's, unless the clock cannot be trusted.
//!
//! 1. The calendar is compared with a stopwatch while the program runs, and at a start with the mark in the file
//!    `clock` of the data folder, which is replaced every half minute. Where it is missing or damaged, the last write to the
//!    journal stands for it. A difference above [`TOLERANCE`] is a jump; NTP slews and steps of seconds are not.
//! 2. After a jump there are two candidates: the clock, and the time before, continued by the stopwatch. Neither can be
//!    excluded from here: a clock may be set wrong or right. Points are then judged by both ([`Now`]), so that none is
//!    rejected because of a jump, and nothing expires.
//! 3. The doubt ends when the clock is near the time before again, when the times of incoming points agree with the
//!    clock ([`JudgingTime::witness`]), or when an operator says so ([`JudgingTime::trust`]). Points that agree with the
//!    time before show that the clock is wrong; the doubt then lasts until the clock is set.

mod mark;
mod votes;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use self::{
    mark::{Found, Mark},
    votes::Votes,
};
use crate::{Clock, DamagedFolder, Disk, Host};

pub use self::{mark::Absence, votes::Candidate};

/// A calendar that is this many seconds away from where it should be has jumped.
pub const TOLERANCE: i64 = 600;

/// The begin of a process is another one when the clock says so by more seconds than this: not for parts of a second.
const DRIFT: i64 = 5;

/// A point this many seconds from a candidate agrees with it: closer than to any other.
const AGREES: i64 = TOLERANCE / 2;

/// No clock was right before this program was written: 2025-01-01.
const EARLIEST: i64 = 1_735_689_600;

/// The end of the times that points can have.
const LATEST: i64 = u32::MAX as i64;

/// The mark may be as old as its interval and a slow disk; this many seconds on, it surely is not too low.
const MARK_AGE: i64 = 60;

/// The time now, between two ends. They are equal unless the clock is in doubt.
///
/// A point is too old only if it is too old at the lower end, and too far ahead only if it is that at the higher end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    // Invariant: low <= high.
    low: i64,
    high: i64,
}

impl Now {
    /// A time that is certain, Unix seconds.
    pub fn at(time: i64) -> Now {
        Now { low: time, high: time }
    }

    /// A time between two ends, in any order.
    pub fn between(one: i64, other: i64) -> Now {
        Now { low: one.min(other), high: one.max(other) }
    }

    /// The earliest that it may be. The age of points counts from here.
    pub fn low(self) -> i64 {
        self.low
    }

    /// The latest that it may be. Points are ahead of this.
    pub fn high(self) -> i64 {
        self.high
    }

    /// Whether the clock can be trusted.
    pub fn is_certain(self) -> bool {
        self.low == self.high
    }
}

/// A clock in doubt, for reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockDoubt {
    /// What the clock says, Unix seconds.
    pub clock: i64,
    /// The time before the jump, continued by the stopwatch, Unix seconds.
    pub before: i64,
    /// The jump was found at the start: `before` leaves out the time that the program did not run.
    pub at_start: bool,
    /// Seconds since it was found.
    pub seconds: u64,
    /// What incoming points, or an operator, say.
    pub verdict: Option<Candidate>,
    /// Batches of points that agreed lately with the clock, and with the time before.
    pub batches: [u32; 2],
}

/// The judging time. Every owner of a pipeline shares one.
#[derive(Debug)]
pub struct JudgingTime {
    clock: Arc<dyn Clock>,
    origin: Instant,
    /// Seconds to add to the stopwatch for the time that is trusted.
    offset: AtomicI64,
    /// The latest low end so far.
    reached: AtomicI64,
    /// The mark that the start found, where `reached` began beyond it: [`MARK_AGE`] is not a part of the mark, or each start
    /// would add it again.
    found: Option<i64>,
    /// When no process ran with the folder, and whether the next process needs to know. The last one ends when this process began.
    absences: Vec<Absence>,
    /// Seconds by the stopwatch, and the Unix seconds of that as last used.
    begins_after: AtomicI64,
    began: AtomicI64,
    are_absences_noted: AtomicBool,
    is_doubtful: AtomicBool,
    doubt: Mutex<Option<Doubt>>,
    jumps: AtomicU64,
    file: Option<MarkFile>,
}

#[derive(Debug)]
struct MarkFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Where the start moved what was there, if it was damaged.
    moved_to: Option<String>,
}

#[derive(Debug)]
struct Doubt {
    since: Instant,
    at_start: bool,
    /// Seconds to add to the stopwatch for the clock that is in doubt.
    clock_offset: i64,
    votes: Votes,
    verdict: Option<Candidate>,
}

impl JudgingTime {
    /// The time of a clock that is right at the start.
    pub fn of(clock: Arc<dyn Clock>) -> JudgingTime {
        let (now, origin) = (clock.now(), clock.instant());
        JudgingTime {
            clock,
            origin,
            offset: AtomicI64::new(now),
            reached: AtomicI64::new(now),
            found: None,
            absences: Vec::new(),
            begins_after: AtomicI64::new(0),
            began: AtomicI64::new(now),
            are_absences_noted: AtomicBool::new(false),
            is_doubtful: AtomicBool::new(false),
            doubt: Mutex::default(),
            jumps: AtomicU64::new(0),
            file: None,
        }
    }

    /// Compares the clock with the mark in the file `clock` of a data folder, and keeps the mark there from now on. A damaged
    /// file is moved to `damaged/`. Where the file is damaged or missing, the clock is compared with the last write to the
    /// journal in that folder.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported) where a newer version of the program wrote the file, and the disk's own.
    pub fn open(host: &Host, data: &Path) -> io::Result<JudgingTime> {
        let mut file = MarkFile { disk: host.disk.clone(), path: data.join("clock"), moved_to: None };
        let mut found = None;
        match Mark::read(&*file.disk, &file.path)? {
            Found::Mark(mark) => found = Some(mark),
            Found::Nothing => {}
            Found::Damaged => {
                let why = "not a mark of how far the time had come";
                file.moved_to = Some(DamagedFolder::new(host, data).move_in(&file.path, why)?);
            }
            Found::Newer(version) => {
                let text = format!(
                    "{} has version {version}, and this program reads version 1; start the version of the program that wrote it",
                    file.path.display()
                );
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
        }
        let mut time = JudgingTime::of(host.clock.clone());
        time.file = Some(file);
        let of_journal = || Some(Mark { reached: last_written(host, &data.join("journal"))?, ..Mark::default() });
        time.compare_at_start(found.or_else(of_journal));
        Ok(time)
    }

    fn compare_at_start(&mut self, mark: Option<Mark>) {
        let clock = self.clock.now();
        let known = match mark {
            Some(mut mark) => {
                mark.add_absence(Absence { from: mark.reached, until: Absence::OPEN });
                self.absences = mark.absences;
                mark.reached
            }
            None if clock < EARLIEST => EARLIEST,
            None => return,
        };
        let is_jump = (clock - known).abs() > TOLERANCE;
        self.reached = AtomicI64::new(known);
        if clock < known || is_jump {
            self.reached = AtomicI64::new(known.saturating_add(MARK_AGE));
            self.found = Some(known);
        }
        if is_jump {
            self.offset = AtomicI64::new(known);
            *self.lock() = Some(Doubt::new(self.origin, true, clock));
            self.is_doubtful = AtomicBool::new(true);
            self.jumps = AtomicU64::new(1);
        }
    }

    /// When no process ran with this folder, the oldest first: since what others did meanwhile was noted
    /// ([`JudgingTime::absences_are_noted`]). The last one ended when this process began ([`JudgingTime::begins_now`]), by the clock that is trusted
    /// now. Empty where none ran before.
    pub fn absences(&self) -> Vec<Absence> {
        let mut absences = self.absences.clone();
        if let Some(last) = absences.last_mut() {
            last.until = self.began().max(last.from);
        }
        absences
    }

    /// From now on this process follows what others do. Without a call it does from its start.
    pub fn begins_now(&self) {
        let after = self.stopwatch();
        self.begins_after.store(after, Relaxed);
        self.began.store(self.offset.load(Relaxed) + after, Relaxed);
    }

    /// When this process began, by the clock that is trusted now.
    fn began(&self) -> i64 {
        self.now();
        if self.lock().as_ref().is_some_and(|doubt| doubt.at_start) {
            return Absence::OPEN;
        }
        if self.are_absences_noted.load(Relaxed) {
            return self.began.load(Relaxed);
        }
        let (began, used) = (self.offset.load(Relaxed) + self.begins_after.load(Relaxed), self.began.load(Relaxed));
        if (began - used).abs() <= DRIFT {
            return used;
        }
        self.began.store(began, Relaxed);
        began
    }

    /// The next process does not need to know these absences. [`JudgingTime::save`] keeps that.
    pub fn absences_are_noted(&self) {
        // What was noted goes by this: later the calendar may be set, or the machine sleep.
        self.began();
        self.are_absences_noted.store(true, Relaxed);
    }

    /// The time by which points are judged now. Finds a jump of the clock at once.
    #[inline]
    pub fn now(&self) -> Now {
        let (clock, stopwatch) = (self.clock.now(), self.stopwatch());
        let before = self.offset.load(Relaxed) + stopwatch;
        if self.is_doubtful.load(SeqCst) || (clock - before).abs() > TOLERANCE {
            return self.now_in_doubt(clock, stopwatch);
        }
        // Seconds of drift and of NTP: followed, so that they never add up to a jump.
        if clock != before {
            self.offset.store(clock - stopwatch, Relaxed);
        }
        self.reach(clock);
        Now::at(clock)
    }

    #[cold]
    fn now_in_doubt(&self, clock: i64, stopwatch: i64) -> Now {
        let mut doubt = self.lock();
        let before = self.offset.load(Relaxed) + stopwatch;
        if (clock - before).abs() <= TOLERANCE {
            self.end(&mut doubt, clock - stopwatch);
            return Now::at(clock);
        }
        let clock_offset = clock - stopwatch;
        let instant = self.clock.instant();
        let known = doubt.get_or_insert_with(|| {
            self.jumps.fetch_add(1, Relaxed);
            Doubt::new(instant, false, clock_offset)
        });
        if (known.clock_offset - clock_offset).abs() > TOLERANCE {
            // Another jump: what points said of the clock was said of another time.
            self.jumps.fetch_add(1, Relaxed);
            (known.votes, known.verdict) = (Votes::default(), None);
        }
        known.clock_offset = clock_offset;
        self.is_doubtful.store(true, SeqCst);
        // A clock behind the mark of an earlier run says nothing about how long the program did not run.
        let is_open = known.at_start && clock < before;
        let now = Now::between(clock, if is_open { before.max(LATEST) } else { before });
        self.reach(now.low);
        now
    }

    /// What the clock says, for points that come without a time; the time before where points showed that the clock is
    /// wrong.
    pub fn for_points_without_time(&self) -> i64 {
        match self.doubt() {
            Some(ClockDoubt { before, verdict: Some(Candidate::Before), .. }) => before,
            _ => self.clock.now(),
        }
    }

    /// The latest time by which points were placed in stages, or stored points expired: what a coarse slot before this
    /// is made of may be gone, and what is after it is there.
    pub fn reached(&self) -> i64 {
        self.now();
        self.reached.load(Relaxed)
    }

    /// The time by which stored points expire: the clock's, but not beyond the newest stored point. `None` while the clock
    /// is in doubt. `newest` is `None` where the store does not know.
    pub fn expiry(&self, newest: Option<i64>) -> Option<i64> {
        let now = self.now();
        now.is_certain().then(|| newest.map_or(now.low, |newest| newest.min(now.low)))
    }

    /// Whether the clock is in doubt: [`JudgingTime::witness`] has nothing to do otherwise.
    #[inline]
    pub fn is_doubtful(&self) -> bool {
        self.is_doubtful.load(Relaxed)
    }

    /// Takes the time of a point that `sender` sent now as evidence. Once a batch is enough. `is_senders_own` where it is
    /// known that the time is from a clock of the sender, and not from this one.
    pub fn witness(&self, sender: u64, time: i64, is_senders_own: bool) {
        let (clock, stopwatch) = (self.clock.now(), self.stopwatch());
        let mut doubt = self.lock();
        let Some(known) = &mut *doubt else { return };
        let before = self.offset.load(Relaxed) + stopwatch;
        // The clock's own second: perhaps a point without a time, which got it here.
        if !is_senders_own && (time == clock || time == clock - 1) {
            return;
        }
        let candidate = if (time - clock).abs() < AGREES {
            Candidate::Clock
        } else if (time - before).abs() < AGREES || known.at_start && clock < before && before < time {
            Candidate::Before
        } else {
            return;
        };
        match known.votes.count(sender, candidate, self.clock.instant()) {
            Some(Candidate::Clock) => self.end(&mut doubt, clock - stopwatch),
            Some(Candidate::Before) => known.verdict = Some(Candidate::Before),
            None => {}
        }
    }

    /// An operator's word for one of the candidates. Returns false where nothing is in doubt.
    pub fn trust(&self, candidate: Candidate) -> bool {
        let (clock, stopwatch) = (self.clock.now(), self.stopwatch());
        let mut doubt = self.lock();
        let Some(known) = &mut *doubt else { return false };
        known.verdict = Some(candidate);
        if candidate == Candidate::Clock {
            self.end(&mut doubt, clock - stopwatch);
        }
        true
    }

    /// The doubt, if there is one.
    pub fn doubt(&self) -> Option<ClockDoubt> {
        if self.now().is_certain() {
            return None;
        }
        let doubt = self.lock();
        let known = doubt.as_ref()?;
        let instant = self.clock.instant();
        Some(ClockDoubt {
            clock: self.clock.now(),
            before: self.offset.load(Relaxed) + self.stopwatch(),
            at_start: known.at_start,
            seconds: instant.saturating_duration_since(known.since).as_secs(),
            verdict: known.verdict,
            batches: known.votes.batches(),
        })
    }

    /// Jumps found since the start.
    pub fn jumps(&self) -> u64 {
        self.jumps.load(Relaxed)
    }

    /// Where a damaged file of the mark was moved at the start, if there was one.
    pub fn moved_aside(&self) -> Option<&str> {
        self.file.as_ref()?.moved_to.as_deref()
    }

    /// Keeps the mark. Writes and syncs a file: not for threads that must not wait.
    pub fn save(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let reached = self.reached();
        let low = self.now().low;
        let is_as_found = |&found: &i64| low < reached && found.saturating_add(MARK_AGE) == reached;
        let absences = if self.are_absences_noted.load(Relaxed) { Vec::new() } else { self.absences() };
        let reached = self.found.filter(is_as_found).unwrap_or(reached);
        Mark { reached, absences }.write(&*file.disk, &file.path)
    }

    fn stopwatch(&self) -> i64 {
        self.clock.instant().saturating_duration_since(self.origin).as_secs() as i64
    }

    fn reach(&self, low: i64) {
        // A load first: the line stays shared but for once a second.
        if self.reached.load(Relaxed) < low {
            self.reached.fetch_max(low, Relaxed);
        }
    }

    /// Ends the doubt: the clock is trusted again.
    fn end(&self, doubt: &mut Option<Doubt>, clock_offset: i64) {
        *doubt = None;
        self.offset.store(clock_offset, Relaxed);
        let clock = clock_offset + self.stopwatch();
        // A clock that had been far ahead, and was set back: nothing after today is expired.
        if self.reached.load(Relaxed) > clock + TOLERANCE {
            self.reached.store(clock, Relaxed);
        }
        self.is_doubtful.store(false, SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Doubt>> {
        self.doubt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Doubt {
    fn new(since: Instant, at_start: bool, clock_offset: i64) -> Doubt {
        Doubt { since, at_start, clock_offset, votes: Votes::default(), verdict: None }
    }
}

/// When a segment of a journal was last written to, Unix seconds. No start has written to one before it judges the clock.
fn last_written(host: &Host, journal: &Path) -> Option<i64> {
    let entries = host.disk.read_dir(journal).ok()?;
    let segments = entries.iter().filter(|entry| entry.path.extension().is_some_and(|kind| kind == "journal"));
    segments.filter_map(|segment| segment.modified).max()
}

/// Whether a file is a mark of how far the time had come, as [`JudgingTime::open`] reads it.
pub fn is_mark(disk: &dyn Disk, path: &Path) -> io::Result<bool> {
    Ok(matches!(Mark::read(disk, path)?, Found::Mark(_)))
}

/// The version of such a file that a newer program wrote, and the newest that this program reads. `None` for any other.
pub fn newer_mark(disk: &dyn Disk, path: &Path) -> io::Result<Option<(u32, u32)>> {
    match Mark::read(disk, path)? {
        Found::Newer(version) => Ok(Some((version, mark::VERSION))),
        _ => Ok(None),
    }
}

/// A clock that leaves out jumps: while the clock is in doubt, the time before the jump goes on. For what is sent to
/// others with a time of its own.
#[derive(Debug, Clone)]
pub struct SteadyClock(pub Arc<JudgingTime>);

impl Clock for SteadyClock {
    fn since_epoch(&self) -> Duration {
        match self.0.doubt() {
            Some(doubt) => Duration::from_secs(doubt.before.max(0) as u64),
            None => self.0.clock.since_epoch(),
        }
    }

    fn instant(&self) -> Instant {
        self.0.clock.instant()
    }
}

#[cfg(test)]
mod tests;
