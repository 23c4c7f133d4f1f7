//! A sender who sees some names alone gets, at every path and from every function, the answer of a server that has only
//! these names.

mod support;

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use api::{Doorkeeper, NameScope, Scope, SenderLimits, Viewer};
use hyper::HeaderMap;
use serde_json::Value;
use support::{Answer, Metric, NOW, Server, Setup};

const SEEN: [&str; 6] = [
    "blue.web.a.load",
    "blue.web.b.load",
    "shared.web1.load",
    "cpu;dc=a;tenant=blue",
    "cpu;dc=b;tenant=blue",
    "blue.db",
];

/// Next to what is seen, below it, above it, and equal to it but for tags.
const HIDDEN: [&str; 9] = [
    "blue",
    "blues.web.a.load",
    "red.web.a.load",
    "shared.db1.load",
    "shared.web",
    "cpu;dc=a;tenant=red",
    "cpu;tenant=red",
    "red",
    "shared",
];

/// Everyone is this sender.
struct One(Viewer);

impl Doorkeeper for One {
    fn viewer(&self, _: &HeaderMap, _: SocketAddr) -> Option<Arc<Viewer>> {
        Some(Arc::new(self.0.clone()))
    }
}

fn viewer() -> Viewer {
    let prefixes = ["blue.", "shared.web1", "gone.", "red.web.b"].map(str::to_owned).to_vec();
    let names = NameScope::new(prefixes, vec!["tenant=blue".to_owned()]).unwrap();
    Viewer {
        name: "blue".to_owned(),
        scopes: vec![Scope::Read],
        names: Some(Arc::new(names)),
        writes: None,
        limits: SenderLimits::default(),
    }
}

fn server(names: &[&str], viewer: Viewer) -> Server {
    let metric = |(index, name): (usize, &&str)| {
        // Other values and retentions than those of the seen metrics, so that no answer is equal by chance.
        let is_hidden = HIDDEN.contains(name);
        let values =
            (0..60).map(|i| (NOW - NOW % 60 - i * 60, if is_hidden { 1e6 } else { (i + index as i64) as f64 }));
        let kept = if is_hidden { 720 } else { 1440 };
        let values: HashMap<_, _> = values.collect();
        Metric { name: (*name).to_owned(), step: 60, kept, coarser: None, values }
    };
    let mut setup = Setup::new(names.iter().enumerate().map(metric).collect());
    setup.doorkeeper = Arc::new(One(viewer));
    setup.start()
}

/// The same sender at a server with all names and at one with the seen names.
struct Both {
    all: Server,
    seen: Server,
}

impl Both {
    fn new() -> Both {
        let all: Vec<&str> = SEEN.iter().chain(&HIDDEN).copied().collect();
        Both { all: server(&all, viewer()), seen: server(&SEEN, viewer()) }
    }

    /// The answer, which must be that of a server without the hidden names.
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let all = self.all.request(method, path, headers, body);
        let seen = self.seen.request(method, path, headers, body);
        let text = |answer: &Answer| String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!((all.status, text(&all)), (seen.status, text(&seen)), "{method} {path}");
        all
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }
}

