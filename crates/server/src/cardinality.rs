//! How many metrics there are, by branch, tag or value: `/admin/cardinality`, and the largest branches for `/metrics`.

use std::{
    cmp::Reverse,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use api::ExtensionRequest;
use host::Clock;
use hyper::StatusCode;
use ingest::Ingest;
use metadata::{Cardinality, FindError, FindLimits, GroupBy, MetricCounts};
use metric::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::{PointStore, Usage};

use crate::asked::{Asked, CancelOnDrop};

/// Groups in an answer: by default, and at most.
const SHOWN: usize = 20;
const MOST_SHOWN: usize = 10_000;

/// Branches in `/metrics`.
const SCRAPED: usize = 10;

/// Metrics that were created within this time are new by default.
const NEW: Timestamp = 86_400;

/// The branches of `/metrics` are this old at least before they are counted again.
const SCRAPED_FOR: Duration = Duration::from_secs(60);

/// Counting rests this many times as long as it took.
const REST: u32 = 50;

/// What a request asks for.
struct Question {
    by: GroupBy,
    new_within: Timestamp,
    limit: usize,
    sort: Sort,
}

#[derive(Clone, Copy)]
enum Sort {
    Metrics,
    New,
}

impl Question {
    fn read(asked: &Asked) -> Result<Question, String> {
        asked.only(&["prefix", "depth", "by", "new_within", "limit", "sort"])?;
        let last = |name: &str| asked.all(name).last().copied().filter(|value| !value.is_empty());
        let number = |name: &str, default: u64| match last(name) {
            None => Ok(default),
            Some(text) => text.parse::<u64>().map_err(|_| format!("{name} must be a number, got '{text}'")),
        };
        let by = match last("by") {
            None | Some("branch") => {
                let below = last("prefix").unwrap_or_default().trim_end_matches('.');
                if metadata::is_pattern(below) {
                    return Err(format!(
                        "prefix must be a branch without wildcards, such as 'servers.web', got '{below}'"
                    ));
                }
                let depth = usize::try_from(number("depth", 1)?).unwrap_or(usize::MAX).max(1);
                GroupBy::Branch { below: below.to_owned(), depth }
            }
            Some(by) if last("prefix").or(last("depth")).is_some() => {
                return Err(format!("prefix and depth are for by=branch, got by={by}"));
            }
            Some("tag") => GroupBy::Tags,
            Some(by) => match by.strip_prefix("tag:") {
                Some(tag) if !tag.is_empty() => GroupBy::ValuesOf(tag.to_owned()),
                _ => return Err(format!("by must be branch, tag, or tag:NAME, got '{by}'")),
            },
        };
        let sort = match last("sort") {
            None | Some("metrics") => Sort::Metrics,
            Some("new") => Sort::New,
            Some(other) => return Err(format!("sort must be metrics or new, got '{other}'")),
        };
        let new_within = Timestamp::try_from(number("new_within", NEW as u64)?).unwrap_or(Timestamp::MAX / 2);
        let limit = usize::try_from(number("limit", SHOWN as u64)?).unwrap_or(MOST_SHOWN).min(MOST_SHOWN);
        Ok(Question { by, new_within, limit, sort })
    }
}

/// Answers `GET /admin/cardinality`. It ends with its client.
pub async fn answer(
    ingest: Arc<Ingest>,
    points: Arc<dyn PointStore>,
    request: ExtensionRequest,
) -> (StatusCode, Value) {
    let asked = match Asked::read(request).await {
        Ok(asked) => asked,
        Err((status, error)) => return (status, json!({"error": error})),
    };
    let question = match Question::read(&asked) {
        Ok(question) => question,
        Err(error) => return (StatusCode::BAD_REQUEST, json!({"error": error})),
    };
    let cancelled = Arc::<AtomicBool>::default();
    let _cancel = CancelOnDrop(cancelled.clone());
    let count = move || {
        let limits = FindLimits { cancelled: Some(cancelled), ..FindLimits::default() };
        let now = ingest.time().now().low();
        let counted = ingest.registry().cardinality(&question.by, now - question.new_within, now, &limits)?;
        let is_live_known = ingest.registry().seen().is_begun();
        Ok(table(&question, counted, points.usage(), is_live_known))
    };
    match tokio::task::spawn_blocking(count).await {
        Ok(Ok(answer)) => (StatusCode::OK, answer),
        Ok(Err(error @ FindError::Cancelled)) => (StatusCode::SERVICE_UNAVAILABLE, json!({"error": error.to_string()})),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, json!({"error": error.to_string()})),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, json!({"error": error.to_string()})),
    }
}

