//! Carbon's rule files: which metrics are kept, in which stages, and how they are aggregated.
//!
//! [`Rules::parse`] takes the text of `storage-schemas.conf`, `storage-aggregation.conf`, `blacklist.conf`,
//! `whitelist.conf` and metrictank's `index-rules.conf`. The caller reads the files, and reads them again when they change. A file with which carbon or
//! go-carbon starts is valid here. Where the two differ:
//!
//! - a repeated section or key stops carbon and not go-carbon: the sections are two rules, the last
//!   key counts, and a warning names both lines;
//! - quotes around a value are dropped, as go-carbon does; `%%` is `%`, as in carbon, and a lone `%` is itself;
//! - `priority` puts a section before those with a lower one, as go-carbon and old carbon do;
//! - a history without unit is a number of points, as in carbon, with a warning where go-carbon reads seconds;
//! - a section that carbon skips with a line in its log (no pattern, no retentions, a list of stages that
//!   whisper would reject, an xFilesFactor that is not a number) is skipped with a warning;
//! - an invalid retention and an unknown aggregation method stop carbon, and are errors here;
//! - patterns are Python's; look-around and back-references are errors.

mod branch_pattern;
mod error;
mod index_rules;
mod ini;
mod pattern;
mod quotas;
mod retention;
mod rules;
mod sections;

pub use branch_pattern::BranchPattern;
pub use error::{ConfigError, Place, Warning};
pub use index_rules::IndexRule;
pub use quotas::{Dropping, QuotaRule, read_quotas};
pub use rules::{Decision, Explanation, PolicyIndex, RuleFiles, RuleSource, Rules};
