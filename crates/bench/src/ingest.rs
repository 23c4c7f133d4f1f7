//! Sending points, and what that costs the server.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::Serialize;

use crate::{
    Error,
    disk::Disk,
    encode::Protocol,
    http::Server,
    load::{Load, Part},
    names::{Names, Pattern},
    process::{Memory, Process},
    report,
    send::{Prepared, Sent},
    values::Values,
    verify::{Verified, verify},
};

/// A folder is settled when it has kept its size for so long. VictoriaMetrics writes what it holds after five seconds.
const SETTLED: Duration = Duration::from_secs(7);
/// … and is looked at for no longer than this, because some servers write a little all the time.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);

/// What to send, and to whom.
#[derive(Debug, clap::Args)]
pub(crate) struct IngestArgs {
    #[command(flatten)]
    receiver: Receiver,
    /// Metrics
    #[arg(long, default_value_t = 100_000)]
    names: u64,
    /// Points of each metric
    #[arg(long, default_value_t = 30)]
    points: u32,
    /// Seconds from a point to the next
    #[arg(long, default_value_t = 60)]
    interval: u32,
    /// Epoch seconds of the last point; the current time when absent
    #[arg(long)]
    until: Option<u32>,
    /// TCP connections, each with its own part of the metrics
    #[arg(long, default_value_t = 4)]
    connections: u64,
    #[arg(long, value_enum, default_value_t)]
    values: Values,
    #[arg(long, value_enum, default_value_t)]
    pattern: Pattern,
    /// What all names begin with
    #[arg(long, default_value = "servers")]
    root: String,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The metrics are new: creating them is part of the measurement, not of a row sent before
    #[arg(long)]
    new: bool,
    /// Process of the server: its processor time and memory are measured
    #[arg(long)]
    pid: Option<u32>,
    /// Folder of the server: its room is measured
    #[arg(long)]
    disk: Option<PathBuf>,
    /// HTTP address of the server, to read points back
    #[arg(long)]
    http: Option<String>,
    /// Metrics to read back and compare
    #[arg(long, default_value_t = 0, requires = "http")]
    verify: u64,
    /// Posted to after the points are sent: lets the server write out all it holds, so that this is measured too
    #[arg(long)]
    flush_url: Option<String>,
    /// Mebibytes of points made before the clock starts
    #[arg(long, default_value_t = 1_024)]
    ahead: u64,
    /// Seconds to wait for an answer, or for the server to become idle
    #[arg(long, default_value_t = 300)]
    timeout: u64,
}

/// Where points go.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Receiver {
    /// Address that takes plain lines
    #[arg(long)]
    line: Option<String>,
    /// Address that takes carbon's pickles
    #[arg(long)]
    pickle: Option<String>,
    /// Address that takes carbon's protobuf
    #[arg(long)]
    protobuf: Option<String>,
}

impl Receiver {
    pub(crate) fn chosen(&self) -> (&str, Protocol) {
        let choices =
            [(&self.line, Protocol::Line), (&self.pickle, Protocol::Pickle), (&self.protobuf, Protocol::Protobuf)];
        let chosen = choices.into_iter().find_map(|(address, protocol)| Some((address.as_deref()?, protocol)));
        chosen.expect("clap requires one of them")
    }
}

/// A server, as far as it is known.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) receiver: String,
    pub(crate) protocol: Protocol,
    pub(crate) process: Option<Process>,
    pub(crate) disk: Option<PathBuf>,
    pub(crate) http: Option<String>,
    pub(crate) flush: Option<String>,
    pub(crate) timeout: Duration,
}

/// What is sent to it.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// With one row more than is measured, unless the metrics are new.
    pub(crate) load: Load,
    pub(crate) new: bool,
    pub(crate) connections: u64,
    /// Metrics to read back.
    pub(crate) verify: u64,
    /// Bytes made beforehand.
    pub(crate) ahead: u64,
}

