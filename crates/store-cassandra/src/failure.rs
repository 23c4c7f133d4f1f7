//! Why a statement failed, and whether a retry may help.

use scylla::errors::{ConnectionPoolError, DbError, ExecutionError, PrepareError, RequestAttemptError};
use store::StoreError;

/// How a statement failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A node or the network; the same statement may succeed later.
    Transient,
    /// The table does not exist.
    NoTable,
    /// The keyspace does not exist.
    NoKeyspace,
    /// This role lacks the permission.
    Unauthorized,
    /// A retry fails in the same way.
    Permanent,
}

/// An error of the CQL client.
pub(crate) trait Classify: std::fmt::Display {
    /// How the statement failed.
    fn failure(&self) -> Failure;

    /// The text for an operator.
    fn message(&self) -> String;
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

    fn message(&self) -> String {
        match self {
            ExecutionError::LastAttemptError(error) => error.message(),
            ExecutionError::PrepareError(error) => error.message(),
            ExecutionError::ConnectionPoolError(error) => of_pool(error),
            ExecutionError::EmptyPlan => "Cassandra cannot be reached: all known nodes are down".to_owned(),
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

    fn message(&self) -> String {
        match self {
            PrepareError::ConnectionPoolError(error) => of_pool(error),
            PrepareError::AllAttemptsFailed { first_attempt } => first_attempt.message(),
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

    fn message(&self) -> String {
        match self {
            RequestAttemptError::DbError(DbError::Unavailable { consistency, required, alive }, _) => format!(
                "too few nodes of Cassandra are up: {consistency} needs {required} replicas, and {alive} can be reached"
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
        // Only the words tell what is missing: "unconfigured table t" or "table t does not exist", "Keyspace 'k' does not
        // exist" or "keyspace k does not exist".
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

/// The error for the caller. `what` names the operation and its object.
pub(crate) fn unavailable(what: &str, keyspace: &str, error: &impl Classify) -> StoreError {
    StoreError::Unavailable(match error.failure() {
        Failure::NoKeyspace => format!(
            "{what}: Cassandra has no keyspace '{keyspace}'; create it with 'plumbago schema apply', or name another one"
        ),
        Failure::Unauthorized => {
            let message = error.message();
            format!("{what}: this role lacks the permission: {message}; grant it, or log in with another role")
        }
        _ => format!("{what}: {}", error.message()),
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
    fn a_message_to_an_operator_names_cassandra_once() {
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
            "reading: too few nodes of Cassandra are up: LocalQuorum needs 2 replicas, and 1 can be reached"
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
    fn a_missing_table_is_not_a_failed_statement() {
        check(DbError::Invalid, "unconfigured table datapoints_1p_1s_0", Failure::NoTable);
        check(DbError::Invalid, "table datapoints_1p_1s_0 does not exist", Failure::NoTable);
        check(DbError::Invalid, "Keyspace 'biggraphite' does not exist", Failure::NoKeyspace);
        check(DbError::ConfigError, "Keyspace biggraphite doesn't exist", Failure::NoKeyspace);
        check(DbError::Invalid, "Invalid amount of bind variables", Failure::Permanent);
        check(DbError::Overloaded, "", Failure::Transient);
        check(DbError::Unauthorized, "User a has no MODIFY permission", Failure::Unauthorized);
    }
}
