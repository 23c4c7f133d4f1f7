//! Segments of the journal that were begun, and are gone at a start: what they held is reported until they are back, and then
//! put back.

mod support;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use carbon::Sink as _;
use carbon::{RuleFiles, Rules};
use host::{Call, FailingDisk, Host, SystemDisk};
use support::{
    data_folder::{DataFolder, copy, delete, read, send, time},
    runtime,
};

/// The findings of a start, as what and where.
fn findings(folder: &DataFolder) -> Vec<String> {
    let line =
        |damage: store::Damage| format!("{} {}", damage.what, damage.file.rsplit('/').next().unwrap_or_default());
    folder.damage.examples().into_iter().map(line).collect()
}

/// The same folder, in a process that has found nothing yet.
fn again(folder: DataFolder) -> DataFolder {
    DataFolder { damage: store::DamageLog::new(), ..folder }
}

/// A process that is killed after this.
fn in_life(folder: &DataFolder, then: impl AsyncFn(&ingest::Ingest)) {
    let life = runtime(2);
    life.block_on(async {
        let ingest = folder.open().await.unwrap();
        then(&ingest).await;
    });
    life.shutdown_timeout(Duration::from_secs(2));
}

fn segment(folder: &DataFolder, number: u64) -> PathBuf {
    folder.journal().join(format!("{number:08}.journal"))
}

fn newest(folder: &DataFolder) -> u64 {
    let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
    let is_segment = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "journal");
    folder.segments().iter().filter(is_segment).filter_map(number).max().unwrap()
}

fn move_to(from: &Path, to: &Path) {
    fs::rename(from, to).unwrap();
}

/// A folder with a stored point, and one in each of two segments of two processes that were killed.
fn two_lives() -> DataFolder {
    let folder = DataFolder::new();
    folder.live(&[("stored", 1.0)], true);
    folder.live(&[("first", 2.0)], false);
    folder.live(&[("second", 3.0)], false);
    assert_eq!(findings(&folder), [""; 0]);
    folder
}

#[test]
fn a_missing_newest_segment_is_reported_at_each_start_until_it_is_back_and_its_points_are_put_back() {
    let folder = two_lives();
    let (lost, away) = (newest(&folder), folder.dir.path().join("away"));
    move_to(&segment(&folder, lost), &away);
    let reported = [format!("journal segment {lost:08}.journal")];
    assert_eq!(folder.values(&["stored", "first", "second"]), [Some(1.0), Some(2.0), None]);
    assert_eq!(findings(&folder), reported);
    assert!(lost < newest(&folder), "its number is its own");
    // Its number counts as stored from here on.
    let folder = again(folder);
    folder.live(&[("third", 4.0)], true);
    assert_eq!(findings(&folder).len(), 1, "{:?}", findings(&folder));
    let folder = again(folder);
    move_to(&away, &segment(&folder, lost));
    in_life(&folder, async |ingest| {
        ingest.put_back().await.unwrap();
        for (name, value) in [("stored", 1.0), ("first", 2.0), ("second", 3.0), ("third", 4.0)] {
            assert_eq!(read(ingest, name).await, Some(value), "{name}");
        }
        ingest.flush().await.unwrap();
    });
    let folder = again(folder);
    assert_eq!(folder.values(&["second", "third"]), [Some(3.0), Some(4.0)]);
    assert_eq!(findings(&folder), [""; 0]);
}

/// A start found a segment without its end, and stored the rest of it. Its number counts as stored by then.
#[test]
fn a_segment_that_was_found_without_its_end_and_comes_back_whole_is_put_back() {
    for comes_back_while_it_runs in [false, true] {
        let folder = DataFolder::new();
        folder.live(&[("stored", 1.0)], true);
        folder.live(&[("first", 2.0), ("deleted", 2.5), ("second", 3.0)], false);
        let cut = newest(&folder);
        folder.live(&[("third", 4.0)], false);
        let whole = fs::read(segment(&folder, cut)).unwrap();
        fs::write(segment(&folder, cut), &whole[..whole.len() - 9]).unwrap();
        let folder = again(folder);
        in_life(&folder, async |ingest| {
            send(ingest, "fourth", 5.0).await;
            ingest.flush().await.unwrap();
            send(ingest, "deleted", 6.0).await;
            delete(ingest, "deleted").await;
            ingest.flush().await.unwrap();
        });
        assert_eq!(findings(&folder).len(), 1, "{:?}", findings(&folder));
        assert!(!segment(&folder, cut).exists(), "it is stored, and removed");
        let folder = again(folder);
        let values = [("first", Some(2.0)), ("second", Some(3.0)), ("third", Some(4.0)), ("fourth", Some(5.0))];
        if !comes_back_while_it_runs {
            fs::write(segment(&folder, cut), &whole).unwrap();
        }
        in_life(&folder, async |ingest| {
            if comes_back_while_it_runs {
                fs::write(segment(&folder, cut), &whole).unwrap();
                send(ingest, "fifth", 6.0).await;
                ingest.flush().await.unwrap();
            }
            ingest.put_back().await.unwrap();
            for (name, value) in values.into_iter().chain([("deleted", None)]) {
                assert_eq!(read(ingest, name).await, value, "{name}");
            }
            ingest.flush().await.unwrap();
        });
        let folder = again(folder);
        assert_eq!(folder.values(&values.map(|(name, _)| name)), values.map(|(_, value)| value));
        assert_eq!(findings(&folder), [""; 0], "the note has ended");
    }
}

