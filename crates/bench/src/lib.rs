//! `plumbago bench`: loads and measures any Graphite server, given its addresses.
//!
//! `bench` and the server have no code of this project in common: what it sends and what it expects to
//! read back are its own, so that a mistake on one side cannot hide one on the other. Plain threads and
//! blocking sockets send the points, because the client usually runs on the server's own cores.
//!
//! ```
//! use clap::Parser;
//!
//! #[derive(Parser)]
//! struct Program {
//!     #[command(flatten)]
//!     bench: bench::Args,
//! }
//!
//! let program = Program::parse_from(["bench", "find", "--http", "https://localhost", "--query", "a.*"]);
//! let error = bench::run(program.bench).expect_err("bench speaks HTTP only");
//! assert_eq!(error.to_string(), "https://localhost: https is not supported, only http");
//! ```

mod error;
mod report;

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
mod visible;

use clap::Subcommand;

pub use error::Error;

/// The measurement to make. Each command prints a table for people on standard output, or JSON with
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
    /// The whole table, for one server or several in turn
    All(all::AllArgs),
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
