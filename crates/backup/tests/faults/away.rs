//! Files of rows that are missing at a start and are put back before a later one: nothing shows that they were away.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use backup::verify;
use host::{Disk, SimulatedDisk};

use super::node::{DATA, Life, NOW, Served, new_disk};

fn start(disk: &SimulatedDisk) -> Life {
    Life::start(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Path::new(DATA)).unwrap()
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

/// Moves the files of rows of tables aside whose names contain `table`, calls `meanwhile`, and puts them back.
fn without(disk: &SimulatedDisk, table: &str, meanwhile: impl FnOnce(usize)) {
    let all = disk.files(&Path::new(DATA).join("store"));
    let is_meant =
        |path: &PathBuf| path.extension().is_some_and(|end| end == "rows") && path.to_string_lossy().contains(table);
    let hidden: Vec<PathBuf> = all.into_iter().map(|(path, _)| path).filter(is_meant).collect();
    disk.create_dir_all(Path::new("/aside")).unwrap();
    let aside = |n: usize| PathBuf::from(format!("/aside/{n}"));
    hidden.iter().enumerate().for_each(|(n, path)| disk.rename(path, &aside(n)).unwrap());
    meanwhile(hidden.len());
    hidden.iter().enumerate().for_each(|(n, path)| disk.rename(&aside(n), path).unwrap());
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
        Some(table) => without(&disk, table, |hidden| {
            assert!(0 < hidden, "{table}");
            second();
        }),
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