/// A file of another store that comes while the process runs is not taken for the one of ours that is missing, and others are put back.
/// A kill in the middle of a write leaves a part of a record behind the whole ones, which the next header counts.
#[test]
fn the_note_of_a_lost_end_ends_also_where_a_write_was_cut_off_behind_it() {
    let folder = DataFolder::new();
    folder.live(&[("stored", 1.0)], true);
    folder.live(&[("first", 2.0), ("second", 3.0), ("last", 3.5)], false);
    let cut = newest(&folder);
    let mut whole = fs::read(segment(&folder, cut)).unwrap();
    whole.extend(whole[whole.len() - 40..whole.len() - 35].to_vec());
    fs::write(segment(&folder, cut), &whole).unwrap();
    folder.live(&[("third", 4.0)], false);
    fs::write(segment(&folder, cut), &whole[..whole.len() - 14]).unwrap();
    let folder = again(folder);
    in_life(&folder, async |ingest| {
        send(ingest, "fourth", 5.0).await;
        ingest.flush().await.unwrap();
    });
    assert!(!findings(&folder).is_empty());
    let folder = again(folder);
    fs::write(segment(&folder, cut), &whole).unwrap();
    in_life(&folder, async |ingest| {
        ingest.put_back().await.unwrap();
        assert_eq!(read(ingest, "last").await, Some(3.5));
        ingest.flush().await.unwrap();
    });
    let folder = again(folder);
    in_life(&folder, async |_| ());
    assert_eq!(findings(&folder), [""; 0]);
    assert!(!folder.journal().join("deleted").exists());
}

/// In the shorter one the value that replaced another is missing.
#[test]
fn of_two_copies_of_a_missing_segment_the_whole_one_is_put_back_first() {
    // The order in a folder is by its own rules.
    for _ in 0..4 {
        let folder = DataFolder::new();
        folder.live(&[("stored", 1.0)], true);
        folder.live(&[("a", 1.0), ("b", 3.0), ("a", 2.0)], false);
        let (lost, away) = (newest(&folder), folder.dir.path().join("away"));
        folder.live(&[("third", 4.0)], false);
        move_to(&segment(&folder, lost), &away);
        folder.live(&[("fourth", 5.0)], true);
        let whole = fs::read(&away).unwrap();
        let mut short = whole[..whole.len() - 9].to_vec();
        short.resize(whole.len(), 0);
        fs::write(segment(&folder, lost), short).unwrap();
        in_life(&folder, async |_| ());
        let folder = again(folder);
        move_to(&away, &segment(&folder, lost));
        in_life(&folder, async |ingest| {
            for _ in 0..3 {
                ingest.put_back().await.unwrap();
                ingest.flush().await.unwrap();
            }
            assert_eq!(read(ingest, "a").await, Some(2.0));
        });
    }
}

#[test]
fn a_segment_of_another_store_ends_no_report_and_holds_up_no_other() {
    let other = DataFolder::new();
    other.live(&[("stored", 1.0)], true);
    other.live(&[("foreign", 2.0), ("second", 9.0)], false);
    let folder = DataFolder::new();
    folder.live(&[("stored", 1.0)], true);
    folder.live(&[("first", 2.0)], false);
    let (lost, away) = (newest(&folder), folder.dir.path().join("away"));
    assert_eq!(newest(&other), lost);
    folder.live(&[("second", 3.0)], false);
    let (next, next_away) = (newest(&folder), folder.dir.path().join("next"));
    folder.live(&[("third", 4.0)], false);
    move_to(&segment(&folder, lost), &away);
    move_to(&segment(&folder, next), &next_away);
    folder.live(&[("fourth", 5.0)], true);
    let folder = again(folder);
    in_life(&folder, async |ingest| {
        fs::copy(segment(&other, lost), segment(&folder, lost)).unwrap();
        move_to(&next_away, &segment(&folder, next));
        send(ingest, "fifth", 6.0).await;
        ingest.flush().await.unwrap();
        ingest.put_back().await.unwrap();
        for (name, value) in [("first", None), ("second", Some(3.0)), ("foreign", None)] {
            assert_eq!(read(ingest, name).await, value, "{name}");
        }
    });
    assert!(
        findings(&folder).contains(&format!("foreign journal segment {lost:08}.journal")),
        "{:?}",
        findings(&folder)
    );
    let folder = again(folder);
    in_life(&folder, async |_| ());
    assert_eq!(findings(&folder).len(), 1, "{:?}", findings(&folder));
    move_to(&away, &segment(&folder, lost));
    let folder = again(folder);
    in_life(&folder, async |ingest| {
        ingest.put_back().await.unwrap();
        assert_eq!(read(ingest, "first").await, Some(2.0));
    });
    let folder = again(folder);
    assert_eq!((folder.values(&["first", "second"]), findings(&folder)), (vec![Some(2.0), Some(3.0)], Vec::new()));
}

