//! Carbon's rule files: what is kept, in which stages, and how it is aggregated.
//!
//! [`Rules::parse`] takes the text of `storage-schemas.conf`, `storage-aggregation.conf`, `blacklist.conf` and
//! `whitelist.conf`; reading the files, and reading them again when they change, is the caller's. A file that
//! carbon or go-carbon starts with is taken here. Where the two differ:
//!
//! - a section or key that is there twice stops carbon and not go-carbon: the sections are two rules, the last
//!   key counts, and a warning names both lines;
//! - quotes around a value are dropped, as go-carbon does; `%%` is `%`, as in carbon, and a lone `%` is itself;
//! - `priority` puts a section before those with a lower one, as go-carbon and old carbon do;
//! - a history without unit is a number of points, as in carbon, with a warning where go-carbon reads seconds;
//! - a section that carbon skips with a line in its log (no pattern, no retentions, a list of stages that
//!   whisper would refuse, an xFilesFactor that is no number) is skipped with a warning;
//! - what stops carbon (a retention it cannot read, an unknown aggregation method) is an error here;
//! - patterns are Python's as far as they need no look-around and no back-references, which are errors.

mod error;
mod ini;
mod pattern;
mod retention;
mod rules;
mod sections;

pub use error::{ConfigError, Place, Warning};
pub use rules::{Decision, Explanation, PolicyIndex, RuleFiles, RuleSource, Rules};
