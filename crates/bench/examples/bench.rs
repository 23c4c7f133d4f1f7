//! `plumbago bench` by itself, for machines where the whole program is not wanted.

use std::process::ExitCode;

use clap::Parser;

/// Loads and measures any Graphite server.
#[derive(Parser)]
struct Program {
    #[command(flatten)]
    bench: bench::Args,
}

fn main() -> ExitCode {
    match bench::run(Program::parse().bench) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