/// A shorter copy, or one of the same length with zeros at its end, waits in `damaged/` when the whole segment is there.
#[test]
fn the_whole_segment_is_kept_next_to_a_copy_of_it_that_waits_to_be_put_back() {
    for (has_zeros, comes_back_while_it_runs) in [(false, false), (false, true), (true, false), (true, true)] {
        let folder = DataFolder::new();
        folder.live(&[("stored", 1.0)], true);
        folder.live(&[("first", 2.0), ("second", 3.0)], false);
        let (lost, away) = (newest(&folder), folder.dir.path().join("away"));
        folder.live(&[("third", 4.0)], false);
        move_to(&segment(&folder, lost), &away);
        folder.live(&[("fourth", 5.0)], true);
        let whole = fs::read(&away).unwrap();
        let mut copy = whole[..whole.len() - 9].to_vec();
        copy.resize(if has_zeros { whole.len() } else { copy.len() }, 0);
        fs::write(segment(&folder, lost), &copy).unwrap();
        // It is moved, and this process ends before it is put back.
        in_life(&folder, async |_| ());
        let damaged = folder.dir.path().join("damaged");
        let waiting = damaged.join(format!("journal_{lost:08}.journal~whole"));
        assert_eq!(fs::read(&waiting).unwrap(), copy);
        let folder = again(folder);
        if !comes_back_while_it_runs {
            move_to(&away, &segment(&folder, lost));
        }
        in_life(&folder, async |ingest| {
            if comes_back_while_it_runs {
                move_to(&away, &segment(&folder, lost));
            }
            send(ingest, "fifth", 6.0).await;
            ingest.flush().await.unwrap();
            ingest.put_back().await.unwrap();
            for (name, value) in [("first", 2.0), ("second", 3.0), ("third", 4.0), ("fourth", 5.0)] {
                assert_eq!(read(ingest, name).await, Some(value), "{name}, zeros: {has_zeros}");
            }
        });
        let kept: Vec<PathBuf> = fs::read_dir(&damaged).unwrap().map(|one| one.unwrap().path()).collect();
        assert!(kept.iter().any(|file| file.is_file() && fs::read(file).unwrap() == whole), "{kept:?}");
        let folder = again(folder);
        assert_eq!(folder.values(&["second"]), [Some(3.0)]);
    }
}

#[test]
fn a_missing_segment_that_is_put_back_shorter_than_it_was_is_missing_until_the_rest_is_back() {
    for is_stored_since in [false, true] {
        let folder = DataFolder::new();
        folder.live(&[("stored", 1.0)], true);
        let first = AtomicU64::new(0);
        in_life(&folder, async |ingest| {
            send(ingest, "first", 2.0).await;
            first.store(fs::metadata(segment(&folder, newest(&folder))).unwrap().len(), Relaxed);
            send(ingest, "second", 3.0).await;
        });
        let (lost, away) = (newest(&folder), folder.dir.path().join("away"));
        folder.live(&[("third", 4.0)], false);
        move_to(&segment(&folder, lost), &away);
        folder.live(&[("fourth", 5.0)], is_stored_since);
        assert_eq!(findings(&folder).len(), 1);
        let whole = fs::read(&away).unwrap();
        let note = format!("{lost:08}.missing+{}@", whole.len());
        let mut zeros = whole.clone();
        zeros[first.into_inner() as usize..].fill(0);
        for (bytes, second) in [(&whole[..whole.len() - 9], None), (&zeros, None), (&whole, Some(3.0))] {
            fs::write(segment(&folder, lost), bytes).unwrap();
            let bytes = bytes.len();
            in_life(&folder, async |ingest| {
                ingest.put_back().await.unwrap();
                for (name, value) in [("first", Some(2.0)), ("second", second), ("third", Some(4.0))] {
                    assert_eq!(read(ingest, name).await, value, "{name}, {bytes} bytes, {is_stored_since}");
                }
                ingest.flush().await.unwrap();
                ingest.put_back().await.unwrap();
            });
            let mut kept = fs::read_dir(folder.dir.path().join("damaged")).unwrap();
            let is_over = kept.all(|one| {
                let name = one.unwrap().file_name().into_string().unwrap();
                !name.contains(&note) || name.ends_with("~returned")
            });
            assert_eq!(is_over, second.is_some(), "{bytes} bytes, {is_stored_since}");
            let is_put_back_twice = fs::read_dir(folder.dir.path().join("damaged")).unwrap().any(|one| {
                let name = one.unwrap().file_name().into_string().unwrap();
                name.contains(&format!("{lost:08}.journal~"))
            });
            assert!(is_stored_since || bytes == whole.len() || !is_put_back_twice, "it was replayed in its place");
        }
        let folder = again(folder);
        assert_eq!(folder.values(&["first", "second", "fourth"]), [Some(2.0), Some(3.0), Some(5.0)]);
        assert_eq!(findings(&folder), [""; 0], "{is_stored_since}");
    }
}

