//! Limits on new metrics: in all, by the minute, by prefix, and by the memory of names. Known names pass without a look.

use std::{
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use carbon::{QuotaRule, RejectReason};
use metadata::{NamesMut, Registry};
use metric::{MetricId, Timestamp};

use super::quotas::{BranchUse, Quotas};

/// Memory of a metric besides its name and the index of its name: its record, its places in tables, and its slots.
const BYTES_BESIDES: u64 = 128 + SLOTS_BYTES;

/// Memory of the slots of a metric without points, and of its partials, which come with its first points.
const SLOTS_BYTES: u64 = 48 + 32;

/// Limits on the metrics whose names begin with a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixLimit {
    /// The first bytes of the names.
    pub prefix: String,
    /// Metrics.
    pub metrics: u64,
    /// New metrics a minute.
    pub creations_per_minute: u64,
}

/// `PREFIX=METRICS/NEW`, where `NEW` is the number of new metrics a minute.
impl FromStr for PrefixLimit {
    type Err = ();

    fn from_str(text: &str) -> Result<PrefixLimit, ()> {
        let (prefix, numbers) = text.trim().rsplit_once('=').ok_or(())?;
        let (metrics, creations) = numbers.split_once('/').ok_or(())?;
        let (metrics, creations_per_minute) = (metrics.trim().parse(), creations.trim().parse());
        match (metrics, creations_per_minute) {
            (Ok(metrics), Ok(creations_per_minute)) if !prefix.is_empty() => {
                Ok(PrefixLimit { prefix: prefix.to_owned(), metrics, creations_per_minute })
            }
            _ => Err(()),
        }
    }
}

/// Limits on metrics. Beyond them a point of an unknown name is rejected; known metrics go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameLimits {
    /// Metrics in all.
    pub metrics: u64,
    /// New metrics a minute.
    pub creations_per_minute: u64,
    /// Bytes of memory for metrics without their points: names, their index, and the slots.
    pub names_bytes: u64,
    /// Further limits by prefix; all that match hold.
    pub prefixes: Vec<PrefixLimit>,
    /// Quotas of branches.
    pub quotas: Vec<QuotaRule>,
}

impl Default for NameLimits {
    fn default() -> NameLimits {
        NameLimits {
            metrics: 10_000_000,
            creations_per_minute: 10_000_000,
            names_bytes: 4 << 30,
            prefixes: Vec::new(),
            quotas: Vec::new(),
        }
    }
}

impl NameLimits {
    /// As an operator finds them in the settings.
    fn named(&self) -> Vec<Named> {
        let NameLimits { metrics, creations_per_minute, names_bytes, prefixes, quotas: _ } = self;
        let mut texts = vec![
            format!("limits.metrics = {metrics}"),
            format!("limits.creations_per_minute = {creations_per_minute}"),
            format!("ingest.names_limit = {names_bytes} bytes"),
        ];
        texts.extend(prefixes.iter().map(|limit| {
            let PrefixLimit { prefix, metrics, creations_per_minute } = limit;
            match *creations_per_minute {
                // A listener has no such limit by prefix: its own is counted for all.
                u64::MAX => format!("max_metrics = {metrics} of the [[listener]] with the prefix {prefix}"),
                _ => format!("limits.prefixes = {prefix}={metrics}/{creations_per_minute}"),
            }
        }));
        texts.push("limits.quotas".to_owned());
        let named = |text: String| Named { limit: text.into(), logged: Timestamp::MIN, suppressed: 0 };
        texts.into_iter().map(named).collect()
    }
}

/// The part of the limit that stays free: what the index takes for names of a batch is known only once they are merged into it.
const KEPT_FREE: u64 = 1024;

/// Bytes of a new metric: the name in the arena, the same in the index, and what is there besides.
fn memory_of(name: &str) -> u64 {
    2 * name.len() as u64 + BYTES_BESIDES
}

/// Why a new metric has no room.
#[derive(Debug, Clone)]
pub(super) struct NoRoom {
    pub(super) reason: RejectReason,
    /// The limit that was met and its value, as in the settings.
    pub(super) limit: Arc<str>,
}

/// A limit for reports.
#[derive(Debug)]
struct Named {
    /// Its setting and its value.
    limit: Arc<str>,
    /// The minute of the last log line, and inputs rejected since.
    logged: Timestamp,
    suppressed: u64,
}

/// Places in [`Admission::named`]; the prefixes follow.
const METRICS: usize = 0;
const CREATIONS: usize = 1;
const NAMES: usize = 2;
const PREFIXES: usize = 3;

/// Limits by prefix, and the metrics that each has. Changed under the lock of the names alone.
#[derive(Debug)]
pub(super) struct PrefixCounts {
    limits: Vec<PrefixLimit>,
    // One for each limit.
    metrics: Vec<AtomicU64>,
}

impl PrefixCounts {
    /// With the metrics that there are, which takes as long as reading all names.
    pub(super) fn new(limits: Vec<PrefixLimit>, registry: &Registry) -> PrefixCounts {
        let metrics = limits.iter().map(|_| AtomicU64::new(0)).collect();
        let (counts, names) = (PrefixCounts { limits, metrics }, registry.read());
        if !counts.limits.is_empty() {
            names.slice(MetricId(0), names.end().0, |_, name| counts.created(name));
        }
        counts
    }

    /// The limits of a name, with their places and metrics.
    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (usize, &'a PrefixLimit, &'a AtomicU64)> {
        let all = self.limits.iter().zip(&self.metrics).enumerate();
        all.map(|(place, (limit, metrics))| (place, limit, metrics))
            .filter(|(_, limit, _)| name.starts_with(&limit.prefix))
    }

