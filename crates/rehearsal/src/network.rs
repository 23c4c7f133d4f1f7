//! What nodes over the same tables share: the tables, the table `nodes`, and the ways between them, which may be slow or cut.
//!
//! Each node has a runtime of its own. While one runs, the others stand still; what it asks of another runs on that one's
//! runtime meanwhile. At a statement that a step names, another node does a whole piece of work before the statement.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use cluster::{AnswerBytes, AskError, HeadTransport, Heads, NodesTable, Peers, Sharing, Tables};
use futures::future::{BoxFuture, FutureExt};
use host::{Clock as _, Host, InPlace, Random as _, SeededRandom};
use store::{OtherWriters, Store, StoreError};
use store_cassandra::{
    Calendar, Fate, InMemoryTables, InMemoryWriter, Layout, Link, NODE_KEPT, NodeId, NodeRow, SharedTables,
};
use tokio::task::JoinHandle;

use crate::{Life, tables::OpenTables};

/// How long an answer of a slow node takes: more than any other node waits.
const SLOW: Duration = Duration::from_secs(2);

/// How statements of a node fare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TablesWay {
    /// Reads, of those that do not get through.
    pub reads: Fate,
    /// Writes, of those that do not get through.
    pub writes: Fate,
    /// One statement in so many does not get through; 1 for all.
    pub one_in: u64,
}

impl TablesWay {
    /// Every statement is done.
    pub const UP: TablesWay = TablesWay { reads: Fate::Done, writes: Fate::Done, one_in: 1 };
}

/// How requests of a node to another one fare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerWay {
    /// They are answered.
    Up,
    /// They do not arrive, and the sender sees it.
    Refused,
    /// They do not arrive, and the sender waits.
    Silent,
    /// They are answered, and the answer does not arrive.
    AnswerLost,
    /// The answer begins, and takes longer than the sender waits.
    Slow,
}

/// A process of a node.
pub(crate) struct Alive {
    pub(crate) life: Life,
    pub(crate) heads: Heads,
    /// Where it shares names with others.
    pub(crate) peers: Option<Arc<Peers>>,
}

impl Alive {
    /// The time of its calendar.
    pub(crate) fn shown(&self) -> Duration {
        self.life.within(|_| self.life.clock.since_epoch())
    }
}

/// A place of a node.
struct Place {
    alive: Option<Arc<Alive>>,
    writer: Option<Arc<InMemoryWriter>>,
    /// Its id in all tables.
    number: u16,
    /// Which tables its next process writes.
    layout: Layout,
    way: TablesWay,
    /// Its ways to the others.
    to: Vec<PeerWay>,
    /// The highest write time of its folder.
    written: i64,
}

/// A piece of work of another node, at a statement of this place.
struct Act {
    place: usize,
    statements: u64,
    work: Box<dyn FnOnce() + Send>,
}

struct State {
    places: Vec<Place>,
    /// The rows, and when they expire.
    nodes: BTreeMap<NodeId, (NodeRow, Duration)>,
    /// The time of the tables' clock.
    now: Duration,
    random: SeededRandom,
    act: Option<Act>,
}

/// Tables and ways.
pub(crate) struct Network {
    pub(crate) tables: InMemoryTables,
    /// Whether names are in the tables, too. Otherwise each node has its own.
    has_names: bool,
    /// Whether the calendars of nodes are wrong.
    pub(crate) has_skew: AtomicBool,
    state: Mutex<State>,
}

/// One node's end of the network.
pub(crate) struct NodeEnd {
    network: Arc<Network>,
    place: usize,
    number: u16,
    /// Whether its process has seen other nodes.
    has_others: Arc<AtomicBool>,
    /// By which it writes, once its tables are open.
    calendar: OnceLock<Arc<Calendar>>,
    /// Its way to the names in the tables.
    writer: OnceLock<Arc<InMemoryWriter>>,
    sharing: Mutex<Option<Sharing>>,
}