fn table(question: &Question, mut counted: Cardinality, usage: Usage, is_live_known: bool) -> Value {
    if let Sort::New = question.sort {
        counted.groups.sort_by_key(|(_, of)| Reverse(of.new));
    }
    // What a slot costs is known of metrics with rows; those that have none yet count as these. A store that does not know its
    // size has 0 on its disk.
    let stored = if is_live_known { counted.all.stored_slots } else { counted.all.slots };
    let bytes = |slots: u64| match (usage.disk_bytes, stored) {
        (0, _) | (_, 0) => Value::Null,
        (disk, stored) => (((disk + usage.memory_bytes) as f64 * slots as f64 / stored as f64) as u64).into(),
    };
    let counts = |of: &MetricCounts| {
        let live = if is_live_known { of.live.into() } else { Value::Null };
        json!({"metrics": of.metrics, "new": of.new, "live": live, "bytes_estimate": bytes(of.slots)})
    };
    let row = |(name, of): &(String, MetricCounts)| {
        let mut row = counts(of);
        row["name"] = name.as_str().into();
        row
    };
    let shown = counted.groups.len().min(question.limit);
    let mut rest = counted.others;
    counted.groups[shown..].iter().for_each(|(_, of)| rest.add(*of));
    json!({
        "by": match &question.by {
            GroupBy::Branch { .. } => "branch".to_owned(),
            GroupBy::Tags => "tag".to_owned(),
            GroupBy::ValuesOf(tag) => format!("tag:{tag}"),
        },
        "new_within": question.new_within,
        "all": counts(&counted.all),
        "tagged": counted.tagged,
        "counted": counts(&counted.counted),
        "groups": counted.groups[..shown].iter().map(row).collect::<Vec<_>>(),
        "groups_not_shown": counted.groups.len() - shown,
        "not_shown": counts(&rest),
    })
}

/// The largest branches, counted again in the background when they are asked for and old.
pub struct LargestBranches {
    ingest: Arc<Ingest>,
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    branches: Vec<(String, MetricCounts)>,
    new: u64,
    /// Not before then again.
    again_at: Option<Instant>,
    is_running: bool,
}

impl LargestBranches {
    /// None are counted yet.
    pub fn new(ingest: Arc<Ingest>, clock: Arc<dyn Clock>) -> LargestBranches {
        LargestBranches { ingest, clock, state: Arc::default() }
    }

    /// The largest first components of names, as of the last count, and how many metrics are new in a day. Begins a count if
    /// that is old. On a thread that may block, and that a runtime knows.
    pub fn get(&self) -> (Vec<(String, MetricCounts)>, u64) {
        let mut state = self.state.lock();
        let now = self.clock.instant();
        if !state.is_running && state.again_at.is_none_or(|at| at <= now) {
            state.is_running = true;
            let (ingest, clock, shared) = (self.ingest.clone(), self.clock.clone(), self.state.clone());
            tokio::task::spawn_blocking(move || count(&ingest, &*clock, &shared));
        }
        (state.branches.clone(), state.new)
    }
}

