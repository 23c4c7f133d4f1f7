//! Points on a real Cassandra with other writers, and when a table goes away.

mod node;

use std::ops::Range;

use metric::{Aggregation, MetricId, Slot, Stage, Table};
use node::Keyspace;
use store::{Cells, Fetch, PointStore, Run, SharedPoints};
use store_cassandra::{CassandraDriver, Options};

const NAME: &str = "a.b.c";

async fn driver(keyspace: &Keyspace, replica: u8, writer: u16) -> CassandraDriver {
    let options = Options { replica, writer, ..keyspace.options() };
    CassandraDriver::connect(options).await.expect("the node answers")
}

fn hourly(aggregated: bool) -> Table {
    Table { stage: Stage::new(3600, 720).unwrap(), aggregated, rollup: None }
}

/// An hour of some days ago, not the first of its partition.
fn hour() -> Slot {
    (hourly(true).stage.slot(node::now()).unwrap() - 100) | 1
}

fn run(aggregation: Aggregation, first_slot: Slot, cells: &[(f64, u32)]) -> Run {
    let (values, counts) = cells.iter().copied().unzip();
    Run { metric: MetricId(1), name: NAME.into(), table: hourly(true), first_slot, values, counts, aggregation }
}

async fn read(driver: &CassandraDriver, aggregation: Aggregation, slots: Range<Slot>) -> Cells {
    let (first_slot, end_slot) = (slots.start, slots.end);
    let fetch =
        Fetch { metric: MetricId(1), name: NAME.into(), table: hourly(true), first_slot, end_slot, aggregation };
    driver.fetch(vec![fetch]).await.unwrap().remove(0)
}

fn cells(cells: &[(f64, u32)]) -> Cells {
    let (values, counts) = cells.iter().copied().unzip();
    Cells { values, counts, ..Cells::default() }
}

#[tokio::test]
async fn rows_of_writers_are_summed_and_the_replica_with_the_highest_count_wins() {
    let Some(address) = node::address() else { return };
    let keyspace = Keyspace::make(address, "writers").await;
    let (one, other) = (driver(&keyspace, 0, 1).await, driver(&keyspace, 0, 2).await);
    let second = driver(&keyspace, 3, 1).await;
    let sum = Aggregation::Sum;
    one.write(vec![run(sum, hour(), &[(10.0, 4), (1.0, 1)])]).await.unwrap();
    other.write(vec![run(sum, hour(), &[(5.0, 2), (2.0, 1)])]).await.unwrap();
    second.write(vec![run(sum, hour(), &[(7.0, 3), (9.0, 3)])]).await.unwrap();
    assert_eq!(read(&one, sum, hour()..hour() + 2).await, cells(&[(15.0, 6), (9.0, 3)]));
    assert_eq!(read(&one, Aggregation::Max, hour()..hour() + 1).await, cells(&[(10.0, 6)]));
    assert_eq!(read(&one, Aggregation::Last, hour()..hour() + 1).await, cells(&[(5.0, 6)]), "the highest shard");
    keyspace.drop().await;
}

#[tokio::test]
async fn writer_partials_are_what_other_writers_leave_and_correct_outdated_rows() {
    let Some(address) = node::address() else { return };
    let keyspace = Keyspace::make(address, "own").await;
    let (one, other) = (driver(&keyspace, 0, 1).await, driver(&keyspace, 0, 2).await);
    let slots = hour()..hour() + 3;
    let others = [(10.0, 4), (3.0, 2), (6.0, 5)];
    for aggregation in Aggregation::ALL {
        keyspace.run(&format!("DROP TABLE IF EXISTS {}.{}", keyspace.name, hourly(true))).await;
        other.write(vec![run(aggregation, slots.start, &others)]).await.unwrap();
        // We wrote of the last slot too, before we knew that the other had it all.
        one.write(vec![run(aggregation, slots.start + 2, &[(6.0, 5)])]).await.unwrap();
        let wholes = [(12.0, 6), (2.0, 3), (6.0, 5)];
        let own = one.writer_partials(vec![run(aggregation, slots.start, &wholes)]).await.unwrap().runs;
        assert_eq!(own[0].counts, [2, 1, 0], "{aggregation}");
        one.write(own).await.unwrap();
        assert_eq!(read(&one, aggregation, slots.clone()).await, cells(&wholes), "{aggregation}");
        let again = one.writer_partials(vec![run(aggregation, slots.start, &wholes)]).await.unwrap().runs;
        assert_eq!(again[0].counts, [2, 1, 0], "{aggregation}, asked again");
        // A point that the other counted was overwritten.
        let changed = [(13.0, 6), (2.5, 3), (5.5, 5)];
        let own = one.writer_partials(vec![run(aggregation, slots.start, &changed)]).await.unwrap();
        assert!(own.corrected.contains(&own.runs[0].metric), "{aggregation}: a row of the other one is corrected");
        let own = own.runs;
        one.write(own).await.unwrap();
        assert_eq!(read(&one, aggregation, slots.clone()).await, cells(&changed), "{aggregation}, changed");
    }
    keyspace.drop().await;
}

