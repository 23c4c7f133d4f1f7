//! The row codec: slots of one metric to bytes and back, to the bit.
//!
//! A *row* is the value of one key in a store: the slots of one group of one metric. Its bytes are a sequence of
//! *segments*. Each has some consecutive slots; where two have the same slot, the later one wins. So a row grows by
//! appending new segments, and is sometimes rewritten as one. A row has no times, only offsets of slots.
//! `schema/embedded.md` draws every byte.
//!
//! A *run* is a row with its version before it and a checksum behind it, for a store without a list of its files.
//!
//! This crate knows nothing of files, keys, or the meaning of a slot.
//!
//! ```
//! use codec::Codec;
//!
//! let mut codec = Codec::new();
//! let mut row = Vec::new();
//! codec.encode(10, &[12.34, f64::NAN, 12.29], &[], &mut row);
//! codec.encode(11, &[12.4], &[], &mut row);
//!
//! let mut values = [f64::NAN; 4];
//! assert_eq!(codec.decode(&row, 10..14, &mut values, &mut []), Ok(true));
//! assert_eq!(values[..3], [12.34, 12.4, 12.29]);
//! assert!(values[3].is_nan());
//! ```

mod row;
mod run;
mod segment;

mod floats;
mod ints;
mod near;
mod presence;

mod bits;
mod bytes;
mod pco_chunk;

pub use row::Codec;
pub use run::{RUN_VERSION, open_run, seal_run};
pub use segment::{MAX_SLOTS, Segment, Segments, segments};

/// The version of the bytes that are written. A store writes it into its spec and refuses to open a later one. Version 1
/// has no class of values near decimals, and is read.
pub const VERSION: u32 = 2;

/// Bytes that no encoder wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damaged(pub(crate) String);

impl Damaged {
    /// With what is wrong.
    pub fn new(what: &str) -> Damaged {
        Damaged(what.to_owned())
    }
}
