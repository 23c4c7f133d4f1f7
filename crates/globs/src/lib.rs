//! Globs: patterns over the names of metrics, as graphite-web 1.1.10 reads them. One rule for everyone who
//! looks names up: an automaton for those who walk names ([`automaton`], [`Matcher`]), and what can be known of each component
//! without one, for those who ask a store by components ([`parts`]).

mod matcher;
mod parts;
mod pattern;

pub use matcher::Matcher;
pub use parts::{Part, parts};
pub use pattern::{automaton, is_pattern, plain_name, start};

/// Why a pattern is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// A pattern that no client sends.
    #[error("the pattern has {bytes} bytes; at most {limit} are read")]
    TooLong {
        /// Bytes given.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// No name is that deep.
    #[error("the pattern has {given} components; names have at most {limit}")]
    TooManyComponents {
        /// Components given.
        given: usize,
        /// Components allowed.
        limit: usize,
    },
    /// Braces that multiply.
    #[error("the braces of one component stand for more than {limit} alternatives; use * or fewer braces")]
    TooManyAlternatives {
        /// Alternatives allowed.
        limit: usize,
    },
    /// An automaton beyond its memory.
    #[error("the pattern is too complex; use fewer wildcards or alternatives in it")]
    TooComplex,
    /// A component that is no glob.
    #[error("'{pattern}' is not a valid glob: {reason}")]
    Invalid {
        /// The whole pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
}
