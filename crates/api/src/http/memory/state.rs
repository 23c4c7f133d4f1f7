//! Memory that a budget has given to its clients, and the work that waits for more: decisions without waiting.

use std::{cmp::Reverse, collections::HashMap, sync::Arc, time::Duration};

use tokio::{sync::Notify, time::Instant};

use super::super::client::Client;

/// A body that has come for less than this may be coming as fast as it can.
const SHORTEST_BODY: Duration = Duration::from_millis(500);

/// Sizes of a budget.
pub(super) struct Sizes {
    /// Bytes for small shares alone, and for all others.
    pub small: usize,
    pub large: usize,
    /// Whether many clients share it. A client that has some then leaves a part to others: a quarter, and of the memory for
    /// bodies that are still coming three quarters.
    pub is_shared: bool,
}

pub(super) struct State {
    sizes: Sizes,
    free_small: usize,
    free_large: usize,
    /// Shares with bytes of the large part.
    pub holders: usize,
    /// Of each client that has any.
    clients: HashMap<Client, Held>,
    /// Bodies of requests that are still coming.
    bodies: HashMap<u64, Body>,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
    next: u64,
}

/// Bytes of a client.
#[derive(Debug, Default, Clone, Copy)]
struct Held {
    small: usize,
    /// Of the large part, with those of bodies.
    large: usize,
    bodies: usize,
}

struct Body {
    client: Client,
    bytes: usize,
    since: Instant,
    leave: Arc<Notify>,
    is_leaving: bool,
}

struct Waiting {
    number: u64,
    wish: Wish,
    granted: Arc<Notify>,
}

/// Bytes that a share wants besides those that it has.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub client: Client,
    pub for_what: For,
    pub bytes: usize,
    /// Bytes of the large part that the share has.
    pub has: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// A small share.
    Small,
    /// A share that has no bytes of the large part yet.
    Begin,
    /// A share that has some. It goes before those that begin, because its end frees memory.
    Grow,
    /// A body that is still coming, with its number. Others do not wait for it, and it waits as those that begin.
    Body(u64),
}

impl State {
    pub fn new(sizes: Sizes) -> State {
        State {
            free_small: sizes.small,
            free_large: sizes.large,
            sizes,
            holders: 0,
            clients: HashMap::new(),
            bodies: HashMap::new(),
            waiting: Vec::new(),
            next: 0,
        }
    }

    pub fn free(&self) -> usize {
        self.free_small + self.free_large
    }

    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Shares that wait although they have memory.
    pub fn growing(&self) -> usize {
        self.waiting.iter().filter(|one| one.wish.for_what == For::Grow).count()
    }

    /// Gives bytes if they are free, and those that come before have theirs.
    pub fn take(&mut self, wish: &Wish) -> bool {
        let comes_before = |other: &For| match wish.for_what {
            For::Grow => false,
            For::Small => *other == For::Small,
            For::Begin | For::Body(_) => *other != For::Small,
        };
        let is_first = !self.waiting.iter().any(|other| comes_before(&other.wish.for_what));
        let is_given = is_first && self.has_room(wish);
        if is_given {
            self.give(wish);
        }
        is_given
    }

    /// Waits from now on. The result is notified once the bytes are given, which may be at once.
    pub fn wait(&mut self, number: u64, wish: Wish) -> Arc<Notify> {
        let granted = Arc::<Notify>::default();
        self.waiting.push(Waiting { number, wish, granted: granted.clone() });
        // Those that wait may all have more than this client.
        self.grant();
        granted
    }

    /// Ends a wait; false if the bytes have been given.
    pub fn leave(&mut self, number: u64) -> bool {
        let place = self.waiting.iter().position(|one| one.number == number);
        place.map(|place| self.waiting.remove(place)).is_some()
    }

    /// Takes bytes back, of the small part and of the large one; `is_last` if the share has no others of the large part.
    pub fn take_back(&mut self, client: &Client, body: Option<u64>, (small, large): (usize, usize), is_last: bool) {
        self.free_small += small;
        self.free_large += large;
        self.holders -= usize::from(is_last);
        if let Some(body) = body.and_then(|body| self.bodies.get_mut(&body)) {
            body.bytes -= large;
        }
        if let Some(held) = self.clients.get_mut(client) {
            held.small -= small;
            held.large -= large;
            held.bodies -= if body.is_some() { large } else { 0 };
            if held.small + held.large == 0 {
                self.clients.remove(client);
            }
        }
        self.grant();
    }

    /// A body is coming; the notification asks it to give its memory back.
    pub fn body_begins(&mut self, client: Client, leave: Arc<Notify>) -> u64 {
        let number = self.number();
        let since = tokio::time::Instant::now();
        self.bodies.insert(number, Body { client, bytes: 0, since, leave, is_leaving: false });
        number
    }

