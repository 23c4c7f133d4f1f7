//! Files of rows in the place of others, and those whose rows a merged file has: a verification says what a start would.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use backup::{Repaired, costs, repair, verify};
use host::{Disk, SimulatedDisk};

use super::node::{DATA, Life, filled, host, new_disk};

fn files_of_rows(disk: &SimulatedDisk) -> Vec<PathBuf> {
    let all = disk.files(Path::new(DATA)).into_iter().map(|(path, _)| path);
    all.filter(|path| path.extension().is_some_and(|end| end == "rows")).collect()
}

/// Exchanges two files, or folders.
fn exchange(disk: &SimulatedDisk, one: &Path, other: &Path) {
    let aside = Path::new("/aside");
    disk.rename(one, aside).unwrap();
    disk.rename(other, one).unwrap();
    disk.rename(aside, other).unwrap();
}

/// The files that a verification finds in the place of others.
fn misplaced(disk: &SimulatedDisk) -> Vec<PathBuf> {
    let report = verify(disk, Path::new(DATA)).unwrap();
    let found = report.faults().filter(|(_, part)| part.how.contains("it says that it is"));
    let mut files: Vec<_> = found.map(|(file, _)| Path::new(DATA).join(&file.path)).collect();
    files.sort();
    files
}

fn repair_on(disk: &SimulatedDisk, dry_run: bool) -> Repaired {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    repair(&host(&shared), Path::new(DATA), dry_run).unwrap()
}

#[test]
fn files_of_rows_in_the_place_of_others_are_damage_that_costs_their_rows() {
    let (base, _) = filled(&new_disk());
    let all = files_of_rows(&base);
    let of_table = |path: &PathBuf| path.ancestors().nth(2).unwrap().to_owned();
    let of_window = |path: &PathBuf| path.parent().unwrap().to_owned();
    let pair = |is_pair: &dyn Fn(&PathBuf, &PathBuf) -> bool| {
        let pairs = all.iter().flat_map(|one| all.iter().map(move |other| (one, other)));
        let (one, other) = pairs.into_iter().find(|(one, other)| one < other && is_pair(one, other)).expect("a pair");
        (one.clone(), other.clone())
    };
    let (one, other) = pair(&|one, other| of_window(one) == of_window(other));
    let (of_one, of_other) = pair(&|one, other| of_table(one) != of_table(other));
    let of_tables: Vec<PathBuf> = [&of_one, &of_other].into_iter().map(of_table).collect();

    type Change<'a> = (&'a str, &'a dyn Fn(&SimulatedDisk));
    let cases: [Change<'_>; 4] = [
        ("two files of a window", &|disk| exchange(disk, &one, &other)),
        ("two files of two tables", &|disk| exchange(disk, &of_one, &of_other)),
        ("two tables", &|disk| exchange(disk, &of_tables[0], &of_tables[1])),
        ("one file twice", &|disk| {
            let bytes = disk.read(&one).unwrap();
            disk.rot(&other, |there| *there = bytes.clone()).unwrap();
        }),
    ];
    for (case, change) in cases {
        let disk = base.kill();
        change(&disk);
        let found = misplaced(&disk);
        let shared: Arc<dyn Disk> = Arc::new(disk.kill());
        let life = Life::start(&shared, Path::new(DATA)).unwrap();
        assert!(0 < life.findings(), "{case}");
        life.end();
        let aside = files_of_rows(&disk).into_iter().filter(|path| !shared.exists(path)).collect::<Vec<_>>();
        assert_eq!(found, aside, "{case}: those that a start puts aside");
        assert!(repair_on(&disk, true).before.faults().any(|(_, part)| costs(part)), "{case}");
        let repaired = repair_on(&disk, false);
        assert!(repaired.after.unwrap().is_good(), "{case}");
        assert!(verify(&disk, Path::new(DATA)).unwrap().is_good(), "{case}");
    }
}

#[test]
fn a_copy_of_a_file_of_rows_under_a_number_that_the_manifest_does_not_have_costs_nothing() {
    let (disk, whole) = filled(&new_disk());
    let one = files_of_rows(&disk).remove(0);
    let bytes = disk.read(&one).unwrap();
    let copy = one.with_file_name("900-900.rows");
    disk.open(&copy, host::Open::Create).unwrap().write_shared(&bytes).unwrap();
    let report = verify(&disk, Path::new(DATA)).unwrap();
    assert!(!report.is_good() && report.faults().all(|(_, part)| !costs(part)), "{report:?}");
    assert!(repair_on(&disk, false).after.unwrap().is_good());
    let shared: Arc<dyn Disk> = Arc::new(disk.kill());
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    assert_eq!((life.served(), life.findings()), (whole, 0));
    life.end();
}

