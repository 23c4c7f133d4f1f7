//! Finding names: `/metrics/find`, `/metrics/expand`, `/metrics/index.json`.
//!
//! The handlers are the door for the router; [`names_work`], [`names_work_at`], [`find_next`] and [`all_names`] are the door for carbonapi's
//! paths, which list names in their own messages.

mod format;
mod handlers;
mod name_list;
mod nodes;
mod work;

pub(crate) use format::glob_response;
pub(crate) use handlers::{expand, find, query_is_missing};
pub(crate) use name_list::{ListFormat, ListSize, all_names, index, too_many_new_names};
pub(crate) use nodes::Nodes;
pub(crate) use work::{Listed, answer_bytes, check_patterns, find_next, is_cancelled, names_work, names_work_at};
