//! Connections to a cluster, and why there are none.

use std::{
    collections::{BTreeSet, HashMap},
    error::Error as _,
    io,
    num::NonZeroUsize,
    sync::Arc,
    time::Duration,
};

use host::Disk;
use rustls::{AlertDescription, CertificateError, pki_types::ServerName};
use scylla::{
    client::{PoolSize, execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder},
    errors::{
        BrokenConnectionErrorKind, ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError,
        ExecutionError, MetadataError, NewSessionError,
    },
    frame::frame_errors::FrameHeaderParseError,
    policies::{
        load_balancing::DefaultPolicy, retry::DefaultRetryPolicy,
        speculative_execution::SimpleSpeculativeExecutionPolicy,
    },
};
use store::StoreError;

use crate::{ClusterOptions, Options, failure::Classify, tls};

/// The port of CQL.
const PORT: u16 = 9042;

/// Connections to each node. One would do for the statements; the second keeps a large answer from holding up
/// all others.
const CONNECTIONS: NonZeroUsize = NonZeroUsize::new(2).expect("two is not zero");

/// After this long without an answer the statement is also given to the next replica, so that a node that is slow, or
/// gone without a word, costs this and not the answer. Each is one that may be done twice.
const SECOND_ASKED_AFTER: Duration = Duration::from_millis(500);

/// A connection on which nothing came for as long is asked whether it lives, and given up after as long again.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Why there is no connection. The text says what would do; it never has the password.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct ConnectError {
    text: String,
    is_transient: bool,
}

impl ConnectError {
    pub(crate) fn permanent(text: String) -> ConnectError {
        ConnectError { text, is_transient: false }
    }

    /// Whether it may go away by itself (nobody answers, not yet), or somebody has to change something (a
    /// password, a certificate).
    pub fn is_transient(&self) -> bool {
        self.is_transient
    }
}

impl From<ConnectError> for StoreError {
    fn from(error: ConnectError) -> StoreError {
        StoreError::Unavailable(error.text)
    }
}

/// Sessions with the cluster of the points and that of the names, often the same.
pub(crate) async fn connect(options: &Options) -> Result<(Arc<Session>, Arc<Session>), ConnectError> {
    let data = connect_to(&options.data, &*options.host.disk).await?;
    let metadata = match &options.metadata {
        Some(cluster) => connect_to(cluster, &*options.host.disk).await?,
        None => data.clone(),
    };
    Ok((data, metadata))
}

/// Connects. The session reconnects to nodes by itself, after 50 ms at first and 10 s at most.
///
/// # Errors
/// No contact point answers, refuses the user, or its certificate is not believed; the text says which, and
/// what would do.
async fn connect_to(options: &ClusterOptions, disk: &dyn Disk) -> Result<Arc<Session>, ConnectError> {
    let mut policy = DefaultPolicy::builder().token_aware(true);
    policy = match &options.datacenter {
        Some(datacenter) => policy.prefer_datacenter(datacenter.clone()),
        None => policy.prefer_no_datacenter(),
    };
    let speculation = SimpleSpeculativeExecutionPolicy { max_retry_count: 2, retry_interval: SECOND_ASKED_AFTER };
    let profile = ExecutionProfile::builder()
        .load_balancing_policy(policy.build())
        .retry_policy(Arc::new(DefaultRetryPolicy::new()))
        .speculative_execution_policy(Some(Arc::new(speculation)))
        .request_timeout(Some(options.request_timeout))
        .build();
    let points: Vec<String> = options.contact_points.iter().map(|point| with_port(point)).collect();
    let mut builder = SessionBuilder::new()
        .known_nodes(&points)
        .connection_timeout(options.connect_timeout)
        .hostname_resolution_timeout(Some(options.connect_timeout))
        .pool_size(PoolSize::PerHost(CONNECTIONS))
        .keepalive_interval(KEEPALIVE)
        .keepalive_timeout(KEEPALIVE)
        .default_execution_profile_handle(profile.into_handle())
        // Replicas are found by the keyspaces' replication; what columns tables have is asked when it matters.
        .fetch_full_schema_metadata(false);
    if let Some(credentials) = &options.credentials {
        builder = builder.user(&credentials.user, &credentials.password);
    }
    if let Some(tls) = &options.tls {
        builder = builder.tls_context(Some(tls::config(tls, disk, hosts(&points).await)?));
    }
    // A node that takes a connection and says nothing on it would be waited for until its keepalive fails.
    let limit = options.connect_timeout.saturating_mul(2 * points.len() as u32 + 1);
    match tokio::time::timeout(limit, builder.build()).await {
        Ok(Ok(session)) => {
            is_in_a_datacenter(&session, options)?;
            Ok(Arc::new(session))
        }
        Ok(Err(error)) => Err(explain(&error, options)),
        Err(_) => Err(ConnectError { text: said_by(options, &silent(options)), is_transient: true }),
    }
}

