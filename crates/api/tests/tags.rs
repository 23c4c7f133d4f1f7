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

#[test]
fn patterns_that_would_take_much_memory_are_rejected() {
    let server = server(&["m;t=a", "m;t=b"]);
    let heavy = r"(?=\w{40}|h)".repeat(330);
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    for path in [
        format!("/tags/findSeries?expr={}", encoded(&format!("t=~{heavy}"))),
        format!("/tags/autoComplete/values?tag=t&expr={}", encoded(&format!("t=~{heavy}"))),
        format!("/tags?filter={}", encoded(&heavy)),
        format!("/tags/t?filter={}", encoded(&heavy)),
    ] {
        let answer = server.get(&path);
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains("size limit"), "{}", answer.text());
    }
    // Each has its share of a question.
    let many = |pattern: &str, times| {
        format!("/tags/findSeries?{}", vec![format!("expr={}", encoded(pattern)); times].join("&"))
    };
    assert_eq!(server.get(&many(r"t=~h|\w{30}", 100)).status, 400);
    let found = server.get(&many(r"t=~h|\w+", 100));
    assert_eq!((found.status, found.text()), (200, r#"["m;t=a", "m;t=b"]"#));
}

/// Answers that differ on purpose; docs/differences.md has the rows.
fn differs(case: &Value) -> bool {
    let (path, body) = (case["path"].as_str().unwrap(), case["body"].as_str().unwrap_or_default());
    let pairs: Vec<(String, String)> =
        form_urlencoded::parse(path.split_once('?').map_or("", |(_, query)| query).as_bytes()).into_owned().collect();
    let limit = pairs.iter().find(|(name, _)| name == "limit").map(|(_, value)| value.as_str());
    // No limit, of whatever spelling, is the usual one.
    let has_odd_limit = path.starts_with("/tags/autoComplete/") && matches!(limit, Some("0" | "" | "-1"));
    // Names and patterns that cannot be read are the client's mistake.
    let is_mistake = case["status"] == 500;
    has_odd_limit || is_mistake || body == "path=" && path == "/tags/tagMultiSeries"
}

/// An answer without the ids of graphite-web's database.
fn without_ids(text: &str) -> String {
    let mut parts = text.split("\"id\": ");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push_str("\"id\": ");
        kept.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    kept
}

fn post(server: &Server, path: &str, content_type: &str, body: &str) -> Answer {
    server.request("POST", path, &[("Content-Type", content_type)], body.as_bytes())
}

fn ask(server: &Server, case: &Value) -> Answer {
    let text = |name: &str| case[name].as_str().unwrap_or_default();
    match text("method") {
        "GET" => server.get(text("path")),
        _ => post(server, text("path"), text("type"), text("body")),
    }
}

#[test]
fn the_tag_api_answers_as_recorded() {
    let mut lines = include_str!("tag_api.jsonl").lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let head = lines.next().unwrap();
    let server =
        server(&head["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect::<Vec<_>>());
    let (mut same, mut wrong) = (0, Vec::new());
    // Deletions are not this crate's, and come last: tests/e2e/test_tags.py asks for them.
    for case in lines.take_while(|case| !case["path"].as_str().unwrap().starts_with("/tags/delSeries")) {
        let answer = ask(&server, &case);
        if differs(&case) {
            assert!(answer.status < 500, "{case}: {} {}", answer.status, answer.text());
            continue;
        }
        let is_same = u64::from(answer.status) == case["status"].as_u64().unwrap()
            && case["answer"].as_str().is_none_or(|text| without_ids(answer.text()) == without_ids(text));
        if is_same { same += 1 } else { wrong.push(format!("{case}\n    {} {}", answer.status, answer.text())) }
    }
    assert!(wrong.is_empty(), "{} wrong, such as\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n"));
    assert!(same > 1900, "{same}");
}

#[test]
fn a_completion_without_a_limit_has_a_hundred() {
    let names: Vec<String> = (0..150).map(|i| format!("m;t=v{i:03};tag{i:03}=1")).collect();
    let server = server(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for limit in ["", "&limit=0", "&limit=", "&limit=-1"] {
        for path in ["values?tag=t", "values?tag=t&expr=name=m", "tags?", "tags?expr=name=m"] {
            let answer = server.get(&format!("/tags/autoComplete/{path}{limit}"));
            let listed: Vec<String> = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(listed.len(), 100, "{path}{limit}");
        }
    }
}

#[test]
fn a_mistake_is_json_for_the_graphite_web_in_front() {
    let server = server(&["cpu;dc=a"]);
    let check = |path: &str, words: &str| {
        let answer = server.get(path);
        let error: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status, error["error"].as_str().unwrap()), (400, words), "{path}");
    };
    check("/tags/findSeries?expr=dc", "Invalid tagspec dc");
    check("/tags/autoComplete/values?expr=dc=a", "no tag specified");
    let tag = |path: &str| {
        let body = format!("path={}", form_urlencoded::byte_serialize(path.as_bytes()).collect::<String>());
        let answer = post(&server, "/tags/tagSeries", "application/x-www-form-urlencoded", &body);
        (answer.status, serde_json::from_slice::<Value>(&answer.body).unwrap())
    };
    for path in ["x;a", r#"disk{path="C:\a"}"#, "~~"] {
        assert_eq!(tag(path), (400, serde_json::json!({ "error": format!("Cannot parse path {path}") })));
    }
    assert_eq!(tag(r#"disk{path="C:\\a"}"#), (200, r"disk;path=C:\a".into()));
    assert_eq!(tag("~~x.y"), (200, "x.y".into()));
    assert_eq!(server.get("/tags/autoComplete/tags?tagPrefix=d&jsonp=").text(), "[\"dc\"]");
}

#[test]
fn a_list_of_many_series_is_whole_in_every_style() {
    let names: Vec<String> = (0..5000).map(|i| format!("m;all=1;few={};i={i:05};t=\"\u{e9}\\", i / 2048)).collect();
    let server = server(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let texts = |names: &[String]| -> Vec<String> {
        let escaped = |name: &String| name.replace('\\', "\\\\").replace('"', "\\\"").replace('\u{e9}', "\\u00e9");
        names.iter().map(|name| format!("\"{}\"", escaped(name))).collect()
    };
    for (expression, names) in
        [("all=1", &names[..]), ("few=0", &names[..2048]), ("few=~[01]", &names[..4096]), ("all=2", &[])]
    {
        let path = format!("/tags/findSeries?expr={expression}");
        let texts = texts(names);
        let plain = format!("[{}]", texts.join(", "));
        assert!(server.get(&path).text() == plain, "{expression}");
        assert!(server.get(&format!("{path}&jsonp=f")).text() == format!("f({plain})"), "{expression}");
        let pretty = match texts.is_empty() {
            true => "[]".to_owned(),
            false => format!("[\n  {}\n]", texts.join(",\n  ")),
        };
        assert!(server.get(&format!("{path}&pretty=1")).text() == pretty, "{expression}");
    }
}
