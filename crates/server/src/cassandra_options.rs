//! The settings of Cassandra as the options of its driver, with credentials and certificates checked.

use std::time::Duration;

use anyhow::Context;
use host::{Disk, Host};
use metric::{Policy, Retention};
use store::DamageLog;
use store_cassandra::{ClusterOptions, Consistencies, Credentials, Options, TlsOptions};

use crate::{
    process,
    settings::{ClusterAccess, Settings},
};

/// The options of a node over Cassandra, or `None` where points stay in the embedded store.
pub fn cluster_options(
    settings: &Settings,
    policies: &[Policy],
    host: &Host,
    damage: &DamageLog,
) -> anyhow::Result<Option<cluster::Options>> {
    let Some(cassandra) = options(settings, host)? else { return Ok(None) };
    let cassandra = Options { damage: damage.clone(), ..cassandra };
    let tables = &settings.tables;
    Ok(Some(cluster::Options {
        cassandra,
        retentions: retentions(policies),
        globs: tables.globs,
        reconcile_every: tables.reconcile_every,
        touch_every: tables.touch_every,
        read_sample: tables.read_sample.0,
        data: settings.data.dir.clone(),
        host_name: process::host_name(&*host.disk),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }))
}

/// How to reach the tables, or `None` where no cluster is named.
pub fn options(settings: &Settings, host: &Host) -> anyhow::Result<Option<Options>> {
    let tables = &settings.tables;
    let timeouts = (tables.connect_timeout.0, tables.request_timeout.0);
    let reach = |section, access| cluster(section, access, timeouts, &*host.disk);
    let Some(data) = reach("cassandra", &settings.cassandra)? else { return Ok(None) };
    Ok(Some(Options {
        data,
        metadata: reach("cassandra_metadata", &settings.cassandra_metadata)?,
        keyspace: tables.keyspace.as_str().to_owned(),
        replication: tables.replication.clone(),
        layout: tables.layout,
        consistency: Consistencies {
            data_write: tables.data_write_consistency,
            data_read: tables.data_read_consistency.0,
            meta_write: tables.meta_write_consistency,
            meta_read: tables.meta_read_consistency.0,
        },
        indexes: tables.indexes,
        writer: 0,
        replica: tables.replica.0,
        in_flight: tables.in_flight.0,
        glob_rows: tables.glob_rows,
        glob_queries: tables.glob_queries,
        host: host.clone(),
        damage: DamageLog::new(),
    }))
}

/// The retentions of storage-schemas.conf, each once.
pub fn retentions(policies: &[Policy]) -> Vec<Retention> {
    let mut retentions: Vec<Retention> = Vec::new();
    for policy in policies {
        if !retentions.contains(&policy.retention) {
            retentions.push(policy.retention.clone());
        }
    }
    retentions
}

/// How to reach the cluster of a section; `None` where the section names no hosts.
fn cluster(
    section: &str,
    access: &ClusterAccess,
    (connect_timeout, request_timeout): (Duration, Duration),
    disk: &dyn Disk,
) -> anyhow::Result<Option<ClusterOptions>> {
    let Some(hosts) = &access.contact_points else { return Ok(None) };
    Ok(Some(ClusterOptions {
        contact_points: hosts.all().to_vec(),
        credentials: credentials(section, access, disk)?,
        tls: tls(section, access)?,
        datacenter: access.datacenter.clone(),
        connect_timeout,
        request_timeout,
    }))
}

fn credentials(section: &str, access: &ClusterAccess, disk: &dyn Disk) -> anyhow::Result<Option<Credentials>> {
    let password = match (access.password.reveal(), &access.password_file) {
        (Some(_), Some(_)) => {
            anyhow::bail!("{section}.password and {section}.password_file are both given; leave one out")
        }
        (Some(password), None) => Some(password.to_owned()),
        (None, Some(path)) => {
            let text = disk
                .read_to_string(path)
                .with_context(|| format!("cannot read {section}.password_file, {}", path.display()))?;
            Some(text.trim_end_matches(['\r', '\n']).to_owned())
        }
        (None, None) => None,
    };
    match (&access.user, password) {
        (Some(user), Some(password)) => Ok(Some(Credentials { user: user.clone(), password })),
        (None, None) => Ok(None),
        (Some(user), None) => anyhow::bail!(
            "{section}.user is '{user}', but there is no password; give {section}.password_file, or set \
             PLUMBAGO_{}_PASSWORD",
            section.to_uppercase()
        ),
        (None, Some(_)) => anyhow::bail!("there is a password for {section}, but no {section}.user"),
    }
}

fn tls(section: &str, access: &ClusterAccess) -> anyhow::Result<Option<TlsOptions>> {
    let identity = match (&access.tls_certificate, &access.tls_key) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (None, None) => None,
        _ => anyhow::bail!("{section}.tls_certificate and {section}.tls_key go together; one is missing"),
    };
    match (&access.tls_ca, identity) {
        (Some(ca), identity) => Ok(Some(TlsOptions { ca: ca.clone(), identity, verify_host: access.tls_verify_host })),
        (None, Some(_)) => anyhow::bail!(
            "{section}.tls_certificate is given, but {section}.tls_ca is not: name the file of the authorities that \
             sign the cluster's certificates"
        ),
        (None, None) => Ok(None),
    }
}
