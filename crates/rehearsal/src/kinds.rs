//! Scenarios with every kind of step. A seed has some of the kinds, few metrics, and small batches.

use std::time::Duration;

use host::{Call, Fault, FaultPlan, Random as _, SeededRandom};

use crate::{
    BadPages, FileKind, Planned, Scenario, Sent, Step,
    machine::{LISTED, LISTS, LONG, OF_STEPS, PLACES_OF_LISTS, SHORT, with_steps},
};

/// `EMFILE`: the process has no file descriptor left.
const NO_DESCRIPTORS: Fault = Fault::Error(24);

/// Bytes of points in memory after some starts: a replay leaves segments in the journal.
pub(crate) const LITTLE_MEMORY: u64 = 4 << 10;

/// Jumps of the calendar in seconds: NTP's, an hour, a day, ten years.
const JUMPS: [i64; 6] = [20, 500, 900, 3600, 86_400, 315_000_000];

/// Files whose pages cannot be read for a time: those of the journal more often.
const FILES: [FileKind; 11] = [
    FileKind::Rows,
    FileKind::Rows,
    FileKind::Names,
    FileKind::Events,
    FileKind::Journal,
    FileKind::Journal,
    FileKind::Journal,
    FileKind::Manifest,
    FileKind::Spec,
    FileKind::Clock,
    FileKind::Any,
];

/// Kinds of steps that a seed has or not.
#[derive(Debug, Clone, Copy)]
struct Kinds {
    faults: bool,
    little_memory: bool,
    deletions: bool,
    /// Not with jumps: changes of rules are in the order of their times.
    rules: bool,
    lists: bool,
    jumps: bool,
    /// Not with jumps: a machine that was off for an hour, and whose calendar is set back by an hour, looks as if it had
    /// not been off.
    pauses: bool,
    /// Not with jumps either: the mark of a backup is as old as the backup.
    backups: bool,
    /// Nor with jumps: a start that cannot read the mark goes by the calendar.
    bad_starts: bool,
    /// Not with lists: those judge a metric that cannot be read as a new one. With jumps or backups in seeds of their own.
    bad_pages: bool,
    /// Files of rows go from their places and come back.
    rows_away: bool,
}

impl Kinds {
    fn of(random: &SeededRandom) -> Kinds {
        let half = || random.below(2) == 0;
        let jumps = half();
        Kinds {
            faults: half(),
            little_memory: half(),
            deletions: half(),
            rules: !jumps && half(),
            lists: half(),
            jumps,
            pauses: !jumps && half(),
            backups: !jumps && half(),
            bad_starts: !jumps && half(),
            bad_pages: false,
            rows_away: false,
        }
    }
}

/// What makes the steps of a seed.
struct Maker {
    random: SeededRandom,
    kinds: Kinds,
    names: Vec<String>,
    rules: usize,
    /// Whether pages cannot be read.
    is_bad: bool,
    /// By how much the steps so far have set the calendar wrong.
    ahead: i64,
    /// Where rules have several first steps, the group of retentions.
    group: Option<usize>,
    /// Whether these have lists of methods as well.
    has_methods: bool,
    /// Whether rules were the last of these steps: time passes then before the next ones, below [`crate::WITHIN_A_SECOND`].
    is_changed: bool,
    /// Whether rules may change several times within a second.
    is_hasty: bool,
}

/// Few metrics with short retentions, and every kind of step.
pub(crate) fn whole(seed: u64, count: usize) -> Scenario {
    let (random, kinds) = whole_kinds(seed);
    short(seed, count, random, kinds, SHORT)
}

/// The same, where rules have lists of methods; they change unless the calendar jumps.
pub(crate) fn lists(seed: u64, count: usize) -> Scenario {
    let (random, kinds) = whole_kinds(seed);
    short(seed, count, random, Kinds { rules: !kinds.jumps, ..kinds }, SHORT | LISTS)
}

fn whole_kinds(seed: u64) -> (SeededRandom, Kinds) {
    let random = SeededRandom::new(seed);
    let mut kinds = Kinds::of(&random);
    // Of its own numbers: the other kinds of a seed stay.
    kinds.bad_pages = !kinds.jumps && SeededRandom::new(!seed).below(2) == 0;
    if kinds.bad_pages {
        (kinds.backups, kinds.lists) = (false, false);
    }
    (random, kinds)
}

