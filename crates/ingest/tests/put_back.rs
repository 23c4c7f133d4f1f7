//! Segments that a start could not read whole: reported until they are read, and then put back where nothing newer is.

mod support;

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use host::{FailingDisk, Host, SystemDisk};
use ingest::{Ingest, wal::Record};
use metric::{MetricId, Window};
use store::{DamageLog, SeriesRequest};
use support::{
    data_folder::{DataFolder, read, send, send_at, time},
    now, runtime,
};

/// Metrics.
const ALL: usize = 300;

/// A folder whose newest segment has a point of each metric, behind an older one that is stored.
struct Scene {
    folder: DataFolder,
    names: Vec<String>,
    segment: PathBuf,
    /// A page, and the places of the metrics whose points it has.
    page: u64,
    lost: Vec<usize>,
    is_bad: Arc<AtomicBool>,
}

fn old(place: usize) -> Option<f64> {
    Some(place as f64)
}

fn new(place: usize) -> Option<f64> {
    Some(place as f64 + 0.5)
}

impl Scene {
    fn new() -> Scene {
        let folder = DataFolder { retentions: "1s:1h,10s:6h", ..DataFolder::new() };
        let names: Vec<String> = (0..ALL).map(|i| format!("some.metric.{i}")).collect();
        let points = |value: fn(usize) -> Option<f64>| -> Vec<(&str, f64)> {
            names.iter().enumerate().map(|(i, name)| (&**name, value(i).unwrap())).collect()
        };
        // The stored ones are a second earlier.
        in_life(&folder, Host::system(), async |ingest| {
            for (name, value) in points(old) {
                send_at(ingest, name, time() - 1, value).await;
            }
            ingest.flush().await.unwrap();
        });
        folder.live(&points(new), false);
        let segment = folder.segments().pop().unwrap();
        let bytes = fs::read(&segment).unwrap();
        let page = 4096;
        let mut lost = Vec::new();
        for (place, record) in ingest::wal::records(&bytes) {
            if let Record::Points { points, .. } = record
                && place.start < 2 * page
                && page < place.end
            {
                lost.extend(points.map(|point| point.metric.0 as usize));
            }
        }
        assert!(10 < lost.len() && lost.len() < ALL / 2, "{lost:?}");
        Scene { folder, names, segment, page: page as u64, lost, is_bad: Arc::new(AtomicBool::new(true)) }
    }

    /// A disk that does not return a page of the segment, nor of the file that is kept of it.
    fn host(&self) -> Host {
        let name = self.segment.file_name().unwrap().to_str().unwrap();
        let (page, is_bad) = (self.page..self.page + 4096, || self.is_bad.clone());
        let leaked = |name: String| -> &'static str { name.leak() };
        let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None);
        let disk = disk.with_sector_bad_while(leaked(name.to_owned()), page.clone(), is_bad());
        let disk = FailingDisk::new(Arc::new(disk), |_, _| None);
        let disk = disk.with_sector_bad_while(leaked(self.kept_name("~whole")), page, is_bad());
        Host { disk: Arc::new(disk), ..Host::system() }
    }

    fn kept_name(&self, ending: &str) -> String {
        format!("journal_{}{ending}", self.segment.file_name().unwrap().to_str().unwrap())
    }

    fn kept(&self, ending: &str) -> PathBuf {
        self.folder.dir.path().join("damaged").join(self.kept_name(ending))
    }

    fn findings(&self) -> usize {
        self.folder.damage.examples().len()
    }

    /// A start that cannot read the page, and a flush: the segment is gone then.
    fn lose(&self, then: impl AsyncFn(&Ingest)) {
        in_life(&self.folder, self.host(), async |ingest| {
            for (i, name) in self.names.iter().enumerate() {
                let expected = if self.lost.contains(&i) { None } else { new(i) };
                assert_eq!(read(ingest, name).await, expected, "{name}");
            }
            ingest.flush().await.unwrap();
            assert!(!self.segment.exists() && self.kept("~whole").exists());
            then(ingest).await;
        });
    }
}

