//! carbonapi's protocols, read as its client reads them. The end-to-end tests use carbonapi itself.

mod support;

use support::{Answer, Metric, NOW, Server, Setup, decode::Message};

const V3: (&str, &str) = ("Accept", "application/x-carbonapi-v3-pb");

/// Three series with a step of a minute, one with a gap; one branch is also a leaf.
fn server() -> Server {
    let first = NOW - NOW % 60;
    let metric = |name: &str, offset: f64| {
        let values = (0..10).filter(|i| *i != 3).map(|i| (first - i * 60, offset + i as f64)).collect();
        Metric { name: name.to_owned(), step: 60, kept: 1440, coarser: None, values }
    };
    Setup::new(vec![metric("a.b", 0.0), metric("a.c", 100.5), metric("a.c.d", -1.0), metric("t;x=y", 7.0)]).start()
}

fn get_v3(server: &Server, path: &str, message: &[u8]) -> Answer {
    let answer = server.request("GET", path, &[V3, ("Content-Length", &message.len().to_string())], message);
    if answer.status == 200 {
        assert_eq!(answer.header("content-type"), Some("application/x-carbonapi-v3-pb"), "{path}");
    }
    answer
}

/// A protobuf message.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn text(mut self, field: u8, text: &str) -> Writer {
        self.0.extend([field << 3 | 2, u8::try_from(text.len()).unwrap()]);
        self.0.extend(text.as_bytes());
        self
    }

    fn int(mut self, field: u8, mut value: i64) -> Writer {
        self.0.push(field << 3);
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    fn message(mut self, field: u8, message: Writer) -> Writer {
        self.0.extend([field << 3 | 2, u8::try_from(message.0.len()).unwrap()]);
        self.0.extend(message.0);
        self
    }
}

fn fetch(name: &str, path_expression: &str, from: i64, until: i64) -> Writer {
    Writer::default().text(1, name).int(2, from).int(3, until).text(5, path_expression).int(7, 100)
}

#[test]
fn version_2_has_a_column_of_absent_values() {
    let server = server();
    let (from, until) = (NOW - 300, NOW);
    for format in ["protobuf", "carbonapi_v2_pb", "protobuf3"] {
        let path = format!("/render/?format={format}&target=a.*&target=nothing&from={from}&until={until}");
        let answer = server.get(&path);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), Some("application/x-protobuf"));
        let all = Message::of(&answer.body).messages(1);
        assert_eq!(all.iter().map(|m| m.text(1)).collect::<Vec<_>>(), ["a.b", "a.c"]);
        let first = NOW - NOW % 60 - 240;
        assert_eq!([2, 3, 4].map(|field| all[1].int(field)), [first, first + 300, 60]);
        assert_eq!(all[1].doubles(5), [104.5, 0.0, 102.5, 101.5, 100.5]);
        assert_eq!(all[1].bytes(6), [0, 1, 0, 0, 0]);
    }
}

#[test]
fn version_2_evaluates_expressions() {
    let server = server();
    let path = format!("/render?format=protobuf&target=scale(a.b,10)&from={}&until={NOW}", NOW - 120);
    let all = Message::of(&server.get(&path).body).messages(1);
    assert_eq!(all[0].text(1), "scale(a.b,10)");
    assert_eq!(all[0].doubles(5), [10.0, 0.0]);
}

#[test]
fn version_3_returns_the_path_expression_of_each_fetch() {
    let server = server();
    let message = Writer::default()
        .message(1, fetch("a.b", "a.*", NOW - 300, NOW))
        .message(1, fetch("a.b", "a.{b,c}", NOW - 300, NOW))
        .message(1, fetch("a.c", "a.*", NOW - 120, NOW))
        .message(1, fetch("t;x=y", "seriesByTag('x=y')", NOW - 300, NOW))
        .message(1, fetch("nothing", "nothing", NOW - 300, NOW));
    let answer = get_v3(&server, "/render/?format=carbonapi_v3_pb", &message.0);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    let all = Message::of(&answer.body).messages(1);
    let mut filed: Vec<_> = all.iter().map(|m| (m.text(2), m.text(1), m.doubles(9).len())).collect();
    filed.sort();
    let expected = [("a.*", "a.b", 5), ("a.*", "a.c", 2), ("a.{b,c}", "a.b", 5), ("seriesByTag('x=y')", "t;x=y", 5)];
    assert_eq!(filed, expected.map(|(path, name, len)| (path.to_owned(), name.to_owned(), len)));
    let one = all.iter().find(|m| m.text(1) == "a.c").unwrap();
    let first = NOW - NOW % 60 - 60;
    assert_eq!([4, 5, 6, 11, 12].map(|field| one.int(field)), [first, first + 120, 60, NOW - 120, NOW]);
    assert_eq!(one.text(3), "average");
    assert_eq!(one.float(7), 0.5);
    let absent = all.iter().find(|m| m.text(1) == "a.b").unwrap().doubles(9);
    assert!(absent[1].is_nan() && absent[0] == 4.0, "{absent:?}");
}

