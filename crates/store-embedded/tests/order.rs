//! What of a flush is stored when it ends in the middle, and what is read meanwhile.

use std::{path::Path, sync::Arc, thread};

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

/// A point that comes again from the journal after a flush that ended in the middle must be found in its slot: a coarse row that
/// counts it already would count it twice.
#[test]
fn a_coarse_row_is_stored_after_the_finer_slots_that_it_counts_whatever_fails() {
    let coarse_row = || {
        let of = run(60, 36.0);
        Run { table: Table { aggregated: true, ..of.table }, counts: vec![1], ..of }
    };
    let (mut failed, mut are_apart) = (0, 0);
    for fault in [Fault::EIO, Fault::ENOSPC, Fault::Die] {
        for at in 0.. {
            let disk = SimulatedDisk::new();
            let driver = open(&disk);
            // Both windows have their folders, as in any flush but the first.
            block_on(driver.write(vec![Run { first_slot: 0, ..run(1, 1.0) }, Run { first_slot: 0, ..coarse_row() }]))
                .unwrap();
            block_on(driver.sync()).unwrap();
            block_on(driver.write(vec![coarse_row(), run(1, 36.0)])).unwrap();
            disk.set_plan(Some(FaultPlan::once(at, fault)));
            let flushed = block_on(driver.sync());
            if disk.faults().is_empty() {
                break;
            }
            failed += usize::from(flushed.is_err());
            let left = disk.kill();
            drop(driver);
            let driver = open(&left);
            let of = coarse_row();
            let fetch = Fetch {
                metric: of.metric,
                name: of.name,
                table: of.table,
                first_slot: of.first_slot,
                end_slot: of.first_slot + 1,
                aggregation: of.aggregation,
            };
            let coarse = block_on(driver.fetch(vec![fetch])).unwrap().remove(0).values.first().copied();
            let (fine, has_coarse) = (read(&driver, 1), coarse.is_some_and(|value| !value.is_nan()));
            assert!(fine == 36.0 || !has_coarse, "{fault:?} at {at}: the coarse row is stored without its point");
            are_apart += usize::from(fine == 36.0 && !has_coarse);
        }
    }
    assert!(5 < failed && 0 < are_apart, "{failed} {are_apart}");
}

/// A query reads points of seconds and of 60 s while a flush replaces a point of 60 s: it must not find the replacement alone, which
/// it would show as the point.
#[test]
fn what_a_coarser_row_replaces_is_read_in_one_place_at_least() {
    // Many seconds, so that reading them takes a while.
    const SECONDS: u32 = 7000;
    for _ in 0..300 {
        let driver = Arc::new(open(&SimulatedDisk::new()));
        let seconds = Run { first_slot: 60 * MINUTE + 1, values: (0..SECONDS).map(f64::from).collect(), ..run(1, 0.0) };
        block_on(driver.write(vec![run(60, 36.0), seconds])).unwrap();
        let writer = {
            let driver = driver.clone();
            thread::spawn(move || {
                block_on(driver.write(vec![run(1, 36.0)])).unwrap();
                block_on(driver.write(vec![run(60, 52.0)])).unwrap();
            })
        };
        let fetch = |step, slots| {
            let Run { metric, name, table, first_slot, aggregation, .. } = run(step, 0.0);
            Fetch { metric, name, table, first_slot, end_slot: first_slot + slots, aggregation }
        };
        loop {
            let is_last = writer.is_finished();
            let read = block_on(driver.fetch(vec![fetch(1, SECONDS), fetch(60, 1)])).unwrap();
            let (fine, coarse) = (read[0].values[0], read[1].values[0]);
            assert!(coarse == 36.0 || fine == 36.0, "1 s has {fine}, 60 s {coarse}");
            if is_last {
                break;
            }
        }
        writer.join().unwrap();
    }
}