fn in_life(folder: &DataFolder, host: Host, then: impl AsyncFn(&Ingest)) {
    let life = runtime(2);
    life.block_on(async {
        let ingest = folder.open_on(host).await.unwrap();
        then(&ingest).await;
    });
    life.shutdown_timeout(Duration::from_secs(2));
}

fn id(ingest: &Ingest, name: &str) -> Option<MetricId> {
    let registry = ingest.registry();
    registry.read().find(registry.hash(name.as_bytes()), name.as_bytes())
}

/// The sum of the coarse slot that has the time of all points.
async fn coarse(ingest: &Ingest, name: &str) -> f64 {
    let window = Window::between(now() - 4 * 3600, now());
    let request =
        SeriesRequest { metric: id(ingest, name).unwrap(), window, now: now(), max_points: 100_000, rollup: None };
    let series = ingest.series().fetch(vec![request]).await.unwrap().remove(0).unwrap();
    series.values[((time() - series.start) / i64::from(series.step)) as usize]
}

/// As [`coarse`], of the points that a metric has.
fn sum(place: usize) -> f64 {
    let in_slot = |time: i64| time.div_euclid(10);
    let is_one_slot = in_slot(time() - 1) == in_slot(time());
    new(place).unwrap() + if is_one_slot { old(place).unwrap() } else { 0.0 }
}

#[test]
fn pages_that_can_be_read_at_last_are_put_back_where_nothing_newer_is() {
    for restarts in [0, 1, 2] {
        let mut scene = Scene::new();
        let [newer, deleted, made_again, stored_later] = [0, 1, 2, 3].map(|i| scene.lost[i]);
        let name = |i: usize| &*scene.names[i];
        scene.lose(async |ingest| {
            assert_eq!(ingest.put_back().await.unwrap(), 0, "it still cannot be read");
            send(ingest, name(newer), 1000.0).await;
            send(ingest, name(stored_later), 2000.0).await;
            ingest.flush().await.unwrap();
            send(ingest, name(newer), 1001.0).await;
            ingest.delete(&[id(ingest, name(deleted)).unwrap(), id(ingest, name(made_again)).unwrap()]).await.unwrap();
            send_at(ingest, name(made_again), time() - 5, 3000.0).await;
            if restarts == 0 {
                scene.is_bad.store(false, Relaxed);
                assert_eq!(ingest.put_back().await.unwrap(), scene.lost.len() as u64 - 4);
            }
        });
        for restart in 1..=restarts {
            scene.folder.damage = DamageLog::new();
            in_life(&scene.folder, scene.host(), async |ingest| {
                assert_eq!(scene.findings(), 1, "{:?}", scene.folder.damage.examples());
                if restart == restarts {
                    scene.is_bad.store(false, Relaxed);
                    assert_eq!(ingest.put_back().await.unwrap(), scene.lost.len() as u64 - 4);
                    assert_eq!(scene.findings(), 0, "{:?}", scene.folder.damage.examples());
                }
            });
        }
        let check = async |ingest: &Ingest| {
            for (i, name) in scene.names.iter().enumerate() {
                let (expected, sum) = match i {
                    _ if i == newer => (Some(1001.0), None),
                    _ if i == stored_later => (Some(2000.0), None),
                    _ if i == deleted || i == made_again => (None, None),
                    _ => (new(i), Some(sum(i))),
                };
                assert_eq!(read(ingest, name).await, expected, "{name}, {restarts}");
                if let Some(sum) = sum {
                    assert_eq!(coarse(ingest, name).await, sum, "{name}, {restarts}");
                }
            }
            assert_eq!(id(ingest, name(deleted)), None);
        };
        scene.folder.damage = DamageLog::new();
        in_life(&scene.folder, Host::system(), async |ingest| {
            assert_eq!(scene.findings(), 0, "{:?}", scene.folder.damage.examples());
            assert!(!scene.kept("~whole").exists() && scene.kept("~replayed").exists());
            check(ingest).await;
            ingest.flush().await.unwrap();
            check(ingest).await;
            // Again: an operator copies the file back.
            fs::copy(scene.kept("~replayed"), scene.kept("~whole")).unwrap();
            assert_eq!(ingest.put_back().await.unwrap(), 0);
            check(ingest).await;
        });
    }
}