/// The same, with pages that cannot be read, and jumps of the calendar or backups.
pub(crate) fn bad_pages(seed: u64, count: usize, backups: bool) -> Scenario {
    let random = SeededRandom::new(seed);
    let kinds = Kinds { bad_pages: true, jumps: !backups, backups, lists: false, ..Kinds::of(&random) };
    let kinds = match backups {
        true => kinds,
        false => Kinds { rules: false, pauses: false, bad_starts: false, ..kinds },
    };
    short(seed, count, random, kinds, SHORT)
}

/// The same, where files of rows go from their places and come back. Half of the seeds have lists of methods.
pub(crate) fn rows_away(seed: u64, count: usize) -> Scenario {
    let random = SeededRandom::new(seed);
    let kinds = Kinds {
        rows_away: true,
        jumps: false,
        backups: false,
        lists: false,
        bad_starts: false,
        rules: false,
        ..Kinds::of(&random)
    };
    short(seed, count, random, kinds, if seed.is_multiple_of(2) { SHORT } else { SHORT | LISTS })
}

/// Metrics whose policies have several first steps. No point expires, and none is sent to a coarse stage. `is_hasty` says that
/// rules may change several times within a second, `has_methods` that they have lists of methods.
pub(crate) fn first_steps(seed: u64, count: usize, is_hasty: bool, has_methods: bool) -> Scenario {
    let random = SeededRandom::new(seed);
    let kinds = Kinds {
        rules: true,
        lists: false,
        jumps: false,
        pauses: false,
        bad_starts: false,
        bad_pages: false,
        ..Kinds::of(&random)
    };
    let method = |_| metric::Aggregation::ALL[random.index(metric::Aggregation::ALL.len())];
    let names = (0..1 + random.below(4)).map(method).map(|method| format!("{}.a", method.name())).collect();
    let group = random.index(OF_STEPS.len());
    let mut maker = Maker { group: Some(group), is_hasty, has_methods, ..Maker::new(random, kinds, names) };
    let rules = maker.with_steps(group);
    maker.rules = rules;
    let steps = (0..count).map(|place| maker.planned(place)).collect();
    Scenario { seed, sync: ingest::Sync::Always, is_whole: true, rules, steps }
}

fn short(seed: u64, count: usize, random: SeededRandom, kinds: Kinds, rules: usize) -> Scenario {
    let names = (0..1 + random.below(4)).map(|_| name(&random)).collect();
    let mut maker = Maker { rules, ..Maker::new(random, kinds, names) };
    let sync = maker.sync();
    let steps = (0..count).map(|place| maker.planned(place)).collect();
    Scenario { seed, sync, is_whole: true, rules, steps }
}

/// A metric or two with slots of a day, which get hours of points.
pub(crate) fn long_slots(seed: u64, count: usize) -> Scenario {
    let random = SeededRandom::new(seed);
    let kinds = Kinds { little_memory: false, bad_starts: false, jumps: false, pauses: false, ..Kinds::of(&random) };
    let names: Vec<String> = (0..1 + random.below(2)).map(|_| name(&random)).collect();
    let mut maker = Maker { rules: LONG, ..Maker::new(random, kinds, names.clone()) };
    let sync = maker.sync();
    let mut steps: Vec<Planned> = (0..count).map(|place| maker.planned(place)).collect();
    for planned in steps.iter_mut().step_by(12) {
        // From few to more than such a number can count, of one day or two.
        let (newest, seconds) = (maker.random.below(3600) as i64, 30_000 + maker.random.below(9000) as i64);
        let name = names[maker.random.index(names.len())].clone();
        *planned = Planned { step: Step::Bulk { name, newest, seconds }, plan: None, cut: None, memory: None };
    }
    Scenario { seed, sync, is_whole: true, rules: LONG, steps }
}

fn name(random: &SeededRandom) -> String {
    let method = metric::Aggregation::ALL[random.index(metric::Aggregation::ALL.len())];
    format!("{}.{}", method.name(), ["a", "strict", "steady"][random.index(3)])
}

impl Maker {
    fn new(random: SeededRandom, kinds: Kinds, names: Vec<String>) -> Maker {
        let (is_bad, ahead, is_changed, is_hasty) = (false, 0, false, false);
        let (group, has_methods) = (None, false);
        Maker { random, kinds, names, rules: 0, is_bad, ahead, group, has_methods, is_changed, is_hasty }
    }

    /// Rules with a retention of a group of first steps.
    fn with_steps(&self, group: usize) -> usize {
        let rules = with_steps(group, self.random.index(OF_STEPS[group].len()));
        if self.has_methods { rules | LISTS | self.random.index(PLACES_OF_LISTS) } else { rules }
    }

