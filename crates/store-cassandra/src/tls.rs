//! TLS to Cassandra: the trusted authorities, our client certificate, and whether a node's certificate must match its name.

use std::{collections::HashMap, fmt::Display, net::IpAddr, path::Path, sync::Arc};

use host::Disk;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

use crate::{TlsOptions, connect_error::ConnectError};

/// The settings of every connection of a session. `hosts` are the names of contact points, by their addresses.
///
/// # Errors
/// A file cannot be read or is invalid; each text names the file.
pub(crate) fn config(
    options: &TlsOptions,
    disk: &dyn Disk,
    hosts: HashMap<IpAddr, Vec<ServerName<'static>>>,
) -> Result<Arc<ClientConfig>, ConnectError> {
    let ca = options.ca.display();
    let mut roots = RootCertStore::empty();
    for certificate in certificates(disk, &options.ca)? {
        roots.add(certificate).map_err(|error| {
            ConnectError::permanent(format!("{ca} has a certificate that cannot be used as an authority: {error}"))
        })?;
    }
    let verifier = WebPkiServerVerifier::builder(Arc::new(roots))
        .build()
        .map_err(|error| ConnectError::permanent(format!("the authorities in {ca} cannot be used: {error}")))?;
    let verifier = Verifier { signed: verifier, hosts, verify_host: options.verify_host };
    let builder = ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let config = match &options.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(disk, certificate)?;
            let private = private_key(disk, key)?;
            builder.with_client_auth_cert(chain, private).map_err(|error| {
                ConnectError::permanent(format!(
                    "the client certificate {} and the key {} do not go together: {error}",
                    certificate.display(),
                    key.display()
                ))
            })?
        }
    };
    Ok(Arc::new(config))
}

/// All certificates of a PEM file, at least one.
fn certificates(disk: &dyn Disk, path: &Path) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let cannot = |error: &dyn Display| {
        ConnectError::permanent(format!("cannot read a certificate from {}: {error}", path.display()))
    };
    let bytes = disk.read(path).map_err(|error| cannot(&error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| cannot(&error))?;
    if found.is_empty() {
        return Err(ConnectError::permanent(format!(
            "there is no certificate in {}; it must be a PEM file",
            path.display()
        )));
    }
    Ok(found)
}

/// The first private key of a PEM file.
fn private_key(disk: &dyn Disk, path: &Path) -> Result<PrivateKeyDer<'static>, ConnectError> {
    let cannot = |error: &dyn Display| {
        ConnectError::permanent(format!("cannot read a private key from {}: {error}", path.display()))
    };
    let bytes = disk.read(path).map_err(|error| cannot(&error))?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| cannot(&error))
}

/// Trusts what the authorities signed. Connections know nodes by their addresses alone, so a certificate may contain a
/// node's address or the name of its contact point.
#[derive(Debug)]
struct Verifier {
    signed: Arc<WebPkiServerVerifier>,
    hosts: HashMap<IpAddr, Vec<ServerName<'static>>>,
    verify_host: bool,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        address: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let matches =
            |name: &ServerName<'_>| self.signed.verify_server_cert(certificate, intermediates, name, ocsp, now);
        let error = match matches(address) {
            Err(error) if is_of_the_name(&error) => error,
            // The name is the last check: everything else is valid, or is invalid whatever the name.
            result => return result,
        };
        if !self.verify_host {
            return Ok(ServerCertVerified::assertion());
        }
        let names = match address {
            ServerName::IpAddress(address) => self.hosts.get(&IpAddr::from(*address)),
            _ => None,
        };
        if names.is_some_and(|names| names.iter().any(|name| matches(name).is_ok())) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(error)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

/// Whether a certificate is rejected for its name alone.
pub(crate) fn is_of_the_name(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidCertificate(CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. })
    )
}
