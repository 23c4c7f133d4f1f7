//! Limits on new metrics: in all, by the minute, by prefix, and by the memory of names. Known names pass without a look.

use std::{str::FromStr, sync::Arc};

use carbon::{QuotaRule, RejectReason};
use metadata::{NamesMut, Registry};
use metric::Timestamp;

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
            format!("limits.prefixes = {prefix}={metrics}/{creations_per_minute}")
        }));
        texts.push("limits.quotas".to_owned());
        let named = |text: String| Named { limit: text.into(), logged: Timestamp::MIN, suppressed: 0 };
        texts.into_iter().map(named).collect()
    }
}

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

/// The use of one limit.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    metrics: u64,
    /// In the current minute.
    created: u64,
}

/// The limits, and how much of them is used.
#[derive(Debug)]
pub(super) struct Admission {
    limits: NameLimits,
    minute: Timestamp,
    created: u64,
    // One for each prefix.
    prefixes: Vec<Used>,
    /// Bytes left for names, as of the beginning of a batch.
    bytes_left: u64,
    named: Vec<Named>,
    quotas: Arc<Quotas>,
}

impl Admission {
    pub(super) fn new(limits: NameLimits, quotas: Arc<Quotas>, registry: &Registry) -> Admission {
        let prefixes = vec![Used::default(); limits.prefixes.len()];
        let named = limits.named();
        let mut admission = Admission { limits, minute: 0, created: 0, prefixes, bytes_left: 0, named, quotas };
        admission.count_prefixes(registry);
        admission
    }

    /// Counts the metrics of each prefix, which takes as long as reading all names. Untagged names only.
    pub(super) fn count_prefixes(&mut self, registry: &Registry) {
        self.quotas.count(registry);
        if self.limits.prefixes.is_empty() {
            return;
        }
        self.prefixes.iter_mut().for_each(|used| used.metrics = 0);
        registry.all(|_, name| {
            for (limit, used) in self.limits.prefixes.iter().zip(&mut self.prefixes) {
                used.metrics += u64::from(name.starts_with(&limit.prefix));
            }
            true
        });
    }

    /// Begins a batch of new names at `now`.
    pub(super) fn begin(&mut self, names: &NamesMut<'_>, now: Timestamp) {
        let minute = now.div_euclid(60);
        if minute != self.minute {
            self.minute = minute;
            self.created = 0;
            self.prefixes.iter_mut().for_each(|used| used.created = 0);
        }
        let used = names.memory_bytes() as u64 + SLOTS_BYTES * names.count() as u64;
        self.bytes_left = self.limits.names_bytes.saturating_sub(used);
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
        for (place, (limit, used)) in self.limits.prefixes.iter().zip(&self.prefixes).enumerate() {
            if !name.starts_with(&limit.prefix) {
                continue;
            }
            if used.metrics >= limit.metrics {
                return Err((RejectReason::TooManyMetrics, PREFIXES + place));
            }
            if used.created >= limit.creations_per_minute {
                return Err((RejectReason::TooManyNewMetrics, PREFIXES + place));
            }
        }
        Ok(())
    }

    /// Counts a metric for which there is room.
    fn count(&mut self, name: &str) {
        let of_prefix = |(limit, _): &(&PrefixLimit, &mut Used)| name.starts_with(&limit.prefix);
        for (_, used) in self.limits.prefixes.iter().zip(&mut self.prefixes).filter(of_prefix) {
            used.metrics += 1;
            used.created += 1;
        }
        self.created += 1;
        self.bytes_left -= memory_of(name);
    }

    /// The use of each limit by prefix.
    pub(super) fn used(&self) -> Vec<BranchUse> {
        let used = |(limit, used): (&PrefixLimit, &Used)| BranchUse {
            branch: limit.prefix.clone(),
            pattern: "limits.prefixes".to_owned(),
            metrics: used.metrics,
            metrics_limit: (limit.metrics < u64::MAX).then_some(limit.metrics),
            ..BranchUse::default()
        };
        self.limits.prefixes.iter().zip(&self.prefixes).map(used).collect()
    }

    /// Logs that names were rejected, once a minute for each limit.
    pub(super) fn report(&mut self, example: &str) {
        for named in self.named.iter_mut().filter(|named| 0 < named.suppressed && named.logged != self.minute) {
            named.logged = self.minute;
            let inputs = std::mem::take(&mut named.suppressed);
            tracing::warn!(
                limit = &*named.limit,
                inputs,
                example = %host::Excerpt(example),
                "points of unknown metrics are rejected by a limit on metrics; known metrics are accepted; delete metrics or raise the limit"
            );
        }
    }
}