/// Its header was on the disk before anything else said its number: no crash leaves it so.
#[test]
fn a_segment_whose_bytes_are_all_zeros_is_reported_as_lost() {
    for is_newest in [false, true] {
        let folder = two_lives();
        let lost = newest(&folder) - u64::from(!is_newest);
        let bytes = fs::read(segment(&folder, lost)).unwrap();
        fs::write(segment(&folder, lost), vec![0; bytes.len()]).unwrap();
        let left = if is_newest { [Some(1.0), Some(2.0), None] } else { [Some(1.0), None, Some(3.0)] };
        assert_eq!(folder.values(&["stored", "first", "second"]), left);
        assert_eq!(findings(&folder), [format!("journal segment {lost:08}.journal")]);
        assert!(folder.damage.examples()[0].how.contains("the points in it are lost"));
    }
}

/// Blocks that a file system gave the newest segment before a power cut, and did not write, and a header that was not synced.
#[test]
fn zeros_behind_the_records_of_a_segment_and_in_one_that_nothing_knows_cost_nothing() {
    let folder = two_lives();
    let last = newest(&folder);
    let mut bytes = fs::read(segment(&folder, last)).unwrap();
    bytes.extend([0; 4096]);
    fs::write(segment(&folder, last), &bytes).unwrap();
    fs::write(segment(&folder, last + 1), [0; 600]).unwrap();
    for _ in 0..3 {
        assert_eq!(folder.values(&["stored", "first", "second"]), [Some(1.0), Some(2.0), Some(3.0)]);
        assert_eq!(findings(&folder), [""; 0]);
    }
}

#[test]
fn points_that_are_put_back_and_refused_are_counted_and_kept() {
    let folder = two_lives();
    let (lost, away) = (newest(&folder), folder.dir.path().join("away"));
    move_to(&segment(&folder, lost), &away);
    folder.live(&[("third", 4.0)], true);
    move_to(&away, &segment(&folder, lost));
    let folder = again(folder);
    in_life(&folder, async |ingest| {
        let schemas = "[all]\npattern = .*\nretentions = 1s:1h\n";
        let files = RuleFiles { schemas: Some(schemas), blacklist: Some("^second$"), ..RuleFiles::default() };
        ingest.set_rules(Rules::parse(files).unwrap().0).await;
        assert_eq!(ingest.put_back().await.unwrap(), 0);
        assert_eq!(read(ingest, "second").await, None);
    });
    let how = folder.damage.examples().into_iter().find(|damage| damage.how.contains("points of it are not put back"));
    assert!(how.is_some_and(|damage| damage.how.starts_with("1 points")), "{:?}", folder.damage.examples());
    // The name is allowed again.
    let damaged = folder.dir.path().join("damaged");
    let kept = fs::read_dir(&damaged).unwrap().map(|entry| entry.unwrap().path());
    let kept = kept.into_iter().find(|path| path.to_str().unwrap().ends_with("~1-refused")).unwrap();
    move_to(&kept, Path::new(&kept.to_str().unwrap().replace("~1-refused", "~whole")));
    let folder = again(folder);
    in_life(&folder, async |ingest| {
        assert_eq!(ingest.put_back().await.unwrap(), 1);
        assert_eq!(read(ingest, "second").await, Some(3.0));
    });
}