/// The id of a node in the table `nodes`.
fn id_of(number: u16) -> NodeId {
    NodeId::of_number(u128::from(number))
}

/// The address of a node.
pub(crate) fn address(number: u16) -> String {
    format!("node{number}:8080")
}

impl Network {
    pub(crate) fn new(layouts: &[Layout], seed: u64, now: Duration, has_names: bool) -> Arc<Network> {
        let place = |(place, layout): (usize, &Layout)| Place {
            alive: None,
            writer: None,
            number: place as u16 + 1,
            layout: *layout,
            way: TablesWay::UP,
            to: vec![PeerWay::Up; layouts.len()],
            written: 0,
        };
        let places = layouts.iter().enumerate().map(place).collect();
        let state = State { places, nodes: BTreeMap::new(), now, random: SeededRandom::new(seed), act: None };
        let tables = InMemoryTables::default();
        tables.set_now(now.as_secs() as i64);
        Arc::new(Network { tables, has_names, has_skew: AtomicBool::new(false), state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of the node at a place, as its process has it.
    pub(crate) fn end(self: &Arc<Network>, place: usize) -> Arc<NodeEnd> {
        Arc::new(NodeEnd {
            network: self.clone(),
            place,
            number: self.number(place),
            has_others: Arc::default(),
            calendar: OnceLock::new(),
            writer: OnceLock::new(),
            sharing: Mutex::default(),
        })
    }

    pub(crate) fn number(&self, place: usize) -> u16 {
        self.state().places[place].number
    }

    /// The place has a new folder, whose node is another one to all others.
    pub(crate) fn renumber(&self, place: usize) {
        let mut state = self.state();
        let count = state.places.len() as u16;
        state.places[place].number += count;
        state.places[place].written = 0;
    }

    /// The next process of a place writes the tables of this layout.
    pub(crate) fn set_layout(&self, place: usize, layout: Layout) {
        self.state().places[place].layout = layout;
    }

    pub(crate) fn set_tables(&self, place: usize, way: TablesWay) {
        self.state().places[place].way = way;
    }

    pub(crate) fn tables_way(&self, place: usize) -> TablesWay {
        self.state().places[place].way
    }

    pub(crate) fn set_peer(&self, from: usize, to: usize, way: PeerWay) {
        self.state().places[from].to[to] = way;
    }

    pub(crate) fn peer_way(&self, from: usize, to: usize) -> PeerWay {
        self.state().places[from].to[to]
    }

    /// Everything gets through.
    pub(crate) fn heal(&self) {
        for place in &mut self.state().places {
            place.way = TablesWay::UP;
            place.to.fill(PeerWay::Up);
        }
    }

    /// The time goes on.
    pub(crate) fn set_now(&self, now: Duration) {
        let mut state = self.state();
        state.now = state.now.max(now);
        let now = state.now;
        self.tables.set_now(now.as_secs() as i64);
        state.nodes.retain(|_, (_, until)| now < *until);
    }

    pub(crate) fn set_alive(&self, place: usize, alive: Alive) {
        self.state().places[place].alive = Some(Arc::new(alive));
    }

    pub(crate) fn alive(&self, place: usize) -> Option<Arc<Alive>> {
        self.state().places[place].alive.clone()
    }

    /// The process of a place, which ends.
    pub(crate) fn take_alive(&self, place: usize) -> Option<Alive> {
        let mut state = self.state();
        let place = &mut state.places[place];
        if let Some(writer) = place.writer.take() {
            place.written = place.written.max(writer.last_timestamp());
        }
        let mut alive = place.alive.take()?;
        drop(state);
        loop {
            match Arc::try_unwrap(alive) {
                Ok(alone) => return Some(alone),
                // It still answers a node that does not wait for that any more.
                Err(shared) => alive = shared,
            }
            std::thread::yield_now();
        }
    }

    /// The node says that it stops.
    pub(crate) fn withdraw(&self, place: usize) {
        let mut state = self.state();
        let id = id_of(state.places[place].number);
        state.nodes.remove(&id);
    }

    /// Whether the row of a node is there.
    pub(crate) fn has_row(&self, place: usize) -> bool {
        let state = self.state();
        state.nodes.contains_key(&id_of(state.places[place].number))
    }

    /// Does a piece of work before the statement of this place that comes so many statements later.
    pub(crate) fn act_at(&self, place: usize, statements: u64, work: impl FnOnce() + Send + 'static) {
        self.state().act = Some(Act { place, statements, work: Box::new(work) });
    }

    /// Forgets the work, unless it has begun, which it returns.
    pub(crate) fn act_ended(&self) -> bool {
        self.state().act.take().is_none()
    }

    /// Runs work of another node, whose runtime needs a thread of its own. Where all runs in the order of the seed, so does this.
    fn on_a_thread<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let order = host::is_in_place().then(|| self.state().random.bits());
        tokio::task::spawn_blocking(move || {
            let _in_place = order.map(|seed| InPlace::begin(Arc::new(SeededRandom::new(seed))));
            work()
        })
    }

    /// The work that is due before this statement.
    fn due(&self, place: usize) -> Option<Box<dyn FnOnce() + Send>> {
        let mut state = self.state();
        let act = state.act.as_mut().filter(|act| act.place == place)?;
        if act.statements > 0 {
            act.statements -= 1;
            return None;
        }
        state.act.take().map(|act| act.work)
    }

    fn fate(&self, place: usize, is_write: bool) -> Fate {
        let state = self.state();
        let way = state.places[place].way;
        let fate = if is_write { way.writes } else { way.reads };
        if fate == Fate::Done || state.random.below(way.one_in) > 0 { Fate::Done } else { fate }
    }
}

impl fmt::Debug for NodeEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeEnd({})", self.number)
    }
}

