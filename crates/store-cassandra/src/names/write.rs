//! New metrics and changed policies on their way to the tables: first the directories above them, then their own
//! rows.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
};

use futures::{StreamExt, TryStreamExt, stream};
use metric::is_tagged;
use store::{MetricRecord, SharedMetric, StoreError};

use super::{
    config,
    paths::{bound, components},
    tables::{Names, Tables},
    touch::AT_ONCE,
};
use crate::{failure::unavailable, rows};

impl Names {
    /// Writes the rows of metrics, with those of every directory above them. Existing rows are written again
    /// unchanged; a policy that changed replaces the one before. Those before that one which the row knows stay there: a node that makes a
    /// metric, as one with a new data folder does, does not know of them. Without lightweight transactions: all of it may be done twice, and by
    /// several nodes at once.
    ///
    /// A metric with as many components as the tables have columns, or more, is left out, counted and logged; the directories
    /// above it are written as far as there are columns.
    pub(crate) async fn put(&self, records: &[MetricRecord]) -> Result<(), StoreError> {
        let tables = self.tables().await?;
        let untagged = records.iter().filter(|record| !is_tagged(&record.name));
        let mut directories: BTreeSet<&str> = BTreeSet::new();
        for record in untagged {
            // Upwards, and no farther than to one whose ancestors are all there.
            let mut path = record.name.as_str();
            while let Some(dot) = path.rfind('.') {
                path = &path[..dot];
                if components(path) >= tables.opened.components {
                    continue;
                }
                if self.directories.has(path) || !directories.insert(path) {
                    break;
                }
            }
        }
        // By their places: of closures over references the compiler cannot tell that they may be sent.
        let directories: Vec<&str> = directories.into_iter().collect();
        let writes = (0..directories.len()).map(|at| self.put_directory(tables, directories[at]));
        stream::iter(writes).buffer_unordered(self.in_flight).try_collect::<()>().await?;
        self.directories.add(directories.iter().copied());

        let (records, rejected): (Vec<&MetricRecord>, Vec<&MetricRecord>) =
            records.iter().partition(|record| components(&record.name) < tables.opened.components);
        self.count_rejected(&rejected, tables);
        let chunks = records.len().div_ceil(AT_ONCE);
        let writes = (0..chunks).map(|at| {
            let chunk = &records[at * AT_ONCE..];
            self.put_metrics(tables, &chunk[..AT_ONCE.min(chunk.len())])
        });
        // While some read, others write.
        stream::iter(writes).buffer_unordered(2 * self.in_flight.div_ceil(AT_ONCE)).try_collect::<()>().await
    }

    fn count_rejected(&self, rejected: &[&MetricRecord], tables: &Tables) {
        let Some(latest) = rejected.last() else { return };
        let mut all = self.rejected.lock();
        all.metrics += rejected.len() as u64;
        all.example = Some(latest.name.clone());
        tracing::warn!(
            metrics = rejected.len(),
            example = latest.name,
            most_components = tables.opened.components.saturating_sub(1),
            keyspace = self.keyspace,
            "metrics have more components than the tables of names have columns; other nodes cannot find them"
        );
    }

    async fn put_directory(&self, tables: &Tables, path: &str) -> Result<(), StoreError> {
        let statement = self.directory_statement(tables, components(path)).await?;
        let values = bound(path);
        let _permit = self.permits.acquire().await.expect("it is never closed");
        let written = self.retry.run(|| self.session.execute_unpaged(&statement, &values)).await;
        written.map(drop).map_err(|error| unavailable("writing a directory", &self.keyspace, &error))
    }

    /// Writes at most [`AT_ONCE`] metrics. Others may know of them, and of policies that this node never had: their rows are read
    /// before.
    async fn put_metrics(&self, tables: &Tables, records: &[&MetricRecord]) -> Result<(), StoreError> {
        let known = self.known(tables, records.iter().map(|record| record.name.as_str()).collect()).await?;
        let known: HashMap<&str, &SharedMetric> = known.iter().map(|metric| (metric.name.as_str(), metric)).collect();
        let writes = (0..records.len()).map(|at| {
            let record = records[at];
            self.put_metric(tables, record, known.get(record.name.as_str()).copied())
        });
        stream::iter(writes).buffer_unordered(AT_ONCE).try_collect::<()>().await
    }

    async fn put_metric(
        &self,
        tables: &Tables,
        record: &MetricRecord,
        known: Option<&SharedMetric>,
    ) -> Result<(), StoreError> {
        let name = record.name.as_str();
        let mut policies = Cow::Borrowed(&record.policies);
        if let Some(known) = known {
            let now = self.options.host.clock.now();
            config::add_known(policies.to_mut(), known, (record.created_on, now));
        }
        let Some(mut config) = config::config_of(&policies) else { return Ok(()) };
        let carbon_aggregator = config.remove(config::CARBON_AGGREGATOR);
        let batch = self.metric_batch(tables, components(name)).await?;
        let of_name = if is_tagged(name) { vec![name] } else { bound(name) };
        let id = rows::metric_id(name);
        let created_on = scylla::value::CqlTimeuuid::from(config::time_uuid(record.created_on, id));
        let values = (of_name, (created_on, id, config, carbon_aggregator, name));
        let _permit = self.permits.acquire().await.expect("it is never closed");
        let written = self.retry.run(|| self.session.batch(&batch, &values)).await;
        written.map(drop).map_err(|error| unavailable("writing a metric", &self.keyspace, &error))
    }
}
