//! Handshakes: within a limit of time, counted by their outcome, and logged once a minute where they fail.

use std::{net::SocketAddr, time::Duration};

use host::Excerpt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::{identity::Identity, outcome::Outcome};

/// Time for a handshake: a few round trips of a slow network.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A connection after its handshake.
pub type Stream = tokio_rustls::server::TlsStream<TcpStream>;

impl Identity {
    /// The handshake of a new connection: `None` if it fails, which is counted and logged.
    pub async fn accept(&self, stream: TcpStream, peer: SocketAddr) -> Option<Stream> {
        let handshake = TlsAcceptor::from(self.config()).accept(stream);
        let (outcome, error) = match tokio::time::timeout(HANDSHAKE, handshake).await {
            Ok(Ok(stream)) => {
                self.count(Outcome::Done);
                return Some(stream);
            }
            Ok(Err(error)) => (Outcome::of(&error), error.to_string()),
            Err(_) => (Outcome::TimedOut, String::new()),
        };
        self.count(outcome);
        self.log(outcome, peer, &error);
        None
    }

    /// Handshakes so far, by their outcome.
    pub fn handshakes(&self) -> [(Outcome, u64); Outcome::ALL.len()] {
        Outcome::ALL.map(|outcome| (outcome, self.handshakes.ended(outcome)))
    }

    fn count(&self, outcome: Outcome) {
        self.handshakes.count(outcome);
    }

    fn log(&self, outcome: Outcome, peer: SocketAddr, error: &str) {
        // Health checks of load balancers connect and go.
        if outcome == Outcome::Closed {
            tracing::debug!(listener = self.name(), %peer, error, "a client went away during its handshake");
            return;
        }
        if let Some(suppressed) = self.handshakes.is_due(outcome, self.clock().instant()) {
            tracing::warn!(listener = self.name(), %peer, suppressed, error = %Excerpt(error),
                "a TLS handshake failed: {}; logging such handshakes once a minute", outcome.sentence());
        }
    }
}
