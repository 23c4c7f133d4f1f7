//! Requests to other nodes over HTTP/1.1: connections are kept, and answers share a budget of memory.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use cluster::{AnswerBytes, AskError, HeadTransport, MAX_ANSWER_BYTES};
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode,
    body::{Body, Bytes, Incoming},
    client::conn::http1::{SendRequest, handshake},
    header::{HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{net::TcpStream, sync::Semaphore};

use super::{
    request::{PATH, SECRET},
    secret::PeerSecrets,
};

/// Idle connections that are kept to a node.
const IDLE: usize = 8;

/// KiB of answers in memory at once, those of all queries together.
const ANSWERS_KIB: usize = 64 << 10;

/// Bytes of an answer that take none of it: a probe waits for no other answer.
const FREE: usize = 4 << 10;

/// How long an answer waits for memory: less than its query waits for the node, which is not at fault.
const MEMORY_WAIT: Duration = Duration::from_millis(200);

/// Characters of a text of an error that are shown.
const SHOWN: usize = 200;

type Connection = SendRequest<Full<Bytes>>;

/// Asks other nodes.
pub struct PeerClient {
    secret: HeaderValue,
    idle: Mutex<HashMap<String, Vec<Connection>>>,
    memory: Arc<Semaphore>,
}

impl PeerClient {
    /// With the secret that other nodes know.
    pub fn new(secrets: &PeerSecrets) -> PeerClient {
        let mut secret = HeaderValue::from_str(secrets.shown()).expect("a secret is visible ASCII");
        secret.set_sensitive(true);
        PeerClient { secret, idle: Mutex::default(), memory: Arc::new(Semaphore::new(ANSWERS_KIB)) }
    }

    async fn exchange(&self, address: &str, request: Vec<u8>, began: &AtomicBool) -> Result<AnswerBytes, AskError> {
        let body = Bytes::from(request);
        let (connection, response) = self.sent(address, body).await?;
        began.store(true, Relaxed);
        let answer = self.answer(response).await?;
        self.keep(address, connection);
        Ok(answer)
    }

    /// Sends a request over a connection that is kept, or else over a new one.
    async fn sent(&self, address: &str, body: Bytes) -> Result<(Connection, Response<Incoming>), AskError> {
        // A node may close a connection that was kept for a while, but not one that was just opened.
        while let Some(mut kept) = self.kept(address) {
            if kept.ready().await.is_ok()
                && let Ok(response) = kept.send_request(self.request(address, body.clone())?).await
            {
                return Ok((kept, response));
            }
        }
        let silent = |error: &dyn std::error::Error| AskError::Silent(error.to_string());
        let stream = TcpStream::connect(address).await.map_err(|error| silent(&error))?;
        stream.set_nodelay(true).map_err(|error| silent(&error))?;
        let (mut opened, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| silent(&error))?;
        // It ends with the sender, or when the node closes it.
        tokio::spawn(connection);
        opened.ready().await.map_err(|error| silent(&error))?;
        let response = opened.send_request(self.request(address, body)?).await.map_err(|error| silent(&error))?;
        Ok((opened, response))
    }

    fn request(&self, address: &str, body: Bytes) -> Result<Request<Full<Bytes>>, AskError> {
        let request = Request::post(PATH).header(HOST, address).header(SECRET, self.secret.clone());
        request.body(Full::new(body)).map_err(|error| AskError::Silent(error.to_string()))
    }

    async fn answer(&self, mut response: Response<Incoming>) -> Result<AnswerBytes, AskError> {
        let status = response.status();
        let length = response.body().size_hint().exact().and_then(|length| usize::try_from(length).ok());
        let Some(length) = length.filter(|&length| length <= MAX_ANSWER_BYTES) else {
            return Err(AskError::Invalid(format!("status {status}, a body of unknown length or of more than 16 MiB")));
        };
        let taken = if length <= FREE { 0 } else { length.div_ceil(1024) };
        let kib = u32::try_from(taken).unwrap_or(u32::MAX);
        let Ok(held) = tokio::time::timeout(MEMORY_WAIT, self.memory.clone().acquire_many_owned(kib)).await else {
            return Err(AskError::NoMemory);
        };
        let held = held.expect("it is never closed");
        let mut bytes = Vec::with_capacity(length);
        while let Some(frame) = response.body_mut().frame().await {
            let frame = frame.map_err(|error| AskError::Silent(error.to_string()))?;
            if let Ok(data) = frame.into_data() {
                bytes.extend_from_slice(&data);
            }
        }
        let text = || String::from_utf8_lossy(&bytes).trim().chars().take(SHOWN).collect::<String>();
        match status {
            StatusCode::OK => Ok(AnswerBytes { bytes, held: Box::new(held) }),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(AskError::Refused),
            // An earlier program has no such path.
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
                Err(AskError::Unsupported(format!("status {status}: {}", text())))
            }
            StatusCode::PAYLOAD_TOO_LARGE => Err(AskError::TooMany),
            StatusCode::GONE => Err(AskError::Left),
            _ => Err(AskError::Invalid(format!("status {status}: {}", text()))),
        }
    }

    fn kept(&self, address: &str) -> Option<Connection> {
        let mut idle = self.idle.lock();
        let kept = idle.get_mut(address)?;
        kept.retain(|connection| !connection.is_closed());
        let connection = kept.pop();
        if kept.is_empty() {
            idle.remove(address);
        }
        connection
    }

    fn keep(&self, address: &str, connection: Connection) {
        let mut idle = self.idle.lock();
        let kept = idle.entry(address.to_owned()).or_default();
        if kept.len() < IDLE && !connection.is_closed() {
            kept.push(connection);
        }
    }
}

