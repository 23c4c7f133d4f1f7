//! Tokens for HTTP: the file that lists them, who sends a request by them, and reading the file again when it changes.
//!
//! The file has a token's hash, never the token. A token is 256 random bits, so a plain SHA-256 of it cannot be undone.

mod bearers;
mod file;
mod gates;
mod opening;
mod proxies;
mod watcher;

pub use file::{Entry, TokenFile, hash, section, without};
pub use gates::TokenGates;
pub use opening::{Tokens, open};
pub use proxies::Proxies;
