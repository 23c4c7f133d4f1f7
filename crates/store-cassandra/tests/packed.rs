//! Packed tables on a real Cassandra: with rows, with several writers, and when a node moves over and back.

mod node;

use std::ops::Range;

use metric::{Aggregation, MetricId, ROW_POINTS, Slot, Stage, Table};
use node::Keyspace;
use store::{Cells, Fetch, PointStore, Run, SharedPoints};
use store_cassandra::{CassandraDriver, Layout, Options};

const NAME: &str = "a.b.c";
const NAN: f64 = f64::NAN;

async fn driver(keyspace: &Keyspace, layout: Layout, writer: u16) -> CassandraDriver {
    let options = Options { layout, writer, ..keyspace.options() };
    CassandraDriver::connect(options).await.expect("the node answers")
}

fn hourly(aggregated: bool) -> Table {
    Table { stage: Stage::new(3600, 720).unwrap(), aggregated, rollup: None }
}

/// The first of some hours of one partition, some days ago.
fn hour() -> Slot {
    let hour = hourly(true).stage.slot(node::now()).unwrap() - 200;
    if hour % ROW_POINTS > ROW_POINTS - 150 { hour - 150 } else { hour }
}

fn points(first_slot: Slot, values: &[f64]) -> Run {
    let (metric, values) = (MetricId(1), values.to_vec());
    let aggregation = Aggregation::Average;
    Run { metric, name: NAME.into(), table: hourly(false), first_slot, values, counts: vec![], aggregation }
}

fn partials(aggregation: Aggregation, first_slot: Slot, cells: &[(f64, u32)]) -> Run {
    let (values, counts) = cells.iter().copied().unzip();
    Run { metric: MetricId(1), name: NAME.into(), table: hourly(true), first_slot, values, counts, aggregation }
}

async fn read(driver: &CassandraDriver, table: Table, aggregation: Aggregation, slots: Range<Slot>) -> Cells {
    let (first_slot, end_slot) = (slots.start, slots.end);
    let fetch = Fetch { metric: MetricId(1), name: NAME.into(), table, first_slot, end_slot, aggregation };
    driver.fetch(vec![fetch]).await.unwrap().remove(0)
}

async fn values(driver: &CassandraDriver, slots: Range<Slot>) -> Vec<Option<f64>> {
    let cells = read(driver, hourly(false), Aggregation::Average, slots).await;
    assert!(!cells.is_damaged && cells.counts.is_empty());
    cells.values.into_iter().map(|value| (!value.is_nan()).then_some(value)).collect()
}

fn some(values: &[f64]) -> Vec<Option<f64>> {
    values.iter().map(|value| (!value.is_nan()).then_some(*value)).collect()
}

fn cells(cells: &[(f64, u32)]) -> Cells {
    let (values, counts) = cells.iter().copied().unzip();
    Cells { values, counts, ..Cells::default() }
}

async fn count(keyspace: &Keyspace, table: &str) -> i64 {
    let cql = format!("SELECT count(*) FROM {}.{table}", keyspace.name);
    let rows = keyspace.session.query_unpaged(cql, ()).await.unwrap().into_rows_result().unwrap();
    rows.single_row::<(i64,)>().unwrap().0
}

const PACKED: &str = "datapoints_720p_3600s_packed";

