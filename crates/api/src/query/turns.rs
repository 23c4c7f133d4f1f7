//! Turns for heavy work: a limited number of queries runs, a limited number waits.
//!
//! Turns are by client: of those that wait, the client with the fewest running queries comes first, and no client has all
//! turns. Neither renders of globs nor work on names have all of them, so that reads of whole names wait for neither.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::http::{Client, Limits, Rejection};

/// The part of all turns that one client leaves to others, and that one kind of heavy work leaves.
const LEFT_BY_CLIENT: usize = 8;
const LEFT_BY_KIND: usize = 4;

/// What a turn is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Reading whole names.
    Whole,
    /// Reading what globs match.
    Globs,
    /// Finding and listing names.
    Names,
}

impl Kind {
    /// The kind of a render.
    pub fn of_targets(targets: &[impl AsRef<str>]) -> Kind {
        let is_whole = |target: &str| !target.contains(['*', '?', '[', '{']) && !target.contains("seriesByTag");
        if targets.iter().all(|target| is_whole(target.as_ref())) { Kind::Whole } else { Kind::Globs }
    }
}

/// The queue of queries.
pub(crate) struct QueryTurns(Arc<Shared>);

struct Shared {
    max_running: usize,
    max_waiting: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By kind.
    running: [usize; 3],
    /// Of each client that has any.
    clients: HashMap<Client, usize>,
    /// In the order in which they came. Invariant: none of them has room.
    waiting: Vec<Waiting>,
    next: u64,
    /// The last client that got its turn behind others.
    last: Option<Client>,
}

struct Waiting {
    number: u64,
    client: Client,
    kind: Kind,
    granted: oneshot::Sender<Turn>,
}

/// The number of unfinished queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// Running.
    pub running: usize,
    /// Waiting for a turn.
    pub waiting: usize,
}

/// A turn. Dropping it gives it to the next client.
pub(crate) struct Turn {
    queue: Weak<Shared>,
    client: Client,
    kind: Kind,
}

impl QueryTurns {
    /// A queue with the bounds of `limits`.
    pub fn new(limits: &Limits) -> QueryTurns {
        let (max_running, max_waiting) = (limits.concurrent_queries, limits.queued_queries);
        QueryTurns(Arc::new(Shared { max_running, max_waiting, state: Mutex::default() }))
    }

    /// Waits for a turn. Fails at once when the queue is full, and later when it is full and the client has the most in it.
    pub async fn wait(&self, client: Client, kind: Kind) -> Result<Turn, Rejection> {
        let shared = &self.0;
        let busy = || Rejection::Busy(shared.max_running);
        let (number, turn) = {
            let mut state = shared.state.lock();
            if shared.has_room(&state, &client, kind) {
                return Ok(shared.begin(&mut state, client, kind));
            }
            if state.waiting.len() >= shared.max_waiting && !state.make_place(&client) {
                return Err(busy());
            }
            let (granted, turn) = oneshot::channel();
            let number = state.next;
            state.next += 1;
            state.waiting.push(Waiting { number, client, kind, granted });
            (number, turn)
        };
        let _queued = Queued { shared, number };
        turn.await.map_err(|_| busy())
    }

    /// The number of unfinished queries, for gauges.
    pub fn activity(&self) -> Activity {
        let state = self.0.state.lock();
        Activity { running: state.running.iter().sum(), waiting: state.waiting.len() }
    }
}

impl Shared {
    fn has_room(&self, state: &State, client: &Client, kind: Kind) -> bool {
        let of_kind = match kind {
            Kind::Whole => self.max_running,
            Kind::Globs | Kind::Names => self.max_running - self.max_running / LEFT_BY_KIND,
        };
        let of_client = self.max_running - self.max_running / LEFT_BY_CLIENT;
        state.running.iter().sum::<usize>() < self.max_running
            && state.running[kind as usize] < of_kind
            && state.running_of(client) < of_client
    }

    fn begin(self: &Arc<Shared>, state: &mut State, client: Client, kind: Kind) -> Turn {
        state.running[kind as usize] += 1;
        *state.clients.entry(client.clone()).or_default() += 1;
        Turn { queue: Arc::downgrade(self), client, kind }
    }

    /// Gives free turns to those that wait. Returns turns of those that left meanwhile.
    fn grant(self: &Arc<Shared>, state: &mut State) -> Vec<Turn> {
        let mut left = Vec::new();
        loop {
            let with_room = state.waiting.iter().enumerate();
            let with_room = with_room.filter(|(_, one)| self.has_room(state, &one.client, one.kind));
            // Of clients with as many, the one that came first, but not the same one twice.
            let rank = |one: &Waiting| (state.running_of(&one.client), state.last.as_ref() == Some(&one.client));
            let Some((next, _)) = with_room.min_by_key(|(_, one)| rank(one)) else { return left };
            let Waiting { client, kind, granted, .. } = state.waiting.remove(next);
            state.last = Some(client.clone());
            let turn = self.begin(state, client, kind);
            left.extend(granted.send(turn).err());
        }
    }
}

impl State {
    fn running_of(&self, client: &Client) -> usize {
        self.clients.get(client).copied().unwrap_or(0)
    }

