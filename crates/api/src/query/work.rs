//! A piece of heavy work: its turn, its memory, and the flag that stops it when its client is gone.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use metadata::{FindError, FindLimits, Found, Registry, TagExpressions};
use parking_lot::Mutex;

use super::{
    backend::Backend,
    parsed::Query,
    turns::{Kind, Turn},
};
use crate::http::{AnswerShare, Client, FREE_ANSWER_BYTES, MemoryBudget, MemoryShare, Rejection};

/// A query that runs. Every thread that works for it has an [`Arc`] of it, and the last one gives up its turn and its
/// memory: also when the client is long gone.
pub(crate) struct Work {
    cancelled: Arc<AtomicBool>,
    memory: Mutex<Held>,
    answers: MemoryBudget,
    client: Client,
    missing_peers: Mutex<BTreeSet<String>>,
    _turn: Turn,
}

/// The memory of a query.
struct Held {
    /// Of the memory of its credential, where that has a limit.
    own: Option<MemoryShare>,
    share: MemoryShare,
    bytes: usize,
}

impl Held {
    fn raise(&mut self, bytes: usize, cancelled: &AtomicBool) -> Result<(), Rejection> {
        // First, so that no memory of all is held while the credential waits for its own.
        if let Some(own) = &mut self.own {
            own.raise_blocking(bytes, cancelled)?;
        }
        self.share.raise_blocking(bytes, cancelled)
    }

    /// The same without a wait. Returns whether there are so many.
    fn try_raise(&mut self, bytes: usize) -> bool {
        self.own.as_mut().is_none_or(|own| own.try_raise(bytes)) && self.share.try_raise(bytes)
    }

    fn lower(&mut self, bytes: usize) {
        self.share.lower(bytes);
        if let Some(own) = &mut self.own {
            own.lower(bytes);
        }
    }
}

impl Work {
    /// Waits for a turn. The work is cancelled when the second value is dropped.
    pub async fn begin(backend: &Backend, query: &Query, kind: Kind) -> Result<(Arc<Work>, CancelOnDrop), Rejection> {
        let turn = backend.turns.wait(query.client.clone(), kind).await?;
        let client = query.client.clone();
        let own = backend.own_memory(&query.viewer).map(|budget| budget.share(&client));
        let cancelled = Arc::<AtomicBool>::default();
        let memory = Mutex::new(Held { own, share: backend.memory.share(&client), bytes: 0 });
        let work = Work {
            cancelled: cancelled.clone(),
            memory,
            answers: backend.answers.clone(),
            client,
            missing_peers: Mutex::default(),
            _turn: turn,
        };
        Ok((Arc::new(work), CancelOnDrop(cancelled)))
    }

    /// Notes nodes whose points in memory are not in the answer.
    pub fn note_missing(&self, peers: &[String]) {
        let mut missing = self.missing_peers.lock();
        for peer in peers.iter().filter(|peer| !missing.contains(*peer)).cloned().collect::<Vec<_>>() {
            missing.insert(peer);
        }
    }

    /// The nodes whose points in memory are not in the answer, sorted.
    pub fn missing_peers(&self) -> Vec<String> {
        self.missing_peers.lock().iter().cloned().collect()
    }

    /// The flag, for others to look at.
    pub fn cancelled(&self) -> &Arc<AtomicBool> {
        &self.cancelled
    }

    /// Whether the client is gone.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Takes memory until the end of the work. On a thread that may block.
    pub fn take(&self, bytes: usize) -> Result<(), Rejection> {
        let mut held = self.memory.lock();
        held.bytes = held.bytes.saturating_add(bytes);
        let bytes = held.bytes;
        held.raise(bytes, &self.cancelled)
    }

    /// Takes memory besides that of [`Work::take`], so many bytes in all. On a thread that may block.
    pub fn take_besides(&self, bytes: usize) -> Result<(), Rejection> {
        let mut held = self.memory.lock();
        let bytes = held.bytes.saturating_add(bytes);
        held.raise(bytes, &self.cancelled)
    }

    /// As [`Work::take_besides`], without a wait. Returns whether there are so many.
    fn try_take_besides(&self, bytes: usize) -> bool {
        let mut held = self.memory.lock();
        let bytes = held.bytes.saturating_add(bytes);
        held.try_raise(bytes)
    }

    /// A find, whose memory is taken before: what most answers need if it is free, else little at first, and four times as much
    /// each time that the answer is larger.
    pub fn find(
        &self,
        limits: &FindLimits,
        find: impl Fn(&FindLimits) -> Result<Found, FindError>,
    ) -> Result<Result<Found, FindError>, Rejection> {
        self.within_memory(limits, LIKELY_BYTES, find, Found::bytes, |_| 0)
    }