/// With a data centre that no node is in, every statement would fail for want of somebody to ask.
fn is_in_a_datacenter(session: &Session, options: &ClusterOptions) -> Result<(), ConnectError> {
    let Some(wanted) = &options.datacenter else { return Ok(()) };
    let state = session.get_cluster_state();
    let there: BTreeSet<&str> = state.get_nodes_info().iter().filter_map(|node| node.datacenter.as_deref()).collect();
    if there.contains(wanted.as_str()) {
        return Ok(());
    }
    let there = there.into_iter().collect::<Vec<_>>().join("', '");
    let why = format!("no node is in the data centre '{wanted}' (datacenter); its nodes are in '{there}'");
    Err(ConnectError { text: said_by(options, &why), is_transient: false })
}

/// Why no node can be reached; `None` while there is a connection to any. Costs nothing then.
pub(crate) async fn away(session: &Session, options: &ClusterOptions) -> Option<String> {
    let is_connected = || session.get_cluster_state().get_nodes_info().iter().any(|node| node.is_connected());
    if is_connected() {
        return None;
    }
    // Without a connection it fails at once, with what the last try to make one met.
    let why = match session.query_unpaged("SELECT key FROM system.local", ()).await {
        Ok(_) => return None,
        Err(ExecutionError::ConnectionPoolError(ConnectionPoolError::Broken { last_connection_error })) => {
            of_connection(&last_connection_error, options).0
        }
        Err(error) => error.told(),
    };
    // A pool is also without connections while it makes its first.
    (!is_connected()).then(|| said_by(options, &why))
}

/// `host`, `host:port`, an IPv6 address with or without brackets, as the resolver takes it.
fn with_port(point: &str) -> String {
    match point.parse::<std::net::Ipv6Addr>() {
        Ok(address) => format!("[{address}]:{PORT}"),
        Err(_) if point.ends_with(']') || !point.contains(':') => format!("{point}:{PORT}"),
        Err(_) => point.to_owned(),
    }
}

/// The names of contact points, by the addresses they stand for now.
async fn hosts(points: &[String]) -> HashMap<std::net::IpAddr, Vec<ServerName<'static>>> {
    let mut hosts: HashMap<_, Vec<_>> = HashMap::new();
    for point in points {
        let Some((host, _)) = point.rsplit_once(':') else { continue };
        let Ok(name) = ServerName::try_from(host.to_owned()) else { continue };
        let Ok(addresses) = tokio::net::lookup_host(point).await else { continue };
        for address in addresses {
            hosts.entry(address.ip()).or_default().push(name.clone());
        }
    }
    hosts
}

/// What a session that could not be made says to the operator.
fn explain(error: &NewSessionError, options: &ClusterOptions) -> ConnectError {
    let transient = |why: String| ConnectError { text: said_by(options, &why), is_transient: true };
    let permanent = |why: String| ConnectError { text: said_by(options, &why), is_transient: false };
    match error {
        NewSessionError::FailedToResolveAnyHostname(_) => {
            transient("no contact point's name can be resolved; give its address, or mend the name service".to_owned())
        }
        NewSessionError::EmptyKnownNodesList => permanent("no contact point is given".to_owned()),
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(ConnectionPoolError::Broken {
            last_connection_error,
            ..
        })) => {
            let (why, is_transient) = of_connection(last_connection_error, options);
            if is_transient { transient(why) } else { permanent(why) }
        }
        // It answered, and then did not say what nodes there are: it is coming up, or going down.
        other => transient(other.to_string()),
    }
}

fn said_by(options: &ClusterOptions, why: &str) -> String {
    format!("Cassandra at {}: {why}", options.contact_points.join(", "))
}

fn silent(options: &ClusterOptions) -> String {
    let perhaps = if options.tls.is_some() { "does not speak TLS there" } else { "wants TLS there" };
    format!("nothing answers in time; is it running, is the address right, may we reach it; or it {perhaps}")
}

/// Why a connection failed, and whether it may succeed later.
fn of_connection(error: &ConnectionError, options: &ClusterOptions) -> (String, bool) {
    match error {
        ConnectionError::ConnectTimeout => (silent(options), true),
        ConnectionError::IoError(error) => of_io(error, options),
        ConnectionError::ConnectionSetupRequestError(error) => match error.get_error() {
            ConnectionSetupRequestErrorKind::MissingAuthentication => {
                ("it wants a user and a password, and none is set".to_owned(), false)
            }
            ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError, text) => {
                let user = options.credentials.as_ref().map_or("", |credentials| &credentials.user);
                // It cannot look, as long as its own tables of roles are away.
                if text.contains("Unable to perform") || text.contains("unavailable") {
                    (format!("it cannot look up the user '{user}' now: {text}"), true)
                } else {
                    (format!("it refuses the user '{user}' or the password: {text}"), false)
                }
            }
            ConnectionSetupRequestErrorKind::BrokenConnection(broken) => of_broken(broken, options),
            other => (other.to_string(), !matches!(other, ConnectionSetupRequestErrorKind::DbError(..))),
        },
        ConnectionError::BrokenConnection(broken) => of_broken(broken, options),
        other => (other.to_string(), true),
    }
}