    fn sync(&self) -> ingest::Sync {
        if self.random.below(2) == 0 { ingest::Sync::Every(Duration::from_secs(1)) } else { ingest::Sync::Always }
    }

    /// A step, and what fails meanwhile.
    fn planned(&mut self, place: usize) -> Planned {
        let step = self.step(place);
        let random = &self.random;
        let may_fail = self.kinds.faults && !step.kills() && !matches!(step, Step::Check | Step::Heal { .. });
        let plan = (may_fail && random.below(6) == 0).then(|| self.fault(&step));
        let cut = (random.below(2) == 0).then(|| random.bits());
        let memory = (self.kinds.little_memory && step.starts())
            .then(|| if random.below(3) == 0 { LITTLE_MEMORY } else { 1 << 30 });
        Planned { step, plan, cut, memory }
    }

    fn step(&mut self, place: usize) -> Step {
        let random = &self.random;
        match random.below(48) {
            // So often that most are not the only ones of their second.
            10..18 if self.is_hasty => self.rules(),
            39..43 if self.kinds.rows_away => self.rows_away(),
            18..20 if self.kinds.bad_pages => Step::Send(vec![self.many()]),
            20..22 if self.is_bad => Step::Kill,
            22 if self.is_bad => Step::Restart,
            44..48 if self.is_bad => self.heal(),
            46..48 if self.kinds.bad_pages => self.bad_pages(),
            24..28 => Step::Flush,
            28..31 => Step::Pass(Duration::from_millis(random.below(20_000))),
            31 => Step::Pass(Duration::from_secs(random.below(400))),
            32 => Step::Restart,
            33 => Step::Kill,
            34 => Step::PowerCut(random.bits()),
            35 => Step::Event(format!("event {place}")),
            36 => Step::Expire,
            37 if self.kinds.rules || self.kinds.lists => self.rules(),
            // Of these alone, more often.
            39 | 40 if self.group.is_some() => self.rules(),
            38 if self.kinds.deletions => Step::Delete(vec![self.name()]),
            39 | 40 if self.kinds.jumps && 0 < place => self.jump(),
            41 if self.kinds.pauses => Step::Off(Duration::from_secs(random.below(1500))),
            42 if self.kinds.backups => Step::Backup,
            43 if self.kinds.backups && random.below(2) == 0 => Step::Restore,
            44 if self.kinds.bad_starts => Step::StartWithFaults(self.failing_reads(), self.connection()),
            45 => Step::Check,
            _ if self.group.is_some() => Step::Send(vec![self.long_connection()]),
            _ => Step::Send((0..1 + random.below(3) / 2).map(|_| self.connection()).collect()),
        }
    }

    /// Pages that cannot be read from now on.
    fn bad_pages(&mut self) -> Step {
        self.is_bad = true;
        let random = &self.random;
        let part = |_| BadPages {
            kind: self.file_kind(),
            file: random.bits(),
            // Files are short, so that most have one page: of some only a sector is bad.
            page: [512, 4096][random.index(2)],
            first: random.bits(),
            pages: 1 + random.below(3),
            times: [6, 40, u64::MAX, u64::MAX][random.index(4)],
        };
        Step::BadPages((0..1 + random.below(4)).map(part).collect())
    }

    /// A file of rows goes or comes back, or pages of one cannot be read from now on.
    fn rows_away(&mut self) -> Step {
        let (was_bad, random) = (std::mem::replace(&mut self.is_bad, true), &self.random);
        match random.below(6) {
            0..2 if was_bad => Step::ReturnRows(random.bits()),
            2 => match self.bad_pages() {
                Step::BadPages(parts) => {
                    let of_rows = |part: BadPages| BadPages { kind: FileKind::Rows, ..part };
                    Step::BadPages(parts.into_iter().map(of_rows).collect())
                }
                other => other,
            },
            _ => Step::TakeRows(random.bits()),
        }
    }

    fn file_kind(&self) -> FileKind {
        let random = &self.random;
        match FILES[random.index(FILES.len())] {
            // A start that cannot read the mark goes by the calendar.
            FileKind::Clock | FileKind::Any if self.kinds.jumps => FileKind::Journal,
            FileKind::Any if self.kinds.backups => FileKind::Backup,
            kind => kind,
        }
    }

    /// The disk is right again.
    fn heal(&mut self) -> Step {
        self.is_bad = false;
        let after = Duration::from_secs([0, 1, 15, 70][self.random.index(4)]);
        Step::Heal { after, is_killed: self.random.below(2) == 0 }
    }

