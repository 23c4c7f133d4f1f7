//! Segments that have lost their end, or all that they had: what a start reports of them.

use super::*;
use crate::wal::{
    chain::{check_chain, leave_out_stored},
    cut::without_damage,
    cut_end::note_lengths,
    missing::note_missing,
    newest::newest_of,
    segment::Segment,
};

/// What a start reports as damaged of a journal.
fn reported(dir: &Path) -> Vec<String> {
    reported_with(dir, None)
}

/// As [`reported`], with what the file of the newest segment says. With it, segments are compared, too.
fn reported_with(dir: &Path, newest: Option<Newest>) -> Vec<String> {
    reported_in(dir, (None, newest), tempfile::tempdir().unwrap().path())
}

/// As [`reported_with`], of a data folder.
fn reported_of(data: &Path) -> Vec<String> {
    let dir = data.join("journal");
    // Its store has nothing yet.
    let mark = JournalMark { removed_below: 0, stored_below: 0, newest: 0, opening: 0 };
    reported_in(&dir, (Some(mark), newest_of(&SystemDisk, &dir)), data)
}

fn reported_in(dir: &Path, (mark, newest): (Option<JournalMark>, Option<Newest>), data: &Path) -> Vec<String> {
    let folder = folder(dir);
    let damage = JournalDamage::in_folder(&Host::system(), data);
    let (mut planned, _) = folder.plan(newest).unwrap();
    if newest.is_some() {
        (planned, _) = leave_out_stored(&folder, &damage, (planned, &[]), (mark, newest), &identity(), Ok(Vec::new()));
    }
    for planned in planned {
        let bytes = folder.read_parts(&planned.segment).unwrap();
        let mut read = planned.records(&bytes.bytes);
        read.by_ref().for_each(drop);
        planned.keep_damage(&damage, &bytes, &read);
    }
    damage.log.examples().into_iter().map(|damage| damage.what.to_owned()).collect()
}

#[test]
fn an_end_that_was_on_the_disk_and_is_zeros_or_part_of_a_record_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    append(&journal, 2, 5).unwrap();
    let first = journal.current().1 as usize;
    append(&journal, 2, 6).unwrap();
    journal.sync().unwrap();
    let synced = journal.current().1 as usize;
    append(&journal, 2, 7).unwrap();
    journal.exclusive().begin_segment().unwrap();
    append(&journal, 2, 8).unwrap();
    journal.exclusive().close_segment().unwrap();
    let file = folder(dir.path()).segments().unwrap().remove(0).path;
    let whole = std::fs::read(&file).unwrap();
    assert_eq!(reported(dir.path()), [""; 0]);
    for from in [first, first + 3, first + HEADER, synced - 1, synced] {
        let mut zeroed = whole.clone();
        zeroed[from..].fill(0);
        std::fs::write(&file, &zeroed).unwrap();
        let lost = if from < synced { vec!["journal record"] } else { vec![] };
        assert_eq!(reported(dir.path()), lost, "zeros from {from} on, {synced} bytes were on the disk");
    }
    // A power cut may take all that was not synced, and a part of it.
    for length in synced..whole.len() {
        std::fs::write(&file, &whole[..length]).unwrap();
        assert_eq!(reported(dir.path()), [""; 0], "cut at {length}");
    }
}

/// A journal next to the file of its newest segment, in a data folder.
fn open_in(data: &Path) -> Journal {
    let file = NewestFile::new(Arc::new(SystemDisk), Some(data));
    let dir = data.join("journal");
    open_behind(Host::system(), &dir, (file, newest_of(&SystemDisk, &dir))).unwrap()
}

/// The journal of a data folder with one segment that has these batches, all of them on the disk, as the file next to the folder says.
fn synced(data: &Path, batches: &[u32]) -> (PathBuf, Segment) {
    let journal = open_in(data);
    for (&n, at) in batches.iter().zip(5..) {
        append(&journal, n, at).unwrap();
    }
    journal.sync().unwrap();
    journal.note_synced();
    drop(journal);
    let dir = data.join("journal");
    let segment = folder(&dir).segments().unwrap().remove(0);
    (dir, segment)
}

/// The bytes that a journal without a record has.
fn header_bytes() -> u64 {
    let dir = tempfile::tempdir().unwrap();
    open_in(dir.path()).current().1
}

fn cut(file: &Path, length: u64) {
    std::fs::OpenOptions::new().write(true).open(file).unwrap().set_len(length).unwrap();
}

