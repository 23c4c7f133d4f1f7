//! Damaged bytes: each fault is noticed, costs the rows of its block, and makes no answer wrong.

use std::path::{Path, PathBuf};

use host::{Disk, Random, SeededRandom};
use metric::Table;

use super::node::{Node, run, table};
use crate::row_file::check_file;

const METRICS: u32 = 400;
const FIRST: u32 = 28_000_100;
const SLOTS: u32 = 90;

fn value(metric: u32, slot: u32) -> f64 {
    f64::from(metric) + f64::from(slot.wrapping_mul(2_654_435_761) % 1000) / 100.0
}

/// Three flushes of 30 slots of every metric, in three files of some blocks.
fn node() -> (Node, Table) {
    let (mut node, table) = (Node::new(), table(60, 10_080, false));
    node.cache_bytes = 0;
    node.restart_on(node.disk.kill());
    for flush in 0..3 {
        let first = FIRST + flush * 30;
        let values = |metric| (first..first + 30).map(|slot| value(metric, slot)).collect();
        let runs: Vec<_> = (0..METRICS).map(|metric| run(table, metric, first, values(metric))).collect();
        node.write(&runs);
        node.points().flush().unwrap();
    }
    (node, table)
}

/// Slots that are missing. Their fetches say that they are damaged; no value is wrong.
fn missing(node: &Node, table: Table) -> usize {
    let mut missing = 0;
    for (metric, cells) in (0..).zip(node.fetch_all(table, METRICS, FIRST..FIRST + SLOTS)) {
        let mut of_metric = 0;
        for place in 0..SLOTS {
            match cells.values.get(place as usize) {
                Some(got) if !got.is_nan() => assert_eq!(*got, value(metric, FIRST + place), "metric {metric}"),
                _ => of_metric += 1,
            }
        }
        assert!(of_metric == 0 || cells.is_damaged, "{of_metric} slots of {metric} are missing silently");
        missing += of_metric;
    }
    missing
}

#[test]
fn a_flipped_bit_costs_at_most_the_rows_of_its_block_and_is_reported() {
    let (whole, table) = node();
    assert_eq!(missing(&whole, table), 0);
    let files = whole.row_files();
    assert_eq!(files.len(), 3);
    let random = SeededRandom::new(5);
    for flip in 0..60 {
        let (path, len) = &files[random.index(files.len())];
        let bit = random.below(len * 8);
        let mut node = Node::new();
        node.cache_bytes = 0;
        let disk = whole.disk.kill();
        disk.rot(path, |bytes| bytes[bit as usize / 8] ^= 1 << (bit % 8)).unwrap();
        node.restart_on(disk);
        let lost = missing(&node, table);
        // A block has at most 16 KiB of rows with 30 slots; the rows of this load have at least 25 bytes.
        assert!(lost <= 30 * (16 << 10) / 25, "flip {flip} of bit {bit} costs {lost} slots");
        assert!(lost < 30 * METRICS as usize, "flip {flip} of bit {bit} costs a whole file");
        let found = node.damage.examples();
        let checked = check_file(&node.disk, path).unwrap();
        assert_eq!(checked.damaged.len(), 1, "{:?}", checked.damaged);
        if checked.damaged[0].what == "index of a file of rows" || lost > 0 || found.len() == 1 {
            assert_eq!(found.len(), 1, "bit {bit}: {found:?}");
        }
        // A merge leaves out what cannot be read, and keeps the bytes. What is missing stays flagged, also after a start.
        node.merge_fully().unwrap();
        assert_eq!(missing(&node, table), lost);
        node.damage = store::DamageLog::new();
        node.restart_on(node.disk.kill());
        assert_eq!(missing(&node, table), lost);
        assert_eq!(node.damage.totals().0 > 0, 0 < lost);
        let kept = node.disk.files(Path::new("/data/damaged"));
        assert_eq!(kept.iter().any(|(path, _)| path.file_name().is_some_and(|name| name != "list")), 0 < lost);
    }
}

