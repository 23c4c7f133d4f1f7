//! The start page, and the version of graphite-web that this server implements.
//!
//! The handlers [`start`] and [`version`] are the door.

use std::sync::Arc;

use hyper::{
    HeaderMap, StatusCode,
    header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, USER_AGENT},
};

use crate::{
    http::Rejection,
    query::{Backend, Query, Reply},
};

/// The graphite-web whose contract this server implements. Grafana selects its requests by this version.
const VERSION: &str = "1.1.10\n";

/// The same as JSON.
const VERSION_JSON: &str = "\"1.1.10\"\n";

const HTML: &str = "text/html; charset=utf-8";

/// The page runs its own script, known by its SHA-256, and no other. It talks to this server alone.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'sha256-BHm+8IO6uouzIoyHxshJ0vV0+NLAphFlTeE1RG5wC3E='; style-src 'unsafe-inline'; \
                           img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; \
                           frame-ancestors 'none'";

/// `GET /version`: text, as graphite-web answers, or JSON for clients that read JSON.
pub(crate) async fn version(_: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let mut reply = match reads_json(&query.headers) {
        true => Reply::json(StatusCode::OK, VERSION_JSON),
        false => Reply::short(StatusCode::OK, HTML, VERSION),
    };
    // It depends on the client; caches ask again.
    reply.response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(reply)
}

/// Whether the client reads the version as JSON: it accepts JSON by name, or is Grafana, whose backend reads JSON without
/// saying so and whose pages read both.
fn reads_json(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text(ACCEPT).contains("application/json") || text(USER_AGENT).starts_with("Grafana/")
}

/// `GET /`: the addresses for relays and Grafana, and a form that draws a target.
pub(crate) async fn start(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let about: String = backend
        .about
        .iter()
        .map(|(what, text)| format!("<dt>{}</dt><dd>{}</dd>\n  ", escaped(what), escaped(text)))
        .collect();
    let metrics = match query.viewer.names {
        None => grouped(backend.registry.len() as u64),
        Some(_) => format!("those that {} may see", escaped(&query.viewer.name)),
    };
    let page = include_str!("page.html").replace("{{metrics}}", &metrics).replace("{{about}}", &about);
    let mut reply = Reply::short(StatusCode::OK, HTML, page);
    let headers = reply.response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
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
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn the_policy_names_the_script_of_the_page() {
        let page = include_str!("page.html");
        let (_, script) = page.split_once("<script>").unwrap();
        let (script, _) = script.split_once("</script>").unwrap();
        let hash = base64(&Sha256::digest(script));
        assert!(PAGE_POLICY.contains(&format!("'sha256-{hash}'")), "the script has the hash {hash}");
    }

    fn base64(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for group in bytes.chunks(3) {
            let bits = (0..3).fold(0, |bits, i| bits << 8 | u32::from(group.get(i).copied().unwrap_or(0)));
            for i in 0..4 {
                let digit = char::from(DIGITS[(bits >> (18 - 6 * i)) as usize & 63]);
                text.push(if i <= group.len() { digit } else { '=' });
            }
        }
        text
    }

    #[test]
    fn commas_group_the_digits_of_counts() {
        for (count, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(grouped(count), text);
        }
    }
}
