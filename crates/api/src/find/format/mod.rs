//! Formats of `/metrics/find`, one file each.
//!
//! [`named`] is the door: [`FORMATS`] is the one list. A new format is a file and an entry.

mod contract;

mod completer;
mod json;
mod msgpack;
mod nodelist;
mod pickle;
mod protobuf;
mod treejson;

mod expanded;

use crate::query::Protocol;

pub(crate) use contract::{FindFormat, FindOptions};
pub(crate) use expanded::expanded;
pub(crate) use protobuf::glob_response;

/// A format in the list.
pub(crate) struct Entry {
    /// Values of `format`.
    names: &'static [&'static str],
    /// Makes the format.
    pub make: fn(FindOptions) -> Box<dyn FindFormat>,
    /// Whether a graphite-web in front of this server uses it.
    pub is_for_front_ends: bool,
    /// Whether a carbonapi finds with it, without times, what it fetches afterwards.
    pub is_for_fetches: bool,
}

/// Every format.
static FORMATS: [Entry; 7] = [
    Entry { names: &["treejson"], make: treejson::make, is_for_front_ends: false, is_for_fetches: false },
    Entry { names: &["completer"], make: completer::make, is_for_front_ends: false, is_for_fetches: false },
    Entry { names: &["json"], make: json::make, is_for_front_ends: false, is_for_fetches: false },
    Entry { names: &["nodelist"], make: nodelist::make, is_for_front_ends: false, is_for_fetches: false },
    Entry { names: &["pickle"], make: pickle::make, is_for_front_ends: true, is_for_fetches: false },
    Entry { names: &["msgpack"], make: msgpack::make, is_for_front_ends: true, is_for_fetches: false },
    Entry { names: Protocol::V2.names(), make: protobuf::make, is_for_front_ends: false, is_for_fetches: true },
];

/// The format of a name.
pub(crate) fn named(name: &str) -> Option<&'static Entry> {
    FORMATS.iter().find(|entry| entry.names.contains(&name))
}
