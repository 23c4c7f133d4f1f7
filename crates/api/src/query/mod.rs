//! The shared base of all handlers: the backend, a parsed query, a turn for heavy work, and the reply.
//!
//! [`Backend`] and [`Query`] are the two arguments of a handler, [`Reply`] its result. The room knows no handler.

mod backend;
mod name_scope;
mod parsed;
mod patterns;
mod protocol;
mod reply;
mod sender_limits;
mod times;
mod turns;
mod viewer;
mod work;
mod write_scope;

pub(crate) use backend::Backend;
pub use name_scope::NameScope;
pub(crate) use parsed::Query;
pub(crate) use patterns::compile_pattern;
pub use patterns::read_tag_expressions;
pub(crate) use protocol::Protocol;
pub(crate) use reply::Reply;
pub(crate) use sender_limits::SenderUse;
pub(crate) use times::{NamesTimes, Times, event_span, zone};
pub use turns::Activity;
pub(crate) use turns::{Kind, QueryTurns};
pub use viewer::{Doorkeeper, Scope, Viewer};
pub(crate) use work::{LIKELY_BYTES, Work, blocking, is_invalid_pattern};
pub use write_scope::{NameOwners, WriteScope};
