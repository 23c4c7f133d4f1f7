//! The program `plumbago`: reads the command line and does what it says.

mod admin;
mod cli;
mod cluster;
mod flush;
mod log;
mod memory;
mod metrics;
mod own;
mod process;
mod rules;
mod schema;
mod serve;
mod settings;
mod shared_names;
mod table_globs;
mod timed;
mod touches;
mod unread_names;
mod write_clock;
mod writer;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use anyhow::Context;
use clap::Parser;

use cli::{Cli, Command, ConfigOption, SettingsOptions};
use settings::{Settings, Sources};

fn main() -> ExitCode {
    memory::settle_allocator();
    let cli = Cli::parse();
    let done = match cli.command.unwrap_or(Command::Serve(cli.serve)) {
        Command::Serve(options) => serve::serve(&options).map(|()| ExitCode::SUCCESS),
        Command::CheckConfig(options) => rules::check(&options),
        Command::Explain(options) => rules::explain(&options),
        Command::Flush(options) => flush::flush(&options),
        Command::Schema(options) => schema::schema(&options),
        Command::Bench(options) => bench::run(options).map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Command::Settings(options) => print_settings(&options),
    };
    done.unwrap_or_else(|error| {
        eprintln!("plumbago: {error:#}");
        ExitCode::FAILURE
    })
}

fn print_settings(options: &SettingsOptions) -> anyhow::Result<ExitCode> {
    if options.markdown {
        say(&settings::markdown());
    } else {
        say(&settings::documented_toml(&load_settings(&options.config, vec![])?));
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes to standard output. A reader that has seen enough (`plumbago settings | head`) is no error.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The settings in force: file, environment, options.
fn load_settings(
    config: &ConfigOption,
    options: Vec<(&'static str, &'static str, String)>,
) -> anyhow::Result<Settings> {
    let sources = sources(config, options)?;
    settings::load(&sources).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(settings::Problem::to_string).collect();
        anyhow::anyhow!(
            "the settings are not usable; `plumbago settings` prints what they may be\n  {}",
            lines.join("\n  ")
        )
    })
}

fn sources(config: &ConfigOption, options: Vec<(&'static str, &'static str, String)>) -> anyhow::Result<Sources> {
    let named = config.config.clone().or_else(|| std::env::var_os("PLUMBAGO_CONFIG").map(Into::into));
    let file = match named {
        Some(path) => {
            let text = std::fs::read_to_string(&path);
            let text = text.with_context(|| {
                format!(
                    "cannot read the settings file {}; `plumbago settings` prints one to start from",
                    path.display()
                )
            })?;
            Some((path.display().to_string(), text))
        }
        None => None,
    };
    // A variable that is not UTF-8 cannot be one of ours.
    let environment =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Ok(Sources { file, environment: environment.collect(), options })
}
