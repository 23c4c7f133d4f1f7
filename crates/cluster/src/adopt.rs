//! Metrics of the shared tables that are new to this node get an id here, and others the policy that they have there.

use host::{Clock, MinuteLog, SystemClock};
use ingest::Ingest;
use metric::MetricId;
use store::{MetricRecord, NameStore, PolicyChange, SharedMetric, StoreError};

/// Metrics that ingestion takes in under one lock: points wait for as long.
const BATCH: usize = 1 << 12;

/// Gives ids to metrics that this node does not know, keeps them in the embedded store, and makes them visible. Returns
/// how many were new; known ones keep their id, and get the policy of the tables where this node has no points of them.
///
/// # Errors
/// The embedded store cannot keep them.
pub async fn adopt(metrics: Vec<SharedMetric>, local: &dyn NameStore, ingest: &Ingest) -> Result<usize, StoreError> {
    // A hidden metric becomes visible again under its old id, and what is known of it is judged as of the others.
    let reserved = ingest.reserve(metrics.iter().collect(), |metric: &&SharedMetric| &metric.name);
    take_over(&metrics, local, ingest).await?;
    learn(&metrics, local, ingest).await;
    let record = |(id, metric): (MetricId, &SharedMetric)| {
        let SharedMetric { name, policy, since, earlier, created_on, .. } = metric.clone();
        let since = if earlier.is_empty() { 0 } else { since };
        let mut policies = earlier;
        policies.push(PolicyChange { since, policy });
        MetricRecord { id, name, created_on: created_on.unwrap_or(0), policies }
    };
    let records: Vec<MetricRecord> = reserved.into_iter().map(record).collect();
    if records.is_empty() {
        return Ok(0);
    }
    // Durable before they are visible: the journal names a metric of a point by its id alone.
    local.put_metrics(records.clone()).await?;
    local.sync_metrics().await?;
    let added = records.chunks(BATCH).map(|batch| ingest.adopt(batch.to_vec())).sum();
    if added < records.len() {
        // Points made some of them meanwhile, by the rules of this node alone, or another call took them in, as they were in the tables
        // before or after.
        let newer: Vec<SharedMetric> = metrics.iter().filter(|metric| is_newer(metric, ingest)).cloned().collect();
        take_over(&newer, local, ingest).await?;
        learn(&metrics, local, ingest).await;
        write_owed(local, ingest).await;
    }
    Ok(added)
}

/// Whether a metric has a policy in the tables that is in force since later than the one that this node has.
fn is_newer(metric: &SharedMetric, ingest: &Ingest) -> bool {
    let registry = ingest.registry();
    let name = metric.name.as_bytes();
    let names = registry.read();
    let Some(id) = names.find(registry.hash(name), name) else { return false };
    let is_of_before = names.creation(id).zip(metric.created_on).is_some_and(|(here, there)| there < here);
    drop(names);
    let last = registry.policies(id).and_then(|history| history.last().map(|last| last.since));
    !is_of_before && last.is_some_and(|last| last < metric.since)
}

/// Takes over the policies that others have of metrics without points here.
async fn take_over(metrics: &[SharedMetric], local: &dyn NameStore, ingest: &Ingest) -> Result<(), StoreError> {
    let otherwise = ingest.kept_otherwise(metrics);
    if otherwise.is_empty() {
        return Ok(());
    }
    let metrics = ingest.take_over(otherwise, local).await?;
    if 0 < metrics {
        tracing::info!(metrics, "metrics without points on this node have another policy than before, by the tables");
    }
    Ok(())
}

/// Notes the policies that others had.
async fn learn(metrics: &[SharedMetric], local: &dyn NameStore, ingest: &Ingest) {
    let metrics = ingest.learn(metrics);
    if 0 < metrics {
        tracing::info!(
            metrics,
            "metrics had policies on other nodes that they never had here; points of these are read, too"
        );
        write_owed(local, ingest).await;
    }
}

/// Keeps what others changed. What cannot be written now stays owed: names are read and followed meanwhile.
pub(crate) async fn write_owed(local: &dyn NameStore, ingest: &Ingest) {
    static LOG: MinuteLog = MinuteLog::new();
    if let Err(error) = ingest.write_owed_records(local).await
        && let Some(not_logged) = LOG.is_due(SystemClock.instant())
    {
        tracing::warn!(
            %error,
            not_logged,
            "cannot write policies that other nodes have, or had, for metrics of this node; retrying"
        );
    }
}
