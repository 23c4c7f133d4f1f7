//! Everything that a schema has, as CQL statements in the order in which they run.

use std::collections::BTreeSet;

use metric::{Policy, Retention, Stage, Table};

use super::cql;
use crate::{Indexes, Layout, Options};

/// The replication shown where the cluster is unknown. `apply` reads the cluster's nodes instead.
pub(super) const USUAL_REPLICATION: &str = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}";

/// A statement of a schema, and what it makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Creation {
    pub(crate) thing: Thing,
    pub(crate) cql: String,
}

/// Something that a schema consists of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Thing {
    /// The keyspace of the points.
    DataKeyspace,
    /// A table of points.
    Datapoints(Table),
    /// The packed table of a stage.
    Packed(Stage),
    /// The keyspace of the names.
    MetadataKeyspace,
    /// Another table of that keyspace.
    MetadataTable(&'static str),
    /// The index over a column of a table.
    Index(&'static str, String),
    /// A row of `spec`.
    Spec(&'static str, String),
}

impl Thing {
    /// Whether it is in the cluster of the points.
    pub(super) fn is_data(&self) -> bool {
        matches!(self, Thing::DataKeyspace | Thing::Datapoints(_) | Thing::Packed(_))
    }
}

impl std::fmt::Display for Thing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Thing::DataKeyspace => f.write_str("the keyspace of the points"),
            Thing::Datapoints(table) => write!(f, "table {table}"),
            Thing::Packed(stage) => write!(f, "table {}", cql::packed_name(*stage)),
            Thing::MetadataKeyspace => f.write_str("the keyspace of the names"),
            Thing::MetadataTable(table) => write!(f, "table {table}"),
            Thing::Index(table, column) => write!(f, "the index over {table}.{column}"),
            Thing::Spec(name, value) => write!(f, "{name} = {value} in table spec"),
        }
    }
}

/// Every table that a node needs for some retentions.
#[derive(Debug, Clone)]
pub struct Schema {
    keyspace: String,
    metadata: String,
    replication: Option<String>,
    pub(super) indexes: Indexes,
    pub(super) components: usize,
    tables: BTreeSet<Table>,
    layout: Layout,
}

impl Schema {
    /// For a table of points for each stage of these retentions.
    pub fn new(options: &Options, retentions: &[Retention]) -> Schema {
        let tables_of = |retention: &Retention| {
            // Of a list of methods these tables have the first alone, see `carbon::Rules::with_first_methods`.
            let policy = Policy { retention: retention.clone(), ..Policy::default() };
            (0..policy.retention.stages().len()).map(move |index| policy.table(index))
        };
        Schema {
            keyspace: options.keyspace.clone(),
            metadata: cql::metadata_keyspace(&options.keyspace),
            replication: options.replication.clone(),
            indexes: options.indexes,
            components: cql::COMPONENTS,
            tables: retentions.iter().flat_map(tables_of).collect(),
            layout: options.layout,
        }
    }

    /// The same with another number of columns for components: for tests, in which 134 indexes take too long.
    #[doc(hidden)]
    pub fn with_components(mut self, components: usize) -> Schema {
        self.components = components;
        self
    }

    /// All statements, in the order in which they may be run. `usual` is the replication where none was chosen.
    pub(crate) fn creations(&self, usual: [&str; 2]) -> Vec<Creation> {
        let replication = |usual: &str| self.replication.clone().unwrap_or_else(|| usual.to_owned());
        let metadata = self.metadata.as_str();
        let mut creations = Vec::new();
        let mut create = |thing: Thing, cql: String| creations.push(Creation { thing, cql });
        create(Thing::DataKeyspace, cql::keyspace(&self.keyspace, &replication(usual[0])));
        match self.layout {
            Layout::Rows => {
                for &table in &self.tables {
                    create(Thing::Datapoints(table), cql::datapoints_table(&self.keyspace, table));
                }
            }
            Layout::Packed => {
                for stage in self.tables.iter().map(|table| table.stage).collect::<BTreeSet<Stage>>() {
                    create(Thing::Packed(stage), cql::packed_table(&self.keyspace, stage));
                }
            }
        }
        create(Thing::MetadataKeyspace, cql::keyspace(metadata, &replication(usual[1])));
        for table in cql::NAME_TABLES {
            create(Thing::MetadataTable(table), cql::name_table(metadata, table, self.components));
        }
        create(Thing::MetadataTable("metrics_metadata"), cql::metrics_metadata(metadata));
        create(Thing::MetadataTable("writers"), cql::writers_table(metadata));
        create(Thing::MetadataTable("nodes"), cql::nodes_table(metadata));
        create(Thing::MetadataTable("changes"), cql::changes_table(metadata));
        create(Thing::MetadataTable("spec"), cql::spec_table(metadata));
        for (name, value) in cql::spec(self.components, self.layout) {
            let row = cql::spec_row(metadata, name, &value);
            create(Thing::Spec(name, value), row);
        }
        for (table, column) in cql::indexed(self.indexes, self.components) {
            let index = cql::index(metadata, table, &column, self.indexes);
            create(Thing::Index(table, column), index);
        }
        creations
    }

    /// All statements as text, to be read or given to `cqlsh`. Without a chosen replication, three replicas.
    pub fn show(&self) -> String {
        let mut text = String::new();
        for Creation { thing, cql } in self.creations([USUAL_REPLICATION; 2]) {
            match thing {
                Thing::DataKeyspace => text.push_str("-- Points: a table for each stage of a retention.\n"),
                Thing::MetadataKeyspace => text.push_str("-- Names.\n"),
                Thing::Spec("schema_version", _) => text.push_str("-- How all of this is kept.\n"),
                Thing::Index("metrics_metadata", ref column) if column == "id" => text.push_str("\n-- Indexes.\n"),
                Thing::Index("metrics", ref column) if column == "parent" && self.indexes == Indexes::Sai => {
                    text.push_str("\n-- Indexes.\n");
                }
                _ => {}
            }
            text.push_str(&cql);
            text.push('\n');
            // A blank line behind what takes several.
            if cql.contains('\n') {
                text.push('\n');
            }
        }
        text
    }
}
