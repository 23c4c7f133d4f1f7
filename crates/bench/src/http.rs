//! Asks a Graphite server over HTTP and times the answer: one connection, kept open.
//!
//! The client is hyper's, run by the calling thread alone. Connecting is not part of the time measured.

use std::{
    error::Error as _,
    io,
    time::{Duration, Instant},
};

use http_body_util::{BodyExt, Empty};
use hyper::{
    Method, Request,
    body::{Body, Bytes},
    client::conn::http1::{Builder, SendRequest},
    header,
};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::{net::TcpStream, runtime::Runtime, time::timeout};

use crate::Error;

/// The longest answer that is read; no measured answer comes near it.
const MAX_BODY_BYTES: usize = 4 << 30;

/// How much of an answer is read at once.
const READ_BYTES: usize = 64 << 10;

/// Bytes of a parameter that are percent-encoded: all but what RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A server's HTTP side.
#[derive(Debug)]
pub(crate) struct Server {
    address: String,
    /// The path in front of `/render`, as in `http://host/graphite`.
    prefix: String,
    /// For connecting, for the head of an answer, and for each part of its body.
    timeout: Duration,
    runtime: Runtime,
    connection: Option<SendRequest<Empty<Bytes>>>,
}

/// An answer with any status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) url: String,
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// From the first byte written to the last byte read.
    pub(crate) took: Duration,
}

impl Answer {
    /// The answer, provided that its status is 200.
    pub(crate) fn success(self) -> Result<Answer, Error> {
        if self.status == 200 {
            return Ok(self);
        }
        let text = String::from_utf8_lossy(&self.body);
        let start: String = text.chars().take(200).collect();
        Err(self.unexpected(format!("status {}: {}", self.status, start.trim())))
    }

    /// The error for an answer that is not what was asked for.
    pub(crate) fn unexpected(&self, why: String) -> Error {
        Error::Answer { url: self.url.clone(), why }
    }
}

impl Server {
    /// Takes `host:port`, `http://host:port` and `http://host:port/prefix`.
    pub(crate) fn new(address: &str, timeout: Duration) -> Result<Server, Error> {
        if address.starts_with("https:") {
            return Err(Error::Usage(format!("{address}: https is not supported, only http")));
        }
        let rest = address.strip_prefix("http://").unwrap_or(address);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let path = path.trim_end_matches('/');
        let address = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
        let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| Error::Socket { what: "asking", address: address.clone(), source })?;
        Ok(Server { address, prefix, timeout, runtime, connection: None })
    }

    /// Asks for a path with these parameters, percent-encoded here.
    pub(crate) fn get(&mut self, path: &str, parameters: &[(&str, &str)]) -> Result<Answer, Error> {
        let mut path = format!("{}{path}", self.prefix);
        for (place, (name, value)) in parameters.iter().enumerate() {
            path.push(if place == 0 { '?' } else { '&' });
            path.push_str(name);
            path.push('=');
            path.extend(utf8_percent_encode(value, RESERVED));
        }
        self.ask(Method::GET, path)
    }

    /// Posts an empty body to the address itself, which is that of a command such as `/admin/flush`.
    pub(crate) fn post(&mut self) -> Result<Answer, Error> {
        self.ask(Method::POST, if self.prefix.is_empty() { "/".into() } else { self.prefix.clone() })
    }

    fn ask(&mut self, method: Method, path: String) -> Result<Answer, Error> {
        let url = format!("http://{}{path}", self.address);
        let mut request = Request::builder()
            .method(&method)
            .uri(path)
            .header(header::HOST, &self.address)
            .header(header::USER_AGENT, "plumbago-bench");
        if method == Method::POST {
            request = request.header(header::CONTENT_LENGTH, 0);
        }
        let request = request.body(Empty::new()).map_err(|error| Error::Usage(format!("{url}: {error}")))?;
        let (address, timeout, kept) = (&self.address, self.timeout, self.connection.take());
        let exchanged = self.runtime.block_on(async {
            if let Some(mut kept) = kept {
                // A server may close a connection that it kept for a while, but not one that was just opened.
                if let Ok(answer) = exchange(&mut kept, request.clone(), timeout).await {
                    return Ok((answer, kept));
                }
            }
            let mut opened = connect(address, timeout).await?;
            Ok((exchange(&mut opened, request, timeout).await?, opened))
        });
        let ((status, body, took), connection) =
            exchanged.map_err(|source| Error::Socket { what: "asking", address: self.address.clone(), source })?;
        self.connection = Some(connection);
        Ok(Answer { url, status, body, took })
    }
}