#[test]
fn a_manifest_of_another_store_is_damaged_and_says_nothing_of_the_files() {
    let ((disk, whole), (other, _)) = (filled(&new_disk()), filled(&new_disk()));
    let manifest = Path::new(DATA).join("store/manifest");
    let theirs = other.read(&manifest).unwrap();
    disk.rot(&manifest, |bytes| *bytes = theirs.clone()).unwrap();
    let report = verify(&disk, Path::new(DATA)).unwrap();
    let found: Vec<_> = report.faults().map(|(_, part)| (part.what, part.how.contains("it is of the store"))).collect();
    assert_eq!(found, [("manifest", true)]);
    let shared: Arc<dyn Disk> = Arc::new(disk.kill());
    let life = Life::start(&shared, Path::new(DATA)).unwrap();
    assert_eq!(life.served(), whole);
    life.end();
    assert!(repair_on(&disk, false).after.unwrap().is_good());
}

#[test]
fn a_spec_and_a_journal_of_another_store_are_both_found() {
    let ((disk, _), (other, _)) = (filled(&new_disk()), filled(&new_disk()));
    let theirs: Vec<PathBuf> = other.files(Path::new(DATA)).into_iter().map(|(path, _)| path).collect();
    let is_moved =
        |path: &&PathBuf| path.ends_with("store/spec") || path.extension().is_some_and(|end| end == "journal");
    for path in theirs.iter().filter(is_moved) {
        let bytes = other.read(path).unwrap();
        disk.rot(path, |here| *here = bytes.clone()).unwrap();
    }
    let report = verify(&disk, Path::new(DATA)).unwrap();
    let mut found: Vec<_> = report.faults().map(|(_, part)| part.what).collect();
    found.sort_unstable();
    assert_eq!(found, ["journal segment of another store", "spec"]);
    let shared: Arc<dyn Disk> = Arc::new(disk.kill());
    assert!(Life::start(&shared, Path::new(DATA)).is_err());
}

#[test]
fn a_file_whose_rows_a_merged_one_has_is_not_missing() {
    let disk = new_disk();
    let start = || Life::start(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Path::new(DATA)).unwrap();
    let life = start();
    for minutes in [30..31, 31..32, 32..33] {
        life.send(super::node::points("a", 2, minutes));
        life.flush();
    }
    life.end();
    let manifest = Path::new(DATA).join("store/manifest");
    let before = disk.read(&manifest).unwrap();
    let listed = files_of_rows(&disk);
    let life = start();
    life.merge();
    let whole = life.served();
    life.end();
    assert!(listed.iter().any(|path| !disk.exists(path)), "some are merged");
    assert!(verify(&disk, Path::new(DATA)).unwrap().is_good());
    disk.rot(&manifest, |bytes| *bytes = before.clone()).unwrap();
    let report = verify(&disk, Path::new(DATA)).unwrap();
    assert!(report.is_good(), "{report:?}");
    let life = start();
    assert_eq!((life.served(), life.findings()), (whole, 0));
    life.end();
}

#[test]
fn a_repair_gives_up_a_file_of_rows_that_a_start_did_not_find() {
    let (disk, _) = filled(&new_disk());
    let gone = files_of_rows(&disk).remove(0);
    disk.remove_file(&gone).unwrap();
    let start = || Life::start(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Path::new(DATA)).unwrap();
    let life = start();
    let served = life.served();
    life.end();
    let gone = gone.strip_prefix(DATA).unwrap().to_owned();
    let dry = repair_on(&disk, true);
    assert_eq!((dry.given_up, dry.after.is_none()), (vec![gone.clone()], true));
    let repaired = repair_on(&disk, false);
    assert_eq!(repaired.given_up, [gone]);
    assert!(repaired.before.is_good() && repaired.after.unwrap().is_good());
    let again = repair_on(&disk, false);
    assert!(again.given_up.is_empty() && again.after.is_none());
    let life = start();
    assert!(life.findings() == 1 && life.served() == served, "that its rows are lost stays reported");
    assert_eq!(life.back_up().unwrap().manifest.lacking, Vec::<String>::new(), "nothing waits for it");
    life.end();
}