#[tokio::test]
async fn the_later_of_two_writes_of_a_slot_wins_whatever_the_clock() {
    let Some(address) = node::address() else { return };
    let keyspace = Keyspace::make(address, "later").await;
    let one = driver(&keyspace, 0, 1).await;
    let last = Aggregation::Last;
    let ahead = (node::now() + 86_400) * 1_000_000;
    one.continue_after(ahead);
    // Of equal timestamps Cassandra would take the higher value.
    one.write(vec![
        run(last, hour(), &[(9.0, 1), (8.0, 1), (7.0, 1)]),
        run(last, hour() + 3, &[(6.0, 1)]),
        run(last, hour() + 1, &[(-5.0, 1), (-4.0, 1)]),
        run(last, hour() + 3, &[(-3.0, 1)]),
    ])
    .await
    .unwrap();
    one.write(vec![run(last, hour(), &[(-9.0, 1)])]).await.unwrap();
    assert_eq!(read(&one, last, hour()..hour() + 4).await, cells(&[(-9.0, 1), (-5.0, 1), (-4.0, 1), (-3.0, 1)]));
    let cql = format!("SELECT offset, WRITETIME(value) FROM {}.{}", keyspace.name, hourly(true));
    let rows = keyspace.session.query_unpaged(cql, ()).await.unwrap().into_rows_result().unwrap();
    let mut written: Vec<(i16, i64)> = rows.rows().unwrap().map(Result::unwrap).collect();
    written.sort();
    let written: Vec<i64> = written.into_iter().map(|(_, timestamp)| timestamp - ahead).collect();
    // The last two runs are one batch. What is ahead of the clock goes on at half of its pace.
    let [later, first @ ..] = &written[..] else { panic!("{written:?}") };
    assert!(4 <= first[0] && first[0] < *later && *later < 60_000_000, "{written:?}");
    assert_eq!(first, [first[0]; 3]);
    keyspace.drop().await;
}

#[tokio::test]
async fn a_dropped_table_is_created_again_and_pending_rows_are_written() {
    let Some(address) = node::address() else { return };
    let keyspace = Keyspace::make(address, "dropped").await;
    let one = driver(&keyspace, 0, 1).await;
    let sum = Aggregation::Sum;
    let several: Vec<(f64, u32)> = (0..50).map(|i| (f64::from(i), 1)).collect();
    for cells_of_it in [&several[..], &several[..1]] {
        one.write(vec![run(sum, hour(), cells_of_it)]).await.unwrap();
        assert_eq!(read(&one, sum, hour()..hour() + 1).await, cells(&several[..1]));
        keyspace.run(&format!("DROP TABLE {}.{}", keyspace.name, hourly(true))).await;
        assert_eq!(read(&one, sum, hour()..hour() + 1).await, Cells::default(), "its rows are gone with it");
        keyspace.run(&format!("DROP TABLE IF EXISTS {}.{}", keyspace.name, hourly(true))).await;
        one.write(vec![run(sum, hour(), cells_of_it)]).await.unwrap();
        assert_eq!(read(&one, sum, hour()..hour() + 1).await, cells(&several[..1]));
    }
    // While it is known, and written to without having been read.
    keyspace.run(&format!("DROP TABLE {}.{}", keyspace.name, hourly(true))).await;
    one.write(vec![run(sum, hour(), &several)]).await.unwrap();
    let span = hour()..hour() + several.len() as Slot;
    assert_eq!(read(&one, sum, span).await, cells(&several));
    keyspace.drop().await;
}