impl Link for NodeEnd {
    fn has_others(&self) -> bool {
        self.has_others.load(Relaxed)
    }

    fn statement(&self, is_write: bool) -> BoxFuture<'_, Fate> {
        async move {
            if let Some(work) = self.network.due(self.place) {
                self.network.on_a_thread(work).await.expect("the work of another node does not panic");
            }
            self.network.fate(self.place, is_write)
        }
        .boxed()
    }
}

impl OpenTables for NodeEnd {
    fn open(self: Arc<Self>, host: &Host, local: Store) -> Store {
        let (layout, after) = {
            let place = &self.network.state().places[self.place];
            (place.layout, place.written)
        };
        // Not this end itself, which keeps the writer.
        let link = NodeEnd {
            network: self.network.clone(),
            has_others: self.has_others.clone(),
            calendar: OnceLock::new(),
            writer: OnceLock::new(),
            sharing: Mutex::default(),
            ..*self
        };
        let writer = self.network.tables.writer((self.number, layout), host.clock.clone(), Arc::new(link), after);
        let (writer, calendar) = (Arc::new(writer), Arc::new(Calendar::new(host.clock.clone())));
        calendar.was(after);
        writer.go_by(calendar.clone());
        assert!(self.calendar.set(calendar.clone()).is_ok(), "an end is of one process");
        self.network.state().places[self.place].writer = Some(writer.clone());
        if !self.network.has_names {
            return Store { points: writer.clone(), shared: Some(writer), ..local };
        }
        assert!(self.writer.set(writer).is_ok(), "an end is of one process");
        let sharing = Sharing::over(self.clone(), calendar, local, host.clone());
        let store = sharing.store();
        *self.sharing.lock().unwrap_or_else(PoisonError::into_inner) = Some(sharing);
        store
    }
}

impl Tables for NodeEnd {
    fn tables(&self) -> Result<&dyn SharedTables, StoreError> {
        Ok(&**self.writer.get().expect("its tables are open"))
    }

    fn to_write(&self) -> Result<&dyn SharedTables, StoreError> {
        self.tables()
    }

