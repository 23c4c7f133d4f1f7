//! Points into slots that have an older value.

use std::{collections::HashMap, io, sync::Arc};

use metric::{MetricId, Slot};
use parking_lot::Mutex;

use super::{
    names::Named,
    parts::PutBackParts,
    putting::{ATTEMPTS, POLL},
    since::{Asked, Since, SinceFiles},
    slots::Taken,
};
use crate::{
    memtable::LockedMemtable,
    wal::{NotPutBack, Segment},
};

/// What became of such points.
#[derive(Default)]
pub(super) struct Replaced {
    pub(super) points: u64,
    /// Points of slots that may have an older or a newer value, and that have expired.
    pub(super) left: NotPutBack,
    /// Whether some have to wait for a flush.
    pub(super) is_waiting: bool,
}

impl PutBackParts {
    /// Puts points in the place of values that are older. `named` is what the segments name.
    pub(super) async fn replace(
        self: &Arc<PutBackParts>,
        segment: &Segment,
        taken: Vec<Taken>,
        named: &Arc<Mutex<Named>>,
    ) -> io::Result<Replaced> {
        let mut replaced = Replaced::default();
        let (taken, others): (Vec<Taken>, Vec<Taken>) =
            taken.into_iter().partition(|taken| taken.is_plain && self.is_alone);
        replaced.left.older = others.len() as u64;
        if taken.is_empty() {
            return Ok(replaced);
        }
        let taken = Arc::new((Asked::about(&taken), taken));
        let files = Arc::new(Mutex::new(SinceFiles::default()));
        for _ in 0..ATTEMPTS {
            self.memtable.may_take().await;
            let (this, of, all, named, files) =
                (self.clone(), segment.clone(), taken.clone(), named.clone(), files.clone());
            let put = self.elsewhere(move || this.try_to_replace(&of, &all, &mut named.lock(), &mut files.lock()));
            if let Some(mut put) = put.await? {
                put.left.add(replaced.left);
                return Ok(put);
            }
            tokio::time::sleep(POLL).await;
        }
        Err(io::Error::other("points are stored all the time; trying again later"))
    }

    /// `None` where jobs were stored meanwhile.
    fn try_to_replace(
        &self,
        segment: &Segment,
        (asked, taken): &(Asked, Vec<Taken>),
        named: &mut Named,
        files: &mut SinceFiles,
    ) -> io::Result<Option<Replaced>> {
        let PutBackParts { identity, journal, memtable, .. } = self;
        let mut replaced = Replaced::default();
        // Before the segments are read: whatever the store has by then is in them.
        let stored = self.writer.stored_metrics();
        let load = |other: &Segment| self.load(other, named);
        let Some(since) = files.since((journal.folder(), identity), segment, asked, load)? else {
            replaced.left.older = taken.len() as u64;
            return Ok(Some(replaced));
        };
        let left = without_newer(taken, &since, &mut replaced.left);
        let mut exclusive = journal.exclusive();
        let mut may_put = Vec::new();
        {
            let memtable = memtable.lock();
            if self.is_stored_since(stored) {
                return Ok(None);
            }
            for of_metric in left.chunk_by(|one, next| one.point.metric == next.point.metric) {
                put_those_not_in(&memtable, of_metric, &mut may_put, &mut replaced.is_waiting);
            }
        }
        let points = may_put.into_iter().map(|taken| (taken.point, taken.age));
        replaced.points = self.append(points, &mut replaced.left, &mut exclusive)?;
        Ok(Some(replaced))
    }
}

/// Those whose slots got nothing since.
fn without_newer<'a>(
    taken: &'a [Taken],
    since: &HashMap<(MetricId, Slot), Since>,
    left: &mut NotPutBack,
) -> Vec<&'a Taken> {
    let mut others = Vec::new();
    for taken in taken {
        match since.get(&(taken.point.metric, taken.slot)) {
            Some(Since::Newer) => {}
            Some(Since::Unclear) => left.older += 1,
            None => others.push(taken),
        }
    }
    others
}

/// Adds the points of one metric that memory does not have: what it has may have come since the segments were read.
fn put_those_not_in<'a>(
    memtable: &LockedMemtable<'_>,
    taken: &[&'a Taken],
    may_put: &mut Vec<&'a Taken>,
    is_waiting: &mut bool,
) {
    let Some(&Taken { point, policy_id, .. }) = taken.first().copied() else { return };
    let policy = memtable.policy(point.metric);
    if policy != Some(policy_id) || !memtable.older_jobs(point.metric, policy_id).is_empty() {
        // Of a metric that was deleted nothing is put back.
        *is_waiting |= policy.is_some();
        return;
    }
    let view = memtable.view(point.metric, policy_id);
    let points = (!view.is_empty()).then(|| view.points());
    for &taken in taken {
        let has = |points: &downsample::SortedPoints| {
            points.of_stage(0).binary_search_by_key(&taken.slot, |point| point.slot).is_ok()
        };
        match points.as_ref().is_some_and(has) {
            true => *is_waiting = true,
            false => may_put.push(taken),
        }
    }
}
