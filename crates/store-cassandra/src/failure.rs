//! What went wrong with a statement, and whether trying it again may help.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};
use store::StoreError;

/// The pause before a statement is tried again; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What a failed statement comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A node or the network; the same statement may succeed later.
    Transient,
    /// The table is not there.
    NoTable,
    /// The keyspace is not there.
    NoKeyspace,
    /// This role may not do it.
    Unauthorized,
    /// It will fail in the same way again.
    Permanent,
}

/// A kind of error of the cluster's driver.
pub(crate) trait Classify: std::fmt::Display {
    /// What it comes to.
    fn failure(&self) -> Failure;
}

impl Classify for ExecutionError {
    fn failure(&self) -> Failure {
        match self {
            ExecutionError::LastAttemptError(error) => error.failure(),
            ExecutionError::PrepareError(error) => error.failure(),
            ExecutionError::ConnectionPoolError(_)
            | ExecutionError::EmptyPlan
            | ExecutionError::RequestTimeout(_)
            | ExecutionError::SchemaAgreementError(_)
            | ExecutionError::MetadataError(_) => Failure::Transient,
            _ => Failure::Permanent,
        }
    }
}

impl Classify for PrepareError {
    fn failure(&self) -> Failure {
        match self {
            PrepareError::ConnectionPoolError(_) => Failure::Transient,
            PrepareError::AllAttemptsFailed { first_attempt } => first_attempt.failure(),
            _ => Failure::Permanent,
        }
    }
}

impl Classify for RequestAttemptError {
    fn failure(&self) -> Failure {
        match self {
            RequestAttemptError::DbError(error, text) => of_db(error, text),
            RequestAttemptError::BrokenConnectionError(_) | RequestAttemptError::UnableToAllocStreamId => {
                Failure::Transient
            }
            _ => Failure::Permanent,
        }
    }
}

fn of_db(error: &DbError, text: &str) -> Failure {
    match error {
        DbError::Unavailable { .. }
        | DbError::Overloaded
        | DbError::IsBootstrapping
        | DbError::TruncateError
        | DbError::ReadTimeout { .. }
        | DbError::WriteTimeout { .. }
        | DbError::ReadFailure { .. }
        | DbError::WriteFailure { .. }
        | DbError::ServerError
        | DbError::RateLimitReached { .. } => Failure::Transient,
        DbError::Unauthorized => Failure::Unauthorized,
        // What is missing is told in words alone: "unconfigured table t" or "table t does not exist", "Keyspace 'k'
        // does not exist" or "keyspace k does not exist".
        DbError::Invalid | DbError::ConfigError => {
            let text = text.to_ascii_lowercase();
            let missing = text.contains("does not exist") || text.contains("doesn't exist");
            if text.contains("unconfigured table") || missing && text.contains("table ") {
                Failure::NoTable
            } else if missing && text.contains("keyspace") {
                Failure::NoKeyspace
            } else {
                Failure::Permanent
            }
        }
        _ => Failure::Permanent,
    }
}

/// Tries until it succeeds, fails for good, or `limit` is over, with pauses that grow. The attempt must be
/// one that may be done twice.
pub(crate) async fn patiently<T, E, F>(limit: Duration, mut attempt: impl FnMut() -> F) -> Result<T, E>
where
    E: Classify,
    F: Future<Output = Result<T, E>>,
{
    let begun = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        if error.failure() != Failure::Transient || begun.elapsed() + pause >= limit {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// The error for the caller. `what` is what was being done, and to what.
pub(crate) fn unavailable(what: &str, keyspace: &str, error: &impl Classify) -> StoreError {
    StoreError::Unavailable(match error.failure() {
        Failure::NoKeyspace => format!(
            "{what}: Cassandra has no keyspace '{keyspace}'; make it with 'plumbago schema apply', or name another one"
        ),
        Failure::Unauthorized => {
            format!("{what}: Cassandra does not let this role do it: {error}; grant it the right, or take another role")
        }
        _ => format!("{what}: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: DbError, text: &str, failure: Failure) {
        let error = ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, text.to_owned()));
        assert_eq!(error.failure(), failure, "{error}");
    }

    #[test]
    fn what_is_missing_is_told_from_what_failed() {
        check(DbError::Invalid, "unconfigured table datapoints_1p_1s_0", Failure::NoTable);
        check(DbError::Invalid, "table datapoints_1p_1s_0 does not exist", Failure::NoTable);
        check(DbError::Invalid, "Keyspace 'biggraphite' does not exist", Failure::NoKeyspace);
        check(DbError::ConfigError, "Keyspace biggraphite doesn't exist", Failure::NoKeyspace);
        check(DbError::Invalid, "Invalid amount of bind variables", Failure::Permanent);
        check(DbError::Overloaded, "", Failure::Transient);
        check(DbError::Unauthorized, "User a has no MODIFY permission", Failure::Unauthorized);
    }
}