/// A folder whose points of the newest segment replace stored ones, and others of the same segment.
fn replacing() -> Scene {
    let scene = Scene::new();
    // The points of `Scene::new` are the earlier values here.
    scene.folder.live(&[], true);
    let names = &scene.names;
    let mut points: Vec<(&str, f64)> = names.iter().map(|name| (&**name, -1.0)).collect();
    points.extend(names.iter().enumerate().map(|(i, name)| (&**name, 100.0 + i as f64)));
    scene.folder.live(&points, false);
    let segment = scene.folder.segments().pop().unwrap();
    let bytes = fs::read(&segment).unwrap();
    let page = bytes.len() as u64 / 4 * 3 / 4096 * 4096;
    let mut lost = Vec::new();
    for (place, record) in ingest::wal::records(&bytes) {
        if let Record::Points { points, .. } = record
            && (place.start as u64) < page + 4096
            && page < place.end as u64
        {
            lost.extend(points.filter(|point| 0.0 <= point.value).map(|point| point.metric.0 as usize));
        }
    }
    assert!(10 < lost.len() && lost.len() < ALL / 2, "{lost:?}");
    Scene { segment, page, lost, ..scene }
}

#[test]
fn a_point_that_was_sent_to_replace_a_value_replaces_it_where_nothing_came_since() {
    for (restarts, are_clean) in [(0, false), (1, false), (2, false), (3, true)] {
        let scene = replacing();
        let [newer, again, in_memory] = [0, 1, 2].map(|i| scene.lost[i]);
        let name = |i: usize| &*scene.names[i];
        let expected = |i: usize| match i {
            _ if i == newer => 1000.0,
            // The same value as before, sent once more.
            _ if i == again => -1.0,
            _ if i == in_memory => 2000.0,
            _ => 100.0 + i as f64,
        };
        let check = async |ingest: &Ingest| {
            for (i, name) in scene.names.iter().enumerate() {
                assert_eq!(read(ingest, name).await, Some(expected(i)), "{name}, {restarts}");
            }
        };
        let put_back = async |ingest: &Ingest| {
            scene.is_bad.store(false, Relaxed);
            assert_eq!(ingest.put_back().await.unwrap(), scene.lost.len() as u64 - 3);
            check(ingest).await;
        };
        in_life(&scene.folder, scene.host(), async |ingest| {
            for (i, name) in scene.names.iter().enumerate() {
                let expected = if scene.lost.contains(&i) { -1.0 } else { 100.0 + i as f64 };
                assert_eq!(read(ingest, name).await, Some(expected), "{name}");
            }
            ingest.flush().await.unwrap();
            send(ingest, name(newer), 1000.0).await;
            send(ingest, name(again), -1.0).await;
            ingest.flush().await.unwrap();
            send(ingest, name(in_memory), 2000.0).await;
            if restarts == 0 {
                put_back(ingest).await;
            }
        });
        for restart in 1..=restarts {
            in_life(&scene.folder, scene.host(), async |ingest| {
                ingest.flush().await.unwrap();
                if restart == restarts {
                    put_back(ingest).await;
                } else if are_clean {
                    // The next one without a point leaves a number that no segment has.
                    ingest.close().await.unwrap();
                }
            });
        }
        in_life(&scene.folder, Host::system(), async |ingest| {
            check(ingest).await;
            ingest.flush().await.unwrap();
            check(ingest).await;
        });
        assert_eq!(scene.findings(), 0, "{:?}", scene.folder.damage.examples());
        assert!(!scene.kept("~whole").exists() && scene.kept("~replayed").exists());
        let left: Vec<PathBuf> = scene.folder.segments();
        assert!(left.iter().all(|file| file.extension().is_some_and(|end| end == "journal")), "{left:?}");
    }
}