/// Why a connection that stood was closed before it could be used.
fn of_broken(error: &scylla::errors::BrokenConnectionError, options: &ClusterOptions) -> (String, bool) {
    match error.downcast_ref::<BrokenConnectionErrorKind>() {
        Some(BrokenConnectionErrorKind::KeepaliveTimeout(_)) => return (silent(options), true),
        Some(
            BrokenConnectionErrorKind::WriteError(error)
            | BrokenConnectionErrorKind::FrameHeaderParseError(FrameHeaderParseError::HeaderIoError(error)),
        ) => return of_io(error, options),
        _ => {}
    }
    // The cause is behind several layers of the driver's own.
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            return of_io(io, options);
        }
        if let Some(tls) = inner.downcast_ref::<rustls::Error>() {
            return of_tls(tls, options);
        }
        cause = inner.source();
    }
    closed(&error.to_string(), options)
}

fn closed(what: &str, options: &ClusterOptions) -> (String, bool) {
    let why = match &options.tls {
        None => format!(
            "the connection is closed before it is used ({what}); if it wants TLS there, name its authority (tls_ca)"
        ),
        Some(tls) if tls.identity.is_none() => format!(
            "the connection is closed before it is used ({what}); if it wants a client certificate, give one \
             (tls_certificate and tls_key)"
        ),
        Some(_) => format!(
            "the connection is closed before it is used ({what}); does it believe our client certificate (tls_certificate)"
        ),
    };
    (why, true)
}

fn of_io(error: &io::Error, options: &ClusterOptions) -> (String, bool) {
    if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return of_tls(tls, options);
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            ("nothing listens there; is it running, and is the port that of CQL (9042)".to_owned(), true)
        }
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            (format!("it cannot be reached: {error}; is the address right, and is there a way to it"), true)
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => {
            closed(&error.to_string(), options)
        }
        _ => (error.to_string(), true),
    }
}

fn of_tls(error: &rustls::Error, options: &ClusterOptions) -> (String, bool) {
    let ca = options.tls.as_ref().map(|tls| tls.ca.display().to_string()).unwrap_or_default();
    let identity =
        options.tls.as_ref().and_then(|tls| tls.identity.as_ref()).map(|(path, _)| path.display().to_string());
    let why = match error {
        _ if tls::is_of_the_name(error) => format!(
            "its certificate does not bear the address or name we reach it by ({error}); reach it by the name it bears, give it \
             a certificate with its address, or set tls_verify_host = false"
        ),
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            format!("its certificate is not signed by an authority in {ca}; is that the cluster's own (tls_ca)")
        }
        rustls::Error::InvalidCertificate(invalid) => format!("its certificate is not good: {invalid:?}"),
        rustls::Error::InvalidMessage(_) => {
            format!("it does not speak TLS there ({error}); leave tls_ca out, or take its port for TLS")
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure)
            if identity.is_none() =>
        {
            format!("it wants a client certificate ({error}); give one (tls_certificate and tls_key)")
        }
        rustls::Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRequired
            | AlertDescription::AccessDenied,
        ) if identity.is_some() => format!(
            "it does not believe our client certificate ({error}); is {} signed by an authority of the cluster's, and not \
             expired (tls_certificate)",
            identity.unwrap_or_default()
        ),
        // Java says "internal error" of a certificate that it does not trust, and of much else.
        other => match identity {
            Some(identity) => format!(
                "no TLS connection can be made: {other}; perhaps it does not believe our client certificate: is {identity} \
                 signed by an authority of the cluster's (tls_certificate)"
            ),
            None => format!("no TLS connection can be made: {other}"),
        },
    };
    (why, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contact_point_has_the_port_of_cql_unless_it_says_another() {
        let with_ports = [
            ("db1", "db1:9042"),
            ("db1:9142", "db1:9142"),
            ("10.0.0.1", "10.0.0.1:9042"),
            ("10.0.0.1:1", "10.0.0.1:1"),
            ("::1", "[::1]:9042"),
            ("[::1]", "[::1]:9042"),
            ("[::1]:9142", "[::1]:9142"),
        ];
        for (point, wanted) in with_ports {
            assert_eq!(with_port(point), wanted);
        }
    }
}
