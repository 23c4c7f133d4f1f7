//! The paths and messages that carbonapi and go-carbon add to Graphite's.
//!
//! The handlers are the door; nothing but the router uses this room.

mod capabilities;
mod details;
mod fetch;
mod find;
mod formats;
mod info;
mod list;
mod messages;

pub(crate) use capabilities::capabilities;
pub(crate) use details::details;
pub(crate) use fetch::fetch;
pub(crate) use find::find;
pub(crate) use info::info;
pub(crate) use list::list;
