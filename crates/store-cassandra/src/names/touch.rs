//! Single metrics by name: reading their rows, and updating when they were last written or read.

use std::collections::HashMap;

use futures::{StreamExt, TryStreamExt, stream};
use scylla::{
    statement::prepared::PreparedStatement,
    value::{CqlTimeuuid, MaybeEmpty},
};
use store::{SharedMetric, StoreError};
use uuid::Uuid;

use super::{
    config,
    tables::{Names, Tables},
};
use crate::{ask::read, failure::unavailable};

/// A row of `metrics_metadata`. Any program may write the empty values that CQL allows for these types.
type Row = (
    String,
    Option<MaybeEmpty<Uuid>>,
    Option<HashMap<String, String>>,
    Option<MaybeEmpty<CqlTimeuuid>>,
    Option<MaybeEmpty<CqlTimeuuid>>,
);

/// Metrics that one statement asks for: a statement for each costs Cassandra about as much as writing its rows.
pub(super) const AT_ONCE: usize = 16;

/// Which of a metric's times becomes now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    /// It received points.
    Updated,
    /// It was read.
    Read,
}

impl Names {
    /// The metrics with these names that have whole rows.
    pub(crate) async fn lookup(&self, names: &[String]) -> Result<Vec<SharedMetric>, StoreError> {
        let tables = self.tables().await?;
        let chunks = names.len().div_ceil(AT_ONCE);
        let lookups = (0..chunks).map(|at| {
            let names = names.iter().skip(at * AT_ONCE).take(AT_ONCE);
            self.known(tables, names.map(String::as_str).collect())
        });
        let found: Vec<Vec<SharedMetric>> = stream::iter(lookups).buffered(self.in_flight).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The rows of at most [`AT_ONCE`] metrics, as far as they are complete, in the order of the names.
    pub(super) async fn known(&self, tables: &Tables, names: Vec<&str>) -> Result<Vec<SharedMetric>, StoreError> {
        const WHAT: &str = "looking metrics up";
        // Not all: others go on meanwhile.
        let permits = names.len().min(self.in_flight.div_ceil(2)) as u32;
        let _permits = self.permits.acquire_many(permits).await.expect("it is never closed");
        let asked = self.retry.run(|| self.session.execute_unpaged(&tables.known, (&names,))).await;
        let answer = asked.map_err(|error| unavailable(WHAT, &self.keyspace, &error))?;
        let mut found: Vec<SharedMetric> = read::<Row>(WHAT, answer)?.into_iter().filter_map(complete).collect();
        found.sort_by_key(|metric| names.iter().position(|name| *name == metric.name));
        Ok(found)
    }

    /// Updates when metrics were last written or read. Skips a metric whose rows are missing or incomplete: the update would
    /// create a row without an id, and BigGraphite fails on such rows.
    pub(crate) async fn touch(&self, names: &[String], touch: Touch) -> Result<(), StoreError> {
        let tables = self.tables().await?;
        let statement = match touch {
            Touch::Updated => &tables.updated,
            Touch::Read => &tables.read,
        };
        let chunks = names.len().div_ceil(AT_ONCE);
        let touches = (0..chunks).map(|at| {
            let names = names.iter().skip(at * AT_ONCE).take(AT_ONCE);
            self.touch_known(tables, names.map(String::as_str).collect(), statement)
        });
        stream::iter(touches).buffer_unordered(self.in_flight.div_ceil(AT_ONCE)).try_collect::<()>().await
    }

    async fn touch_known(
        &self,
        tables: &Tables,
        names: Vec<&str>,
        statement: &PreparedStatement,
    ) -> Result<(), StoreError> {
        let known = self.known(tables, names).await?;
        let touches = (0..known.len()).map(|at| self.touch_one(&known[at].name, statement));
        stream::iter(touches).buffer_unordered(AT_ONCE).try_collect::<()>().await
    }

    async fn touch_one(&self, name: &str, statement: &PreparedStatement) -> Result<(), StoreError> {
        let _permit = self.permits.acquire().await.expect("it is never closed");
        let written = self.retry.run(|| self.session.execute_unpaged(statement, (name,))).await;
        written
            .map(drop)
            .map_err(|error| unavailable("updating the time a metric was last seen", &self.keyspace, &error))
    }
}

/// What a row tells, where it has an id and a policy.
fn complete((name, id, config, created_on, updated_on): Row) -> Option<SharedMetric> {
    let (Some(MaybeEmpty::Value(_)), Some(config)) = (id, config) else { return None };
    let pairs = || config.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let policy = config::policy(pairs()).ok()?;
    let (earlier, since) = config::before(pairs());
    let (created_on, updated_on) = (config::time(created_on), config::time(updated_on));
    Some(SharedMetric { name, policy, since, earlier, created_on, updated_on })
}