#[test]
fn a_block_that_the_disk_does_not_return_is_not_left_out_of_merges() {
    use host::{Call, Fault, FaultPlan};
    let (node, table) = node();
    let fails = || FaultPlan { kinds: vec![Call::Read], at: 4, times: 1000, fault: Fault::EIO };
    node.disk.set_plan(Some(fails()));
    assert!(0 < missing(&node, table));
    node.disk.set_plan(Some(fails()));
    assert!(node.merge_fully().is_err());
    node.disk.set_plan(None);
    assert_eq!(missing(&node, table), 0, "the next read works");
    node.merge_fully().unwrap();
    assert_eq!(missing(&node, table), 0);
    assert_eq!(node.disk.files(Path::new("/data/damaged")), []);
}

#[test]
fn a_file_that_cannot_be_opened_fails_the_fetch() {
    use host::{Call, Fault, FaultPlan};
    let (mut node, table) = node();
    node.restart_on(node.disk.kill());
    node.disk.set_plan(Some(FaultPlan { kinds: vec![Call::Open], at: 0, times: 1, fault: Fault::Error(24) }));
    assert!(node.is_unreadable(table, 7, FIRST..FIRST + SLOTS), "too many open files");
    assert!(!node.is_unreadable(table, 7, FIRST..FIRST + SLOTS));
    assert_eq!(node.damage.examples(), []);
}

#[test]
fn folders_that_cannot_be_synced_or_listed_do_not_refuse_the_start() {
    use host::{Call, Fault, FaultPlan};
    let (mut node, table) = node();
    let plan = |call, at, times| Some(FaultPlan { kinds: vec![call], at, times, fault: Fault::EIO });
    let disk = node.disk.kill();
    disk.set_plan(plan(Call::Sync, 0, 1000));
    node.restart_on(disk);
    node.disk.set_plan(None);
    assert_eq!(missing(&node, table), 0);
    let found = node.damage.examples();
    assert!(found.len() == 3 && found.iter().all(|damage| damage.what == "folder"), "{found:?}");

    // The trash, the store and the table are listed before that of the window.
    let disk = node.disk.kill();
    disk.set_plan(plan(Call::ReadDir, 3, 3));
    node.restart_on(disk);
    node.disk.set_plan(None);
    assert_eq!(node.damage.examples().len(), 4, "{:?}", node.damage.examples());
    assert!(node.fetch(table, 7, FIRST..FIRST + SLOTS).is_damaged);
    node.write(&[run(table, 7, FIRST + SLOTS, vec![5.0])]);
    node.points().flush().unwrap();
    node.restart_on(node.disk.kill());
    assert_eq!(missing(&node, table), 0);
    assert_eq!(node.fetch(table, 7, FIRST + SLOTS..FIRST + SLOTS + 1).values, [5.0]);
}

#[test]
fn files_that_could_not_be_opened_at_a_start_are_opened_later() {
    use host::{Call, Fault, FaultPlan};
    let fails = |call, at, times| Some(FaultPlan { kinds: vec![call], at, times, fault: Fault::Error(24) });
    // The manifest is opened first; the trash, the store and the table are listed before the window.
    for (call, at, times) in [(Call::Open, 2, 6), (Call::Open, 2, 9), (Call::ReadDir, 3, 3)] {
        let (mut node, table) = node();
        let disk = node.disk.kill();
        disk.set_plan(fails(call, at, times));
        node.restart_on(disk);
        node.disk.set_plan(None);
        let found = node.damage.examples();
        assert!(
            !found.is_empty() && found.iter().all(|damage| damage.how.contains("until it can be read")),
            "{found:?}"
        );
        node.write(&[run(table, 7, FIRST + SLOTS, vec![5.0])]);
        node.points().flush().unwrap();
        assert!(0 < missing(&node, table));
        // As long as the disk does not return them, nothing changes.
        node.disk.set_plan(fails(call, 0, 1000));
        assert!(node.points().open_again().unwrap());
        node.disk.set_plan(None);
        assert_eq!(node.damage.examples(), found);
        assert!(node.fetch(table, 7, FIRST..FIRST + SLOTS).is_damaged);

        assert!(!node.points().open_again().unwrap());
        assert_eq!(missing(&node, table), 0);
        assert_eq!(node.damage.examples(), []);
        assert_eq!(node.damage.mended(), found.len() as u64);
        assert!(!node.fetch(table, 7, FIRST..FIRST + SLOTS).is_damaged);
        node.merge_fully().unwrap();
        node.restart_on(node.disk.kill());
        assert_eq!((missing(&node, table), node.damage.examples()), (0, vec![]));
        assert_eq!(node.fetch(table, 7, FIRST + SLOTS..FIRST + SLOTS + 1).values, [5.0]);
    }
}

