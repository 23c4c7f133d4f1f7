//! TLS of listeners: certificates that are read again when their files change, handshakes within a limit of time, and the
//! program's own requests to such a listener.
//!
//! [`Identity`] is the door. This crate does not know what travels over a connection.

mod expiry;
mod files;
mod handshake;
mod identity;
mod outcome;
mod own_client;

pub use files::{Clients, Files};
pub use handshake::Stream;
pub use identity::Identity;
pub use outcome::Outcome;
pub use own_client::request_stream;