#[test]
fn a_journal_that_is_away_for_one_start_is_reported_with_all_its_segments_and_replayed_when_it_is_back() {
    for is_flushed in [false, true] {
        let folder = two_lives();
        let (last, away) = (newest(&folder), folder.dir.path().join("away"));
        move_to(&folder.journal(), &away);
        fs::create_dir(folder.journal()).unwrap();
        folder.live(&[("new", 5.0)], is_flushed);
        let found = findings(&folder);
        assert_eq!(found.len(), 1, "{found:?}");
        let notes: Vec<String> = fs::read_dir(folder.dir.path().join("damaged"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert!(notes.iter().any(|note| note.contains(&format!("-{last:08}.missing+"))), "{notes:?}");
        for file in fs::read_dir(folder.journal()).unwrap().map(|entry| entry.unwrap()) {
            assert!(!away.join(file.file_name()).exists(), "{file:?}");
        }
        copy(&away, &folder.journal());
        let folder = again(folder);
        in_life(&folder, async |ingest| {
            ingest.put_back().await.unwrap();
            for (name, value) in [("stored", 1.0), ("first", 2.0), ("second", 3.0), ("new", 5.0)] {
                assert_eq!(read(ingest, name).await, Some(value), "{name}, {is_flushed}");
            }
            ingest.flush().await.unwrap();
        });
        let folder = again(folder);
        assert_eq!(folder.values(&["first", "second", "new"]), [Some(2.0), Some(3.0), Some(5.0)]);
    }
}

#[test]
fn a_segment_with_the_number_of_the_newest_is_not_taken_for_it_where_an_earlier_process_wrote_it() {
    let folder = two_lives();
    // Without a record, so that its number may be given again.
    in_life(&folder, async |_| {});
    let (empty, away) = (newest(&folder), folder.dir.path().join("away"));
    move_to(&folder.journal(), &away);
    copy(&away, &folder.journal());
    fs::remove_file(segment(&folder, empty)).unwrap();
    in_life(&folder, async |ingest| send(ingest, "third", 4.0).await);
    assert_eq!((findings(&folder), newest(&folder)), (vec![], empty));
    fs::remove_dir_all(folder.journal()).unwrap();
    move_to(&away, &folder.journal());
    assert_eq!(folder.values(&["first", "second", "third"]), [Some(2.0), Some(3.0), None]);
    assert_eq!(findings(&folder), [format!("journal segment {empty:08}.journal")]);
}

#[test]
fn a_segment_that_was_begun_and_has_no_record_is_not_missed() {
    let folder = two_lives();
    for _ in 0..3 {
        in_life(&folder, async |_| {});
        fs::remove_file(segment(&folder, newest(&folder))).unwrap();
    }
    assert_eq!(folder.values(&["first", "second"]), [Some(2.0), Some(3.0)]);
    assert_eq!(findings(&folder), [""; 0]);
}

/// A machine on whose disk so many opens of a file end in this error, though the folder lists it.
fn opens_fail(file: &Path, times: u64, error: i32) -> Host {
    let (file, left) = (file.to_owned(), AtomicU64::new(times));
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path| {
        let fails = call == Call::Open
            && path == file
            && left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        fails.then(|| io::Error::from_raw_os_error(error))
    });
    Host { disk: Arc::new(disk), ..Host::system() }
}

const ENOENT: i32 = 2;
const ESTALE: i32 = 116;

#[test]
fn a_segment_that_is_listed_and_cannot_be_found_for_a_moment_is_waited_for() {
    for (error, times) in [(ENOENT, 3), (ESTALE, 9)] {
        let folder = DataFolder { read_patience: Duration::from_secs(20), ..two_lives() };
        let host = opens_fail(&segment(&folder, newest(&folder)), times, error);
        let values = folder.values_on(host, &["stored", "first", "second"]).unwrap();
        assert_eq!(values, [Some(1.0), Some(2.0), Some(3.0)], "{error}");
        assert_eq!(findings(&folder), [""; 0]);
    }
}

#[test]
fn a_segment_that_is_listed_and_cannot_be_found_refuses_the_start_and_stays() {
    for error in [ENOENT, ESTALE] {
        let folder = two_lives();
        let file = segment(&folder, newest(&folder));
        let before = fs::read(&file).unwrap();
        let refused = folder.values_on(opens_fail(&file, u64::MAX, error), &[]).unwrap_err().to_string();
        assert!(refused.contains(file.to_str().unwrap()), "{refused}");
        assert_eq!(fs::read(&file).unwrap(), before);
        assert_eq!(folder.values(&["first", "second"]), [Some(2.0), Some(3.0)]);
    }
}

#[test]
fn a_segment_that_comes_while_the_process_runs_is_put_back_and_not_removed() {
    let folder = two_lives();
    let (last, away) = (newest(&folder), folder.dir.path().join("away"));
    move_to(&segment(&folder, last), &away);
    in_life(&folder, async |ingest| {
        send(ingest, "third", 4.0).await;
        assert_eq!(read(ingest, "second").await, None);
        // Under another number it would count as older or newer than others.
        fs::copy(&away, folder.journal().join(format!("{:08}.journal", last - 2))).unwrap();
        ingest.flush().await.unwrap();
        ingest.put_back().await.unwrap();
        assert_eq!(read(ingest, "second").await, None);
        let misnamed = format!("misnamed journal segment {:08}.journal", last - 2);
        assert!(findings(&folder).contains(&misnamed), "{:?}", findings(&folder));
        fs::copy(&away, segment(&folder, last)).unwrap();
        ingest.flush().await.unwrap();
        ingest.put_back().await.unwrap();
        assert_eq!(read(ingest, "second").await, Some(3.0));
    });
}

/// As on a full disk, where there is room later: the flush counts its number as stored.
#[test]
fn a_note_of_a_missing_segment_that_the_disk_does_not_take_is_written_by_a_later_flush() {
    let mut folder = two_lives();
    let lost = newest(&folder);
    fs::remove_file(segment(&folder, lost)).unwrap();
    let (is_full, damaged) = (Arc::new(AtomicBool::new(true)), folder.dir.path().join("damaged"));
    let fails = is_full.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |_, path| {
        (fails.load(Relaxed) && path.starts_with(&damaged)).then(|| io::Error::from_raw_os_error(28))
    });
    let host = Host { disk: Arc::new(disk), ..Host::system() };
    let life = runtime(2);
    life.block_on(async {
        let ingest = folder.open_on(host).await.unwrap();
        send(&ingest, "third", 4.0).await;
        is_full.store(false, Relaxed);
        ingest.flush().await.unwrap();
    });
    life.shutdown_timeout(Duration::from_secs(2));
    for _ in 0..2 {
        folder = again(folder);
        assert_eq!(folder.values(&["first", "second", "third"]), [Some(2.0), None, Some(4.0)]);
        let found = findings(&folder);
        assert!(found.iter().any(|found| found.contains(&format!("{lost:08}"))), "{found:?}");
    }
}

