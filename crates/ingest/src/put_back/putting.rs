//! Points into slots that are empty, unless something else is stored meanwhile.

use std::{collections::HashSet, io, ops::Range, sync::Arc, time::Duration};

use carbon::{Decision, Sink as _};
use metric::{MetricId, Timestamp};

use super::{
    names::{LatePoint, LatePoints},
    parts::PutBackParts,
    slots::{Age, OfMetric, Taken, has_expired, place},
};
use crate::{
    coming_rows::ComingRows,
    older_cells::{OlderPolicies, fetch_filled},
    protocol::Protocol,
    wal::{Accepted, Exclusive, Journalled, NotPutBack, RECORD_POINTS, ResolvedPoint},
};

/// Points that are put back together, about: senders wait for as long.
const GROUP: usize = 4096;

/// Attempts to put back a group between flushes, and the time between two.
pub(super) const ATTEMPTS: u32 = 500;
pub(super) const POLL: Duration = Duration::from_millis(20);

/// What became of points.
#[derive(Default)]
pub(super) struct Put {
    pub(super) points: u64,
    /// Points whose slots have other values.
    pub(super) taken: Vec<Taken>,
    /// Points whose slots have expired.
    pub(super) left: NotPutBack,
    /// Whether coarse slots are to be derived again, and a file of rows under them is missing. Nothing is put then.
    pub(super) is_away: bool,
}

impl Put {
    fn add(&mut self, other: Put) {
        self.points += other.points;
        self.taken.extend(other.taken);
        self.left.add(other.left);
    }
}

/// What was put of a file of late points: it is read again until all of it is.
#[derive(Default)]
pub(super) struct Done {
    metrics: HashSet<MetricId>,
    left: NotPutBack,
}

/// Points of whole metrics that are put together. The points are in the order of their metrics.
fn groups(points: &[LatePoint]) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut from = 0;
    for of_metric in points.chunk_by(|one, next| one.metric == next.metric) {
        match groups.last_mut() {
            Some(group) if group.len() + of_metric.len() <= GROUP => group.end += of_metric.len(),
            _ => groups.push(from..from + of_metric.len()),
        }
        from += of_metric.len();
    }
    groups
}

impl PutBackParts {
    /// Has coarse slots derived again around points that are stored. Groups that cannot be put now keep no others waiting, and what
    /// is `done` is not done again. `is_away` says that some wait for a file of rows.
    ///
    /// # Errors
    /// Of the last group that cannot be put now.
    pub(super) async fn put_again(self: &Arc<PutBackParts>, late: LatePoints, done: &mut Done) -> io::Result<Put> {
        let mut known = late.known;
        known.retain(|point| !done.metrics.contains(&point.metric));
        known.sort_by_key(|point| point.metric);
        let (mut all, mut failed) = (Put::default(), None);
        for group in groups(&known) {
            let points = &known[group];
            match self.put_group(points).await {
                Ok(put) if put.is_away => all.is_away = true,
                Ok(put) => {
                    done.metrics.extend(points.iter().map(|point| point.metric));
                    done.left.add(put.left);
                    all.points += put.points;
                }
                Err(error) => failed = Some(error),
            }
        }
        all.left = done.left;
        failed.map_or(Ok(all), Err)
    }

    /// Puts points back, as far as their slots are empty.
    pub(super) async fn put(self: &Arc<PutBackParts>, late: LatePoints) -> io::Result<Put> {
        let LatePoints { mut known, unknown, .. } = late;
        // In the order of the segment within a metric.
        known.sort_by_key(|point| point.metric);
        let mut all = Put::default();
        for group in groups(&known) {
            all.add(self.put_group(&known[group]).await?);
        }
        self.put_unknown(unknown, &mut all).await?;
        Ok(all)
    }

