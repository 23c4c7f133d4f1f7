//! The files of a listener's certificate, and the configuration that they make.

use std::{fmt::Display, io, path::Path, path::PathBuf, sync::Arc};

use host::{Clock, Disk};
use tokio_rustls::rustls::{
    Error, InconsistentKeys, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::WebPkiClientVerifier,
    time_provider::TimeProvider,
};

use crate::expiry::Validity;

/// The files of a listener, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The certificate, and those between it and an authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities that sign certificates of clients; `None` asks clients for none.
    pub client_ca: Option<PathBuf>,
    /// Whether clients need a certificate, where there is a `client_ca`.
    pub clients: Clients,
}

/// Whether clients need a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clients {
    /// A client without a valid certificate is refused.
    Require,
    /// A client without a certificate is served, one with an invalid certificate is refused.
    Optional,
}

/// The bytes of the files, as they were read.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// A configuration, and when its certificate is valid.
pub(crate) struct Made {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) validity: Option<Validity>,
}

impl Files {
    /// Reads the files. The error names the one that cannot be read.
    pub(crate) fn read(&self, disk: &dyn Disk) -> Result<Contents, String> {
        let read = |path: &Path| disk.read(path).map_err(|error: io::Error| cannot(path, &error));
        Ok(Contents {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
            client_ca: self.client_ca.as_deref().map(read).transpose()?,
        })
    }

    /// The configuration that the files make, for these application protocols. The error names the file at fault.
    pub(crate) fn make(&self, read: &Contents, protocols: &[&[u8]], clock: Arc<dyn Clock>) -> Result<Made, String> {
        let provider = provider();
        let chain = certificates(&read.certificate).map_err(|error| cannot_use(&self.certificate, &error))?;
        let validity = chain.first().and_then(|certificate| Validity::of(certificate));
        let key = PrivateKeyDer::from_pem_slice(&read.key)
            .map_err(|error| format!("there is no private key in {}, a PEM file: {error}", self.key.display()))?;
        let builder = ServerConfig::builder_with_details(provider.clone(), Arc::new(Time(clock)))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match (&self.client_ca, &read.client_ca) {
            (Some(path), Some(bytes)) => {
                let roots = roots(path, bytes)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = match self.clients {
                    Clients::Require => verifier,
                    Clients::Optional => verifier.allow_unauthenticated(),
                };
                let verifier = verifier.build().map_err(|error| cannot_use(path, &error))?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => format!(
                "the key in {} is not that of the certificate in {}",
                self.key.display(),
                self.certificate.display()
            ),
            error => format!(
                "cannot use the certificate in {} with the key in {}: {error}",
                self.certificate.display(),
                self.key.display()
            ),
        })?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Made { config: Arc::new(config), validity })
    }
}

/// All certificates of a text in PEM, at least one.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| error.to_string())?;
    if found.is_empty() { Err("there is none; it must be a PEM file".to_owned()) } else { Ok(found) }
}

fn roots(path: &Path, bytes: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(bytes).map_err(|error| cannot_use(path, &error))? {
        roots.add(certificate).map_err(|error| cannot_use(path, &error))?;
    }
    Ok(roots)
}

fn cannot(path: &Path, error: &dyn Display) -> String {
    format!("cannot read {}: {error}", path.display())
}

fn cannot_use(path: &Path, error: &dyn Display) -> String {
    format!("cannot use the certificates in {}: {error}", path.display())
}

/// The cryptography of listeners and of the program's own requests.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// The program's clock, as `rustls` asks for it.
#[derive(Debug)]
struct Time(Arc<dyn Clock>);

impl TimeProvider for Time {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.0.since_epoch()))
    }
}
