//! What Cassandra and its driver cost by themselves: points written and read with nothing of ours in between.
//!
//! `bare HOST:PORT write METRICS POINTS FIRST BATCH` writes POINTS of each of METRICS, BATCH rows of one partition at a time, into
//! the keyspace `bare`, in a table of the shape of BigGraphite's stage 0, and with a further word `hours` also a row of each
//! hour into one of the shape of its aggregates. `bare HOST:PORT read METRICS POINTS FIRST` reads them
//! back, all metrics at once and then one alone. Both print one line of JSON. FIRST is the number of the first point, 0
//! by default: points that a server keeps in two partitions are read from two here as well. tests/bench/cassandra compares
//! it with servers.

use std::{ops::Range, time::Instant};

use futures::{StreamExt, stream};
use scylla::{
    client::{session::Session, session_builder::SessionBuilder},
    statement::batch::{Batch, BatchType},
};
use uuid::Uuid;

const USAGE: &str = "bare HOST:PORT write|read METRICS POINTS FIRST [BATCH [hours]]";

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Concurrent statements; more did not make it faster on two cores.
const IN_FLIGHT: usize = 64;
/// Points of a partition.
const PARTITION: i64 = 2_000;
const STEP_MS: i64 = 60_000;
/// Points of a slot of the second stage.
const HOUR_POINTS: i64 = 60;
/// Long enough that nothing expires while it is measured.
const TTL_SECONDS: i32 = 692_100;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize| words.get(at).ok_or(USAGE);
    let session = SessionBuilder::new().known_node(word(0)?).build().await?;
    let metrics: u128 = word(2)?.parse()?;
    let first: i64 = word(4)?.parse()?;
    let points = first..first + word(3)?.parse::<i64>()?;
    match word(1)?.as_str() {
        "write" => write(&session, metrics, points, word(5)?.parse()?, words.get(6).is_some()).await,
        "read" => read(&session, metrics, points).await,
        _ => Err(USAGE.into()),
    }
}

async fn write(session: &Session, metrics: u128, points: Range<i64>, rows: usize, hours: bool) -> Result<(), Failure> {
    let schema = [
        "CREATE KEYSPACE IF NOT EXISTS bare WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE IF NOT EXISTS bare.points (metric uuid, time_start_ms bigint, offset smallint, value double, \
         PRIMARY KEY ((metric, time_start_ms), offset)) WITH CLUSTERING ORDER BY (offset DESC) \
         AND default_time_to_live = 692100 AND memtable_flush_period_in_ms = 900000 AND compaction = \
         {'class': 'TimeWindowCompactionStrategy', 'timestamp_resolution': 'MICROSECONDS', \
         'compaction_window_unit': 'HOURS', 'compaction_window_size': 3}",
        "CREATE TABLE IF NOT EXISTS bare.hours (metric uuid, time_start_ms bigint, offset smallint, shard smallint, value double, \
         count smallint, PRIMARY KEY ((metric, time_start_ms), offset, shard)) WITH CLUSTERING ORDER BY (offset DESC, shard DESC) \
         AND default_time_to_live = 2595600 AND memtable_flush_period_in_ms = 900000 AND compaction = \
         {'class': 'TimeWindowCompactionStrategy', 'timestamp_resolution': 'MICROSECONDS', \
         'compaction_window_unit': 'DAYS', 'compaction_window_size': 1}",
    ];
    for statement in schema {
        session.query_unpaged(statement, ()).await?;
    }
    let insert = session
        .prepare("INSERT INTO bare.points (metric, time_start_ms, offset, value) VALUES (?, ?, ?, ?) USING TTL ?")
        .await?;
    let mut batch = Batch::new(BatchType::Unlogged);
    for _ in 0..rows {
        batch.append_statement(insert.clone());
    }
    let batch = session.prepare_batch(&batch).await?;

    let hour = session
        .prepare("INSERT INTO bare.hours (metric, time_start_ms, offset, shard, value, count) VALUES (?, ?, ?, ?, ?, ?) USING TTL ?")
        .await?;

    let begun = Instant::now();
    let batches = (points.end - points.start) as usize / rows;
    let first = points.start as usize;
    let work = (0..batches).flat_map(|nth| (0..metrics).map(move |metric| (metric, first + nth * rows)));
    let mut results = stream::iter(work)
        .map(|(metric, first)| {
            let values: Vec<_> = (first..first + rows)
                .map(|point| {
                    let point = point as i64;
                    let value = metric as f64 + point as f64 / 8.0;
                    let start = point / PARTITION * PARTITION * STEP_MS;
                    (Uuid::from_u128(metric), start, (point % PARTITION) as i16, value, TTL_SECONDS)
                })
                .collect();
            let (batch, hour) = (&batch, &hour);
            // Of the metric's last hour in this batch, one for each that it has.
            let last = (first + rows - 1) as i64 / HOUR_POINTS;
            let of_hours = (first as i64 / HOUR_POINTS..=last).filter(move |_| hours).map(move |nth| {
                let start = nth / PARTITION * PARTITION * STEP_MS * HOUR_POINTS;
                let row = (
                    Uuid::from_u128(metric),
                    start,
                    (nth % PARTITION) as i16,
                    1_i16,
                    7.5,
                    HOUR_POINTS as i16,
                    TTL_SECONDS,
                );
                async move { session.execute_unpaged(hour, row).await.map(drop) }
            });
            async move {
                let of_hours = futures::future::try_join_all(of_hours);
                let both = async { session.batch(batch, values).await.map(drop) };
                futures::future::try_join(both, of_hours).await.map(drop)
            }
        })
        .buffer_unordered(IN_FLIGHT);
    while let Some(result) = results.next().await {
        result?;
    }
    let written = metrics * (batches * rows) as u128;
    println!("{{\"rows\": {written}, \"seconds\": {:.4}}}", begun.elapsed().as_secs_f64());
    Ok(())
}

async fn read(session: &Session, metrics: u128, points: Range<i64>) -> Result<(), Failure> {
    let select = session
        .prepare(
            "SELECT offset, value FROM bare.points WHERE metric = ? AND time_start_ms = ? AND offset >= ? AND offset < ?",
        )
        .await?;
    let partitions = points.start / PARTITION..(points.end + PARTITION - 1) / PARTITION;
    let one = |metric: u128| {
        let (select, points, partitions) = (&select, points.clone(), partitions.clone());
        async move {
            let mut read = 0;
            for partition in partitions {
                let begin = partition * PARTITION;
                let within = (points.start - begin).max(0) as i16..(points.end - begin).min(PARTITION) as i16;
                let key = (Uuid::from_u128(metric), begin * STEP_MS, within.start, within.end);
                let mut rows = session.execute_iter(select.clone(), key).await?.rows_stream::<(i16, f64)>()?;
                while let Some(row) = rows.next().await {
                    row?;
                    read += 1;
                }
            }
            Ok::<u64, Failure>(read)
        }
    };
    let begun = Instant::now();
    let mut rows = 0;
    let mut results = stream::iter(0..metrics).map(one).buffer_unordered(IN_FLIGHT);
    while let Some(read) = results.next().await {
        rows += read?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let mut alone = Vec::new();
    for metric in 0..metrics.min(50) {
        let begun = Instant::now();
        one(metric).await?;
        alone.push(begun.elapsed().as_secs_f64());
    }
    alone.sort_by(f64::total_cmp);
    let median = alone.get(alone.len() / 2).copied().unwrap_or(f64::NAN);
    println!("{{\"rows\": {rows}, \"seconds\": {seconds:.4}, \"alone_p50_seconds\": {median:.5}}}");
    Ok(())
}
