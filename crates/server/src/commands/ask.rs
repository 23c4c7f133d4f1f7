//! Requests to a running server.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::settings::Settings;

/// The environment variable with the token of requests, where the server asks for one.
const TOKEN: &str = "PLUMBAGO_TOKEN";

/// The address where the server that has these settings answers administration.
pub(super) fn address(settings: &Settings, without: &'static str) -> anyhow::Result<String> {
    let listens = settings.listen.admin.next_to(settings.listen.http.as_ref()).context(without)?;
    // A server that listens on all addresses is reachable on the local one.
    Ok(listens.as_str().replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:"))
}

/// One request on its own connection, with a form, answered in JSON. Waits without a limit.
pub(super) fn request(address: &str, method: &str, path: &str, form: &str) -> anyhow::Result<(u16, Value)> {
    let cannot = || {
        format!("no server answers at {address}; is it running, and is that its address of administration (--admin)?")
    };
    let mut stream = TcpStream::connect(address).with_context(cannot)?;
    let length = form.len();
    let token = std::env::var(TOKEN).ok().filter(|token| token.bytes().all(|byte| byte.is_ascii_graphic()));
    let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {length}\r\n{token}Connection: close\r\n\r\n{form}"
    )?;
    let mut text = String::new();
    stream.take(1 << 20).read_to_string(&mut text).with_context(cannot)?;
    let (head, body) = text.split_once("\r\n\r\n").context("the server there does not speak HTTP")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.context("the server there does not speak HTTP")?;
    if status == 401 {
        bail!("the server at {address} asks for a token with the scope admin: give it in the variable {TOKEN}");
    }
    // Its text says where these paths are.
    if status == 404 {
        bail!("{} (the server at {address}); give the address of administration with --admin", body.trim());
    }
    let body = match (body.find(['{', '[']), body.rfind(['}', ']'])) {
        (Some(from), Some(until)) if from < until => serde_json::from_str(&body[from..=until]).unwrap_or(Value::Null),
        _ => Value::Null,
    };
    Ok((status, body))
}

/// The server's reason for an error.
pub(super) fn reason(body: &Value) -> String {
    body.get("error").and_then(Value::as_str).map_or_else(|| body.to_string(), str::to_owned)
}
