//! The points of one connection between two calls of `accept`.

use std::sync::Arc;

use carbon::{RejectReason, Sink};
use metadata::Registry;
use metric::Timestamp;

use super::{
    rejects::SAMPLE_BYTES,
    restrictions::{Gate, ListenerGate, TokenGate},
    tally::Tally,
};
use crate::{protocol::Protocol, wal::ResolvedPoint};

/// A batch is worth accepting from this many points on: the locks, the append and the `write(2)` are paid
/// once for all of them. It may hold more; a receiver should not let it hold many times more.
pub const BATCH_POINTS: usize = 1024;

/// Added to the time of points that come without one, until they are in a batch: beyond all times that a decoder reads.
pub(super) const TIMELESS: Timestamp = 1 << 60;

/// Examples of rejected input that one batch carries; the counters count the rest too.
const EXAMPLES: usize = 16;

/// Bytes of the first memory of a batch: for names, and for points.
const FIRST_BYTES: usize = 1 << 10;

/// What each point takes beyond its name, until it is accepted: as it was sent, as it is resolved, and its place if it is
/// left out.
const POINT_BYTES: usize = size_of::<Sent>() + size_of::<ResolvedPoint>() + size_of::<usize>();

/// A point as it was sent. Its name is in the batch's text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) hash: u64,
    pub(super) value: f64,
    pub(super) name_start: u32,
    pub(super) name_len: u16,
    pub(super) time: u32,
}

/// An input that was rejected.
pub(super) struct Example {
    pub(super) reason: RejectReason,
    pub(super) sample: Vec<u8>,
    /// The limit that was met, if it was one.
    pub(super) limit: Option<Arc<str>>,
}

/// Collects decoded points until [`crate::Acceptor::accept`] takes them. A connection keeps one for all its life, so that
/// its memory is allocated once.
pub struct Batch {
    pub(super) protocol: Protocol,
    /// Tells the connection or request from others.
    pub(super) sender: u64,
    /// The sender is another machine, whose clock is another one.
    pub(crate) is_remote: bool,
    /// Unix seconds that metrics of its points count as created on, where that is earlier than now.
    pub(crate) created_on: Option<Timestamp>,
    /// A point came without a time and got it here, as [`crate::Acceptor::time_for_none`] tells.
    pub(super) has_timeless: bool,
    registry: Arc<Registry>,
    pub(super) text: Vec<u8>,
    pub(super) sent: Vec<Sent>,
    pub(super) rejected: [u32; RejectReason::ALL.len()],
    pub(super) examples: Vec<Example>,
    /// For a sender that gets an answer.
    pub(super) tally: Option<Box<Tally>>,
    // Filled and emptied by accept; here so that its memory is allocated once.
    pub(super) resolved: Vec<ResolvedPoint>,
    /// Of a listener with restrictions.
    pub(super) gate: Option<Box<Gate>>,
    /// The places, among `sent`, of points that are not in `resolved`.
    pub(super) left_out: Vec<usize>,
    /// Bytes that it may have.
    allowed: usize,
    /// Bytes that it lacked for a point; 0 if it lacks none.
    wanted: usize,
}

impl Batch {
    pub(super) fn new(protocol: Protocol, sender: u64, registry: Arc<Registry>) -> Batch {
        Batch {
            protocol,
            sender,
            is_remote: false,
            created_on: None,
            has_timeless: false,
            registry,
            text: Vec::new(),
            sent: Vec::new(),
            rejected: [0; RejectReason::ALL.len()],
            examples: Vec::new(),
            tally: None,
            resolved: Vec::new(),
            gate: None,
            left_out: Vec::new(),
            allowed: usize::MAX,
            wanted: 0,
        }
    }

    /// The batch of a connection of a listener with restrictions.
    pub(crate) fn restricted(mut self, listener: Option<&Arc<ListenerGate>>) -> Batch {
        self.gate = listener.map(|listener| Box::new(Gate::new(listener.clone())));
        self
    }

    /// Restricts the batch of a body whose sender has a token.
    pub(crate) fn restrict_to(&mut self, sender: Option<&TokenGate>) {
        self.gate = sender.map(|TokenGate { limits, writes, counted }| {
            Box::new(Gate { writes: writes.clone(), counted: counted.clone(), ..Gate::new(limits.clone()) })
        });
    }

    /// Gives a point the name that it has now, or that name behind a prefix; false if it is too long.
    pub(super) fn rename(&mut self, sent: &mut Sent, prefix: Option<&[u8]>) -> bool {
        if let Some(prefix) = prefix {
            let start = sent.name_start as usize;
            let Ok(name_len) = u16::try_from(prefix.len() + usize::from(sent.name_len)) else { return false };
            let name = start..start + usize::from(sent.name_len);
            (sent.name_start, sent.name_len) = (self.text.len() as u32, name_len);
            self.text.extend_from_slice(prefix);
            self.text.extend_from_within(name);
        }
        sent.hash = self.registry.hash(self.name(sent));
        true
    }

    /// Points waiting to be accepted.
    pub fn len(&self) -> usize {
        self.sent.len()
    }

    /// Whether no point waits.
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Inputs rejected since the last accept, all reasons together.
    pub fn rejected(&self) -> u64 {
        self.rejected.iter().map(|&count| u64::from(count)).sum()
    }

    pub(super) fn name(&self, sent: &Sent) -> &[u8] {
        let start = sent.name_start as usize;
        &self.text[start..start + usize::from(sent.name_len)]
    }

