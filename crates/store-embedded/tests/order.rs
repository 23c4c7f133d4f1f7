//! What of a flush is stored when it ends in the middle.

use std::{path::Path, sync::Arc};

use host::{Fault, FaultPlan, Host, SimulatedDisk};
use metric::{Aggregation, MetricId, Stage, Table};
use store::{Fetch, PointStore, Run};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};

/// A minute.
const MINUTE: u32 = 30_000_000;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn open(disk: &SimulatedDisk) -> EmbeddedDriver {
    let host = Host { disk: Arc::new(disk.clone()), ..Host::system() };
    let options = EmbeddedOptions { host, merges: false, ..EmbeddedOptions::default() };
    EmbeddedDriver::open(Path::new("/store"), options).unwrap()
}

/// A point at the beginning of the minute, in the table of a first stage of this step.
fn run(step: u32, value: f64) -> Run {
    Run {
        metric: MetricId(1),
        name: "a.b".to_owned(),
        table: Table { stage: Stage::new(step, 7200).unwrap(), aggregated: false, rollup: None },
        first_slot: MINUTE * (60 / step),
        values: vec![value],
        counts: Vec::new(),
        aggregation: Aggregation::Last,
    }
}

fn read(driver: &EmbeddedDriver, step: u32) -> f64 {
    let Run { metric, name, table, first_slot, aggregation, .. } = run(step, 0.0);
    let fetch = Fetch { metric, name, table, first_slot, end_slot: first_slot + 1, aggregation };
    block_on(driver.fetch(vec![fetch])).unwrap().remove(0).values.first().copied().unwrap_or(f64::NAN)
}

/// A flush that replaces a point of 60 s stores that point among those of 1 s: where only the coarse row were stored, the next
/// flush of the same points would take it for the point.
#[test]
fn what_a_coarser_row_replaces_is_stored_before_it_whatever_fails() {
    let mut failed = 0;
    for fault in [Fault::EIO, Fault::ENOSPC, Fault::Die] {
        for at in 0.. {
            let disk = SimulatedDisk::new();
            let driver = open(&disk);
            block_on(driver.write(vec![run(60, 36.0)])).unwrap();
            block_on(driver.sync()).unwrap();
            block_on(driver.write(vec![run(1, 36.0), run(60, 52.0)])).unwrap();
            disk.set_plan(Some(FaultPlan::once(at, fault)));
            let flushed = block_on(driver.sync());
            if disk.faults().is_empty() {
                break;
            }
            failed += usize::from(flushed.is_err());
            let left = disk.kill();
            drop(driver);
            let driver = open(&left);
            let (fine, coarse) = (read(&driver, 1), read(&driver, 60));
            assert!(coarse == 36.0 || fine == 36.0, "{fault:?} at {at}: 1 s has {fine}, 60 s {coarse}");
        }
    }
    assert!(5 < failed, "{failed}");
}
