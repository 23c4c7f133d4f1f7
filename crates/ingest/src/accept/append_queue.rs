//! Points on their way into the journal and memory: one thread at a time takes them there, in one order for both.
//!
//! 1. A batch joins the queue and its receiver waits. There are as many batches as receivers.
//! 2. The first of an idle queue starts the drain on a thread that may wait for the disk. It appends everything that is
//!    queued with one write, and puts the points of each record into memory before it appends others: a replay after a
//!    crash gives every slot the value that could be read before.
//! 3. Receivers learn which points were rejected. After a write that failed the batches stay, and their receivers start the
//!    drain again later.

use std::{collections::VecDeque, io, ops::Range, sync::Arc};

use carbon::RejectReason;
use host::Now;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{
    back_pressure::BackPressure,
    backoff::JOURNAL_RETRY,
    memtable::{Memtable, NotTaken},
    spill::Spill,
    wal::{Accepted, Appended, Journal, RECORD_POINTS, ResolvedPoint},
};

/// Points that one write appends, about. More are left for the next, so that a fetch waits for memory no longer than for
/// these.
const GROUP_POINTS: usize = 64 * 1024;

/// Looks for an answer, after which a disk that does not fail counts as one that senders wait for.
const LONG: u32 = 4;

/// The owners that points go through.
pub(crate) struct AppendQueueParts {
    pub(crate) journal: Arc<Journal>,
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) back_pressure: Arc<BackPressure>,
    pub(crate) spill: Arc<Spill>,
}

/// Batches that are not in the journal yet.
pub(crate) struct AppendQueue {
    to: AppendQueueParts,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Item>,
    is_draining: bool,
}

/// A batch in the queue.
struct Item {
    points: Vec<ResolvedPoint>,
    accepted_at: Now,
    /// So many are in the journal and in memory.
    done: usize,
    /// The places of those that a list rejects, which are not among `points` any more.
    listed: Vec<usize>,
    rejected: Rejected,
    deleted: Vec<usize>,
    answer: oneshot::Sender<Taken>,
}

/// Points that were not taken, and why.
type Rejected = Vec<(ResolvedPoint, RejectReason)>;

/// What became of a batch.
pub(super) struct Taken {
    /// Emptied, for the next batch.
    pub(super) points: Vec<ResolvedPoint>,
    pub(super) rejected: Rejected,
    /// The places, among the points of the batch, of those whose metrics were deleted meanwhile.
    pub(super) deleted: Vec<usize>,
}

impl Taken {
    /// Of a batch without points.
    pub(super) fn nothing() -> Taken {
        Taken { points: Vec::new(), rejected: Vec::new(), deleted: Vec::new() }
    }
}

impl AppendQueue {
    pub(crate) fn new(to: AppendQueueParts) -> AppendQueue {
        AppendQueue { to, queue: Mutex::default() }
    }

    /// Returns when the points are in the journal, and in memory or spilled, however often the disk fails first. Points
    /// of a caller that is cancelled get there all the same.
    pub(super) async fn take(self: &Arc<AppendQueue>, points: Vec<ResolvedPoint>, accepted_at: Now) -> Taken {
        let (answer, mut taken) = oneshot::channel();
        let item = Item::new(points, accepted_at, answer);
        self.queue.lock().waiting.push_back(item);
        self.start();
        let (mut looks, mut wait) = (0, None);
        loop {
            match tokio::time::timeout(JOURNAL_RETRY, &mut taken).await {
                Ok(taken) => return taken.expect("the drain answers every batch"),
                Err(_) => {
                    looks += 1;
                    if self.to.journal.is_failing() || looks == LONG {
                        wait.get_or_insert_with(|| self.to.back_pressure.count_wait());
                    }
                    self.start();
                }
            }
        }
    }

    /// Starts the drain, unless one runs.
    fn start(self: &Arc<AppendQueue>) {
        {
            let mut queue = self.queue.lock();
            if queue.is_draining || queue.waiting.is_empty() {
                return;
            }
            queue.is_draining = true;
        }
        let queue = self.clone();
        host::spawn_blocking(move || queue.drain());
    }

