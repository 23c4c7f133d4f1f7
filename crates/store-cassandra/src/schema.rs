//! The schema: what tables there are, in CQL. Making it is pure; reading it from a cluster and applying it to
//! one is beside.

mod cql;

pub use cql::datapoints_table;
pub(crate) use cql::{MAX_TTL_SECONDS, OUT_OF_ORDER_SECONDS, quoted};