#[test]
fn files_in_use_stay_in_use_while_others_are_opened_that_could_not_be() {
    let (mut node, table) = node();
    let files = node.row_files();
    let spoil = |node: &Node, file: usize| node.disk.spoil(&files[file].0, 0..files[file].1, u64::MAX).unwrap();
    let disk = node.disk.kill();
    disk.spoil(&files[0].0, 0..files[0].1, u64::MAX).unwrap();
    node.restart_on(disk);
    let found = node.damage.examples();
    assert!(found.len() == 1 && found[0].how.contains("until it can be read"), "{found:?}");
    assert_eq!(missing(&node, table), 30 * METRICS as usize);
    node.disk.heal();
    spoil(&node, 1);
    assert!(!node.points().open_again().unwrap(), "the file is read for which this waits");
    assert_eq!(node.damage.examples(), []);
    assert_eq!(missing(&node, table), 30 * METRICS as usize, "another cannot be read meanwhile");
    let found = node.damage.examples();
    assert!(!found.is_empty(), "a query reports it");
    node.disk.heal();
    assert_eq!(missing(&node, table), 0);
    node.merge_fully().unwrap();
    assert_eq!(missing(&node, table), 0);
}

#[test]
fn a_file_that_cannot_be_opened_once_its_folder_can_be_listed_is_reported() {
    use host::{Call, Fault, FaultPlan};
    let (mut node, table) = node();
    let files = node.row_files();
    let disk = node.disk.kill();
    // The trash, the store and the table are listed before the window.
    disk.set_plan(Some(FaultPlan { kinds: vec![Call::ReadDir], at: 3, times: 3, fault: Fault::EIO }));
    node.restart_on(disk);
    node.disk.set_plan(None);
    let whats = |node: &Node| node.damage.examples().iter().map(|damage| damage.what).collect::<Vec<_>>();
    assert_eq!(whats(&node), ["folder"]);
    node.disk.spoil(&files[1].0, 0..files[1].1, u64::MAX).unwrap();
    for _ in 0..2 {
        assert!(node.points().open_again().unwrap());
        assert_eq!(missing(&node, table), 30 * METRICS as usize);
        assert_eq!(whats(&node), ["file of rows"]);
    }
    node.disk.heal();
    assert!(!node.points().open_again().unwrap());
    assert_eq!((missing(&node, table), whats(&node)), (0, vec![]));
}

#[test]
fn a_missing_file_is_reported_also_where_a_start_cannot_list_its_folder() {
    use host::{Call, Fault, FaultPlan};
    let (mut node, table) = node();
    let (path, _) = &node.row_files()[1];
    node.disk.remove_file(path).unwrap();
    node.restart_on(node.disk.kill());
    node.damage = store::DamageLog::new();
    let disk = node.disk.kill();
    disk.set_plan(Some(FaultPlan { kinds: vec![Call::ReadDir], at: 3, times: 3, fault: Fault::EIO }));
    node.restart_on(disk);
    node.disk.set_plan(None);
    let whats = |node: &Node| node.damage.examples().iter().map(|damage| damage.what).collect::<Vec<_>>();
    assert_eq!(whats(&node), ["folder", "rows that were lost"]);
    assert!(!node.points().open_again().unwrap());
    assert_eq!((missing(&node, table), whats(&node)), (30 * METRICS as usize, vec!["rows that were lost"]));
}