#[test]
fn an_end_of_the_newest_segment_that_was_noted_as_on_the_disk_is_missed() {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join("journal");
    let journal = open_in(data.path());
    append(&journal, 2, 5).unwrap();
    let first = journal.current().1 as usize;
    journal.note_synced();
    assert_eq!(newest_of(&SystemDisk, &dir).unwrap().synced, 0, "no fsync was");
    append(&journal, 2, 6).unwrap();
    journal.sync().unwrap();
    let synced = journal.current().1 as usize;
    append(&journal, 2, 7).unwrap();
    journal.note_synced();
    drop(journal);
    let newest = newest_of(&SystemDisk, &dir);
    assert_eq!(newest.unwrap().synced, synced as u64);
    let file = folder(&dir).segments().unwrap().remove(0).path;
    let whole = std::fs::read(&file).unwrap();
    let header = first - HEADER - 8 - 2 * POINT;
    for from in header..=whole.len() {
        std::fs::write(&file, &whole[..from]).unwrap();
        let lost = if from < synced { vec!["journal records"] } else { vec![] };
        assert_eq!(reported_with(&dir, newest), lost, "cut at {from}, {synced} bytes were on the disk");
    }
    for from in header..=synced {
        let mut zeroed = whole.clone();
        zeroed[from..].fill(0);
        std::fs::write(&file, &zeroed).unwrap();
        let lost = if from < synced { vec!["journal record"] } else { vec![] };
        assert_eq!(reported_with(&dir, newest), lost, "zeros from {from} on, {synced} bytes were on the disk");
    }
}

#[test]
fn an_end_that_a_start_has_missed_is_missed_until_a_repair_has_noted_it() {
    // Behind its header, within its first record, and behind that.
    for place in 0..3 {
        let data = tempfile::tempdir().unwrap();
        let dir = data.path().join("journal");
        let journal = open_in(data.path());
        let header = journal.current().1;
        append(&journal, 2, 5).unwrap();
        let first = journal.current().1;
        append(&journal, 2, 6).unwrap();
        journal.sync().unwrap();
        journal.note_synced();
        drop(journal);
        let file = folder(&dir).segments().unwrap().remove(0).path;
        let length = [header, header + 3, first][place];
        cut(&file, length);
        for goes_on in [false, true] {
            let newest = newest_of(&SystemDisk, &dir);
            assert_eq!(reported_with(&dir, newest), ["journal records"], "{length} bytes, goes on: {goes_on}");
            let journal = open_in(data.path());
            if goes_on {
                append(&journal, 2, 7).unwrap();
            }
        }
        // The header of the next segment says it now.
        assert_eq!(newest_of(&SystemDisk, &dir).unwrap().number, 3);
        assert_eq!(reported_with(&dir, newest_of(&SystemDisk, &dir)), ["journal records"], "{length} bytes");
        // As a repair does.
        let (kept, _) = without_damage(&std::fs::read(&file).unwrap());
        std::fs::write(&file, kept).unwrap();
        let disk: Arc<dyn host::Disk> = Arc::new(SystemDisk);
        note_lengths(&disk, &dir, &BTreeSet::new()).unwrap();
        assert_eq!(reported_with(&dir, newest_of(&SystemDisk, &dir)), [""; 0], "{length} bytes");
    }
}

#[test]
fn a_newest_segment_that_has_not_even_its_header_has_lost_its_contents() {
    let data = tempfile::tempdir().unwrap();
    let (dir, segment) = synced(data.path(), &[2]);
    let whole = std::fs::read(&segment.path).unwrap();
    for length in 0..(header_bytes() - 8) / 2 + 8 {
        std::fs::write(&segment.path, &whole[..length as usize]).unwrap();
        assert_eq!(reported_with(&dir, newest_of(&SystemDisk, &dir)), ["journal segment"], "{length} bytes");
    }
}

#[test]
fn a_segment_that_others_name_and_that_has_no_record_has_lost_its_contents_whatever_its_bytes_are() {
    let data = tempfile::tempdir().unwrap();
    let (_, Segment { path: file, .. }) = synced(data.path(), &[200]);
    let garbage =
        |length: usize| [vec![0xff; length], b"text of another file\n".repeat(length / 21 + 1), vec![0; length]];
    for is_newest in [true, false] {
        if !is_newest {
            append(&open_in(data.path()), 2, 6).unwrap();
        }
        let whole = std::fs::read(&file).unwrap();
        for bytes in [40, 1500, 3000, 10_000].into_iter().flat_map(garbage).chain([whole[..60].to_vec()]) {
            std::fs::write(&file, &bytes).unwrap();
            let reported = reported_of(data.path());
            assert_eq!(reported, ["journal segment"], "{} bytes as {}, newest: {is_newest}", bytes.len(), bytes[0]);
            let kept = |entry: io::Result<std::fs::DirEntry>| std::fs::read(entry.unwrap().path()).unwrap();
            let is_kept = std::fs::read_dir(data.path().join("damaged")).unwrap().map(kept).any(|kept| kept == bytes);
            assert!(is_kept || bytes.iter().all(|byte| *byte == 0), "{} bytes", bytes.len());
            std::fs::remove_dir_all(data.path().join("damaged")).unwrap();
        }
        std::fs::write(&file, &whole).unwrap();
    }
}

