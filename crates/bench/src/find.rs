//! `plumbago bench find`: how long /metrics/find takes.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::{Deserialize, Serialize, de::IgnoredAny};

use crate::{
    Error,
    http::{Answer, Server},
    latency::Latency,
    report,
};

/// The queries, and the server to ask.
#[derive(Debug, clap::Args)]
pub(crate) struct FindArgs {
    /// HTTP address of the server
    #[arg(long)]
    http: String,
    /// A glob; may be given several times
    #[arg(long, required = true, num_args = 1..)]
    query: Vec<String>,
    /// How often to ask each query
    #[arg(long, default_value_t = 20)]
    count: u32,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Seconds to wait for an answer
    #[arg(long, default_value_t = 300)]
    timeout: u64,
}

/// The format of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// One result for each path
    #[default]
    Completer,
    /// One result for each last component, as Grafana asks
    Treejson,
}

/// The answer to a query, and how long it took.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FindTiming {
    pub(crate) query: String,
    pub(crate) results: usize,
    pub(crate) bytes: usize,
    /// Milliseconds.
    pub(crate) latency: Latency,
}

pub(crate) fn run(args: &FindArgs, json: bool) -> Result<(), Error> {
    let mut server = Server::new(&args.http, Duration::from_secs(args.timeout))?;
    let mut found = Vec::new();
    for query in &args.query {
        eprintln!("finding {query}");
        found.push(find(&mut server, query, args.format, args.count, Duration::MAX)?);
    }
    if json {
        report::print_json(&found);
        return Ok(());
    }
    let rows: Vec<Vec<String>> = found.iter().map(FindTiming::row).collect();
    let head = ["query", "results", "bytes", "p50 ms", "p90 ms", "p99 ms", "max ms"];
    print!("{}", report::table(&report::row(head), &rows));
    Ok(())
}

impl FindTiming {
    fn row(&self) -> Vec<String> {
        let Latency { p50, p90, p99, max, .. } = self.latency;
        let numbers = [self.results as f64, self.bytes as f64, p50, p90, p99, max].map(report::number);
        [vec![self.query.clone()], numbers.into()].concat()
    }
}

/// Asks `count` times, or until `budget` is used up; at least once.
pub(crate) fn find(
    server: &mut Server,
    query: &str,
    format: Format,
    count: u32,
    budget: Duration,
) -> Result<FindTiming, Error> {
    let name = match format {
        Format::Completer => "completer",
        Format::Treejson => "treejson",
    };
    let started = Instant::now();
    let mut times = Vec::new();
    let (mut results, mut bytes) = (0, 0);
    for turn in 0..count.max(1) {
        if turn != 0 && budget < started.elapsed() {
            break;
        }
        let answer = server.get("/metrics/find", &[("query", query), ("format", name)])?.success()?;
        times.push(answer.took);
        bytes = answer.body.len();
        let counted = count_results(&answer, format)?;
        if turn != 0 && counted != results {
            return Err(answer.unexpected(format!("{results} results at first, then {counted}")));
        }
        results = counted;
    }
    let latency = Latency::of(times).expect("the server is asked at least once");
    Ok(FindTiming { query: query.to_owned(), results, bytes, latency })
}

fn count_results(answer: &Answer, format: Format) -> Result<usize, Error> {
    #[derive(Deserialize)]
    struct Completer {
        metrics: Vec<IgnoredAny>,
    }
    let counted = match format {
        Format::Completer => serde_json::from_slice::<Completer>(&answer.body).map(|completer| completer.metrics.len()),
        Format::Treejson => serde_json::from_slice::<Vec<IgnoredAny>>(&answer.body).map(|nodes| nodes.len()),
    };
    counted.map_err(|error| answer.unexpected(format!("invalid {format:?} answer: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::{fake, ok};

    fn ask(format: Format, answers: &[&str]) -> Result<FindTiming, Error> {
        let mut server = Server::new(&fake(answers.iter().map(|body| ok(body)).collect()), Duration::from_secs(5))?;
        find(&mut server, "a.*", format, answers.len() as u32, Duration::MAX)
    }

    #[test]
    fn results_are_counted_in_both_formats() {
        let found = ask(Format::Completer, &[r#"{"metrics": [{"path": "a.b"}, {"path": "a.c"}]}"#; 3]);
        assert_eq!(found.map(|found| (found.results, found.latency.count)).ok(), Some((2, 3)));
        let found = ask(Format::Treejson, &[r#"[{"id": "a.b"}]"#]);
        assert_eq!(found.map(|found| found.results).ok(), Some(1));
    }

    #[test]
    fn answers_that_change_or_are_invalid_are_errors() {
        assert!(ask(Format::Treejson, &["[]", "[1]"]).is_err());
        assert!(ask(Format::Completer, &["[]"]).is_err());
    }
}
