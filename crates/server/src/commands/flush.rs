//! `plumbago flush`: makes a running server write all points in memory to the store, and waits for the end.

use std::{io::IsTerminal, process::ExitCode, sync::mpsc, time::Duration};

use anyhow::bail;
use host::Disk;
use serde_json::Value;

use super::ask::{reason, request, server};
use crate::{cli::FlushOptions, config, output::print};

/// Interval between two reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Asks the server, shows on a terminal how many points are left, and returns when all are in the store.
pub fn flush(options: &FlushOptions, disk: &dyn Disk) -> anyhow::Result<ExitCode> {
    let settings = config::load(&options.config, options.overrides(), disk)?;
    let without = "the server has no HTTP port (listen.http is off); set one, or stop the server to write its points";
    let server = server(&settings, without, disk)?;
    let (done, answer) = mpsc::channel();
    let asked = server.clone();
    std::thread::spawn(move || done.send(request(&asked, "POST", "/admin/flush", "")));
    let shows_progress = std::io::stderr().is_terminal();
    let (status, body) = loop {
        match answer.recv_timeout(PROGRESS_EVERY) {
            Ok(answer) => break answer?,
            Err(mpsc::RecvTimeoutError::Timeout) if shows_progress => {
                if let Ok((200, body)) = request(&server, "GET", "/admin/status", "") {
                    let number = |key: &str| body.get(key).and_then(Value::as_u64).unwrap_or(0);
                    let is_failing = body.get("store_failing").and_then(Value::as_bool).unwrap_or(false);
                    let unsynced = if is_failing { number("unsynced_points") } else { 0 };
                    let left = number("held_slots") + number("parked_points") + unsynced;
                    let why = if is_failing { "; the store takes nothing to its disk at present" } else { "" };
                    eprint!("\r{left} points left to write{why}  ");
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => bail!("the request ended without an answer"),
        }
    };
    if shows_progress {
        eprint!("\r{:90}\r", "");
    }
    if status != 200 {
        bail!("the server at {server} cannot write all points: {}", reason(&body));
    }
    print("all points are in the store\n");
    Ok(ExitCode::SUCCESS)
}
