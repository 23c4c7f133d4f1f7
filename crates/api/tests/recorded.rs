//! Answers are graphite-web's, byte for byte: see record.py.

mod support;

use serde_json::Value;
use support::{Metric, NOW, Server, Setup, decode};

fn lines() -> (Vec<Metric>, Vec<Value>) {
    let mut lines = include_str!("recorded.jsonl").lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let head = lines.next().unwrap();
    assert_eq!(head["now"], NOW);
    let metric = |metric: &Value| Metric {
        name: metric["name"].as_str().unwrap().to_owned(),
        step: metric["step"].as_u64().unwrap() as u32,
        kept: metric["kept"].as_u64().unwrap() as u32,
        coarser: None,
        values: metric["values"].as_array().unwrap().iter().map(point).collect(),
    };
    (head["metrics"].as_array().unwrap().iter().map(metric).collect(), lines.collect())
}

fn point(point: &Value) -> (i64, f64) {
    (point[0].as_i64().unwrap(), point[1].as_str().unwrap().parse().unwrap())
}

/// The difference between the answer to a request and the recorded one.
fn difference(server: &Server, request: &Value, recorded: &Value) -> Option<String> {
    let path = request["path"].as_str().unwrap();
    let method = request["method"].as_str().unwrap_or("GET");
    let mut headers: Vec<(&str, &str)> = Vec::new();
    if let Some(kind) = request["type"].as_str() {
        headers.push(("Content-Type", kind));
    }
    for (name, value) in request["headers"].as_object().into_iter().flatten() {
        headers.push((name, value.as_str().unwrap()));
    }
    let answer = server.request(method, path, &headers, request["body"].as_str().unwrap_or_default().as_bytes());
    if u64::from(answer.status) != recorded["status"] {
        return Some(format!("status {}: {:?}", answer.status, answer.text()));
    }
    if answer.status != 200 {
        // Errors quote the request, so they are plain text: a browser must not read the quotation as markup.
        let kind = answer.header("content-type");
        if kind != Some("text/plain; charset=utf-8") {
            return Some(format!("content type {kind:?}"));
        }
        let same_words = request["words"].as_bool().unwrap_or(true);
        let same = !same_words || answer.text() == recorded["text"];
        return (!same).then(|| format!("{:?}", answer.text()));
    }
    if answer.header("content-type") != recorded["type"].as_str() {
        return Some(format!("content type {:?}", answer.header("content-type")));
    }
    if recorded["cache-control"].is_string() && answer.header("cache-control") != recorded["cache-control"].as_str() {
        return Some(format!("cache control {:?}", answer.header("cache-control")));
    }
    let Some(text) = recorded["text"].as_str() else {
        let mut value = match recorded["type"].as_str() {
            Some("application/pickle") => decode::pickle(&answer.body),
            _ => decode::msgpack(&answer.body),
        };
        for each in value.as_array_mut().unwrap() {
            // carbonapi's spelling.
            let is_leaf = each.as_object_mut().unwrap().remove("isLeaf");
            assert!(is_leaf.is_none() || is_leaf.as_ref() == each.get("is_leaf"));
        }
        return (value != recorded["value"]).then(|| value.to_string());
    };
    (answer.text() != text).then(|| format!("{:?}", answer.text()))
}

#[test]
fn every_answer_is_as_recorded() {
    let (metrics, cases) = lines();
    let server = Setup::new(metrics).start();
    let mut wrong = 0;
    for case in &cases {
        let (request, recorded) = (&case["request"], &case["answer"]);
        if let Some(difference) = difference(&server, request, recorded) {
            wrong += 1;
            println!("{request}\n  recorded {recorded}\n  ours     {difference}\n");
        }
    }
    assert!(cases.len() > 250);
    assert_eq!(wrong, 0, "of {} answers", cases.len());
}