    /// The tagged metrics for which all expressions hold, as [`Work::within_memory`] finds. The names of an answer that is too
    /// large are read again, and only these.
    pub fn find_tagged(
        &self,
        registry: &Registry,
        expressions: &TagExpressions,
        limits: &FindLimits,
        more_for: impl Fn(&Found) -> usize,
    ) -> Result<Result<Found, FindError>, Rejection> {
        if self.is_cancelled() {
            return Err(Rejection::Cancelled);
        }
        let tagged = match registry.find_tagged(expressions, limits) {
            Ok(tagged) => tagged,
            Err(error) => return Ok(Err(error)),
        };
        let expected = registry.expected_bytes(&tagged, limits);
        let read = |limits: &FindLimits| registry.read_tagged(&tagged, limits);
        self.within_memory(limits, expected, read, Found::bytes, more_for)
    }

    /// As [`Work::find`], of an answer of about `expected` bytes, that takes `bytes_of` it, and for which `more_for` it will be
    /// taken afterwards.
    ///
    /// Work that holds memory and waits for more can stop others that do the same for good. So what a find has is given back
    /// before it waits for more, with its answer if need be, and it waits in turn for all of it.
    pub fn within_memory<T>(
        &self,
        limits: &FindLimits,
        expected: usize,
        find: impl Fn(&FindLimits) -> Result<T, FindError>,
        bytes_of: impl Fn(&T) -> usize,
        more_for: impl Fn(&T) -> usize,
    ) -> Result<Result<T, FindError>, Rejection> {
        // An expectation spares reading again, and no more: it is not waited for, and refuses nothing, because names may be much
        // longer on average than those of the answer.
        let is_taken = FOUND_BYTES < expected && self.try_take_besides(expected.saturating_mul(FOUND_TIMES));
        let (mut bytes, mut needed) = (if is_taken { expected } else { FOUND_BYTES }, 0_usize);
        loop {
            // A find that ends at once does not look.
            if self.is_cancelled() {
                return Err(Rejection::Cancelled);
            }
            self.take_besides(needed.max(bytes.saturating_mul(FOUND_TIMES)))?;
            let found = find(&FindLimits { bytes, ..limits.clone() });
            let mut held = self.memory.lock();
            let before = held.bytes;
            if let Err(FindError::TooManyBytes { .. }) = found {
                bytes = bytes.saturating_mul(4);
                held.lower(before);
                continue;
            }
            let of_find = found.as_ref().map_or(0, &bytes_of);
            let all = of_find.saturating_add(found.as_ref().map_or(0, &more_for));
            if !held.try_raise(before.saturating_add(all)) {
                needed = all.saturating_add(all / 16);
                drop(found);
                held.lower(before);
                continue;
            }
            held.bytes += of_find;
            held.lower(before.saturating_add(all));
            return Ok(found);
        }
    }

    /// The memory that is in use by now, in place of what was taken for it. On a thread that may block.
    pub fn correct(&self, bytes: usize) -> Result<(), Rejection> {
        let mut held = self.memory.lock();
        held.bytes = bytes;
        held.lower(bytes);
        held.raise(bytes, &self.cancelled)
    }

    /// Gives memory of an evaluation back, but for what its answer holds.
    pub fn keep(&self, bytes: usize) {
        let mut held = self.memory.lock();
        held.bytes = bytes;
        held.lower(bytes);
    }

    /// Memory for an answer, which is held until the client has read it. On a thread that may block.
    pub fn answer(&self, bytes: usize) -> Result<AnswerShare, Rejection> {
        let mut share = self.answers.share(&self.client);
        if bytes > FREE_ANSWER_BYTES {
            share.raise_blocking(bytes, &self.cancelled)?;
        }
        Ok(Arc::new(share))
    }
}

/// Bytes of the answer of a find that there is memory for at first, and its memory while it is made, in lengths of it.
const FOUND_BYTES: usize = 64 << 10;
const FOUND_TIMES: usize = 3;

/// Bytes of the answer of a find that is not searched for again, where so much memory is free: some 50,000 names.
pub(crate) const LIKELY_BYTES: usize = 4 << 20;

/// Sets a flag when dropped. Work on another thread checks the flag to learn that the client disconnected.
pub(crate) struct CancelOnDrop(pub Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs work on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Rejection> + Send + 'static,
) -> Result<T, Rejection> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Rejection::Broken)?
}

/// Whether the user's pattern caused the error, not the store or a disconnect.
pub(crate) fn is_invalid_pattern(error: &FindError) -> bool {
    !matches!(error, FindError::Cancelled | FindError::Elsewhere(_))
}