    fn problem(&self) -> Option<String> {
        None
    }

    fn other_writers(&self) -> OtherWriters {
        OtherWriters { are_there: self.has_others(), have_same_points: false }
    }
}

fn away(doing: &str) -> StoreError {
    StoreError::Unavailable(format!("{doing} the table nodes: no answer"))
}

impl NodesTable for NodeEnd {
    fn own(&self) -> Option<NodeId> {
        Some(id_of(self.number))
    }

    fn is_up(&self) -> bool {
        true
    }

    fn announce<'a>(&'a self, row: &'a NodeRow) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            let fate = self.network.fate(self.place, true);
            if fate != Fate::Refused {
                let mut state = self.network.state();
                let until = state.now + NODE_KEPT;
                state.nodes.insert(row.node, (row.clone(), until));
            }
            if fate == Fate::Done { Ok(()) } else { Err(away("writing")) }
        }
        .boxed()
    }

    fn withdraw(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            self.network.withdraw(self.place);
            Ok(())
        }
        .boxed()
    }

    fn saw_other(&self, _is_of_other_replica: bool) {
        self.has_others.store(true, Relaxed);
    }

    fn calendar(&self) -> &Calendar {
        self.calendar.get().expect("its tables are open")
    }

    fn has_turns(&self) -> bool {
        // A node that is ahead for that is not so in a moment.
        !self.network.has_skew.load(Relaxed)
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<NodeRow>, StoreError>> {
        async move {
            match self.network.fate(self.place, false) {
                Fate::Done => Ok(self.network.state().nodes.values().map(|(row, _)| row.clone()).collect()),
                Fate::Refused | Fate::Lost => Err(away("reading")),
            }
        }
        .boxed()
    }
}

impl NodeEnd {
    /// What needs ingestion of names in the tables, once.
    pub(crate) fn take_sharing(&self) -> Option<Sharing> {
        self.sharing.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The process at an address, and its place.
    fn at(&self, wanted: &str) -> Option<(usize, Option<Arc<Alive>>)> {
        let state = self.network.state();
        let place = state.places.iter().position(|place| address(place.number) == wanted)?;
        Some((place, state.places[place].alive.clone()))
    }

    async fn ask(&self, wanted: &str, request: Vec<u8>, began: &AtomicBool) -> Result<AnswerBytes, AskError> {
        let refused = || AskError::Silent("connection refused".to_owned());
        let (place, alive) = self.at(wanted).ok_or_else(refused)?;
        let way = self.network.peer_way(self.place, place);
        match way {
            PeerWay::Refused => return Err(refused()),
            PeerWay::Silent => {
                // A request that waits must not keep the process: its end would wait for the request.
                drop(alive);
                return std::future::pending().await;
            }
            PeerWay::Up | PeerWay::AnswerLost | PeerWay::Slow => {}
        }
        let alive = alive.ok_or_else(refused)?;
        let give = move || {
            let given = alive.life.run("an answer to a peer", async {
                let turn = alive.heads.giver.turn().await;
                alive.heads.giver.give(turn, request).await
            });
            given.map(|given| given.map_err(|error| AskError::Unsupported(error.to_string())))
        };
        let given = self.network.on_a_thread(give).await.map_err(|_| refused())?;
        let bytes = given.ok_or_else(refused)??;
        match way {
            PeerWay::AnswerLost => std::future::pending().await,
            PeerWay::Slow => {
                began.store(true, Relaxed);
                tokio::time::sleep(SLOW).await;
            }
            _ => {}
        }
        Ok(AnswerBytes { bytes, held: Box::new(()) })
    }
}

impl HeadTransport for NodeEnd {
    fn ask<'a>(
        &'a self,
        address: &'a str,
        request: Vec<u8>,
        began: &'a AtomicBool,
    ) -> BoxFuture<'a, Result<AnswerBytes, AskError>> {
        NodeEnd::ask(self, address, request, began).boxed()
    }
}
