//! The journal alone: its bytes, and what stays of them when calls of the disk fail.

mod lost;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Instant,
};

use host::{Call, Disk as _, FailingDisk, Host, Now, Random as _, SeededRandom, SimulatedDisk, SystemDisk};
use metric::{MetricId, Policy};
use store::{Identity, Incarnation, JournalMark};

use super::{
    Accepted, Folder, Journal, JournalOptions, Record, Replayed, ResolvedPoint, SegmentHeader, WriterIdentity,
    damage::JournalDamage,
    newest::{Newest, NewestFile},
    record::{HEADER, POINT, push_points, segment_start},
    records, replay,
};

fn points(n: u32) -> Vec<ResolvedPoint> {
    (0..n).map(|i| ResolvedPoint { metric: MetricId(i), time: 1000 + i, value: f64::from(i) }).collect()
}

fn identity() -> Identity {
    Identity { store: 7, chain: vec![Incarnation { id: 3, first_id: MetricId(0) }] }
}

fn open_on(host: Host, dir: &Path) -> io::Result<Journal> {
    let file = NewestFile::new(host.disk.clone(), None);
    open_behind(host, dir, (file, None))
}

fn open_behind(host: Host, dir: &Path, newest: (NewestFile, Option<Newest>)) -> io::Result<Journal> {
    let identity =
        WriterIdentity { identity: identity(), next_id: Box::new(|| MetricId(9)), put_opening: Box::new(|| Ok(())) };
    let damage = JournalDamage::in_folder(&host, if dir.ends_with("journal") { dir.parent().unwrap() } else { dir });
    let options = JournalOptions {
        identity,
        memory_limit: 1 << 30,
        mark: None,
        size: Arc::default(),
        damage,
        newest,
        read: (0..1000).map(|number| (number, u64::MAX)).collect(),
    };
    let journal = Journal::open(host, dir, options)?;
    journal.name_policy(0, &Policy::default());
    Ok(journal)
}

fn open(dir: &Path) -> Journal {
    open_on(Host::system(), dir).unwrap()
}

/// The machine with a disk whose calls fail as `fault` says.
fn failing(fault: impl Fn(Call, &Path) -> bool + Send + Sync + 'static) -> Host {
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path| {
        fault(call, path).then(|| io::Error::other("injected"))
    });
    Host { disk: Arc::new(disk), ..Host::system() }
}

fn append(journal: &Journal, n: u32, at: i64) -> io::Result<()> {
    journal.append(&[Accepted { points: &points(n), at: Now::at(at) }]).map(drop)
}

fn folder(dir: &Path) -> Folder {
    Folder::new(Arc::new(SystemDisk), dir)
}

/// The bytes of the only segment.
fn bytes(dir: &Path) -> Vec<u8> {
    let segments = folder(dir).segments().unwrap();
    assert_eq!(segments.len(), 1);
    folder(dir).read(&segments[0]).unwrap()
}

fn journal_of(batches: &[u32]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    for &n in batches {
        journal.name_metric(MetricId(n), 0, "a.b", 7);
        append(&journal, n, 5).unwrap();
    }
    journal.sync().unwrap();
    bytes(dir.path())
}

fn read(bytes: &[u8]) -> (Vec<String>, Replayed) {
    let mut seen = Vec::new();
    let replayed = replay(bytes, |record| match record {
        Record::Points { now, points } => seen.push(format!("{} points at {}", points.count(), now.low())),
        Record::Metrics { metrics, .. } => seen.push(format!("{metrics:?}")),
        Record::Policy { id, policy } => seen.push(format!("policy {id} {}", policy.retention)),
        Record::Segment { .. } => {}
    });
    (seen, replayed)
}

/// The records of all segments, as a replay reads them.
fn read_all(dir: &Path) -> Vec<String> {
    let folder = folder(dir);
    let (planned, _) = folder.plan(None).unwrap();
    planned.iter().flat_map(|one| read(one.part(&folder.read(&one.segment).unwrap())).0).collect()
}

