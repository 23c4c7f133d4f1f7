//! The cost of this driver compared with the bare client: the same points, in the same batches, in one run.
//!
//! `points HOST:PORT METRICS POINTS BATCH [ROUNDS] [--layout packed]` writes POINTS of each of METRICS, by this crate's driver and by statements
//! of its own, and reads them back in both ways, in turn, ROUNDS times. It prints one line of JSON for each: rows,
//! seconds, and own processor time a point in microseconds. With `--layout packed` a batch is one packed row; the bare client
//! sends the same bytes, made beforehand, and does not look at what it reads. Points written for their Cassandra cost are better measured
//! from outside; tests/bench/cassandra does.

use std::time::{Duration, Instant, SystemTime};

use futures::{StreamExt, TryStreamExt, stream};
use metric::{Aggregation, MetricId, Stage, Table, Timestamp};
use scylla::{
    client::{session::Session, session_builder::SessionBuilder},
    statement::batch::{Batch, BatchType},
};
use store::{Fetch, PointStore, Run};
use store_cassandra::{CassandraDriver, ClusterOptions, Consistencies, Consistency, Indexes, Layout, Options};
use uuid::Uuid;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Concurrent statements, by both.
const IN_FLIGHT: usize = 64;
/// Runs of one call of the driver, as a flush hands them on.
const RUNS: usize = 1_000;

fn now() -> Timestamp {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() as Timestamp)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    const USAGE: &str = "points HOST:PORT METRICS POINTS BATCH [ROUNDS] [--layout rows|packed]";
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut layout = Layout::Rows;
    if let Some(at) = words.iter().position(|word| word == "--layout") {
        layout = match words.get(at + 1).map(String::as_str) {
            Some("rows") => Layout::Rows,
            Some("packed") => Layout::Packed,
            _ => return Err(USAGE.into()),
        };
        words.drain(at..at + 2);
    }
    let number = |at: usize| words.get(at).ok_or(USAGE)?.parse::<usize>().map_err(Failure::from);
    let address = words.first().ok_or(USAGE)?;
    let (metrics, points, batch) = (number(1)?, number(2)?, number(3)?);
    let rounds = if words.len() > 4 { number(4)? } else { 3 };
    let session = SessionBuilder::new().known_node(address).build().await?;
    session
        .query_unpaged(
            "CREATE KEYSPACE IF NOT EXISTS points WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            (),
        )
        .await?;
    let driver = CassandraDriver::connect(options(address, layout)).await?;
    let table = Table { stage: Stage::new(60, 11520)?, aggregated: false, rollup: None };
    let end = table.stage.slot(now()).ok_or("the clock is wrong")?;
    let work =
        Work { metrics, points: points as u32, batch, layout, table, first: (end - points as u32) / 2000 * 2000 };

    for _ in 0..rounds {
        measure("driver writes", work.rows(), work.write(&driver)).await?;
        measure("bare writes", work.rows(), work.write_bare(&session)).await?;
    }
    for _ in 0..rounds {
        measure("driver reads", work.rows(), work.read(&driver)).await?;
        measure("bare reads", work.rows(), work.read_bare(&session)).await?;
    }
    work.alone(&driver, &session).await
}

/// What is written and read.
struct Work {
    metrics: usize,
    points: u32,
    batch: usize,
    layout: Layout,
    table: Table,
    first: u32,
}

impl Work {
    fn rows(&self) -> usize {
        self.metrics * self.points as usize
    }

    fn name(&self, metric: usize) -> String {
        format!("servers.dc{}.host{:04}.cpu.m{:02}", metric % 4, metric / 100, metric % 100)
    }

    /// Every metric's points of a batch, then those of the next, as flushes do.
    async fn write(&self, driver: &CassandraDriver) -> Result<(), Failure> {
        for part in 0..self.points as usize / self.batch {
            let runs: Vec<Run> = (0..self.metrics)
                .map(|metric| Run {
                    metric: MetricId(metric as u32),
                    name: self.name(metric),
                    table: self.table,
                    first_slot: self.first + (part * self.batch) as u32,
                    values: self.values(metric),
                    counts: vec![],
                    aggregation: Aggregation::Average,
                })
                .collect();
            for runs in runs.chunks(RUNS) {
                driver.write(runs.to_vec()).await?;
            }
        }
        Ok(())
    }