    /// So many points that a segment of the journal has pages.
    fn many(&self) -> Vec<Sent> {
        let random = &self.random;
        let newest = random.below(60) as i64;
        let seconds = (newest..newest + 60 + random.below(60) as i64).rev();
        let points = seconds.flat_map(|age| self.names.iter().map(move |name| (name, age)));
        points
            .map(|(name, age)| Sent { name: name.clone(), age, value: random.below(2001) as f64 / 8.0 - 125.0 })
            .collect()
    }

    fn name(&self) -> String {
        self.names[self.random.index(self.names.len())].clone()
    }

    fn rules(&mut self) -> Step {
        let random = &self.random;
        if let Some(group) = self.group {
            self.is_changed = !self.is_changed;
            if !self.is_changed && !self.is_hasty {
                return Step::Pass(Duration::from_secs(2));
            }
            return Step::Rules(self.with_steps(group));
        }
        if self.kinds.rules {
            self.rules = self.rules / 4 * 4 + random.index(3);
        }
        if self.kinds.lists && random.below(2) == 0 {
            self.rules ^= LISTED;
        }
        Step::Rules(self.rules)
    }

    /// The calendar is set wrong, or right again; or an operator trusts it.
    fn jump(&mut self) -> Step {
        let random = &self.random;
        if self.ahead != 0 && random.below(4) == 0 {
            self.ahead = 0;
            return Step::Trust;
        }
        let seconds = match self.ahead {
            0 => JUMPS[random.index(JUMPS.len())] * if random.below(2) == 0 { 1 } else { -1 },
            ahead => -ahead,
        };
        self.ahead += seconds;
        if random.below(2) == 0 { Step::Jump(seconds) } else { Step::JumpWhileOff(seconds) }
    }

    /// Points of some metrics: new ones, late ones, and some that only coarse stages hold.
    fn connection(&self) -> Vec<Sent> {
        let random = &self.random;
        let newest = match random.below(8) {
            0 => 170 + random.below(150) as i64,
            1 | 2 => random.below(170) as i64,
            _ => random.below(4) as i64,
        };
        let mut points = Vec::new();
        let seconds = 1 + random.below(4) as i64;
        for name in &self.names {
            if random.below(3) == 0 {
                continue;
            }
            let point = |age| Sent { name: name.clone(), age, value: random.below(2001) as f64 / 8.0 - 125.0 };
            points.extend((newest..newest + seconds).rev().map(point));
        }
        points
    }

    /// Points of some metrics, in steps of one to three seconds: some of a few slots, some of minutes.
    fn long_connection(&self) -> Vec<Sent> {
        let random = &self.random;
        let newest = if random.below(2) == 0 { 0 } else { random.below(600) as i64 };
        let (step, count) = (1 + random.below(3) as i64, 1 + random.below([4, 60][random.index(2)]) as i64);
        let mut points = Vec::new();
        for name in &self.names {
            if random.below(3) == 0 {
                continue;
            }
            let point = |age| Sent { name: name.clone(), age, value: random.below(2001) as f64 / 8.0 - 125.0 };
            points.extend((0..count).rev().map(|place| point(newest + place * step)));
        }
        points
    }

    /// A fault in this step.
    fn fault(&self, step: &Step) -> FaultPlan {
        let random = &self.random;
        let fault = [Fault::EIO, Fault::ENOSPC, Fault::EINTR, Fault::ShortWrite, Fault::Die][random.index(5)];
        if matches!(step, Step::Flush | Step::Expire | Step::Send(_)) && random.below(3) == 0 {
            return FaultPlan { kinds: vec![Call::Read], ..FaultPlan::once(random.below(8), Fault::EIO) };
        }
        // A batch is one write; a backup has a hundred calls.
        let calls = match step {
            Step::Send(_) => 3,
            Step::Backup => 120,
            _ => 30,
        };
        FaultPlan::once(random.below(calls), fault)
    }

    /// Reads of a start that fail for a while, or all of them from one on.
    fn failing_reads(&self) -> FaultPlan {
        let random = &self.random;
        let kinds = [vec![Call::Read], vec![Call::Open], vec![Call::ReadDir], vec![Call::Read, Call::Open]];
        let times = [1, 3, 4, 10, u64::MAX][random.index(5)];
        let fault = if random.below(2) == 0 { Fault::EIO } else { NO_DESCRIPTORS };
        FaultPlan { kinds: kinds[random.index(4)].clone(), at: random.below(24), times, fault }
    }
}
