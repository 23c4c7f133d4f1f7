//! Files of rows that are missing at a start and are put back before a later one: nothing shows that they were away.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use backup::{restore, verify};
use host::{Disk, SimulatedDisk};

use super::node::{BACKUPS, DATA, Life, NOW, Served, new_disk};

fn start(disk: &SimulatedDisk) -> Life {
    start_in(disk, DATA)
}

fn start_in(disk: &SimulatedDisk, data: &str) -> Life {
    Life::start(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Path::new(data)).unwrap()
}

/// Points of some metrics, so many seconds behind each of these minutes.
fn points(minutes: std::ops::Range<i64>, offsets: &[i64], value: f64) -> Vec<(String, i64, f64)> {
    let mut points = Vec::new();
    for minute in minutes {
        for metric in 0..5 {
            let point =
                |offset: &i64| (format!("a.m{metric}"), NOW - 60 * minute + offset, value + (minute + offset) as f64);
            points.extend(offsets.iter().map(point));
        }
    }
    points
}

/// Where the file of this place is meanwhile.
fn aside(n: usize) -> PathBuf {
    PathBuf::from(format!("/aside/{n}"))
}

/// Moves the files of rows of tables aside whose names contain `table`. Returns their paths in the data folder.
fn hide(disk: &SimulatedDisk, table: &str) -> Vec<PathBuf> {
    let all = disk.files(&Path::new(DATA).join("store"));
    let is_meant =
        |path: &PathBuf| path.extension().is_some_and(|end| end == "rows") && path.to_string_lossy().contains(table);
    let mut hidden: Vec<PathBuf> = all.into_iter().map(|(path, _)| path).filter(is_meant).collect();
    hidden.sort();
    assert!(!hidden.is_empty(), "{table}");
    disk.create_dir_all(Path::new("/aside")).unwrap();
    hidden.iter().enumerate().for_each(|(n, path)| disk.rename(path, &aside(n)).unwrap());
    hidden.iter().map(|path| path.strip_prefix(DATA).unwrap().to_owned()).collect()
}

/// Puts hidden files into a data folder.
fn put(disk: &SimulatedDisk, hidden: &[PathBuf], data: &str) {
    for (n, path) in hidden.iter().enumerate() {
        let path = Path::new(data).join(path);
        disk.create_dir_all(path.parent().unwrap()).unwrap();
        disk.rename(&aside(n), &path).unwrap();
    }
}

/// What is served in the end. Late points come in the second life.
fn lived(table: Option<&str>) -> Served {
    let disk = new_disk();
    let life = start(&disk);
    life.send(points(10..40, &[0, 10, 20, 30], 100.0));
    life.flush();
    life.end();
    let second = || {
        let life = start(&disk);
        // In minutes that have points, in some that have none, and in place of points.
        life.send(points(20..30, &[40, 50], 500.0));
        life.send(points(40..45, &[0, 10, 20, 50], 600.0));
        life.send(points(35..38, &[0, 20], 700.0));
        life.flush();
        life.end();
    };
    match table {
        None => second(),
        Some(table) => {
            let hidden = hide(&disk, table);
            second();
            put(&disk, &hidden, DATA);
        }
    }
    for _ in 0..2 {
        let life = start(&disk);
        life.put_back();
        life.flush();
        assert_eq!(life.findings(), 0, "{table:?}");
        life.end();
    }
    let life = start(&disk);
    let served = life.served();
    life.end();
    assert!(verify(&disk, Path::new(DATA)).unwrap().is_good());
    served
}

#[test]
fn a_missing_manifest_is_damage() {
    let disk = new_disk();
    let life = start(&disk);
    life.send(points(10..40, &[0], 100.0));
    life.flush();
    life.end();
    let report = || verify(&disk, Path::new(DATA)).unwrap();
    assert!(report().is_good());
    disk.remove_file(&Path::new(DATA).join("store/manifest")).unwrap();
    assert!(!report().is_good());
    hide(&disk, "_aggr");
    assert!(!report().is_good());
}

#[test]
fn late_points_that_come_while_files_of_rows_are_away_are_in_all_stages_once_these_are_back() {
    let expected = lived(None);
    assert!(expected.iter().all(|(_, values)| 30 < values.len()), "both stages have values");
    for table in ["p_10s_0", "_aggr", "datapoints"] {
        let served = lived(Some(table));
        for (name, values) in &expected {
            assert_eq!(served.get(name), Some(values), "{table}: {name}");
        }
        assert_eq!(served.len(), expected.len());
    }
}

/// The same, where the files are away when a backup is made, which is restored: what is served while they are still away, and once
/// they are put into the restored folder.
fn restored_without(table: Option<&str>) -> Served {
    let disk = new_disk();
    let life = start(&disk);
    life.send(points(10..40, &[0, 10, 20, 30], 100.0));
    life.flush();
    life.end();
    let hidden = table.map(|table| hide(&disk, table)).unwrap_or_default();
    let life = start(&disk);
    life.send(points(20..30, &[40, 50], 500.0));
    let made = life.back_up().unwrap();
    life.end();
    let lacking: Vec<PathBuf> = made.manifest.lacking.iter().map(PathBuf::from).collect();
    assert_eq!((&lacking, made.damaged.is_empty()), (&hidden, hidden.is_empty()), "it says what it lacks");
    let to = Path::new("/restored");
    let restored = restore(&disk, Path::new(BACKUPS), to).unwrap();
    assert_eq!(restored.manifest.version, if hidden.is_empty() { 1 } else { 2 });
    let mut gone: Vec<PathBuf> = restored.gone.iter().map(|path| Path::new("store").join(path)).collect();
    gone.sort();
    assert_eq!(gone, hidden);
    for offsets in [[0, 10, 20, 50], [5, 15, 25, 35]] {
        let life = start_in(&disk, "/restored");
        assert_eq!(hidden.is_empty(), life.findings() == 0, "each start says what is lost");
        life.send(points(36..45, &offsets, 600.0));
        life.flush();
        life.put_back();
        life.end();
    }
    put(&disk, &hidden, "/restored");
    for _ in 0..2 {
        let life = start_in(&disk, "/restored");
        life.put_back();
        life.flush();
        assert_eq!(life.findings(), 0, "{table:?}");
        life.end();
    }
    let life = start_in(&disk, "/restored");
    let served = life.served();
    life.end();
    assert!(verify(&disk, to).unwrap().is_good());
    served
}

#[test]
fn a_restored_backup_waits_for_no_file_that_it_lacks_and_uses_one_that_is_put_back() {
    let expected = restored_without(None);
    for table in ["p_10s_0", "_aggr", "datapoints"] {
        let served = restored_without(Some(table));
        for (name, values) in &expected {
            assert_eq!(served.get(name), Some(values), "{table}: {name}");
        }
        assert_eq!(served.len(), expected.len());
    }
}
