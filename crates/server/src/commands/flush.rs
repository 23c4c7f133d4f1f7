//! `plumbago flush`: makes a running server write all points in memory to the store, and waits for the end.

use std::{
    io::{IsTerminal, Read, Write},
    net::TcpStream,
    process::ExitCode,
    sync::mpsc,
    time::Duration,
};

use anyhow::{Context, bail};
use host::Disk;
use serde_json::Value;

use crate::{cli::FlushOptions, config, output::print};

/// Interval between two reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Asks the server, shows on a terminal how many points are left, and returns when all are in the store.
pub fn flush(options: &FlushOptions, disk: &dyn Disk) -> anyhow::Result<ExitCode> {
    let settings = config::load(&options.config, options.overrides(), disk)?;
    let listens = settings
        .listen
        .http
        .context("the server has no HTTP port (listen.http is off); set one, or stop the server to write its points")?;
    // A server that listens on all addresses is reachable on the local one.
    let address = listens.as_str().replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:");
    let (done, answer) = mpsc::channel();
    let asked = address.clone();
    std::thread::spawn(move || done.send(request(&asked, "POST", "/admin/flush")));
    let shows_progress = std::io::stderr().is_terminal();
    let (status, body) = loop {
        match answer.recv_timeout(PROGRESS_EVERY) {
            Ok(answer) => break answer?,
            Err(mpsc::RecvTimeoutError::Timeout) if shows_progress => {
                if let Ok((200, body)) = request(&address, "GET", "/admin/status") {
                    let number = |key: &str| body.get(key).and_then(Value::as_u64).unwrap_or(0);
                    let left = number("held_slots") + number("parked_points");
                    let is_failing = body.get("store_failing").and_then(Value::as_bool).unwrap_or(false);
                    let why = if is_failing { "; the store rejects them at present" } else { "" };
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
        let why = body.get("error").and_then(Value::as_str).map_or_else(|| body.to_string(), str::to_owned);
        bail!("the server at {address} cannot write all points: {why}");
    }
    print("all points are in the store\n");
    Ok(ExitCode::SUCCESS)
}

/// One request on its own connection, answered in JSON. Waits without a limit.
fn request(address: &str, method: &str, path: &str) -> anyhow::Result<(u16, Value)> {
    let cannot = || format!("no server answers at {address}; is it running, and is that its HTTP address (--http)?");
    let mut stream = TcpStream::connect(address).with_context(cannot)?;
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.take(1 << 20).read_to_string(&mut text).with_context(cannot)?;
    let (head, body) = text.split_once("\r\n\r\n").context("the server there does not speak HTTP")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.context("the server there does not speak HTTP")?;
    let body = match (body.find(['{', '[']), body.rfind(['}', ']'])) {
        (Some(from), Some(until)) if from < until => serde_json::from_str(&body[from..=until]).unwrap_or(Value::Null),
        _ => Value::Null,
    };
    Ok((status, body))
}
