//! Waiting until points can be read: the only sign from a server that does not show when it has written.

use std::{
    collections::BTreeMap,
    ops::Range,
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::{
    Error,
    http::Server,
    load::Load,
    verify::{Verified, compare, read},
};

/// The shortest pause between an answer with too few points and the next request …
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// … and the longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A pause is this part of the time waited so far, so that the figure is good to 2 % …
const PAUSES_IN_WAIT: u32 = 50;
/// … but at least this many times as long as the last answer took, because answering uses processors that writing needs.
const PAUSE_OF_ANSWER: u32 = 4;

/// Most metrics in one request: their names are in the address, and servers limit it to a few thousand bytes.
const TOGETHER: usize = 32;

/// How the wait ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Readable {
    /// Metrics to read.
    pub(crate) metrics: u64,
    /// Metrics with all points, as sent, at the end.
    pub(crate) whole: u64,
    /// Points missing, or with another value, of the metric of the last request.
    pub(crate) lacking: u64,
    /// Requests sent; the server's processor time includes their answers.
    pub(crate) requests: u64,
    /// How long the wait was.
    pub(crate) seconds: f64,
}

impl Readable {
    pub(crate) fn complete(&self) -> bool {
        self.whole == self.metrics
    }
}

/// Waits until the points of these rows can be read for `count` metrics, at most for `timeout`. The metrics are spread
/// evenly over the load and include its last.
///
/// Asks for one metric until it is complete. Then most others are complete too, and one request asks for several: each
/// request after the last point was stored makes the figure worse.
pub(crate) fn wait(
    server: &mut Server,
    load: &Load,
    rows: &Range<u32>,
    count: u64,
    timeout: Duration,
) -> Result<Readable, Error> {
    let count = count.min(load.series);
    let mut readable = Readable { metrics: count, ..Readable::default() };
    let mut pending: Vec<u64> = (1..=count).map(|place| load.series * place / count - 1).collect();
    let mut alone = true;
    let started = Instant::now();
    while !pending.is_empty() {
        let asked = Instant::now();
        let together = if alone { 1 } else { TOGETHER.min(pending.len()) };
        readable.requests += 1;
        let lacking = lacking(server, load, &pending[..together], rows)?;
        readable.lacking = lacking.iter().copied().find(|lacking| 0 < *lacking).unwrap_or(0);
        let mut each = lacking.into_iter();
        pending.retain(|_| each.next().is_none_or(|lacking| 0 < lacking));
        readable.whole = count - pending.len() as u64;
        let waited = started.elapsed();
        readable.seconds = waited.as_secs_f64();
        alone = 0 < readable.lacking;
        if alone {
            if timeout < waited {
                break;
            }
            let pause = (waited / PAUSES_IN_WAIT).max(asked.elapsed() * PAUSE_OF_ANSWER);
            thread::sleep(pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
        }
    }
    Ok(readable)
}

/// For each of these metrics, the number of points that are missing or have another value than the one sent.
fn lacking(server: &mut Server, load: &Load, indices: &[u64], rows: &Range<u32>) -> Result<Vec<u64>, Error> {
    // A store that is busy writing may be too slow to read from: ask again.
    let found = read(server, load, indices, rows, |answer| 500 <= answer.status)?;
    let found = found.unwrap_or_else(|| vec![BTreeMap::new(); indices.len()]);
    let lacking = |(index, found): (&u64, BTreeMap<i64, f64>)| {
        let mut verified = Verified::default();
        compare(load, *index, rows, found, &mut verified);
        verified.missing + verified.wrong
    };
    Ok(indices.iter().zip(found).map(lacking).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        http::tests::{fake, ok},
        load::tests::small,
    };

    /// An answer with so many first points of these metrics of a load.
    fn points(load: &Load, metrics: &[(u64, usize)]) -> String {
        let series = metrics.iter().map(|(index, rows)| {
            let points = load.expected(*index).into_iter().enumerate().take(*rows);
            let points: Vec<String> =
                points.map(|(row, value)| format!("[{}, {}]", value.number(), load.time(row as u32))).collect();
            format!(r#"{{"target": "{}", "datapoints": [{}]}}"#, load.names.name(*index), points.join(", "))
        });
        ok(&format!("[{}]", series.collect::<Vec<_>>().join(", ")))
    }

    fn check(load: &Load, count: u64, timeout: Duration, answers: Vec<String>) -> Result<Readable, Error> {
        let mut server = Server::new(&fake(answers), Duration::from_secs(5))?;
        wait(&mut server, load, &(0..load.rows), count, timeout)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn one_metric_is_asked_for_until_complete_and_then_the_others_together() {
        let load = small(4, 3);
        let answers = vec![
            ok("[]"),
            points(&load, &[(0, 2)]),
            points(&load, &[(0, 3)]),
            points(&load, &[(3, 3), (1, 3), (2, 1)]),
            points(&load, &[(2, 2)]),
            points(&load, &[(2, 3)]),
        ];
        let readable = check(&load, 4, LONG, answers).expect("valid answers");
        assert_eq!((readable.metrics, readable.whole, readable.lacking, readable.requests), (4, 4, 0, 6));
        assert!(readable.complete());
    }

    #[test]
    fn a_request_asks_for_at_most_as_many_names_as_an_address_holds() {
        let load = small(70, 1);
        let all: Vec<(u64, usize)> = (0..70).map(|index| (index, 1)).collect();
        let answers = [&all[..1], &all[1..33], &all[33..65], &all[65..]].map(|metrics| points(&load, metrics));
        let readable = check(&load, 70, LONG, answers.into()).expect("valid answers");
        assert_eq!((readable.whole, readable.requests), (70, 4));
    }

    #[test]
    fn the_last_metric_is_among_the_sample() {
        let load = small(10, 1);
        let answers = vec![points(&load, &[(4, 1)]), points(&load, &[(9, 1)])];
        assert!(check(&load, 2, LONG, answers).expect("these two are asked for").complete());
    }

    #[test]
    fn a_busy_store_is_asked_again_but_a_wrong_address_is_an_error() {
        let load = small(1, 1);
        let busy = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
        let readable =
            check(&load, 1, LONG, vec![busy.into(), points(&load, &[(0, 1)])]).expect("a valid second answer");
        assert_eq!((readable.whole, readable.requests), (1, 2));
        let nothing = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        assert!(matches!(check(&load, 1, LONG, vec![nothing.into()]), Err(Error::Answer { .. })));
    }

    #[test]
    fn a_point_with_another_value_is_not_readable_yet() {
        let load = small(1, 1);
        let other = ok(&format!(r#"[{{"target": "{}", "datapoints": [[-1, {}]]}}]"#, load.names.name(0), load.time(0)));
        let readable = check(&load, 1, LONG, vec![other, points(&load, &[(0, 1)])]).expect("valid answers");
        assert_eq!((readable.whole, readable.requests), (1, 2));
    }

    #[test]
    fn the_wait_ends_at_its_timeout_and_counts_missing_points() {
        let load = small(2, 3);
        let answers = vec![points(&load, &[(0, 1)]); 100];
        let readable = check(&load, 2, Duration::from_millis(20), answers).expect("valid answers");
        assert_eq!((readable.whole, readable.lacking), (0, 2));
        assert!(!readable.complete());
    }
}