#[test]
fn a_segment_that_has_lost_its_contents_is_not_taken_for_one_that_is_back() {
    let data = tempfile::tempdir().unwrap();
    let (_, segment) = synced(data.path(), &[200]);
    std::fs::write(&segment.path, vec![0; segment.bytes as usize]).unwrap();
    assert_eq!(reported_of(data.path()), ["journal segment"]);
    // As a flush does.
    let journal = Arc::new(open_in(data.path()));
    append(&journal, 2, 6).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(journal.trim(2)).unwrap();
    assert!(!segment.path.exists());
    let noted = JournalDamage::in_folder(&Host::system(), data.path()).missing().unwrap();
    assert_eq!(noted, [1..=1], "each start reports it");
}

#[test]
fn a_lost_end_stays_reported_once_its_segment_is_stored() {
    let data = tempfile::tempdir().unwrap();
    let (_, segment) = synced(data.path(), &[2, 2]);
    cut(&segment.path, segment.bytes - 5);
    for _ in 0..2 {
        assert_eq!(reported_of(data.path()), ["journal records"]);
    }
    let kept = || -> Vec<String> {
        let names = std::fs::read_dir(data.path().join("damaged")).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).filter(|name| name.contains(".cut+")).collect()
    };
    assert_eq!(kept().len(), 1, "it is noted once: {:?}", kept());
    std::fs::remove_file(&segment.path).unwrap();
    let damage = JournalDamage::in_folder(&Host::system(), data.path());
    damage.report_kept();
    let reported: Vec<_> = damage.log.examples().into_iter().map(|damage| damage.what).collect();
    assert_eq!(reported, ["journal records"]);
}

#[test]
fn what_is_put_on_the_disk_after_the_next_segment_was_begun_is_missed_too() {
    for has_failed in [false, true] {
        for (is_noted, goes_on) in [(true, false), (false, true), (false, false)] {
            let data = tempfile::tempdir().unwrap();
            let dir = data.path().join("journal");
            let fails = Arc::new(AtomicBool::new(false));
            let is_failing = fails.clone();
            let host = failing(move |call, path| {
                call == Call::Sync
                    && path.extension().is_some_and(|end| end == "journal")
                    && is_failing.swap(false, Relaxed)
            });
            let file = NewestFile::new(host.disk.clone(), Some(data.path()));
            let journal = open_behind(host, &dir, (file, None)).unwrap();
            append(&journal, 2, 5).unwrap();
            journal.sync().unwrap();
            let first = journal.current().1;
            append(&journal, 2, 6).unwrap();
            let length = journal.current().1;
            // As an append does behind a long segment.
            journal.exclusive().begin_segment().unwrap();
            append(&journal, 2, 7).unwrap();
            fails.store(has_failed, Relaxed);
            journal.sync().unwrap();
            if is_noted {
                journal.note_synced();
            }
            if goes_on {
                journal.exclusive().begin_segment().unwrap();
                append(&journal, 2, 8).unwrap();
            }
            drop(journal);
            let newest = newest_of(&SystemDisk, &dir);
            assert_eq!(reported_with(&dir, newest), [""; 0]);
            let file = folder(&dir).segments().unwrap().remove(0).path;
            let whole = std::fs::read(&file).unwrap();
            for cut in first - 2..length {
                std::fs::write(&file, &whole[..cut as usize]).unwrap();
                // The segment that repeats what an fsync failed for has it.
                let is_lost = cut < first || (is_noted || goes_on) && !has_failed;
                let expected = if is_lost { vec!["journal records"] } else { vec![] };
                assert_eq!(reported_with(&dir, newest), expected, "cut at {cut}: {has_failed} {is_noted} {goes_on}");
            }
        }
    }
}

