//! Tagged metrics in the order of their names, so that a large answer need not compare names, which begin alike.
//!
//! The maintenance thread makes it while few names come: it sorts the metrics that came since the last time, and merges them with
//! the others. An answer takes the metrics that it has from there, and sorts those that came since by itself. No id is ever
//! given to another name, so an order may lack metrics or have some that are gone, but its metrics are always in order.

use metric::MetricId;
use parking_lot::{RwLock, RwLockReadGuard};
use roaring::RoaringBitmap;

use crate::{
    names::Table,
    tag_index::TagIndex,
    text_order::{Keyed, Texts, sort_by_text},
};

/// An answer with less than this part of all metrics is sorted by itself.
const SMALL_PART: u64 = 64;

/// The same, of metrics of an answer that are not in the order.
const NEW_PART: u64 = 2;

/// Metrics from which on, and parts of those in the order, new ones are put in order and removed ones left out.
const LEAST: u64 = 512;
const DUE_NEW: u64 = 8;
const DUE_GONE: u64 = 4;

/// Names that are merged in one hold of their lock.
const BATCH: usize = 512;

/// Ids of metrics in the order of their names.
#[derive(Default)]
pub(crate) struct NameOrder {
    ids: Vec<u32>,
    // The same as a set, and ids of metrics that were removed while the order was made.
    known: RoaringBitmap,
}

impl NameOrder {
    /// Metrics in the order of names, and those of them that it does not know. `None` where it is quicker to sort all.
    pub(crate) fn sorted(&self, found: &RoaringBitmap) -> Option<(Vec<u32>, RoaringBitmap)> {
        if found.len() * SMALL_PART < self.known.len() {
            return None;
        }
        let unknown = found - &self.known;
        if unknown.len() * NEW_PART > found.len() {
            return None;
        }
        let mut wanted = vec![0_u64; found.max()? as usize / 64 + 1];
        found.iter().for_each(|id| wanted[id as usize / 64] |= 1 << (id % 64));
        // One more than there are, because each id is written before it is known to be wanted: this spares the processor a guess.
        let mut sorted = vec![0; (found.len() - unknown.len()) as usize + 1];
        let mut count = 0;
        for &id in &self.ids {
            let bits = wanted.get(id as usize / 64).copied().unwrap_or(0);
            sorted[count] = id;
            count += (bits >> (id % 64) & 1) as usize;
        }
        sorted.truncate(count);
        Some((sorted, unknown))
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.ids.len() * size_of::<u32>() + self.known.serialized_size()
    }
}

impl NameOrder {
    /// The order of the tagged metrics that there are now, where making it pays. Takes half a microsecond for each new metric and
    /// a tenth for each other.
    pub(crate) fn updated(&self, tags: &RwLock<TagIndex>, names: &RwLock<Table>) -> Option<NameOrder> {
        let index = tags.try_read()?;
        let all = index.all();
        let known = self.known.len();
        let stay = all.intersection_len(&self.known);
        let is_new_due = all.len() - stay > LEAST.max(known / DUE_NEW);
        let is_gone_due = known - stay > LEAST.max(known / DUE_GONE);
        if !is_new_due && !is_gone_due {
            return None;
        }
        let all = all.clone();
        drop(index);
        let mut new: Vec<Keyed> = (&all - &self.known).iter().map(Keyed::new).collect();
        let mut names = HeldNames(names.read());
        sort_by_text(&mut new, &mut names);
        let old = self.ids.iter().copied().filter(|&id| all.contains(id));
        let ids = merged(old, new.into_iter().map(|one| one.place), stay as usize, &mut names);
        Some(NameOrder { ids, known: all })
    }
}

/// Two lists in the order of names as one. Metrics that are gone are left out.
fn merged(
    old: impl Iterator<Item = u32>,
    new: impl ExactSizeIterator<Item = u32>,
    stay: usize,
    names: &mut HeldNames<'_>,
) -> Vec<u32> {
    let mut merged = Vec::with_capacity(stay + new.len());
    let (mut old, mut new) = (old.peekable(), new.peekable());
    loop {
        names.pause();
        for _ in 0..BATCH {
            let (Some(&a), Some(&b)) = (old.peek(), new.peek()) else {
                merged.extend(old);
                merged.extend(new);
                return merged;
            };
            match (names.text(a), names.text(b)) {
                (None, _) => _ = old.next(),
                (_, None) => _ = new.next(),
                (Some(known), Some(text)) => merged.extend(if known < text { old.next() } else { new.next() }),
            }
        }
    }
}

/// Names whose lock is held, but for pauses.
struct HeldNames<'a>(RwLockReadGuard<'a, Table>);

impl Texts for HeldNames<'_> {
    fn text(&self, id: u32) -> Option<&[u8]> {
        self.0.record(MetricId(id)).map(|record| record.name)
    }

    fn pause(&mut self) {
        RwLockReadGuard::bump(&mut self.0);
    }

    fn without(&mut self, work: &mut dyn FnMut()) {
        RwLockReadGuard::unlocked(&mut self.0, work);
    }
}
