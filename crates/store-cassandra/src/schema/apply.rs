//! Makes what a cluster lacks of a schema. Nothing is ever dropped or altered.

use scylla::{client::session::Session, statement::unprepared::Statement};
use store::StoreError;

use super::{Creation, Schema, Thing, check, found, found::Found};
use crate::{
    Indexes, Options,
    ask::Asker,
    failure::{Classify, Failure, unavailable},
    session,
};

/// Makes every keyspace, table, index and row of a schema that is not there, waits until every node has it, and says each
/// thing that it does to `progress`. Doing it again does nothing.
///
/// # Errors
/// `Spec` where what is there is kept in another way (nothing is made then); `Unavailable` where something cannot be made: the
/// text says what would do, and has the CQL where a role with more rights must run it. `Refused` where the servers do not know
/// the kind of index: everything else is there by then.
pub async fn apply(
    options: &Options,
    schema: &Schema,
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<(), StoreError> {
    let (data, metadata) = session::connect(options).await?;
    let found = Found::read(&data, &metadata, options).await?;
    check::refuse(&found, &options.keyspace)?;

    let ask = |session| Asker {
        session,
        keyspace: &options.keyspace,
        consistency: options.consistency.meta_read,
        retry: options.retry(),
    };
    let usual = [found::fitting_replication(&ask(&data)).await?, found::fitting_replication(&ask(&metadata)).await?];
    // Tables that are there already keep the columns they have.
    let schema = match found.components() {
        Some(components) => schema.clone().with_components(components),
        None => schema.clone(),
    };
    let class = match schema.indexes {
        Indexes::Sasi => "SASIIndex",
        Indexes::Sai => "StorageAttachedIndex",
        Indexes::None => "",
    };
    let has_other_indexes = schema.indexes != Indexes::None && found.has_index_beside(class);
    if has_other_indexes {
        progress(&format!(
            "left as it is: the tables of names carry {} indexes; no others are made beside them",
            found.indexes()
        ));
    }
    let mut made = 0;
    for creation in schema.creations([&usual[0], &usual[1]]) {
        let is_other_index = has_other_indexes && matches!(creation.thing, Thing::Index(..));
        if is_other_index || found.has(&creation.thing) {
            continue;
        }
        let session = if creation.thing.is_data() { &data } else { &metadata };
        make(session, options, &creation).await?;
        made += 1;
        progress(&format!("made {}", creation.thing));
    }
    for session in [&data, &metadata] {
        let agreed = session.await_schema_agreement().await;
        agreed.map_err(|error| StoreError::Unavailable(format!("the nodes do not agree on the schema: {error}")))?;
    }
    progress(&match made {
        0 => "nothing was missing".to_owned(),
        made => format!("made {made} things that were missing; every node has them"),
    });
    Ok(())
}

/// Makes one thing.
pub(super) async fn make(session: &Session, options: &Options, creation: &Creation) -> Result<(), StoreError> {
    let mut statement = Statement::new(creation.cql.as_str());
    statement.set_is_idempotent(true);
    statement.set_consistency(options.consistency.meta_write);
    // The session waits until every node that is up has it.
    let made = options.retry().run(|| session.query_unpaged(statement.clone(), ())).await;
    let Err(error) = made else { return Ok(()) };
    let text = error.to_string();
    let Creation { thing, cql } = creation;
    Err(match refused_index(thing, cql, &text) {
        Some(advice) => StoreError::Rejected(format!("cannot make {thing}: {advice} (Cassandra said: {text})")),
        None if error.failure() == Failure::Unauthorized => StoreError::Unavailable(format!(
            "there is no {}, and this role may not make it ({text}); run this with one that may:\n{cql}",
            thing.to_string().trim_start_matches("the ")
        )),
        None => unavailable(&format!("making {thing}"), &options.keyspace, &error),
    })
}

/// What to do where a server knows no index of a kind.
fn refused_index(thing: &Thing, cql: &str, error: &str) -> Option<&'static str> {
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
    use crate::schema::cql;

    #[test]
    fn a_refused_index_says_what_would_do() {
        let thing = Thing::Index("metrics", "parent".to_owned());
        let advice =
            |indexes, error: &str| refused_index(&thing, &cql::index("k", "metrics", "parent", indexes), error);
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
