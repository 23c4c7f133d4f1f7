//! Metrics without points for longer than their rule says are hidden, and carbonapi's finds have times.

mod support;

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use metadata::{StaleRule, UnstoredPoints};
use metric::{MetricId, Timestamp};
use support::{Answer, Metric, NOW, Server, Setup, decode::Message};

const DAY: Timestamp = 86_400;

/// No points in memory.
struct Nothing;

static MEMORY: LazyLock<Arc<dyn UnstoredPoints>> = LazyLock::new(|| Arc::new(Nothing));

impl UnstoredPoints for Nothing {
    fn are_known(&self) -> bool {
        true
    }

    fn spans(&self, _: &[MetricId], _: &mut dyn FnMut(MetricId, Timestamp, Timestamp)) {}
}

/// Of these names the last points are so many days old; `a.*` and `t` are stale after two weeks.
fn server() -> Server {
    let ages = [("a.live", 0), ("a.old", 30), ("b.old", 30), ("t;x=live", 0), ("t;x=old;y=1", 30)];
    let metrics: Vec<Metric> = ages
        .iter()
        .map(|&(name, days)| Metric {
            name: name.to_owned(),
            step: 60,
            kept: 90 * 1440,
            coarser: None,
            values: HashMap::from([60, 0].map(|before| (NOW - NOW % 60 - days * DAY - before, 1.0))),
        })
        .collect();
    let registry = support::registry(&metrics);
    registry.seen().move_to(NOW);
    registry.seen().begin(Arc::downgrade(&MEMORY));
    let rows = (0..).zip(ages).map(|(id, (_, days))| (MetricId(id), NOW - days * DAY, NOW - days * DAY));
    registry.seen().note(rows);
    let rule = |beginning: &'static str, max_stale| StaleRule {
        max_stale,
        matches: Box::new(move |name: &str| name.starts_with(beginning)),
    };
    let two_weeks = Some(14 * 86_400);
    registry.set_stale_rules(vec![rule("a.", two_weeks), rule("t;", two_weeks), rule("", None)]);
    Setup { registry: Some(registry), ..Setup::new(metrics) }.start()
}

fn check(server: &Server, path: &str, expected: &str) {
    let answer = server.get(path);
    assert_eq!((answer.status, answer.text()), (200, expected), "{path}");
}

/// The time a month ago.
fn then() -> String {
    format!("from={}&until={}", NOW - 31 * DAY, NOW - 29 * DAY)
}