#[tokio::test]
async fn a_late_point_hides_its_slot_of_a_run_and_nothing_else() {
    let Some(address) = node::address() else { return };
    let keyspace = Keyspace::make(address, "late").await;
    let one = driver(&keyspace, Layout::Packed, 1).await;
    let h = hour();
    one.write(vec![points(h, &[1.0, 2.0, 3.0, 4.0, 5.0])]).await.unwrap();
    // At the first slot of the run, in its middle, around it; and the whole run again.
    one.write(vec![points(h, &[10.0])]).await.unwrap();
    one.write(vec![points(h + 2, &[30.0, NAN, 50.0])]).await.unwrap();
    assert_eq!(values(&one, h..h + 5).await, some(&[10.0, 2.0, 30.0, 4.0, 50.0]));
    one.write(vec![points(h - 1, &[-1.0, 11.0])]).await.unwrap();
    assert_eq!(values(&one, h - 2..h + 6).await, some(&[NAN, -1.0, 11.0, 2.0, 30.0, 4.0, 50.0, NAN]));
    assert_eq!(count(&keyspace, PACKED).await, 4);
    one.write(vec![points(h, &[1.0, 2.0, 3.0, 4.0, 5.0])]).await.unwrap();
    assert_eq!(values(&one, h - 1..h + 5).await, some(&[-1.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
    assert_eq!(count(&keyspace, PACKED).await, 4, "the same slots are the same row");
    // Parts of runs.
    assert_eq!(values(&one, h + 3..h + 4).await, some(&[4.0]));
    assert_eq!(values(&one, h + 5..h + 9).await, []);
    let ttl = format!("SELECT TTL(points) FROM {}.{PACKED}", keyspace.name);
    let rows = keyspace.session.query_unpaged(ttl, ()).await.unwrap().into_rows_result().unwrap();
    let stage = hourly(false).stage;
    for row in rows.rows::<(i32,)>().unwrap() {
        let expires = node::now() + i64::from(row.unwrap().0) - stage.duration() - 900;
        assert!((stage.time(h) - 5..=stage.time(h + 4) + 5).contains(&expires), "{expires}");
    }
    keyspace.drop().await;
}

#[tokio::test]
async fn a_node_that_moves_over_and_back_reads_its_last_word() {
    let Some(address) = node::address() else { return };
    let keyspace = Keyspace::make(address, "over").await;
    let h = hour();
    let mut wanted = vec![NAN; 12];
    let mut counted = vec![(NAN, 0); 12];
    let mut last = 0;
    for (round, layout) in [Layout::Rows, Layout::Packed, Layout::Rows, Layout::Packed].into_iter().enumerate() {
        let one = driver(&keyspace, layout, 1).await;
        one.continue_after(last);
        // Overlaps what was written before, of each layout, and leaves some.
        for (from, len) in [(3 * round, 3), (2, 1), (5, 2)] {
            let new: Vec<f64> = (0..len).map(|i| (100 * round + 10 * from + i) as f64).collect();
            wanted[from..from + len].copy_from_slice(&new);
            one.write(vec![points(h + from as Slot, &new)]).await.unwrap();
            let new: Vec<(f64, u32)> = new.iter().map(|value| (*value, round as u32 + 1)).collect();
            counted[from..from + len].copy_from_slice(&new);
            one.write(vec![partials(Aggregation::Sum, h + from as Slot, &new)]).await.unwrap();
        }
        last = one.last_timestamp();
        for reader in [Layout::Rows, Layout::Packed] {
            let reader = driver(&keyspace, reader, 2).await;
            assert_eq!(values(&reader, h..h + 12).await, some(&wanted), "round {round}");
            let cells = read(&reader, hourly(true), Aggregation::Sum, h..h + 12).await;
            let got = cells.values.iter().copied().zip(cells.counts.iter().copied());
            for (at, ((value, count), wanted)) in got.zip(&counted).enumerate() {
                assert!(
                    (value, count) == *wanted || value.is_nan() && wanted.0.is_nan() && count == 0,
                    "round {round}, slot {at}: {value} of {count}, not {wanted:?}"
                );
            }
            assert_eq!(cells.values.len(), 12);
        }
    }
    keyspace.drop().await;
}

#[tokio::test]
async fn nodes_of_both_settings_read_each_other_and_their_partials_are_added() {
    let Some(address) = node::address() else { return };
    let keyspace = Keyspace::make(address, "mixed").await;
    let (rows, packed) = (driver(&keyspace, Layout::Rows, 1).await, driver(&keyspace, Layout::Packed, 2).await);
    let (h, sum) = (hour(), Aggregation::Sum);
    // Both look before there is anything, and see what comes after it.
    for node in [&rows, &packed] {
        assert_eq!(values(node, h..h + 3).await, []);
    }
    rows.write(vec![points(h, &[1.0, 2.0, 3.0]), partials(sum, h, &[(10.0, 4), (1.0, 1)])]).await.unwrap();
    packed.write(vec![points(h + 1, &[20.0]), partials(sum, h, &[(5.0, 2), (2.0, 1), (7.0, 40_000)])]).await.unwrap();
    for node in [&rows, &packed] {
        assert_eq!(values(node, h..h + 3).await, some(&[1.0, 20.0, 3.0]));
        let added = read(node, hourly(true), sum, h..h + 3).await;
        assert_eq!(added, cells(&[(15.0, 6), (3.0, 2), (7.0, 40_000)]));
    }
    rows.write(vec![points(h + 1, &[200.0])]).await.unwrap();
    assert_eq!(values(&packed, h..h + 3).await, some(&[1.0, 200.0, 3.0]));
    keyspace.drop().await;
}

#[tokio::test]
async fn writer_partials_leave_what_other_writers_have_in_either_layout() {
    let Some(address) = node::address() else { return };
    let keyspace = Keyspace::make(address, "own_packed").await;
    let mut first = hour();
    for (mine, theirs) in
        [(Layout::Packed, Layout::Packed), (Layout::Packed, Layout::Rows), (Layout::Rows, Layout::Packed)]
    {
        let (one, other) = (driver(&keyspace, mine, 1).await, driver(&keyspace, theirs, 2).await);
        for aggregation in Aggregation::ALL {
            let context = format!("{aggregation}, {mine:?} with {theirs:?}");
            let adds = matches!(aggregation, Aggregation::Sum | Aggregation::Average | Aggregation::AvgZero);
            let slots = first..first + 3;
            first = slots.end;
            other.write(vec![partials(aggregation, slots.start, &[(10.0, 4), (3.0, 2), (6.0, 5)])]).await.unwrap();
            // We wrote of the last slot too, before we knew that the other had it all.
            one.write(vec![partials(aggregation, slots.start + 2, &[(6.0, 5)])]).await.unwrap();
            for wholes in
                [[(12.0, 6), (2.0, 3), (6.0, 5)], [(12.0, 6), (2.0, 3), (6.0, 5)], [(13.0, 6), (2.5, 3), (5.5, 5)]]
            {
                let own = one.writer_partials(vec![partials(aggregation, slots.start, &wholes)]).await.unwrap().runs;
                // Of the last slot the other one leaves a point to us, where that is enough to correct a sum.
                let is_left = wholes[2].0 != 6.0 && adds;
                assert_eq!(own[0].counts, [2, 1, u32::from(is_left)], "{context}");
                one.write(own).await.unwrap();
                for node in [&one, &other] {
                    assert_eq!(read(node, hourly(true), aggregation, slots.clone()).await, cells(&wholes), "{context}");
                }
            }
        }
    }
    keyspace.drop().await;
}

/// Gives the runs with this many slots that were written by a writer other bytes, and the time at which they were written.
async fn damage(keyspace: &Keyspace, (shard, count): (i16, i16)) {
    type Key = (uuid::Uuid, i64, i16, i16, i16, Vec<u8>, i64);
    let all = format!(
        "SELECT metric, time_start_ms, offset, shard, count, holes, WRITETIME(points) FROM {}.{PACKED}",
        keyspace.name
    );
    let rows = keyspace.session.query_unpaged(all, ()).await.unwrap().into_rows_result().unwrap();
    let rows: Vec<Key> = rows.rows::<Key>().unwrap().map(Result::unwrap).collect();
    let insert = format!(
        "INSERT INTO {}.{PACKED} (metric, time_start_ms, offset, shard, count, holes, points) VALUES (?, ?, ?, ?, ?, ?, \
         0xff00000000) USING TIMESTAMP ?",
        keyspace.name
    );
    for row in rows.into_iter().filter(|row| (row.3, row.4) == (shard, count)) {
        // Of equal times Cassandra keeps the larger bytes.
        keyspace.session.query_unpaged(insert.as_str(), row).await.unwrap();
    }
}

fn damaged_places(cells: &Cells) -> Vec<u32> {
    assert!(cells.is_damaged);
    let mut places: Vec<u32> = cells.damage().expect("all are known").0.iter().cloned().flatten().collect();
    places.sort_unstable();
    places
}

#[tokio::test]
async fn no_older_write_stands_in_for_a_damaged_run_and_a_later_one_replaces_it() {
    let Some(address) = node::address() else { return };
    let keyspace = Keyspace::make(address, "damaged").await;
    let h = hour();
    // A row and a run that the damaged one replaced, a row and a run that came after it.
    let rows = driver(&keyspace, Layout::Rows, 1).await;
    let options = Options { layout: Layout::Packed, writer: 1, ..keyspace.options() };
    let reports = options.damage.clone();
    let packed = CassandraDriver::connect(options).await.expect("the node answers");
    rows.write(vec![points(h, &[0.0, 0.1, 0.2])]).await.unwrap();
    packed.continue_after(rows.last_timestamp());
    packed.write(vec![points(h, &[1.0, 1.1, 1.2, 1.3, 1.4, 1.5])]).await.unwrap();
    packed.write(vec![points(h + 1, &[2.1, 2.2, NAN, 2.4, 2.5])]).await.unwrap();
    packed.write(vec![points(h + 2, &[3.2])]).await.unwrap();
    rows.continue_after(packed.last_timestamp());
    rows.write(vec![points(h + 5, &[4.5])]).await.unwrap();
    assert_eq!(values(&packed, h..h + 7).await, some(&[1.0, 2.1, 3.2, 1.3, 2.4, 4.5, NAN]));
    assert_eq!(reports.totals().0, 0);
    damage(&keyspace, (1, 4)).await;
    for _ in 0..3 {
        let cells = read(&packed, hourly(false), Aggregation::Average, h..h + 7).await;
        assert_eq!(some(&cells.values), some(&[1.0, NAN, 3.2, 1.3, NAN, 4.5, NAN]));
        assert_eq!(damaged_places(&cells), [1, 4]);
    }
    // Slots that the run does not have are intact, also between those that it has.
    assert_eq!(values(&packed, h + 2..h + 4).await, some(&[3.2, 1.3]));
    let found = reports.examples();
    assert_eq!(reports.totals(), (1, 5), "each row counts once: {found:?}");
    assert_eq!((found[0].what, &found[0].file), ("packed row", &format!("{}.{PACKED}", keyspace.name)));
    assert_eq!(found[0].metrics, Some((MetricId(1), MetricId(1))));
    assert_eq!(found[0].span, Some((hourly(false).stage.time(h + 1), hourly(false).stage.time(h + 6))));
    // The report says how to delete the row; what is sent again is there then.
    let (row, _) = found[0].how.split_once(": ").unwrap();
    keyspace.run(&format!("DELETE FROM {} WHERE {row}", found[0].file)).await;
    assert_eq!(values(&packed, h..h + 7).await, some(&[1.0, 1.1, 3.2, 1.3, 1.4, 4.5, NAN]));
    packed.write(vec![points(h + 1, &[2.1, NAN, NAN, 2.4])]).await.unwrap();
    assert_eq!(values(&packed, h..h + 7).await, some(&[1.0, 2.1, 3.2, 1.3, 2.4, 4.5, NAN]));
    keyspace.drop().await;
}

#[tokio::test]
async fn nothing_stands_in_for_a_damaged_run_of_one_writer_of_a_coarse_slot() {
    let Some(address) = node::address() else { return };
    let keyspace = Keyspace::make(address, "damaged_coarse").await;
    let (one, two) = (driver(&keyspace, Layout::Packed, 1).await, driver(&keyspace, Layout::Packed, 2).await);
    let (h, sum) = (hour(), Aggregation::Sum);
    one.write(vec![partials(sum, h, &[(1.0, 1), (1.1, 1), (1.2, 1)])]).await.unwrap();
    one.write(vec![partials(sum, h + 1, &[(501.0, 6), (502.0, 6)])]).await.unwrap();
    two.write(vec![partials(sum, h + 1, &[(6000.0, 6)])]).await.unwrap();
    let of_all = cells(&[(1.0, 1), (6501.0, 12), (502.0, 6)]);
    assert_eq!(read(&two, hourly(true), sum, h..h + 3).await, of_all);
    damage(&keyspace, (1, 2)).await;
    for node in [&one, &two] {
        let cells = read(node, hourly(true), sum, h..h + 4).await;
        assert_eq!((some(&cells.values), damaged_places(&cells)), (some(&[1.0, NAN, NAN, NAN]), vec![1, 2]));
        // Of one writer alone the runs are laid over each other.
        let cells = read(node, hourly(true), sum, h + 2..h + 4).await;
        assert!(cells.values.iter().all(|value| value.is_nan()));
        assert_eq!(damaged_places(&cells), [0]);
    }
    // No writer knows what is left of a total: the slot stays as it is stored.
    let total = || vec![partials(sum, h, &[(2.0, 2), (6503.0, 13), (503.0, 7)])];
    let own = two.writer_partials(total()).await.unwrap().runs.remove(0);
    assert_eq!((own.counts, own.values[0]), (vec![1, 0, 0], 1.0));
    let all = Fetch {
        metric: MetricId(1),
        name: NAME.into(),
        table: hourly(true),
        first_slot: h + 2,
        end_slot: h + 3,
        aggregation: sum,
    };
    assert_eq!(two.have_others(vec![all]).await.unwrap(), [true]);
    // A later write of the same writer is right again, of the same slots and of one of them.
    one.write(vec![partials(sum, h + 1, &[(503.0, 8)])]).await.unwrap();
    let got = read(&two, hourly(true), sum, h..h + 3).await;
    assert_eq!((got.values[1], got.counts[1], damaged_places(&got)), (6503.0, 14, vec![2]));
    one.write(vec![partials(sum, h + 1, &[(501.0, 6), (502.0, 6)])]).await.unwrap();
    assert_eq!(read(&two, hourly(true), sum, h..h + 3).await, of_all);
    keyspace.drop().await;
}

#[tokio::test]
async fn a_dropped_packed_table_is_created_again_and_pending_runs_are_written() {
    let Some(address) = node::address() else { return };
    let keyspace = Keyspace::make(address, "dropped_packed").await;
    let one = driver(&keyspace, Layout::Packed, 1).await;
    let h = hour();
    one.write(vec![points(h, &[1.0, 2.0])]).await.unwrap();
    keyspace.run(&format!("DROP TABLE {}.{PACKED}", keyspace.name)).await;
    assert_eq!(values(&one, h..h + 2).await, [], "its runs are gone with it");
    one.write(vec![points(h, &[1.0, 2.0])]).await.unwrap();
    assert_eq!(values(&one, h..h + 2).await, some(&[1.0, 2.0]));
    // While it is known, and written to without having been read.
    keyspace.run(&format!("DROP TABLE {}.{PACKED}", keyspace.name)).await;
    one.write(vec![points(h, &[3.0, 4.0])]).await.unwrap();
    assert_eq!(values(&one, h..h + 2).await, some(&[3.0, 4.0]));
    keyspace.drop().await;
}