#[test]
fn an_append_is_read_back_after_what_it_names() {
    let expected = [
        "policy 0 10080*60s",
        "[(MetricId(2), 0, \"a.b\")]",
        "2 points at 5",
        "[(MetricId(3), 0, \"a.b\")]",
        "3 points at 5",
    ];
    // Two more: the header, twice.
    let replayed = Replayed { records: 7, damaged_bytes: 0 };
    assert_eq!(read(&journal_of(&[2, 3])), (expected.map(String::from).to_vec(), replayed));
}

#[test]
fn the_schema_page_shows_the_bytes_that_are_written() {
    let page = include_str!("../../../../schema/journal.md");
    let shown = |n: usize| -> String {
        page.split("```hex").nth(n).unwrap().split("```").next().unwrap().split_whitespace().collect()
    };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let header = SegmentHeader {
        identity: identity(),
        segment: 5,
        next_id: MetricId(9),
        previous: Some(4),
        previous_bytes: 1234,
        previous_whole: Some(1200),
        previous_length: Some(1300),
        repeats: None,
    };
    assert_eq!(hex(&segment_start(&header)), shown(1));
    let mut record = Vec::new();
    push_points(
        &mut record,
        Now::at(1_700_000_001),
        &[ResolvedPoint { metric: MetricId(7), time: 1_700_000_000, value: 1.5 }],
    );
    assert_eq!(hex(&record), shown(2));
}

#[test]
fn names_are_written_again_when_the_record_behind_them_failed() {
    // Writes: the segment's header, the group.
    let writes = AtomicU32::new(0);
    let host = failing(move |call, _| call == Call::Write && writes.fetch_add(1, Relaxed) == 1);
    let dir = tempfile::tempdir().unwrap();
    let journal = open_on(host, dir.path()).unwrap();
    journal.name_metric(MetricId(7), 0, "a.b", 7);
    assert!(append(&journal, 1, 5).is_err());
    assert!(journal.is_failing() && read(&bytes(dir.path())).0.is_empty());
    append(&journal, 1, 5).unwrap();
    assert!(!journal.is_failing());
    assert_eq!(read(&bytes(dir.path())).0, ["policy 0 10080*60s", "[(MetricId(7), 0, \"a.b\")]", "1 points at 5"]);
}

#[test]
fn any_number_of_metrics_may_be_named_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    let name = "n".repeat(1000);
    (0..70_000).for_each(|metric| journal.name_metric(MetricId(metric), 0, &name, 7));
    journal.exclusive().append_names().unwrap();
    let mut named = 0;
    let replayed = replay(&bytes(dir.path()), |record| {
        if let Record::Metrics { metrics, .. } = record {
            assert!(metrics.iter().map(|&(metric, ..)| metric.0).eq(named..named + metrics.len() as u32));
            named += metrics.len() as u32;
        }
    });
    assert_eq!((named, replayed.damaged_bytes), (70_000, 0));
}

#[test]
fn a_torn_tail_costs_only_the_last_record_and_does_not_count_as_damage() {
    let bytes = journal_of(&[2, 3]);
    for cut in 1..(HEADER + 8 + 3 * POINT) {
        let cut_off = &bytes[..bytes.len() - cut];
        let (seen, replayed) = read(cut_off);
        assert_eq!(seen.len(), 4, "cut by {cut}");
        assert_eq!(replayed.damaged_bytes as usize, HEADER + 8 + 3 * POINT - cut);
        let mut records = records(cut_off);
        records.by_ref().for_each(drop);
        assert_eq!(records.torn_tail(), records.damage.last().cloned(), "cut by {cut}");
    }
}

