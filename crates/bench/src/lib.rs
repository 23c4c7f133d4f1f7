//! `plumbago bench`: loads and measures any Graphite server, known by its addresses alone.
//!
//! `bench` and the server have no code of this project in common: what it sends and what it expects to
//! read back are its own, so that a mistake on one side cannot hide one on the other. Plain threads and
//! blocking sockets send the points, because the client usually runs on the server's own cores.

mod names;
mod values;

mod encode;
mod load;
mod send;

mod disk;
mod process;
mod rest;

mod http;
mod latency;
mod verify;

mod readable;

mod outcome;

mod cpu_time;
mod measured;

mod measure;

mod all;
mod find;
mod ingest;
mod render;
mod report;
mod visible;

use clap::Subcommand;

/// What to measure, and where. Each command prints a table for people on standard output, or JSON with
/// `--json`; progress goes to standard error.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,

    /// Print JSON instead of a table
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send points; measure points a second, CPU and memory of the server, its disk, and read points back
    Ingest(ingest::IngestArgs),
    /// Time /metrics/find
    Find(find::FindArgs),
    /// Time /render
    Render(render::RenderArgs),
    /// Time from sending a point to reading it
    Visible(visible::VisibleArgs),
    /// The whole table, for one server or for several side by side
    All(all::AllArgs),
}

/// Why a measurement could not be made. All are for the person at the terminal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments contradict each other or are incomplete.
    #[error("{0}")]
    Usage(String),
    /// A socket could not be opened or failed while in use.
    #[error("{what} {address}: {source}")]
    Socket {
        /// What was being done, e.g. `connecting to`.
        what: &'static str,
        /// Host and port.
        address: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The server answered something that is not the answer.
    #[error("{url}: {why}")]
    Answer {
        /// What was asked for.
        url: String,
        /// What is wrong with the answer.
        why: String,
    },
    /// The process to be measured cannot be read under /proc.
    #[error("process {pid} cannot be measured: {why}")]
    Process {
        /// The process.
        pid: u32,
        /// The reason.
        why: String,
    },
    /// A folder to be measured cannot be read.
    #[error("folder {folder} cannot be measured: {source}")]
    Disk {
        /// The folder.
        folder: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Points sent did not become readable in time. The table has been printed by then, unless those were the points that
    /// make metrics known.
    #[error(
        "after {seconds:.1} s the points of {whole} of {metrics} metrics could be read, and of the next one {lacking} could \
         not; --timeout gives them longer"
    )]
    Unreadable {
        /// Metrics looked at.
        metrics: u64,
        /// Those whose points were all there.
        whole: u64,
        /// Points that the metric behind them lacked.
        lacking: u64,
        /// How long it was waited.
        seconds: f64,
    },
    /// Points read back are not the points sent. The table has been printed by then.
    #[error("of {checked} points read back, {missing} were missing, {wrong} wrong and {extra} never sent")]
    Unfaithful {
        /// Points looked at.
        checked: u64,
        /// Sent, and null or absent.
        missing: u64,
        /// Sent, and another value.
        wrong: u64,
        /// A value where none was sent.
        extra: u64,
    },
}

/// Runs one measurement and prints it.
pub fn run(args: Args) -> Result<(), Error> {
    match args.command {
        Command::Ingest(command) => ingest::run(&command, args.json),
        Command::Find(command) => find::run(&command, args.json),
        Command::Render(command) => render::run(&command, args.json),
        Command::Visible(command) => visible::run(&command, args.json),
        Command::All(command) => all::run(&command, args.json),
    }
}
