//! Receivers over real sockets: what a sender may do to a connection, and what a stop does to both.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use carbon::{RuleFiles, Rules};
use ingest::{
    Ingest, IngestOptions,
    receivers::{Connections, FrameFormat, ReceiveBudget, ReceiverLimits, serve_datagrams, serve_frames, serve_lines},
};
use metadata::Registry;
use store::MemoryDriver;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(10);

const LIMITS: ReceiverLimits = ReceiverLimits { connections: 100, idle: None, frame_bytes: 1 << 20 };

/// A line receiver, TCP and UDP, and the pipeline behind it.
struct Lines {
    ingest: Arc<Ingest>,
    address: SocketAddr,
    udp: SocketAddr,
    connections: Arc<Connections>,
    stop: watch::Sender<bool>,
    tasks: [JoinHandle<()>; 2],
    _journal: tempfile::TempDir,
}

impl Lines {
    async fn start(limits: ReceiverLimits) -> Lines {
        let journal = tempfile::tempdir().unwrap();
        let options = IngestOptions { journal_dir: journal.path().to_owned(), ..IngestOptions::default() };
        let rules = Rules::parse(RuleFiles::default()).expect("carbon's defaults").0;
        let registry = Arc::new(Registry::new());
        let ingest = Ingest::open(options, Arc::new(MemoryDriver::new()), registry, rules).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (address, udp) = (listener.local_addr().unwrap(), socket.local_addr().unwrap());
        let (stop, stopping) = watch::channel(false);
        let connections = Arc::new(Connections::default());
        let budget = ReceiveBudget::new(1 << 20, Arc::new(host::SystemClock));
        let lines = serve_lines(ingest.acceptor(), listener, limits, budget, connections.clone(), stopping.clone());
        let tasks = [tokio::spawn(lines), tokio::spawn(serve_datagrams(ingest.acceptor(), socket, stopping))];
        Lines { ingest, address, udp, connections, stop, tasks, _journal: journal }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    fn accepted(&self) -> u64 {
        self.ingest.counters().points.iter().map(|(_, points)| points).sum()
    }

    async fn accepts(&self, points: u64) {
        let all_came = async {
            while self.accepted() != points {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = timeout(PATIENCE, all_came).await;
        assert!(waited.is_ok(), "{} of {points} points were accepted", self.accepted());
    }

    /// Stops both receivers; returns what had been accepted by then.
    async fn stop(self) -> u64 {
        self.stop.send_replace(true);
        for task in self.tasks {
            timeout(PATIENCE, task).await.expect("a stop ends").expect("no receiver panics");
        }
        let counted = self.ingest.counters();
        counted.points.iter().map(|(_, points)| points).sum()
    }
}

/// Whether the other side closes, rather than leave the connection open.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    // A close with unread bytes is a reset.
    matches!(timeout(PATIENCE, stream.read(&mut byte)).await, Ok(Ok(0) | Err(_)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_line_costs_only_itself_and_the_last_needs_no_line_feed() {
    let lines = Lines::start(LIMITS).await;
    let mut sender = lines.connect().await;
    sender.write_all(b"a.b 1 -1\nnonsense\n\xff\xff 1 -1\n").await.unwrap();
    lines.accepts(1).await;
    sender.write_all(b"a.c 1 -1\na.d 1 -1").await.unwrap();
    sender.shutdown().await.unwrap();
    lines.accepts(3).await;
    assert_eq!(lines.ingest.rejects().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_may_come_byte_by_byte_and_a_batch_at_once() {
    let lines = Lines::start(LIMITS).await;
    let mut sender = lines.connect().await;
    for byte in b"a.b 1 -1\n" {
        sender.write_all(&[*byte]).await.unwrap();
        sender.flush().await.unwrap();
        tokio::task::yield_now().await;
    }
    let many: String = (0..50_000).map(|i| format!("many.{} {i} -1\n", i % 1000)).collect();
    sender.write_all(many.as_bytes()).await.unwrap();
    lines.accepts(50_001).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_beyond_the_limit_is_closed_and_its_place_can_be_taken_later() {
    let lines = Lines::start(ReceiverLimits { connections: 1, ..LIMITS }).await;
    let mut first = lines.connect().await;
    first.write_all(b"a.b 1 -1\n").await.unwrap();
    lines.accepts(1).await;
    assert!(is_closed(&mut lines.connect().await).await);
    assert_eq!((lines.connections.active(), lines.connections.refused()), (1, 1));

    drop(first);
    while lines.connections.active() > 0 {
        sleep(Duration::from_millis(5)).await;
    }
    let mut next = lines.connect().await;
    next.write_all(b"a.b 1 -1\n").await.unwrap();
    lines.accepts(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_connection_is_closed_after_the_idle_timeout() {
    let lines = Lines::start(ReceiverLimits { idle: Some(Duration::from_millis(100)), ..LIMITS }).await;
    let mut sender = lines.connect().await;
    // What was begun is read as a last line.
    sender.write_all(b"a.b 1 -1").await.unwrap();
    assert!(is_closed(&mut sender).await);
    lines.accepts(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_reads_what_the_kernel_received_and_closes_connections() {
    let lines = Lines::start(LIMITS).await;
    let mut sender = lines.connect().await;
    sender.write_all(b"a.b 1 -1\n").await.unwrap();
    lines.accepts(1).await;
    let held: String = (0..1000).map(|i| format!("held.{i} 1 -1\n")).collect();
    sender.write_all(held.as_bytes()).await.unwrap();
    assert_eq!(lines.stop().await, 1001);
    assert!(is_closed(&mut sender).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_that_never_pauses_does_not_hold_up_a_stop() {
    let lines = Lines::start(LIMITS).await;
    let (address, udp) = (lines.address, lines.udp);
    let flood: Vec<u8> = b"flood.a 1 -1\n".repeat(5000);
    // A thread of its own, as senders are: it must not wait for the tasks it floods.
    let tcp_flood = flood.clone();
    let tcp = std::thread::spawn(move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        while std::io::Write::write_all(&mut stream, &tcp_flood).is_ok() {}
    });
    let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let udp_ended = ended.clone();
    let udp = std::thread::spawn(move || {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        while !udp_ended.load(std::sync::atomic::Ordering::Relaxed) {
            // Refused once the receiver is gone.
            let _ = socket.send_to(&flood[..13 * 100], udp);
        }
    });
    while lines.accepted() < 20_000 {
        sleep(Duration::from_millis(5)).await;
    }
    lines.stop().await;
    ended.store(true, std::sync::atomic::Ordering::Relaxed);
    tcp.join().unwrap();
    udp.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_datagram_holds_lines_and_the_last_needs_no_line_feed() {
    let lines = Lines::start(LIMITS).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(b"a.b 1 -1\nbad\na.c 2 -1", lines.udp).await.unwrap();
    lines.accepts(2).await;
    assert_eq!(lines.ingest.rejects().len(), 1);
}

/// A pickle receiver whose connections share a budget.
async fn pickles(ingest: &Arc<Ingest>, budget: ReceiveBudget) -> (SocketAddr, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopping) = watch::channel(false);
    let format = FrameFormat::Pickle;
    tokio::spawn(serve_frames(ingest.acceptor(), format, listener, LIMITS, budget, Arc::default(), stopping));
    (address, stop)
}

/// Waits until a condition holds.
async fn until(condition: impl Fn() -> bool) {
    let holds = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, holds).await.expect("the condition holds in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_that_is_only_announced_takes_no_memory() {
    let lines = Lines::start(LIMITS).await;
    let budget = ReceiveBudget::new(4 << 20, Arc::new(host::SystemClock));
    let (address, _stop) = pickles(&lines.ingest, budget.clone()).await;
    let mut senders = Vec::new();
    for _ in 0..50 {
        let mut sender = TcpStream::connect(address).await.unwrap();
        sender.write_all(&(1_u32 << 20).to_be_bytes()).await.unwrap();
        senders.push(sender);
    }
    until(|| budget.usage().used >= 50 * 4096).await;
    assert_eq!(budget.usage().used, 50 * 4096);
    // With what comes, it grows; and the memory of a connection that ends is free again.
    senders[0].write_all(&vec![b'('; 300 << 10]).await.unwrap();
    until(|| budget.usage().used >= (50 * 4 + 300) << 10).await;
    assert!(budget.usage().used <= (50 * 4 + 1024) << 10);
    drop(senders);
    until(|| budget.usage().used == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_frame_gets_the_memory_of_one_whose_sender_has_paused() {
    let lines = Lines::start(LIMITS).await;
    let budget = ReceiveBudget::new(1 << 20, Arc::new(host::SystemClock));
    let (address, _stop) = pickles(&lines.ingest, budget.clone()).await;
    let mut paused = TcpStream::connect(address).await.unwrap();
    paused.write_all(&(1_000_000_u32).to_be_bytes()).await.unwrap();
    paused.write_all(&vec![b'('; 700_000]).await.unwrap();
    until(|| budget.usage().used > 700_000).await;

    let mut whole = TcpStream::connect(address).await.unwrap();
    whole.write_all(&(800_000_u32).to_be_bytes()).await.unwrap();
    whole.write_all(&vec![b'x'; 800_000]).await.unwrap();
    assert!(is_closed(&mut paused).await);
    until(|| lines.ingest.rejects().len() >= 2).await;
    assert_eq!(budget.usage().closed, 1);
}

#[tokio::test]
async fn datagrams_without_points_do_not_keep_the_thread_from_others() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let unread = socket.try_clone().unwrap();
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..150 {
        sender.send_to(format!("{number}\n").as_bytes(), unread.local_addr().unwrap()).unwrap();
    }
    let lines = Lines::start(LIMITS).await;
    let (_stop, stopping) = watch::channel(false);
    let socket = UdpSocket::from_std(socket).unwrap();
    let task = tokio::spawn(serve_datagrams(lines.ingest.acceptor(), socket, stopping));
    // The number of the next datagram, whenever this task has a turn.
    let mut seen = Vec::new();
    let all_are_read = async {
        let mut bytes = [0; 8];
        while let Ok(length) = unread.peek(&mut bytes) {
            seen.push(std::str::from_utf8(&bytes[..length]).unwrap().trim().parse::<u32>().unwrap());
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, all_are_read).await.expect("the datagrams are read");
    seen.dedup();
    assert!(seen.len() > 2, "turns at {seen:?}");
    task.abort();
}