    async fn write_bare(&self, session: &Session) -> Result<(), Failure> {
        if self.layout == Layout::Packed {
            return self.write_bare_runs(session).await;
        }
        let insert = format!(
            "INSERT INTO points.{} (metric, time_start_ms, offset, value) VALUES (?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?",
            self.table
        );
        let insert = session.prepare(insert).await?;
        let mut batch = Batch::new(BatchType::Unlogged);
        (0..self.batch).for_each(|_| batch.append_statement(insert.clone()));
        let batch = &batch;
        let parts = self.points as usize / self.batch;
        let work = (0..parts).flat_map(|part| (0..self.metrics).map(move |metric| (part, metric)));
        let timestamp = 1_000_000 * now();
        let send = |(part, metric): (usize, usize)| async move {
            let values: Vec<_> = (0..self.batch)
                .map(|point| {
                    let slot = self.first as usize + part * self.batch + point;
                    let start = slot as i64 / 2000 * 120_000_000;
                    let value = metric as f64 + point as f64 / 8.0;
                    (Uuid::from_u128(metric as u128), start, (slot % 2000) as i16, value, 692_100, timestamp)
                })
                .collect();
            session.batch(batch, values).await.map(drop)
        };
        Ok(stream::iter(work).map(send).buffer_unordered(IN_FLIGHT).try_collect().await?)
    }

    fn values(&self, metric: usize) -> Vec<f64> {
        (0..self.batch).map(|point| metric as f64 + point as f64 / 8.0).collect()
    }

    fn packed(&self) -> String {
        format!("points.datapoints_{}p_{}s_packed", self.table.stage.points(), self.table.stage.resolution())
    }

    async fn write_bare_runs(&self, session: &Session) -> Result<(), Failure> {
        let insert = format!(
            "INSERT INTO {} (metric, time_start_ms, offset, shard, count, holes, points) VALUES (?, ?, ?, ?, ?, 0x, ?) \
             USING TTL ?",
            self.packed()
        );
        let insert = &session.prepare(insert).await?;
        let mut codec = codec::Codec::new();
        let mut run = |metric| {
            let mut run = vec![0];
            codec.encode(0, &self.values(metric), &[], &mut run);
            codec::seal_run(&[], &mut run);
            run
        };
        let runs: Vec<Vec<u8>> = (0..self.metrics).map(&mut run).collect();
        let runs = &runs;
        let parts = self.points as usize / self.batch;
        let work = (0..parts).flat_map(|part| (0..self.metrics).map(move |metric| (part, metric)));
        let send = |(part, metric): (usize, usize)| async move {
            let slot = self.first as usize + part * self.batch;
            let start = slot as i64 / 2000 * 120_000_000;
            let key = (Uuid::from_u128(metric as u128), start, (slot % 2000) as i16, 1_i16, self.batch as i16);
            let row = (key.0, key.1, key.2, key.3, key.4, &runs[metric], 692_100);
            session.execute_unpaged(insert, row).await.map(drop)
        };
        Ok(stream::iter(work).map(send).buffer_unordered(IN_FLIGHT).try_collect().await?)
    }

    fn fetch_of(&self, metric: usize) -> Fetch {
        Fetch {
            metric: MetricId(metric as u32),
            name: self.name(metric),
            table: self.table,
            first_slot: self.first,
            end_slot: self.first + self.points,
            aggregation: Aggregation::Average,
        }
    }

    async fn read(&self, driver: &CassandraDriver) -> Result<(), Failure> {
        let cells = driver.fetch((0..self.metrics).map(|metric| self.fetch_of(metric)).collect()).await?;
        let whole = cells.iter().all(|cells| cells.values.iter().filter(|value| !value.is_nan()).count() >= self.batch);
        if whole { Ok(()) } else { Err("points are missing".into()) }
    }

