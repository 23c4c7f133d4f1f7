//! A folder that has the name of a file, as a copy that went wrong leaves it.

use std::{fs, sync::Arc};

use backup::{lock, repair, verify};
use host::{Host, SystemDisk};
use metric::{Aggregation, MetricId, Policy, Stage, Table};
use store::{MetricRecord, NameStore as _, PointStore as _, PolicyChange, Run};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};

#[test]
fn a_folder_in_place_of_a_file_is_damage() {
    for file in ["", "store/names/00000001.log", "journal/00000001.journal"] {
        let data = tempfile::tempdir().unwrap();
        let driver = Arc::new(EmbeddedDriver::open(&data.path().join("store"), EmbeddedOptions::default()).unwrap());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let policies = vec![PolicyChange { since: 0, policy: Policy::default() }];
        let record = MetricRecord { id: MetricId(0), name: "m".to_owned(), created_on: 5, policies };
        runtime.block_on(driver.put_metrics(vec![record])).unwrap();
        runtime.block_on(driver.sync_metrics()).unwrap();
        let table = Table { stage: Stage::new(60, 10_080).unwrap(), aggregated: false, rollup: None };
        let (name, counts, aggregation) = ("m".to_owned(), Vec::new(), Aggregation::Average);
        let run = Run {
            metric: MetricId(0),
            name,
            table,
            first_slot: 30_000_000,
            values: vec![1.0; 60],
            counts,
            aggregation,
        };
        runtime.block_on(driver.write(vec![run])).unwrap();
        driver.settle().unwrap();
        let rows = format!("store/{}", driver.files()[0].path.display());
        drop((driver, runtime));
        let report = || {
            let _lock = lock(&SystemDisk, data.path()).unwrap();
            verify(&SystemDisk, data.path()).unwrap()
        };
        assert!(report().is_good());

        let file = if file.is_empty() { &*rows } else { file };
        let _ = fs::remove_file(data.path().join(file));
        fs::create_dir_all(data.path().join(file)).unwrap();
        let report = report();
        assert!(!report.is_good(), "{file}");
        let how = "it is a folder and must be a file; move it elsewhere";
        assert!(report.faults().any(|(one, fault)| one.path.ends_with(file) && fault.how == how), "{file}");
        // Files that the next start writes again: a repair that is refused leaves that to it.
        let noted = data.path().join("unsynced");
        fs::write(&noted, "/\n").unwrap();
        for dry_run in [true, false] {
            let refused = repair(&Host::system(), data.path(), dry_run).map(drop).unwrap_err().to_string();
            assert!(refused.ends_with("nothing was changed: move it elsewhere"), "{refused}");
            assert_eq!(fs::read_to_string(&noted).unwrap(), "/\n");
        }
        assert!(data.path().join(file).is_dir());
    }
}
