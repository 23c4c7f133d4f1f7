//! The start page, and the version we answer with.

use std::sync::Arc;

use hyper::{Response, header};

use crate::{
    Api, Body, Refusal,
    api::{Query, Reply},
};

/// The graphite-web whose contract this is; Grafana chooses what to ask by it.
const VERSION: &str = "1.1.10\n";

/// `GET /version`.
pub(crate) async fn version(_: &Arc<Api>, _: &Query) -> Result<Reply, Refusal> {
    let response = Response::builder().header(header::CONTENT_TYPE, "text/html; charset=utf-8");
    Ok(response.body(Body::from(VERSION)).expect("the parts of an answer are ours").into())
}

/// `GET /`: what this is, where to point relays and Grafana, and a small form that draws a target.
pub(crate) async fn start(api: &Arc<Api>, _: &Query) -> Result<Reply, Refusal> {
    let about: String = api
        .about
        .iter()
        .map(|(what, text)| format!("<dt>{}</dt><dd>{}</dd>\n  ", escaped(what), escaped(text)))
        .collect();
    let page = include_str!("page.html")
        .replace("{{metrics}}", &grouped(api.registry.len() as u64))
        .replace("{{about}}", &about);
    let response = Response::builder()
        .header(header::CONTENT_TYPE, "text/html; charset=utf-8")
        .header(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .header(header::CACHE_CONTROL, "no-cache");
    Ok(response.body(Body::from(page)).expect("the parts of an answer are ours").into())
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
    fn counts_are_grouped_by_thousands() {
        for (count, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(grouped(count), text);
        }
    }
}