    /// There is one more metric. The caller holds the lock of the names.
    pub(super) fn created(&self, name: &str) {
        self.of(name).for_each(|(_, _, metrics)| _ = metrics.fetch_add(1, Relaxed));
    }

    /// A metric is removed. The caller holds the lock of the names.
    pub(super) fn removed(&self, name: &str) {
        self.of(name).for_each(|(_, _, metrics)| _ = metrics.fetch_sub(1, Relaxed));
    }
}

/// The limits, and how much of them is used.
#[derive(Debug)]
pub(super) struct Admission {
    limits: NameLimits,
    minute: Timestamp,
    created: u64,
    prefixes: Arc<PrefixCounts>,
    /// New metrics of each prefix in the current minute.
    created_below: Vec<u64>,
    /// Bytes left for names, as of the beginning of a batch.
    bytes_left: u64,
    named: Vec<Named>,
    quotas: Arc<Quotas>,
}

impl Admission {
    pub(super) fn new(limits: NameLimits, prefixes: Arc<PrefixCounts>, quotas: Arc<Quotas>) -> Admission {
        let (created_below, named) = (vec![0; limits.prefixes.len()], limits.named());
        Admission { limits, minute: 0, created: 0, prefixes, created_below, bytes_left: 0, named, quotas }
    }

    /// Begins a batch of new names at `now`. Memory besides that of names, `spelt` bytes, has no room for them.
    pub(super) fn begin(&mut self, names: &NamesMut<'_>, spelt: usize, now: Timestamp) {
        let minute = now.div_euclid(60);
        if minute != self.minute {
            self.minute = minute;
            self.created = 0;
            self.created_below.fill(0);
        }
        let used = names.memory_bytes() as u64 + SLOTS_BYTES * names.count() as u64;
        let kept_free = self.limits.names_bytes / KEPT_FREE;
        self.bytes_left = self.limits.names_bytes.saturating_sub(used + spelt as u64 + kept_free);
    }

    /// New names that there is memory for, of these.
    pub(super) fn fitting<'a>(&self, names: impl Iterator<Item = &'a str>) -> usize {
        let mut left = self.bytes_left;
        let fits = |name: &&str| {
            let room = left.checked_sub(memory_of(name));
            left = room.unwrap_or(0);
            room.is_some()
        };
        names.take_while(fits).count()
    }

    /// Counts one more metric, unless a limit forbids it.
    pub(super) fn admit(&mut self, names: &NamesMut<'_>, name: &str) -> Result<(), NoRoom> {
        let room = self.room_for(names, name);
        let admitted =
            room.map_err(|(reason, place)| (reason, place, self.named[place].limit.clone())).and_then(|()| {
                let quotas = PREFIXES + self.limits.prefixes.len();
                let now = 60 * self.minute;
                self.quotas.admit(name, now).map_err(|limit| (RejectReason::TooManyMetrics, quotas, limit.into()))
            });
        match admitted {
            Ok(()) => {
                self.count(name);
                Ok(())
            }
            Err((reason, place, limit)) => {
                self.named[place].suppressed += 1;
                Err(NoRoom { reason, limit })
            }
        }
    }

    /// The error has the place of the limit in `named`.
    fn room_for(&self, names: &NamesMut<'_>, name: &str) -> Result<(), (RejectReason, usize)> {
        let bytes = memory_of(name);
        if names.count() as u64 >= self.limits.metrics || names.end().0 >= u32::MAX - 1 {
            return Err((RejectReason::TooManyMetrics, METRICS));
        }
        if bytes > self.bytes_left {
            return Err((RejectReason::NamesFull, NAMES));
        }
        if self.created >= self.limits.creations_per_minute {
            return Err((RejectReason::TooManyNewMetrics, CREATIONS));
        }
        for (place, limit, metrics) in self.prefixes.of(name) {
            if metrics.load(Relaxed) >= limit.metrics {
                return Err((RejectReason::TooManyMetrics, PREFIXES + place));
            }
            if self.created_below[place] >= limit.creations_per_minute {
                return Err((RejectReason::TooManyNewMetrics, PREFIXES + place));
            }
        }
        Ok(())
    }

    /// Counts a metric for which there is room.
    fn count(&mut self, name: &str) {
        self.prefixes.of(name).for_each(|(place, _, _)| self.created_below[place] += 1);
        self.prefixes.created(name);
        self.created += 1;
        self.bytes_left -= memory_of(name);
    }

    /// The use of each limit by prefix.
    pub(super) fn used(&self) -> Vec<BranchUse> {
        let used = |(limit, metrics): (&PrefixLimit, &AtomicU64)| BranchUse {
            branch: limit.prefix.clone(),
            pattern: "limits.prefixes".to_owned(),
            metrics: metrics.load(Relaxed),
            metrics_limit: (limit.metrics < u64::MAX).then_some(limit.metrics),
            ..BranchUse::default()
        };
        self.limits.prefixes.iter().zip(&self.prefixes.metrics).map(used).collect()
    }

    /// Logs that names were rejected, once a minute for each limit, with the example of each.
    pub(super) fn report<'a>(&mut self, example: impl Fn(&str) -> &'a str) {
        for named in self.named.iter_mut().filter(|named| 0 < named.suppressed && named.logged != self.minute) {
            named.logged = self.minute;
            let inputs = std::mem::take(&mut named.suppressed);
            tracing::warn!(
                limit = &*named.limit,
                inputs,
                example = %host::Excerpt(example(&named.limit)),
                "points of unknown metrics are rejected by a limit on metrics; known metrics are accepted; delete metrics or raise the limit"
            );
        }
    }
}
