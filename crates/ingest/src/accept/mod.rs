//! Accepting points: from a batch of decoded points to the journal and the memtable.

mod acceptor;
mod append_queue;
mod batch;
mod branches;
mod gate;
mod name_limits;
mod new_metrics;
mod quotas;
mod rejects;
mod resolve;
mod restrictions;
mod spellings;
mod tally;
mod token_counts;

pub(crate) use acceptor::AcceptorParts;
pub use acceptor::{Acceptor, Sync};
pub(crate) use append_queue::{AppendQueue, AppendQueueParts};
pub use batch::{BATCH_POINTS, Batch};
pub use name_limits::{NameLimits, PrefixLimit};
pub(crate) use new_metrics::NewMetrics;
pub use quotas::BranchUse;
pub use rejects::RejectExample;
pub(crate) use resolve::Resolver;
pub use restrictions::{ListenerGate, PrefixRule, Restrictions, TokenGate, TokenHash};
pub use tally::Tally;
