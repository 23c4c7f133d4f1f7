//! The result of a handler.

use hyper::{
    StatusCode,
    header::{HeaderName, HeaderValue},
};

use crate::http::{Body, Response, short};

/// Names the nodes whose points in memory are not in an answer. Only where there are some.
const MISSING_PEERS: HeaderName = HeaderName::from_static("x-plumbago-missing-peers");

/// Nodes that the header names, at most: proxies limit headers.
const NAMED: usize = 20;

/// The answer to a query, with its cost for metrics.
pub(crate) struct Reply {
    /// The answer.
    pub response: Response,
    /// Number of series read.
    pub series: u64,
    /// Number of points read.
    pub points: u64,
}

impl Reply {
    /// Names nodes whose points in memory are not in the answer: the first ones, and how many there are besides.
    pub fn name_missing(&mut self, peers: &[String]) {
        if peers.is_empty() {
            return;
        }
        let mut named = peers[..peers.len().min(NAMED)].join(", ");
        if NAMED < peers.len() {
            named.push_str(&format!(", and {} more", peers.len() - NAMED));
        }
        // An answer that lacks points says so, whatever its nodes are called.
        let visible: String = named.chars().map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).collect();
        let value = HeaderValue::try_from(visible).expect("visible ASCII is a value of a header");
        self.response.headers_mut().insert(MISSING_PEERS, value);
    }

    /// A short JSON answer.
    pub fn json(status: StatusCode, text: impl Into<Body>) -> Reply {
        Reply::short(status, "application/json", text)
    }

    /// A short answer.
    pub fn short(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Reply {
        short(status, content_type, body).into()
    }
}

impl From<Response> for Reply {
    fn from(response: Response) -> Reply {
        Reply { response, series: 0, points: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(peers: &[&str]) -> Option<String> {
        let mut reply = Reply::json(StatusCode::OK, "{}");
        reply.name_missing(&peers.iter().map(|&peer| peer.to_owned()).collect::<Vec<_>>());
        Some(reply.response.headers().get(MISSING_PEERS)?.to_str().unwrap().to_owned())
    }

    #[test]
    fn an_answer_that_lacks_points_says_so_whatever_its_nodes_are_called_and_however_many_they_are() {
        assert_eq!(named(&[]), None);
        assert_eq!(named(&["n1:80", "n2:80"]).unwrap(), "n1:80, n2:80");
        assert_eq!(named(&["evil\r\nX: y", "\u{fc}:80"]).unwrap(), "evil??X: y, ?:80");
        assert_eq!(named(&["n"; 20]).unwrap(), ["n"; 20].join(", "));
        assert_eq!(named(&["n"; 2000]).unwrap(), ["n"; 20].join(", ") + ", and 1980 more");
    }
}
