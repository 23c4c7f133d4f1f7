//! Asks other nodes for the points that are in their memory: all at once, each within a bound of time.
//!
//! A node that fails is marked, and no query waits for it again until it has answered a probe. Its points are missing from answers
//! meanwhile, which name it. A node whose answer began to arrive and is not whole in time is named in that answer alone: the
//! time may be this node's own, which reads the answer. A probe decides whether it is marked.

use std::{
    any::Any,
    collections::{HashMap, HashSet},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::{BoxFuture, join_all};
use host::{Clock, MinuteLog};
use ingest::{AskedHeads, Head, HeadRequest, HeadSource, PeerHeads};
use parking_lot::Mutex;
use store_cassandra::NodeId;
use tokio::sync::Notify;

use crate::{
    head_wire::{read_answer, split_request, write_request},
    members::{Member, Members},
};

/// Interval between two probes of a node that failed; the first one comes at once.
const PROBE_EVERY: Duration = Duration::from_secs(2);

/// Interval between two probes of nodes that were forgotten.
const PROBE_FORGOTTEN_EVERY: Duration = Duration::from_secs(10);

/// Nodes that a query asks. Further ones are named: the table may have rows that no node wrote.
const MOST_NODES: usize = 512;

/// Answers above so many bytes are read on a thread of their own.
const LARGE: usize = 256 << 10;

/// Why a node did not give its points.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum AskError {
    /// It cannot be reached, or did not answer in time.
    #[error("it does not answer: {0}")]
    Silent(String),
    /// Its answer began to arrive, and was not whole in time.
    #[error("its answer is not whole within {0:?}")]
    Slow(Duration),
    /// It has another secret.
    #[error("it refuses this node's secret; peers.secret_file must be the same for all nodes")]
    Refused,
    /// It knows no such request, or speaks a version too far from this one.
    #[error("it cannot give points in memory: {0}")]
    Unsupported(String),
    /// Its answer makes no sense.
    #[error("its answer is not valid: {0}")]
    Invalid(String),
    /// It was drained: it has nothing to give, and is no longer one of the nodes.
    #[error("it was drained")]
    Left,
    /// It has more points than an answer may have.
    #[error("it has more points than an answer may have")]
    TooMany,
    /// Answers to other queries of this node have all of the memory for answers.
    #[error("this node has no memory for its answer")]
    NoMemory,
}

/// The bytes of an answer, and what is given back when they are used.
pub struct AnswerBytes {
    /// The answer.
    pub bytes: Vec<u8>,
    /// For instance a share of a budget of memory.
    pub held: Box<dyn Any + Send>,
}

/// How requests travel.
pub trait HeadTransport: Send + Sync + 'static {
    /// Sends a request to a node and returns its answer. The caller bounds the time. `began` is set as soon as the node has begun to
    /// answer.
    fn ask<'a>(
        &'a self,
        address: &'a str,
        request: Vec<u8>,
        began: &'a AtomicBool,
    ) -> BoxFuture<'a, Result<AnswerBytes, AskError>>;
}

/// Requests to other nodes since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Asked {
    /// Requests that were answered.
    pub answered: u64,
    /// Those without an answer in time.
    pub silent: u64,
    /// Those whose answer began in time, and was not whole in time.
    pub slow: u64,
    /// Those that were refused for their secret.
    pub refused: u64,
    /// Those to nodes that know no such request.
    pub unsupported: u64,
    /// Those with an answer that makes no sense, or is too large.
    pub invalid: u64,
    /// Those with an answer for which this node had no memory.
    pub no_memory: u64,
    /// How often a query left out a node that had failed before.
    pub skipped: u64,
    /// Points of all answers.
    pub points: u64,
    /// Seconds that queries waited for other nodes.
    pub seconds: f64,
}

#[derive(Default)]
struct Counters {
    answered: AtomicU64,
    silent: AtomicU64,
    slow: AtomicU64,
    refused: AtomicU64,
    unsupported: AtomicU64,
    invalid: AtomicU64,
    no_memory: AtomicU64,
    skipped: AtomicU64,
    points: AtomicU64,
    micros: AtomicU64,
}

