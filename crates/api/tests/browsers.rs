//! What pages in a browser may do: see `BrowserRules`.

mod support;

use std::{collections::HashMap, sync::Arc};

use api::{Access, Answer as Promise, Body, BrowserRules, Extension, ExtensionRequest, Paths, Response};
use hyper::{Method, Uri};
use support::{Answer, Metric, NOW, Server, Setup, receive};

/// A path of each kind.
struct Kinds;

impl Extension for Kinds {
    fn access(&self, _: &Method, uri: &Uri) -> Option<Access> {
        match uri.path() {
            "/admin/status" | "/metrics" => Some(Access::Admin),
            "/ready" => Some(Access::Health),
            "/ingest" => Some(Access::Write),
            _ => None,
        }
    }

    fn answer(&self, _: ExtensionRequest) -> Promise {
        Box::pin(async { Response::new(Body::from("extension")) })
    }
}

fn server(browsers: BrowserRules, paths: Paths) -> Server {
    let values = HashMap::from([(NOW - NOW % 60, 1.0)]);
    let metric = Metric { name: "a.b".to_owned(), step: 60, kept: 60, coarser: None, values };
    let mut setup = Setup::new(vec![metric]);
    (setup.browsers, setup.paths, setup.extension) = (browsers, paths, Arc::new(Kinds));
    setup.start()
}

/// The answer to a request with one `Host` header, or none.
fn ask_as(server: &Server, host: Option<&str>) -> Answer {
    let mut stream = server.connect();
    let host = host.map_or_else(String::new, |host| format!("Host: {host}\r\n"));
    std::io::Write::write_all(&mut stream, format!("GET /version HTTP/1.1\r\n{host}\r\n").as_bytes()).unwrap();
    receive(&mut stream, "GET")
}

#[test]
fn a_public_name_that_is_not_listed_is_refused() {
    let server = server(BrowserRules::default(), Paths::All);
    for host in [None, Some("127.0.0.1:8080"), Some("localhost"), Some("graphite")] {
        assert_eq!(ask_as(&server, host).status, 200, "{host:?}");
    }
    let refused = ask_as(&server, Some("evil.example:8080"));
    assert_eq!(refused.status, 421);
    assert!(refused.text().contains("'evil.example:8080'") && refused.text().contains("http.hosts"));
}

#[test]
fn a_page_of_another_site_writes_nothing() {
    let server = server(BrowserRules::default(), Paths::All);
    let cross = [("Sec-Fetch-Site", "cross-site")];
    let event = br#"{"what": "x"}"#;
    for (path, body) in [("/events/", &event[..]), ("/ingest", b"a 1 1"), ("/admin/status", b"")] {
        assert_eq!(server.request("POST", path, &cross, body).status, 403, "{path}");
        assert_eq!(server.request("POST", path, &[("Origin", "http://evil.example")], body).status, 403, "{path}");
        assert_eq!(server.request("POST", path, &[("Sec-Fetch-Site", "same-origin")], body).status, 200, "{path}");
        assert_eq!(server.request("POST", path, &[], body).status, 200, "{path}");
    }
    assert_eq!(server.get("/events/get_data").text().matches("\"what\"").count(), 2);
    // Reads have no effect, whatever their method.
    assert_eq!(server.request("POST", "/render", &cross, b"target=a.b&format=raw").status, 200);
}

#[test]
fn answers_are_readable_by_listed_origins_alone() {
    let origins = vec!["https://grafana.example".to_owned()];
    let server = server(BrowserRules { origins, ..BrowserRules::default() }, Paths::All);
    let from = |origin: &str| server.request("GET", "/version", &[("Origin", origin)], b"");
    let listed = from("https://grafana.example");
    assert_eq!(listed.header("access-control-allow-origin"), Some("https://grafana.example"));
    assert_eq!(listed.header("vary"), Some("Origin"));
    for other in ["https://evil.example", "http://grafana.example", "https://grafana.example.evil.example", "null"] {
        assert_eq!(from(other).header("access-control-allow-origin"), None, "{other}");
    }
    let preflight = |origin: &str| {
        let headers = [
            ("Origin", origin),
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "x-dashboard-id"),
        ];
        server.request("OPTIONS", "/render", &headers, b"")
    };
    let allowed = preflight("https://grafana.example");
    assert_eq!((allowed.status, allowed.header("access-control-allow-headers")), (204, Some("x-dashboard-id")));
    assert_eq!(allowed.header("access-control-allow-methods"), Some("GET, HEAD, POST"));
    let refused = preflight("https://evil.example");
    assert_eq!(refused.header("access-control-allow-origin"), None);
    assert_eq!(refused.header("access-control-allow-headers"), None);
}

#[test]
fn without_listed_origins_no_answer_is_for_other_origins() {
    let server = server(BrowserRules::default(), Paths::All);
    let answer = server.request("GET", "/version", &[("Origin", "http://localhost:3000")], b"");
    assert_eq!((answer.header("access-control-allow-origin"), answer.header("vary")), (None, None));
}

#[test]
fn no_answer_runs_as_a_page_or_a_script() {
    let server = server(BrowserRules::default(), Paths::All);
    let paths =
        ["/", "/version", "/render?target=a.b&format=svg", "/render?target=a.b&format=json", "/nowhere", "/ready"];
    for path in paths {
        let answer = server.get(path);
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("x-frame-options"), Some("DENY"), "{path}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{path}: {policy}"
        );
        assert_eq!(policy.contains("script-src 'sha256-"), path == "/", "{path}: {policy}");
        assert!(!policy.contains("script-src 'unsafe-inline'"));
    }
}

#[test]
fn jsonp_is_off_and_takes_names_of_functions_alone_when_it_is_on() {
    let off = server(BrowserRules::default(), Paths::All);
    let paths = ["/render?target=a.b&format=json", "/metrics/find?query=a", "/events/get_data?from=0"];
    for path in paths {
        let refused = off.get(&format!("{path}&jsonp=show"));
        assert_eq!(refused.status, 400, "{path}");
        assert!(refused.text().contains("http.jsonp"), "{}", refused.text());
    }
    drop(off);
    let on = server(BrowserRules { jsonp: true, ..BrowserRules::default() }, Paths::All);
    for path in paths {
        assert!(on.get(&format!("{path}&jsonp=app.show")).text().starts_with("app.show("), "{path}");
        assert_eq!(on.get(&format!("{path}&jsonp=alert(1);show")).status, 400, "{path}");
    }
}

#[test]
fn administration_has_an_address_of_its_own_where_it_is_asked_for() {
    let graphite = server(BrowserRules::default(), Paths::Graphite);
    assert_eq!(graphite.get("/version").status, 200);
    assert_eq!(graphite.request("POST", "/ingest", &[], b"a 1 1").status, 200);
    for path in ["/metrics", "/admin/status", "/ready"] {
        let refused = graphite.get(path);
        assert_eq!(refused.status, 404, "{path}");
        assert!(refused.text().contains("listen.admin"), "{}", refused.text());
    }
    drop(graphite);
    let admin =
        server(BrowserRules { origins: vec!["http://a".to_owned()], ..BrowserRules::default() }, Paths::Administration);
    for path in ["/metrics", "/admin/status", "/ready"] {
        let answer = admin.request("GET", path, &[("Origin", "http://a")], b"");
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, None), "{path}");
    }
    for path in ["/version", "/render?target=a.b&format=raw", "/metrics?query=a", "/", "/nowhere"] {
        assert_eq!(admin.get(path).status, 404, "{path}");
    }
    assert_eq!(admin.request("POST", "/ingest", &[], b"a 1 1").status, 404);
}
