//! Late points while a file of rows is away: coarse slots count all points once it is back.

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use carbon::Sink as _;
use ingest::{Ingest, Protocol};
use metric::{Timestamp, Window};
use store::SeriesRequest;
use support::{data_folder::DataFolder, now, runtime};
use tokio::runtime::Runtime;

async fn send(ingest: &Ingest, points: impl IntoIterator<Item = (Timestamp, f64)>) {
    let mut batch = ingest.batch(Protocol::LineTcp);
    points.into_iter().for_each(|(time, value)| batch.point(b"m", time, value));
    ingest.accept(&mut batch).await;
}

/// The ten seconds and the minute around a time.
async fn read(ingest: &Ingest, time: Timestamp) -> [f64; 2] {
    let registry = ingest.registry();
    let metric = registry.read().find(registry.hash(b"m"), b"m").expect("the metric is known");
    let window = |age: i64| Window::between(now() - age, now());
    let request = |age| SeriesRequest { metric, window: window(age), now: now(), max_points: 1 << 20, rollup: None };
    let series = ingest.series().fetch(vec![request(20_000), request(80_000)]).await.unwrap();
    [0, 1].map(|place| {
        let series = series[place].as_ref().unwrap();
        series.values[((time - series.start) / i64::from(series.step)) as usize]
    })
}

/// The file of rows of a table whose slots have so many seconds.
fn file_of(folder: &DataFolder, step: &str) -> PathBuf {
    let paths =
        |dir: &Path| -> Vec<PathBuf> { fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect() };
    let is_of_step = |path: &PathBuf| path.to_str().unwrap().contains(&format!("p_{step}_"));
    let tables = paths(&folder.store()).into_iter().filter(is_of_step);
    let mut files: Vec<PathBuf> = tables.flat_map(|table| paths(&table)).flat_map(|window| paths(&window)).collect();
    assert_eq!(files.len(), 1, "one file of {step}: {files:?}");
    files.remove(0)
}

fn late_files(folder: &DataFolder) -> Vec<String> {
    let names = folder.segments().into_iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
    names.filter(|name| name.starts_with("late-")).collect()
}

/// A process over a folder, from its start to its end.
fn live(folder: &DataFolder, work: &dyn Fn(&Ingest, &Runtime)) {
    let life = runtime(2);
    let ingest = life.block_on(folder.open()).unwrap();
    work(&ingest, &life);
    drop(ingest);
    life.shutdown_timeout(Duration::from_secs(2));
}

/// When the file goes, and whether the process that finds this out ends before the file is back.
#[derive(Debug, Clone, Copy)]
enum Away {
    BeforeTheStart,
    InUse,
    InUseAndOverAStart,
}

#[test]
fn late_points_that_come_while_a_file_of_rows_is_away_are_counted_by_all_coarse_slots_once_it_is_back() {
    for step in ["1s", "10s", "60s"] {
        for away in [Away::BeforeTheStart, Away::InUse, Away::InUseAndOverAStart] {
            late_points_meanwhile(step, away);
        }
    }
}

fn late_points_meanwhile(step: &str, away: Away) {
    let folder = DataFolder { retentions: "1s:1h,10s:6h,60s:1d", ..DataFolder::new() };
    let base = (now() - 1000) / 60 * 60;
    let live = |work: &dyn Fn(&Ingest, &Runtime)| live(&folder, work);
    live(&|ingest, life| {
        life.block_on(async {
            send(ingest, (base..base + 30).map(|time| (time, 1.0))).await;
            ingest.flush().await.unwrap();
            assert_eq!(read(ingest, base).await, [10.0, 30.0]);
        });
    });
    let (path, aside) = (file_of(&folder, step), folder.dir.path().join("aside"));
    let take_away = || fs::rename(&path, &aside).unwrap();
    let put_back = || fs::rename(&aside, &path).unwrap();
    let count_all = |ingest: &Ingest, life: &Runtime| {
        life.block_on(async {
            ingest.put_back().await.unwrap();
            assert_eq!(late_files(&folder).len(), 0, "{step} {away:?}");
            assert_eq!(read(ingest, base).await, [14.0, 39.0], "{step} {away:?}");
            ingest.flush().await.unwrap();
            assert_eq!(read(ingest, base).await, [14.0, 39.0], "{step} {away:?}");
        });
    };
    if let Away::BeforeTheStart = away {
        take_away();
    }
    live(&|ingest, life| {
        if !matches!(away, Away::BeforeTheStart) {
            take_away();
        }
        life.block_on(async {
            // One replaces a stored point, and one is later than all of them.
            send(ingest, [(base + 3, 5.0), (base + 40, 5.0)]).await;
            ingest.flush().await.unwrap();
            let kept = late_files(&folder);
            assert_eq!(kept.len(), 1, "{step} {away:?}");
            // It is still away: the points stay in this file, and none is put back to be kept in another one.
            let _ = ingest.put_back().await;
            ingest.flush().await.unwrap();
            assert_eq!(late_files(&folder), kept, "{step} {away:?}");
        });
        if let Away::InUse = away {
            put_back();
            count_all(ingest, life);
        }
    });
    if !matches!(away, Away::InUse) {
        put_back();
    }
    live(&|ingest, life| count_all(ingest, life));
}

