//! What pages in a browser may do with this server: the host names that they reach it by, writes from other sites, answers
//! for other origins (CORS), and the headers that keep an answer from running as a page or a script.
//!
//! A browser sends requests of any page to any address that its user reaches, this machine's own included.

use hyper::{
    HeaderMap, Method, StatusCode,
    header::{self, HeaderName, HeaderValue},
    http::request::Parts,
};

use super::{
    body::{Body, Response},
    rejection::Rejection,
};

/// Seconds for which a browser may keep the answer to a preflight request.
const PREFLIGHT_SECONDS: &str = "600";

/// Bytes of a callback of JSONP.
const MAX_CALLBACK: usize = 128;

/// Answers are data: a browser that opens one as a page runs nothing in it, and no page shows it in a frame. Pictures as
/// SVG have styles.
const DATA_POLICY: HeaderValue =
    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'");

/// Host names that only this machine or its own network resolves. A public name can be made to point to any address by
/// its owner, whose pages then count as this server's own.
const LOCAL_SUFFIXES: [&str; 3] = ["localhost", "local", "internal"];

/// Rules for browsers. The default is the strictest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BrowserRules {
    /// `http.hosts`: names of this server besides local names and addresses.
    pub hosts: AllowedHosts,
    /// `http.cors_origins`: origins whose pages may read answers, such as `https://grafana.example.org`.
    pub origins: Vec<String>,
    /// `http.jsonp`: whether an answer may be a call of a function, which pages of every origin can read.
    pub jsonp: bool,
}

/// The host names by which clients may address this server. Addresses, `localhost`, names without a dot and names below
/// `.localhost`, `.local` and `.internal` are always allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedHosts {
    /// Every name.
    Any,
    /// These names in lower case; `*.example.org` stands for the names below `example.org`.
    Names(Vec<String>),
}

impl Default for AllowedHosts {
    fn default() -> AllowedHosts {
        AllowedHosts::Names(Vec::new())
    }
}

impl AllowedHosts {
    /// Whether a `Host` header, with or without a port, is allowed.
    fn allow(&self, authority: &str) -> bool {
        let AllowedHosts::Names(names) = self else { return true };
        let host = host_of(authority).trim_end_matches('.').to_ascii_lowercase();
        let is_below = |suffix: &str| host.strip_suffix(suffix).is_some_and(|before| before.ends_with('.'));
        let is_address = host.starts_with('[') || host.parse::<std::net::Ipv4Addr>().is_ok();
        is_address
            || !host.contains('.')
            || LOCAL_SUFFIXES.into_iter().any(is_below)
            || names.iter().any(|name| match name.strip_prefix("*.") {
                Some(domain) => is_below(domain),
                None => *name == host,
            })
    }
}

/// The host of `host:port`; an IPv6 address keeps its brackets.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

impl BrowserRules {
    /// Refuses a request to a foreign host name, and a write that a page of another site sends.
    pub(crate) fn check(&self, head: &Parts, is_write: bool) -> Result<(), Rejection> {
        // RFC 9112, 3.2. A browser sends neither.
        let mut hosts = head.headers.get_all(header::HOST).iter();
        if hosts.next().is_some_and(|host| host.to_str().is_err()) || hosts.next().is_some() {
            return Err(Rejection::Request("a request has one Host header, of ASCII characters".to_owned()));
        }
        let host =
            head.uri.authority().map(|authority| authority.as_str()).or_else(|| text(&head.headers, &header::HOST));
        // Programs may leave the host out, browsers do not.
        if let Some(host) = host.filter(|host| !self.hosts.allow(host)) {
            return Err(Rejection::ForeignHost(host.chars().take(MAX_CALLBACK).collect()));
        }
        if is_write && is_from_another_site(&head.headers, host) {
            return Err(Rejection::CrossSite);
        }
        Ok(())
    }

    /// Checks the callback of a request with `jsonp`.
    pub(crate) fn check_callback(&self, callback: &str) -> Result<(), Rejection> {
        if !self.jsonp {
            return Err(Rejection::Request("jsonp is off; http.jsonp = true turns it on".to_owned()));
        }
        let is_name = |part: &str| {
            let mut chars = part.chars();
            let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_' || c == '$';
            chars.next().is_some_and(is_letter) && chars.all(|c| is_letter(c) || c.is_ascii_digit())
        };
        if callback.len() <= MAX_CALLBACK && callback.split('.').all(is_name) {
            return Ok(());
        }
        let text = format!("jsonp must be a function's name such as app.show, of at most {MAX_CALLBACK} bytes");
        Err(Rejection::Request(text))
    }

