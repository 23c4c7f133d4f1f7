//! Events are submitted, listed and read as in graphite-web: see record_events.py.

mod support;

use serde_json::{Value, json};
use support::{NOW, Server, Setup};

fn submit(server: &Server, event: &Value) {
    // The content type of `curl -d`.
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let answer = server.request("POST", "/events/", &form, event.to_string().as_bytes());
    assert_eq!((answer.status, answer.text()), (200, ""));
}

fn listed(server: &Server, path: &str) -> Vec<Value> {
    let answer = server.get(path);
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

#[test]
fn every_answer_is_as_recorded() {
    let server = Setup::new(Vec::new()).start();
    let (mut wrong, mut all) = (0, 0);
    for line in include_str!("events.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let (request, recorded) = (&case["request"], &case["answer"]);
        let method = request["method"].as_str().unwrap_or("GET");
        let body = request["body"].as_str().unwrap_or_default().as_bytes();
        let answer = server.request(method, request["path"].as_str().unwrap(), &[], body);
        let same_kind = method == "POST" || answer.header("content-type") == recorded["type"].as_str();
        all += 1;
        if u64::from(answer.status) != recorded["status"] || answer.text() != recorded["text"] || !same_kind {
            wrong += 1;
            println!("{request}\n  recorded {recorded}\n  ours     {} {:?}\n", answer.status, answer.text());
        }
    }
    assert!(all > 100);
    assert_eq!(wrong, 0, "of {all} answers");
}

#[test]
fn a_request_that_crashes_graphite_web_is_a_400_with_a_hint() {
    let server = Setup::new(Vec::new()).start();
    for (body, words) in [("", "not JSON"), ("{\"tags\": []}", "\"what\" is missing"), ("[1]", "a JSON object such as")]
    {
        let answer = server.request("POST", "/events/", &[], body.as_bytes());
        assert_eq!((answer.status, answer.header("content-type")), (400, Some("application/json")));
        let error: Value = serde_json::from_slice(&answer.body).unwrap();
        assert!(error["error"].as_str().unwrap().contains(words), "{error}");
    }
    let answer = server.get("/events/get_data?from=nonsense");
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("from"), "{}", answer.text());
    assert_eq!(server.get("/events/none").status, 404);
    assert_eq!(server.get("/events/99999999999999999999999").status, 404);
}

#[test]
fn an_unknown_tag_matches_no_event() {
    // graphite-web ignores unknown tags and returns every deployment.
    let server = Setup::new(Vec::new()).start();
    submit(&server, &json!({"what": "x", "tags": "deploy", "when": NOW}));
    assert_eq!(listed(&server, "/events/get_data?tags=deploy%20unknown"), [] as [Value; 0]);
    assert_eq!(listed(&server, "/events/get_data?tags=deploy").len(), 1);
}

#[test]
fn a_fraction_of_a_second_is_dropped() {
    let server = Setup::new(Vec::new()).start();
    submit(&server, &json!({"what": "x", "when": NOW as f64 - 0.25}));
    assert_eq!(listed(&server, "/events")[0]["when"], NOW - 1);
}

#[test]
fn a_list_spans_several_pages_of_the_store() {
    let server = Setup::new(Vec::new()).start();
    for i in 0..2500 {
        submit(
            &server,
            &json!({"what": i.to_string(), "tags": ["t", if i % 2 == 0 { "even" } else { "odd" }], "when": NOW - i / 10}),
        );
    }
    let all = listed(&server, &format!("/events/get_data?from={}", NOW - 10_000));
    assert_eq!(all.len(), 2500);
    let times: Vec<_> = all.iter().map(|event| (event["when"].as_i64(), event["id"].as_i64())).collect();
    assert!(times.is_sorted());
    assert_eq!(listed(&server, "/events/get_data?tags=even%20t").len(), 1250);
}

#[test]
fn a_list_beyond_its_limit_is_rejected() {
    let mut setup = Setup::new(Vec::new());
    setup.limits.response_bytes = 1000;
    let server = setup.start();
    for _ in 0..20 {
        submit(&server, &json!({"what": "x".repeat(40), "when": NOW}));
    }
    let answer = server.get("/events/get_data");
    assert_eq!(answer.status, 422);
    assert!(answer.text().contains("query.max_response_bytes raises this"), "{}", answer.text());
}

#[test]
fn a_render_counts_events_by_second() {
    let server = Setup::new(Vec::new()).start();
    for (when, tags) in
        [(NOW - 60, "deploy web"), (NOW - 60, "deploy db"), (NOW - 30, "deploy web"), (NOW, "deploy web")]
    {
        submit(&server, &json!({"what": "x", "tags": tags, "when": when}));
    }
    let counts = |target: &str| {
        let answer =
            server.get(&format!("/render?target={target}&from={}&until={NOW}&format=json&noNullPoints=1", NOW - 60));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let series: Value = serde_json::from_slice(&answer.body).unwrap();
        series.as_array().unwrap().iter().map(|s| (s["target"].clone(), s["datapoints"].clone())).collect::<Vec<_>>()
    };
    let expected = [(json!("events(\"*\")"), json!([[2, NOW - 60], [1, NOW - 30]]))];
    assert_eq!(counts("events('*')"), expected);
    let expected = [(json!("events(\"web\", \"deploy\")"), json!([[1, NOW - 60], [1, NOW - 30]]))];
    assert_eq!(counts("events('web','deploy')"), expected);
    assert_eq!(counts("events('nothing')"), []);
}

#[test]
fn events_count_as_points() {
    let mut setup = Setup::new(Vec::new());
    setup.limits.points = 100;
    let server = setup.start();
    for i in 0..101 {
        submit(&server, &json!({"what": i.to_string(), "when": NOW - 5}));
    }
    let answer = server.get(&format!("/render?target=events('*')&from={}&until={NOW}&format=json", NOW - 10));
    assert_eq!(answer.status, 422);
    assert!(answer.text().contains("the counted events are more than 100"), "{}", answer.text());
}
