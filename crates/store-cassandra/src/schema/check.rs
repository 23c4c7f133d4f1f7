//! Whether what a cluster has is what this program keeps its tables like: as a report for people, and as the
//! refusal of a node that would write something wrong.

use std::collections::BTreeMap;

use metric::{ROW_POINTS, Table};
use scylla::client::session::Session;
use store::StoreError;

use super::{
    Schema, Thing, apply, cql, found,
    found::{Found, FoundIndexes, FoundTable},
    metadata_keyspace,
};
use crate::{Indexes, Options, session};

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It is as it should be.
    Fine(String),
    /// It differs, and a node goes on with it.
    Differs(String),
    /// It is not there; `plumbago schema apply` makes it.
    Missing(String),
    /// It is not there, and a node that starts adds it by itself.
    Added(String),
    /// A node refuses to start on it.
    Refused(String),
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order in which they were looked at.
    pub findings: Vec<Finding>,
    // How many of the indexes that are asked for are there, where not all are.
    some_indexes: Option<usize>,
}

impl Report {
    /// Whether a node would start and find everything it needs.
    pub fn is_fine(&self) -> bool {
        !self.findings.iter().any(|finding| matches!(finding, Finding::Missing(_) | Finding::Refused(_)))
    }
}

impl Report {
    /// Whether a keyspace is missing, or the tables of names are: nobody has begun to use this, and a node may make all of
    /// it. What is missing beside them (a stage, an index) is made when it is needed, or by somebody who decides so.
    pub fn is_unmade(&self) -> bool {
        let needed = [Thing::DataKeyspace, Thing::MetadataKeyspace, Thing::MetadataTable("metrics")];
        let needed = needed.map(|thing| Finding::Missing(thing.to_string()));
        self.findings.iter().any(|finding| needed.contains(finding))
    }

    /// Whether some indexes of the kind that is asked for are there and others are not: whoever made them did not get to
    /// the end.
    pub fn is_unfinished(&self) -> bool {
        self.some_indexes.is_some_and(|number| number > 0)
    }

    /// Whether the tables of names carry no indexes, though some are asked for.
    pub fn has_no_indexes(&self) -> bool {
        self.some_indexes == Some(0)
    }
}

/// A line for each finding.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for finding in &self.findings {
            let (word, text) = match finding {
                Finding::Fine(text) => ("ok      ", text),
                Finding::Differs(text) => ("differs ", text),
                Finding::Missing(text) => ("missing ", text),
                Finding::Added(text) => ("added   ", text),
                Finding::Refused(text) => ("refused ", text),
            };
            writeln!(f, "{word} {text}")?;
        }
        Ok(())
    }
}

/// Looks at everything of a schema in a cluster; changes nothing.
///
/// # Errors
/// `Unavailable` where the cluster cannot be asked.
pub async fn check(options: &Options, schema: &Schema) -> Result<Report, StoreError> {
    let (data, metadata) = session::connect(options).await?;
    Ok(report(&Found::read(&data, &metadata, options).await?, schema))
}

fn report(found: &Found, schema: &Schema) -> Report {
    let mut findings = Vec::new();
    let components = found.components().unwrap_or(schema.components);
    let mut absent: BTreeMap<&str, usize> = BTreeMap::new();
    let mut present = 0;
    for creation in schema.clone().with_components(components).creations([super::USUAL_REPLICATION; 2]) {
        match (&creation.thing, found.has(&creation.thing)) {
            // One line says it for 130 indexes.
            (Thing::Index(table, _), false) => *absent.entry(table).or_default() += 1,
            (Thing::Index(..), true) => present += 1,
            (Thing::Spec(..), true) => {}
            (Thing::Spec(..) | Thing::MetadataTable("spec" | "writers"), false) if found.metadata.is_some() => {
                findings.push(Finding::Added(format!("{}: a node adds it when it starts", creation.thing)));
            }
            (thing, true) => findings.push(Finding::Fine(thing.to_string())),
            (thing, false) => findings.push(Finding::Missing(thing.to_string())),
        }
    }
    for (what, keyspace) in [("points", &found.data), ("names", &found.metadata)] {
        let Some(keyspace) = keyspace else { continue };
        let replication = keyspace.replication.iter().map(|(name, value)| format!("{name} {value}"));
        let replication = replication.collect::<Vec<_>>().join(", ");
        findings.push(Finding::Fine(format!("replication of the keyspace of the {what}: {replication}")));
        if !keyspace.durable_writes {
            findings.push(Finding::Differs(format!(
                "the keyspace of the {what} has durable_writes = false: what a Cassandra node acknowledged and did not flush \
                 is lost when it crashes; ALTER KEYSPACE … WITH durable_writes = true mends it"
            )));
        }
    }
    let mut some_indexes = None;
    if found.metadata.is_some() {
        let finding = indexes(found, schema, &absent);
        some_indexes = matches!(finding, Finding::Missing(_)).then_some(present);
        findings.push(finding);
    }
    if let Some(components) = found.components() {
        let text =
            format!("{components} columns for components: names of up to {} components", components.saturating_sub(1));
        findings.push(match components >= cql::COMPONENTS {
            true => Finding::Fine(text),
            false => Finding::Differs(text),
        });
    }
    findings.extend(refusals(found).into_iter().map(|refusal| Finding::Refused(refusal.to_string())));
    Report { findings, some_indexes }
}

