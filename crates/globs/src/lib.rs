//! Globs: patterns over the names of metrics, as graphite-web 1.1.10 reads them.
//!
//! There is one rule for all searches: an automaton for walks over names ([`automaton`], [`Matcher`]), and for stores
//! that are queried by component what each component says without an automaton ([`parts()`]).
//!
//! ```
//! let mut matcher = globs::Matcher::new("servers.*.cpu.{user,system}").unwrap().expect("something can match");
//! assert!(matcher.matches("servers.a.cpu.user").unwrap());
//! assert!(!matcher.matches("servers.a.b.cpu.user").unwrap());
//! ```

mod error;

mod matcher;
mod parts;
mod pattern;

pub use error::GlobError;
pub use matcher::Matcher;
pub use parts::{Part, parts};
pub use pattern::{automaton, is_pattern, plain_name, start};
