//! Creates one thing of a schema, and says what to do where a server cannot.

use scylla::{client::session::Session, statement::unprepared::Statement};
use store::StoreError;

use super::definition::{Creation, Thing};
use crate::{
    Options,
    failure::{Classify, Failure, unavailable},
};

/// Creates one thing.
pub(super) async fn create(session: &Session, options: &Options, creation: &Creation) -> Result<(), StoreError> {
    let mut statement = Statement::new(creation.cql.as_str());
    statement.set_is_idempotent(true);
    statement.set_consistency(options.consistency.meta_write);
    // The session waits until every live node has it.
    let made = options.retry().run(|| session.query_unpaged(statement.clone(), ())).await;
    let Err(error) = made else { return Ok(()) };
    let text = error.to_string();
    let Creation { thing, cql } = creation;
    Err(match index_advice(thing, cql, &text) {
        Some(advice) => StoreError::Rejected(format!("cannot create {thing}: {advice} (Cassandra said: {text})")),
        None if error.failure() == Failure::Unauthorized => StoreError::Unavailable(format!(
            "there is no {}, and this role may not create it ({text}); run this with a role that may:\n{cql}",
            thing.to_string().trim_start_matches("the ")
        )),
        None => unavailable(&format!("creating {thing}"), &options.keyspace, &error),
    })
}

/// The next step where a server lacks a kind of index.
fn index_advice(thing: &Thing, cql: &str, error: &str) -> Option<&'static str> {
    if !matches!(thing, Thing::Index(..)) {
        return None;
    }
    let error = error.to_ascii_lowercase();
    let is_disabled = error.contains("disabled") || error.contains("not enabled");
    let is_unknown = ["custom index", "indexer class", "non-supported", "unsupported", "not supported"]
        .iter()
        .any(|text| error.contains(text));
    if cql.contains("sasi") && is_disabled {
        Some(
            "this Cassandra has SASI indexes switched off; set 'sasi_indexes_enabled: true' in cassandra.yaml of every node \
             (4.0: 'enable_sasi_indexes') and restart it, or choose indexes = \"sai\" (Cassandra 5) or indexes = \"none\"",
        )
    } else if cql.contains("sasi") && is_unknown {
        Some("this server has no SASI indexes; choose indexes = \"none\", or with Cassandra 5 indexes = \"sai\"")
    } else if is_disabled || is_unknown {
        Some(
            "this server has no storage-attached indexes, which came with Cassandra 5; choose indexes = \"sasi\" or \"none\"",
        )
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Indexes, schema::cql};

    #[test]
    fn an_unsupported_index_names_the_alternatives() {
        let thing = Thing::Index("metrics", "parent".to_owned());
        let advice = |indexes, error: &str| index_advice(&thing, &cql::index("k", "metrics", "parent", indexes), error);
        let disabled = advice(Indexes::Sasi, "SASI indexes are disabled. Enable in cassandra.yaml to use.").unwrap();
        assert!(disabled.contains("sasi_indexes_enabled: true"), "{disabled}");
        let scylla =
            advice(Indexes::Sasi, "Non-supported custom class 'org.apache.cassandra.index.sasi.SASIIndex' provided");
        assert!(scylla.unwrap().contains("\"none\""));
        let old = advice(Indexes::Sai, "Unable to find custom indexer class 'StorageAttachedIndex'").unwrap();
        assert!(old.contains("Cassandra 5"), "{old}");
        assert_eq!(advice(Indexes::Sai, "unconfigured table metrics"), None);
    }
}
