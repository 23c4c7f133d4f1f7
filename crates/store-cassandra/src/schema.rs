//! The schema: every table there is, in CQL.
//!
//! `definition` makes the statements and is pure; `found` reads what a cluster has, `apply` creates what is missing, `check`
//! reports the differences, and `open` is what a node does at its start.

mod apply;
mod check;
mod cql;
mod create;
mod definition;
mod found;
mod mismatch;
mod open;

use metric::Retention;

use crate::Options;

pub use apply::apply;
pub use check::{Finding, Report, check};
pub(crate) use cql::{
    CHANGES_SECONDS, LAST_COMPONENT, MAX_TTL_SECONDS, NODE_SECONDS, OUT_OF_ORDER_SECONDS, metadata_keyspace,
    packed_name, quoted,
};
pub use cql::{datapoints_table, packed_table};
pub use definition::Schema;
pub(crate) use found::{FoundIndexes, stage_of};
pub(crate) use open::{Opened, open};

/// For creation by hand, or by a role with more rights: the statements of [`Schema::show`].
pub fn show(options: &Options, retentions: &[Retention]) -> String {
    Schema::new(options, retentions).show()
}

#[cfg(test)]
mod tests {
    use host::Host;
    use metric::Policy;
    use std::time::Duration;

    use super::*;
    use crate::{ClusterOptions, Consistencies, Consistency, Indexes, Layout};

    fn options() -> Options {
        let data = ClusterOptions {
            contact_points: Vec::new(),
            credentials: None,
            tls: None,
            datacenter: None,
            connect_timeout: Duration::ZERO,
            request_timeout: Duration::ZERO,
        };
        let one = Consistency::LocalOne;
        Options {
            data,
            metadata: None,
            keyspace: "biggraphite".to_owned(),
            replication: None,
            layout: Layout::Rows,
            consistency: Consistencies { data_write: one, data_read: one, meta_write: one, meta_read: one },
            indexes: Indexes::Sasi,
            writer: 0,
            replica: 0,
            in_flight: 1,
            glob_rows: 1,
            glob_queries: 1,
            host: Host::system(),
            damage: store::DamageLog::new(),
        }
    }

    /// The documentation shows the statements of the default configuration. To update it: UPDATE_SCHEMA=1.
    #[test]
    fn the_schema_page_shows_the_statements() {
        let shown = show(&options(), &[Policy::default().retention]);
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/cassandra.cql");
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(page, &shown).unwrap();
        }
        assert_eq!(std::fs::read_to_string(page).unwrap_or_default(), shown);
    }

    #[test]
    fn a_packed_keyspace_has_a_table_for_each_stage_and_says_so() {
        // The same stage as the first and as a coarser one.
        let retentions = ["60*60s:48*3600s", "30*10s:60*60s"].map(|text| text.parse().unwrap());
        let options = Options { indexes: Indexes::None, layout: Layout::Packed, ..options() };
        let shown = show(&options, &retentions);
        let tables: Vec<&str> =
            shown.split("\"biggraphite\".").skip(1).filter_map(|rest| rest.split(' ').next()).collect();
        assert_eq!(tables, ["datapoints_30p_10s_packed", "datapoints_60p_60s_packed", "datapoints_48p_3600s_packed"]);
        assert!(shown.contains("VALUES ('packed_version', '1')"));
    }

    #[test]
    fn tables_that_two_retentions_share_are_created_once() {
        let retentions = ["60*60s:48*3600s", "60*60s:96*3600s"].map(|text| text.parse().unwrap());
        let shown = show(&Options { indexes: Indexes::None, ..options() }, &retentions);
        assert_eq!(shown.matches("CREATE TABLE IF NOT EXISTS \"biggraphite\".").count(), 3);
        assert!(!shown.contains("INDEX"));
    }
}
