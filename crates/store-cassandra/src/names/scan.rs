//! Every metric of the tables, read from many ranges of the token ring at once.
//!
//! 1. The ring is cut into equal ranges. A range is read as a whole: first the names in `metrics`, then the rows of
//!    `metrics_metadata`, which have the same tokens.
//! 2. A name that is in both, with an id and a config that can be read, is a metric. Everything else is counted.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, stream};
use metric::{Policy, Timestamp};
use scylla::{
    deserialize::value::MapIterator,
    response::{PagingState, query_result::QueryRowsResult},
    statement::{Consistency, prepared::PreparedStatement},
    value::{CqlTimeuuid, MaybeEmpty},
};
use store::{EachBatch, PolicyChange, ScanPace, ScanProgress, SharedMetric, StoreError};
use uuid::Uuid;

use super::{config, paths::components, report::ScanReport, tables::Names};
use crate::{ask::read, failure::unavailable, rows, schema::quoted};

/// Parts of the ring. Ten million metrics are twenty thousand in each.
const RANGES: u64 = 512;

/// Ranges read at once. Cassandra is busy with four; eight hide the way there and back.
const AT_ONCE: usize = 8;

/// How long a scan that is spread over a time waits before it looks whether it is hurried.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Rows of a page.
const PAGE_ROWS: i32 = 5000;

const WHAT: &str = "reading the tables of names";

/// A row of `metrics_metadata`, borrowed from the frame. Any program may write the empty values that CQL allows for these types.
type Row<'a> = (
    &'a str,
    Option<MaybeEmpty<Uuid>>,
    Option<MapIterator<'a, 'a, &'a str, &'a str>>,
    Option<MaybeEmpty<CqlTimeuuid>>,
    Option<MaybeEmpty<CqlTimeuuid>>,
);

/// The statements of a scan; each binds the tokens between which it reads, the second included.
struct Statements {
    names: PreparedStatement,
    metadata: PreparedStatement,
}

/// The content of a range.
#[derive(Default)]
struct Range {
    metrics: Vec<SharedMetric>,
    report: ScanReport,
    rows: u64,
}

impl Names {
    /// Which of these names are gone from the tables; see [`crate::CassandraDriver::deleted`].
    pub(crate) async fn deleted(&self, names: Vec<String>) -> Result<Vec<String>, StoreError> {
        let tables = self.tables().await?;
        let keyspace = quoted(&self.keyspace);
        let mut listed = self.reading(&format!("SELECT name FROM {keyspace}.metrics WHERE name = ?")).await?;
        let mut known = self.reading(&format!("SELECT name FROM {keyspace}.metrics_metadata WHERE name = ?")).await?;
        listed.set_consistency(Consistency::LocalQuorum);
        known.set_consistency(Consistency::LocalQuorum);
        let (listed, known) = (&listed, &known);
        let is_there = |name: String| async move {
            let is_there = components(&name) >= tables.opened.components
                || self.has(listed, &name).await? && self.has(known, &name).await?;
            Ok::<_, StoreError>(Some(name).filter(|_| !is_there))
        };
        let asked = stream::iter(names).map(is_there).buffered(self.in_flight);
        let gone: Vec<String> = asked.try_filter_map(|gone| async move { Ok(gone) }).try_collect().await?;
        if !gone.is_empty() {
            // A later point for one of them must find its directories again.
            self.directories.forget();
        }
        Ok(gone)
    }

    async fn has(&self, statement: &PreparedStatement, name: &str) -> Result<bool, StoreError> {
        let _permit = self.permits.acquire().await.expect("it is never closed");
        let asked = self.retry.run(|| self.session.execute_unpaged(statement, (name,))).await;
        let answer = asked.map_err(|error| unavailable(WHAT, &self.keyspace, &error))?;
        Ok(!read::<(String,)>(WHAT, answer)?.is_empty())
    }

