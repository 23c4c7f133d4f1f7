//! The program's log: its destination and format.

use std::io;

use crate::{
    lines::{LastLines, Lines},
    settings::{Log, LogFormat},
};

/// Sends events to standard error from now on. Once per process. The last lines are written when the answer is dropped.
pub fn start(settings: &Log) -> anyhow::Result<LastLines> {
    let dropped = |count| format!("{count} log lines were dropped: nothing read them in time\n");
    let (lines, last) = Lines::written_to("log", io::stderr(), dropped)?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(settings.level.filter())
        .with_writer(move || lines.clone())
        .with_target(false)
        // A full disk or a closed pipe must not stop the program, nor add lines to the log.
        .log_internal_errors(false);
    let started = match settings.format {
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
        LogFormat::Auto | LogFormat::Text => {
            subscriber.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).try_init()
        }
    };
    started.map_err(|error| anyhow::anyhow!("cannot start the log: {error}"))?;
    Ok(last)
}
