//! Formats of `/render`, one file each.
//!
//! [`named`] is the door: [`FORMATS`] is the one list. A new format is a file and an entry.

mod contract;

mod carbonapi_v2;
mod carbonapi_v3;
mod csv;
mod dygraph;
mod json;
mod msgpack;
mod pickle;
mod raw;
mod rickshaw;

mod doubles;
mod json_text;
mod lineage;
mod python_text;

use crate::query::Protocol;

pub(crate) use carbonapi_v3::{CarbonapiV3, FetchHead};
pub(crate) use contract::{Format, FormatInput, FormatOptions, NullPoints, SeriesChunk, Span, Totals};

/// A format in the list.
pub(crate) struct Entry {
    /// Values of `format`.
    names: &'static [&'static str],
    /// Makes the format.
    pub make: fn(FormatInput<'_>) -> Box<dyn Format>,
    /// Whether a graphite-web in front of this server uses it.
    pub is_for_front_ends: bool,
    /// Whether `maxDataPoints` applies.
    pub consolidates: bool,
}

/// Every format.
static FORMATS: [Entry; 9] = [
    Entry { names: &["json"], make: json::make, is_for_front_ends: false, consolidates: true },
    Entry { names: &["csv"], make: csv::make, is_for_front_ends: false, consolidates: false },
    Entry { names: &["raw"], make: raw::make, is_for_front_ends: false, consolidates: false },
    Entry { names: &["pickle"], make: pickle::make, is_for_front_ends: true, consolidates: false },
    Entry { names: &["msgpack"], make: msgpack::make, is_for_front_ends: true, consolidates: false },
    Entry { names: &["dygraph"], make: dygraph::make, is_for_front_ends: false, consolidates: false },
    Entry { names: &["rickshaw"], make: rickshaw::make, is_for_front_ends: false, consolidates: false },
    Entry { names: Protocol::V2.names(), make: carbonapi_v2::make, is_for_front_ends: false, consolidates: false },
    Entry { names: Protocol::V3.names(), make: carbonapi_v3::make, is_for_front_ends: false, consolidates: false },
];

/// The format of a name.
pub(crate) fn named(name: &str) -> Option<&'static Entry> {
    FORMATS.iter().find(|entry| entry.names.contains(&name))
}