#[test]
fn a_stale_metric_is_hidden_from_questions_without_times_and_found_by_those_of_its_points() {
    let (server, then) = (server(), then());
    let check = |path: &str, expected: &str| check(&server, path, expected);
    check("/metrics/expand?query=a.*", r#"{"results": ["a.live"]}"#);
    check("/metrics/expand?query=b.*", r#"{"results": ["b.old"]}"#);
    check(&format!("/metrics/expand?query=a.*&{then}"), r#"{"results": ["a.old"]}"#);
    check("/metrics/expand?query=a.old", r#"{"results": []}"#);
    check("/metrics/index.json", r#"["a.live", "b.old"]"#);
    check("/tags/findSeries?expr=name=t", r#"["t;x=live"]"#);
    check("/tags/autoComplete/tags", r#"["name", "x"]"#);
    check("/tags/autoComplete/values?tag=x", r#"["live"]"#);
    check(&format!("/tags/autoComplete/values?tag=x&{then}"), r#"["old"]"#);
    let pickled = |times: &str| server.get(&format!("/metrics/find?query=a.*&format=pickle&local=1{times}")).body;
    let has = |body: &[u8], name: &str| body.windows(name.len()).any(|part| part == name.as_bytes());
    let (now, month_ago) = (pickled(""), pickled(&format!("&{then}")));
    assert!(has(&now, "a.live") && !has(&now, "a.old"));
    assert!(has(&month_ago, "a.live") && has(&month_ago, "a.old"), "a front end finds all that it draws");
    // A carbonapi finds without times what it fetches then.
    let found = server.get("/metrics/find?query=a.*&format=protobuf").body;
    assert!(has(&found, "a.old"));
}

#[test]
fn a_render_leaves_out_stale_metrics_that_have_nothing_in_what_it_reads() {
    let server = server();
    let drawn = |target: &str, times: &str| {
        let target: String = form_urlencoded::byte_serialize(target.as_bytes()).collect();
        let answer = server.get(&format!("/render?target={target}&format=raw&{times}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let names = answer.text().lines().map(|line| line.split(',').next().unwrap().to_owned());
        names.collect::<Vec<_>>().join(" ")
    };
    let (now, then) = (format!("from=-1h&now={NOW}"), then());
    assert_eq!(drawn("a.*", &now), "a.live");
    assert_eq!(drawn("b.*", &now), "b.old");
    assert_eq!(drawn("a.old", &now), "a.old", "a metric that is named");
    assert_eq!(drawn("seriesByTag('name=t')", &now), "t;x=live");
    assert_eq!(drawn("a.*", &then), "a.live a.old");
    assert_eq!(drawn("seriesByTag('name=t')", &then), "t;x=live t;x=old;y=1");
    // What is read is of another time than what is drawn.
    let month = drawn("timeShift(a.*,'30d')", &now);
    assert_eq!(month.matches("a.").count(), 2, "{month}");
}

#[test]
fn a_function_that_reads_other_times_draws_metrics_that_are_all_stale_in_those_of_the_graph() {
    let server = server();
    let drawn = |target: &str, (from, until): (Timestamp, Timestamp)| {
        let target: String = form_urlencoded::byte_serialize(target.as_bytes()).collect();
        let answer = server.get(&format!("/render?target={target}&format=json&from={from}&until={until}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let series: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        let values = |series: &serde_json::Value| {
            let points = series["datapoints"].as_array().unwrap().clone();
            points.into_iter().filter(|point| !point[0].is_null()).collect::<Vec<_>>()
        };
        series.as_array().unwrap().iter().map(values).collect::<Vec<_>>()
    };
    // The points of a.old, and of the series with the tag y, are 30 days old.
    let point = NOW - NOW % 60 - 30 * DAY;
    let after = |seconds: Timestamp| (point + seconds - 1800, point + seconds + 1800);
    let (start, end) = (point - 1800, point + 1800);
    let cases = [
        ("timeShift(X,'5d')", 5 * DAY),
        ("timeShift(X,'5d',false)", 5 * DAY),
        ("timeStack(X,'1d',0,7)", 5 * DAY),
        ("movingSum(X,1440)", DAY / 2),
        ("movingSum(scale(X,2),1440)", DAY / 2),
        ("movingSum(X,'1d')", DAY / 2),
        ("exponentialMovingAverage(X,1440)", DAY / 2),
        ("holtWintersForecast(X)", 3 * DAY),
        ("holtWintersAberration(X)", 3 * DAY),
        ("linearRegression(X,'{start}','{end}')", 5 * DAY),
        ("timeShift(movingSum(X,'2h'),'5d')", 5 * DAY + 3600),
        ("timeShift(movingSum(scale(X,2),120),'5d')", 5 * DAY + 3600),
        ("sumSeries(timeShift(X,'5d'))", 5 * DAY),
    ];
    for (function, seconds) in cases {
        let function = function.replace("{start}", &start.to_string()).replace("{end}", &end.to_string());
        let named = drawn(&function.replace('X', "a.old"), after(seconds));
        assert!(!named.is_empty(), "{function}");
        for search in ["a.ol*", "seriesByTag('y=1')"] {
            assert_eq!(drawn(&function.replace('X', search), after(seconds)), named, "{function} of {search}");
        }
    }
    // Where no time that is read has a point, nothing is drawn.
    for function in
        ["timeShift(X,'7d')", "movingSum(X,120)", "movingSum(scale(X,2),120)", "holtWintersForecast(X,'1d')"]
    {
        let series = drawn(&function.replace('X', "a.ol*"), after(5 * DAY));
        assert!(series.is_empty(), "{function}");
    }
}

fn find_v3(server: &Server, start: i64, stop: i64) -> Vec<String> {
    let mut message = b"\x0a\x03a.*".to_vec();
    for (field, mut time) in [(2_u8, start), (3, stop)].into_iter().filter(|&(_, time)| time != 0) {
        message.push(field << 3);
        while time >= 0x80 {
            message.push(time as u8 | 0x80);
            time >>= 7;
        }
        message.push(time as u8);
    }
    let headers = [("Accept", "application/x-carbonapi-v3-pb"), ("Content-Length", &*message.len().to_string())];
    let answer: Answer = server.request("GET", "/metrics/find/?format=carbonapi_v3_pb", &headers, &message);
    let all = Message::of(&answer.body).messages(1);
    all[0].messages(2).iter().map(|found| found.text(1)).collect()
}

#[test]
fn finds_of_carbonapis_version_3_have_the_metrics_of_their_times() {
    let server = server();
    assert_eq!(find_v3(&server, NOW - 3600, NOW), ["a.live"]);
    assert_eq!(find_v3(&server, NOW - 31 * DAY, NOW - 29 * DAY), ["a.old"]);
    assert_eq!(find_v3(&server, 0, NOW - 29 * DAY), ["a.old"]);
    // So it finds what it fetches then, of times that this find does not have.
    assert_eq!(find_v3(&server, 0, 0), ["a.live", "a.old"]);
}
