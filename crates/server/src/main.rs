//! The program `plumbago`: reads the command line and runs the subcommand.

mod addresses;
mod admin;
mod allocator;
mod asked;
mod backups;
mod carbon_doors;
mod carbon_files;
mod cardinality;
mod cassandra_options;
mod certificates;
mod cli;
mod clock;
mod commands;
mod config;
mod data_folder;
mod deletion;
mod descriptors;
mod drain;
mod event_deletion;
mod exposure;
mod health;
mod ignored_signals;
mod intake;
mod limits;
mod lines;
mod listen;
mod log;
mod metric_names;
mod metrics;
mod node;
mod output;
mod peers;
mod points_body;
mod process;
mod quotas;
mod readiness;
mod request_log;
mod rules_watcher;
mod self_metrics;
mod serve;
mod settings;
mod settled;
mod status;
mod stop;
mod timed;
mod tokens;
mod trash;
mod upkeep;

use std::{process::ExitCode, sync::Arc};

use clap::Parser;
use host::{Host, NotedSyncs};

use cli::{Cli, Command};

fn main() -> ExitCode {
    allocator::configure();
    ignored_signals::ignore();
    // Points, backups and tokens are for this user alone.
    host::make_new_files_private();
    let mut host = Host::system();
    host.disk = Arc::new(NotedSyncs::new(host.disk));
    let cli = Cli::parse();
    let done = match cli.command.unwrap_or(Command::Serve(cli.serve)) {
        Command::Serve(options) => serve::serve(&options, &host).map(|()| ExitCode::SUCCESS),
        Command::CheckConfig(options) => commands::check_config(&options, &host.disk),
        Command::Explain(options) => commands::explain(&options, &*host.disk),
        Command::Flush(options) => commands::flush(&options, &*host.disk),
        Command::Drain(options) => commands::drain(&options, &*host.disk),
        Command::Backup(options) => commands::backup(&options, &host),
        Command::Restore(options) => commands::restore(&options, &host),
        Command::Verify(options) => commands::verify(&options, &host),
        Command::Repair(options) => commands::repair(&options, &host),
        Command::Cardinality(options) => commands::cardinality(&options, &*host.disk),
        Command::Delete(options) => commands::delete(&options, &*host.disk),
        Command::Token(options) => commands::token(&options, &host),
        Command::Schema(options) => commands::schema(&options, &host),
        Command::Bench(options) => bench::run(options).map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Command::Settings(options) => commands::settings(&options, &*host.disk),
    };
    done.unwrap_or_else(|error| {
        eprintln!("plumbago: {}", output::with_causes(&error));
        ExitCode::FAILURE
    })
}
