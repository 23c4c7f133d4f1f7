//! What went wrong with a statement, and whether trying it again may help.

use scylla::errors::{ConnectionPoolError, DbError, ExecutionError, PrepareError, RequestAttemptError};
use store::StoreError;

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

    /// What it says to an operator.
    fn told(&self) -> String;
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

    fn told(&self) -> String {
        match self {
            ExecutionError::LastAttemptError(error) => error.told(),
            ExecutionError::PrepareError(error) => error.told(),
            ExecutionError::ConnectionPoolError(error) => of_pool(error),
            ExecutionError::EmptyPlan => "Cassandra cannot be reached: no node of it is known to be up".to_owned(),
            ExecutionError::RequestTimeout(limit) => {
                format!("Cassandra did not answer within {} s (cassandra.request_timeout)", limit.as_secs_f64())
            }
            other => other.to_string(),
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

    fn told(&self) -> String {
        match self {
            PrepareError::ConnectionPoolError(error) => of_pool(error),
            PrepareError::AllAttemptsFailed { first_attempt } => first_attempt.told(),
            other => other.to_string(),
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

    fn told(&self) -> String {
        match self {
            RequestAttemptError::DbError(DbError::Unavailable { consistency, required, alive }, _) => format!(
                "too few nodes of Cassandra are up: {consistency} needs {required} of the nodes that have it, and {alive} \
                 can be reached"
            ),
            RequestAttemptError::DbError(error, text) if text.is_empty() => format!("Cassandra says: {error}"),
            RequestAttemptError::DbError(error, text) => format!("Cassandra says: {error}: {text}"),
            RequestAttemptError::BrokenConnectionError(error) => format!("the connection to Cassandra broke: {error}"),
            other => other.to_string(),
        }
    }
}

fn of_pool(error: &ConnectionPoolError) -> String {
    match error {
        ConnectionPoolError::Broken { last_connection_error } => {
            format!("Cassandra cannot be reached: {last_connection_error}")
        }
        other => format!("Cassandra cannot be reached: {other}"),
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

/// The error for the caller. `what` is what was being done, and to what.
pub(crate) fn unavailable(what: &str, keyspace: &str, error: &impl Classify) -> StoreError {
    StoreError::Unavailable(match error.failure() {
        Failure::NoKeyspace => format!(
            "{what}: Cassandra has no keyspace '{keyspace}'; make it with 'plumbago schema apply', or name another one"
        ),
        Failure::Unauthorized => {
            let told = error.told();
            format!("{what}: Cassandra does not let this role do it: {told}; grant it the right, or take another role")
        }
        _ => format!("{what}: {}", error.told()),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use scylla::errors::ConnectionError;

    use super::*;

    fn check(error: DbError, text: &str, failure: Failure) {
        let error = ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, text.to_owned()));
        assert_eq!(error.failure(), failure, "{error}");
    }

    #[test]
    fn an_operator_is_told_once_and_in_words() {
        let of = |error: DbError, text: &str| {
            let error = ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, text.to_owned()));
            unavailable("reading", "k", &error).to_string()
        };
        let consistency = scylla::statement::Consistency::LocalQuorum;
        assert_eq!(
            of(
                DbError::Unavailable { consistency, required: 2, alive: 1 },
                "Cannot achieve consistency level LOCAL_QUORUM"
            ),
            "reading: too few nodes of Cassandra are up: LocalQuorum needs 2 of the nodes that have it, and 1 can be reached"
        );
        assert_eq!(
            of(DbError::TruncateError, "no"),
            format!("reading: Cassandra says: {}: no", DbError::TruncateError)
        );
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let pool = ConnectionPoolError::Broken { last_connection_error: ConnectionError::IoError(refused.into()) };
        assert_eq!(
            unavailable("reading", "k", &ExecutionError::ConnectionPoolError(pool)).to_string(),
            "reading: Cassandra cannot be reached: connection refused"
        );
        let late = ExecutionError::RequestTimeout(Duration::from_millis(2500));
        assert_eq!(
            unavailable("reading", "k", &late).to_string(),
            "reading: Cassandra did not answer within 2.5 s (cassandra.request_timeout)"
        );
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
