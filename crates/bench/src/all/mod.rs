//! `plumbago bench all`: the measures that show how fast a Graphite server is, for one server or several in turn.

mod comparison;
mod spec;

use std::time::Duration;

use clap::ValueEnum;

use comparison::{Bound, Figure, LoadResult, Report, compare, median};
use spec::ServerSpec;

use crate::{
    Error,
    encode::Protocol,
    find::{Format, find},
    http::Server,
    latency::Latency,
    load::{ending, now},
    measure::{Plan, measure},
    measured::{MeasuredServer, idle_timeout, stores},
    names::{Names, Pattern},
    outcome::Outcome,
    process::Process,
    render::{RenderWindow, render},
    report,
    values::Values,
    verify::{MARGIN_ROWS, Verified},
    visible::visible,
};

/// Seconds from a point to the next.
const INTERVAL: u32 = 60;
/// Metrics read back after each load.
const VERIFIED: u64 = 100;
/// Time for all rounds of one query: some servers need seconds for each.
const BUDGET: Duration = Duration::from_secs(40);

/// The servers to measure, and the measures.
#[derive(Debug, clap::Args)]
pub(crate) struct AllArgs {
    /// A server: NAME=line:ADDR,http:ADDR,pid:PID,store:PID,disk:FOLDER,flush:URL,readable:METRICS, with the parts that are
    /// known; may be given several times: each measure is then made of all of them in turn
    ///
    /// store is the process of a Cassandra that the server writes to, and may be repeated; readable is how many metrics are
    /// read back to know when points are stored. `plumbago bench ingest --help` says more, at --store-pid and
    /// --until-readable.
    #[arg(long, required = true)]
    server: Vec<ServerSpec>,
    /// The server to compare the others with
    #[arg(long)]
    baseline: Option<String>,
    /// Only these groups of measures. A group has names of its own, but memory, disk and time to find depend on what
    /// else a server holds: for clean figures give each group a fresh server
    #[arg(long, value_enum, num_args = 1.., default_values_t = [Group::Known, Group::History, Group::New, Group::Visible])]
    only: Vec<Group>,
    /// How often to send the load of known metrics; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// How often to send each query, unless it takes too long
    #[arg(long, default_value_t = 20)]
    count: u32,
    /// TCP connections to each server
    #[arg(long, default_value_t = 4)]
    connections: u64,
    /// Shrinks all loads, for a trial; the figures then mean little
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Mebibytes of points made before the clock starts
    #[arg(long, default_value_t = 1_024)]
    ahead: u64,
    /// Make every server with a flush address write everything out as soon as points are accepted, and count points a
    /// second until then
    #[arg(long)]
    flush_at_once: bool,
    /// Seconds to wait for an answer, for points to become readable, and for a server to become idle
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// Seconds to wait for a server and its stores to become idle; --timeout when absent, or 30 for a server with readable
    #[arg(long)]
    idle_timeout: Option<u64>,
}

/// Measures that share a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Group {
    /// 100 k known metrics × 30 points
    Known,
    /// 10 k metrics × 1440 points: disk, and rendering them
    History,
    /// 1 M new metrics × 3 points: memory, and finding them
    New,
    /// The time until a point is readable
    Visible,
}

pub(crate) fn run(args: &AllArgs, json: bool) -> Result<(), Error> {
    let mut servers = Vec::new();
    for spec in &args.server {
        servers.push((spec.name.clone(), spec.measured(args)?));
    }
    if let Some(baseline) = &args.baseline
        && servers.iter().all(|(name, _)| name != baseline)
    {
        return Err(Error::Usage(format!("--baseline must be the name of a --server, got {baseline}")));
    }
    if !(0.0..=1.0).contains(&args.scale) {
        return Err(Error::Usage(format!("--scale must be from 0 to 1, got {}", args.scale)));
    }
    let mut run = Run {
        args,
        servers,
        report: Report { baseline: args.baseline.clone(), scale: args.scale, ..Report::default() },
    };
    for group in &args.only {
        match group {
            Group::Known => run.known()?,
            Group::History => run.history()?,
            Group::New => run.new_metrics()?,
            Group::Visible => run.visible(),
        }
    }
    if json {
        report::print_json(&run.report);
    } else {
        print!("{}", run.report.table());
    }
    for load in run.report.loads.iter().filter(|load| load.outcome.readable.is_some_and(|found| !found.complete())) {
        load.outcome.faithful()?;
    }
    let mut found = Verified::default();
    for verified in run.report.loads.iter().filter_map(|load| load.outcome.verified) {
        found.series += verified.series;
        found.checked += verified.checked;
        found.missing += verified.missing;
        found.wrong += verified.wrong;
        found.extra += verified.extra;
    }
    found.faithful()
}

