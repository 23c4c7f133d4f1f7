//! Flushes while a large merge runs: the files of its window stay few.

use std::{cell::Cell, time::Duration};

use super::node::{Node, run, table};

const METRICS: u32 = 300;
const FIRST: u32 = 28_000_100;
const LARGE: u32 = 4;
const SLOTS: u32 = 500;
const SMALL: u32 = 12;

fn value(metric: u32, slot: u32) -> f64 {
    f64::from(metric) + f64::from(slot.wrapping_mul(2_654_435_761) % 100_000) / 100.0
}

fn flush(node: &Node, first: u32, slots: u32) {
    let values = |metric| (first..first + slots).map(|slot| value(metric, slot)).collect();
    let runs: Vec<_> =
        (0..METRICS).map(|metric| run(table(60, 10_080, false), metric, first, values(metric))).collect();
    node.write(&runs);
    node.points().flush().unwrap();
}

#[test]
fn small_files_are_merged_while_a_large_merge_runs() {
    let mut node = Node::new();
    (0..LARGE).for_each(|number| flush(&node, FIRST + number * SLOTS, SLOTS));
    node.clock.advance(Duration::from_secs(60));
    let (blocks, small, most) = (Cell::new(0_u32), Cell::new(0), Cell::new(0));
    let behind = FIRST + LARGE * SLOTS;
    node.merge_with(&|| {
        // A second for each block, and a flush for each four.
        node.clock.advance(Duration::from_secs(1));
        blocks.set(blocks.get() + 1);
        if small.get() < SMALL && blocks.get().is_multiple_of(4) {
            small.set(small.get() + 1);
            flush(&node, behind + small.get() - 1, 1);
        }
        most.set(node.status().most_files.max(most.get()));
    });
    assert_eq!(small.get(), SMALL);
    let status = node.status();
    assert!(0 < status.merges_meanwhile && status.merges_meanwhile < status.merges, "{status:?}");
    assert!(most.get() <= 11, "{} files in a window", most.get());
    for restarted in [false, true] {
        if restarted {
            node.restart_on(node.disk.kill());
        }
        let end = behind + SMALL;
        for (metric, cells) in (0..).zip(node.fetch_all(table(60, 10_080, false), METRICS, FIRST..end)) {
            let expected: Vec<f64> = (FIRST..end).map(|slot| value(metric, slot)).collect();
            assert_eq!((cells.values, cells.is_damaged), (expected, false), "metric {metric}");
        }
    }
    assert_eq!(node.damage.examples(), []);
}