/// Ten slots of every metric, corrected by a second flush; a block of the corrections is damaged.
fn corrected() -> (Node, Table) {
    let (mut node, table) = (Node::new(), table(60, 10_080, false));
    node.cache_bytes = 0;
    node.restart_on(node.disk.kill());
    for flush in [1.25, 2.25] {
        let values = |metric| (0..10).map(|slot| flush + f64::from(metric * 7919 % 100 + slot * 31 % 7)).collect();
        let runs: Vec<_> = (0..METRICS).map(|metric| run(table, metric, FIRST, values(metric))).collect();
        node.write(&runs);
        node.points().flush().unwrap();
    }
    let (path, _) = node.row_files().remove(1);
    node.disk.rot(&path, |bytes| bytes[200] ^= 1).unwrap();
    (node, table)
}

/// Metrics whose values are not those of the correction. Each is flagged.
fn older(node: &Node, table: Table) -> usize {
    let cells = node.fetch_all(table, METRICS, FIRST..FIRST + 10);
    let is_older = |cells: &store::Cells| cells.values.iter().any(|value| value.fract() != 0.25 || cells.is_damaged);
    let right = |metric: u32, cells: &store::Cells| cells.values[0] == 2.25 + f64::from(metric * 7919 % 100);
    (0..).zip(&cells).for_each(|(metric, cells)| assert!(right(metric, cells) || cells.is_damaged, "metric {metric}"));
    cells.iter().filter(|cells| is_older(cells)).count()
}

#[test]
fn a_value_before_a_damaged_correction_stays_flagged_after_merges_and_starts() {
    let (mut node, table) = corrected();
    let before = older(&node, table);
    assert!(0 < before);
    node.merge_fully().unwrap();
    assert_eq!(older(&node, table), before);
    node.damage = store::DamageLog::new();
    node.restart_on(node.disk.kill());
    assert_eq!(older(&node, table), before);
    let found = node.damage.examples();
    assert_eq!(found.iter().map(|damage| damage.what).collect::<Vec<_>>(), ["rows that were lost"]);
    assert!(found[0].metrics.is_some() && found[0].span.is_some());
    // Points that come later are not doubted, and the window ends it.
    node.write(&[run(table, 7, FIRST + 10, vec![5.0])]);
    node.points().flush().unwrap();
    assert!(!node.fetch(table, 7, FIRST + 10..FIRST + 11).is_damaged);
    node.points().expire(i64::from(FIRST) * 60 + 60 * 40_000).unwrap();
    node.damage = store::DamageLog::new();
    node.restart_on(node.disk.kill());
    assert_eq!(node.damage.examples(), []);
}

/// Values of all thirty slots in the first flush, of slots 10 to 19 in the second one and of 15 to 24 in the third one, and the path of
/// the second file.
fn three_layers(is_aggregated: bool) -> (Node, Table, PathBuf) {
    let (mut node, table) = (Node::new(), table(60, 10_080, is_aggregated));
    node.cache_bytes = 0;
    node.restart_on(node.disk.kill());
    for (value, slots) in [(1.0, 0..30), (2.0, 10..20), (3.0, 15..25)] {
        node.write(&[run(table, 7, FIRST + slots.start, vec![value; slots.len()])]);
        node.points().flush().unwrap();
    }
    let (path, _) = node.row_files().remove(1);
    (node, table, path)
}