impl ServerSpec {
    fn measured(&self, args: &AllArgs) -> Result<MeasuredServer, Error> {
        let line = self.line.clone().ok_or_else(|| Error::Usage(format!("server {} needs line:ADDR", self.name)))?;
        Ok(MeasuredServer {
            receiver: line,
            protocol: Protocol::Line,
            process: self.pid.map(Process::new).transpose()?,
            stores: stores(self.pid, &self.stores)?,
            disk: self.disk.clone(),
            http: self.http.clone(),
            flush: self.flush.clone(),
            flush_at_once: args.flush_at_once && self.flush.is_some(),
            readable: self.readable,
            timeout: Duration::from_secs(args.timeout),
            idle_timeout: idle_timeout(args.idle_timeout, self.readable, args.timeout),
        })
    }
}

struct Run<'a> {
    args: &'a AllArgs,
    servers: Vec<(String, MeasuredServer)>,
    report: Report,
}

impl Run<'_> {
    fn known(&mut self) -> Result<(), Error> {
        let rounds = self.args.rounds.max(1);
        let mut outcomes = vec![Vec::new(); self.servers.len()];
        let until = now();
        for round in 0..rounds {
            // Each round is the half hour behind the one before, with a row that is not measured in front, and apart
            // from it by more than reading back looks beyond what was sent.
            let until = until - (rounds - 1 - round) * (31 + 2 * MARGIN_ROWS) * INTERVAL;
            let plan = self.plan("fleet", 100_000, 31, u64::from(round), Some(until))?;
            for (place, outcomes) in outcomes.iter_mut().enumerate() {
                outcomes.push(self.load(place, "100 k known metrics × 30", &plan)?);
            }
        }
        let cpu = medians(&outcomes, |outcome| outcome.cpu_per_point);
        self.add("CPU per point, 100 k known metrics × 30 points", "µs", Bound::TimesAtMost(0.4), cpu);
        let rate = medians(&outcomes, |outcome| outcome.accepted_per_second);
        self.add("accepted points, 100 k known metrics", "1/s", Bound::TimesAtLeast(2.0), rate);
        let cpu = medians(&outcomes, |outcome| outcome.store_cpu_per_point);
        self.add_if_any("store's CPU per point, 100 k known metrics × 30 points", "µs", Bound::Most(9.0), cpu);
        let rate = medians(&outcomes, |outcome| outcome.stored_per_second);
        self.add_if_any("stored points, 100 k known metrics", "1/s", Bound::Any, rate);
        Ok(())
    }

    fn history(&mut self) -> Result<(), Error> {
        let plan = self.plan("history", 10_000, 1_441, 0, None)?;
        let (mut cpu, mut disk, mut store) = (Vec::new(), Vec::new(), Vec::new());
        for place in 0..self.servers.len() {
            let outcome = self.load(place, "10 k known metrics × 1440", &plan)?;
            cpu.push(Figure::new(outcome.cpu_per_point, "no pid"));
            disk.push(Figure::new(outcome.disk_per_point, "no folder"));
            store.push(Figure::new(outcome.store_cpu_per_point, "no store"));
        }
        self.add("CPU per point, 10 k known metrics × 1440 points", "µs", Bound::TimesAtMost(0.4), cpu);
        self.add("disk per point, 10 k × 1440, everything included", "B", Bound::Most(1.0), disk);
        self.add_if_any("store's CPU per point, 10 k known metrics × 1440 points", "µs", Bound::Any, store);

        // The window (from, until] holds the 1,440 points after the first.
        let window = RenderWindow {
            from: plan.load.start.to_string(),
            until: plan.load.time(plan.load.rows - 1).to_string(),
            max_data_points: None,
        };
        let thousand = "history.*.*.cpu.[0-4].{user,system}";
        let sum = format!("sumSeries({thousand})");
        for (title, target, most) in [
            ("render, sumSeries of 1000 × 1440 points, p50", sum.as_str(), 25.0),
            ("render, 1000 × 1440 points as JSON, p50", thousand, 120.0),
        ] {
            let figures = self.each(|server| {
                let rendered = render(&mut server.reader()?, target, &window, self.args.count, BUDGET)?;
                let size = format!("{} series, {} points, {} bytes", rendered.series, rendered.points, rendered.bytes);
                Ok((rendered.latency, size))
            });
            self.add(title, "ms", Bound::Most(most), figures);
        }
        Ok(())
    }

    fn new_metrics(&mut self) -> Result<(), Error> {
        let mut plan = self.plan("servers", 1_000_000, 3, 0, None)?;
        plan.new = true;
        let (mut cpu, mut memory, mut store) = (Vec::new(), Vec::new(), Vec::new());
        for place in 0..self.servers.len() {
            let outcome = self.load(place, "1 M new metrics × 3", &plan)?;
            cpu.push(Figure::new(outcome.cpu_per_metric, "no pid"));
            memory.push(Figure::new(outcome.resident_per_metric, "no pid"));
            store.push(Figure::new(outcome.store_cpu_per_metric, "no store"));
        }
        self.add("CPU per new metric, 1 M × 3 points", "µs", Bound::Most(8.0), cpu);
        self.add("resident memory per metric at 1 M", "B", Bound::Most(400.0), memory);
        self.add_if_any("store's CPU per new metric, 1 M × 3 points", "µs", Bound::Any, store);
        for (query, most) in [("*.*.*.cpu.*.user", 80.0), ("servers.dc1.*.loadavg.01", 5.0), ("*.*.*.*.*.nosuch", 2.0)]
        {
            let figures = self.each(|server| {
                let found = find(&mut server.reader()?, query, Format::Completer, self.args.count, BUDGET)?;
                Ok((found.latency, format!("{} results, {} bytes", found.results, found.bytes)))
            });
            self.add(&format!("find `{query}` at 1 M, p50"), "ms", Bound::Most(most), figures);
        }
        Ok(())
    }

    fn visible(&mut self) {
        // One run measures both: the first point of a metric, then a later one.
        let mut known = Vec::new();
        let new = self.each(|server| {
            let http = server.http.as_deref().ok_or_else(|| Error::Usage("no http".into()));
            let visible = http.and_then(|http| visible(&server.receiver, http, 10, Duration::from_secs(60)));
            let (new, further) = match visible {
                Ok(visible) => (Ok(visible.new), Ok(visible.known)),
                Err(error) => (Err(error), Err("see the point of a new metric".to_owned())),
            };
            known.push(figure(further.map(|latency| (latency, "10 metrics".into()))));
            Ok((new?, "10 metrics".into()))
        });
        // "At once": two small requests on the loopback, and nothing that waits for a timer.
        self.add("point of a new metric readable, p50", "ms", Bound::Most(10.0), new);
        self.add("point of a known metric readable, p50", "ms", Bound::Most(10.0), known);
    }

    fn plan(&self, root: &str, names: u64, rows: u32, seed: u64, until: Option<u32>) -> Result<Plan, Error> {
        let series = ((names as f64 * self.args.scale) as u64).max(1);
        let names = Names { root: root.to_owned(), pattern: Pattern::Hosts, seed };
        let load = ending(names, Values::Mixed, series, rows, INTERVAL, until)?;
        let ahead = self.args.ahead.saturating_mul(1 << 20);
        Ok(Plan { load, new: false, connections: self.args.connections.clamp(1, 1_024), verify: VERIFIED, ahead })
    }

    /// Sends a load to one server. Reads points back where it has a /render.
    fn load(&mut self, place: usize, load: &'static str, plan: &Plan) -> Result<Outcome, Error> {
        let (name, server) = &self.servers[place];
        eprintln!("\n{name}: {load}");
        let mut plan = plan.clone();
        if !server.renders() {
            eprintln!("{name} has no /render: points are not read back");
            plan.verify = 0;
        }
        let outcome = measure(server, &plan)?;
        self.report.loads.push(LoadResult { server: name.clone(), load, outcome: outcome.clone() });
        Ok(outcome)
    }

    /// Asks each server in turn for latencies and a remark on the answer. An error becomes part of the table.
    fn each(&self, mut ask: impl FnMut(&MeasuredServer) -> Result<(Latency, String), Error>) -> Vec<Figure> {
        let ask = |(name, server): &(String, MeasuredServer)| {
            let figure = figure(ask(server).map_err(|error| error.to_string()));
            eprintln!("{name}: {}", figure.note.as_deref().unwrap_or_default());
            figure
        };
        self.servers.iter().map(ask).collect()
    }

    /// Adds a measure that most servers do not have, if one of these does.
    fn add_if_any(&mut self, title: &str, unit: &'static str, bound: Bound, figures: Vec<Figure>) {
        if figures.iter().any(|figure| figure.value.is_some()) {
            self.add(title, unit, bound, figures);
        }
    }

    fn add(&mut self, title: &str, unit: &'static str, bound: Bound, figures: Vec<Figure>) {
        let named: Vec<(&str, Figure)> = self.servers.iter().map(|(name, _)| name.as_str()).zip(figures).collect();
        let measure = compare(title, unit, bound, &named, self.args.baseline.as_deref());
        self.report.measures.push(measure);
    }
}

impl MeasuredServer {
    fn reader(&self) -> Result<Server, Error> {
        let http = self.http.as_deref().ok_or_else(|| Error::Usage("no http".into()))?;
        Server::new(http, self.timeout)
    }

    /// Whether the server answers /render.
    fn renders(&self) -> bool {
        let asked =
            |server: Result<Server, Error>| server?.get("/render", &[("target", "no.such"), ("format", "json")]);
        asked(self.reader()).is_ok_and(|answer| answer.status == 200)
    }
}

/// The median of latencies, with a remark on the answer.
fn figure(measured: Result<(Latency, String), String>) -> Figure {
    match measured {
        Ok((latency, size)) => {
            let note = format!("{size}; p99 {} ms", report::number(latency.p99));
            Figure { value: Some(latency.p50), note: Some(note) }
        }
        Err(why) => Figure { value: None, note: Some(why) },
    }
}

/// The median of each server's rounds.
fn medians(outcomes: &[Vec<Outcome>], value: impl Fn(&Outcome) -> Option<f64>) -> Vec<Figure> {
    outcomes.iter().map(|rounds| median(rounds.iter().map(&value).collect())).collect()
}
