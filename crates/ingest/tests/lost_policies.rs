//! A policy whose record in the metrics table is damaged: no acknowledged point is lost, and no value changes.

mod support;

use std::{fs, sync::Arc, time::Duration};

use host::{Disk, SystemDisk};
use ingest::Ingest;
use metadata::{Registry, SAVED, open_names};
use metric::{MetricId, Timestamp, Window};
use store::{NameStore as _, SeriesRequest};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};
use support::{
    data_folder::{DataFolder, send_at, time},
    rules, runtime,
};

const RETENTIONS: &str = "10s:1h,60s:1d";
const RETENTIONS_TEXT: &str = "sum 360*10s:1440*60s";

/// Flips two bits in the record of the policy in the store.
fn damage(folder: &DataFolder) {
    let path = folder.store().join("names/00000001.log");
    let mut bytes = fs::read(&path).unwrap();
    let text = RETENTIONS_TEXT.as_bytes();
    let place = bytes.windows(text.len()).position(|window| window == text).expect("the log has the policy");
    bytes[place] ^= 3;
    fs::write(path, bytes).unwrap();
}

/// A step in seconds, and the values of its slots.
type Values = (u32, Vec<(Timestamp, f64)>);

/// All values of the metric, by both stages.
async fn values(ingest: &Ingest) -> Vec<Values> {
    let registry = ingest.registry();
    let metric = registry.read().find(registry.hash(b"m"), b"m").expect("the metric is known");
    let mut all = Vec::new();
    for age in [3000, 6000] {
        let window = Window::between(time() - age, time() + 60);
        let request = SeriesRequest { metric, window, now: time() + 60, max_points: 10_000, rollup: None };
        let series = ingest.series().fetch(vec![request]).await.unwrap().remove(0).unwrap();
        let slots = (series.start..).step_by(series.step as usize).zip(series.values);
        all.push((series.step, slots.filter(|(_, value)| !value.is_nan()).collect()));
    }
    all
}

/// A metric with stored points and others that only the journal has, and what it shows.
fn make(retentions: &'static str) -> (DataFolder, Vec<Values>) {
    let folder = DataFolder { retentions, ..DataFolder::new() };
    let life = runtime(2);
    let values = life.block_on(async {
        let ingest = folder.open().await.unwrap();
        for age in (600..1200).step_by(10) {
            send_at(&ingest, "m", time() - age, 1.0).await;
        }
        ingest.flush().await.unwrap();
        for age in (0..700).step_by(10) {
            send_at(&ingest, "m", time() - age, age as f64).await;
        }
        values(&ingest).await
    });
    life.shutdown_timeout(Duration::from_secs(2));
    (folder, values)
}

/// What a start shows, at once, when it has stored all, and which findings of policies it reports.
fn start(folder: &mut DataFolder) -> ([Vec<Values>; 2], Vec<String>) {
    folder.damage = store::DamageLog::new();
    let life = runtime(2);
    let values = life.block_on(async {
        let ingest = folder.open_all_on(host::Host::system()).await.unwrap();
        let first = values(&ingest).await;
        ingest.flush().await.unwrap();
        [first, values(&ingest).await]
    });
    life.shutdown_timeout(Duration::from_secs(2));
    let found = folder.damage.examples().into_iter().filter(|damage| damage.what == "policy");
    (values, found.map(|damage| damage.how).collect())
}

#[test]
fn points_of_a_metric_whose_policy_is_lost_are_read_back_by_the_one_that_the_rules_give() {
    let (mut folder, want) = make(RETENTIONS);
    damage(&folder);
    let (is, found) = start(&mut folder);
    assert_eq!(is, [want.clone(), want.clone()]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[1].contains("policy 0, of 1 metrics") && found[1].contains("the rules"), "{found:?}");
    let (is, found) = start(&mut folder);
    assert_eq!((is, found), ([want.clone(), want], vec![]), "the record is written again");
}

#[test]
fn a_policy_that_the_rules_have_no_more_is_the_one_that_the_journal_has() {
    let (mut folder, want) = make(RETENTIONS);
    damage(&folder);
    folder.retentions = "20s:1h,60s:1d";
    let (is, found) = start(&mut folder);
    assert!(found[1].contains(RETENTIONS_TEXT) && found[1].contains("the journal has it"), "{found:?}");
    // The points of a minute are those of the policy under which they came, also where the other one is in force by now.
    assert_eq!(is.map(|mut all| all.pop()), [want.last().cloned(), want.last().cloned()]);
}

#[test]
fn a_policy_that_the_journal_names_for_a_metric_is_that_one_whatever_the_rules_say() {
    let folder = DataFolder { retentions: RETENTIONS, ..DataFolder::new() };
    let life = runtime(2);
    let records = life.block_on(async {
        let ingest = folder.open().await.unwrap();
        for age in (0..700).step_by(10) {
            send_at(&ingest, "m", time() - age, age as f64).await;
        }
        ingest.registry().records(&[MetricId(0)])
    });
    life.shutdown_timeout(Duration::from_secs(2));
    // As a flush does that is killed before it has stored the points.
    let driver = EmbeddedDriver::open(&folder.store(), EmbeddedOptions::default()).unwrap();
    let life = runtime(2);
    life.block_on(async {
        driver.put_metrics(records).await.unwrap();
        driver.sync_metrics().await.unwrap();
    });
    drop(driver);
    damage(&folder);
    let mut folder = DataFolder { retentions: "20s:1h,60s:1d", ..folder };
    let (_, found) = start(&mut folder);
    assert!(found[1].contains(RETENTIONS_TEXT) && found[1].contains("the journal names it"), "{found:?}");
}

#[test]
fn a_policy_that_the_saved_names_have_is_that_one_whatever_the_rules_say() {
    let folder = DataFolder { retentions: RETENTIONS, ..DataFolder::new() };
    let (disk, data): (Arc<dyn Disk>, _) = (Arc::new(SystemDisk), folder.dir.path());
    let open = || EmbeddedDriver::open(&folder.store(), EmbeddedOptions::default()).unwrap();
    let policies = rules(RETENTIONS).policies().to_vec();
    let policy = policies.into_iter().find(|policy| policy.retention.to_string() == "360*10s:1440*60s").unwrap();
    let life = runtime(2);
    let record = life.block_on(async {
        let (driver, registry) = (open(), Registry::new());
        driver.begin(MetricId(0)).await.unwrap();
        let policy = registry.intern(&policy);
        registry.write().create(registry.hash(b"m"), "m", policy, 1);
        let records = registry.records(&[MetricId(0)]);
        driver.put_metrics(records.clone()).await.unwrap();
        driver.sync_metrics().await.unwrap();
        registry.save(&*disk, &data.join(SAVED), driver.names_mark()).unwrap();
        records
    });
    damage(&folder);
    for _ in 0..2 {
        life.block_on(async {
            let driver = open();
            let (registry, _) = open_names(data, &driver, &disk).await.unwrap();
            assert_eq!(registry.records(&[MetricId(0)]), record);
            driver.begin(MetricId(1)).await.unwrap();
        });
    }
}