#[test]
fn values_of_files_before_one_that_cannot_be_read_are_shown_as_outdated_and_later_ones_are_not() {
    for is_aggregated in [false, true] {
        for way in ["rot", "missing", "unreadable", "not opened"] {
            let (mut node, table, path) = three_layers(is_aggregated);
            let whole = node.fetch(table, 7, FIRST..FIRST + 30);
            assert_eq!((whole.is_damaged, whole.outdated_at), (false, vec![]));
            let disk = node.disk.kill();
            match way {
                "rot" => disk.rot(&path, |bytes| bytes[100] ^= 1).unwrap(),
                "missing" => disk.remove_file(&path).unwrap(),
                // The header can be read, or nothing.
                "unreadable" => disk.spoil(&path, 90..91, u64::MAX).unwrap(),
                _ => disk.spoil(&path, 0..1 << 20, u64::MAX).unwrap(),
            }
            node.restart_on(disk);
            let cells = node.fetch(table, 7, FIRST..FIRST + 30);
            let shown: Vec<f64> = (0..30).map(|slot| if (15..25).contains(&slot) { 3.0 } else { 1.0 }).collect();
            assert_eq!((cells.values, cells.is_damaged), (shown, true), "{way}");
            assert_eq!(cells.counts, if is_aggregated { vec![3; 30] } else { vec![] });
            // Slots after its newest are as they were. Of files that are not open it is not known which are newer, and which these are.
            let outdated = if way == "not opened" { "[0..30]" } else { "[0..15]" };
            assert_eq!(format!("{:?}", cells.outdated_at), outdated, "{way}");
            // In memory, and in later files.
            node.write(&[run(table, 7, FIRST + 5, vec![4.0, 5.0])]);
            let is_outdated = |node: &Node| {
                let cells = node.fetch(table, 7, FIRST + 4..FIRST + 8);
                assert_eq!(cells.values, [1.0, 4.0, 5.0, 1.0]);
                (0..4).map(|place| cells.is_outdated(place)).collect::<Vec<_>>()
            };
            assert_eq!(is_outdated(&node), [true, false, false, true], "{way}");
            node.points().flush().unwrap();
            if way != "not opened" {
                assert_eq!(is_outdated(&node), [true, false, false, true], "{way}");
            }
        }
    }
}

#[test]
fn values_that_merges_and_starts_find_beneath_lost_rows_stay_outdated() {
    let (mut node, table, path) = three_layers(false);
    let disk = node.disk.kill();
    disk.rot(&path, |bytes| bytes[100] ^= 1).unwrap();
    node.restart_on(disk);
    node.merge_fully().unwrap();
    assert_eq!(node.row_files().len(), 1);
    let outdated = |node: &Node| format!("{:?}", node.fetch(table, 7, FIRST..FIRST + 30).outdated_at);
    // Which of the merged rows were newer is not known any more. Slots after the newest lost one are as they were.
    assert_eq!(outdated(&node), "[0..20]");
    node.write(&[run(table, 7, FIRST + 5, vec![4.0, 5.0])]);
    node.points().flush().unwrap();
    assert_eq!(outdated(&node), "[0..5, 7..20]");
    // A start takes all that it finds for older ones.
    node.restart_on(node.disk.kill());
    assert_eq!(outdated(&node), "[0..20]");
    node.write(&[run(table, 7, FIRST, vec![4.0; 20])]);
    assert_eq!(outdated(&node), "[]");
    node.points().flush().unwrap();
    assert_eq!(outdated(&node), "[]");
}

#[test]
fn what_a_file_without_a_footer_may_have_had_stays_flagged_after_merges_and_starts() {
    let (mut node, table) = (Node::new(), table(60, 10_080, false));
    node.cache_bytes = 0;
    node.restart_on(node.disk.kill());
    // Two groups of slots of one window; the end of the first file is cut off, with all rows of the second group.
    let (early, late) = (FIRST, FIRST + 1000);
    for first in [early, late] {
        let values = |metric| (first..first + 30).map(|slot| value(metric, slot)).collect();
        let runs: Vec<_> = (0..METRICS).map(|metric| run(table, metric, first, values(metric))).collect();
        node.write(&runs);
    }
    node.points().flush().unwrap();
    node.write(&[run(table, 7, early + 40, vec![2.0])]);
    node.points().flush().unwrap();
    let (path, len) = node.row_files().into_iter().max_by_key(|(_, len)| *len).unwrap();
    let disk = node.disk.kill();
    disk.rot(&path, |bytes| bytes.truncate(len as usize * 45 / 100)).unwrap();
    node.restart_on(disk);
    // Its end may be there within a minute.
    node.clock.advance(std::time::Duration::from_secs(60));
    assert!(!node.points().open_again().unwrap());
    assert_eq!(node.fetch(table, 7, early..early + 1).values, [value(7, early)], "the first rows can be read");
    let is_flagged = |node: &Node| node.fetch(table, 7, late..late + 10).is_damaged;
    assert!(is_flagged(&node));
    node.merge_fully().unwrap();
    assert_eq!(node.row_files().len(), 1);
    assert!(is_flagged(&node), "after a merge");
    node.restart_on(node.disk.kill());
    assert!(is_flagged(&node), "after a start");
}