    /// Reads every metric. `each` is called with those of one range at a time. Ranges begin at the pace that is asked for, or as soon as
    /// those before them are read.
    pub(crate) async fn scan(&self, pace: ScanPace, each: EachBatch<'_>) -> Result<(), StoreError> {
        self.tables().await?;
        let keyspace = quoted(&self.keyspace);
        let of_range = "WHERE token(name) > ? AND token(name) <= ?";
        let names = format!("SELECT name FROM {keyspace}.metrics {of_range}");
        let metadata =
            format!("SELECT name, id, config, created_on, updated_on FROM {keyspace}.metrics_metadata {of_range}");
        let statements = Statements { names: self.reading(&names).await?, metadata: self.reading(&metadata).await? };

        let mut report = ScanReport::default();
        let mut progress = ScanProgress::default();
        let mut done = 0;
        let clock = &self.options.host.clock;
        let began = clock.instant();
        let (statements, pace) = (&statements, &pace);
        let reads = (0u32..).zip(ranges(RANGES)).map(|(number, range)| async move {
            wait(pace, f64::from(number) / RANGES as f64, || clock.instant() - began).await;
            self.range(statements, range).await
        });
        let mut reads = stream::iter(reads).buffer_unordered(AT_ONCE.min(self.in_flight));
        while let Some(range) = reads.next().await {
            let range = range?;
            done += 1;
            report.add(range.report);
            progress.rows += range.rows;
            progress.part = done as f64 / RANGES as f64;
            each(range.metrics, progress);
        }
        drop(reads);
        if report.left_out() > 0 || report.other_ids > 0 {
            tracing::warn!(
                metrics = report.metrics,
                without_metadata = report.without_metadata,
                unlisted = report.without_name,
                partial = report.partial,
                unreadable = report.unreadable,
                other_ids = report.other_ids,
                example = report.example,
                "the tables of names have incomplete rows; skipping them"
            );
        }
        *self.last_scan.lock() = Some(report);
        Ok(())
    }

    async fn reading(&self, cql: &str) -> Result<PreparedStatement, StoreError> {
        let mut statement = self.prepare(cql).await?;
        statement.set_consistency(self.consistency.meta_read);
        statement.set_page_size(PAGE_ROWS);
        statement.set_use_cached_result_metadata(true);
        Ok(statement)
    }

    async fn range(&self, statements: &Statements, range: (i64, i64)) -> Result<Range, StoreError> {
        let mut found = Range::default();
        let mut listed: HashSet<String> = HashSet::new();
        self.pages(&statements.names, range, |page| {
            for row in page.rows::<(&str,)>().map_err(damaged)? {
                listed.insert(row.map_err(damaged)?.0.to_owned());
            }
            Ok(())
        })
        .await?;
        found.rows += listed.len() as u64;
        // Most metrics share a few configs.
        let mut policies: HashMap<String, Policies> = HashMap::new();
        self.pages(&statements.metadata, range, |page| {
            for row in page.rows::<Row<'_>>().map_err(damaged)? {
                found.rows += 1;
                found.take(row.map_err(damaged)?, &mut listed, &mut policies)?;
            }
            Ok(())
        })
        .await?;
        found.report.without_metadata += listed.len() as u64;
        Ok(found)
    }

    async fn pages(
        &self,
        statement: &PreparedStatement,
        range: (i64, i64),
        mut each: impl FnMut(QueryRowsResult) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut state = PagingState::start();
        loop {
            let asked = self.retry.run(|| self.session.execute_single_page(statement, range, state.clone())).await;
            let (page, paging) = asked.map_err(|error| unavailable(WHAT, &self.keyspace, &error))?;
            each(page.into_rows_result().map_err(damaged)?)?;
            match paging.into_paging_control_flow() {
                std::ops::ControlFlow::Break(()) => return Ok(()),
                std::ops::ControlFlow::Continue(next) => state = next,
            }
        }
    }
}

