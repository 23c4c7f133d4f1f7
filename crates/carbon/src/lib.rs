//! Carbon's wire formats, both directions, and its rule files. Bytes in, calls out: no sockets, no clocks, no files.
//!
//! A connection passes what it reads to its [`LineDecoder`] or [`FrameDecoder`]; a [`Sink`] receives every point and
//! every rejection. Where carbon drops a connection, this crate rejects only the bad line or frame and reads the next.
//!
//! ```
//! use carbon::{LineDecoder, RejectReason, Sink};
//!
//! struct Print;
//! impl Sink for Print {
//!     fn point(&mut self, name: &[u8], time: i64, value: f64) {
//!         println!("{} {value} {time}", String::from_utf8_lossy(name));
//!     }
//!     fn reject(&mut self, reason: RejectReason, sample: &[u8]) {
//!         println!("{reason}: {}", String::from_utf8_lossy(sample));
//!     }
//! }
//!
//! let read = b"servers.a.load 1.5 1700000000\nservers.b.load 1.";
//! let consumed = LineDecoder::new().decode(read, 1_700_000_000, &mut Print);
//! assert_eq!(consumed, 30);
//! ```

mod sink;

mod frame;
mod line;
mod number;
pub mod pickle;
pub mod protobuf;

pub mod config;
pub mod encode;

pub use config::{
    BranchPattern, ConfigError, Decision, Dropping, Explanation, IndexRule, Place, PolicyIndex, QuotaRule, RuleFiles,
    RuleSource, Rules, Warning, read_quotas,
};
pub use frame::{DEFAULT_MAX_FRAME_BYTES, FrameDecoder};
pub use line::{LineDecoder, MAX_LINE_BYTES, parse_datagram, parse_line};
pub use sink::{Progress, RejectReason, Sink};