async fn connect(address: &str, patience: Duration) -> io::Result<SendRequest<Empty<Bytes>>> {
    let stream = timeout(patience, TcpStream::connect(address)).await??;
    stream.set_nodelay(true)?;
    let (sender, connection) =
        Builder::new().read_buf_exact_size(Some(READ_BYTES)).handshake(TokioIo::new(stream)).await.map_err(io_error)?;
    // It ends with the sender, or when the server closes; the next request then fails and connects again.
    tokio::spawn(connection);
    Ok(sender)
}

/// Sends a request and reads the whole answer: its status, its body, and how long that took.
async fn exchange(
    connection: &mut SendRequest<Empty<Bytes>>,
    request: Request<Empty<Bytes>>,
    patience: Duration,
) -> io::Result<(u16, Vec<u8>, Duration)> {
    connection.ready().await.map_err(io_error)?;
    let started = Instant::now();
    let mut answer = timeout(patience, connection.send_request(request)).await?.map_err(io_error)?;
    let length = answer.body().size_hint().lower().min(MAX_BODY_BYTES as u64);
    let mut body = Vec::with_capacity(length as usize);
    while let Some(frame) = timeout(patience, answer.body_mut().frame()).await? {
        if let Ok(data) = frame.map_err(io_error)?.into_data() {
            if MAX_BODY_BYTES - body.len() < data.len() {
                return Err(io::Error::other(format!("an answer of more than {MAX_BODY_BYTES} bytes")));
            }
            body.extend_from_slice(&data);
        }
    }
    Ok((answer.status().as_u16(), body, started.elapsed()))
}

/// What the system said, where it said something: hyper's own words are only that the connection failed.
fn io_error(error: hyper::Error) -> io::Error {
    match error.source().and_then(|source| source.downcast_ref::<io::Error>()) {
        Some(source) => io::Error::new(source.kind(), source.to_string()),
        None => io::Error::other(error),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        net::TcpListener,
        thread,
    };

    use super::*;

    /// A server that gives these answers, one to each request, on one connection after another. Returns its address.
    pub(crate) fn fake(answers: Vec<String>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
        let address = listener.local_addr().expect("a bound socket has an address").to_string();
        thread::spawn(move || {
            let mut answers = answers.into_iter();
            while answers.len() > 0 {
                let Ok((stream, _)) = listener.accept() else { return };
                let mut stream = BufReader::new(stream);
                let mut request = String::new();
                while matches!(stream.read_line(&mut request), Ok(read) if 0 < read) {
                    if request.ends_with("\r\n\r\n") {
                        request.clear();
                        let Some(answer) = answers.next() else { return };
                        if stream.get_mut().write_all(answer.as_bytes()).is_err() || answer.contains("close\r\n") {
                            break;
                        }
                    }
                }
            }
        });
        address
    }

    /// An answer with this body.
    pub(crate) fn ok(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    #[test]
    fn bodies_have_a_length_or_chunks_or_last_until_the_end() {
        let address = fake(vec![
            ok("one"),
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ntw\r\n1;x\r\no\r\n0\r\n\r\n".into(),
            "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\nthree".into(),
            ok("four"),
        ]);
        let mut server = Server::new(&address, Duration::from_secs(5)).expect("a valid address");
        let mut bodies = Vec::new();
        for _ in 0..4 {
            let answer = server.get("/x", &[("query", "a.{b,c}")]).expect("it answers");
            bodies.push((answer.status, String::from_utf8(answer.body).expect("it is text")));
        }
        let expected = [(200, "one"), (200, "two"), (404, "three"), (200, "four")];
        assert_eq!(bodies, expected.map(|(status, body)| (status, body.to_owned())));
    }

    #[test]
    fn addresses_may_have_a_prefix_but_not_https() {
        let server = Server::new("http://a/graphite/", Duration::ZERO).expect("a valid address");
        assert_eq!((server.address.as_str(), server.prefix.as_str()), ("a:80", "/graphite"));
        assert!(Server::new("https://a", Duration::ZERO).is_err());
    }

    #[test]
    fn parameters_are_percent_encoded() {
        let mut server = Server::new(&fake(vec![ok("")]), Duration::from_secs(5)).expect("a valid address");
        let answer = server.get("/x", &[("a", "a.{b,*} é"), ("b", "-_~")]).expect("the server answers");
        assert!(answer.url.ends_with("/x?a=a.%7Bb%2C%2A%7D%20%C3%A9&b=-_~"), "{}", answer.url);
    }

    #[test]
    fn a_server_that_does_not_answer_in_time_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
        let address = listener.local_addr().expect("a bound socket has an address").to_string();
        let mut server = Server::new(&address, Duration::from_millis(50)).expect("a valid address");
        let error = server.get("/x", &[]).expect_err("nothing answers");
        assert!(matches!(&error, Error::Socket { source, .. } if source.kind() == io::ErrorKind::TimedOut), "{error}");
    }
}
