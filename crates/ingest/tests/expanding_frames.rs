//! Frames and bodies that stand for far more than they hold: the memory that they cost stays within the budget of receivers,
//! and other senders lose nothing.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use carbon::{RejectReason, RuleFiles, Rules};
use host::{Clock, SystemClock};
use ingest::{
    Ingest, IngestOptions, Protocol,
    receivers::{BodyFormat, FrameFormat, ReceiveBudget, ReceiverLimits, serve_frames, serve_lines, take_body},
};
use metadata::Registry;
use store::MemoryDriver;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{sleep, timeout},
};

/// Counts allocated bytes, now and at most.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(now, Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PATIENCE: Duration = Duration::from_secs(120);

/// A stopwatch at a twentieth of its speed: what the budget calls a pause is twenty seconds, and no sender of a slow machine
/// pauses for as long in the middle of a frame.
#[derive(Debug)]
struct SlowClock {
    began: Instant,
}

impl Clock for SlowClock {
    fn since_epoch(&self) -> Duration {
        SystemClock.since_epoch()
    }

    fn instant(&self) -> Instant {
        self.began + self.began.elapsed() / 20
    }
}

const BUDGET: usize = 4 << 20;

/// What the pipeline, the runtime and the test have beyond the budget, at most.
const OTHERS: usize = 12 << 20;

/// Hostile connections of each kind at once. What their buffers hold leaves room for what one of them needs besides: where all wait for
/// each other, the budget closes the largest.
const HOSTILE: usize = 3;

/// A name as long as a name may be, about.
fn long_name() -> Vec<u8> {
    b"hostile.".iter().copied().chain([b'n'; 3_900]).collect()
}

/// One item, and references to it: each is a point of a long name.
fn shared_items() -> Vec<u8> {
    let name = long_name();
    let mut frame =
        [b"\x80\x02](X", &(name.len() as u32).to_le_bytes()[..], &name, b"J\xff\xff\xff\xffK\x02\x86\x86q\0"].concat();
    frame.extend(b"h\0".repeat(4_000));
    frame.extend(b"e.");
    frame
}

/// A metric with a long name, and points of two bytes.
fn shared_name() -> Vec<u8> {
    let length = |bytes: usize| [bytes as u8 & 0x7f | 0x80, (bytes >> 7) as u8 & 0x7f | 0x80, (bytes >> 14) as u8];
    let name = long_name();
    let metric = [&[0x0a][..], &length(name.len()), &name, &b"\x12\x00".repeat(4_000)].concat();
    [&[0x0a][..], &length(metric.len()), &metric].concat()
}

/// Values on the stack: sixteen bytes for one.
fn values() -> Vec<u8> {
    [&[b'N'; 70_000][..], b"."].concat()
}

/// Places in the memo as far up as the frame is long.
fn memo() -> Vec<u8> {
    [b"](", &b"Nr\xff\xff\0\0Nr\xff\xff\x01\0"[..], &b"N0".repeat(70_000), b"e."].concat()
}

struct Node {
    ingest: Arc<Ingest>,
    budget: ReceiveBudget,
    lines: SocketAddr,
    pickles: SocketAddr,
    payloads: SocketAddr,
    _stop: watch::Sender<bool>,
    _journal: tempfile::TempDir,
}

impl Node {
    async fn start() -> Node {
        let journal = tempfile::tempdir().unwrap();
        let options = IngestOptions { journal_dir: journal.path().to_owned(), ..IngestOptions::default() };
        let rules = Rules::parse(RuleFiles::default()).expect("carbon's defaults").0;
        let registry = Arc::new(Registry::new());
        let ingest = Ingest::open(options, Arc::new(MemoryDriver::new()), registry, rules).await.unwrap();
        let budget = ReceiveBudget::new(BUDGET as u64, Arc::new(SlowClock { began: Instant::now() }));
        let limits = ReceiverLimits { connections: 1000, idle: None, frame_bytes: 4 << 20 };
        let (stop, stopping) = watch::channel(false);
        let (lines, listener) = bind().await;
        let counts = Arc::default();
        tokio::spawn(serve_lines(ingest.acceptor(), listener, limits, budget.clone(), counts, stopping.clone()));
        let mut addresses = Vec::new();
        for format in [FrameFormat::Pickle, FrameFormat::Protobuf] {
            let (address, listener) = bind().await;
            let (acceptor, budget, stopping) = (ingest.acceptor(), budget.clone(), stopping.clone());
            tokio::spawn(serve_frames(acceptor, format, listener, limits, budget, Arc::default(), stopping));
            addresses.push(address);
        }
        let (pickles, payloads) = (addresses[0], addresses[1]);
        Node { ingest, budget, lines, pickles, payloads, _stop: stop, _journal: journal }
    }