    /// Puts points back whose metrics are not there: they are made, and the points go where they would have gone at first.
    /// None is made for points that have expired.
    async fn put_unknown(
        self: &Arc<PutBackParts>,
        mut points: Vec<(String, LatePoint)>,
        all: &mut Put,
    ) -> io::Result<()> {
        let (rules, now) = (self.rules.current(), self.acceptor.time().now().low());
        points.retain(|(name, point)| {
            let Decision::Keep(index) = rules.rules.decide(name) else { return true };
            let (retention, time) = (&rules.rules.policy(index).retention, Timestamp::from(point.time));
            match place(*point, (retention, retention), now) {
                Some((stage, _)) if has_expired(retention, stage, time, now) => {
                    all.left.add_expired(time);
                    false
                }
                _ => true,
            }
        });
        for group in points.chunks(GROUP) {
            let mut batch = self.acceptor.batch(Protocol::LineTcp);
            for (name, point) in group {
                batch.point(name.as_bytes(), Timestamp::from(point.time), point.value);
            }
            self.acceptor.make_metrics(&mut batch);
            // Without a slot it counts as deleted.
            self.memtable.lock().ensure_all();
            let mut known: Vec<LatePoint> = {
                let registered = self.registry.read();
                let find = |name: &str| registered.find(self.registry.hash(name.as_bytes()), name.as_bytes());
                group.iter().filter_map(|(name, point)| Some(LatePoint { metric: find(name)?, ..*point })).collect()
            };
            // The blacklist, or a limit of names, may have refused them: the acceptor counts them too.
            all.left.refused += (group.len() - known.len()) as u64;
            known.sort_by_key(|point| point.metric);
            all.add(self.put_group(&known).await?);
        }
        Ok(())
    }

    async fn put_group(self: &Arc<PutBackParts>, points: &[LatePoint]) -> io::Result<Put> {
        for _ in 0..ATTEMPTS {
            while !self.back_pressure.has_room() {
                self.back_pressure.ask_for_flush();
                tokio::time::sleep(POLL).await;
            }
            if let Some(put) = self.try_to_put(points).await? {
                return Ok(put);
            }
            tokio::time::sleep(POLL).await;
        }
        Err(io::Error::other("points are stored all the time, or are spilled; trying again later"))
    }

    /// Puts points back unless something is stored meanwhile.
    async fn try_to_put(self: &Arc<PutBackParts>, points: &[LatePoint]) -> io::Result<Option<Put>> {
        self.memtable.may_take().await;
        let stored = self.writer.stored_metrics();
        let mut metrics: Vec<OfMetric> = points
            .chunk_by(|one, next| one.metric == next.metric)
            .filter_map(|points| self.of_metric(points))
            .collect();
        let (mut fetches, mut of, mut sources) = (Vec::new(), Vec::new(), Vec::new());
        {
            let names = self.registry.read();
            for (place, metric) in metrics.iter().enumerate() {
                fetches.extend(metric.fetches(names.name(metric.metric)));
                of.resize(fetches.len(), place);
                sources.extend(metric.sources(names.name(metric.metric)));
            }
        }
        let older: Vec<Option<&OlderPolicies>> = of.iter().map(|&place| metrics[place].older.as_ref()).collect();
        let cells = fetch_filled(&*self.store, fetches.clone(), &older, &[&ComingRows::default()]).await;
        let cells = cells.map_err(io::Error::other)?;
        // A flush that misses some of these keeps the points in another file.
        let under = self.store.fetch(sources).await.map_err(io::Error::other)?;
        if under.iter().chain(&cells).any(|cells| cells.is_unreadable) {
            return Err(io::Error::other("stored rows of their metrics cannot be read now"));
        }
        let is_away = under.iter().chain(&cells).any(|cells| cells.is_away);
        if is_away && points.iter().any(|point| point.is_again) {
            return Ok(Some(Put { is_away: true, ..Put::default() }));
        }
        for ((fetch, cells), &place) in fetches.iter().zip(&cells).zip(&of) {
            metrics[place].note_stored(fetch, &cells.values);
        }
        let mut left = NotPutBack::default();
        metrics.iter().flat_map(|metric| &metric.without_step).for_each(|&time| left.add_expired(time));
        metrics.retain(|metric| !metric.wanted.is_empty() || !metric.stored.is_empty());
        if metrics.is_empty() {
            return Ok(Some(Put { left, ..Put::default() }));
        }
        let this = self.clone();
        self.elsewhere(move || this.put_now(metrics, left, stored)).await
    }

