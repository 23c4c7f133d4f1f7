//! Sending points, and what that costs the server.

use std::{
    ops::Range,
    path::PathBuf,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::{
    Error,
    disk::Disk,
    encode::Protocol,
    http::Server,
    load::{Load, Part},
    names::{Names, Pattern},
    outcome::{Outcome, Until},
    process::Process,
    readable::{self, Readable},
    report,
    rest::{self, Rest},
    send::{Prepared, Sent},
    values::Values,
    verify::verify,
};

/// A folder is settled when it has kept its size for so long. VictoriaMetrics writes what it holds after five seconds.
const SETTLED: Duration = Duration::from_secs(7);
/// … and is looked at for no longer than this, because some servers write a little all the time.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a server may take to become idle when nobody says, and reading back tells when its points are stored.
const IDLE_TIMEOUT_WHEN_READABLE: Duration = Duration::from_secs(30);
/// What servers without a process to look at are given instead, for what they do within a second or two.
const IDLE_UNSEEN: Duration = Duration::from_secs(3);

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
    /// Process of a store that the server writes to, such as a Cassandra; may be given several times, for the nodes of a
    /// cluster on this machine. Its processor time is reported apart from the server's
    ///
    /// Processor time counts until server and stores are idle at once, which is: until each uses less than 3 % of a
    /// processor for 2.5 s. What a JVM does by itself meanwhile is counted too: make the load large.
    #[arg(long, value_name = "PID")]
    store_pid: Vec<u32>,
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
    /// Post to --flush-url as soon as the points are accepted, not when the server is idle, and count points a second until
    /// it has answered
    #[arg(long, requires = "flush_url")]
    flush_at_once: bool,
    /// Points are stored when those of so many metrics can be read over --http, whole and as they were sent: for servers
    /// that write by themselves and do not say when, such as bg-carbon-cache. 0 does not wait for that
    ///
    /// The metrics are spread evenly over all, and the last is one of them. The first is asked for with pauses that grow to a
    /// fiftieth of the time waited, then the others together. The answers' time is in the figure, and what they cost the
    /// store is in its processor time: make the load large.
    ///
    /// Whoever answers at --http must know what is stored and nothing else. For bg-carbon-cache that is a graphite-web
    /// with BigGraphite's Finder (STORAGE_FINDERS = ['biggraphite.plugins.graphite.Finder']) and CARBONLINK_HOSTS = [],
    /// because otherwise it shows what carbon still holds in memory; or a second Plumbago over the same keyspace, with
    /// globs = "cassandra" so that it sees new names at once. A server whose own points are readable before they are
    /// stored, such as the Plumbago that receives them, wants --flush-at-once instead.
    ///
    /// carbon's CARBON_METRIC_INTERVAL must not be 0 for bg-carbon-cache: its plugin then never rests but spins, and has
    /// most of a processor and a part of Cassandra's in its figures. The output says where somebody did not rest.
    ///
    /// Points not readable after --timeout are a failure; bg-carbon-cache may need minutes for a large load.
    #[arg(long, value_name = "METRICS", default_value_t = 0, requires = "http")]
    until_readable: u64,
    /// Mebibytes of points made before the clock starts
    #[arg(long, default_value_t = 1_024)]
    ahead: u64,
    /// Seconds to wait for an answer, for points to become readable, and for the server to become idle
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// Seconds to wait for server and stores to become idle; --timeout when absent, or 30 with --until-readable, because
    /// then a server that never is idle, such as bg-carbon-cache, has its processor time counted until the points were
    /// readable. The output says where that was so
    #[arg(long)]
    idle_timeout: Option<u64>,
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
    /// What it writes to, if those are processes of their own.
    pub(crate) stores: Vec<Process>,
    pub(crate) disk: Option<PathBuf>,
    pub(crate) http: Option<String>,
    pub(crate) flush: Option<String>,
    /// Whether everything is written out at once, or when the server is idle.
    pub(crate) flush_at_once: bool,
    /// Metrics whose points must be readable before they count as stored; 0 for none.
    pub(crate) readable: u64,
    pub(crate) timeout: Duration,
    /// How long it may take to become idle.
    pub(crate) idle_timeout: Duration,
}