#[test]
fn a_merge_that_dies_at_any_call_leaves_no_older_value_unflagged() {
    use host::{Fault, FaultPlan};
    for at in 0..60 {
        let (mut node, table) = corrected();
        node.disk.set_plan(Some(FaultPlan::once(at, Fault::Die)));
        let merged = node.merge_fully();
        node.disk.set_plan(None);
        node.restart_on(if at % 2 == 0 { node.disk.kill() } else { node.disk.crash(&SeededRandom::new(at)) });
        assert!(0 < older(&node, table), "dies at {at}, {merged:?}");
        node.merge_fully().unwrap();
        assert!(0 < older(&node, table), "dies at {at}, {merged:?}");
    }
}

#[test]
fn rows_of_a_missing_file_are_flagged_from_every_start_on() {
    let (mut node, table) = node();
    let (path, _) = node.row_files().remove(2);
    let disk = node.disk.kill();
    disk.remove_file(&path).unwrap();
    node.restart_on(disk);
    let lost = missing(&node, table);
    assert_eq!(lost, 30 * METRICS as usize);
    node.damage = store::DamageLog::new();
    node.restart_on(node.disk.kill());
    assert_eq!(missing(&node, table), lost);
    assert!(0 < node.damage.totals().0);
}

#[test]
fn a_file_that_goes_away_costs_its_rows_and_no_others() {
    let (node, table) = node();
    let (path, _) = node.row_files().remove(1);
    node.disk.remove_file(&path).unwrap();
    assert_eq!(missing(&node, table), 30 * METRICS as usize);
    assert!(0 < node.damage.totals().0);
    node.write(&[run(table, 7, FIRST + SLOTS, vec![5.0])]);
    node.points().flush().unwrap();
    // Its window is not merged; others are.
    let other = super::node::table(60, 20_160, false);
    for slot in 0..5 {
        node.write(&[run(other, 7, FIRST + slot, vec![5.0])]);
        node.points().flush().unwrap();
    }
    let before = node.row_files().len();
    node.merge();
    assert!(node.row_files().len() < before);
    assert_eq!(missing(&node, table), 30 * METRICS as usize);
}

fn manifest() -> PathBuf {
    PathBuf::from("/data/store/manifest")
}

#[test]
fn a_missing_file_is_reported_and_the_others_are_read() {
    let (mut node, table) = node();
    let (path, _) = node.row_files().remove(1);
    let disk = node.disk.kill();
    disk.remove_file(&path).unwrap();
    node.restart_on(disk);
    let found = node.damage.examples();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].what, &*found[0].how), ("file of rows", "it is missing"));
    assert_eq!(found[0].metrics.map(|(first, last)| (first.0, last.0)), Some((0, METRICS - 1)));
    let stored = node.fetch(table, 7, FIRST..FIRST + SLOTS).values;
    assert_eq!(stored.iter().filter(|value| !value.is_nan()).count(), 60);
}

#[test]
fn all_files_of_a_window_that_are_missing_are_reported() {
    let (mut node, _) = node();
    let disk = node.disk.kill();
    for (path, _) in node.row_files() {
        disk.remove_file(&path).unwrap();
    }
    disk.remove_dir_all(node.row_files()[0].0.parent().unwrap()).unwrap();
    node.restart_on(disk);
    assert_eq!(node.damage.examples().len(), 3);
}