#[test]
fn damage_in_the_middle_or_the_last_record_costs_only_its_own_record() {
    for (at, left) in [(700, "3 points at 5"), (usize::MAX, "50 points at 5")] {
        let mut bytes = journal_of(&[50, 3]);
        let at = at.min(bytes.len() - 3);
        bytes[at] ^= 0x10;
        let (seen, replayed) = read(&bytes);
        assert_eq!(seen.len(), 4);
        assert!(seen.iter().any(|seen| seen == left), "{seen:?}");
        assert!([50, 3].map(|n| HEADER + 8 + n * POINT).contains(&(replayed.damaged_bytes as usize)));
        let mut records = records(&bytes);
        records.by_ref().for_each(drop);
        assert_eq!((records.damage.len(), records.torn_tail()), (1, None));
    }
}

#[test]
fn a_flipped_bit_of_the_header_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    append(&journal, 1, 5).unwrap();
    let whole = bytes(dir.path());
    let header = folder(dir.path()).plan(None).unwrap().0.remove(0).header;
    assert!(header.is_some());
    let start = segment_start(header.as_ref().unwrap()).len();
    let path = folder(dir.path()).segments().unwrap().remove(0).path;
    for bit in (0..start * 8).step_by(13) {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bytes).unwrap();
        let planned = folder(dir.path()).plan(None).unwrap().0.remove(0);
        assert_eq!((&planned.header, read(&bytes).0.len()), (&header, 2), "bit {bit}");
    }
}

#[test]
fn garbage_and_zeroes_are_not_records() {
    assert_eq!(read(&[0; 1000]).1, Replayed { records: 0, damaged_bytes: 1000 });
    assert_eq!(read(b"x").1, Replayed { records: 0, damaged_bytes: 1 });
    assert_eq!(read(b"").1, Replayed::default());
}

#[test]
fn the_search_behind_damage_takes_no_longer_than_a_few_times_reading_the_segment() {
    // Each eighteenth byte begins what could be a record up to nearly the end.
    let mut bytes = vec![0; 4 << 20];
    let length = bytes.len();
    for at in (0..length - 32).step_by(18) {
        bytes[at..at + 4].copy_from_slice(&((length - at - 9) as u32).to_le_bytes());
        bytes[at + 8] = 1;
    }
    let began = Instant::now();
    assert_eq!(read(&bytes).1.damaged_bytes as usize, length);
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
}

#[test]
fn a_power_cut_brings_no_trimmed_segment_back() {
    let disk = SimulatedDisk::new();
    disk.create_dir_all(Path::new("/data")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    let dir = Path::new("/data/journal");
    let journal = Arc::new(open_on(Host { disk: Arc::new(disk.clone()), ..Host::system() }, dir).unwrap());
    for _ in 0..3 {
        append(&journal, 1, 5).unwrap();
        journal.sync().unwrap();
        journal.exclusive().begin_segment().unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(journal.trim(4)).unwrap();
    for seed in 0..64 {
        let folder = Folder::new(Arc::new(disk.crash(&SeededRandom::new(seed))), dir);
        let left: Vec<u64> = folder.segments().unwrap().iter().map(|segment| segment.number).collect();
        assert_eq!(left, [4], "seed {seed}");
    }
}

#[test]
fn a_segment_says_how_much_of_the_one_before_is_on_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let is_failing = fails.clone();
    let journal = open_on(
        failing(move |call, path| {
            let is_segment = path.extension().is_some_and(|end| end == "journal");
            call == Call::Sync && is_segment && is_failing.swap(false, Relaxed)
        }),
        dir.path(),
    );
    let journal = journal.unwrap();
    append(&journal, 1, 5).unwrap();
    journal.sync().unwrap();
    let synced = journal.current().1;
    append(&journal, 1, 6).unwrap();
    // The fsync of what came last has not begun, and then it fails.
    journal.exclusive().begin_segment().unwrap();
    append(&journal, 1, 7).unwrap();
    fails.store(true, Relaxed);
    journal.sync().unwrap();
    let third = journal.current().1;
    journal.exclusive().begin_segment().unwrap();
    journal.exclusive().close_segment().unwrap();
    let noted: Vec<_> = folder(dir.path())
        .plan(None)
        .unwrap()
        .0
        .into_iter()
        .map(|planned| planned.header.map(|header| (header.segment, header.previous, header.previous_bytes)))
        .collect();
    // The third repeats what the first and second may have lost. One without a record is passed over.
    let expected = [(1, 0, 0), (2, 1, synced), (3, 2, 0), (4, 3, third), (5, 3, third)];
    assert_eq!(noted, expected.map(|(number, previous, bytes)| Some((number, Some(previous), bytes))));
    assert!(0 < synced && 0 < third);
}

#[test]
fn a_new_segment_names_its_policies_again_and_old_ones_are_trimmed() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Arc::new(open(dir.path()));
    append(&journal, 1, 5).unwrap();
    let second = journal.exclusive().begin_segment().unwrap();
    append(&journal, 1, 6).unwrap();
    let on_disk: u64 = folder(dir.path()).segments().unwrap().iter().map(|segment| segment.bytes).sum();
    assert_eq!(journal.bytes(), on_disk);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(journal.trim(second)).unwrap();
    assert_eq!(read(&bytes(dir.path())).0, ["policy 0 10080*60s", "1 points at 6"]);
    assert_eq!(journal.bytes(), bytes(dir.path()).len() as u64);
    assert_eq!(journal.exclusive().begin_segment().unwrap(), second + 1);
    assert_eq!(journal.exclusive().begin_segment().unwrap(), second + 1, "an empty segment is not closed");
}