    pub(super) fn reject_sample(&mut self, reason: RejectReason, sample: &[u8]) {
        self.reject_for_limit(reason, sample, None);
    }

    /// As `reject_sample`, with the limit that was met.
    pub(super) fn reject_for_limit(&mut self, reason: RejectReason, sample: &[u8], limit: Option<Arc<str>>) {
        self.rejected[reason as usize] += 1;
        if self.examples.len() < EXAMPLES {
            let sample = sample[..sample.len().min(SAMPLE_BYTES)].to_vec();
            self.examples.push(Example { reason, sample, limit });
        }
    }

    /// Counts from now on for a sender that gets an answer.
    pub(crate) fn begin_tally(&mut self) {
        self.tally = Some(Box::default());
    }

    /// What was counted since [`Batch::begin_tally`].
    pub(crate) fn take_tally(&mut self) -> Tally {
        self.tally.take().map_or_else(Tally::default, |tally| *tally)
    }

    /// Bytes of its allocations, and of those that its points need until they are accepted.
    pub(crate) fn memory_bytes(&self) -> usize {
        bytes_of(self.text.capacity(), self.sent.capacity())
    }

    /// Sets the memory that it may have from now on. Decoders stop in front of a point that needs more.
    pub(crate) fn allow(&mut self, bytes: usize) {
        (self.allowed, self.wanted) = (bytes, 0);
    }

    /// The memory that a decoder stopped for, if one did.
    pub(crate) fn wanted(&self) -> Option<usize> {
        (0 < self.wanted).then_some(self.wanted)
    }

    /// Makes room for a point if it may.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, name_bytes: usize) -> bool {
        let (text, sent) = (self.text.len() + name_bytes, self.sent.len() + 1);
        let text = if text <= self.text.capacity() { self.text.capacity() } else { doubled(&self.text, text) };
        let sent = if sent <= self.sent.capacity() { self.sent.capacity() } else { doubled(&self.sent, sent) };
        let bytes = bytes_of(text, sent);
        if self.allowed < bytes {
            self.wanted = bytes;
            return false;
        }
        self.text.reserve_exact(text - self.text.len());
        self.sent.reserve_exact(sent - self.sent.len());
        true
    }

    /// Frees the memory of an empty batch. The next points allocate it again.
    pub(crate) fn release_memory(&mut self) {
        if self.is_empty() {
            (self.text, self.sent) = (Vec::new(), Vec::new());
            (self.resolved, self.left_out) = (Vec::new(), Vec::new());
        }
    }

    /// Lets go of all points but those at these places, which ascend.
    pub(super) fn keep(&mut self, places: &[usize]) {
        self.sent = places.iter().map(|&place| self.sent[place]).collect();
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.sent.clear();
        self.resolved.clear();
        self.has_timeless = false;
    }

    /// A point that came without a time, or whose time is out of range and that is rejected.
    #[cold]
    fn odd_point(&mut self, name: &[u8], time: Timestamp, value: f64) {
        match time {
            TIMELESS.. => {
                self.has_timeless = true;
                self.point(name, time - TIMELESS, value);
            }
            ..0 => self.reject_sample(RejectReason::TooOld, name),
            _ => self.reject_sample(RejectReason::TooFarAhead, name),
        }
    }
}

fn bytes_of(text: usize, sent: usize) -> usize {
    text + sent * POINT_BYTES
}

fn doubled<T>(items: &Vec<T>, needed: usize) -> usize {
    needed.max(2 * items.capacity()).max(FIRST_BYTES / size_of::<T>())
}

impl Sink for Batch {
    #[inline]
    fn point(&mut self, name: &[u8], time: Timestamp, value: f64) {
        // The last second has no slot: see `Stage::slot`.
        let Some(seconds) = u32::try_from(time).ok().filter(|&seconds| seconds < u32::MAX) else {
            return self.odd_point(name, time, value);
        };
        let Ok(name_len) = u16::try_from(name.len()) else {
            return self.reject_sample(RejectReason::NameTooLong, name);
        };
        let hash = self.registry.hash(name);
        let name_start = self.text.len() as u32;
        self.text.extend_from_slice(name);
        self.sent.push(Sent { hash, value, name_start, name_len, time: seconds });
    }

    fn reject(&mut self, reason: RejectReason, sample: &[u8]) {
        self.reject_sample(reason, sample);
    }

    #[inline]
    fn has_room(&mut self, name_bytes: usize) -> bool {
        // A longer name is rejected and takes none.
        let name_bytes = if name_bytes <= usize::from(u16::MAX) { name_bytes } else { 0 };
        let has_room = self.sent.len() < self.sent.capacity() && name_bytes <= self.text.capacity() - self.text.len();
        has_room || self.grow(name_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_knows_whether_a_point_came_without_a_time() {
        let mut batch = Batch::new(Protocol::LineTcp, 1, Arc::new(Registry::new()));
        let now = 1_800_000_000;
        carbon::parse_line(b"a.b 1 1800000000", now + TIMELESS, &mut batch);
        assert!(!batch.has_timeless);
        carbon::parse_line(b"a.c 1 -1", now + TIMELESS, &mut batch);
        assert!(batch.has_timeless && batch.sent.iter().all(|sent| i64::from(sent.time) == now));
        batch.clear();
        carbon::parse_line(b"a.d 1 99999999999", now + TIMELESS, &mut batch);
        carbon::parse_line(b"a.d 1 -5", now + TIMELESS, &mut batch);
        assert_eq!((batch.len(), batch.rejected(), batch.has_timeless), (0, 2, false));
    }
}
