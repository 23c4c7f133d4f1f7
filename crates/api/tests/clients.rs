//! The requests of programs that read Graphite, and what each needs of the answer: one file a program in `clients/`, each
//! version of Grafana's pages and of its backend by itself.
//!
//! A file has the headers of the program and its requests. A request has the answer's status and type, and one of
//! * `shape`: JSON that a typed reader takes, as Go's is: `"int"`, `"float"`, `"float or null"`, `"string"`; a list of one
//!   shape is a list of such, of several shapes a tuple; an object has at least these members, and with `*` any;
//! * `value`: exactly this JSON, besides; `text`: exactly this text; `says`: a message with these words.
//!
//! The requests were written down from the sources of the programs. They have no code of theirs.

mod support;

use std::{collections::HashMap, fs, io::Read, path::Path};

use serde_json::{Value, json};
use support::{Answer, Metric, NOW, Server, Setup};

const MINUTE: i64 = 60;

fn server() -> Server {
    let last = NOW - NOW % MINUTE;
    let metric = |name: &str, value: &dyn Fn(i64) -> Option<f64>| Metric {
        name: name.to_owned(),
        step: 60,
        kept: 1440,
        coarser: None,
        values: (0..60).filter_map(|age| Some((last - age * MINUTE, value(age)?))).collect::<HashMap<_, _>>(),
    };
    let server = Setup::new(vec![
        metric("servers.web1.cpu.user", &|age| Some(age as f64)),
        metric("servers.web1.cpu.system", &|_| Some(0.5)),
        metric("servers.web1.mem", &|_| Some(1e18)),
        metric("servers.web2.cpu.user", &|age| (age % 3 == 0).then_some(-0.25)),
        metric("odd.infinite", &|age| Some([f64::INFINITY, f64::NEG_INFINITY, 1.5][age as usize % 3])),
        metric("load;dc=eu;host=web1", &|_| Some(1.0)),
        metric("load;dc=us;host=web2", &|_| Some(2.0)),
    ])
    .start();
    for event in [
        json!({"what": "release 4.2", "tags": ["deploy", "web"], "data": "by ann", "when": NOW - 600}),
        json!({"what": "restart", "tags": "web", "when": NOW - 300}),
    ] {
        assert_eq!(server.request("POST", "/events/", &[], event.to_string().as_bytes()).status, 200);
    }
    server
}

/// Why a typed reader does not take a value.
fn misfit(value: &Value, shape: &Value) -> Option<String> {
    let fits = match shape {
        Value::String(kind) => match kind.as_str() {
            "string" => value.is_string(),
            // Not 1.0, which Go does not read into an integer.
            "int" => value.is_i64(),
            "float" => value.is_number(),
            "float or null" => value.is_number() || value.is_null(),
            other => panic!("unknown shape {other}"),
        },
        Value::Array(shapes) => match (value.as_array(), shapes.as_slice()) {
            (Some(items), [each]) => return items.iter().find_map(|item| misfit(item, each)),
            (Some(items), shapes) if items.len() == shapes.len() => {
                return items.iter().zip(shapes).find_map(|(item, shape)| misfit(item, shape));
            }
            _ => false,
        },
        Value::Object(members) => match value.as_object() {
            Some(object) => {
                return members.iter().find_map(|(name, shape)| match name.as_str() {
                    "*" => object.values().find_map(|value| misfit(value, shape)),
                    name => misfit(object.get(name).unwrap_or(&Value::Null), shape).map(|why| format!("{name}: {why}")),
                });
            }
            None => false,
        },
        other => panic!("unknown shape {other}"),
    };
    (!fits).then(|| format!("{value} is not {shape}"))
}

/// Why an answer is not what the program needs.
fn problem(answer: &Answer, body: &[u8], needed: &Value) -> Option<String> {
    let kind = answer.header("content-type").unwrap_or_default().split(';').next();
    if u64::from(answer.status) != needed["status"] || kind != needed["type"].as_str() {
        return Some(format!("status {}, type {kind:?}: {}", answer.status, String::from_utf8_lossy(body)));
    }
    let text = || String::from_utf8_lossy(body);
    if let Some(words) = needed["says"].as_str().filter(|words| !text().contains(*words)) {
        return Some(format!("does not say {words:?}: {}", text()));
    }
    if needed["text"].as_str().is_some_and(|needed| text() != needed) {
        return Some(format!("is {}", text()));
    }
    if needed["shape"].is_null() {
        return None;
    }
    // It takes numbers of 64 bits and nothing beyond JSON, like Go's.
    let value: Value = match serde_json::from_slice(body) {
        Ok(value) => value,
        Err(error) => return Some(format!("{error}: {}", text())),
    };
    let other = needed.get("value").filter(|needed| **needed != value).map(|_| format!("is {value}"));
    misfit(&value, &needed["shape"]).or(other)
}