#[test]
fn nothing_is_appended_behind_a_torn_record_that_cannot_be_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let is_broken = Arc::new(AtomicBool::new(false));
    let fails = is_broken.clone();
    let host = failing(move |call, path| {
        let fails = fails.load(Relaxed) && (call == Call::Write || call == Call::SetLen);
        if fails && call == Call::Write && path.exists() {
            // The disk takes a part.
            use std::io::Write as _;
            std::fs::OpenOptions::new().append(true).open(path).unwrap().write_all(&[9; 20]).unwrap();
        }
        fails
    });
    let journal = open_on(host, dir.path()).unwrap();
    append(&journal, 1, 5).unwrap();
    is_broken.store(true, Relaxed);
    assert!(append(&journal, 2, 6).is_err());
    assert!(append(&journal, 2, 6).is_err());
    is_broken.store(false, Relaxed);
    append(&journal, 2, 6).unwrap();
    append(&journal, 3, 7).unwrap();
    let read = read_all(dir.path());
    let read: Vec<&str> = read.iter().map(String::as_str).filter(|read| read.contains("points")).collect();
    assert_eq!(read, ["1 points at 5", "2 points at 6", "3 points at 7"]);
}

#[test]
fn a_segment_whose_beginning_fails_and_cannot_be_removed_is_not_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let is_broken = Arc::new(AtomicBool::new(false));
    let fails = is_broken.clone();
    let host = failing(move |call, _| fails.load(Relaxed) && matches!(call, Call::Write | Call::Remove));
    let journal = open_on(host, dir.path()).unwrap();
    append(&journal, 1, 5).unwrap();
    is_broken.store(true, Relaxed);
    for _ in 0..3 {
        assert!(journal.exclusive().begin_segment().is_err());
    }
    is_broken.store(false, Relaxed);
    assert_eq!(journal.exclusive().begin_segment().unwrap(), 5);
    append(&journal, 2, 6).unwrap();
    drop(journal);
    let journal = open(dir.path());
    let numbers: Vec<u64> = folder(dir.path()).segments().unwrap().iter().map(|segment| segment.number).collect();
    assert_eq!(numbers, [1, 5, 6], "empty ones are removed");
    drop(journal);
}

