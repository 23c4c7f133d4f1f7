//! The keyspaces, tables and indexes of a cluster, read from its `system_schema`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use metric::{Stage, Table};
use scylla::client::session::Session;
use store::StoreError;

use super::{
    cql::{self, metadata_keyspace},
    definition::Thing,
};
use crate::{Indexes, Options, ask::Asker};

/// A keyspace and everything in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct FoundKeyspace {
    /// As Cassandra writes it; empty where there is no such keyspace.
    pub(super) replication: BTreeMap<String, String>,
    pub(super) durable_writes: bool,
    pub(super) tables: BTreeMap<String, FoundTable>,
}

/// A table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct FoundTable {
    pub(super) comment: String,
    /// Type of each column.
    pub(super) columns: BTreeMap<String, String>,
    /// Class of the index over each indexed column; that of a Lucene index under its own name.
    pub(super) indexes: BTreeMap<String, String>,
}

/// Both keyspaces, as far as they exist.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Found {
    pub(super) data: Option<FoundKeyspace>,
    pub(super) metadata: Option<FoundKeyspace>,
    /// The rows of table `spec`.
    pub(super) spec: BTreeMap<String, String>,
}

/// The indexes of the tables of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoundIndexes {
    /// SASI over every column that globs ask.
    Sasi,
    /// Storage-attached, over every such column.
    Sai,
    /// Lucene's, which only BigGraphite asks.
    Lucene,
    /// None, or not over every such column.
    None,
}

impl std::fmt::Display for FoundIndexes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FoundIndexes::Sasi => "SASI",
            FoundIndexes::Sai => "SAI",
            FoundIndexes::Lucene => "Lucene",
            FoundIndexes::None => "no",
        })
    }
}

impl Found {
    /// Reads both keyspaces.
    pub(super) async fn read(data: &Session, metadata: &Session, options: &Options) -> Result<Found, StoreError> {
        let metadata_name = metadata_keyspace(&options.keyspace);
        let consistency = options.consistency.meta_read;
        let of_data = Asker { session: data, keyspace: &options.keyspace, consistency, retry: options.retry() };
        let of_metadata = Asker { session: metadata, keyspace: &metadata_name, consistency, retry: options.retry() };
        let mut found =
            Found { data: keyspace(&of_data).await?, metadata: keyspace(&of_metadata).await?, spec: BTreeMap::new() };
        if found.metadata.as_ref().is_some_and(|keyspace| keyspace.tables.contains_key("spec")) {
            let cql = format!("SELECT name, value FROM {}.spec", cql::quoted(&metadata_name));
            let rows: Vec<(String, Option<String>)> = of_metadata.rows("reading table spec", &cql, ()).await?;
            found.spec = rows.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        }
        Ok(found)
    }

    /// Whether there is such a thing already.
    pub(super) fn has(&self, thing: &Thing) -> bool {
        let metadata = |table: &str| self.metadata.as_ref().and_then(|keyspace| keyspace.tables.get(table));
        match thing {
            Thing::DataKeyspace => self.data.is_some(),
            Thing::Datapoints(table) => {
                self.data.as_ref().is_some_and(|keyspace| keyspace.tables.contains_key(&table.to_string()))
            }
            Thing::Packed(stage) => {
                self.data.as_ref().is_some_and(|keyspace| keyspace.tables.contains_key(&cql::packed_name(*stage)))
            }
            Thing::MetadataKeyspace => self.metadata.is_some(),
            Thing::MetadataTable(table) => metadata(table).is_some(),
            Thing::Index(table, column) => metadata(table).is_some_and(|table| table.indexes.contains_key(column)),
            Thing::Spec(name, _) => self.spec.contains_key(*name),
        }
    }

    /// Columns for components that both tables of names have; `None` where a table is missing.
    pub(super) fn components(&self) -> Option<usize> {
        let tables = &self.metadata.as_ref()?.tables;
        let of_table = |table: &FoundTable| {
            (0..).take_while(|component| table.columns.contains_key(&format!("component_{component}"))).count()
        };
        Some(of_table(tables.get(cql::NAME_TABLES[0])?).min(of_table(tables.get(cql::NAME_TABLES[1])?)))
    }