#[test]
fn a_number_of_the_newest_segment_that_cannot_be_used_costs_no_start() {
    let folder = two_lives();
    let file = folder.dir.path().join("segments");
    let right = fs::read(&file).unwrap();
    for is_unread in [true, false] {
        let host = if is_unread {
            opens_fail(&file, u64::MAX, 5)
        } else {
            fs::write(&file, &right[1..]).unwrap();
            Host::system()
        };
        assert_eq!(folder.values_on(host, &["first", "second"]).unwrap(), [Some(2.0), Some(3.0)]);
        assert_eq!(findings(&folder).last().unwrap(), "newest journal segment segments");
    }
    // The next point writes it again.
    folder.live(&[("third", 4.0)], false);
    let folder = again(folder);
    assert_eq!(folder.values(&["third"]), [Some(4.0)]);
    assert_eq!(findings(&folder), [""; 0]);
}

#[test]
fn a_copy_of_an_old_segment_under_a_higher_number_is_put_aside_and_hides_no_newer_value() {
    let folder = DataFolder::new();
    folder.live(&[("a", 1.0)], true);
    folder.live(&[("a", 2.0)], false);
    let older = segment(&folder, newest(&folder));
    folder.live(&[("a", 3.0)], false);
    let copy = segment(&folder, newest(&folder) + 3);
    fs::copy(&older, &copy).unwrap();
    assert_eq!(folder.values(&["a"]), [Some(3.0)]);
    let name = copy.file_name().unwrap().to_str().unwrap();
    assert_eq!(findings(&folder), [format!("misnamed journal segment {name}")]);
    let kept = folder.damage.examples().remove(0).moved_to.expect("it is kept");
    assert_eq!(fs::read(folder.dir.path().join(kept)).unwrap(), fs::read(&older).unwrap());
    let folder = again(folder);
    assert_eq!(folder.values(&["a"]), [Some(3.0)]);
    assert_eq!(findings(&folder), [""; 0]);
}

#[test]
fn a_segment_that_is_there_under_another_name_alone_is_missed_also_where_nothing_else_knows_it() {
    let folder = two_lives();
    let lost = newest(&folder);
    let other = segment(&folder, lost + 3);
    move_to(&segment(&folder, lost), &other);
    fs::remove_file(folder.dir.path().join("segments")).unwrap();
    assert_eq!(folder.values(&["first", "second"]), [Some(2.0), None]);
    let name = other.file_name().unwrap().to_str().unwrap();
    let missing = format!("journal segment {lost:08}.journal");
    assert_eq!(findings(&folder), [missing, format!("misnamed journal segment {name}")]);
    let kept = folder.damage.examples().remove(1).moved_to.expect("it is kept");
    let folder = again(folder);
    folder.live(&[("third", 4.0)], true);
    assert_eq!(findings(&folder).len(), 1, "{:?}", findings(&folder));
    move_to(&folder.dir.path().join(kept), &segment(&folder, lost));
    let folder = again(folder);
    in_life(&folder, async |ingest| {
        ingest.put_back().await.unwrap();
        assert_eq!(read(ingest, "second").await, Some(3.0));
        ingest.flush().await.unwrap();
    });
    let folder = again(folder);
    assert_eq!(folder.values(&["second", "third"]), [Some(3.0), Some(4.0)]);
    assert_eq!(findings(&folder), [""; 0]);
}

/// The next one says how long it was.
#[test]
fn of_several_missing_segments_one_that_is_put_back_shorter_is_missing_still() {
    for comes_first in [false, true] {
        let mut folder = DataFolder::new();
        folder.live(&[("stored", 1.0)], true);
        in_life(&folder, async |ingest| {
            send(ingest, "first", 2.0).await;
            send(ingest, "second", 3.0).await;
        });
        let lost = newest(&folder);
        folder.live(&[("third", 4.0)], false);
        let (files, next) = ([segment(&folder, lost), segment(&folder, lost + 1)], newest(&folder));
        assert_eq!(next, lost + 1);
        let bytes = files.clone().map(|file| fs::read(file).unwrap());
        files.iter().for_each(|file| fs::remove_file(file).unwrap());
        folder.live(&[("fourth", 5.0)], true);
        if comes_first {
            fs::write(&files[1], &bytes[1]).unwrap();
            in_life(&folder, async |ingest| _ = ingest.put_back().await.unwrap());
        }
        for (length, second) in [(bytes[0].len() - 9, None), (bytes[0].len(), Some(3.0))] {
            fs::write(&files[0], &bytes[0][..length]).unwrap();
            if !comes_first {
                fs::write(&files[1], &bytes[1]).unwrap();
            }
            in_life(&folder, async |ingest| {
                ingest.put_back().await.unwrap();
                for (name, value) in [("first", Some(2.0)), ("second", second), ("third", Some(4.0))] {
                    assert_eq!(read(ingest, name).await, value, "{name}, {length} bytes, {comes_first}");
                }
            });
            folder = again(folder);
            folder.values(&["first"]);
            let is_missed = findings(&folder).iter().any(|found| found.starts_with("journal segment"));
            assert_eq!(is_missed, second.is_none(), "{length} bytes, {comes_first}: {:?}", findings(&folder));
        }
    }
}