#[test]
fn records_of_a_failed_fsync_are_on_the_disk_in_another_segment() {
    let dir = tempfile::tempdir().unwrap();
    let fails = Arc::new(AtomicU32::new(0));
    let left = fails.clone();
    let host = failing(move |call, path| {
        call == Call::Sync
            && path.extension().is_some()
            && left.try_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    });
    let journal = open_on(host, dir.path()).unwrap();
    append(&journal, 1, 5).unwrap();
    journal.sync().unwrap();
    let synced = bytes(dir.path()).len();
    append(&journal, 2, 6).unwrap();
    journal.exclusive().begin_segment().unwrap();
    append(&journal, 3, 7).unwrap();
    // The fsync, and that of the segment that repeats.
    fails.store(2, Relaxed);
    assert!(journal.sync().is_err());
    assert!(journal.is_failing());
    fails.store(1, Relaxed);
    assert!(append(&journal, 4, 8).is_err(), "nothing is accepted while it cannot be promised");
    journal.sync().unwrap();
    assert!(!journal.is_failing());
    append(&journal, 4, 8).unwrap();
    let expected = ["1 points at 5", "2 points at 6", "3 points at 7", "4 points at 8"];
    let points =
        || -> Vec<String> { read_all(dir.path()).into_iter().filter(|read| read.contains("points")).collect() };
    assert_eq!(points(), expected, "each is read once");
    // What the failed fsync did not cover is lost.
    let segments = folder(dir.path()).segments().unwrap();
    let cut =
        |path: &PathBuf, to: usize| std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(to as u64);
    cut(&segments[0].path, synced).unwrap();
    cut(&segments[1].path, 0).unwrap();
    assert_eq!(points(), expected);
}

/// What a disk under test does.
#[derive(Default)]
struct Faults {
    random: Option<SeededRandom>,
    /// Length of each file that an fsync covers.
    synced: BTreeMap<PathBuf, u64>,
    /// Whether the last failed fsync lost pages and nothing has repaired that.
    lost: bool,
}

impl Faults {
    fn fails(&mut self, call: Call, path: &Path) -> bool {
        let Some(random) = &self.random else { return false };
        let fails = random.below(12) == 0;
        match call {
            Call::Write if fails && path.exists() && random.below(2) == 0 => {
                use std::io::Write as _;
                let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
                file.write_all(&vec![1; random.below(60) as usize]).unwrap();
            }
            Call::Sync if path.is_file() => {
                let length = path.metadata().unwrap().len();
                let synced = self.synced.entry(path.to_owned()).or_default();
                if !fails {
                    *synced = length;
                } else if random.below(2) == 0 {
                    // The pages are dropped.
                    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
                    file.set_len(*synced).unwrap();
                    file.set_len(length).unwrap();
                    self.lost = true;
                }
            }
            _ => {}
        }
        fails
    }

    /// The machine stops: every file keeps what was synced, and a part of the rest.
    fn power_cut(&mut self, dir: &Path) {
        let random = self.random.as_ref().expect("it is given first");
        for segment in folder(dir).segments().unwrap() {
            let synced = self.synced.get(&segment.path).copied().unwrap_or(0).min(segment.bytes);
            let length = synced + random.below(segment.bytes - synced + 1);
            std::fs::OpenOptions::new().write(true).open(&segment.path).unwrap().set_len(length).unwrap();
        }
    }
}