    /// The kind of index over parents and components.
    pub(super) fn indexes(&self) -> FoundIndexes {
        let Some(components) = self.components() else { return FoundIndexes::None };
        let tables = cql::NAME_TABLES.map(|name| self.metadata.as_ref().and_then(|keyspace| keyspace.tables.get(name)));
        let carries = |indexes: Indexes, class: &str| {
            let wanted = cql::indexed(indexes, components);
            wanted.iter().filter(|(table, _)| cql::NAME_TABLES.contains(table)).all(|(name, column)| {
                let at = usize::from(*name == cql::NAME_TABLES[1]);
                let found = tables[at].and_then(|table| table.indexes.get(column));
                found.is_some_and(|found| found.ends_with(class))
            })
        };
        if carries(Indexes::Sasi, "SASIIndex") {
            FoundIndexes::Sasi
        } else if carries(Indexes::Sai, "StorageAttachedIndex") {
            FoundIndexes::Sai
        } else if tables.iter().flatten().any(|table| table.indexes.values().any(|class| class.contains("lucene"))) {
            FoundIndexes::Lucene
        } else {
            FoundIndexes::None
        }
    }

    /// Whether any column of the tables of names has an index of another class than this.
    pub(super) fn has_other_index_than(&self, class: &str) -> bool {
        let tables = cql::NAME_TABLES.map(|name| self.metadata.as_ref().and_then(|keyspace| keyspace.tables.get(name)));
        let mut classes = tables.into_iter().flatten().flat_map(|table| table.indexes.values());
        classes.any(|found| !found.ends_with(class))
    }
}

/// The datapoints table with this name, or `None` for another table.
pub(super) fn datapoints(name: &str) -> Option<Table> {
    let (points, rest) = name.strip_prefix("datapoints_")?.split_once("p_")?;
    let (resolution, kind) = rest.split_once("s_")?;
    let stage = Stage::new(resolution.parse().ok()?, points.parse().ok()?).ok()?;
    let aggregated = match kind {
        "0" => false,
        "aggr" => true,
        _ => return None,
    };
    Some(Table { stage, aggregated, rollup: None })
}

/// Whether this is the name of a packed table.
pub(super) fn is_packed(name: &str) -> bool {
    packed(name).is_some()
}

/// The stage of the packed table with this name.
fn packed(name: &str) -> Option<Stage> {
    Some(datapoints(&format!("{}0", name.strip_suffix("packed")?))?.stage)
}

/// The stage of the table of points with this name, of rows or packed; `None` for another table.
pub(crate) fn stage_of(name: &str) -> Option<Stage> {
    datapoints(name).map(|table| table.stage).or_else(|| packed(name))
}

async fn keyspace(asker: &Asker<'_>) -> Result<Option<FoundKeyspace>, StoreError> {
    let what = format!("reading the schema of keyspace '{}'", asker.keyspace);
    let cql = "SELECT replication, durable_writes FROM system_schema.keyspaces WHERE keyspace_name = ?";
    let mut rows: Vec<(HashMap<String, String>, Option<bool>)> = asker.rows(&what, cql, (asker.keyspace,)).await?;
    let Some((replication, durable_writes)) = rows.pop() else { return Ok(None) };
    let mut tables: BTreeMap<String, FoundTable> = BTreeMap::new();

    let cql = "SELECT table_name, comment FROM system_schema.tables WHERE keyspace_name = ?";
    let rows: Vec<(String, Option<String>)> = asker.rows(&what, cql, (asker.keyspace,)).await?;
    for (name, comment) in rows {
        tables.entry(name).or_default().comment = comment.unwrap_or_default();
    }
    let cql = "SELECT table_name, column_name, type FROM system_schema.columns WHERE keyspace_name = ?";
    let rows: Vec<(String, String, String)> = asker.rows(&what, cql, (asker.keyspace,)).await?;
    for (table, column, kind) in rows {
        // Columns of views have no table here.
        if let Some(table) = tables.get_mut(&table) {
            table.columns.insert(column, kind);
        }
    }
    let cql = "SELECT table_name, index_name, options FROM system_schema.indexes WHERE keyspace_name = ?";
    type Index = (String, String, Option<HashMap<String, String>>);
    let rows: Vec<Index> = asker.rows(&what, cql, (asker.keyspace,)).await?;
    for (table, index, options) in rows {
        let options = options.unwrap_or_default();
        let class = options.get("class_name").cloned().unwrap_or_default();
        let target = options.get("target").map_or(index.as_str(), |target| target.trim_matches('"'));
        if let Some(table) = tables.get_mut(&table) {
            table.indexes.insert(target.to_owned(), class);
        }
    }
    let durable_writes = durable_writes.unwrap_or(true);
    Ok(Some(FoundKeyspace { replication: replication.into_iter().collect(), durable_writes, tables }))
}