    /// Where another client has at least two more in a full queue than this one: its newest leaves.
    fn make_place(&mut self, client: &Client) -> bool {
        let mut waiting: HashMap<&Client, usize> = HashMap::new();
        self.waiting.iter().for_each(|one| *waiting.entry(&one.client).or_default() += 1);
        let own = waiting.get(client).copied().unwrap_or(0);
        let Some((most, _)) = waiting.into_iter().max_by_key(|&(_, count)| count).filter(|&(_, count)| own + 1 < count)
        else {
            return false;
        };
        let newest = self.waiting.iter().rposition(|one| one.client == *most);
        newest.map(|newest| self.waiting.remove(newest)).is_some()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(shared) = self.queue.upgrade() else { return };
        let left = {
            let mut state = shared.state.lock();
            state.running[self.kind as usize] -= 1;
            if let Some(running) = state.clients.get_mut(&self.client) {
                *running -= 1;
                if *running == 0 {
                    state.clients.remove(&self.client);
                }
            }
            shared.grant(&mut state)
        };
        // Outside of the lock, which they take.
        drop(left);
    }
}

/// A place in the queue. Dropping it leaves the queue.
struct Queued<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().waiting.retain(|one| one.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::Pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn turns(running: usize, waiting: usize) -> QueryTurns {
        QueryTurns::new(&Limits { concurrent_queries: running, queued_queries: waiting, ..Limits::default() })
    }

    fn named(name: &str) -> Client {
        Client::Named(name.to_owned())
    }

    type Wait<'a> = Pin<Box<dyn Future<Output = Result<Turn, Rejection>> + 'a>>;

    fn ask<'a>(turns: &'a QueryTurns, client: &str, kind: Kind) -> Wait<'a> {
        let mut wait: Wait = Box::pin(turns.wait(named(client), kind));
        // It asks when it is polled.
        match poll(&mut wait) {
            Poll::Pending => wait,
            Poll::Ready(turn) => Box::pin(async { turn }),
        }
    }

    fn poll(wait: &mut Wait) -> Poll<Result<Turn, Rejection>> {
        wait.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    fn granted(wait: &mut Wait) -> Option<Turn> {
        match poll(wait) {
            Poll::Ready(turn) => Some(turn.unwrap_or_else(|rejection| panic!("{rejection}"))),
            Poll::Pending => None,
        }
    }

    #[test]
    fn the_client_with_the_fewest_running_queries_is_next() {
        let turns = turns(2, 10);
        let mut running: Vec<Turn> = (0..2).filter_map(|_| granted(&mut ask(&turns, "a", Kind::Whole))).collect();
        let mut more: Vec<Wait> = (0..3).map(|_| ask(&turns, "a", Kind::Whole)).collect();
        let mut other = ask(&turns, "b", Kind::Whole);
        assert_eq!(turns.activity(), Activity { running: 2, waiting: 4 });
        running.pop();
        let other = granted(&mut other).expect("before those of a");
        assert!(more.iter_mut().all(|wait| granted(wait).is_none()));
        drop(other);
        assert!(granted(&mut more[0]).is_some());
    }

    #[test]
    fn no_client_and_no_kind_of_heavy_work_has_all_turns() {
        let turns = turns(16, 100);
        let count = |client: &str, kind| {
            let mut all: Vec<Wait> = (0..20).map(|_| ask(&turns, client, kind)).collect();
            all.iter_mut().filter_map(granted).collect::<Vec<Turn>>()
        };
        let globs = count("a", Kind::Globs);
        assert_eq!(globs.len(), 12);
        let rest = count("a", Kind::Whole);
        assert_eq!(rest.len(), 2);
        assert_eq!(count("b", Kind::Names).len(), 2);
        drop((globs, rest));
        assert_eq!(turns.activity(), Activity { running: 0, waiting: 0 });
        assert_eq!(count("a", Kind::Whole).len(), 14);
    }

    #[test]
    fn a_client_that_fills_the_queue_makes_place_for_another() {
        let turns = turns(1, 4);
        let running = granted(&mut ask(&turns, "a", Kind::Whole));
        let mut own: Vec<Wait> = (0..4).map(|_| ask(&turns, "a", Kind::Whole)).collect();
        assert!(matches!(poll(&mut ask(&turns, "a", Kind::Whole)), Poll::Ready(Err(Rejection::Busy(1)))));
        let mut other = ask(&turns, "b", Kind::Whole);
        assert!(matches!(poll(&mut own[3]), Poll::Ready(Err(Rejection::Busy(1)))));
        drop(running);
        assert!(granted(&mut own[0]).is_some());
        assert!(granted(&mut other).is_some());
    }

    #[test]
    fn turns_of_those_that_left_go_on() {
        let turns = turns(1, 4);
        let running = granted(&mut ask(&turns, "a", Kind::Whole));
        let (left, gone, mut stays) =
            (ask(&turns, "b", Kind::Whole), ask(&turns, "c", Kind::Whole), ask(&turns, "d", Kind::Whole));
        drop(gone);
        drop(running);
        assert_eq!(turns.activity(), Activity { running: 1, waiting: 1 });
        // It has its turn and never learns of it.
        drop(left);
        assert!(granted(&mut stays).is_some());
    }

    #[test]
    fn the_kind_of_a_render_is_that_of_its_targets() {
        assert_eq!(Kind::of_targets(&["sumSeries(a.b,c.d)", "e"]), Kind::Whole);
        assert_eq!(Kind::of_targets(&["a", "seriesByTag('a=b')"]), Kind::Globs);
        assert_eq!(Kind::of_targets(&["a.{b,c}"]), Kind::Globs);
    }
}
