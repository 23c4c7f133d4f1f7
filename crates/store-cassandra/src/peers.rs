//! The tables by which nodes meet: `nodes`, which are alive, and `changes`, names that they created and deleted.
//!
//! Each call is one statement, whatever the number of nodes. Nothing here decides when to ask.

mod changes;
mod nodes;
mod tables;

pub use changes::{Change, ChangeKey, Changed, ListedChange, MAX_BYTES_OF_A_CHANGE, MAX_NAMES_OF_A_CHANGE};
pub use nodes::NodeRow;
pub(crate) use tables::Peers;
pub use tables::{CHANGES_KEPT, NODE_KEPT, NodeId};