/// Asks the nodes over the same tables.
pub struct HeadAsker {
    clock: Arc<dyn Clock>,
    members: Arc<Members>,
    transport: Arc<dyn HeadTransport>,
    /// How long a query waits for other nodes, at most.
    patience: Duration,
    /// Nodes that failed, and why.
    marks: Mutex<HashMap<NodeId, AskError>>,
    /// Nodes to probe next that are not marked.
    slow: Mutex<HashSet<NodeId>>,
    counters: Counters,
    failures: MinuteLog,
    /// Wakes the task that probes.
    failed: Arc<Notify>,
}

impl HeadAsker {
    /// Also begins to probe, until it is dropped.
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        members: Arc<Members>,
        transport: Arc<dyn HeadTransport>,
        patience: Duration,
    ) -> Arc<HeadAsker> {
        let failed = Arc::<Notify>::default();
        let asker = Arc::new(HeadAsker {
            clock,
            members,
            transport,
            patience,
            marks: Mutex::default(),
            slow: Mutex::default(),
            counters: Counters::default(),
            failures: MinuteLog::new(),
            failed: failed.clone(),
        });
        tokio::spawn(probe(Arc::downgrade(&asker), failed));
        tokio::spawn(probe_forgotten(Arc::downgrade(&asker)));
        asker
    }

    /// Why a node is not asked now; `None` where it is.
    pub fn problem(&self, node: &Member) -> Option<String> {
        if node.address.is_empty() {
            return Some("it has no HTTP listener, or its address in the table `nodes` is not HOST:PORT".to_owned());
        }
        if !node.is_alive() {
            return Some("it does not report that it is alive".to_owned());
        }
        self.marks.lock().get(&node.node).map(ToString::to_string)
    }

    /// The requests since the start.
    pub fn asked(&self) -> Asked {
        let Counters { answered, silent, slow, refused, unsupported, invalid, no_memory, skipped, points, micros } =
            &self.counters;
        Asked {
            answered: answered.load(Relaxed),
            silent: silent.load(Relaxed),
            slow: slow.load(Relaxed),
            refused: refused.load(Relaxed),
            unsupported: unsupported.load(Relaxed),
            invalid: invalid.load(Relaxed),
            no_memory: no_memory.load(Relaxed),
            skipped: skipped.load(Relaxed),
            points: points.load(Relaxed),
            seconds: micros.load(Relaxed) as f64 / 1e6,
        }
    }

    /// Other nodes whose points answers lack now.
    pub fn missing(&self) -> Vec<Member> {
        let others = self.members.all().into_iter().filter(|node| !node.is_self);
        others.filter(|node| self.problem(node).is_some()).collect()
    }

    async fn ask_all(&self, requests: Vec<HeadRequest>, given_up: Vec<String>) -> PeerHeads {
        let mut answer = PeerHeads::default();
        let mut asked = Vec::new();
        for node in self.members.all().into_iter().filter(|node| !node.is_self) {
            if MOST_NODES <= asked.len() || self.problem(&node).is_some() || given_up.contains(&shown(&node)) {
                self.counters.skipped.fetch_add(1, Relaxed);
                answer.missing.push(shown(&node));
            } else {
                asked.push(node);
            }
        }
        let began = self.clock.instant();
        let answers = join_all(asked.iter().map(|node| self.within_patience(node, &requests))).await;
        let waited = self.clock.instant().saturating_duration_since(began);
        self.counters.micros.fetch_add(waited.as_micros() as u64, Relaxed);
        for (node, heads) in asked.iter().zip(answers) {
            match heads {
                Ok((heads, held)) => {
                    self.counters.answered.fetch_add(1, Relaxed);
                    self.members.heard(node.node);
                    answer.of_peers.push(heads);
                    answer.held.extend(held);
                }
                Err(AskError::Left) => self.members.forget(node.node),
                Err(error) => {
                    answer.missing.push(shown(node));
                    self.failed(node, error);
                }
            }
        }
        answer
    }

    async fn within_patience(
        &self,
        node: &Member,
        requests: &[HeadRequest],
    ) -> Result<(Vec<Head>, Vec<Box<dyn Any + Send>>), AskError> {
        let began = AtomicBool::new(false);
        let asked = tokio::time::timeout(self.patience, self.ask(node, requests, &began)).await;
        asked.unwrap_or_else(|_| {
            let silent = || AskError::Silent(format!("no answer within {:?}", self.patience));
            Err(if began.load(Relaxed) { AskError::Slow(self.patience) } else { silent() })
        })
    }

    /// Asks one node; where a request or an answer would be too large, for fewer metrics at once. Without metrics it is a probe.
    async fn ask(
        &self,
        node: &Member,
        requests: &[HeadRequest],
        began: &AtomicBool,
    ) -> Result<(Vec<Head>, Vec<Box<dyn Any + Send>>), AskError> {
        let id = node.node.to_string();
        // The budget of memory for answers bounds what all parts have together.
        let (mut heads, mut held, mut points) = (Vec::with_capacity(requests.len()), Vec::new(), 0);
        let own = self.members.own().map_or_else(String::new, |own| own.to_string());
        let (first, mut rest) = split_request(requests);
        let mut parts = vec![first];
        while !rest.is_empty() {
            let (part, more) = split_request(rest);
            parts.push(part);
            rest = more;
        }
        parts.reverse();
        while let Some(part) = parts.pop() {
            let answer = match self.transport.ask(&node.address, write_request(&own, part), began).await {
                Err(AskError::TooMany) if part.len() > 1 => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                    continue;
                }
                answer => answer?,
            };
            let (bytes, metrics) = (answer.bytes, part.len());
            let read = if bytes.len() < LARGE {
                read_answer(&bytes, &id, metrics)
            } else {
                let id = id.clone();
                let read = host::spawn_blocking(move || read_answer(&bytes, &id, metrics)).await;
                read.map_err(|_| AskError::Invalid("it could not be read".to_owned()))?
            };
            let read = read.map_err(|error| AskError::Invalid(error.to_string()))?;
            points += read.iter().flatten().map(|run| run.values.len()).sum::<usize>();
            heads.extend(read);
            held.push(answer.held);
        }
        self.counters.points.fetch_add(points as u64, Relaxed);
        Ok((heads, held))
    }

    /// Counts a failure and marks the node, where it is the node's. It is probed at once.
    fn failed(&self, node: &Member, error: AskError) {
        let counter = match &error {
            AskError::Silent(_) => &self.counters.silent,
            AskError::Slow(_) => &self.counters.slow,
            AskError::Refused => &self.counters.refused,
            AskError::Unsupported(_) => &self.counters.unsupported,
            AskError::Invalid(_) | AskError::TooMany => &self.counters.invalid,
            AskError::NoMemory => &self.counters.no_memory,
            AskError::Left => return,
        };
        counter.fetch_add(1, Relaxed);
        // The node is well, and the next query may need less of it.
        if matches!(error, AskError::TooMany | AskError::NoMemory) {
            return self.log(node, &error);
        }
        if matches!(error, AskError::Slow(_)) {
            self.slow.lock().insert(node.node);
            self.log(node, &error);
        } else {
            self.mark(node, error);
        }
        self.failed.notify_one();
    }

    fn mark(&self, node: &Member, error: AskError) {
        let before = self.marks.lock().insert(node.node, error.clone());
        if before.is_none() {
            self.log(node, &error);
        }
    }

    fn log(&self, node: &Member, error: &AskError) {
        if let Some(suppressed) = self.failures.is_due(self.clock.instant()) {
            tracing::warn!(peer = shown(node), %error, suppressed,
                "a node does not give its points in memory; answers lack them and name it until it does. Logging this once a minute");
        }
    }

    /// Shows this node to all others, which look it up in the table `nodes` before they answer: its row must be there. A node that
    /// does not answer finds it within a heartbeat.
    pub(crate) async fn greet(&self) {
        let nodes = self.members.all();
        let others = nodes.iter().filter(|node| !node.is_self && !node.address.is_empty());
        join_all(others.map(|node| self.within_patience(node, &[]))).await;
    }

    /// Probes the nodes that are marked, were slow, or have no recent heartbeat.
    async fn probe_all(&self) {
        let nodes = self.members.all();
        self.marks.lock().retain(|marked, _| nodes.iter().any(|node| node.node == *marked && !node.address.is_empty()));
        let slow = std::mem::take(&mut *self.slow.lock());
        let is_due = |node: &Member| {
            node.is_doubtful() || slow.contains(&node.node) || self.marks.lock().contains_key(&node.node)
        };
        let others = nodes.iter().filter(|node| !node.is_self && !node.address.is_empty());
        join_all(others.filter(|node| is_due(node)).map(|node| self.probed(node))).await;
    }

    /// Probes the nodes that were forgotten: one that answers is known again.
    async fn probe_forgotten(&self) {
        let forgotten = self.members.that_may_come_back();
        let forgotten = forgotten.iter().filter(|node| !node.is_self && !node.address.is_empty());
        join_all(forgotten.map(async |node| match self.within_patience(node, &[]).await {
            Ok(_) => {
                self.members.heard(node.node);
                tracing::info!(peer = shown(node), "a node that was silent for over a minute answers again");
            }
            Err(AskError::Left) => self.members.forget(node.node),
            Err(_) => {}
        }))
        .await;
    }

    /// Probes a node once. Returns whether it answered; then it is not marked any more.
    async fn probed(&self, node: &Member) -> bool {
        match self.within_patience(node, &[]).await {
            Ok(_) => {
                self.members.heard(node.node);
                if self.marks.lock().remove(&node.node).is_some() {
                    tracing::info!(peer = shown(node), "a node gives its points in memory again");
                }
                true
            }
            Err(AskError::Left) => {
                self.members.forget(node.node);
                self.marks.lock().remove(&node.node);
                true
            }
            Err(error) => {
                self.mark(node, error);
                false
            }
        }
    }
}

