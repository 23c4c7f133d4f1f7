//! Waiting until points that were sent can be read: the only sign of a server that writes by itself and does not say when.

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

/// The shortest pause between an answer with too few points and the next question …
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// … and the longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A pause is this part of the time waited so far, so that the figure is good to 2 % …
const PAUSES_IN_WAIT: u32 = 50;
/// … but so many times as long as the last answer took, because answering uses the processors that writing needs.
const PAUSE_OF_ANSWER: u32 = 4;

/// Metrics asked for together at most: their names are in the address, which servers take to a few thousand bytes.
const TOGETHER: usize = 32;

/// How the wait ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Readable {
    /// Metrics looked at.
    pub(crate) metrics: u64,
    /// Metrics whose points were all there in the end, with the values sent.
    pub(crate) whole: u64,
    /// Points still missing, or with another value, of the metric that was waited for last.
    pub(crate) lacking: u64,
    /// How often the server was asked; its processor time holds the answers.
    pub(crate) requests: u64,
    /// How long it was waited.
    pub(crate) seconds: f64,
}

impl Readable {
    pub(crate) fn complete(&self) -> bool {
        self.whole == self.metrics
    }
}

/// Waits until the points of these rows can be read of `count` metrics, spread evenly over the load and with its last among
/// them; not longer than `timeout`.
///
/// While a metric is not whole, it alone is asked for. When it is, most others are, and are asked for together: each
/// question after the last point was stored makes the figure worse.
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

/// How many of the points of each of these metrics cannot be read yet, or not with the value that was sent.
fn lacking(server: &mut Server, load: &Load, indices: &[u64], rows: &Range<u32>) -> Result<Vec<u64>, Error> {
    // A store that is busy writing may be too slow to be read: that is no answer yet, and not the end.
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
    fn a_metric_is_waited_for_alone_and_the_others_are_then_looked_at_together() {
        let load = small(4, 3);
        let answers = vec![
            ok("[]"),
            points(&load, &[(0, 2)]),
            points(&load, &[(0, 3)]),
            points(&load, &[(3, 3), (1, 3), (2, 1)]),
            points(&load, &[(2, 2)]),
            points(&load, &[(2, 3)]),
        ];
        let readable = check(&load, 4, LONG, answers).expect("the answers are some");
        assert_eq!((readable.metrics, readable.whole, readable.lacking, readable.requests), (4, 4, 0, 6));
        assert!(readable.complete());
    }

    #[test]
    fn no_request_asks_for_more_names_than_an_address_holds() {
        let load = small(70, 1);
        let all: Vec<(u64, usize)> = (0..70).map(|index| (index, 1)).collect();
        let answers = [&all[..1], &all[1..33], &all[33..65], &all[65..]].map(|metrics| points(&load, metrics));
        let readable = check(&load, 70, LONG, answers.into()).expect("the answers are some");
        assert_eq!((readable.whole, readable.requests), (70, 4));
    }

    #[test]
    fn the_last_metric_is_among_the_sample() {
        let load = small(10, 1);
        let answers = vec![points(&load, &[(4, 1)]), points(&load, &[(9, 1)])];
        assert!(check(&load, 2, LONG, answers).expect("these two are asked for").complete());
    }

    #[test]
    fn a_store_that_is_too_busy_to_be_read_is_asked_again_but_a_wrong_address_is_not() {
        let load = small(1, 1);
        let busy = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
        let readable = check(&load, 1, LONG, vec![busy.into(), points(&load, &[(0, 1)])]).expect("it comes round");
        assert_eq!((readable.whole, readable.requests), (1, 2));
        let nothing = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        assert!(matches!(check(&load, 1, LONG, vec![nothing.into()]), Err(Error::Answer { .. })));
    }

    #[test]
    fn a_value_that_was_not_sent_is_not_the_point() {
        let load = small(1, 1);
        let other = ok(&format!(r#"[{{"target": "{}", "datapoints": [[-1, {}]]}}]"#, load.names.name(0), load.time(0)));
        let readable = check(&load, 1, LONG, vec![other, points(&load, &[(0, 1)])]).expect("the answers are some");
        assert_eq!((readable.whole, readable.requests), (1, 2));
    }

    #[test]
    fn the_wait_ends_with_its_time_and_says_what_was_lacking() {
        let load = small(2, 3);
        let answers = vec![points(&load, &[(0, 1)]); 100];
        let readable = check(&load, 2, Duration::from_millis(20), answers).expect("the answers are some");
        assert_eq!((readable.whole, readable.lacking), (0, 2));
        assert!(!readable.complete());
    }
}