/// A replication that fits the cluster: in every data centre three replicas, or as many as it has nodes.
pub(super) async fn fitting_replication(asker: &Asker<'_>) -> Result<String, StoreError> {
    let mut nodes: BTreeMap<String, u32> = BTreeMap::new();
    for table in ["local", "peers"] {
        let cql = format!("SELECT data_center FROM system.{table}");
        let rows: Vec<(Option<String>,)> = asker.rows("reading the cluster's nodes", &cql, ()).await?;
        for (datacenter,) in rows {
            *nodes.entry(datacenter.unwrap_or_default()).or_default() += 1;
        }
    }
    let mut replication = String::from("{'class': 'NetworkTopologyStrategy'");
    for (datacenter, nodes) in nodes.into_iter().filter(|(datacenter, _)| !datacenter.is_empty()) {
        replication.push_str(&format!(", '{}': {}", datacenter.replace('\'', "''"), nodes.min(3)));
    }
    replication.push('}');
    Ok(replication)
}

/// Names of columns that a table must have and has not, or has with another type.
pub(super) fn missing_columns(table: &FoundTable, wanted: &[(&str, &str)]) -> BTreeSet<String> {
    let missing = wanted.iter().filter(|(name, kind)| table.columns.get(*name).is_none_or(|found| found != kind));
    missing.map(|(name, kind)| format!("{name} {kind}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_table_gives_its_stage() {
        let stage = Stage::new(60, 10080).unwrap();
        for aggregated in [false, true] {
            let table = Table { stage, aggregated, rollup: None };
            assert_eq!(datapoints(&table.to_string()), Some(table));
        }
        for other in ["metrics", "datapoints_1p_0s_0", "datapoints_1p_1s_packed", "datapoints_p_s_0"] {
            assert_eq!(datapoints(other), None, "{other}");
        }
        assert!(is_packed("datapoints_10080p_60s_packed") && is_packed(&cql::packed_name(stage)));
        assert_eq!(
            ["datapoints_10080p_60s_packed", "datapoints_10080p_60s_0", "spec"].map(stage_of),
            [Some(stage), Some(stage), None]
        );
        for other in ["packed", "datapoints_1p_0s_packed", "datapoints_1p_1s_0", "datapoints_1p_1s_0packed"] {
            assert!(!is_packed(other), "{other}");
        }
    }

    fn names(class: &str, columns: usize, indexed: usize) -> FoundTable {
        let mut table = FoundTable::default();
        table.indexes.insert("parent".to_owned(), class.to_owned());
        for component in 0..columns {
            table.columns.insert(format!("component_{component}"), "text".to_owned());
            if component < indexed {
                table.indexes.insert(format!("component_{component}"), class.to_owned());
            }
        }
        table
    }

    fn found(metrics: FoundTable, directories: FoundTable) -> Found {
        let tables = [("metrics".to_owned(), metrics), ("directories".to_owned(), directories)].into();
        let metadata = FoundKeyspace { tables, ..FoundKeyspace::default() };
        Found { metadata: Some(metadata), ..Found::default() }
    }

    #[test]
    fn indexes_are_found_where_every_column_of_both_tables_has_one() {
        let check = |metrics: FoundTable, directories: FoundTable, components: usize, indexes: FoundIndexes| {
            let found = found(metrics, directories);
            assert_eq!((found.components(), found.indexes()), (Some(components), indexes));
        };
        check(names(cql::SASI, 12, 12), names(cql::SASI, 12, 12), 12, FoundIndexes::Sasi);
        check(names(cql::SASI, 12, 12), names(cql::SASI, 12, 11), 12, FoundIndexes::None);
        check(names(cql::SASI, 12, 12), names(cql::SAI, 12, 12), 12, FoundIndexes::None);
        let sai = "org.apache.cassandra.index.sai.StorageAttachedIndex";
        check(names(sai, 8, 8), names(cql::SAI, 9, 9), 8, FoundIndexes::Sai);
        let mut lucene = names(cql::SASI, 12, 0);
        lucene.indexes.insert("metrics_idx".to_owned(), "com.stratio.cassandra.lucene.Index".to_owned());
        check(lucene.clone(), lucene, 12, FoundIndexes::Lucene);
    }
}