fn unpacked(answer: &Answer) -> Vec<u8> {
    let mut body = Vec::new();
    match answer.header("content-encoding") {
        Some("gzip") => {
            flate2::read::GzDecoder::new(answer.body.as_slice()).read_to_end(&mut body).unwrap();
        }
        Some(other) => panic!("coding {other}"),
        None => body.clone_from(&answer.body),
    }
    body
}

fn headers(of: &Value) -> Vec<(&str, &str)> {
    of.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect()
}

#[test]
fn each_program_gets_what_it_needs() {
    let server = server();
    let mut files: Vec<_> = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let (mut all, mut wrong) = (0, 0);
    for file in &files {
        let client: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        for request in client["requests"].as_array().unwrap() {
            let sent = [headers(&client["headers"]), headers(&request["headers"])].concat();
            let (method, path) = (request["method"].as_str().unwrap(), request["path"].as_str().unwrap());
            let body = request["body"].as_str().unwrap_or_default();
            let answer = server.request(method, path, &sent, body.as_bytes());
            all += 1;
            if let Some(problem) = problem(&answer, &unpacked(&answer), &request["answer"]) {
                wrong += 1;
                println!("{}, {}\n  {method} {path} {body}\n  {problem}\n", client["client"], request["use"]);
            }
        }
    }
    assert!(files.len() >= 12 && all > 150, "{} files, {all} requests", files.len());
    assert_eq!(wrong, 0, "of {all} answers");
}

#[test]
fn a_typed_reader_takes_what_fits_and_nothing_else() {
    let misfits = |value: Value, shape: Value| misfit(&value, &shape).is_some();
    let series = json!([{"target": "string", "tags": {"*": "string"}, "datapoints": [["float or null", "int"]]}]);
    assert!(!misfits(
        json!([{"target": "a", "tags": {"b": "c"}, "datapoints": [[1, 2], [null, 3]], "x": 1}]),
        series.clone()
    ));
    assert!(!misfits(json!([]), series.clone()));
    for wrong in [
        json!({}),
        json!([{"target": "a", "tags": {"b": 1}, "datapoints": []}]),
        json!([{"target": "a", "tags": {}, "datapoints": [[1, 2.0]]}]),
        json!([{"target": "a", "tags": {}, "datapoints": [["1", 2]]}]),
        json!([{"tags": {}, "datapoints": []}]),
    ] {
        assert!(misfits(wrong.clone(), series.clone()), "{wrong}");
    }
    assert!(serde_json::from_str::<Value>("1e9999").is_err());
}

#[test]
fn times_that_a_client_does_not_have_bound_nothing() {
    let server = server();
    for nothing in ["", "-1", "undefined", "null", "NaN", "None"] {
        for path in ["/metrics/find?query=servers.*", "/events/get_data?tags=x"] {
            let answer = server.get(&format!("{path}&from={nothing}&until={nothing}"));
            assert_eq!(answer.status, 200, "{path} {nothing}: {}", answer.text());
        }
    }
    let answer = server.get("/metrics/find?query=servers.*&from=0&until=0");
    assert_eq!(answer.status, 200);
    let answer = server.get("/metrics/find?query=servers.*&from=tomorow");
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("'tomorow' for param from"), "{}", answer.text());
}

#[test]
fn infinite_values_are_null_in_json_alone() {
    let server = server();
    let render = |more: &str| {
        let answer = server.get(&format!("/render?target=odd.infinite&from={}&until={NOW}{more}", NOW - 180));
        assert_eq!(answer.status, 200);
        answer.text().to_owned()
    };
    let values = |text: &str| -> Vec<Value> {
        let series: Value = serde_json::from_str(text).unwrap();
        series[0]["datapoints"].as_array().unwrap().iter().map(|point| point[0].clone()).collect()
    };
    assert_eq!(values(&render("&format=json")), [json!(1.5), Value::Null, Value::Null]);
    assert_eq!(values(&render("&format=json&pretty=1")), [json!(1.5), Value::Null, Value::Null]);
    assert_eq!(values(&render("&format=json&noNullPoints=1")), [json!(1.5)]);
    assert_eq!(values(&render("&format=json&noNullPoints=1&pretty=1")), [json!(1.5)]);
    assert!(serde_json::from_str::<Value>(&render("&format=rickshaw")).is_ok());
    assert!(render("&format=raw").ends_with("|1.5,-inf,inf\n"), "{}", render("&format=raw"));
}

