//! `plumbago bench ingest`: sends points to one server and prints what that cost.

use std::{path::PathBuf, time::Duration};

use crate::{
    Error,
    encode::Protocol,
    load::ending,
    measure::{Plan, measure},
    measured::{MeasuredServer, idle_timeout, stores},
    names::{Names, Pattern},
    process::Process,
    report,
    values::Values,
};

/// The points to send, and the server to measure.
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
    /// First component of all names
    #[arg(long, default_value = "servers")]
    root: String,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The metrics are new: creating them is part of the measurement. Otherwise a row sent before creates them
    #[arg(long)]
    new: bool,
    /// Process of the server, to measure its processor time and memory
    #[arg(long)]
    pid: Option<u32>,
    /// Process of a store that the server writes to, such as a Cassandra; may be given several times, for the nodes of a
    /// cluster on this machine. Its processor time is reported apart from the server's
    ///
    /// Processor time counts until server and stores are idle together: each uses less than 3 % of a processor for
    /// 2.5 s. Background work of a JVM counts too: make the load large.
    #[arg(long, value_name = "PID")]
    store_pid: Vec<u32>,
    /// Folder of the server, to measure its size
    #[arg(long)]
    disk: Option<PathBuf>,
    /// HTTP address of the server, to read points back
    #[arg(long)]
    http: Option<String>,
    /// Metrics to read back and compare
    #[arg(long, default_value_t = 0, requires = "http")]
    verify: u64,
    /// Address to post to after the points are sent. It makes the server write out all it holds, which is then measured too
    #[arg(long)]
    flush_url: Option<String>,
    /// Post to --flush-url as soon as the points are accepted, not when the server is idle, and count points a second until
    /// it has answered
    #[arg(long, requires = "flush_url")]
    flush_at_once: bool,
    /// Points count as stored when those of this many metrics can be read over --http, complete and unchanged. For servers
    /// that do not show when they have written, such as bg-carbon-cache. 0 does not wait for that
    ///
    /// The metrics are spread evenly over all and include the last. bench asks for the first with pauses that grow to a
    /// fiftieth of the time waited, then for the others together. The time of the answers is part of the figure, and their
    /// cost is part of the store's processor time: make the load large.
    ///
    /// The server at --http must show stored points only. For bg-carbon-cache that is a graphite-web
    /// with BigGraphite's Finder (STORAGE_FINDERS = ['biggraphite.plugins.graphite.Finder']) and CARBONLINK_HOSTS = [],
    /// because otherwise it shows points that carbon still has in memory; or a second Plumbago over the same keyspace, with
    /// globs = "cassandra" so that it sees new names at once. For a server that shows points before they are stored, such
    /// as the Plumbago that receives them, use --flush-at-once instead.
    ///
    /// carbon's CARBON_METRIC_INTERVAL must not be 0 for bg-carbon-cache: its plugin then spins, and the figures include
    /// most of a processor and a part of Cassandra's. The output says which process was not idle.
    ///
    /// Points not readable after --timeout make the command fail; bg-carbon-cache may need minutes for a large load.
    #[arg(long, value_name = "METRICS", default_value_t = 0, requires = "http")]
    until_readable: u64,
    /// Mebibytes of points made before the clock starts
    #[arg(long, default_value_t = 1_024)]
    ahead: u64,
    /// Seconds to wait for an answer, for points to become readable, and for the server to become idle
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// Seconds to wait for server and stores to become idle; --timeout when absent, or 30 with --until-readable. For a
    /// server that never is idle, such as bg-carbon-cache, processor time then counts until the points are readable, and
    /// the output says so
    #[arg(long)]
    idle_timeout: Option<u64>,
}

/// The address that receives the points.
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

pub(crate) fn run(args: &IngestArgs, json: bool) -> Result<(), Error> {
    let (receiver, protocol) = args.receiver.chosen();
    let measured = MeasuredServer {
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