/// The same of a server and of its stores.
#[derive(Debug, Clone, Copy)]
struct Both<T> {
    server: T,
    stores: T,
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

pub(crate) fn run(args: &IngestArgs, json: bool) -> Result<(), Error> {
    let (receiver, protocol) = args.receiver.chosen();
    let measured = Measured {
        receiver: receiver.to_owned(),
        protocol,
        process: args.pid.map(Process::new).transpose()?,
        stores: stores(args.pid, &args.store_pid)?,
        disk: args.disk.clone(),
        http: args.http.clone(),
        flush: args.flush_url.clone(),
        flush_at_once: args.flush_at_once,
        readable: args.until_readable,
        timeout: Duration::from_secs(args.timeout),
        idle_timeout: idle_timeout(args.idle_timeout, args.until_readable, args.timeout),
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
    outcome.faithful()
}

/// The processes of a store, each once and none of them the server's: they would be counted twice.
pub(crate) fn stores(server: Option<u32>, stores: &[u32]) -> Result<Vec<Process>, Error> {
    for (place, store) in stores.iter().enumerate() {
        if server == Some(*store) || stores.iter().take(place).any(|other| other == store) {
            return Err(Error::Usage(format!("process {store} is given twice, and its time would be counted twice")));
        }
    }
    stores.iter().map(|store| Process::new(*store)).collect()
}

/// How long to wait for a server to become idle, in whole seconds when the user says; `readable` is how many metrics are
/// read back to know when points are stored.
pub(crate) fn idle_timeout(said: Option<u64>, readable: u64, timeout: u64) -> Duration {
    let otherwise = Duration::from_secs(timeout);
    let otherwise = if 0 < readable { otherwise.min(IDLE_TIMEOUT_WHEN_READABLE) } else { otherwise };
    said.map_or(otherwise, Duration::from_secs)
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

/// 1. Waits until the server and its stores are idle.
/// 2. Sends the row that makes the metrics known.
/// 3. Sends the rest, and waits until it is stored, where that can be told.
/// 4. Waits until the server and its stores are idle, has everything written out if that is still to do, and waits again.
/// 5. Reads points back.
pub(crate) fn measure(server: &Measured, plan: &Plan) -> Result<Outcome, Error> {
    let load = &plan.load;
    let mut outcome = Outcome { names: load.series, connections: plan.connections, ..Outcome::default() };
    let parts = make_parts(plan, server.protocol);
    let mut resting = server.rest()?;
    outcome.disk_before = server.room()?;
    outcome.memory_before = server.process.map(Process::memory).transpose()?;

    let (parts, first) = if plan.new {
        (parts, 0)
    } else {
        eprintln!("sending one point to each of {} metrics, so that they are known", load.series);
        let parts = Prepared::new(&server.receiver, parts, 0..1, plan.ahead)?.send()?.parts;
        // Known to the store, too: creating a metric there is another measure.
        if !server.stores.is_empty() || server.flush_at_once {
            server.write_out()?;
        }
        if let Some(Readable { metrics, whole, lacking, seconds, .. }) =
            server.until_readable(load, 0..1)?.filter(|readable| !readable.complete())
        {
            return Err(Error::Unreadable { metrics, whole, lacking, seconds });
        }
        resting = server.rest()?;
        (parts, 1)
    };
    outcome.notes.extend(busy_before("the server", resting.server));
    outcome.notes.extend(busy_before("the store", resting.stores));
    outcome.points = load.series * u64::from(load.rows - first);

    eprintln!("making {} points of {} metrics", outcome.points, load.series);
    let prepared = Prepared::new(&server.receiver, parts, first..load.rows, plan.ahead)?;
    if let Some(process) = server.process {
        process.forget_peak();
    }
    let client = Process::new(std::process::id())?;
    let client_before = client.cpu()?;
    let before = server.used()?;
    eprintln!("sending them to {} over {} connections", server.receiver, plan.connections);
    let begun = Instant::now();
    let Sent { written, accepted, bytes, parts: _ } = prepared.send()?;
    outcome.client_cpu_seconds = (client.cpu()? - client_before).as_secs_f64();
    outcome.bytes = bytes;
    outcome.written_seconds = written.as_secs_f64();
    outcome.accepted_seconds = accepted.map(|took| took.as_secs_f64());
    let sent = Instant::now();

    if server.flush_at_once {
        server.write_out()?;
    }
    outcome.readable = server.until_readable(load, first..load.rows)?;
    let told = server.flush_at_once || outcome.readable.is_some();
    let stored = told && outcome.readable.is_none_or(|readable| readable.complete());
    outcome.stored_seconds = stored.then(|| begun.elapsed().as_secs_f64());
    let used = if stored { Some(server.used()?) } else { None };

    let waited = sent.elapsed();
    let resting = server.rest()?;
    let idle_after = |rest: Option<Rest>| Some((waited + rest?.after?).as_secs_f64());
    outcome.idle_after_seconds = idle_after(resting.server);
    outcome.store_idle_after_seconds = idle_after(resting.stores);
    let mut counted = resting.counted(used);
    let spent = counted.since(before);
    (outcome.cpu_seconds, outcome.store_cpu_seconds) = (spent.server, spent.stores);
    let mut resting_last = resting;
    if server.flush.is_some() && !server.flush_at_once {
        server.write_out()?;
        let used = server.used()?;
        resting_last = server.rest()?;
        let flushed = resting_last.counted(Some(used));
        let spent = flushed.since(counted.cpu());
        (outcome.flush_cpu_seconds, outcome.store_flush_cpu_seconds) = (spent.server, spent.stores);
        counted = flushed;
    }
    outcome.cpu_until = counted.server.map(|counted| counted.until);
    outcome.store_cpu_until = counted.stores.map(|counted| counted.until);
    for (who, rest, counted) in
        [("the server", resting_last.server, counted.server), ("the store", resting_last.stores, counted.stores)]
    {
        outcome.notes.extend(busy_after(who, rest, counted, server.idle_timeout));
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

/// Processor time, and up to when it was counted.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Counted {
    cpu: Duration,
    until: Until,
}

impl Both<Option<Rest>> {
    /// Counts until each was idle. What never was so counts until everything was stored, for which `stored` is what was used
    /// by then; or else until the wait was over.
    fn counted(self, stored: Option<Both<Option<Duration>>>) -> Both<Option<Counted>> {
        let count = |rest: Option<Rest>, stored: Option<Duration>| {
            let rest = rest?;
            Some(match (rest.after, stored) {
                (Some(_), _) => Counted { cpu: rest.cpu, until: Until::Idle },
                (None, Some(cpu)) => Counted { cpu, until: Until::Stored },
                (None, None) => Counted { cpu: rest.cpu, until: Until::Timeout },
            })
        };
        Both {
            server: count(self.server, stored.and_then(|stored| stored.server)),
            stores: count(self.stores, stored.and_then(|stored| stored.stores)),
        }
    }
}

impl Both<Option<Counted>> {
    fn cpu(self) -> Both<Option<Duration>> {
        Both { server: self.server.map(|counted| counted.cpu), stores: self.stores.map(|counted| counted.cpu) }
    }

    /// Seconds of processor time since then.
    fn since(self, before: Both<Option<Duration>>) -> Both<Option<f64>> {
        let spent = |counted: Option<Counted>, before: Option<Duration>| {
            Some(counted?.cpu.saturating_sub(before?).as_secs_f64())
        };
        Both { server: spent(self.server, before.server), stores: spent(self.stores, before.stores) }
    }
}

/// What to know of a server or store that did not rest before the clock started.
fn busy_before(who: &str, rest: Option<Rest>) -> Option<String> {
    let rest = rest.filter(|rest| rest.after.is_none())?;
    let share = report::number(rest.share * 100.0);
    Some(format!(
        "{who} used {share} % of a processor before the points were sent: its processor time holds that work, too"
    ))
}

/// What to know of a server or store that did not rest afterwards: up to when its time is counted.
fn busy_after(who: &str, rest: Option<Rest>, counted: Option<Counted>, waited: Duration) -> Option<String> {
    let share = report::number(rest?.share * 100.0);
    let waited = waited.as_secs();
    match counted?.until {
        Until::Idle => None,
        Until::Stored => Some(format!(
            "{who} was not idle within {waited} s after all points were stored, and still used {share} % of a processor: \
             its processor time counts until they were stored"
        )),
        Until::Timeout => Some(format!(
            "{who} was not idle within {waited} s, and still used {share} % of a processor: its processor time counts until \
             then, and holds whatever else it did"
        )),
    }
}

fn make_parts(plan: &Plan, protocol: Protocol) -> Vec<Part> {
    let connections = plan.connections.min(plan.load.series);
    (0..connections).map(|part| plan.load.part(part, connections, protocol)).collect()
}

impl Measured {
    /// Processor time so far.
    fn used(&self) -> Result<Both<Option<Duration>>, Error> {
        Ok(Both { server: rest::cpu(self.process.as_slice())?, stores: rest::cpu(&self.stores)? })
    }

    /// Waits until the server and its stores are idle, as far as their processes are known, and for a bounded time.
    fn rest(&self) -> Result<Both<Option<Rest>>, Error> {
        if self.process.is_none() && self.stores.is_empty() {
            thread::sleep(IDLE_UNSEEN);
        }
        let [server, stores] = rest::wait([self.process.as_slice(), &self.stores], self.idle_timeout)?;
        Ok(Both { server, stores })
    }

    /// Has the server write out all it holds, where there is an address for that.
    fn write_out(&self) -> Result<(), Error> {
        let Some(flush) = &self.flush else { return Ok(()) };
        eprintln!("asking the server to write everything out");
        let answer = Server::new(flush, self.timeout)?.post()?;
        if !(200..300).contains(&answer.status) {
            answer.success()?;
        }
        Ok(())
    }

    /// Waits until these rows can be read, where that was asked for.
    fn until_readable(&self, load: &Load, rows: Range<u32>) -> Result<Option<Readable>, Error> {
        let Some(http) = self.http.as_deref().filter(|_| 0 < self.readable) else { return Ok(None) };
        eprintln!("waiting until the points of {} metrics can be read", self.readable.min(load.series));
        let mut server = Server::new(http, self.timeout)?;
        readable::wait(&mut server, load, &rows, self.readable, self.timeout).map(Some)
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

    fn resting(after: Option<u64>, cpu: u64) -> Option<Rest> {
        Some(Rest { after: after.map(Duration::from_secs), cpu: Duration::from_secs(cpu), share: 0.25 })
    }

    #[test]
    fn time_counts_until_idle_or_else_until_stored_or_else_until_the_wait_was_over() {
        let rest = Both { server: resting(None, 30), stores: resting(Some(1), 9) };
        let seconds = Duration::from_secs;
        let used = Both { server: Some(seconds(20)), stores: Some(seconds(8)) };
        let before = Both { server: Some(seconds(10)), stores: Some(seconds(5)) };
        let counted = rest.counted(Some(used));
        assert_eq!(counted.server, Some(Counted { cpu: seconds(20), until: Until::Stored }));
        assert_eq!(counted.stores, Some(Counted { cpu: seconds(9), until: Until::Idle }));
        let spent = counted.since(before);
        assert_eq!((spent.server, spent.stores), (Some(10.0), Some(4.0)));
        let counted = rest.counted(None);
        assert_eq!(counted.server, Some(Counted { cpu: seconds(30), until: Until::Timeout }));
        assert_eq!(Both { server: None, stores: None }.counted(Some(used)).server, None);
    }

    #[test]
    fn a_server_that_never_rests_is_named_with_the_moment_it_counts_to() {
        let stored = busy_after(
            "the server",
            resting(None, 1),
            Some(Counted { cpu: Duration::ZERO, until: Until::Stored }),
            Duration::from_secs(30),
        );
        let expected = "the server was not idle within 30 s after all points were stored, and still used 25.0 % of a \
                        processor: its processor time counts until they were stored";
        assert_eq!(stored.as_deref(), Some(expected));
        let idle = Some(Counted { cpu: Duration::ZERO, until: Until::Idle });
        assert_eq!(busy_after("the server", resting(Some(1), 1), idle, Duration::ZERO), None);
        assert_eq!(busy_before("the store", resting(Some(1), 1)), None);
        assert!(busy_before("the store", resting(None, 1)).is_some_and(|note| note.contains("the store used 25.0 %")));
    }

    #[test]
    fn no_process_is_counted_twice() {
        let me = std::process::id();
        assert_eq!(stores(None, &[me]).map(|stores| stores.len()).ok(), Some(1));
        assert!(matches!(stores(Some(me), &[me]), Err(Error::Usage(_))));
        assert!(matches!(stores(None, &[me, me]), Err(Error::Usage(_))));
        assert!(matches!(stores(None, &[u32::MAX]), Err(Error::Process { .. })));
    }

    #[test]
    fn a_server_whose_points_are_waited_for_is_idled_for_half_a_minute_unless_told_otherwise() {
        let seconds = Duration::from_secs;
        assert_eq!(idle_timeout(None, 0, 300), seconds(300));
        assert_eq!(idle_timeout(None, 50, 300), seconds(30));
        assert_eq!(idle_timeout(None, 50, 10), seconds(10));
        assert_eq!(idle_timeout(Some(120), 50, 300), seconds(120));
    }
}