#[test]
fn what_the_header_of_a_segment_without_records_says_is_not_forgotten_with_it() {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join("journal");
    let journal = open_in(data.path());
    append(&journal, 2, 5).unwrap();
    append(&journal, 2, 6).unwrap();
    journal.sync().unwrap();
    let synced = journal.current().1;
    // As a backup does.
    journal.exclusive().begin_segment().unwrap();
    drop(journal);
    let file = folder(&dir).segments().unwrap().remove(0).path;
    cut(&file, synced - 9);
    for start in 0..4 {
        assert_eq!(reported_with(&dir, newest_of(&SystemDisk, &dir)), ["journal records"], "start {start}");
        let journal = open_in(data.path());
        if start == 2 {
            append(&journal, 2, 7).unwrap();
        }
    }
}

#[test]
fn a_repair_notes_how_long_the_newest_segment_is() {
    let data = tempfile::tempdir().unwrap();
    let (dir, segment) = synced(data.path(), &[2]);
    let (disk, noted): (Arc<dyn host::Disk>, _) = (Arc::new(SystemDisk), newest_of(&SystemDisk, &dir).unwrap());
    note_lengths(&disk, &dir, &BTreeSet::new()).unwrap();
    assert_eq!(newest_of(&SystemDisk, &dir), Some(noted), "nothing is missing");
    cut(&segment.path, noted.synced - 1);
    note_lengths(&disk, &dir, &BTreeSet::new()).unwrap();
    assert_eq!(newest_of(&SystemDisk, &dir), Some(Newest { synced: 0, ..noted }));
}

#[test]
fn an_end_that_a_later_process_read_and_is_zeros_since_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    append(&journal, 2, 5).unwrap();
    let first = journal.current().1 as usize;
    append(&journal, 2, 6).unwrap();
    let whole_until = journal.current().1 as usize;
    append(&journal, 2, 7).unwrap();
    drop(journal);
    // A power cut leaves a part of the last record.
    let file = folder(dir.path()).segments().unwrap().remove(0).path;
    let mut torn = std::fs::read(&file).unwrap();
    torn.truncate(whole_until + HEADER + 3);
    std::fs::write(&file, &torn).unwrap();
    append(&open(dir.path()), 2, 8).unwrap();
    append(&open(dir.path()), 2, 9).unwrap();
    assert_eq!(reported(dir.path()), [""; 0]);
    for from in [first, first + 3, first + HEADER, whole_until - 1, whole_until] {
        let mut zeroed = torn.clone();
        zeroed[from..].fill(0);
        std::fs::write(&file, &zeroed).unwrap();
        let lost = if from < whole_until { vec!["journal record"] } else { vec![] };
        assert_eq!(reported(dir.path()), lost, "zeros from {from} on, {whole_until} bytes were whole records");
    }
}

#[test]
fn a_header_of_an_earlier_program_says_nothing_of_the_records_of_another_process() {
    let dir = tempfile::tempdir().unwrap();
    append(&open(dir.path()), 2, 5).unwrap();
    append(&open(dir.path()), 2, 6).unwrap();
    let header = folder(dir.path()).plan(None).unwrap().0.remove(1).header.unwrap();
    let old = SegmentHeader { previous_whole: None, previous_length: None, ..header };
    let (file, second) = {
        let mut segments = folder(dir.path()).segments().unwrap();
        (segments.remove(0).path, segments.remove(0).path)
    };
    std::fs::write(&second, segment_start(&old)).unwrap();
    assert_eq!(folder(dir.path()).plan(None).unwrap().0.remove(1).header, Some(old));
    let mut bytes = std::fs::read(&file).unwrap();
    let end = bytes.len();
    bytes[end - 20..].fill(0);
    std::fs::write(&file, &bytes[..end - 1]).unwrap();
    assert_eq!(reported(dir.path()), [""; 0]);
}

/// Otherwise the chain would look whole down to the first segment, and points that are put back would replace newer ones.
#[test]
fn the_segment_behind_a_missing_one_says_after_a_repair_that_there_were_others() {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join("journal");
    let journal = open_in(data.path());
    for at in 5..9 {
        append(&journal, 2, at).unwrap();
        journal.sync().unwrap();
        journal.exclusive().begin_segment().unwrap();
    }
    drop(journal);
    for number in 1..4 {
        std::fs::remove_file(folder(&dir).path_of(number)).unwrap();
    }
    let (disk, mark): (Arc<dyn host::Disk>, _) =
        (Arc::new(SystemDisk), JournalMark { removed_below: 3, stored_below: 3, newest: 4, opening: 3 });
    let missing = || check_chain(&SystemDisk, &dir, Some(mark), &identity()).unwrap().missing;
    assert_eq!(missing(), [(3, 3)]);
    note_missing(&disk, &dir, Some(mark), &identity()).unwrap();
    let segment = folder(&dir).segments().unwrap().remove(0);
    assert_eq!((missing(), folder(&dir).header_of(&segment).unwrap().previous), (vec![], Some(2)));
}
