//! A report of how the tables of a cluster differ from the schema.

use std::collections::BTreeMap;

use store::StoreError;

use super::{
    cql,
    definition::{Schema, Thing, USUAL_REPLICATION},
    found::{Found, FoundIndexes},
    mismatch::mismatches,
};
use crate::{Indexes, Options, session};

/// The state of one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// As it should be.
    Fine(String),
    /// Different, and a node works with it.
    Differs(String),
    /// Missing; `plumbago schema apply` creates it.
    Missing(String),
    /// Missing, and a node adds it at its start.
    Added(String),
    /// A node does not start with it.
    Rejected(String),
}

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order of the schema.
    pub findings: Vec<Finding>,
    // How many of the required indexes exist, where some are missing.
    some_indexes: Option<usize>,
}

impl Report {
    /// Whether a node would start and find everything it needs.
    pub fn is_fine(&self) -> bool {
        !self.findings.iter().any(|finding| matches!(finding, Finding::Missing(_) | Finding::Rejected(_)))
    }
}

impl Report {
    /// Whether a keyspace or the tables of names are missing: the schema is not in use yet, and a node may create all of it.
    /// Other missing things (a stage, an index) are created when needed, or by an operator.
    pub fn is_unmade(&self) -> bool {
        let needed = [Thing::DataKeyspace, Thing::MetadataKeyspace, Thing::MetadataTable("metrics")];
        let needed = needed.map(|thing| Finding::Missing(thing.to_string()));
        self.findings.iter().any(|finding| needed.contains(finding))
    }

    /// Whether some of the required indexes exist and others are missing: their creation was interrupted.
    pub fn is_unfinished(&self) -> bool {
        self.some_indexes.is_some_and(|number| number > 0)
    }

    /// Whether the tables of names have no indexes, though the options require some.
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
                Finding::Rejected(text) => ("rejected", text),
            };
            writeln!(f, "{word} {text}")?;
        }
        Ok(())
    }
}

/// Compares a cluster with a schema; changes nothing.
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
    for creation in schema.clone().with_components(components).creations([USUAL_REPLICATION; 2]) {
        match (&creation.thing, found.has(&creation.thing)) {
            // One line for 130 indexes.
            (Thing::Index(table, _), false) => *absent.entry(table).or_default() += 1,
            (Thing::Index(..), true) => present += 1,
            (Thing::Spec(..), true) => {}
            (Thing::Spec(..) | Thing::MetadataTable("spec" | "writers" | "nodes" | "changes"), false)
                if found.metadata.is_some() =>
            {
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
                "the keyspace of the {what} has durable_writes = false: a crash of a Cassandra node loses the writes that it \
                 acknowledged and did not flush; repair it with ALTER KEYSPACE … WITH durable_writes = true"
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
    findings.extend(mismatches(found).iter().map(|mismatch| Finding::Rejected(mismatch.to_string())));
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
