//! The row codec: slots of one metric to bytes and back, to the bit.
//!
//! A *row* is what a store keeps under one key: the slots of one group of one metric. Its bytes are
//! *segments* laid end to end; each holds some consecutive slots, and where two hold the same slot the
//! later one wins. So a row grows by appending what is new, and is rewritten as one segment now and then.
//! No time is stored, only the offset of a slot in its row. `schema/embedded.md` draws every byte.
//!
//! Nothing here knows files, keys or what a slot means.

mod bits;
mod bytes;
mod floats;
mod ints;
mod presence;
mod row;

pub use row::{Codec, MAX_SLOTS, Segment, Segments, segments};

/// The version of the bytes. A store writes it into its spec and refuses to open another.
pub const VERSION: u32 = 1;

/// Bytes that no encoder wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damaged(pub(crate) String);

impl Damaged {
    pub(crate) fn new(what: &str) -> Damaged {
        Damaged(what.to_owned())
    }
}