/// The policy of a metric, those before it, and since when it holds.
type Policies = (Policy, (Vec<PolicyChange>, Timestamp));

impl Range {
    fn take(
        &mut self,
        (name, id, config, created_on, updated_on): Row<'_>,
        listed: &mut HashSet<String>,
        policies: &mut HashMap<String, Policies>,
    ) -> Result<(), StoreError> {
        let Some(name) = listed.take(name) else {
            self.report.without_name += 1;
            return Ok(());
        };
        let (Some(MaybeEmpty::Value(id)), Some(config)) = (id, config) else {
            self.report.partial += 1;
            return Ok(());
        };
        let config: Vec<(&str, &str)> = config.collect::<Result<_, _>>().map_err(damaged)?;
        // Neither keys nor values that can be read have these in them.
        let key: String = config.iter().flat_map(|(key, value)| [*key, "\u{0}", *value, "\u{1}"]).collect();
        let (policy, (earlier, since)) = match policies.get(&key) {
            Some(policies) => policies.clone(),
            None => match config::policy(config.iter().copied()) {
                Ok(policy) => policies.entry(key).or_insert((policy, config::before(config))).clone(),
                Err(error) => {
                    self.report.unreadable += 1;
                    self.report.example.get_or_insert_with(|| format!("{name}: {error}"));
                    return Ok(());
                }
            },
        };
        self.report.other_ids += u64::from(id != rows::metric_id(&name));
        self.report.metrics += 1;
        self.metrics.push(SharedMetric {
            name,
            policy,
            since,
            earlier,
            created_on: config::time(created_on),
            updated_on: config::time(updated_on),
        });
        Ok(())
    }
}

/// Waits until a part of a scan is to be read that began so long ago.
async fn wait(pace: &ScanPace, part: f64, ago: impl Fn() -> Duration) {
    loop {
        let wait = pace.wait(part, ago());
        if wait.is_zero() {
            return;
        }
        tokio::time::sleep(wait.min(LOOK_EVERY)).await;
    }
}

fn damaged(error: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged { what: "an answer from the tables of names".to_owned(), how: error.to_string() }
}

/// The ring as so many ranges, each from after its first token to its second. No key has the smallest token.
fn ranges(number: u64) -> impl Iterator<Item = (i64, i64)> {
    let at = move |part: u64| match part {
        part if part == number => i64::MAX,
        part => (i128::from(i64::MIN) + i128::from(u64::MAX) * i128::from(part) / i128::from(number)) as i64,
    };
    (0..number).map(move |part| (at(part), at(part + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranges_cover_the_ring_exactly_once() {
        for number in [1, 2, 3, 512] {
            let ranges: Vec<(i64, i64)> = ranges(number).collect();
            assert_eq!((ranges[0].0, ranges[ranges.len() - 1].1), (i64::MIN, i64::MAX));
            assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0));
            assert!(ranges.iter().all(|(from, until)| from < until));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_scan_is_spread_over_its_time_until_it_is_hurried() {
        let pace = ScanPace { over: Duration::from_secs(600), ..ScanPace::default() };
        let began = tokio::time::Instant::now();
        let ago = || began.elapsed();
        wait(&pace, 0.0, ago).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        wait(&pace, 0.5, ago).await;
        assert_eq!(began.elapsed().as_secs(), 300);
        // One that is late waits no more.
        wait(&pace, 0.25, ago).await;
        assert_eq!(began.elapsed().as_secs(), 300);
        let hurry = async {
            tokio::time::sleep(Duration::from_secs(100)).await;
            pace.is_hurried.store(true, std::sync::atomic::Ordering::Relaxed);
        };
        tokio::join!(wait(&pace, 0.99, ago), hurry);
        assert!(began.elapsed().as_secs() <= 401, "{:?}", began.elapsed());
        let before = began.elapsed();
        wait(&ScanPace::default(), 0.99, ago).await;
        assert_eq!(began.elapsed(), before);
    }
}