/// Random appends, syncs, segments and deaths, with calls that fail, against what was acknowledged.
fn survives(seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let random = SeededRandom::new(seed);
    let faults = Arc::new(Mutex::new(Faults { random: Some(SeededRandom::new(seed ^ 0xfa17)), ..Faults::default() }));
    let host = {
        let faults = faults.clone();
        failing(move |call, path| faults.lock().unwrap().fails(call, path))
    };
    // The number of the last record that was acknowledged, and of the last that is safe from a power cut.
    let (mut sent, mut acknowledged, mut safe) = (0i64, 0i64, 0i64);
    let mut gone = BTreeSet::new();
    for life in 0..6 {
        let Ok(journal) = open_on(host.clone(), dir.path()) else { continue };
        faults.lock().unwrap().lost = false;
        for _ in 0..60 {
            match random.below(10) {
                0..6 => {
                    // As a sender does: the same record, until it is taken.
                    if acknowledged == sent {
                        sent += 1;
                    }
                    if append(&journal, 3, sent).is_ok() {
                        acknowledged = sent;
                    }
                }
                6..8 => {
                    if journal.sync().is_ok() {
                        safe = acknowledged;
                        faults.lock().unwrap().lost = false;
                    }
                }
                8 => _ = journal.exclusive().begin_segment(),
                _ => _ = journal.exclusive().append_names(),
            }
            if !journal.is_failing() && journal.sync_age() == 0.0 {
                faults.lock().unwrap().lost = false;
            }
        }
        drop(journal);
        let mut faults = faults.lock().unwrap();
        let promised = if random.below(2) == 0 {
            faults.power_cut(dir.path());
            safe
        } else if faults.lost {
            safe
        } else {
            acknowledged
        };
        let read = read_all(dir.path());
        let mut read: Vec<i64> =
            read.iter().filter_map(|read| read.strip_prefix("3 points at ")?.parse().ok()).collect();
        read.dedup();
        assert!(read.is_sorted(), "seed {seed}, life {life}: {read:?}");
        let missing: BTreeSet<i64> = (1..=sent).filter(|sent| read.binary_search(sent).is_err()).collect();
        let lost: Vec<_> = missing.difference(&gone).filter(|&&missing| missing <= promised).collect();
        assert_eq!(lost, [&0i64; 0], "seed {seed}, life {life}: {read:?}");
        // What is there now is synced by the next start before it counts.
        for segment in folder(dir.path()).segments().unwrap() {
            faults.synced.insert(segment.path, segment.bytes);
        }
        gone = missing;
        (acknowledged, safe) = (sent, sent);
    }
}

#[test]
fn acknowledged_records_survive_failing_calls_and_deaths() {
    let first = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    for seed in first..first + 6 {
        survives(seed);
    }
}

#[test]
fn many_segments_without_a_record_are_removed_with_few_syncs() {
    let (dir, syncs) = (tempfile::tempdir().unwrap(), Arc::new(AtomicU32::new(0)));
    for number in 1..=500 {
        std::fs::write(dir.path().join(format!("{number:08}.journal")), []).unwrap();
    }
    let counted = syncs.clone();
    let host = failing(move |call, _| {
        counted.fetch_add(u32::from(call == Call::Sync), Relaxed);
        false
    });
    drop(open_on(host, dir.path()).unwrap());
    assert_eq!(folder(dir.path()).segments().unwrap().len(), 1);
    assert!(syncs.load(Relaxed) < 20, "{syncs:?}");
}

#[test]
fn a_file_with_a_number_that_no_segment_has_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let stray = dir.path().join(format!("{}.journal", u64::MAX));
    std::fs::write(&stray, "text").unwrap();
    let journal = open(dir.path());
    append(&journal, 3, 5).unwrap();
    assert_eq!(folder(dir.path()).segments().unwrap().iter().map(|one| one.number).collect::<Vec<_>>(), [1]);
    assert_eq!(std::fs::read(&stray).unwrap(), b"text");
}

#[test]
fn a_copy_whose_number_is_spelled_in_another_way_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    append(&journal, 3, 5).unwrap();
    for copy in ["1.journal", "0000000001.journal", "+1.journal"] {
        std::fs::copy(dir.path().join("00000001.journal"), dir.path().join(copy)).unwrap();
    }
    let folder = folder(dir.path());
    assert_eq!(folder.segments().unwrap().iter().map(|one| one.path.clone()).collect::<Vec<_>>(), [folder.path_of(1)]);
    assert_eq!(folder.strays().unwrap().len(), 3);
}

#[test]
fn a_length_of_before_in_the_list_of_the_folder_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    {
        let journal = open(dir.path());
        append(&journal, 3, 0).unwrap();
    }
    let before = bytes(dir.path());
    for listed in [0, 1, 100] {
        let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_changed_lists(move |_, _| listed);
        let folder = Folder::new(Arc::new(disk), dir.path());
        let segments = folder.segments().unwrap();
        assert_eq!(segments[0].bytes, before.len() as u64, "listed with {listed} bytes");
        assert!(!folder.is_without_records(&segments[0]), "listed with {listed} bytes");
    }
}
