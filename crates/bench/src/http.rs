//! Just enough of an HTTP client to ask a Graphite server and time the answer: one connection, kept open.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use crate::Error;

/// Longer answers are refused: nothing that is measured here comes near it.
const MOST_BYTES: u64 = 4 << 30;
/// Longer heads are refused.
const MOST_HEAD_BYTES: u64 = 64 << 10;

/// A server's HTTP side.
#[derive(Debug)]
pub(crate) struct Server {
    address: String,
    /// What stands before `/render`, as in `http://host/graphite`.
    prefix: String,
    timeout: Duration,
    connection: Option<BufReader<TcpStream>>,
}

/// What came back, whatever its status.
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
        Err(self.unlike(format!("status {}: {}", self.status, start.trim())))
    }

    pub(crate) fn unlike(&self, why: String) -> Error {
        Error::Answer { url: self.url.clone(), why }
    }
}

impl Server {
    /// Takes `host:port`, `http://host:port` and `http://host:port/prefix`.
    pub(crate) fn new(address: &str, timeout: Duration) -> Result<Server, Error> {
        if address.starts_with("https:") {
            return Err(Error::Usage(format!("{address}: only http is spoken here")));
        }
        let rest = address.strip_prefix("http://").unwrap_or(address);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let path = path.trim_end_matches('/');
        let address = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
        let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Server { address, prefix, timeout, connection: None })
    }

    /// Asks for a path with these parameters, percent-encoded here.
    pub(crate) fn get(&mut self, path: &str, parameters: &[(&str, &str)]) -> Result<Answer, Error> {
        let mut url = format!("{}{path}", self.prefix);
        for (place, (name, value)) in parameters.iter().enumerate() {
            url.push(if place == 0 { '?' } else { '&' });
            url.push_str(name);
            url.push('=');
            encode(value, &mut url);
        }
        self.ask("GET", url)
    }

    /// Posts nothing to the address itself, which is that of a command such as `/admin/flush`.
    pub(crate) fn post(&mut self) -> Result<Answer, Error> {
        self.ask("POST", if self.prefix.is_empty() { "/".into() } else { self.prefix.clone() })
    }

    fn ask(&mut self, method: &str, url: String) -> Result<Answer, Error> {
        let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
        let request =
            format!("{method} {url} HTTP/1.1\r\nHost: {}\r\nUser-Agent: plumbago-bench\r\n{length}\r\n", self.address);
        let failed = |source| Error::Socket { what: "asking", address: self.address.clone(), source };
        let mut kept = self.connection.take();
        loop {
            let reused = kept.is_some();
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => self.connect().map_err(failed)?,
            };
            let started = Instant::now();
            match exchange(&mut connection, request.as_bytes()) {
                Ok((status, body, keep)) => {
                    let took = started.elapsed();
                    if keep {
                        self.connection = Some(connection);
                    }
                    return Ok(Answer { url: format!("http://{}{url}", self.address), status, body, took });
                }
                // A server may close a connection that it kept for a while, but not one that was just opened.
                Err(_) if reused => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    fn connect(&self) -> std::io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        Ok(BufReader::with_capacity(256 << 10, stream))
    }
}

/// Sends a request and reads the whole answer: status, body, and whether the connection may be used again.
fn exchange(connection: &mut BufReader<TcpStream>, request: &[u8]) -> std::io::Result<(u16, Vec<u8>, bool)> {
    connection.get_mut().write_all(request)?;
    let mut head = connection.by_ref().take(MOST_HEAD_BYTES);
    let first = line(&mut head)?;
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| unlike(format!("not HTTP: {first}")))?;
    let (mut length, mut chunked, mut keep) = (None, false, first.starts_with("HTTP/1.1"));
    loop {
        let line = line(&mut head)?;
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim().to_ascii_lowercase();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                length = Some(value.parse::<u64>().map_err(|_| unlike(format!("content-length: {value}")))?);
            }
            "transfer-encoding" => chunked = value.contains("chunked"),
            "connection" if value.contains("close") => keep = false,
            _ => {}
        }
    }
    let mut body = Vec::new();
    if chunked {
        read_chunks(connection, &mut body)?;
    } else if let Some(length) = length {
        read_exactly(connection, length, &mut body)?;
    } else {
        keep = false;
        connection.take(MOST_BYTES).read_to_end(&mut body)?;
    }
    Ok((status, body, keep))
}

fn read_chunks(connection: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> std::io::Result<()> {
    loop {
        let size = line(&mut connection.by_ref().take(MOST_HEAD_BYTES))?;
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).map_err(|_| unlike(format!("a chunk of size {size}")))?;
        read_exactly(connection, size, body)?;
        // Behind the last chunk comes an empty line too; trailers are not sent by anyone we know.
        line(&mut connection.by_ref().take(MOST_HEAD_BYTES))?;
        if size == 0 {
            return Ok(());
        }
    }
}

fn read_exactly(connection: &mut BufReader<TcpStream>, length: u64, body: &mut Vec<u8>) -> std::io::Result<()> {
    if MOST_BYTES < length || MOST_BYTES < body.len() as u64 + length {
        return Err(unlike(format!("more than {MOST_BYTES} bytes")));
    }
    match connection.take(length).read_to_end(body)? as u64 {
        read if read == length => Ok(()),
        _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

fn line(from: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    match line.strip_suffix('\n') {
        Some(line) => Ok(line.trim_end_matches('\r').to_owned()),
        None => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

fn unlike(what: String) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, what)
}

/// Percent-encodes all but what RFC 3986 leaves alone everywhere.
fn encode(value: &str, out: &mut String) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push('%');
            for digit in [byte >> 4, byte & 15] {
                out.push(char::from_digit(u32::from(digit), 16).unwrap_or('0').to_ascii_uppercase());
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{net::TcpListener, thread};

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
    fn bodies_come_with_a_length_in_chunks_or_until_the_end() {
        let address = fake(vec![
            ok("one"),
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ntw\r\n1;x\r\no\r\n0\r\n\r\n".into(),
            "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\nthree".into(),
            ok("four"),
        ]);
        let mut server = Server::new(&address, Duration::from_secs(5)).expect("the address is one");
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
        let server = Server::new("http://a/graphite/", Duration::ZERO).expect("the address is one");
        assert_eq!((server.address.as_str(), server.prefix.as_str()), ("a:80", "/graphite"));
        assert!(Server::new("https://a", Duration::ZERO).is_err());
    }

    #[test]
    fn parameters_are_percent_encoded() {
        let mut out = String::new();
        encode("a.{b,*} é", &mut out);
        assert_eq!(out, "a.%7Bb%2C%2A%7D%20%C3%A9");
    }
}