/// The times are older than the first stage keeps, so that each point is one of ten seconds.
#[test]
fn late_points_of_a_step_that_no_stage_has_any_more_are_reported() {
    let mut folder = DataFolder { retentions: "1s:3m,10s:20m,60s:2h", ..DataFolder::new() };
    let base = (now() - 400) / 60 * 60;
    live(&folder, &|ingest, life| {
        life.block_on(async {
            send(ingest, [(base, 1.0), (base + 20, 2.0)]).await;
            ingest.flush().await.unwrap();
        });
    });
    let (path, aside) = (file_of(&folder, "10s"), folder.dir.path().join("aside"));
    fs::rename(&path, &aside).unwrap();
    live(&folder, &|ingest, life| {
        life.block_on(async {
            send(ingest, [(base + 10, 4.0), (base + 30, 8.0)]).await;
            ingest.flush().await.unwrap();
            assert_eq!(late_files(&folder).len(), 1);
        });
    });
    folder.retentions = "1s:3m,60s:2h";
    live(&folder, &|ingest, life| {
        life.block_on(async {
            send(ingest, [(now(), 1.0)]).await;
            ingest.flush().await.unwrap();
            fs::rename(&aside, &path).unwrap();
            ingest.put_back().await.unwrap();
            assert_eq!(late_files(&folder), Vec::<String>::new());
        });
    });
    let damaged = fs::read_dir(folder.dir.path().join("damaged")).expect("the points are kept");
    let names: Vec<String> = damaged.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let expired = format!("~2-expired-{}-{}", base + 10, base + 30);
    assert!(names.iter().any(|name| name.starts_with("journal_late-") && name.contains(&expired)), "{names:?}");
}

#[test]
fn late_points_that_a_damaged_file_has_lost_are_reported_and_the_file_is_kept() {
    // In the header, in the points, and at the end.
    for place in [10, -40, -1] {
        let folder = DataFolder { retentions: "1s:1h,10s:6h,60s:1d", ..DataFolder::new() };
        let base = (now() - 1000) / 60 * 60;
        let live = |work: &dyn Fn(&Ingest, &Runtime)| live(&folder, work);
        live(&|ingest, life| {
            life.block_on(async {
                send(ingest, (base..base + 30).map(|time| (time, 1.0))).await;
                ingest.flush().await.unwrap();
            });
        });
        let (path, aside) = (file_of(&folder, "1s"), folder.dir.path().join("aside"));
        fs::rename(&path, &aside).unwrap();
        live(&|ingest, life| {
            life.block_on(async {
                send(ingest, [(base + 3, 5.0), (base + 40, 5.0)]).await;
                ingest.flush().await.unwrap();
            });
        });
        let late = folder.segments().into_iter().find(|path| path.to_str().unwrap().contains("late-")).unwrap();
        let mut bytes = fs::read(&late).unwrap();
        let at = if place < 0 { bytes.len() - usize::try_from(-place).unwrap() } else { place as usize };
        bytes[at] ^= 1;
        fs::write(&late, bytes).unwrap();
        fs::rename(&aside, &path).unwrap();
        for _ in 0..2 {
            live(&|ingest, life| {
                life.block_on(ingest.put_back()).unwrap();
                assert_eq!(late_files(&folder), Vec::<String>::new(), "{place}");
            });
        }
        let damaged = fs::read_dir(folder.dir.path().join("damaged")).expect("the file is kept");
        let names: Vec<String> = damaged.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(names.iter().any(|name| name.starts_with("journal_late-")), "{place}: {names:?}");
        let losses = ingest::wal::kept_losses(&host::SystemDisk, &folder.dir.path().join("damaged")).unwrap();
        assert_eq!(losses.len(), 1, "{place}: {losses:?}");
    }
}

#[test]
fn a_draft_of_late_points_that_a_kill_left_is_removed_and_costs_nothing() {
    let folder = DataFolder { retentions: "1s:1h,10s:6h,60s:1d", ..DataFolder::new() };
    let send_one = |age: i64| {
        live(&folder, &|ingest, life| {
            life.block_on(async {
                send(ingest, [(now() - age, 1.0)]).await;
                ingest.flush().await.unwrap();
            });
        });
    };
    send_one(20);
    let journal = folder.dir.path().join("journal");
    assert!(journal.is_dir(), "the journal is there");
    let draft = journal.join("late-1800000000-0.points.new");
    fs::write(&draft, b"half of it").unwrap();
    send_one(10);
    assert!(!draft.exists() && !folder.dir.path().join("damaged").exists());
}