fn query(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// Patterns that meet hidden names, and the names themselves.
fn patterns() -> Vec<String> {
    let globs = [
        "*",
        "*.*",
        "*.*.*",
        "*.*.*.*",
        "**",
        "**.load",
        "b*",
        "r*",
        "{blue,red}",
        "{blue,red}.web.*.load",
        "shared.*",
    ];
    let more = ["shared.w*", "red.*", "red.web.*", "gone.*", "gone", "blue*.web.a.load", "[br]*.*", "no.such"];
    let plain = SEEN.iter().chain(&HIDDEN);
    globs.iter().chain(&more).chain(plain).map(|&pattern| pattern.to_owned()).collect()
}

#[test]
fn finds_and_lists_are_those_of_a_server_without_the_hidden_names() {
    let both = Both::new();
    for pattern in patterns() {
        let formats = ["treejson", "completer", "json", "nodelist", "pickle", "msgpack", "protobuf", "carbonapi_v2_pb"];
        for format in formats {
            for more in [("local", "0"), ("leavesOnly", "1"), ("wildcards", "1")] {
                both.get(&format!("/metrics/find?{}", query(&[("query", &pattern), ("format", format), more])));
            }
        }
        for more in [("groupByExpr", "0"), ("groupByExpr", "1"), ("leavesOnly", "1")] {
            both.get(&format!("/metrics/expand?{}", query(&[("query", &pattern), more])));
        }
        both.get(&format!("/metrics?{}", query(&[("query", &pattern)])));
        for format in ["json", "protobuf"] {
            both.get(&format!("/info?{}", query(&[("target", &pattern), ("format", format)])));
        }
        both.get(&format!("/metrics/find?{}", query(&[("query", &pattern), ("format", "carbonapi_v3_pb")])));
    }
    for path in ["/metrics/index.json", "/metrics/list", "/metrics/list?format=protobuf", "/metrics/details"] {
        let answer = both.get(path);
        assert!(answer.status == 200 && !answer.body.is_empty(), "{path}");
    }
    for path in ["/metrics/details?format=protobuf", "/", "/version", "/functions", "/_internal/capabilities/"] {
        both.get(path);
    }
    for path in ["/tags", "/tags/tenant", "/tags/findSeries?expr=tenant=red", "/tags/autoComplete/tags"] {
        both.get(path);
    }
    let found = both.get("/metrics/index.json");
    assert_eq!(found.text(), r#"["blue.db", "blue.web.a.load", "blue.web.b.load", "shared.web1.load"]"#);
    let found = both.get("/metrics/find?query=*&format=completer");
    assert!(found.text().contains("blue.") && !found.text().contains("\"red") && !found.text().contains("gone"));
}

#[test]
fn renders_are_those_of_a_server_without_the_hidden_names() {
    let both = Both::new();
    for pattern in patterns() {
        for format in
            ["json", "raw", "csv", "pickle", "msgpack", "dygraph", "rickshaw", "svg", "png", "carbonapi_v2_pb"]
        {
            let asked = query(&[("target", &pattern), ("format", format), ("from", "-10min"), ("now", "1700000000")]);
            both.get(&format!("/render?{asked}"));
        }
        let local = query(&[("target", &pattern), ("format", "pickle"), ("local", "1"), ("now", "1700000000")]);
        both.get(&format!("/render?{local}"));
        let pie = query(&[("target", &pattern), ("graphType", "pie"), ("format", "svg"), ("now", "1700000000")]);
        both.get(&format!("/render?{pie}"));
    }
    for tags in
        ["'tenant=red'", "'tenant=~.*'", "'name=cpu'", "'name=~.'", "'dc=a','tenant!=blue'", "'tenant='", "'dc!='"]
    {
        let asked = query(&[("target", &format!("seriesByTag({tags})")), ("format", "raw"), ("now", "1700000000")]);
        both.get(&format!("/render?{asked}"));
    }
}

#[test]
fn a_series_with_the_name_of_a_hidden_metric_does_not_show_its_policy() {
    let both = Both::new();
    let asked = query(&[
        ("target", "alias(consolidateBy(blue.db,'max'),'red.web.a.load')"),
        ("format", "carbonapi_v3_pb"),
        ("now", "1700000000"),
        ("from", "-10min"),
    ]);
    assert_eq!(both.get(&format!("/render?{asked}")).status, 200);
}

#[test]
fn every_function_sees_what_the_sender_sees() {
    let both = Both::new();
    let functions: Value = serde_json::from_str(both.get("/functions").text()).unwrap();
    let mut answered = 0;
    for (name, function) in functions.as_object().unwrap() {
        let required = |parameter: &&Value| parameter["required"].as_bool().unwrap_or(false);
        let values = |list: &str| -> Vec<String> {
            let parameters = function["params"].as_array().unwrap().iter().filter(required);
            parameters.map(|parameter| argument(parameter, list)).collect()
        };
        let mut targets: Vec<String> = ["**", "red.web.a.load", "*.*.*.load", "seriesByTag('name=~.')"]
            .iter()
            .map(|list| format!("{name}({})", values(list).join(",")))
            .collect();
        // Functions that make targets of names.
        targets.push(format!("{name}(*,'red.web.a.load')"));
        targets.push(format!("{name}(**.load,'%.load','sum')"));
        targets.push(format!("{name}(blue.web.*.load,2,'red.web.%.load','sum')"));
        targets.push(format!("{name}(blue.web.*.load,'1min','red.web.a.load')"));
        for target in targets {
            let asked = query(&[("target", &target), ("format", "json"), ("from", "-10min"), ("now", "1700000000")]);
            let answer = both.get(&format!("/render?{asked}"));
            answered += usize::from(answer.status == 200);
            assert!(!answer.text().contains("1000000.0"), "{target}: {}", answer.text());
        }
    }
    assert!(answered > 400, "{answered}");
}

/// A value for a required parameter.
fn argument(parameter: &Value, list: &str) -> String {
    match parameter["type"].as_str().unwrap() {
        "seriesList" | "seriesLists" => list.to_owned(),
        "integer" | "node" | "nodeOrTag" | "intOrInterval" => "1".to_owned(),
        "float" | "intOrFloat" | "intOrInf" => "2".to_owned(),
        "interval" => "'1min'".to_owned(),
        "date" => "'-1h'".to_owned(),
        "aggFunc" | "aggOrSeriesFunc" => "'sum'".to_owned(),
        "boolean" => "true".to_owned(),
        "tag" => "'tenant'".to_owned(),
        _ => "'red.web.a.load'".to_owned(),
    }
}

#[test]
fn a_path_that_the_scopes_do_not_have_is_refused() {
    struct NoClient;
    impl Doorkeeper for NoClient {
        fn viewer(&self, _: &HeaderMap, _: SocketAddr) -> Option<Arc<Viewer>> {
            None
        }
    }
    let restricted = server(&SEEN, viewer());
    assert_eq!(restricted.get("/events/get_data").status, 403);
    assert_eq!(restricted.request("POST", "/events/", &[], b"{\"what\": \"x\"}").status, 403);
    assert!(restricted.get("/events/get_data").text().contains("the scope 'events'"));
    let mut setup = Setup::new(Vec::new());
    setup.doorkeeper = Arc::new(NoClient);
    let closed = setup.start();
    for path in
        ["/", "/version", "/render?target=a", "/metrics/find?query=*", "/functions", "/tags", "/events", "/nowhere"]
    {
        let refused = closed.get(path);
        assert_eq!(refused.status, 401, "{path}");
        assert_eq!(refused.header("www-authenticate"), Some("Basic realm=\"plumbago\", charset=\"UTF-8\""));
        assert_eq!(refused.header("vary"), Some("Authorization"));
    }
}