fn indexes(found: &Found, schema: &Schema, absent: &BTreeMap<&str, usize>) -> Finding {
    let kind = found.indexes();
    let wanted = match schema.indexes {
        Indexes::Sasi => FoundIndexes::Sasi,
        Indexes::Sai => FoundIndexes::Sai,
        Indexes::None => FoundIndexes::None,
    };
    let text = format!("{kind} indexes over the names");
    if kind == wanted && absent.is_empty() {
        return Finding::Fine(text);
    }
    if kind == FoundIndexes::None || kind == wanted {
        let absent = absent.iter().map(|(table, number)| format!("{number} of table {table}"));
        return Finding::Missing(format!("indexes: {}", absent.collect::<Vec<_>>().join(", ")));
    }
    Finding::Differs(format!("{text}; the setting says {wanted}"))
}

/// What a node works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opened {
    /// Columns for components, in both tables of names.
    pub(crate) components: usize,
    /// Which indexes they carry.
    pub(crate) indexes: FoundIndexes,
}

/// Looks at what is there before anything is written, and adds `spec` and `writers` to the keyspace of another program.
///
/// # Errors
/// `Spec` where the tables are kept in another way; `Unavailable` where a keyspace or table is missing, or cannot be added.
pub(crate) async fn open(data: &Session, metadata: &Session, options: &Options) -> Result<Opened, StoreError> {
    let found = Found::read(data, metadata, options).await?;
    let metadata_name = metadata_keyspace(&options.keyspace);
    for (name, keyspace) in [(&options.keyspace, &found.data), (&metadata_name, &found.metadata)] {
        if keyspace.is_none() {
            return Err(StoreError::Unavailable(format!(
                "Cassandra has no keyspace '{name}'; make it with 'plumbago schema apply', or name another one"
            )));
        }
    }
    refuse(&found, &options.keyspace)?;
    let schema = Schema::new(options, &[]);
    for table in ["metrics", "directories", "metrics_metadata"] {
        if !found.has(&Thing::MetadataTable(table)) {
            return Err(StoreError::Unavailable(format!(
                "keyspace '{metadata_name}' has no table {table}; make what is missing with 'plumbago schema apply'"
            )));
        }
    }
    let components = found.components().unwrap_or_default();
    for creation in schema.with_components(components).creations([super::USUAL_REPLICATION; 2]) {
        let is_ours = matches!(creation.thing, Thing::MetadataTable("spec" | "writers") | Thing::Spec(..));
        if is_ours && !found.has(&creation.thing) {
            apply::make(metadata, options, &creation).await?;
            tracing::info!(what = %creation.thing, keyspace = metadata_name, "added beside what another program made");
        }
    }
    Ok(Opened { components, indexes: found.indexes() })
}

/// Refuses tables that are kept in another way.
pub(super) fn refuse(found: &Found, keyspace: &str) -> Result<(), StoreError> {
    match refusals(found).into_iter().next() {
        Some(Refusal { found, expected }) => {
            Err(StoreError::Spec { found: format!("in keyspace '{keyspace}' that {found}"), expected })
        }
        None => Ok(()),
    }
}

/// What was found and what was expected.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    found: String,
    expected: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, this program expects {}", self.found, self.expected)
    }
}

/// Everything for which a node would write something wrong.
fn refusals(found: &Found) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut refuse = |found: String, expected: String| refusals.push(Refusal { found, expected });
    for (name, wanted) in [("schema_version", cql::SCHEMA_VERSION), ("row_points", ROW_POINTS)] {
        if let Some(value) = found.spec.get(name).filter(|value| **value != wanted.to_string()) {
            refuse(format!("table spec has {name} {value}"), format!("{name} {wanted}"));
        }
    }
    if let (Some(value), Some(components)) = (found.spec.get("components"), found.components())
        && *value != components.to_string()
    {
        refuse(
            format!("table spec has components {value}"),
            format!("{components}, the number of columns for components that the tables of names have"),
        );
    }
    for (name, table) in found.data.iter().flat_map(|keyspace| &keyspace.tables) {
        let Some(kind) = found::datapoints(name) else { continue };
        if let Some(row) = row_size(table).filter(|row| *row != f64::from(ROW_POINTS)) {
            refuse(format!("table {name} keeps {row} points in a partition"), format!("{ROW_POINTS}"));
        }
        let missing = found::missing_columns(table, datapoints_columns(kind));
        if !missing.is_empty() {
            let missing = missing.into_iter().collect::<Vec<_>>().join(", ");
            refuse(format!("table {name} lacks columns"), format!("{missing}, as BigGraphite has them"));
        }
    }
    let tables = found.metadata.iter().flat_map(|keyspace| &keyspace.tables);
    for (name, table) in tables {
        let columns = match name.as_str() {
            "metrics" | "directories" => NAME_COLUMNS,
            "metrics_metadata" => METADATA_COLUMNS,
            _ => continue,
        };
        let missing = found::missing_columns(table, columns);
        if !missing.is_empty() {
            let missing = missing.into_iter().collect::<Vec<_>>().join(", ");
            refuse(format!("table {name} lacks columns"), format!("{missing}, as BigGraphite has them"));
        }
    }
    refusals
}

