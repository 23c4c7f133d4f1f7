//! Log lines: where they go and what they look like.

use std::io;

use anyhow::Context;
use tracing_subscriber::EnvFilter;

use crate::settings::{Log, LogFormat};

/// Sends events to standard error from now on, once for the process.
pub fn start(settings: &Log) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&settings.level).with_context(|| {
        format!("log.level '{}' is no level or filter; use info, or info,plumbago=debug", settings.level)
    })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    let started = match settings.format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Auto | LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("logs cannot be started: {error}"))
}