/// What it cost. Times are in seconds, sizes in bytes.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Outcome {
    pub(crate) names: u64,
    /// Points measured; those that made the metrics known are not among them.
    pub(crate) points: u64,
    pub(crate) connections: u64,
    pub(crate) bytes: u64,
    pub(crate) written_seconds: f64,
    /// Until the server had read everything.
    pub(crate) accepted_seconds: Option<f64>,
    pub(crate) accepted_per_second: Option<f64>,
    /// How long the server went on working afterwards.
    pub(crate) idle_after_seconds: Option<f64>,
    /// Of the server, until it was idle.
    pub(crate) cpu_seconds: Option<f64>,
    /// Of the server, to write out what it still held, when asked to.
    pub(crate) flush_cpu_seconds: Option<f64>,
    /// Both together, in microseconds.
    pub(crate) cpu_per_point: Option<f64>,
    pub(crate) cpu_per_metric: Option<f64>,
    /// Of ourselves, while sending.
    pub(crate) client_cpu_seconds: f64,
    pub(crate) memory_before: Option<Memory>,
    pub(crate) memory: Option<Memory>,
    pub(crate) resident_per_metric: Option<f64>,
    pub(crate) peak_per_metric: Option<f64>,
    pub(crate) disk_before: Option<Disk>,
    pub(crate) disk: Option<Disk>,
    /// All that the folder grew by, over all points sent, those that made the metrics known included.
    pub(crate) disk_per_point: Option<f64>,
    pub(crate) apparent_per_point: Option<f64>,
    pub(crate) verified: Option<Verified>,
}

pub(crate) fn run(args: &IngestArgs, json: bool) -> Result<(), Error> {
    let (receiver, protocol) = args.receiver.chosen();
    let measured = Measured {
        receiver: receiver.to_owned(),
        protocol,
        process: args.pid.map(Process::new).transpose()?,
        disk: args.disk.clone(),
        http: args.http.clone(),
        flush: args.flush_url.clone(),
        timeout: Duration::from_secs(args.timeout),
    };
    let names = Names { root: args.root.clone(), pattern: args.pattern, seed: args.seed };
    let rows = args.points.saturating_add(u32::from(!args.new));
    let load = ending(names, args.values, args.names, rows, args.interval, args.until)?;
    if !(1..=1_024).contains(&args.connections) {
        return Err(Error::Usage(format!("--connections must be from 1 to 1024, got {}", args.connections)));
    }
    let ahead = args.ahead.saturating_mul(1 << 20);
    let plan = Plan { load, new: args.new, connections: args.connections, verify: args.verify, ahead };
    let outcome = measure(&measured, &plan)?;
    if json {
        report::print_json(&outcome);
    } else {
        print!("{}", outcome.table());
    }
    outcome.verified.map_or(Ok(()), |verified| verified.faithful())
}

/// A load whose last row is at `until`, or now.
pub(crate) fn ending(
    names: Names,
    values: Values,
    series: u64,
    rows: u32,
    interval: u32,
    until: Option<u32>,
) -> Result<Load, Error> {
    let until = until.unwrap_or_else(now);
    let last = until.checked_div(interval).map_or(0, |slots| slots * interval);
    let start = last.checked_sub(rows.saturating_sub(1).saturating_mul(interval));
    let start =
        start.ok_or_else(|| Error::Usage(format!("{rows} points every {interval} s reach back beyond 1970")))?;
    Load { names, values, series, rows, start, interval }.check()
}

/// Epoch seconds.
pub(crate) fn now() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(now.as_secs()).unwrap_or(u32::MAX)
}