    /// The answer to a browser that asks whether a page may send a request; `None` if the request is not that question.
    pub(crate) fn preflight(&self, head: &Parts) -> Option<Response> {
        let asked = head.headers.get(header::ACCESS_CONTROL_REQUEST_METHOD);
        if head.method != Method::OPTIONS || asked.is_none() {
            return None;
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        if self.allowed_origin(&head.headers).is_some() {
            let headers = response.headers_mut();
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD, POST"));
            headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_SECONDS));
            if let Some(names) = head.headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
                headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
            }
        }
        Some(response)
    }

    /// The origin of a request, if its pages may read answers.
    pub(crate) fn allowed_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        self.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()).then(|| origin.clone())
    }

    /// Sets the headers for browsers that an answer does not have yet.
    pub(crate) fn protect(&self, headers: &mut HeaderMap, origin: Option<HeaderValue>) {
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(DATA_POLICY);
        if !self.origins.is_empty() {
            headers.append(header::VARY, HeaderValue::from_static("Origin"));
        }
        if let Some(origin) = origin {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
    }
}

/// Whether a page of another site sends the request. Browsers send `Sec-Fetch-Site` to addresses that they trust
/// (TLS, this machine) alone, and `Origin` to all. Programs send neither.
fn is_from_another_site(headers: &HeaderMap, host: Option<&str>) -> bool {
    match headers.get("sec-fetch-site") {
        Some(site) if site == "cross-site" => return true,
        // Pages of hosts below the same domain are another's: `Origin` tells.
        Some(site) if site != "same-site" => return false,
        _ => {}
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    match (origin, host) {
        (Some((_, origin)), Some(host)) => !host_of(origin).eq_ignore_ascii_case(host_of(host)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_only_the_local_network_resolves_are_allowed_and_public_ones_must_be_listed() {
        let check = |listed: &[&str], host: &str, expected: bool| {
            let hosts = AllowedHosts::Names(listed.iter().map(|&name| name.to_owned()).collect());
            assert_eq!(hosts.allow(host), expected, "{host} of {listed:?}");
        };
        for host in ["127.0.0.1", "10.1.2.3:8080", "[::1]:8080", "[::1]", "localhost:8080", "graphite:80", "GRAPHITE"] {
            check(&[], host, true);
        }
        for host in ["a.localhost", "a.local:1", "plumbago.default.svc.cluster.local", "x.internal."] {
            check(&[], host, true);
        }
        for host in
            ["evil.example", "127.0.0.1.evil.example:8080", "evil.example.", "notlocal.evil-local.com", "1.2.3.4.5"]
        {
            check(&[], host, false);
        }
        check(&["graphite.example.org"], "Graphite.Example.org:8080", true);
        check(&["graphite.example.org"], "a.graphite.example.org", false);
        check(&["*.example.org"], "a.b.example.org", true);
        check(&["*.example.org"], "example.org", false);
        check(&["*.example.org"], "evilexample.org", false);
        assert!(AllowedHosts::Any.allow("evil.example"));
    }

    #[test]
    fn a_request_has_one_host_of_ascii() {
        let check = |hosts: &[&[u8]], expected: bool| {
            let (mut head, ()) = hyper::Request::new(()).into_parts();
            for host in hosts {
                head.headers.append(header::HOST, HeaderValue::from_bytes(host).unwrap());
            }
            assert_eq!(BrowserRules::default().check(&head, false).is_ok(), expected, "{hosts:?}");
        };
        check(&[], true);
        check(&[b"localhost"], true);
        check(&[b"localhost", b"localhost"], false);
        check(&["ev\u{ef}l.example".as_bytes()], false);
    }

    #[test]
    fn a_page_of_another_site_is_known_by_what_browsers_send() {
        let check = |headers: &[(&'static str, &'static str)], host: &str, expected: bool| {
            let mut map = HeaderMap::new();
            headers.iter().for_each(|&(name, value)| _ = map.insert(name, HeaderValue::from_static(value)));
            assert_eq!(is_from_another_site(&map, Some(host)), expected, "{headers:?} at {host}");
        };
        check(&[], "a:8080", false);
        check(&[("sec-fetch-site", "cross-site")], "a:8080", true);
        check(&[("sec-fetch-site", "same-origin"), ("origin", "http://a:8080")], "a:8080", false);
        check(&[("sec-fetch-site", "none")], "a:8080", false);
        check(&[("sec-fetch-site", "same-site"), ("origin", "https://wiki.example.org")], "graphite.example.org", true);
        check(
            &[("sec-fetch-site", "same-site"), ("origin", "https://graphite.example.org:3000")],
            "graphite.example.org",
            false,
        );
        check(&[("origin", "http://a:3000")], "A:8080", false);
        check(&[("origin", "http://evil.example")], "a:8080", true);
        check(&[("origin", "null")], "a:8080", true);
    }

    #[test]
    fn a_callback_is_a_name_and_nothing_more() {
        let rules = BrowserRules { jsonp: true, ..BrowserRules::default() };
        for good in ["callback", "my.call_back", "$", "a1.b2"] {
            assert!(rules.check_callback(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "alert(1)//", "a..b", "1a", "a;b", "<script>", "é", &"a".repeat(129)] {
            assert!(rules.check_callback(bad).is_err(), "{bad}");
        }
        assert!(BrowserRules::default().check_callback("callback").is_err());
    }
}
