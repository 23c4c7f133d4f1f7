//! Error messages for the operator when a connection fails: state, likely cause, next step.

use std::{error::Error as _, io};

use rustls::{AlertDescription, CertificateError};
use scylla::{
    errors::{
        BrokenConnectionErrorKind, ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError,
        MetadataError, NewSessionError,
    },
    frame::frame_errors::FrameHeaderParseError,
};

use crate::{ClusterOptions, connect_error::ConnectError, tls};

/// The error for the operator when no session can be opened.
pub(crate) fn explain(error: &NewSessionError, options: &ClusterOptions) -> ConnectError {
    let transient = |why: String| ConnectError { text: said_by(options, &why), is_transient: true };
    let permanent = |why: String| ConnectError { text: said_by(options, &why), is_transient: false };
    match error {
        NewSessionError::FailedToResolveAnyHostname(_) => transient(
            "cannot resolve the name of any contact point; give an address, or repair the name service".to_owned(),
        ),
        NewSessionError::EmptyKnownNodesList => permanent("no contact point is given".to_owned()),
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(ConnectionPoolError::Broken {
            last_connection_error,
            ..
        })) => {
            let (why, is_transient) = of_connection(last_connection_error, options);
            if is_transient { transient(why) } else { permanent(why) }
        }
        // It answered, and then did not list its nodes: it is starting or stopping.
        other => transient(other.to_string()),
    }
}

pub(crate) fn said_by(options: &ClusterOptions, why: &str) -> String {
    format!("Cassandra at {}: {why}", options.contact_points.join(", "))
}

pub(crate) fn silent(options: &ClusterOptions) -> String {
    let perhaps = if options.tls.is_some() { "does not use" } else { "requires" };
    format!(
        "no answer in time; check that Cassandra runs, the address and firewalls; perhaps this port {perhaps} TLS (tls_ca)"
    )
}

/// Why a connection failed, and whether it may succeed later.
pub(crate) fn of_connection(error: &ConnectionError, options: &ClusterOptions) -> (String, bool) {
    match error {
        ConnectionError::ConnectTimeout => (silent(options), true),
        ConnectionError::IoError(error) => of_io(error, options),
        ConnectionError::ConnectionSetupRequestError(error) => match error.get_error() {
            ConnectionSetupRequestErrorKind::MissingAuthentication => {
                ("the node requires a user and a password; set both (user, password)".to_owned(), false)
            }
            ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError, text) => {
                let user = options.credentials.as_ref().map_or("", |credentials| &credentials.user);
                // The node cannot check the login while its own tables of roles are unavailable.
                if text.contains("Unable to perform") || text.contains("unavailable") {
                    (format!("the node cannot look up the user '{user}' now: {text}"), true)
                } else {
                    (format!("the node rejects the user '{user}' or the password: {text}"), false)
                }
            }
            ConnectionSetupRequestErrorKind::BrokenConnection(broken) => of_broken(broken, options),
            other => (other.to_string(), !matches!(other, ConnectionSetupRequestErrorKind::DbError(..))),
        },
        ConnectionError::BrokenConnection(broken) => of_broken(broken, options),
        other => (other.to_string(), true),
    }
}

/// Why a connection was closed before its first use.
fn of_broken(error: &scylla::errors::BrokenConnectionError, options: &ClusterOptions) -> (String, bool) {
    match error.downcast_ref::<BrokenConnectionErrorKind>() {
        Some(BrokenConnectionErrorKind::KeepaliveTimeout(_)) => return (silent(options), true),
        Some(
            BrokenConnectionErrorKind::WriteError(error)
            | BrokenConnectionErrorKind::FrameHeaderParseError(FrameHeaderParseError::HeaderIoError(error)),
        ) => return of_io(error, options),
        _ => {}
    }
    // The cause is below several layers of the client's own.
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
    let identity = options.tls.as_ref().and_then(|tls| tls.identity.as_ref());
    let why = match identity {
        // A node that does not trust a certificate may close the connection before its alert is read.
        Some((certificate, _)) => format!(
            "the connection closed before its first use ({what}); perhaps the node does not trust our client certificate: \
             check that an authority of the cluster signed {} (tls_certificate)",
            certificate.display()
        ),
        None if options.tls.is_none() => {
            format!("the connection closed before its first use ({what}); if this port requires TLS, set tls_ca")
        }
        None => format!(
            "the connection closed before its first use ({what}); if the node requires a client certificate, set \
             tls_certificate and tls_key"
        ),
    };
    (why, true)
}

fn of_io(error: &io::Error, options: &ClusterOptions) -> (String, bool) {
    if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return of_tls(tls, options);
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => (
            "nothing listens there; check that Cassandra runs and that the port is the one for CQL (9042)".to_owned(),
            true,
        ),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            (format!("the address cannot be reached: {error}; check it, and the route to it"), true)
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
            "the node's certificate does not contain the address or name that we connect to ({error}); connect to a name in the \
             certificate, give the node a certificate with its address, or set tls_verify_host = false"
        ),
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            format!(
                "the node's certificate is not signed by an authority in {ca}; check that tls_ca names the cluster's authorities"
            )
        }
        rustls::Error::InvalidCertificate(invalid) => format!("the node's certificate is invalid: {invalid:?}"),
        rustls::Error::InvalidMessage(_) => {
            format!("this port does not use TLS ({error}); leave tls_ca out, or use the node's port for TLS")
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure)
            if identity.is_none() =>
        {
            format!("the node requires a client certificate ({error}); set tls_certificate and tls_key")
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
            "the node does not trust our client certificate ({error}); check that {} (tls_certificate) has not expired, and \
             that an authority of the cluster signed it",
            identity.unwrap_or_default()
        ),
        // Java reports a certificate that it does not trust as "internal error", and much else too.
        other => match identity {
            Some(identity) => format!(
                "cannot open a TLS connection: {other}; perhaps the node does not trust our client certificate: check that an \
                 authority of the cluster signed {identity} (tls_certificate)"
            ),
            None => format!("cannot open a TLS connection: {other}"),
        },
    };
    (why, false)
}
