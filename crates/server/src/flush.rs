//! `plumbago flush`: has a running server write out everything it holds, and waits until that is done.

use std::{
    io::{IsTerminal, Read, Write},
    net::TcpStream,
    process::ExitCode,
    sync::mpsc,
    time::Duration,
};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::{cli::FlushOptions, load_settings, say};

/// How often somebody who waits is told how much is left.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Asks the server, tells on a terminal how much is left, and answers when everything is in the store.
pub fn flush(options: &FlushOptions) -> anyhow::Result<ExitCode> {
    let settings = load_settings(&options.config, options.overrides())?;
    let listens =
        settings.listen.http.context("the server has no HTTP port (listen.http is off), so it cannot be told")?;
    // A server that listens everywhere is reached here.
    let address = listens.as_str().replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:");
    let (done, answer) = mpsc::channel();
    let asked = address.clone();
    std::thread::spawn(move || done.send(request(&asked, "POST", "/admin/flush")));
    let shows_progress = std::io::stderr().is_terminal();
    let (status, body) = loop {
        match answer.recv_timeout(TELL_EVERY) {
            Ok(answer) => break answer?,
            Err(mpsc::RecvTimeoutError::Timeout) if shows_progress => {
                if let Ok((200, body)) = request(&address, "GET", "/admin/status") {
                    let number = |key: &str| body.get(key).and_then(Value::as_u64).unwrap_or(0);
                    let left = number("held_slots") + number("parked_points");
                    let is_failing = body.get("store_failing").and_then(Value::as_bool).unwrap_or(false);
                    let why = if is_failing { "; the store takes none at present" } else { "" };
                    eprint!("\r{left} points are left to be written{why}  ");
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
        bail!("the server at {address} could not write everything out: {why}");
    }
    say("everything that was held is in the store\n");
    Ok(ExitCode::SUCCESS)
}

/// One request on a connection of its own; the answer is JSON. Waits as long as the server does.
fn request(address: &str, method: &str, path: &str) -> anyhow::Result<(u16, Value)> {
    let cannot = || format!("no server answers at {address}; is it running, and is that its HTTP address (--http)?");
    let mut stream = TcpStream::connect(address).with_context(cannot)?;
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.take(1 << 20).read_to_string(&mut text).with_context(cannot)?;
    let (head, body) = text.split_once("\r\n\r\n").context("what answers there does not speak HTTP")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.context("what answers there does not speak HTTP")?;
    let body = match (body.find(['{', '[']), body.rfind(['}', ']'])) {
        (Some(from), Some(until)) if from < until => serde_json::from_str(&body[from..=until]).unwrap_or(Value::Null),
        _ => Value::Null,
    };
    Ok((status, body))
}
