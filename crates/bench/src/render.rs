//! `plumbago bench render`: how long /render takes.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::{Error, http::Server, latency::Latency, report, verify::series};

/// The targets, and the server to ask.
#[derive(Debug, clap::Args)]
pub(crate) struct RenderArgs {
    /// HTTP address of the server
    #[arg(long)]
    http: String,
    /// A target; may be given several times, each is timed alone
    #[arg(long, required = true, num_args = 1..)]
    target: Vec<String>,
    /// Beginning of the window, as Graphite writes it
    #[arg(long, default_value = "-1d", allow_hyphen_values = true)]
    from: String,
    /// End of the window
    #[arg(long, default_value = "now", allow_hyphen_values = true)]
    until: String,
    #[arg(long)]
    max_data_points: Option<u32>,
    /// How often to ask for each target
    #[arg(long, default_value_t = 20)]
    count: u32,
    /// Seconds to wait for an answer
    #[arg(long, default_value_t = 300)]
    timeout: u64,
}

/// A span of time, and the largest number of points for it.
#[derive(Debug, Clone)]
pub(crate) struct RenderWindow {
    pub(crate) from: String,
    pub(crate) until: String,
    pub(crate) max_data_points: Option<u32>,
}

/// The answer to a target, and how long it took.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RenderTiming {
    pub(crate) target: String,
    pub(crate) series: usize,
    /// Slots of all series.
    pub(crate) slots: usize,
    /// Slots that have a value.
    pub(crate) points: usize,
    pub(crate) bytes: usize,
    /// Milliseconds.
    pub(crate) latency: Latency,
}

pub(crate) fn run(args: &RenderArgs, json: bool) -> Result<(), Error> {
    let mut server = Server::new(&args.http, Duration::from_secs(args.timeout))?;
    let window =
        RenderWindow { from: args.from.clone(), until: args.until.clone(), max_data_points: args.max_data_points };
    let mut rendered = Vec::new();
    for target in &args.target {
        eprintln!("rendering {target}");
        rendered.push(render(&mut server, target, &window, args.count, Duration::MAX)?);
    }
    if json {
        report::print_json(&rendered);
        return Ok(());
    }
    let rows: Vec<Vec<String>> = rendered.iter().map(RenderTiming::row).collect();
    let head = ["target", "series", "slots", "points", "bytes", "p50 ms", "p90 ms", "p99 ms", "max ms"];
    print!("{}", report::table(&report::row(head), &rows));
    Ok(())
}

impl RenderTiming {
    fn row(&self) -> Vec<String> {
        let Latency { p50, p90, p99, max, .. } = self.latency;
        let sizes = [self.series, self.slots, self.points, self.bytes].map(|size| report::number(size as f64));
        [vec![self.target.clone()], sizes.into(), [p50, p90, p99, max].map(report::number).into()].concat()
    }
}

/// Asks `count` times, or until `budget` is used up; at least once. The request bypasses caches of answers.
pub(crate) fn render(
    server: &mut Server,
    target: &str,
    window: &RenderWindow,
    count: u32,
    budget: Duration,
) -> Result<RenderTiming, Error> {
    let most = window.max_data_points.map(|points| points.to_string());
    let mut parameters = vec![
        ("target", target),
        ("format", "json"),
        ("from", &window.from),
        ("until", &window.until),
        ("noCache", "1"),
    ];
    if let Some(most) = &most {
        parameters.push(("maxDataPoints", most));
    }
    let started = Instant::now();
    let mut times = Vec::new();
    let mut last = None;
    for turn in 0..count.max(1) {
        if turn != 0 && budget < started.elapsed() {
            break;
        }
        let answer = server.get("/render", &parameters)?.success()?;
        times.push(answer.took);
        last = Some(answer);
    }
    let answer = last.expect("the server is asked at least once");
    let series = series(&answer)?;
    Ok(RenderTiming {
        target: target.to_owned(),
        series: series.len(),
        slots: series.iter().map(|series| series.datapoints.len()).sum(),
        points: series.iter().map(|series| series.values().count()).sum(),
        bytes: answer.body.len(),
        latency: Latency::of(times).expect("the server is asked at least once"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::{fake, ok};

    #[test]
    fn series_slots_and_points_are_counted() {
        let body =
            r#"[{"target": "a", "datapoints": [[1, 60], [null, 120]]}, {"target": "b", "datapoints": [[2.5, 60]]}]"#;
        let mut server = Server::new(&fake(vec![ok(body)]), Duration::from_secs(5)).expect("a valid address");
        let window = RenderWindow { from: "0".into(), until: "120".into(), max_data_points: None };
        let rendered = render(&mut server, "*", &window, 1, Duration::MAX).expect("a valid answer");
        assert_eq!((rendered.series, rendered.slots, rendered.points, rendered.bytes), (2, 3, 2, body.len()));
    }
}
