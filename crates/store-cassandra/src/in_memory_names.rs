//! Names in memory, and the log of names that came and went, for rehearsals of several nodes: the calls of an in-memory writer.

use std::{collections::BTreeMap, time::Duration};

use store::{
    DriverFuture, EachBatch, MetricRecord, ScanPace, ScanProgress, SharedMetric, SharedNames, SharedNode, StoreError,
};

use crate::{
    InMemoryWriter,
    deletion::{partitions, tables_of},
    in_memory_tables::MemoryTables,
    memory_names::{MemoryNames, kept},
    peers::{Change, Changed, ListedChange},
    rows,
    shared_tables::SharedTables,
};

/// Attempts of a statement that does not get through, and the pause before the second one. Each further pause is twice as long.
const ATTEMPTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

impl InMemoryWriter {
    /// A statement with further attempts where it does not get through.
    async fn repeat<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut pause = FIRST_PAUSE;
        for _ in 1..ATTEMPTS {
            if let Ok(done) = attempt().await {
                return Ok(done);
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        attempt().await
    }

    async fn change_names(&self, change: impl Fn(&mut MemoryTables)) -> Result<(), StoreError> {
        let change = &change;
        self.repeat(|| self.change(move |tables| change(tables))).await
    }

    async fn select_names<T>(&self, select: impl Fn(&MemoryNames) -> T) -> Result<T, StoreError> {
        let select = &select;
        self.repeat(|| self.select(move |tables| select(&tables.names))).await
    }

    /// Deletes the points of a metric: each partition that is there is a statement, and so are all that are not. Then what is
    /// there of tables of no policy of it.
    async fn delete_points(&self, record: &MetricRecord, timestamp: i64) -> Result<(), StoreError> {
        let metric = rows::metric_id(&record.name);
        for (table, longest) in tables_of(record) {
            let partitions = partitions(table.stage, self.now(), longest);
            let (there, absent): (Vec<i64>, Vec<i64>) =
                partitions.into_iter().partition(|start| self.has_partition(metric, table, *start));
            for starts in there.chunks(1).chain([&absent[..]]) {
                self.change_names(|tables| {
                    starts.iter().for_each(|start| tables.delete_partition(metric, table, *start, timestamp));
                })
                .await?;
            }
        }
        for (table, start) in self.partitions_of(metric) {
            if !tables_of(record).any(|(known, _)| known == table) {
                self.change_names(|tables| tables.delete_partition(metric, table, start, timestamp)).await?;
            }
        }
        Ok(())
    }

    /// See [`store::SharedPoints::delete_metrics`].
    pub(crate) async fn delete(&self, records: Vec<MetricRecord>, timestamp: i64) -> Result<(), StoreError> {
        // Statements are prepared.
        self.select_names(|_| ()).await?;
        for record in &records {
            self.delete_points(record, timestamp).await?;
        }
        for record in records {
            self.change_names(|tables| drop(tables.names.metrics.remove(&record.name))).await?;
        }
        Ok(())
    }
}

impl SharedTables for InMemoryWriter {
    fn put_names<'a>(&'a self, records: &'a [MetricRecord]) -> DriverFuture<'a, ()> {
        Box::pin(async move {
            for record in records {
                self.change_names(|tables| tables.names.put(record, self.now())).await?;
            }
            Ok(())
        })
    }

    fn deleted(&self, names: Vec<String>) -> DriverFuture<'_, Vec<String>> {
        Box::pin(async move {
            let mut gone = Vec::new();
            for name in names {
                if !self.select_names(|tables| tables.metrics.contains_key(&name)).await? {
                    gone.push(name);
                }
            }
            Ok(gone)
        })
    }

    fn last_timestamp(&self) -> i64 {
        InMemoryWriter::last_timestamp(self)
    }

    fn last_deletion(&self) -> i64 {
        InMemoryWriter::last_deletion(self)
    }

    fn append_changes<'a>(&'a self, bucket: i64, rows: &'a [Change]) -> DriverFuture<'a, ()> {
        Box::pin(async move {
            let kept = |changed: &Changed| match changed {
                Changed::Created(policy) => Changed::Created(kept(policy)),
                Changed::Deleted => Changed::Deleted,
            };
            self.change_names(|tables| {
                let bucket = tables.names.changes.entry(bucket).or_default();
                let row = |row: &Change| (row.key, Change { changed: kept(&row.changed), ..row.clone() });
                bucket.extend(rows.iter().map(row));
            })
            .await
        })
    }

    fn list_changes(&self, bucket: i64, since: i64) -> DriverFuture<'_, Vec<ListedChange>> {
        Box::pin(async move {
            self.select_names(|tables| {
                let rows = tables.changes.get(&bucket).into_iter().flat_map(BTreeMap::values);
                let rows = rows.filter(|row| since <= row.key.written);
                let listed = |row: &Change| ListedChange { key: row.key, is_deletion: row.changed == Changed::Deleted };
                rows.map(listed).collect()
            })
            .await
        })
    }

    fn changes(&self, bucket: i64, first: i64, last: i64) -> DriverFuture<'_, Vec<Change>> {
        Box::pin(async move {
            self.select_names(|tables| {
                let rows = tables.changes.get(&bucket).into_iter().flat_map(BTreeMap::values);
                rows.filter(|row| (first..=last).contains(&row.key.written)).cloned().collect()
            })
            .await
        })
    }
}

impl SharedNames for InMemoryWriter {
    fn scan<'a>(&'a self, _pace: ScanPace, each: EachBatch<'a>) -> DriverFuture<'a, ()> {
        Box::pin(async move {
            let all = |tables: &MemoryNames| tables.metrics.keys().filter_map(|name| tables.metric(name)).collect();
            let metrics: Vec<SharedMetric> = self.select_names(all).await?;
            let rows = metrics.len() as u64;
            each(metrics, ScanProgress { rows, part: 1.0 });
            Ok(())
        })
    }

    fn lookup(&self, names: Vec<String>) -> DriverFuture<'_, Vec<SharedMetric>> {
        Box::pin(async move {
            self.select_names(|tables| names.iter().filter_map(|name| tables.metric(name)).collect()).await
        })
    }

    /// Nothing reads it.
    fn mark_updated(&self, _names: Vec<String>) -> DriverFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Nothing reads it.
    fn mark_read(&self, _names: Vec<String>) -> DriverFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn find(&self, pattern: &str, _limit: usize) -> DriverFuture<'_, Vec<SharedNode>> {
        let error = format!("tables in memory have no indexes: {pattern}");
        Box::pin(async move { Err(StoreError::Rejected(error)) })
    }
}
