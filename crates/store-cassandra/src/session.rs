//! Sessions with a cluster.

use std::{
    collections::{BTreeSet, HashMap},
    num::NonZeroUsize,
    sync::Arc,
    time::Duration,
};

use host::Disk;
use rustls::pki_types::ServerName;
use scylla::{
    client::{PoolSize, execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder},
    errors::{ConnectionPoolError, ExecutionError},
    policies::{
        load_balancing::DefaultPolicy, retry::DefaultRetryPolicy,
        speculative_execution::SimpleSpeculativeExecutionPolicy,
    },
};

use crate::{
    ClusterOptions, Options,
    connect_error::ConnectError,
    explain::{explain, of_connection, said_by, silent},
    failure::Classify,
    tls,
};

/// The port of CQL.
const PORT: u16 = 9042;

/// Connections to each node. One is enough for the statements; the second lets others pass a large answer.
const CONNECTIONS: NonZeroUsize = NonZeroUsize::new(2).expect("two is not zero");

/// After this long without an answer the statement also goes to the next replica, so that a slow or dead node costs this
/// time and not the answer. All statements are idempotent.
const SECOND_ASKED_AFTER: Duration = Duration::from_millis(500);

/// A silent connection is probed after this time, and closed after as long again.
const KEEPALIVE: Duration = Duration::from_secs(5);

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
/// No contact point answers, the login is rejected, or the certificate is not trusted; the text says which, and the next
/// step.
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
        // Replicas are found by the keyspaces' replication; the columns of tables are read when they matter.
        .fetch_full_schema_metadata(false);
    if let Some(credentials) = &options.credentials {
        builder = builder.user(&credentials.user, &credentials.password);
    }
    if let Some(tls) = &options.tls {
        builder = builder.tls_context(Some(tls::config(tls, disk, hosts(&points).await)?));
    }
    // Without a limit, a node that accepts a connection and stays silent delays this until its keepalive fails.
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

/// A data centre without nodes would make every statement fail.
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

/// Why no node can be reached; `None`, at no cost, while any node is connected.
pub(crate) async fn away(session: &Session, options: &ClusterOptions) -> Option<String> {
    let is_connected = || session.get_cluster_state().get_nodes_info().iter().any(|node| node.is_connected());
    if is_connected() {
        return None;
    }
    // Without a connection this fails at once, with the error of the last attempt to connect.
    let why = match session.query_unpaged("SELECT key FROM system.local", ()).await {
        Ok(_) => return None,
        Err(ExecutionError::ConnectionPoolError(ConnectionPoolError::Broken { last_connection_error })) => {
            of_connection(&last_connection_error, options).0
        }
        Err(error) => error.message(),
    };
    // A pool also has no connection while it opens its first.
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

/// The host names of contact points, by their present addresses.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contact_point_without_a_port_gets_the_port_of_cql() {
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