/// Probes nodes every [`PROBE_EVERY`], and when a query has met one that failed.
async fn probe(asker: Weak<HeadAsker>, failed: Arc<Notify>) {
    loop {
        let _ = tokio::time::timeout(PROBE_EVERY, failed.notified()).await;
        match asker.upgrade() {
            Some(asker) => asker.probe_all().await,
            None => return,
        }
    }
}

/// Probes nodes that were forgotten, however many queries fail meanwhile.
async fn probe_forgotten(asker: Weak<HeadAsker>) {
    loop {
        tokio::time::sleep(PROBE_FORGOTTEN_EVERY).await;
        match asker.upgrade() {
            Some(asker) => asker.probe_forgotten().await,
            None => return,
        }
    }
}

/// A node as answers name it.
fn shown(node: &Member) -> String {
    if node.address.is_empty() { node.node.to_string() } else { node.address.clone() }
}

impl HeadSource for HeadAsker {
    fn has_peers(&self) -> bool {
        self.members.has_others()
    }

    fn heads(&self, requests: Vec<HeadRequest>, given_up: Vec<String>) -> AskedHeads<'_> {
        Box::pin(self.ask_all(requests, given_up))
    }
}

#[cfg(test)]
mod tests {
    use host::{Host, ManualClock};
    use ingest::HeadRun;

