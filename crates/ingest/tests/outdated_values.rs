//! Beneath rows that cannot be read, values of before are shown, and no coarse slot is made from them.

mod support;

use std::{path::PathBuf, time::Duration};

use carbon::Sink as _;
use ingest::{Ingest, Protocol};
use metric::{Timestamp, Window};
use store::SeriesRequest;
use support::{data_folder::DataFolder, now, runtime};

async fn send(ingest: &Ingest, points: impl IntoIterator<Item = (Timestamp, f64)>) {
    let mut batch = ingest.batch(Protocol::LineTcp);
    points.into_iter().for_each(|(time, value)| batch.point(b"m", time, value));
    ingest.accept(&mut batch).await;
}

/// The second at this time, and the ten seconds around it.
async fn read(ingest: &Ingest, time: Timestamp) -> [f64; 2] {
    let registry = ingest.registry();
    let metric = registry.read().find(registry.hash(b"m"), b"m").expect("the metric is known");
    let request = |age: i64| SeriesRequest {
        metric,
        window: Window::between(now() - age, now()),
        now: now(),
        max_points: 1 << 20,
        rollup: None,
    };
    let series = ingest.series().fetch(vec![request(3000), request(20_000)]).await.unwrap();
    [0, 1].map(|place| {
        let series = series[place].as_ref().unwrap();
        series.values[((time - series.start) / i64::from(series.step)) as usize]
    })
}

/// The newest file of rows of the seconds.
fn newest_file(folder: &DataFolder) -> PathBuf {
    let windows = std::fs::read_dir(folder.store().join("datapoints_3600p_1s_0")).unwrap();
    let files = windows.flat_map(|window| std::fs::read_dir(window.unwrap().path()).unwrap());
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files.pop().expect("rows were flushed")
}

#[test]
fn late_points_beneath_a_damaged_block_leave_coarse_slots_as_they_are_until_all_seconds_are_sent_again() {
    let folder = DataFolder { retentions: "1s:1h,10s:6h", ..DataFolder::new() };
    let base = (now() - 1000) / 10 * 10;
    let live = |work: &dyn Fn(&Ingest, &tokio::runtime::Runtime)| {
        let life = runtime(2);
        let ingest = life.block_on(folder.open()).unwrap();
        work(&ingest, &life);
        drop(ingest);
        life.shutdown_timeout(Duration::from_secs(2));
    };
    live(&|ingest, life| {
        life.block_on(async {
            send(ingest, (base..base + 10).map(|time| (time, 1.0))).await;
            ingest.flush().await.unwrap();
            send(ingest, [(base + 3, 5.0)]).await;
            ingest.flush().await.unwrap();
            assert_eq!(read(ingest, base + 3).await, [5.0, 14.0]);
        });
    });
    let path = newest_file(&folder);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    live(&|ingest, life| {
        life.block_on(async {
            assert_eq!(read(ingest, base + 3).await, [1.0, 14.0], "the value before the damaged one is shown");
            send(ingest, [(base + 4, 7.0)]).await;
            let [late, coarse] = read(ingest, base + 4).await;
            assert!(late == 7.0 && coarse.is_nan(), "what the late point makes is not known: {coarse}");
            ingest.flush().await.unwrap();
            assert_eq!(read(ingest, base + 4).await, [7.0, 14.0], "the row is right, but for the late point");
            // The second that may be older is sent again.
            send(ingest, [(base + 3, 5.0)]).await;
            ingest.flush().await.unwrap();
            assert_eq!(read(ingest, base + 3).await, [5.0, 14.0], "others may be older, too");
            send(ingest, (base..base + 10).map(|time| (time, 2.0))).await;
            assert_eq!(read(ingest, base + 3).await, [2.0, 20.0]);
            ingest.flush().await.unwrap();
            assert_eq!(read(ingest, base + 3).await, [2.0, 20.0]);
        });
    });
}
