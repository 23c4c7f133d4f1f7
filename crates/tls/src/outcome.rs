//! How handshakes end, and how many have ended so.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Instant,
};

use host::MinuteLog;
use tokio_rustls::rustls;

/// How a handshake ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The connection is encrypted.
    Done,
    /// The client sent something that is not TLS.
    PlainText,
    /// The client has no certificate where one is required, or one that is not valid.
    ClientCertificate,
    /// The client does not accept the server's certificate.
    ServerCertificate,
    /// Versions and ciphers differ, or a message is wrong.
    Failed,
    /// The client went away.
    Closed,
    /// The client took too long.
    TimedOut,
}

impl Outcome {
    /// Every outcome, in the order of the variants.
    pub const ALL: [Outcome; 7] = [
        Outcome::Done,
        Outcome::PlainText,
        Outcome::ClientCertificate,
        Outcome::ServerCertificate,
        Outcome::Failed,
        Outcome::Closed,
        Outcome::TimedOut,
    ];

    /// As a label of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::PlainText => "plain_text",
            Outcome::ClientCertificate => "client_certificate",
            Outcome::ServerCertificate => "server_certificate",
            Outcome::Failed => "failed",
            Outcome::Closed => "closed",
            Outcome::TimedOut => "timed_out",
        }
    }

    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::PlainText => {
                "the client sent plain text, and this address takes TLS alone: turn TLS on there (https://)"
            }
            Outcome::ClientCertificate => "the client sent no certificate that the authorities of this listener signed",
            Outcome::ServerCertificate => {
                "the client does not accept this server's certificate: give it the authority, and a name that the certificate has"
            }
            Outcome::Failed => "client and server do not agree on a version or cipher of TLS, or a message was wrong",
            Outcome::Closed => "the client closed the connection",
            Outcome::TimedOut => "the client took longer than ten seconds",
        }
    }

    pub(crate) fn of(error: &io::Error) -> Outcome {
        use rustls::{AlertDescription as Alert, Error, InvalidMessage};
        let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
            return Outcome::Closed;
        };
        match error {
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => Outcome::PlainText,
            Error::NoCertificatesPresented | Error::InvalidCertificate(_) => Outcome::ClientCertificate,
            Error::AlertReceived(
                Alert::BadCertificate
                | Alert::UnknownCA
                | Alert::CertificateUnknown
                | Alert::CertificateExpired
                | Alert::CertificateRevoked
                | Alert::UnsupportedCertificate,
            ) => Outcome::ServerCertificate,
            _ => Outcome::Failed,
        }
    }
}

/// The handshakes of a listener.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    ended: [AtomicU64; Outcome::ALL.len()],
    logs: [MinuteLog; Outcome::ALL.len()],
}

impl Handshakes {
    pub(crate) fn ended(&self, outcome: Outcome) -> u64 {
        self.ended[outcome as usize].load(Relaxed)
    }

    pub(crate) fn count(&self, outcome: Outcome) {
        self.ended[outcome as usize].fetch_add(1, Relaxed);
    }

    /// Whether this outcome's line of the log is due, and how many were left out before it.
    pub(crate) fn is_due(&self, outcome: Outcome, now: Instant) -> Option<u64> {
        self.logs[outcome as usize].is_due(now)
    }
}
