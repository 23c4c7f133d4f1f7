//! Requests to a running server.

use std::{
    fmt,
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, bail};
use host::Disk;
use serde_json::Value;

use crate::{certificates, settings::Settings};

/// The environment variable with the token of requests, where the server asks for one.
const TOKEN: &str = "PLUMBAGO_TOKEN";

/// Within this time a server that is asked how it is begins to answer. Other requests may take hours.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// Where a server answers administration.
#[derive(Clone)]
pub(super) struct Server {
    address: String,
    /// The certificate that it shows, in PEM; `None` without TLS.
    certificate: Option<Vec<u8>>,
    /// Whether it has answered.
    answers: Arc<AtomicBool>,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

/// The server that has these settings.
pub(super) fn server(settings: &Settings, without: &'static str, disk: &dyn Disk) -> anyhow::Result<Server> {
    let listens = settings.listen.admin.next_to(settings.listen.http.as_ref()).context(without)?;
    // A server that listens on all addresses is reachable on the local one.
    let address = listens.as_str().replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:");
    let certificate = settings.http.tls_certificate.as_ref().filter(|_| certificates::admin_has_tls(settings));
    let certificate = certificate
        .map(|path| disk.read(path).with_context(|| format!("cannot read {} (http.tls_certificate)", path.display())));
    Ok(Server { address, certificate: certificate.transpose()?, answers: Arc::default() })
}

/// What is read and written of a request.
trait Connection: Read + Write {}

impl<T: Read + Write> Connection for T {}

/// Whether what listens there speaks HTTP: a receiver of points would read a request and never answer.
fn check_answers(server: &Server, stream: &mut dyn Connection) -> anyhow::Result<()> {
    let Server { address, .. } = server;
    let mut first = [0; 5];
    let asked = write!(stream, "GET /healthy HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let answered = asked.and_then(|()| stream.flush()).and_then(|()| stream.read_exact(&mut first));
    let wait = FIRST_ANSWER.as_secs();
    match answered {
        Ok(()) if first == *b"HTTP/" => {}
        Err(error) if server.certificate.is_some() => {
            bail!(
                "what listens at {address} does not answer over TLS within {wait} seconds with the certificate of http.tls_certificate: {error}"
            );
        }
        _ => bail!(
            "what listens at {address} does not answer over HTTP within {wait} seconds; is that the address of administration (--admin)?"
        ),
    }
    Ok(())
}

/// One request on its own connection, with a form, answered in JSON. Waits without a limit, once the server has answered the question how it is.
pub(super) fn request(server: &Server, method: &str, path: &str, form: &str) -> anyhow::Result<(u16, Value)> {
    let Server { address, certificate, answers } = server;
    let cannot = || {
        format!("no server answers at {address}; is it running, and is that its address of administration (--admin)?")
    };
    let connect = |limit: Option<Duration>| -> anyhow::Result<Box<dyn Connection>> {
        let stream = TcpStream::connect(address).with_context(cannot)?;
        stream.set_read_timeout(limit)?;
        Ok(match certificate {
            Some(certificate) => Box::new(tls::request_stream(stream, certificate)?),
            None => Box::new(stream),
        })
    };
    if !answers.load(Relaxed) {
        check_answers(server, &mut *connect(Some(FIRST_ANSWER))?)?;
        answers.store(true, Relaxed);
    }
    let mut stream = connect(None)?;
    let cannot_send = || match certificate {
        Some(_) => format!("cannot send to {address}: does the server show the certificate of http.tls_certificate?"),
        None => format!("cannot send to {address}"),
    };
    let length = form.len();
    let token = std::env::var(TOKEN).ok().filter(|token| token.bytes().all(|byte| byte.is_ascii_graphic()));
    let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {length}\r\n{token}Connection: close\r\n\r\n{form}"
    )
    .with_context(cannot_send)?;
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
    let json = match (body.find(['{', '[']), body.rfind(['}', ']'])) {
        (Some(from), Some(until)) if from < until => serde_json::from_str(&body[from..=until]).ok(),
        _ => None,
    };
    // A refusal, as of a token without the scope, is a text.
    Ok((status, json.unwrap_or_else(|| Value::from(body.trim()))))
}

/// The server's reason for an error.
pub(super) fn reason(body: &Value) -> String {
    let text = body.get("error").unwrap_or(body);
    text.as_str().map_or_else(|| text.to_string(), str::to_owned)
}