#[test]
fn a_damaged_or_missing_manifest_is_made_again_of_the_files() {
    for is_missing in [false, true] {
        let (mut node, table) = node();
        let disk = node.disk.kill();
        if is_missing {
            disk.remove_file(&manifest()).unwrap();
        } else {
            disk.rot(&manifest(), |bytes| bytes[40] ^= 1).unwrap();
        }
        node.restart_on(disk);
        assert_eq!(missing(&node, table), 0);
        let found = node.damage.examples();
        assert!(!found.is_empty() && found.iter().all(|damage| damage.what == "manifest"), "{found:?}");
        node.damage = store::DamageLog::new();
        for _ in 0..2 {
            node.damage = store::DamageLog::new();
            node.restart_on(node.disk.kill());
            let found = node.damage.examples();
            assert!(
                found.len() == 1 && found[0].how.starts_with("a start at 2023-11-14"),
                "each start says it: {found:?}"
            );
        }
        // As a repair does.
        node.points().give_up_missing();
        node.points().flush().unwrap();
        node.damage = store::DamageLog::new();
        node.restart_on(node.disk.kill());
        assert_eq!(node.damage.examples(), []);
        assert_eq!(missing(&node, table), 0);
    }
}

#[test]
fn a_file_without_any_readable_block_moves_to_damaged() {
    let (mut node, table) = node();
    let (path, _) = node.row_files().remove(0);
    let disk = node.disk.kill();
    disk.rot(&path, |bytes| bytes.fill(7)).unwrap();
    node.restart_on(disk);
    let found = node.damage.examples();
    assert!(found.iter().any(|damage| damage.moved_to.is_some()), "{found:?}");
    assert!(!node.disk.exists(&path));
    let stored = node.fetch(table, 7, FIRST..FIRST + SLOTS).values;
    assert_eq!(stored.iter().filter(|value| !value.is_nan()).count(), 60);
}

#[test]
fn any_bytes_and_any_part_of_a_file_are_opened_without_a_panic() {
    let (whole, table) = node();
    let (path, len) = whole.row_files().remove(1);
    let bytes = whole.disk.read(&path).unwrap();
    let random = SeededRandom::new(9);
    for round in 0..45 {
        let mut bytes = bytes.clone();
        match round % 3 {
            0 => bytes.truncate(random.index(len as usize)),
            1 => {
                let (from, to) = (random.index(bytes.len()), random.index(bytes.len()));
                bytes[from.min(to)..from.max(to)].iter_mut().for_each(|byte| *byte = random.bits() as u8);
            }
            _ => {
                let at = random.index(bytes.len());
                bytes.splice(at..at, b"PLBkPLBi\xff\xff\xff\xff".iter().copied().chain(std::iter::repeat_n(0, 40)));
            }
        }
        let disk = whole.disk.kill();
        disk.rot(&path, |file| file.clone_from(&bytes)).unwrap();
        if let Ok(report) = check_file(&disk, &path) {
            assert!(report.rows <= u64::from(METRICS) && !report.damaged.is_empty(), "{report:?}");
        }
        let mut node = Node::new();
        node.cache_bytes = 0;
        node.restart_on(disk);
        for (metric, cells) in (0..).zip(node.fetch_all(table, METRICS, FIRST..FIRST + SLOTS)) {
            for (place, got) in cells.values.iter().enumerate().filter(|(_, got)| !got.is_nan()) {
                assert_eq!(*got, value(metric, FIRST + place as u32), "metric {metric}");
            }
        }
        assert!(node.damage.totals().0 > 0);
    }
}

#[test]
fn a_snapshot_is_a_store_of_its_own() {
    let (node, table) = node();
    let into = PathBuf::from("/data/backup");
    let linked = node.points().snapshot(&into).unwrap();
    assert_eq!(linked.files.len(), 3);
    node.merge_fully().unwrap();
    node.write(&[run(table, 7, FIRST, vec![-1.0])]);
    node.points().flush().unwrap();
    let mut copy = Node::new();
    let disk = node.disk.kill();
    disk.rename(Path::new("/data/store"), Path::new("/data/other")).unwrap();
    disk.rename(&into, Path::new("/data/store")).unwrap();
    copy.restart_on(disk);
    assert_eq!(missing(&copy, table), 0);
    assert_eq!(copy.damage.examples(), []);
}