/// 1. Waits until the server is idle.
/// 2. Sends the row that makes the metrics known.
/// 3. Sends the rest.
/// 4. Waits until the server is idle, has it write everything out, and waits again.
/// 5. Reads points back.
pub(crate) fn measure(server: &Measured, plan: &Plan) -> Result<Outcome, Error> {
    let load = &plan.load;
    let mut outcome = Outcome { names: load.series, connections: plan.connections, ..Outcome::default() };
    let parts = make_parts(plan, server.protocol);
    if server.idle()?.is_none() {
        eprintln!("the server is busy before anything was sent; its figures hold that work, too");
    }
    outcome.disk_before = server.room()?;
    outcome.memory_before = server.process.map(Process::memory).transpose()?;

    let (parts, first) = if plan.new {
        (parts, 0)
    } else {
        eprintln!("sending one point to each of {} metrics, so that they are known", load.series);
        let parts = Prepared::new(&server.receiver, parts, 0..1, plan.ahead)?.send()?.parts;
        server.idle()?;
        (parts, 1)
    };
    outcome.points = load.series * u64::from(load.rows - first);

    eprintln!("making {} points of {} metrics", outcome.points, load.series);
    let prepared = Prepared::new(&server.receiver, parts, first..load.rows, plan.ahead)?;
    if let Some(process) = server.process {
        process.forget_peak();
    }
    let client = Process::new(std::process::id())?;
    let client_before = client.cpu()?;
    let before = server.cpu()?;
    eprintln!("sending them to {} over {} connections", server.receiver, plan.connections);
    let Sent { written, accepted, bytes, parts: _ } = prepared.send()?;
    outcome.client_cpu_seconds = (client.cpu()? - client_before).as_secs_f64();
    outcome.bytes = bytes;
    outcome.written_seconds = written.as_secs_f64();
    outcome.accepted_seconds = accepted.map(|took| took.as_secs_f64());
    outcome.accepted_per_second = outcome.accepted_seconds.map(|seconds| outcome.points as f64 / seconds);

    outcome.idle_after_seconds = server.idle()?.map(|took| took.as_secs_f64());
    let idle = server.cpu()?;
    outcome.cpu_seconds = idle.zip(before).map(|(idle, before)| (idle - before).as_secs_f64());
    if let Some(flush) = &server.flush {
        eprintln!("asking the server to write everything out");
        let answer = Server::new(flush, server.timeout)?.post()?;
        if !(200..300).contains(&answer.status) {
            answer.success()?;
        }
        server.idle()?;
        let flushed = server.cpu()?;
        outcome.flush_cpu_seconds = flushed.zip(idle).map(|(flushed, idle)| (flushed - idle).as_secs_f64());
    }
    outcome.memory = server.process.map(Process::memory).transpose()?;
    outcome.disk = server.settled_room()?;
    if 0 < plan.verify
        && let Some(http) = &server.http
    {
        eprintln!("reading {} metrics back", plan.verify.min(load.series));
        outcome.verified = Some(verify(&mut Server::new(http, server.timeout)?, load, plan.verify)?);
    }
    outcome.divide(load.series * u64::from(load.rows));
    Ok(outcome)
}

fn make_parts(plan: &Plan, protocol: Protocol) -> Vec<Part> {
    let connections = plan.connections.min(plan.load.series);
    (0..connections).map(|part| plan.load.part(part, connections, protocol)).collect()
}

impl Measured {
    pub(crate) fn cpu(&self) -> Result<Option<Duration>, Error> {
        self.process.map(Process::cpu).transpose()
    }

    /// Waits until the server is idle and returns how long it was not, as far as its process is known.
    pub(crate) fn idle(&self) -> Result<Option<Duration>, Error> {
        match self.process {
            Some(process) => process.wait_idle(self.timeout),
            None => {
                // Nothing to look at: time for what servers do within a second or two.
                let started = Instant::now();
                thread::sleep(Duration::from_secs(3));
                Ok(Some(started.elapsed()))
            }
        }
    }

    /// The room when nothing has changed for a while: idle servers may hold what they have not written yet.
    fn settled_room(&self) -> Result<Option<Disk>, Error> {
        let Some(mut room) = self.room()? else { return Ok(None) };
        let started = Instant::now();
        let mut since = started;
        while since.elapsed() < SETTLED && started.elapsed() < SETTLE_TIMEOUT {
            thread::sleep(Duration::from_millis(500));
            let next = self.room()?.unwrap_or_default();
            if next != room {
                (room, since) = (next, Instant::now());
            }
        }
        Ok(Some(room))
    }

    fn room(&self) -> Result<Option<Disk>, Error> {
        self.disk.as_deref().map(Disk::of).transpose()
    }
}

