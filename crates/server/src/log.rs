//! Log lines: their destination and format.

use std::io;

use crate::settings::{Log, LogFormat};

/// Sends events to standard error from now on. Once per process.
pub fn start(settings: &Log) -> anyhow::Result<()> {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(settings.level.filter())
        .with_writer(io::stderr)
        .with_target(false)
        // A full disk or a closed pipe must not stop the program, nor add lines to the log.
        .log_internal_errors(false);
    let started = match settings.format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Auto | LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot start the log: {error}"))
}