/// The store was restored from an earlier copy, and the newest segment is lost: the file next to the journal and the other segments are of
/// the later time.
#[test]
fn a_missing_newest_segment_is_reported_also_next_to_a_store_of_an_earlier_time() {
    let folder = DataFolder::new();
    folder.live(&[("stored", 1.0)], true);
    let earlier = DataFolder::of(&folder, &folder);
    folder.live(&[("first", 2.0)], false);
    folder.live(&[("second", 3.0)], false);
    let lost = newest(&folder);
    fs::remove_file(segment(&folder, lost)).unwrap();
    fs::remove_dir_all(folder.store()).unwrap();
    copy(&earlier.store(), &folder.store());
    assert_eq!(folder.values(&["stored", "first", "second"]), [Some(1.0), Some(2.0), None]);
    assert!(findings(&folder).contains(&format!("journal segment {lost:08}.journal")), "{:?}", findings(&folder));
}

#[test]
fn a_file_of_the_newest_segment_of_another_store_or_time_is_reported() {
    let other = two_lives();
    let folder = two_lives();
    let file = |folder: &DataFolder| folder.dir.path().join("segments");
    let earlier = fs::read(file(&folder)).unwrap();
    folder.live(&[("third", 4.0)], false);
    let right = fs::read(file(&folder)).unwrap();
    let mut folder = folder;
    for (bytes, reported) in [(fs::read(file(&other)).unwrap(), true), (earlier, true), (right, false)] {
        fs::write(file(&folder), &bytes).unwrap();
        folder = again(folder);
        assert_eq!(folder.values(&["first", "second", "third"]), [Some(2.0), Some(3.0), Some(4.0)]);
        let found = findings(&folder);
        assert_eq!(found, if reported { vec!["newest journal segment segments"] } else { vec![] });
    }
}

#[test]
fn a_note_with_an_absurd_number_costs_no_number() {
    let folder = two_lives();
    let damaged = folder.dir.path().join("damaged");
    fs::create_dir_all(&damaged).unwrap();
    let last = newest(&folder);
    for number in [(1_u64 << 56) - 2, u64::MAX] {
        fs::write(damaged.join(format!("journal_{number}.missing+0@dba1f39a")), "x").unwrap();
    }
    folder.live(&[("third", 4.0)], false);
    assert_eq!(newest(&folder), last + 1);
    assert_eq!(folder.values(&["first", "second", "third"]), [Some(2.0), Some(3.0), Some(4.0)]);
}

/// After a kill between, nothing else would know it.
#[test]
fn a_segment_under_another_name_is_noted_as_missing_before_it_is_put_aside() {
    let folder = two_lives();
    let lost = newest(&folder);
    move_to(&segment(&folder, lost), &segment(&folder, lost + 3));
    fs::remove_file(folder.dir.path().join("segments")).unwrap();
    let (damaged, seen) = (folder.dir.path().join("damaged"), Arc::new(AtomicU64::new(0)));
    let (place, counted) = (segment(&folder, lost + 3), seen.clone());
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path| {
        if call == Call::Rename && path == place {
            let mut notes = fs::read_dir(&damaged).unwrap().map(|one| one.unwrap().file_name());
            let is_noted = notes.any(|name| name.to_str().unwrap().contains(".missing+"));
            counted.store(1 + u64::from(is_noted), Relaxed);
        }
        None
    });
    let host = Host { disk: Arc::new(disk), ..Host::system() };
    assert_eq!(folder.values_on(host, &["first", "second"]).unwrap(), [Some(2.0), None]);
    assert_eq!(seen.load(Relaxed), 2);
}

/// Its number is given again.
#[test]
fn a_segment_without_records_under_another_name_is_not_missed() {
    let folder = two_lives();
    in_life(&folder, async |_| {});
    let empty = newest(&folder);
    move_to(&segment(&folder, empty), &segment(&folder, empty + 3));
    assert_eq!(folder.values(&["first", "second"]), [Some(2.0), Some(3.0)]);
    let found = findings(&folder);
    assert_eq!(found, [format!("misnamed journal segment {:08}.journal", empty + 3)]);
}

