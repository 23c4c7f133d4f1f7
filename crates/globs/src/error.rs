//! Why a pattern cannot be searched for.

/// Why a pattern is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// Longer than any client's pattern.
    #[error("the pattern has {bytes} bytes; at most {limit} are read")]
    TooLong {
        /// Bytes given.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// Deeper than any name.
    #[error("the pattern has {given} components; names have at most {limit}")]
    TooManyComponents {
        /// Components given.
        given: usize,
        /// Components allowed.
        limit: usize,
    },
    /// Braces that multiply.
    #[error(
        "the braces of the pattern stand for more than {limit} alternatives or half a million characters; use * or \
         fewer braces"
    )]
    TooManyAlternatives {
        /// Alternatives allowed.
        limit: usize,
    },
    /// An automaton beyond its memory.
    #[error("the pattern is too complex; use fewer wildcards or alternatives in it")]
    TooComplex,
    /// A component that is not a glob.
    #[error("'{pattern}' is not a valid glob: {reason}")]
    Invalid {
        /// The whole pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
}