    /// A body is whole or given up. What it has belongs to the work from now on.
    pub fn body_ends(&mut self, number: u64) {
        if let Some(body) = self.bodies.remove(&number)
            && let Some(held) = self.clients.get_mut(&body.client)
        {
            held.bodies -= body.bytes;
        }
    }

    /// Asks as many bodies to give their memory back as one that waits needs: first those of the client that has the most. A
    /// body gets the place of bodies of clients that have more.
    pub fn make_room(&mut self, number: u64) {
        let Some(waiting) = self.waiting.iter().find(|one| one.number == number) else { return };
        let wish = waiting.wish.clone();
        if wish.for_what == For::Small || !self.is_within_its_part(&wish) {
            return;
        }
        let State { bodies, clients, free_large, .. } = self;
        let large = |client: &Client| clients.get(client).map_or(0, |held| held.large);
        let least = if matches!(wish.for_what, For::Body(_)) { large(&wish.client) + wish.bytes } else { 0 };
        let leaving = bodies.values().filter(|body| body.is_leaving).map(|body| body.bytes).sum::<usize>();
        let mut missing = wish.bytes.saturating_sub(*free_large + leaving);
        let mut coming: Vec<&mut Body> = bodies.values_mut().collect();
        coming.retain(|body| !body.is_leaving && least < large(&body.client) && SHORTEST_BODY <= body.since.elapsed());
        coming.sort_by_key(|body| (Reverse(large(&body.client)), body.since));
        for body in coming {
            if missing == 0 {
                break;
            }
            missing = missing.saturating_sub(body.bytes);
            body.is_leaving = true;
            body.leave.notify_one();
        }
    }

    /// Gives free bytes to those that wait: first to all that grow, then to those that begin, those of clients with the fewest
    /// bytes first.
    pub fn grant(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        self.grant_to(|wish| wish == For::Grow, false);
        self.grant_to(|wish| matches!(wish, For::Begin | For::Body(_)), true);
        self.grant_to(|wish| wish == For::Small, true);
    }

    /// Those that wait for the memory of their client's other work let all pass. `in_turn`: those that wait for any memory do not.
    fn grant_to(&mut self, is_meant: impl Fn(For) -> bool, in_turn: bool) {
        let mut passed = Vec::new();
        loop {
            let meant = self.waiting.iter().enumerate();
            let meant = meant.filter(|(_, one)| is_meant(one.wish.for_what) && !passed.contains(&one.number));
            let Some((place, next)) = meant.min_by_key(|(_, one)| (self.bytes_of(&one.wish), one.number)) else {
                return;
            };
            if self.has_room(&next.wish) {
                let Waiting { wish, granted, .. } = self.waiting.remove(place);
                self.give(&wish);
                granted.notify_one();
            } else if in_turn && self.is_within_its_part(&next.wish) {
                return;
            } else {
                passed.push(next.number);
            }
        }
    }

    /// Bytes of the client, of the same part.
    fn bytes_of(&self, wish: &Wish) -> usize {
        let held = self.clients.get(&wish.client).copied().unwrap_or_default();
        if wish.for_what == For::Small { held.small } else { held.large }
    }

    fn has_room(&self, wish: &Wish) -> bool {
        let free = if wish.for_what == For::Small { self.free_small } else { self.free_large };
        wish.bytes <= free && self.is_within_its_part(wish)
    }

    /// Whether the client has its part at most, or nothing else.
    fn is_within_its_part(&self, wish: &Wish) -> bool {
        if !self.sizes.is_shared {
            return true;
        }
        let held = self.clients.get(&wish.client).copied().unwrap_or_default();
        let is_within = |held: usize, part: usize| {
            let others = held - wish.has;
            others == 0 || held + wish.bytes <= part
        };
        let Sizes { small, large, .. } = self.sizes;
        match wish.for_what {
            For::Grow => true,
            For::Small => is_within(held.small, small / 4 * 3),
            // Bodies of the client itself give way to its work, too.
            For::Begin => is_within(held.large - held.bodies, large / 4 * 3),
            For::Body(_) => is_within(held.large, large / 4 * 3) && is_within(held.bodies, large / 4),
        }
    }

    fn give(&mut self, wish: &Wish) {
        let held = self.clients.entry(wish.client.clone()).or_default();
        if wish.for_what == For::Small {
            held.small += wish.bytes;
            self.free_small -= wish.bytes;
            return;
        }
        held.large += wish.bytes;
        self.free_large -= wish.bytes;
        self.holders += usize::from(wish.has == 0);
        if let For::Body(number) = wish.for_what
            && let Some(body) = self.bodies.get_mut(&number)
        {
            body.bytes += wish.bytes;
            held.bodies += wish.bytes;
        }
    }
}