    use store_cassandra::Calendar;

    use super::*;
    use crate::{
        change_log::ChangeLog,
        connection::Connection,
        head_wire::{MAX_POINTS, VERSION, read_request, write_answer},
        members::tests::row,
        write_clock::WriteClock,
    };

    /// Answers as many metrics as it may at once, each with its own place in the request as its value.
    struct Fake {
        at_once: usize,
        /// Values of each metric.
        values: usize,
        asked: Mutex<Vec<(String, usize)>>,
        failure: Mutex<Option<AskError>>,
    }

    impl HeadTransport for Fake {
        fn ask<'a>(
            &'a self,
            address: &'a str,
            request: Vec<u8>,
            began: &'a AtomicBool,
        ) -> BoxFuture<'a, Result<AnswerBytes, AskError>> {
            let metrics = read_request(&request).unwrap().metrics;
            self.asked.lock().push((address.to_owned(), metrics.len()));
            let head = |request: &HeadRequest| {
                vec![HeadRun {
                    is_coarse: false,
                    resolution: 1,
                    first_slot: 1,
                    values: vec![request.span.start as f64; self.values],
                }]
            };
            let heads: Vec<Head> = metrics.iter().map(head).collect();
            let answer = match self.failure.lock().clone().filter(|_| address == "host2:8080") {
                // A long answer to a question, and a short one to a probe.
                Some(AskError::Slow(_)) if !metrics.is_empty() => {
                    began.store(true, Relaxed);
                    return Box::pin(std::future::pending());
                }
                Some(AskError::Slow(_)) => answered(address, &heads),
                Some(error) => Err(error),
                None if metrics.len() > self.at_once => Err(AskError::TooMany),
                None => answered(address, &heads),
            };
            Box::pin(std::future::ready(answer))
        }
    }

    /// The answer of the node at `hostN:8080`.
    fn answered(address: &str, heads: &[Head]) -> Result<AnswerBytes, AskError> {
        let number = address["host".len()..].split(':').next().unwrap().parse().unwrap();
        let node = NodeId::of_number(number).to_string();
        Ok(AnswerBytes { bytes: write_answer(VERSION, &node, heads).unwrap(), held: Box::new(()) })
    }

    fn asker_for(
        nodes: &[u128],
        at_once: usize,
        patience: Duration,
    ) -> (Arc<HeadAsker>, Arc<Fake>, Arc<Members>, tempfile::TempDir) {
        let data = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(1_000));
        let calendar = Arc::new(Calendar::new(clock.clone()));
        let log = Arc::new(ChangeLog::new(clock.clone(), calendar.clone()));
        let connection = Arc::new(Connection::new(WriteClock::open(Host::system().disk, data.path()), log, calendar));
        let members = Arc::new(Members::new(clock.clone(), connection, "1".to_owned(), 0));
        members.saw(nodes.iter().map(|&node| row(node, 1_000_000)).collect());
        let fake = Arc::new(Fake {
            at_once,
            values: 400_000 / at_once.max(1),
            asked: Mutex::default(),
            failure: Mutex::default(),
        });
        (HeadAsker::new(clock, members.clone(), fake.clone(), patience), fake, members, data)
    }

    fn asker(nodes: &[u128], at_once: usize) -> (Arc<HeadAsker>, Arc<Fake>, Arc<Members>, tempfile::TempDir) {
        asker_for(nodes, at_once, Duration::from_secs(10))
    }

    fn requests(count: i64) -> Vec<HeadRequest> {
        (0..count).map(|place| HeadRequest { name: format!("m{place}"), span: place..place + 60 }).collect()
    }

    #[tokio::test]
    async fn a_node_with_too_many_points_is_asked_for_fewer_metrics_at_once() {
        let (asker, fake, ..) = asker(&[2], 3);
        let answer = asker.heads(requests(20), Vec::new()).await;
        // More in all than one answer may have.
        assert_eq!((answer.of_peers.len(), answer.missing.len()), (1, 0));
        assert!(asker.asked().points > MAX_POINTS as u64);
        let values: Vec<f64> = answer.of_peers[0].iter().map(|head| head[0].values[0]).collect();
        assert_eq!(values, (0..20).map(f64::from).collect::<Vec<_>>());
        let asked: Vec<usize> = fake.asked.lock().iter().map(|(_, metrics)| *metrics).collect();
        assert_eq!(asked, [20, 10, 5, 2, 3, 5, 2, 3, 10, 5, 2, 3, 5, 2, 3]);
        // Where even one metric has too many, the node is missing, and is asked the next time.
        let (asker, fake, ..) = self::asker(&[2], 0);
        for _ in 0..2 {
            assert_eq!(asker.heads(requests(1), Vec::new()).await.missing, ["host2:8080"]);
        }
        assert_eq!((fake.asked.lock().len(), asker.asked().invalid, asker.asked().skipped), (2, 2, 0));
        // As where this node has no memory for its answer.
        *fake.failure.lock() = Some(AskError::NoMemory);
        for _ in 0..2 {
            assert_eq!(asker.heads(requests(1), Vec::new()).await.missing, ["host2:8080"]);
        }
        assert_eq!((fake.asked.lock().len(), asker.asked().no_memory, asker.missing().len()), (4, 2, 0));
    }

    #[tokio::test]
    async fn a_node_that_fails_is_named_and_not_asked_again_before_it_answers_a_probe() {
        let (asker, fake, ..) = asker(&[2, 3], 100);
        for error in [
            AskError::Silent("x".to_owned()),
            AskError::Refused,
            AskError::Unsupported("x".to_owned()),
            AskError::Invalid("x".to_owned()),
        ] {
            *fake.failure.lock() = Some(error);
            for _ in 0..3 {
                let answer = asker.heads(requests(2), Vec::new()).await;
                assert_eq!((answer.of_peers.len(), answer.missing), (1, vec!["host2:8080".to_owned()]));
            }
            let node = asker.missing().remove(0);
            assert_eq!((node.address.as_str(), asker.missing().len()), ("host2:8080", 1));
            assert!(!asker.probed(&node).await);
            *fake.failure.lock() = None;
            assert!(asker.probed(&node).await && asker.missing().is_empty());
            assert_eq!(asker.heads(requests(2), Vec::new()).await.of_peers.len(), 2);
        }
        let asked = asker.asked();
        assert_eq!((asked.silent, asked.refused, asked.unsupported, asked.invalid, asked.skipped), (1, 1, 1, 1, 8));
        assert_eq!(asked.answered, 4 * (3 + 2));
        let of_failing = fake.asked.lock().iter().filter(|(address, _)| address == "host2:8080").count();
        assert_eq!(of_failing, 4 * (1 + 2 + 1), "the query that met the failure, two probes, the query behind them");
    }

    /// This node could not read the table `nodes` while another one drained: the other's row is gone, which may have expired.
    #[tokio::test]
    async fn a_node_that_was_drained_meanwhile_is_forgotten_when_it_says_so() {
        for is_probed in [false, true] {
            let (asker, fake, members, _data) = asker(&[2, 3], 100);
            *fake.failure.lock() = Some(AskError::Silent("x".to_owned()));
            assert_eq!(asker.heads(requests(1), Vec::new()).await.missing, ["host2:8080"]);
            *fake.failure.lock() = None;
            asker.probe_all().await;
            *fake.failure.lock() = Some(AskError::Left);
            if is_probed {
                assert!(asker.probed(&members.all()[0]).await);
            }
            let answer = asker.heads(requests(1), Vec::new()).await;
            assert_eq!((answer.of_peers.len(), answer.missing.len()), (1, 0));
            assert_eq!((members.all().len(), asker.missing().len()), (1, 0));
            // Its process ends.
            *fake.failure.lock() = Some(AskError::Silent("x".to_owned()));
            assert_eq!(asker.heads(requests(1), Vec::new()).await.missing, [""; 0]);
        }
    }

    #[tokio::test]
    async fn a_node_without_a_heartbeat_or_an_address_is_named_and_not_asked() {
        let (asker, fake, members, _data) = asker(&[2], 100);
        let mut rows = vec![row(2, 980_000), row(3, 1_000_000)];
        rows[1].address.clear();
        members.saw(vec![]);
        members.saw(rows);
        let answer = asker.heads(requests(1), Vec::new()).await;
        assert_eq!((answer.of_peers.len(), fake.asked.lock().len()), (0, 0));
        assert_eq!((answer.missing[0].as_str(), answer.missing.len()), ("host2:8080", 2));
        assert!(asker.has_peers());
        // It answers a probe: it is cut off from Cassandra alone.
        asker.probe_all().await;
        let answer = asker.heads(requests(1), Vec::new()).await;
        assert_eq!((answer.of_peers.len(), answer.missing.len()), (1, 1));
        assert_eq!(answer.missing, [NodeId::of_number(3).to_string()]);
    }

    #[tokio::test]
    async fn a_forgotten_node_that_answers_is_asked_again_and_is_not_named_before() {
        let (asker, fake, members, _data) = asker(&[2, 3], 100);
        // The heartbeat of the second node is a minute old, and its row is gone.
        members.saw(vec![row(2, 900_000), row(3, 1_001_000)]);
        members.forget(NodeId::of_number(2));
        members.saw(vec![row(2, 900_000), row(3, 1_002_000)]);
        members.saw(vec![row(3, 1_003_000)]);
        *fake.failure.lock() = Some(AskError::Silent("x".to_owned()));
        asker.probe_all().await;
        asker.probe_forgotten().await;
        let answer = asker.heads(requests(1), Vec::new()).await;
        assert_eq!((answer.of_peers.len(), answer.missing.len(), asker.missing().len()), (1, 0, 0));
        *fake.failure.lock() = None;
        asker.probe_forgotten().await;
        assert_eq!(asker.heads(requests(1), Vec::new()).await.of_peers.len(), 2);
        assert!(members.that_may_come_back().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_forgotten_node_is_probed_however_many_queries_fail() {
        let (asker, _fake, members, _data) = asker(&[3], 100);
        members.saw(vec![row(2, 900_000), row(3, 1_002_000)]);
        members.saw(vec![row(3, 1_003_000)]);
        for _ in 0..120 {
            asker.failed.notify_one();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(asker.heads(requests(1), Vec::new()).await.of_peers.len(), 2);
    }

    #[tokio::test]
    async fn a_node_whose_answer_arrives_too_slowly_is_named_in_that_answer_alone() {
        let (asker, fake, ..) = asker_for(&[2, 3], 100, Duration::from_millis(50));
        for turn in 1..4 {
            *fake.failure.lock() = Some(AskError::Slow(Duration::ZERO));
            let answer = asker.heads(requests(2), Vec::new()).await;
            assert_eq!((answer.of_peers.len(), &answer.missing), (1, &vec!["host2:8080".to_owned()]));
            assert_eq!((asker.missing().len(), asker.asked().slow, asker.asked().silent), (0, turn, 0));
            // The further reads of its query do not wait for it.
            let asked = fake.asked.lock().len();
            let answer = asker.heads(requests(2), answer.missing).await;
            assert_eq!((answer.of_peers.len(), answer.missing), (1, vec!["host2:8080".to_owned()]));
            assert_eq!((fake.asked.lock().len(), asker.asked().slow), (asked + 1, turn));
            // The next query asks it, whether or not a probe was there before.
            *fake.failure.lock() = None;
            assert_eq!(asker.heads(requests(2), Vec::new()).await.of_peers.len(), 2);
        }
        // A probe that fails says that it is the node.
        *fake.failure.lock() = Some(AskError::Slow(Duration::ZERO));
        asker.heads(requests(2), Vec::new()).await;
        *fake.failure.lock() = Some(AskError::Silent("x".to_owned()));
        asker.probe_all().await;
        assert_eq!(asker.missing().len(), 1);
        assert_eq!(asker.heads(requests(2), Vec::new()).await.missing, ["host2:8080"]);
        assert_eq!((asker.asked().silent, asker.asked().skipped), (0, 3 + 1));
    }
}