#[tokio::test]
async fn a_missing_keyspace_is_named() {
    let Some(address) = node::address() else { return };
    let options = node::options(node::cluster(&address), "no_such_keyspace");
    let driver = CassandraDriver::connect(options).await.unwrap();
    let error = driver.write(vec![run(Aggregation::Sum, hour(), &[(1.0, 1)])]).await.unwrap_err();
    assert!(error.to_string().contains("Cassandra has no keyspace 'no_such_keyspace'"), "{error}");
    let table = hourly(false);
    let (first_slot, end_slot) = (hour(), hour() + 1);
    let fetch =
        Fetch { metric: MetricId(1), name: NAME.into(), table, first_slot, end_slot, aggregation: Aggregation::Sum };
    let error = driver.fetch(vec![fetch]).await.unwrap_err();
    assert!(error.to_string().contains("Cassandra has no keyspace 'no_such_keyspace'"), "{error}");
}

#[tokio::test]
async fn a_slot_with_more_rows_than_a_page_is_read_completely() {
    let Some(address) = node::address() else { return };
    let keyspace = Keyspace::make(address, "paged").await;
    let one = driver(&keyspace, 0, 1).await;
    let sum = Aggregation::Sum;
    one.write(vec![run(sum, hour(), &[(1.0, 1)])]).await.unwrap();
    // More writers than a page has rows, in two slots of one partition; 4,000 rows make a page.
    let base = hour();
    let stage = hourly(true).stage;
    let insert = keyspace
        .session
        .prepare(format!(
            "INSERT INTO {}.{} (metric, time_start_ms, offset, shard, value, count) VALUES (?, ?, ?, ?, 2.0, 1)",
            keyspace.name,
            hourly(true)
        ))
        .await
        .unwrap();
    let id = uuid::Uuid::new_v5(&"00000000-1111-2222-3333-444444444444".parse().unwrap(), NAME.as_bytes());
    let mut batch = scylla::statement::batch::Batch::new(scylla::statement::batch::BatchType::Unlogged);
    let mut values = Vec::new();
    for shard in 10..3010_i16 {
        batch.append_statement(insert.clone());
        let start = stage.time(base / 2000 * 2000) * 1000;
        values.push((id, start, (base % 2000) as i16, shard));
    }
    keyspace.session.batch(&batch, values.clone()).await.unwrap();
    let next = values.into_iter().map(|(id, start, offset, shard)| (id, start, offset - 1, shard)).collect::<Vec<_>>();
    keyspace.session.batch(&batch, next).await.unwrap();
    let got = read(&one, sum, base - 1..base + 1).await;
    assert_eq!(got, cells(&[(6000.0, 3000), (6001.0, 3001)]));
    keyspace.drop().await;
}

/// An empty value, which any type may have, is none, as it is for BigGraphite: it costs its slot.
#[tokio::test]
async fn an_empty_value_costs_its_slot_and_nothing_else() {
    let Some(address) = node::address() else { return };
    let keyspace = Keyspace::make(address, "empty").await;
    let one = driver(&keyspace, 0, 1).await;
    let sum = Aggregation::Sum;
    one.write(vec![run(sum, hour(), &[(10.0, 4), (1.0, 1), (2.0, 2)])]).await.unwrap();
    let table = format!("{}.{}", keyspace.name, hourly(true));
    let rows = format!("SELECT metric, time_start_ms, offset, shard FROM {table}");
    let rows = keyspace.session.query_unpaged(rows, ()).await.unwrap().into_rows_result().unwrap();
    let rows: Vec<(uuid::Uuid, i64, i16, i16)> = rows.rows().unwrap().map(Result::unwrap).collect();
    // The other columns cannot be empty.
    let (metric, start, offset, shard) = *rows.iter().min_by_key(|row| row.2).unwrap();
    let key = format!("metric = {metric} AND time_start_ms = {start} AND offset = {offset} AND shard = {shard}");
    keyspace.run(&format!("UPDATE {table} SET value = blob_as_double(0x) WHERE {key}")).await;
    let found = read(&one, sum, hour()..hour() + 3).await;
    assert!(found.values[0].is_nan(), "{found:?}");
    assert_eq!((&found.values[1..], &found.counts[1..]), (&[1.0, 2.0][..], &[1, 2][..]));
    // This writer's part of these slots is all of them.
    let wholes = run(sum, hour(), &[(10.0, 4), (1.0, 1), (2.0, 2)]);
    let own = one.writer_partials(vec![wholes.clone()]).await.unwrap().runs;
    one.write(own).await.unwrap();
    assert_eq!(read(&one, sum, hour()..hour() + 3).await, cells(&[(10.0, 4), (1.0, 1), (2.0, 2)]));
    keyspace.drop().await;
}
