//! How a request between nodes is known: its path, and the header with their secret.

use hyper::header::HeaderName;

/// Where a node gives its points in memory.
pub const PATH: &str = "/peers/heads";

/// The header with the secret of the nodes.
pub const SECRET: HeaderName = HeaderName::from_static("x-plumbago-secret");