    async fn read_bare(&self, session: &Session) -> Result<(), Failure> {
        let select = self.select(session).await?;
        let select = &select;
        let read = |metric: usize| async move { self.read_one(session, select, metric).await };
        stream::iter(0..self.metrics)
            .map(read)
            .buffer_unordered(IN_FLIGHT)
            .try_fold(0, |all, one| async move { Ok(all + one) })
            .await?;
        Ok(())
    }

    async fn select(&self, session: &Session) -> Result<scylla::statement::prepared::PreparedStatement, Failure> {
        if self.layout == Layout::Packed {
            let select = format!(
                "SELECT offset, points FROM {} WHERE metric = ? AND time_start_ms = ? AND offset >= ? AND offset < ?",
                self.packed()
            );
            return Ok(session.prepare(select).await?);
        }
        let select = format!(
            "SELECT offset, value FROM points.{} WHERE metric = ? AND time_start_ms = ? AND offset >= ? AND offset < ?",
            self.table
        );
        Ok(session.prepare(select).await?)
    }

    async fn read_one(
        &self,
        session: &Session,
        select: &scylla::statement::prepared::PreparedStatement,
        metric: usize,
    ) -> Result<usize, Failure> {
        let mut read = 0;
        for row in self.first / 2000..=(self.first + self.points - 1) / 2000 {
            let until = (self.first + self.points - row * 2000).min(2000) as i16;
            let key = (Uuid::from_u128(metric as u128), i64::from(row) * 120_000_000, 0_i16, until);
            let pager = session.execute_iter(select.clone(), key).await?;
            if self.layout == Layout::Packed {
                let mut rows = pager.rows_stream::<(i16, Vec<u8>)>()?;
                while let Some(row) = rows.next().await {
                    read += row?.1.len();
                }
                continue;
            }
            let mut rows = pager.rows_stream::<(i16, f64)>()?;
            while let Some(row) = rows.next().await {
                row?;
                read += 1;
            }
        }
        Ok(read)
    }

    /// One series after the other: what a panel of one line waits for.
    async fn alone(&self, driver: &CassandraDriver, session: &Session) -> Result<(), Failure> {
        let select = self.select(session).await?;
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for metric in 0..self.metrics.min(200) {
            let begun = Instant::now();
            driver.fetch(vec![self.fetch_of(metric)]).await?;
            ours.push(begun.elapsed());
            let begun = Instant::now();
            self.read_one(session, &select, metric).await?;
            bare.push(begun.elapsed());
        }
        let median = |mut times: Vec<Duration>| {
            times.sort();
            times.get(times.len() / 2).copied().unwrap_or_default().as_secs_f64()
        };
        println!("{{\"alone\": {{\"driver_p50\": {:.6}, \"bare_p50\": {:.6}}}}}", median(ours), median(bare));
        Ok(())
    }
}

async fn measure(what: &str, rows: usize, work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let (begun, busy) = (Instant::now(), processor_time());
    work.await?;
    let (seconds, busy) = (begun.elapsed().as_secs_f64(), processor_time() - busy);
    let each = busy * 1e6 / rows as f64;
    println!(
        "{{\"what\": \"{what}\", \"rows\": {rows}, \"seconds\": {seconds:.3}, \"rows_per_second\": {:.0}, \"own_us\": {each:.3}}}",
        rows as f64 / seconds
    );
    Ok(())
}

/// Seconds of processor time of this process, of all its threads.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of = |text: &str| text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0);
    let all: f64 =
        tasks.map(|task| of(&std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default())).sum();
    all.max(of(&stat)) / 1e9
}

fn options(address: &str, layout: Layout) -> Options {
    Options {
        data: ClusterOptions {
            contact_points: vec![address.to_owned()],
            credentials: None,
            tls: None,
            datacenter: None,
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
        },
        metadata: None,
        keyspace: "points".to_owned(),
        replication: None,
        layout,
        consistency: Consistencies {
            data_write: Consistency::LocalOne,
            data_read: Consistency::LocalOne,
            meta_write: Consistency::LocalOne,
            meta_read: Consistency::LocalOne,
        },
        indexes: Indexes::None,
        writer: 0,
        replica: 0,
        in_flight: IN_FLIGHT,
        glob_rows: 1,
        glob_queries: 1,
        host: host::Host::system(),
        damage: store::DamageLog::new(),
    }
}
