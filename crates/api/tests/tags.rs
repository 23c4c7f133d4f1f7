//! Series are found by their tags as in graphite-web: see record_tags.py.

mod support;

use std::collections::HashMap;

use serde_json::Value;
use support::{Answer, Metric, NOW, Server, Setup};

fn server(names: &[&str]) -> Server {
    let metric = |name: &&str| Metric {
        name: (*name).to_owned(),
        step: 60,
        kept: 1440,
        coarser: None,
        values: HashMap::from([(NOW - NOW % 60, 1.0)]),
    };
    Setup::new(names.iter().map(metric).collect()).start()
}

fn render(server: &Server, target: &str, more: &str) -> Answer {
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("target", target).finish();
    server.get(&format!("/render?{query}&from=-2min&now={NOW}{more}"))
}

/// The names of a raw answer.
fn names(answer: &Answer) -> Vec<&str> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    // `name,start,end,step|values`, and a name may have commas.
    answer.text().lines().map(|line| line.split('|').next().unwrap().rsplitn(4, ',').last().unwrap()).collect()
}

#[test]
fn every_answer_is_as_recorded() {
    let mut lines = include_str!("tags.jsonl").lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let head = lines.next().unwrap();
    let known: Vec<&str> = head["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let server = server(&known);
    let mut all = 0;
    for case in lines {
        all += 1;
        let texts: Vec<&str> =
            case["expressions"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
        if texts.is_empty() {
            continue;
        }
        let quoted: Vec<String> = texts.iter().map(|text| format!("\"{text}\"")).collect();
        let answer = render(&server, &format!("seriesByTag({})", quoted.join(",")), "&format=raw");
        if let Some(found) = case["found"].as_array() {
            let found: Vec<&str> = found.iter().map(|name| name.as_str().unwrap()).collect();
            assert_eq!(names(&answer), found, "{case}");
        } else if let Some(error) = case["error"].as_str() {
            assert_eq!(
                (answer.status, answer.text()),
                (400, format!("Invalid parameters ({error})").as_str()),
                "{case}"
            );
        } else {
            // Invalid patterns: graphite-web crashes on them.
            assert!(
                answer.status == 400 || texts.iter().any(|text| text.contains("(?i)")),
                "{case}: {}",
                answer.text()
            );
        }
    }
    assert!(all > 900);
}

#[test]
fn functions_work_on_tagged_series() {
    let server = server(&["cpu;dc=a;host=x", "cpu;dc=a;host=y", "cpu;dc=b;host=z"]);
    let answer = render(&server, "aliasByNode(groupByNode(seriesByTag('name=cpu'),'dc','sum'),0)", "&format=json");
    let series: Value = serde_json::from_slice(&answer.body).unwrap();
    let summed: Vec<_> = series.as_array().unwrap().iter().map(|s| (&s["target"], &s["datapoints"][1][0])).collect();
    assert_eq!(summed, [(&Value::from("a"), &Value::from(2.0)), (&Value::from("b"), &Value::from(1.0))]);
    let answer = render(&server, "sumSeries(seriesByTag('name=cpu'))", "&format=raw");
    assert_eq!(names(&answer), ["sumSeries(seriesByTag('name=cpu'))"]);
}

#[test]
fn a_front_end_gets_its_call_back_and_always_200() {
    let server = server(&["cpu;dc=a", "cpu;dc=b"]);
    let answer = render(&server, "seriesByTag('dc!=')", "&format=pickle&local=1");
    let series = support::decode::pickle(&answer.body);
    let filed: Vec<_> = series.as_array().unwrap().iter().map(|s| (&s["name"], &s["pathExpression"])).collect();
    let call = Value::from("seriesByTag('dc!=')");
    assert_eq!(filed, [(&Value::from("cpu;dc=a"), &call), (&Value::from("cpu;dc=b"), &call)]);
    let answer = render(&server, "seriesByTag('dc=')", "&format=pickle&local=1");
    assert_eq!((answer.status, support::decode::pickle(&answer.body)), (200, Value::Array(Vec::new())));
}

#[test]
fn a_pattern_with_endless_backtracking_is_rejected() {
    let long = format!("m;t={}b", "a".repeat(60));
    let server = server(&[&long]);
    let answer = render(&server, r"seriesByTag('t=~^(a+)+\1$')", "&format=raw");
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("takes too long"), "{}", answer.text());
}