#[test]
fn version_3_answers_parameters_without_a_message() {
    let server = server();
    let path = format!("/render?format=carbonapi_v3_pb&target=a.b&from={}&until={NOW}", NOW - 120);
    let all = Message::of(&server.get(&path).body).messages(1);
    assert_eq!((all[0].text(1), all[0].text(2), all[0].int(11)), ("a.b".to_owned(), "a.b".to_owned(), NOW - 120));
    let all = Message::of(&server.get("/metrics/find?format=carbonapi_v3_pb&query=a.*").body).messages(1);
    assert_eq!(all[0].messages(2).len(), 3);
}

#[test]
fn names_are_found_in_both_versions() {
    let server = server();
    let matches = |response: &Message| {
        response.messages(2).iter().map(|m| format!("{}:{}", m.text(1), m.int(2))).collect::<Vec<_>>()
    };
    let answer = server.get("/metrics/find/?format=protobuf&query=a.*");
    assert_eq!(answer.header("content-type"), Some("application/x-protobuf"));
    let response = Message::of(&answer.body);
    assert_eq!(response.text(1), "a.*");
    assert_eq!(matches(&response), ["a.b:1", "a.c:0", "a.c:1"]);
    let message = Writer::default().text(1, "*").text(1, "nothing.*").text(1, "a.c.*").int(2, 1);
    let all = Message::of(&get_v3(&server, "/metrics/find/?format=carbonapi_v3_pb", &message.0).body).messages(1);
    let found: Vec<_> = all.iter().map(|response| (response.text(1), matches(response))).collect();
    let expected = [("*", vec!["a:0"]), ("nothing.*", vec![]), ("a.c.*", vec!["a.c.d:1"])];
    let expected = expected.map(|(name, found)| (name.to_owned(), found.iter().map(|&m| m.to_owned()).collect()));
    assert_eq!(found, expected);
}

#[test]
fn capabilities_list_the_protocols() {
    let server = server();
    let answer = get_v3(&server, "/_internal/capabilities/", b"");
    let capabilities = Message::of(&answer.body);
    assert_eq!(capabilities.text(1), "carbonapi_v3_pb", "carbonapi selects the first");
    assert_eq!(capabilities.int(5), 1);
    let answer = server.get("/_internal/capabilities/?format=json");
    let capabilities: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(capabilities["supportedProtocols"][1], "carbonapi_v2_pb");
}

#[test]
fn info_shows_the_policy_of_a_metric() {
    let server = server();
    let check = |info: &Message| {
        assert_eq!((info.text(1), info.text(2)), ("a.b".to_owned(), "Average".to_owned()));
        assert_eq!((info.int(3), info.float(4)), (86_400, 0.5));
        let stages: Vec<_> = info.messages(5).iter().map(|stage| (stage.int(1), stage.int(2))).collect();
        assert_eq!(stages, [(60, 1440)]);
    };
    check(&Message::of(&server.get("/info/?target=a.b&format=protobuf").body));
    let message = Writer::default().text(1, "a.b").text(1, "a.c");
    let all = Message::of(&get_v3(&server, "/info/?format=carbonapi_v3_pb", &message.0).body).messages(1);
    assert_eq!(all.len(), 2);
    check(&all[0]);
    let json: serde_json::Value = serde_json::from_slice(&server.get("/info?target=a.b").body).unwrap();
    let expected = serde_json::json!({"metrics": [{
        "name": "a.b", "consolidationFunc": "Average", "maxRetention": 86400, "xFilesFactor": 0.5,
        "retentions": [{"secondsPerPoint": 60, "numberOfPoints": 1440}],
    }]});
    assert_eq!(json, expected);
    let missing = server.get("/info?target=nothing");
    assert_eq!((missing.status, missing.text()), (404, "unknown metric nothing\n"));
    assert_eq!(server.get("/info").status, 400);
    assert_eq!(server.get("/info?target=a.b&format=pickle").status, 400);
}

#[test]
fn all_metrics_are_listed() {
    let server = server();
    let json: serde_json::Value = serde_json::from_slice(&server.get("/metrics/list/").body).unwrap();
    assert_eq!(json, serde_json::json!({"Metrics": ["a.b", "a.c", "a.c.d"]}));
    assert_eq!(Message::of(&server.get("/metrics/list?format=protobuf").body).texts(1), ["a.b", "a.c", "a.c.d"]);
    let json: serde_json::Value = serde_json::from_slice(&server.get("/metrics/details/").body).unwrap();
    assert_eq!(json["Metrics"].as_array().unwrap().len(), 3);
    assert_eq!(json["Metrics"][2]["Name"], "a.c.d");
    assert_eq!(json["Metrics"][2]["Size"], 16 + 12 + 1440 * 12);
    let details = Message::of(&server.get("/metrics/details?format=carbonapi_v3_pb").body).messages(1);
    assert_eq!(details[2].text(1), "a.c.d");
    assert_eq!(details[2].messages(2)[0].int(2), 16 + 12 + 1440 * 12);
}

#[test]
fn an_invalid_message_is_rejected() {
    let server = server();
    for path in ["/render/", "/metrics/find/", "/info/"] {
        let answer = get_v3(&server, &format!("{path}?format=carbonapi_v3_pb"), b"\x0a\xff\xff\xff\xffx");
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.text().contains("cut off or damaged"), "{}", answer.text());
    }
    let many = (0..120).fold(Writer::default(), |all, i| all.message(1, fetch("a.b", "a.b", NOW - 300 - i, NOW)));
    let answer = get_v3(&server, "/render/", &many.0);
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("send several requests"), "{}", answer.text());
}