    /// Appends and applies until nothing is queued, or until a write fails.
    fn drain(&self) {
        let _ended = Ended(self);
        while let Some(mut group) = self.next_group() {
            // An error is counted and logged by the journal.
            let appended = self.append_and_apply(&mut group);
            let mut unfinished = Vec::new();
            for item in group {
                if item.done < item.points.len() {
                    unfinished.push(item);
                } else {
                    item.answer();
                }
            }
            let mut queue = self.queue.lock();
            unfinished.into_iter().rev().for_each(|item| queue.waiting.push_front(item));
            if appended.is_err() {
                queue.is_draining = false;
                return;
            }
        }
    }

    /// The oldest batches; at least one record of them is appended together.
    fn next_group(&self) -> Option<Vec<Item>> {
        let mut queue = self.queue.lock();
        let (mut group, mut points) = (Vec::new(), 0);
        while points < GROUP_POINTS
            && let Some(item) = queue.waiting.pop_front()
        {
            points += item.points.len() - item.done;
            group.push(item);
        }
        // Under the lock: a batch that comes now starts another drain.
        queue.is_draining = !group.is_empty();
        (!group.is_empty()).then_some(group)
    }

    fn append_and_apply(&self, group: &mut [Item]) -> io::Result<()> {
        let AppendQueueParts { journal, memtable, .. } = &self.to;
        for item in group.iter_mut().filter(|item| item.done == 0) {
            for (place, point, reason) in memtable.take_out_listed(&mut item.points) {
                item.listed.push(place);
                item.rejected.push((point, reason));
            }
        }
        let records: Vec<Range<usize>> = group.iter().map(Item::next_record).collect();
        let accepted: Vec<Accepted<'_>> = group
            .iter()
            .zip(&records)
            .filter(|(_, record)| !record.is_empty())
            .map(|(item, record)| Accepted { points: &item.points[record.clone()], at: item.accepted_at })
            .collect();
        let appended = journal.append(&accepted)?;
        for (item, record) in group.iter_mut().zip(records) {
            if !record.is_empty() {
                let points = &item.points[record.clone()];
                for (place, why) in self.apply(&appended.record(Accepted { points, at: item.accepted_at })) {
                    match why {
                        NotTaken::Rejected(reason) => item.rejected.push((points[place], reason)),
                        NotTaken::Deleted => item.deleted.push(place_before(&item.listed, record.start + place)),
                    }
                }
            }
            item.done = record.end;
        }
        Ok(())
    }

    /// Puts the points of a record into memory, or counts them as spilled. Returns the places of those that are not there.
    fn apply(&self, appended: &Appended<'_>) -> Vec<(usize, NotTaken)> {
        let AppendQueueParts { memtable, back_pressure, spill, .. } = &self.to;
        if back_pressure.spills(appended) {
            spill.count(appended);
            memtable.check(appended)
        } else {
            memtable.apply(appended)
        }
    }
}

impl Item {
    fn new(points: Vec<ResolvedPoint>, accepted_at: Now, answer: oneshot::Sender<Taken>) -> Item {
        let (listed, rejected, deleted) = (Vec::new(), Vec::new(), Vec::new());
        Item { points, accepted_at, done: 0, listed, rejected, deleted, answer }
    }

    /// The points of its next record. One frame may hold millions; a record has a length that a replay believes.
    fn next_record(&self) -> Range<usize> {
        self.done..self.points.len().min(self.done + RECORD_POINTS)
    }

    fn answer(mut self) {
        self.points.clear();
        // The receiver may be gone.
        let _ = self.answer.send(Taken { points: self.points, rejected: self.rejected, deleted: self.deleted });
    }
}

/// The place that an element had before those at the places `taken_out`, which ascend, were taken out.
pub(super) fn place_before(taken_out: &[usize], place: usize) -> usize {
    let (mut fewest, mut most) = (0, taken_out.len());
    while fewest < most {
        let middle = fewest.midpoint(most);
        // So many elements were left before this one that was taken out.
        let left = taken_out[middle] - middle;
        if left <= place { fewest = middle + 1 } else { most = middle }
    }
    place + fewest
}

/// The end of a drain, also by a panic.
struct Ended<'a>(&'a AppendQueue);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue.lock().is_draining = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_before_others_were_taken_out() {
        let mut left: Vec<usize> = (0..8).collect();
        let taken_out = [0, 3, 4, 7];
        left.retain(|place| !taken_out.contains(place));
        let before: Vec<usize> = (0..left.len()).map(|place| place_before(&taken_out, place)).collect();
        assert_eq!(before, left);
    }
}