    /// Puts points back whose slots memory does not have, either; others are `left`. `None` where jobs were stored since `stored` was counted.
    fn put_now(&self, mut metrics: Vec<OfMetric>, left: NotPutBack, stored: u64) -> io::Result<Option<Put>> {
        let PutBackParts { journal, memtable, .. } = self;
        let mut put = Put { left, ..Put::default() };
        // No other point gets into memory meanwhile.
        let mut exclusive = journal.exclusive();
        {
            let memtable = memtable.lock();
            if self.is_stored_since(stored) {
                return Ok(None);
            }
            // Of those that were deleted nothing is put back.
            metrics.retain(|metric| memtable.policy(metric.metric).is_some());
            if !metrics.iter_mut().all(|metric| metric.leave_out_those_in(&memtable, &mut put.taken)) {
                return Ok(None);
            }
        }
        if self.is_alone {
            let again = metrics.iter_mut().flat_map(|metric| std::mem::take(&mut metric.again));
            let again = again.map(|wanted| (wanted.point, wanted.age));
            self.append(again, &mut NotPutBack::default(), &mut exclusive)?;
        }
        let wanted = metrics.into_iter().flat_map(|metric| metric.wanted);
        put.points = self.append(wanted.map(|wanted| (wanted.point, wanted.age)), &mut put.left, &mut exclusive)?;
        Ok(Some(put))
    }

    /// Whether jobs were stored since `stored` was counted, or points are spilled.
    pub(super) fn is_stored_since(&self, stored: u64) -> bool {
        self.writer.stored_metrics() != stored || self.back_pressure.is_spilling()
    }

    /// Gives points to the journal and to memory, but for those that have expired. Returns how many.
    pub(super) fn append(
        &self,
        points: impl Iterator<Item = (LatePoint, Age)>,
        left: &mut NotPutBack,
        exclusive: &mut Exclusive<'_>,
    ) -> io::Result<u64> {
        let (mut kept, mut is_flush_due) = (Vec::new(), false);
        for (point, age) in points {
            match age {
                Age::Expired => left.add_expired(Timestamp::from(point.time)),
                Age::Kept | Age::JustExpired => kept.push(point),
            }
            is_flush_due |= age == Age::JustExpired;
        }
        // Few records, whose points are of one moment each.
        kept.sort_by_key(|point| (point.at.low(), point.at.high()));
        for of_moment in kept.chunk_by(|one, next| one.at == next.at).flat_map(|points| points.chunks(RECORD_POINTS)) {
            let at = of_moment[0].at;
            let resolved =
                |point: &LatePoint| ResolvedPoint { metric: point.metric, time: point.time, value: point.value };
            let points: Vec<ResolvedPoint> = of_moment.iter().map(resolved).collect();
            exclusive.append(&[Accepted { points: &points, at }])?;
            self.memtable.apply_spilled(Journalled::read_back(&points, at));
        }
        // Of points that are stored without coarse slots a flush that finds none of these does not know.
        let mut memtable = self.memtable.lock();
        let again = kept.iter().filter(|point| point.is_again).map(|point| point.metric);
        again.collect::<HashSet<MetricId>>().into_iter().for_each(|metric| memtable.forget_partials(metric));
        drop(memtable);
        if is_flush_due {
            // While their neighbours are stored.
            self.back_pressure.ask_for_flush();
        }
        Ok(kept.len() as u64)
    }
}
