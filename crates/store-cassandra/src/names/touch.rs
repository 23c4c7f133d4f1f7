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

/// A row of `metrics_metadata` without its key. Any program may write the empty values that CQL allows for these types.
type Row = (
    Option<MaybeEmpty<Uuid>>,
    Option<HashMap<String, String>>,
    Option<MaybeEmpty<CqlTimeuuid>>,
    Option<MaybeEmpty<CqlTimeuuid>>,
);

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
        let lookups = (0..names.len()).map(|at| self.one(tables, &names[at]));
        let found: Vec<Option<SharedMetric>> = stream::iter(lookups).buffered(self.in_flight).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    pub(super) async fn one(&self, tables: &Tables, name: &str) -> Result<Option<SharedMetric>, StoreError> {
        const WHAT: &str = "looking a metric up";
        let _permit = self.permits.acquire().await.expect("it is never closed");
        let asked = self.retry.run(|| self.session.execute_unpaged(&tables.known, (name,))).await;
        let answer = asked.map_err(|error| unavailable(WHAT, &self.keyspace, &error))?;
        let Some((Some(MaybeEmpty::Value(_)), Some(config), created_on, updated_on)) = read::<Row>(WHAT, answer)?.pop()
        else {
            return Ok(None);
        };
        let pairs = || config.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let Ok(policy) = config::policy(pairs()) else {
            return Ok(None);
        };
        let (earlier, since) = config::before(pairs());
        Ok(Some(SharedMetric {
            name: name.to_owned(),
            policy,
            since,
            earlier,
            created_on: config::time(created_on),
            updated_on: config::time(updated_on),
        }))
    }

    /// Updates when metrics were last written or read. Skips a metric whose rows are missing or incomplete: the update would
    /// create a row without an id, and BigGraphite fails on such rows.
    pub(crate) async fn touch(&self, names: &[String], touch: Touch) -> Result<(), StoreError> {
        let tables = self.tables().await?;
        let statement = match touch {
            Touch::Updated => &tables.updated,
            Touch::Read => &tables.read,
        };
        let touches = (0..names.len()).map(|at| self.touch_one(tables, &names[at], statement));
        stream::iter(touches).buffer_unordered(self.in_flight).try_collect::<()>().await
    }

    async fn touch_one(&self, tables: &Tables, name: &str, statement: &PreparedStatement) -> Result<(), StoreError> {
        if self.one(tables, name).await?.is_none() {
            return Ok(());
        }
        let _permit = self.permits.acquire().await.expect("it is never closed");
        let written = self.retry.run(|| self.session.execute_unpaged(statement, (name,))).await;
        written
            .map(drop)
            .map_err(|error| unavailable("updating the time a metric was last seen", &self.keyspace, &error))
    }
}