    /// Waits until the last connection has ended, and checks that none was closed.
    async fn gives_all_back(&self) {
        let all_ended = async {
            while 0 < self.budget.usage().used {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, all_ended).await.expect("connections end");
        assert_eq!(self.budget.usage().closed, 0);
    }

    fn rejected(&self, reason: RejectReason) -> u64 {
        self.ingest.counters().rejects[reason as usize].1
    }

    fn accepted(&self, protocol: Protocol) -> u64 {
        self.ingest.counters().points[protocol as usize].1
    }
}

async fn bind() -> (SocketAddr, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    (listener.local_addr().unwrap(), listener)
}

/// Sends a frame twice, and waits until the receiver has read both.
async fn send_frames(to: SocketAddr, frame: Arc<Vec<u8>>) {
    let mut stream = TcpStream::connect(to).await.unwrap();
    for _ in 0..2 {
        stream.write_all(&(frame.len() as u32).to_be_bytes()).await.unwrap();
        stream.write_all(&frame).await.unwrap();
    }
    stream.shutdown().await.unwrap();
    let closed = stream.read(&mut [0]).await;
    assert!(matches!(closed, Ok(0)), "the receiver reads all and closes: {closed:?}");
}

/// Sends a hundred small batches, as an agent does.
async fn send_lines(to: SocketAddr) {
    let mut stream = TcpStream::connect(to).await.unwrap();
    for batch in 0..100 {
        let lines: String = (0..50).map(|i| format!("good.{i} {batch} -1\n")).collect();
        stream.write_all(lines.as_bytes()).await.unwrap();
        sleep(Duration::from_millis(5)).await;
    }
}

/// Runs `work`, and returns how many bytes more than before were allocated at once.
async fn most_bytes(work: impl Future<Output = ()>) -> usize {
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    timeout(PATIENCE, work).await.expect("it ends");
    MOST.load(Relaxed).saturating_sub(before)
}

/// Both measure the memory of the process: one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_frames_and_bodies_stay_within_the_budget() {
    hostile_frames().await;
    hostile_bodies().await;
}

async fn hostile_frames() {
    let node = Node::start().await;
    let kinds = [
        (node.pickles, Arc::new(shared_items())),
        (node.payloads, Arc::new(shared_name())),
        (node.pickles, Arc::new(values())),
        (node.pickles, Arc::new(memo())),
    ];
    let most = most_bytes(async {
        let mut senders = tokio::task::JoinSet::new();
        for (to, frame) in &kinds {
            (0..HOSTILE).for_each(|_| drop(senders.spawn(send_frames(*to, frame.clone()))));
        }
        (0..4).for_each(|_| drop(senders.spawn(send_lines(node.lines))));
        while let Some(sent) = senders.join_next().await {
            sent.expect("no sender fails");
        }
        while node.accepted(Protocol::LineTcp) < 4 * 100 * 50 {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(most < BUDGET + OTHERS, "{most} bytes at once");
    assert_eq!(node.accepted(Protocol::LineTcp), 4 * 100 * 50);
    let frames = 2 * HOSTILE as u64;
    assert_eq!(node.accepted(Protocol::Pickle), frames * 4_001);
    assert_eq!(node.rejected(RejectReason::TooOld), frames * 4_000);
    // Both kinds need more than half of the budget.
    assert_eq!(node.rejected(RejectReason::FrameNeedsMemory), 2 * frames);
    node.gives_all_back().await;
}

async fn hostile_bodies() {
    let node = Node::start().await;
    let most = most_bytes(async {
        let mut bodies = tokio::task::JoinSet::new();
        for _ in 0..HOSTILE {
            let (ingest, budget) = (node.ingest.clone(), node.budget.clone());
            bodies.spawn(async move {
                for (format, body) in [(BodyFormat::Pickle, shared_items()), (BodyFormat::Pickle, values())] {
                    let mut share = budget.share();
                    share.raise(body.capacity()).await.expect("room comes");
                    let taken = take_body(&ingest.acceptor(), None, format, body, share).await;
                    assert_eq!(taken.refusal, None);
                }
            });
        }
        while let Some(taken) = bodies.join_next().await {
            taken.expect("no body fails");
        }
    })
    .await;
    // Each body is made before it is counted.
    assert!(most < BUDGET + HOSTILE * values().len() + OTHERS, "{most} bytes at once");
    assert_eq!(node.accepted(Protocol::Http), HOSTILE as u64 * 4_001);
    assert_eq!(node.rejected(RejectReason::FrameNeedsMemory), HOSTILE as u64);
    node.gives_all_back().await;
}
