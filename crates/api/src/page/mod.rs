//! The start page, and the version of graphite-web that this server implements.
//!
//! The handlers [`start`] and [`version`] are the door.

use std::sync::Arc;

use hyper::{
    StatusCode,
    header::{CACHE_CONTROL, HeaderValue, X_CONTENT_TYPE_OPTIONS},
};

use crate::{
    http::Rejection,
    query::{Backend, Query, Reply},
};

/// The graphite-web whose contract this server implements. Grafana selects its requests by this version.
const VERSION: &str = "1.1.10\n";

const HTML: &str = "text/html; charset=utf-8";

/// `GET /version`.
pub(crate) async fn version(_: &Arc<Backend>, _: &Query) -> Result<Reply, Rejection> {
    Ok(Reply::short(StatusCode::OK, HTML, VERSION))
}

/// `GET /`: the addresses for relays and Grafana, and a form that draws a target.
pub(crate) async fn start(backend: &Arc<Backend>, _: &Query) -> Result<Reply, Rejection> {
    let about: String = backend
        .about
        .iter()
        .map(|(what, text)| format!("<dt>{}</dt><dd>{}</dd>\n  ", escaped(what), escaped(text)))
        .collect();
    let page = include_str!("page.html")
        .replace("{{metrics}}", &grouped(backend.registry.len() as u64))
        .replace("{{about}}", &about);
    let mut reply = Reply::short(StatusCode::OK, HTML, page);
    let headers = reply.response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(reply)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// `1234567` as `1,234,567`.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_group_the_digits_of_counts() {
        for (count, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(grouped(count), text);
        }
    }
}
