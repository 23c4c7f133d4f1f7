//! Certificates of listeners, as the settings ask for them, and reading them again while the program runs.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use host::{Clock, Disk};
use tls::{Clients, Files, Identity};
use tokio::signal::unix::{SignalKind, signal};

use crate::settings::{Listener, Settings};

/// Whether administration is answered over TLS: not at a loopback address of its own.
pub fn admin_has_tls(settings: &Settings) -> bool {
    let http = settings.listen.http.as_ref();
    let admin = settings.listen.admin.next_to(http);
    settings.http.tls_certificate.is_some()
        && (admin.as_ref() == http || admin.is_some_and(|admin| !admin.is_loopback()))
}

/// Whether HTTP asks every client for a certificate.
pub fn http_asks_for_certificates(settings: &Settings) -> bool {
    let http = &settings.http;
    http.tls_certificate.is_some() && http.tls_client_ca.is_some() && http.tls_clients.0 == Clients::Require
}

/// The certificate of HTTP, if the settings name one.
pub fn of_http(
    settings: &Settings,
    disk: &Arc<dyn Disk>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Option<Arc<Identity>>> {
    let http = &settings.http;
    let given = Given {
        certificate: &http.tls_certificate,
        key: &http.tls_key,
        client_ca: &http.tls_client_ca,
        clients: http.tls_clients.0,
    };
    let Some(files) = given.files("http.")? else { return Ok(None) };
    let identity = Identity::open("http", files, api::PROTOCOLS, disk.clone(), clock.clone());
    Ok(Some(Arc::new(identity.map_err(anyhow::Error::msg).context("cannot turn TLS on (http.tls_certificate)")?)))
}

/// The certificate of a `[[listener]]`, if it has one.
pub fn of_listener(
    listener: &Listener,
    disk: &Arc<dyn Disk>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Option<Arc<Identity>>> {
    let given = Given {
        certificate: &listener.tls_certificate,
        key: &listener.tls_key,
        client_ca: &listener.tls_client_ca,
        clients: listener.tls_clients.0,
    };
    let Some(files) = given.files("")? else { return Ok(None) };
    let identity = Identity::open(&listener.name.0, files, &[], disk.clone(), clock.clone());
    Ok(Some(Arc::new(identity.map_err(anyhow::Error::msg).context("cannot turn TLS on")?)))
}

/// Whether a `[[listener]]` asks every sender for a certificate.
pub fn listener_asks(listener: &Listener) -> bool {
    listener.tls_certificate.is_some() && listener.tls_client_ca.is_some() && listener.tls_clients.0 == Clients::Require
}

/// The settings of a listener's TLS.
struct Given<'a> {
    certificate: &'a Option<PathBuf>,
    key: &'a Option<PathBuf>,
    client_ca: &'a Option<PathBuf>,
    clients: Clients,
}

impl Given<'_> {
    /// The files; `None` without TLS. `section` stands before the keys in errors.
    fn files(&self, section: &str) -> anyhow::Result<Option<Files>> {
        match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Ok(Some(Files {
                certificate: certificate.clone(),
                key: key.clone(),
                client_ca: self.client_ca.clone(),
                clients: self.clients,
            })),
            (None, None) if self.client_ca.is_none() => Ok(None),
            (None, None) => anyhow::bail!("{section}tls_client_ca needs {section}tls_certificate and {section}tls_key"),
            _ => anyhow::bail!("{section}tls_certificate and {section}tls_key go together; one is missing"),
        }
    }
}

/// Reads the files of all certificates at each interval and each SIGHUP, until dropped.
pub async fn follow(identities: Vec<Arc<Identity>>, every: Duration) {
    let mut hangups = signal(SignalKind::hangup()).expect("signals can be handled");
    loop {
        tokio::select! {
            () = tokio::time::sleep(every.max(Duration::from_millis(100))) => {}
            _ = hangups.recv() => {}
        }
        let identities = identities.clone();
        let reading = tokio::task::spawn_blocking(move || identities.iter().for_each(|identity| identity.reload()));
        reading.await.expect("reading a certificate does not panic");
    }
}