impl HeadTransport for PeerClient {
    fn ask<'a>(
        &'a self,
        address: &'a str,
        request: Vec<u8>,
        began: &'a AtomicBool,
    ) -> BoxFuture<'a, Result<AnswerBytes, AskError>> {
        Box::pin(self.exchange(address, request, began))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use super::*;

    /// A server that gives these answers, one to each request, on one connection after another: the next one where an answer closes
    /// it. Returns its address, and what it was asked.
    fn fake(answers: Vec<String>) -> (String, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = thread::spawn(move || {
            let (mut asked, mut answers) = (Vec::new(), answers.into_iter().peekable());
            while answers.peek().is_some() {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                while answers.peek().is_some()
                    && let Ok(read) = stream.read(&mut request)
                    && 0 < read
                {
                    let answer = answers.next().unwrap();
                    asked.push(String::from_utf8_lossy(&request[..read]).into_owned());
                    stream.write_all(answer.as_bytes()).unwrap();
                    if answer.contains("close\r\n") {
                        break;
                    }
                }
            }
            asked
        });
        (address, asked)
    }

    fn answer(status: &str, more: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{more}\r\n{body}", body.len())
    }

    fn client() -> PeerClient {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "0123456789abcdef").unwrap();
        PeerClient::new(&PeerSecrets::read(file.path(), &*host::Host::system().disk).unwrap())
    }

    #[tokio::test]
    async fn a_connection_is_used_again_and_a_closed_one_is_replaced() {
        let (address, asked) = fake(vec![
            answer("200 OK", "", "one"),
            answer("200 OK", "Connection: close\r\n", "two"),
            answer("200 OK", "", "three"),
        ]);
        let client = client();
        for expected in ["one", "two", "three"] {
            let answered = client.ask(&address, b"request".to_vec(), &AtomicBool::new(false)).await.unwrap();
            assert_eq!(answered.bytes, expected.as_bytes());
        }
        let asked = asked.join().unwrap();
        assert!(asked[0].contains("x-plumbago-secret: 0123456789abcdef\r\n"), "{}", asked[0]);
        assert!(asked[0].starts_with("POST /peers/heads HTTP/1.1\r\n") && asked[0].ends_with("\r\n\r\nrequest"));
        assert_eq!(client.memory.available_permits(), ANSWERS_KIB);
    }

    #[tokio::test]
    async fn answers_that_are_not_points_say_what_they_are() {
        let check = async |given: String, expected: &str| {
            let (address, _) = fake(vec![given]);
            let error = client().ask(&address, Vec::new(), &AtomicBool::new(false)).await.err().expect("an error");
            assert!(format!("{error:?}").starts_with(expected), "{error:?}");
        };
        check(answer("403 Forbidden", "", "no"), "Refused").await;
        check(answer("404 Not Found", "", "no such path"), "Unsupported(\"status 404 Not Found: no such path").await;
        check(answer("413 Payload Too Large", "", ""), "TooMany").await;
        check(answer("410 Gone", "", "drained"), "Left").await;
        check(answer("502 Bad Gateway", "", "<html>"), "Invalid(\"status 502 Bad Gateway: <html>").await;
        check("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n".to_owned(), "Invalid").await;
        check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(), "Invalid").await;
        check("SSH-2.0-OpenSSH_9.2\r\n".to_owned(), "Silent").await;
        check("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhalf".to_owned(), "Silent").await;
    }

    #[tokio::test]
    async fn an_answer_waits_for_memory_and_not_long() {
        let client = client();
        let all = client.memory.clone().acquire_many_owned(ANSWERS_KIB as u32).await.unwrap();
        let long = "one".repeat(FREE);
        let (address, _) = fake(vec![answer("200 OK", "", &long)]);
        let began = AtomicBool::new(false);
        assert!(matches!(client.ask(&address, Vec::new(), &began).await, Err(AskError::NoMemory)));
        // The answer to a probe does not wait.
        let (address, _) = fake(vec![answer("200 OK", "", "one")]);
        assert_eq!(client.ask(&address, Vec::new(), &began).await.unwrap().bytes, b"one");
        drop(all);
        let (address, _) = fake(vec![answer("200 OK", "", &long)]);
        assert_eq!(client.ask(&address, Vec::new(), &began).await.unwrap().bytes, long.as_bytes());
    }

    #[tokio::test]
    async fn an_answer_that_ends_late_has_begun() {
        let client = client();
        let began = AtomicBool::new(false);
        // Nothing more comes, and the connection stays.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").unwrap();
            stream
        });
        let whole = async {
            let ask = client.ask(&address, Vec::new(), &began);
            tokio::pin!(ask);
            while !began.load(Relaxed) {
                let step = tokio::time::timeout(Duration::from_millis(10), &mut ask).await;
                assert!(step.is_err(), "it ended");
            }
        };
        tokio::time::timeout(Duration::from_secs(60), whole).await.expect("its head came");
        drop(server.join().unwrap());
    }

    #[tokio::test]
    async fn a_node_that_stops_answering_costs_the_time_of_its_caller_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let client = client();
        let began = AtomicBool::new(false);
        let asked = tokio::time::timeout(Duration::from_millis(50), client.ask(&address, Vec::new(), &began)).await;
        assert!(asked.is_err() && !began.load(Relaxed));
        assert!(client.idle.lock().is_empty());
        drop(listener);
        assert!(matches!(client.ask(&address, Vec::new(), &began).await, Err(AskError::Silent(_))));
    }
}
