//! What clients of Graphite's API send, and what they need of the answers.

mod support;

use std::collections::HashMap;

use support::{Metric, Server, Setup};

fn server() -> Server {
    let metric =
        |name: &str| Metric { name: name.to_owned(), step: 60, kept: 1440, coarser: None, values: HashMap::new() };
    Setup::new(["a.b.c", "a.b.d", "load;dc=eu;host=web1"].map(metric).into()).start()
}

#[test]
fn times_that_a_client_does_not_have_bound_nothing() {
    let server = server();
    for nothing in ["", "-1", "undefined", "null", "NaN", "None"] {
        for path in ["/metrics/find?query=a.b.*", "/events/get_data?tags=x"] {
            let answer = server.get(&format!("{path}&from={nothing}&until={nothing}"));
            assert_eq!(answer.status, 200, "{path} {nothing}: {}", answer.text());
        }
    }
    let answer = server.get("/metrics/find?query=a.b.*&from=0&until=0");
    assert_eq!(answer.status, 200);
    let answer = server.get("/metrics/find?query=a.b.*&from=tomorow");
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("'tomorow' for param from"), "{}", answer.text());
}