#[test]
fn the_version_is_text_or_json() {
    let server = server();
    for (headers, text) in [
        (&[][..], "1.1.10\n"),
        (&[("Accept", "*/*"), ("User-Agent", "curl/8.5.0")], "1.1.10\n"),
        (&[("Accept", "application/json")], "\"1.1.10\"\n"),
        (&[("User-Agent", "Grafana/12.2.0")], "\"1.1.10\"\n"),
    ] {
        let answer = server.request("GET", "/version", headers, b"");
        assert_eq!((answer.status, answer.text()), (200, text), "{headers:?}");
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
    }
}

/// Stage, step, values folded for combining and for `maxDataPoints`, series.
type Origin = (i64, i64, i64, i64, i64);

/// The lineages of the series of a target.
fn lineages(server: &Server, query: &str) -> Vec<(String, Vec<Origin>)> {
    let answer = server.get(&format!("/render?{query}&until={NOW}&format=json&meta=true"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    let origin = |one: &Value| {
        let number = |name: &str| one[name].as_i64().unwrap();
        (
            number("archive-read"),
            number("archive-interval"),
            number("aggnum-norm"),
            number("aggnum-rc"),
            number("count"),
        )
    };
    let origins = |series: &Value| series["meta"].as_array().unwrap().iter().map(origin).collect();
    let series = answer["series"].as_array().unwrap().iter();
    series.map(|series| (series["target"].as_str().unwrap().to_owned(), origins(series))).collect()
}

#[test]
fn the_lineage_of_a_series_says_what_was_read_and_folded() {
    let metric = |name: &str, step: u32, coarser: Option<(u32, u32)>| Metric {
        name: name.to_owned(),
        step,
        kept: 1440,
        coarser,
        values: (0..1440).map(|slot| (NOW - NOW % i64::from(step) - slot * i64::from(step), 1.0)).collect(),
    };
    let mut setup = Setup::new(vec![
        metric("a.minute", 60, Some((300, 2016))),
        metric("a.other", 60, Some((300, 2016))),
        metric("b.ten", 600, None),
    ]);
    setup.limits.points = 100;
    let server = setup.start();
    let name = |name: &str| name.to_owned();
    let hour = format!("from={}", NOW - 1800);
    // As it is stored; a coarser stage where the points are too many.
    let found = lineages(&server, &format!("target=a.minute&{hour}"));
    assert_eq!(found, [(name("a.minute"), vec![(0, 60, 1, 0, 1)])]);
    let found = lineages(&server, &format!("target=a.minute&from={}", NOW - 4 * 3600));
    assert_eq!(found, [(name("a.minute"), vec![(1, 300, 1, 0, 1)])]);
    // Names change, the lineage stays.
    let found = lineages(&server, &format!("target=alias(scale(a.minute,2),'x')&{hour}"));
    assert_eq!(found, [(name("x"), vec![(0, 60, 1, 0, 1)])]);
    // Series that are combined: alike ones are counted, those of another step are folded.
    let found = lineages(&server, &format!("target=sumSeries(a.*)&{hour}"));
    assert_eq!(found, [(name("sumSeries(a.*)"), vec![(0, 60, 1, 0, 2)])]);
    let found = lineages(&server, &format!("target=sumSeries(a.*,b.*)&{hour}"));
    assert_eq!(found, [(name("sumSeries(a.*,b.*)"), vec![(0, 60, 10, 0, 2), (0, 600, 1, 0, 1)])]);
    // What a function folds is not for the reader's maxDataPoints.
    let found = lineages(&server, &format!("target=summarize(a.minute,'10min')&{hour}"));
    assert_eq!(found[0].1, [(0, 60, 1, 0, 1)]);
    let found = lineages(&server, &format!("target=a.minute&{hour}&maxDataPoints=10"));
    assert_eq!(found, [(name("a.minute"), vec![(0, 60, 1, 3, 1)])]);
    // A line is made of nothing.
    assert_eq!(lineages(&server, &format!("target=constantLine(1.0)&{hour}")), [(name("1.0"), vec![])]);
    // Without the parameter, and in other formats, answers are graphite-web's.
    let plain = server.get(&format!("/render?target=a.minute&{hour}&format=json"));
    assert!(
        plain
            .text()
            .starts_with("[{\"target\": \"a.minute\", \"tags\": {\"name\": \"a.minute\"}, \"datapoints\": [[1.0, ")
    );
    assert!(plain.text().ends_with("]]}]"), "{}", plain.text());
    let raw = |more: &str| server.get(&format!("/render?target=a.minute&{hour}&format=raw{more}")).body;
    assert_eq!(raw("&meta=true"), raw(""));
}