#[test]
fn a_note_of_several_numbers_ends_with_the_segment_that_had_points() {
    for is_flushed in [false, true] {
        let folder = two_lives();
        // A segment without a record, whose number is between.
        in_life(&folder, async |_| {});
        folder.live(&[("third", 4.0)], false);
        let (lost, away) = (newest(&folder), folder.dir.path().join("away"));
        move_to(&segment(&folder, lost), &away);
        folder.live(&[("fourth", 5.0)], is_flushed);
        assert_eq!(
            findings(&folder),
            [format!("journal segment {:08}.journal", lost - 1)],
            "which of both is not known"
        );
        move_to(&away, &segment(&folder, lost));
        let folder = again(folder);
        in_life(&folder, async |ingest| {
            ingest.put_back().await.unwrap();
            assert_eq!(read(ingest, "third").await, Some(4.0));
        });
        let folder = again(folder);
        assert_eq!(folder.values(&["third", "fourth"]), [Some(4.0), Some(5.0)]);
        assert_eq!(findings(&folder), [""; 0], "{is_flushed}");
    }
}

/// A folder with a segment of two points, and the bytes that it had after the first.
fn growing_segment() -> (DataFolder, PathBuf, u64) {
    let folder = DataFolder::new();
    folder.live(&[("stored", 1.0)], true);
    let first = AtomicU64::new(0);
    in_life(&folder, async |ingest| {
        send(ingest, "first", 2.0).await;
        // Several pages.
        let mut batch = ingest.batch(ingest::Protocol::LineTcp);
        (0..1000).for_each(|age| batch.point(b"first", time() - 1 - age, 9.0));
        ingest.accept(&mut batch).await;
        first.store(fs::metadata(segment(&folder, newest(&folder))).unwrap().len(), Relaxed);
        send(ingest, "second", 3.0).await;
    });
    let file = segment(&folder, newest(&folder));
    assert!(first.load(Relaxed) < fs::metadata(&file).unwrap().len());
    (folder, file, first.into_inner())
}

#[test]
fn a_segment_that_has_grown_since_it_was_read_is_kept_by_a_flush_and_its_points_are_put_back() {
    let (folder, file, first) = growing_segment();
    let is_short = Arc::new(AtomicBool::new(true));
    let short = is_short.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None)
        .with_changed_lengths(move |path, len| if path == file && short.load(Relaxed) { first } else { len });
    let life = runtime(2);
    life.block_on(async {
        let ingest = folder.open_on(Host { disk: Arc::new(disk), ..Host::system() }).await.unwrap();
        assert_eq!((read(&ingest, "first").await, read(&ingest, "second").await), (Some(2.0), None));
        is_short.store(false, Relaxed);
        ingest.flush().await.unwrap();
        ingest.put_back().await.unwrap();
        assert_eq!((read(&ingest, "first").await, read(&ingest, "second").await), (Some(2.0), Some(3.0)));
        ingest.flush().await.unwrap();
    });
    life.shutdown_timeout(Duration::from_secs(2));
    let folder = again(folder);
    assert_eq!(folder.values(&["stored", "first", "second"]), [Some(1.0), Some(2.0), Some(3.0)]);
    assert_eq!(findings(&folder), [""; 0]);
}

#[test]
fn a_read_of_a_segment_that_ends_before_the_end_of_the_file_is_waited_for_or_made_again_later() {
    for is_waited_for in [true, false] {
        let (folder, file, first) = growing_segment();
        let patience = if is_waited_for { Duration::from_secs(60) } else { Duration::ZERO };
        let folder = DataFolder { read_patience: patience, ..folder };
        let left = Arc::new(AtomicU64::new(if is_waited_for { 40 } else { u64::MAX }));
        let counted = left.clone();
        let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_early_ends(move |path| {
            let ends = path == file && 0 < counted.load(Relaxed);
            counted.fetch_sub(u64::from(ends), Relaxed);
            ends.then_some(first)
        });
        let life = runtime(2);
        life.block_on(async {
            let ingest = folder.open_on(Host { disk: Arc::new(disk), ..Host::system() }).await.unwrap();
            if !is_waited_for {
                assert_eq!(findings(&folder).len(), 1, "{:?}", findings(&folder));
                left.store(0, Relaxed);
                ingest.flush().await.unwrap();
                ingest.put_back().await.unwrap();
            }
            assert_eq!((read(&ingest, "first").await, read(&ingest, "second").await), (Some(2.0), Some(3.0)));
        });
        life.shutdown_timeout(Duration::from_secs(2));
        let folder = again(folder);
        assert_eq!(folder.values(&["stored", "first", "second"]), [Some(1.0), Some(2.0), Some(3.0)]);
        assert_eq!(findings(&folder), [""; 0]);
    }
}

#[test]
fn the_first_segment_is_missed_also_where_nothing_was_stored_yet() {
    let folder = DataFolder::new();
    folder.live(&[("first", 1.0)], false);
    let first = segment(&folder, newest(&folder));
    folder.live(&[("second", 2.0)], false);
    let away = folder.dir.path().join("away");
    move_to(&first, &away);
    assert_eq!(folder.values(&["first", "second"]), [None, Some(2.0)]);
    let name = first.file_name().unwrap().to_str().unwrap();
    assert_eq!(findings(&folder), [format!("journal segment {name}")]);
    move_to(&away, &first);
    let folder = again(folder);
    assert_eq!(folder.values(&["first", "second"]), [Some(1.0), Some(2.0)]);
    assert_eq!(findings(&folder), [""; 0]);
}