#[test]
fn points_whose_slots_may_have_an_older_value_are_counted_until_their_file_is_removed() {
    let mut scene = replacing();
    in_life(&scene.folder, scene.host(), async |ingest| {
        ingest.flush().await.unwrap();
        send(ingest, &scene.names[scene.lost[0]], 1000.0).await;
        ingest.flush().await.unwrap();
    });
    // What came since is not known any more.
    let since = |file: &PathBuf| file.extension().is_some_and(|end| end == "since");
    let since: Vec<PathBuf> = scene.folder.segments().into_iter().filter(since).collect();
    assert!(!since.is_empty());
    since.iter().for_each(|file| fs::remove_file(file).unwrap());
    scene.is_bad.store(false, Relaxed);
    for _ in 0..3 {
        scene.folder.damage = DamageLog::new();
        in_life(&scene.folder, scene.host(), async |ingest| {
            assert_eq!(ingest.put_back().await.unwrap(), 0);
            let found = scene.folder.damage.examples();
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(
                found[0].how.starts_with(&format!("{} points of it are not put back", scene.lost.len())),
                "{found:?}"
            );
            assert_eq!(read(ingest, &scene.names[scene.lost[0]]).await, Some(1000.0));
            assert_eq!(read(ingest, &scene.names[scene.lost[1]]).await, Some(-1.0));
        });
    }
    fs::remove_file(scene.kept(&format!("~{}-older", scene.lost.len()))).unwrap();
    scene.folder.damage = DamageLog::new();
    scene.folder.live(&[], false);
    assert_eq!(scene.folder.damage.examples(), []);
}

#[test]
fn a_metric_that_only_unread_pages_name_is_made_when_they_can_be_read() {
    let folder = DataFolder::new();
    let names: Vec<String> = (0..ALL).map(|i| format!("some.metric.{i}")).collect();
    // The process ends before the store has the names.
    let points: Vec<(&str, f64)> = names.iter().enumerate().map(|(i, name)| (&**name, i as f64)).collect();
    folder.live(&points, false);
    let segment = folder.segments().pop().unwrap();
    // A second segment has points of the same metrics.
    let points: Vec<(&str, f64)> = names.iter().enumerate().map(|(i, name)| (&**name, i as f64 + 0.5)).collect();
    folder.live(&points, false);
    let scene = Scene { names, segment, page: 4096, lost: Vec::new(), is_bad: Arc::new(AtomicBool::new(true)), folder };
    in_life(&scene.folder, scene.host(), async |ingest| {
        ingest.flush().await.unwrap();
        assert_eq!(ingest.put_back().await.unwrap(), 0);
    });
    in_life(&scene.folder, scene.host(), async |ingest| {
        let mut left = Vec::new();
        for (i, name) in scene.names.iter().enumerate() {
            if id(ingest, name).is_none() {
                left.push(i);
            }
        }
        assert!(10 < left.len() && left.len() < ALL / 2, "{left:?}");
        // Sent again, and deleted, meanwhile.
        send_at(ingest, &scene.names[left[0]], time() - 5, 7.0).await;
        send_at(ingest, &scene.names[left[1]], time() - 5, 7.0).await;
        ingest.delete(&[id(ingest, &scene.names[left[1]]).unwrap()]).await.unwrap();
        scene.is_bad.store(false, Relaxed);
        // One of them has a point at another time now.
        let put_back = ingest.put_back().await.unwrap();
        assert!(left.len() as u64 - 1 <= put_back, "{put_back} {}", left.len());
        for (i, name) in scene.names.iter().enumerate() {
            let expected = (i != left[1]).then_some(i as f64 + 0.5);
            assert_eq!(read(ingest, name).await, expected, "{name}");
        }
    });
}

#[test]
fn damaged_records_are_reported_by_each_start_until_their_bytes_are_removed() {
    let mut folder = DataFolder::new();
    let names: Vec<String> = (0..ALL).map(|i| format!("some.metric.{i}")).collect();
    let points: Vec<(&str, f64)> = names.iter().map(|name| (&**name, 1.0)).collect();
    folder.live(&points, false);
    let segment = folder.segments().pop().unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    bytes[5000] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    folder.live(&[], true);
    let first = folder.damage.examples();
    assert!(!first.is_empty());
    for _ in 0..2 {
        folder.damage = DamageLog::new();
        folder.live(&[], true);
        assert_eq!(folder.damage.examples().len(), first.len(), "{:?}", folder.damage.examples());
    }
    fs::remove_dir_all(folder.dir.path().join("damaged")).unwrap();
    folder.damage = DamageLog::new();
    folder.live(&[], true);
    assert_eq!(folder.damage.examples(), []);
}