fn count(ingest: &Ingest, clock: &dyn Clock, shared: &Mutex<State>) {
    let began = clock.instant();
    let (by, now) = (GroupBy::Branch { below: String::new(), depth: 1 }, ingest.time().now().low());
    let counted = ingest.registry().cardinality(&by, now - NEW, now, &FindLimits::default());
    let ended = clock.instant();
    let mut state = shared.lock();
    if let Ok(mut counted) = counted {
        counted.groups.truncate(SCRAPED);
        (state.branches, state.new) = (counted.groups, counted.all.new);
    }
    state.is_running = false;
    state.again_at = Some(ended + SCRAPED_FOR.max(ended.saturating_duration_since(began) * REST));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Question, String> {
        Question::read(&Asked::parsed(text.as_bytes()))
    }

    #[test]
    fn a_question_has_defaults_and_bounds() {
        let Question { by, new_within, limit, .. } = read("").unwrap();
        assert_eq!((by, new_within, limit), (GroupBy::Branch { below: String::new(), depth: 1 }, 86_400, 20));
        let Question { by, limit, .. } = read("prefix=servers.web.&depth=0&limit=99999999").unwrap();
        assert_eq!((by, limit), (GroupBy::Branch { below: "servers.web".to_owned(), depth: 1 }, 10_000));
        assert_eq!(read("by=tag").unwrap().by, GroupBy::Tags);
        assert_eq!(read("by=tag:dc&sort=new&new_within=60").unwrap().by, GroupBy::ValuesOf("dc".to_owned()));
        for bad in ["by=x", "by=tag:", "prefix=a*", "depth=x", "by=tag&prefix=a", "sort=x", "limit=-1", "what=1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn groups_beyond_the_limit_are_summed_up() {
        let of = |metrics, new| MetricCounts {
            metrics,
            new,
            live: metrics,
            slots: metrics * 10,
            stored_slots: metrics * 10,
        };
        let bytes = |disk_bytes| Usage { disk_bytes, ..Usage::default() };
        let counted = Cardinality {
            all: of(10, 3),
            tagged: 0,
            counted: of(10, 3),
            groups: vec![("a".to_owned(), of(5, 0)), ("b".to_owned(), of(3, 1)), ("c".to_owned(), of(2, 2))],
            others: MetricCounts::default(),
        };
        let shown = table(&read("limit=1&sort=new").unwrap(), counted.clone(), bytes(1000), true);
        assert_eq!(shown["groups"], json!([{"name": "c", "metrics": 2, "new": 2, "live": 2, "bytes_estimate": 200}]));
        assert_eq!((&shown["groups_not_shown"], &shown["not_shown"]["metrics"]), (&json!(2), &json!(8)));
        let unknown = table(&read("").unwrap(), counted, bytes(0), false);
        assert_eq!(unknown["all"], json!({"metrics": 10, "new": 3, "live": null, "bytes_estimate": null}));
    }

    #[test]
    fn metrics_without_rows_cost_what_those_with_rows_cost() {
        let counted = |slots, stored_slots| {
            let all = MetricCounts { metrics: 4, slots, stored_slots, ..MetricCounts::default() };
            Cardinality { all, counted: all, ..Cardinality::default() }
        };
        let estimate = |slots, stored, disk_bytes, memory_bytes, is_live_known| {
            let usage = Usage { disk_bytes, memory_bytes, ..Usage::default() };
            table(&read("").unwrap(), counted(slots, stored), usage, is_live_known)["all"]["bytes_estimate"].clone()
        };
        assert_eq!(estimate(100, 0, 70, 0, true), Value::Null, "names alone are on the disk");
        assert_eq!(estimate(100, 25, 50, 0, true), json!(200));
        assert_eq!(estimate(100, 25, 30, 20, true), json!(200), "a flush goes on");
        assert_eq!(estimate(100, 100, 50, 0, true), json!(50));
        assert_eq!(estimate(100, 0, 50, 0, false), json!(50), "which metrics have rows is not known");
    }
}