const NAME_COLUMNS: &[(&str, &str)] =
    &[("name", "text"), ("parent", "text"), ("component_0", "text"), ("component_1", "text")];

const METADATA_COLUMNS: &[(&str, &str)] = &[
    ("name", "text"),
    ("created_on", "timeuuid"),
    ("updated_on", "timeuuid"),
    ("read_on", "timeuuid"),
    ("id", "uuid"),
    ("config", "map<text, text>"),
];

const POINT_COLUMNS: &[(&str, &str)] =
    &[("metric", "uuid"), ("time_start_ms", "bigint"), ("offset", "smallint"), ("value", "double")];

const PARTIAL_COLUMNS: &[(&str, &str)] = &[
    ("metric", "uuid"),
    ("time_start_ms", "bigint"),
    ("offset", "smallint"),
    ("shard", "smallint"),
    ("value", "double"),
    ("count", "smallint"),
];

fn datapoints_columns(table: Table) -> &'static [(&'static str, &'static str)] {
    if table.aggregated { PARTIAL_COLUMNS } else { POINT_COLUMNS }
}

/// Points of a partition, as the table's comment says; `None` where it does not.
fn row_size(table: &FoundTable) -> Option<f64> {
    let (_, rest) = table.comment.split_once("\"row_size\":")?;
    let number = rest.trim_start().split([',', '}']).next()?;
    number.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::found::FoundKeyspace;

    fn table(columns: &[(&str, &str)], comment: &str) -> FoundTable {
        let columns = columns.iter().map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned())).collect();
        FoundTable { comment: comment.to_owned(), columns, ..FoundTable::default() }
    }

    fn found() -> Found {
        let points = table(POINT_COLUMNS, r#"{"stage": "10*60s_0", "row_size_ms": 120000000, "row_size": 2000.0}"#);
        let data = FoundKeyspace { tables: [("datapoints_10p_60s_0".to_owned(), points)].into(), ..Default::default() };
        let names = table(NAME_COLUMNS, "");
        let tables = [
            ("metrics".to_owned(), names.clone()),
            ("directories".to_owned(), names),
            ("metrics_metadata".to_owned(), table(METADATA_COLUMNS, "")),
        ];
        let metadata = FoundKeyspace { tables: tables.into(), ..Default::default() };
        Found { data: Some(data), metadata: Some(metadata), spec: BTreeMap::new() }
    }

    fn check(found: Found, refusal: Option<&str>) {
        let refused = refuse(&found, "k").err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), refusal);
    }

    #[test]
    fn biggraphites_tables_are_taken_as_they_are() {
        check(found(), None);
        // A comment that says nothing of rows is no reason.
        let mut silent = found();
        silent.data.as_mut().unwrap().tables.get_mut("datapoints_10p_60s_0").unwrap().comment.clear();
        check(silent, None);
    }

    #[test]
    fn another_width_of_rows_is_refused() {
        let mut wide = found();
        let table = wide.data.as_mut().unwrap().tables.get_mut("datapoints_10p_60s_0").unwrap();
        table.comment = r#"{"row_size": 25000.0}"#.to_owned();
        check(
            wide,
            Some(
                "the store says in keyspace 'k' that table datapoints_10p_60s_0 keeps 25000 points in a partition, this program \
             expects 2000",
            ),
        );
    }

    #[test]
    fn another_spec_is_refused() {
        for (name, value, refusal) in [
            ("schema_version", "2", "that table spec has schema_version 2, this program expects schema_version 1"),
            ("row_points", "1000", "that table spec has row_points 1000, this program expects row_points 2000"),
            (
                "components",
                "64",
                "that table spec has components 64, this program expects 2, the number of columns for components that the \
                 tables of names have",
            ),
        ] {
            let mut other = found();
            other.spec.insert(name.to_owned(), value.to_owned());
            check(other, Some(&format!("the store says in keyspace 'k' {refusal}")));
        }
    }

    #[test]
    fn other_columns_are_refused() {
        let mut other = found();
        let tables = &mut other.metadata.as_mut().unwrap().tables;
        tables.get_mut("metrics_metadata").unwrap().columns.insert("id".to_owned(), "text".to_owned());
        check(
            other,
            Some(
                "the store says in keyspace 'k' that table metrics_metadata lacks columns, this program expects id uuid, as \
             BigGraphite has them",
            ),
        );
    }
}
