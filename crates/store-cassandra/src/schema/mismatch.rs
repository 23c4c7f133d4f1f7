//! Tables of another layout, into which this program would write wrong rows.

use metric::{ROW_POINTS, Table};
use store::StoreError;

use super::{
    cql,
    found::{self, Found, FoundTable},
};

/// Rejects tables of another layout.
pub(super) fn check(found: &Found, keyspace: &str) -> Result<(), StoreError> {
    match mismatches(found).into_iter().next() {
        Some(Mismatch { found, expected }) => {
            Err(StoreError::Spec { found: format!("in keyspace '{keyspace}' that {found}"), expected })
        }
        None => Ok(()),
    }
}

/// A difference: the found and the expected state.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    found: String,
    expected: String,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, this program expects {}", self.found, self.expected)
    }
}

/// Everything that would make a node write wrong rows.
pub(super) fn mismatches(found: &Found) -> Vec<Mismatch> {
    let mut mismatches = Vec::new();
    let mut mismatch = |found: String, expected: String| mismatches.push(Mismatch { found, expected });
    let packed_version = u32::from(cql::PACKED_VERSION);
    for (name, wanted) in
        [("schema_version", cql::SCHEMA_VERSION), ("row_points", ROW_POINTS), ("packed_version", packed_version)]
    {
        if let Some(value) = found.spec.get(name).filter(|value| **value != wanted.to_string()) {
            mismatch(format!("table spec has {name} {value}"), format!("{name} {wanted}"));
        }
    }
    if let (Some(value), Some(components)) = (found.spec.get("components"), found.components())
        && *value != components.to_string()
    {
        mismatch(
            format!("table spec has components {value}"),
            format!("{components}, the number of columns for components that the tables of names have"),
        );
    }
    for (name, table) in found.data.iter().flat_map(|keyspace| &keyspace.tables) {
        let columns = match found::datapoints(name) {
            Some(kind) => datapoints_columns(kind),
            None if found::is_packed(name) => PACKED_COLUMNS,
            None => continue,
        };
        if let Some(row) = row_size(table).filter(|row| *row != f64::from(ROW_POINTS)) {
            mismatch(format!("table {name} keeps {row} points in a partition"), format!("{ROW_POINTS}"));
        }
        let missing = found::missing_columns(table, columns);
        if !missing.is_empty() {
            let missing = missing.into_iter().collect::<Vec<_>>().join(", ");
            let whose = if found::is_packed(name) { "" } else { ", as BigGraphite has them" };
            mismatch(format!("table {name} lacks columns"), format!("{missing}{whose}"));
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
            mismatch(format!("table {name} lacks columns"), format!("{missing}, as BigGraphite has them"));
        }
    }
    mismatches
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

const PACKED_COLUMNS: &[(&str, &str)] = &[
    ("metric", "uuid"),
    ("time_start_ms", "bigint"),
    ("offset", "smallint"),
    ("shard", "smallint"),
    ("count", "smallint"),
    ("holes", "blob"),
    ("points", "blob"),
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
    use std::collections::BTreeMap;

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

    fn assert_mismatch(found: Found, mismatch: Option<&str>) {
        let found = check(&found, "k").err().map(|error| error.to_string());
        assert_eq!(found.as_deref(), mismatch);
    }

    #[test]
    fn biggraphites_tables_are_accepted() {
        assert_mismatch(found(), None);
        // A comment without a row size is fine.
        let mut silent = found();
        silent.data.as_mut().unwrap().tables.get_mut("datapoints_10p_60s_0").unwrap().comment.clear();
        assert_mismatch(silent, None);
    }

    #[test]
    fn another_width_of_rows_is_rejected() {
        let mut wide = found();
        let table = wide.data.as_mut().unwrap().tables.get_mut("datapoints_10p_60s_0").unwrap();
        table.comment = r#"{"row_size": 25000.0}"#.to_owned();
        assert_mismatch(
            wide,
            Some(
                "the store says in keyspace 'k' that table datapoints_10p_60s_0 keeps 25000 points in a partition, this program \
             expects 2000",
            ),
        );
    }

    #[test]
    fn packed_tables_of_another_layout_are_rejected() {
        let with = |columns: &[(&str, &str)], comment: &str| {
            let mut other = found();
            let tables = &mut other.data.as_mut().unwrap().tables;
            tables.insert("datapoints_10p_60s_packed".to_owned(), table(columns, comment));
            other
        };
        assert_mismatch(with(PACKED_COLUMNS, r#"{"row_size": 2000.0}"#), None);
        assert_mismatch(
            with(PACKED_COLUMNS, r#"{"row_size": 4000.0}"#),
            Some(
                "the store says in keyspace 'k' that table datapoints_10p_60s_packed keeps 4000 points in a partition, this \
             program expects 2000",
            ),
        );
        assert_mismatch(
            with(&PACKED_COLUMNS[..5], ""),
            Some(
                "the store says in keyspace 'k' that table datapoints_10p_60s_packed lacks columns, this program expects holes \
             blob, points blob",
            ),
        );
    }

    #[test]
    fn another_spec_is_rejected() {
        for (name, value, expected) in [
            ("schema_version", "2", "that table spec has schema_version 2, this program expects schema_version 1"),
            ("packed_version", "2", "that table spec has packed_version 2, this program expects packed_version 1"),
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
            assert_mismatch(other, Some(&format!("the store says in keyspace 'k' {expected}")));
        }
    }

    #[test]
    fn other_columns_are_rejected() {
        let mut other = found();
        let tables = &mut other.metadata.as_mut().unwrap().tables;
        tables.get_mut("metrics_metadata").unwrap().columns.insert("id".to_owned(), "text".to_owned());
        assert_mismatch(
            other,
            Some(
                "the store says in keyspace 'k' that table metrics_metadata lacks columns, this program expects id uuid, as \
             BigGraphite has them",
            ),
        );
    }
}