impl Outcome {
    /// Fills in what follows from the rest. `sent` counts all points, measured or not.
    fn divide(&mut self, sent: u64) {
        let cpu = self.cpu_seconds.map(|cpu| (cpu + self.flush_cpu_seconds.unwrap_or(0.0)) * 1e6);
        self.cpu_per_point = cpu.map(|cpu| cpu / self.points as f64);
        self.cpu_per_metric = cpu.map(|cpu| cpu / self.names as f64);
        self.resident_per_metric = self.memory.map(|memory| memory.resident as f64 / self.names as f64);
        self.peak_per_metric = self.memory.map(|memory| memory.peak as f64 / self.names as f64);
        if let Some((before, after)) = self.disk_before.zip(self.disk) {
            let grown = |before: u64, after: u64| (after as f64 - before as f64) / sent as f64;
            self.disk_per_point = Some(grown(before.allocated, after.allocated));
            self.apparent_per_point = Some(grown(before.apparent, after.apparent));
        }
    }

    fn table(&self) -> String {
        let mega = |bytes: u64| bytes as f64 / 1e6;
        let mut rows = vec![
            ("metrics", Some(self.names as f64)),
            ("points", Some(self.points as f64)),
            ("bytes a point sent", Some(self.bytes as f64 / self.points as f64)),
            ("s until written", Some(self.written_seconds)),
            ("s until accepted", self.accepted_seconds),
            ("points/s accepted", self.accepted_per_second),
            ("s until idle after that", self.idle_after_seconds),
            ("s of the server's processors", self.cpu_seconds),
            ("s of them to write out", self.flush_cpu_seconds),
            ("µs of them a point", self.cpu_per_point),
            ("µs of them a metric", self.cpu_per_metric),
            ("s of the client's processors", Some(self.client_cpu_seconds)),
            ("MB resident before", self.memory_before.map(|memory| mega(memory.resident))),
            ("MB resident", self.memory.map(|memory| mega(memory.resident))),
            ("MB of that in no file", self.memory.map(|memory| mega(memory.anonymous))),
            ("MB resident at most", self.memory.map(|memory| mega(memory.peak))),
            ("bytes resident a metric", self.resident_per_metric),
            ("bytes at most a metric", self.peak_per_metric),
            ("MB of disk allocated", self.disk.map(|disk| mega(disk.allocated))),
            ("MB of disk apparent", self.disk.map(|disk| mega(disk.apparent))),
            ("bytes of disk a point", self.disk_per_point),
            ("bytes of disk a point, apparent", self.apparent_per_point),
        ];
        if let Some(Verified { series, checked, missing, wrong, extra }) = self.verified {
            rows.extend([
                ("metrics read back", Some(series as f64)),
                ("points read back", Some(checked as f64)),
                ("of them missing", Some(missing as f64)),
                ("of them wrong", Some(wrong as f64)),
                ("never sent", Some(extra as f64)),
            ]);
        }
        let rows: Vec<Vec<String>> =
            rows.into_iter().map(|(what, value)| vec![what.to_owned(), report::optional(value)]).collect();
        report::table(&report::row(["measure", "value"]), &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names { root: "servers".into(), pattern: Pattern::Hosts, seed: 1 }
    }

    #[test]
    fn the_last_row_is_in_the_slot_of_the_end() {
        let load = ending(names(), Values::Mixed, 10, 30, 60, Some(1_700_000_059)).expect("the load is sendable");
        assert_eq!((load.time(29), load.start), (1_700_000_040, 1_700_000_040 - 29 * 60));
        assert!(ending(names(), Values::Mixed, 10, 30, 60, Some(100)).is_err());
        assert!(ending(names(), Values::Mixed, 10, 30, 0, Some(100)).is_err());
    }

    #[test]
    fn costs_are_divided_by_what_was_measured_and_disk_by_all_that_was_sent() {
        let disk = |allocated| Some(Disk { allocated, ..Disk::default() });
        let mut outcome = Outcome {
            names: 100,
            points: 1_000,
            cpu_seconds: Some(0.75),
            flush_cpu_seconds: Some(0.25),
            disk_before: disk(5_000),
            disk: disk(6_100),
            ..Outcome::default()
        };
        outcome.divide(1_100);
        assert_eq!(outcome.cpu_per_point, Some(1_000.0));
        assert_eq!(outcome.cpu_per_metric, Some(10_000.0));
        assert_eq!(outcome.disk_per_point, Some(1.0));
    }
}
