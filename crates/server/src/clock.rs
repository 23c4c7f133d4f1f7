//! A clock in doubt, as operators see it: log lines, texts, and the request that settles it.

use std::{sync::Arc, time::Duration};

use host::{Candidate, ClockDoubt, JudgingTime, utc};
use serde_json::{Value, json};

/// Interval between two looks at the clock. Points that come look too.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks between two writes of the mark.
const SAVE_EVERY: u32 = 30;

/// Follows the clock: logs jumps and their ends, and keeps the mark of how far the time has come.
pub async fn watch(time: Arc<JudgingTime>) {
    if let Some(kept) = time.moved_aside() {
        tracing::error!(
            kept,
            "the file clock of the data folder is damaged; moved it aside. A jump of the clock since the last run is not noticed"
        );
    }
    let mut before = None;
    let mut is_failing = false;
    for look in 0_u32.. {
        let doubt = time.doubt();
        log_change(before.as_ref(), doubt.as_ref());
        // A process that is killed right after the end of a doubt must not begin with it again.
        let has_ended = before.is_some() && doubt.is_none();
        before = doubt;
        if look.is_multiple_of(SAVE_EVERY) || has_ended {
            save(&time, &mut is_failing).await;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn save(time: &Arc<JudgingTime>, is_failing: &mut bool) {
    let time = time.clone();
    match tokio::task::spawn_blocking(move || time.save()).await {
        Ok(Ok(())) => *is_failing = false,
        Ok(Err(error)) if !*is_failing => {
            tracing::warn!(%error, "cannot write the file clock of the data folder; retrying. A jump of the clock at the next start may not be noticed");
            *is_failing = true;
        }
        _ => {}
    }
}

fn log_change(before: Option<&ClockDoubt>, now: Option<&ClockDoubt>) {
    let is_new = |now: &&ClockDoubt| before.is_none_or(|before| now.verdict != before.verdict || jumped(before, now));
    match now {
        Some(doubt) if now.as_ref().is_some_and(is_new) => match is_gap(doubt) {
            true => tracing::warn!("{}", explain(doubt)),
            false => tracing::error!("{}", explain(doubt)),
        },
        None if before.is_some() => tracing::info!("the clock is trusted again; points expire again"),
        _ => {}
    }
}

/// Whether the clock moved against the stopwatch between two looks.
fn jumped(before: &ClockDoubt, now: &ClockDoubt) -> bool {
    ((now.clock - now.before) - (before.clock - before.before)).abs() > host::TOLERANCE
}

/// Whether it may be only that the program did not run for a while.
fn is_gap(doubt: &ClockDoubt) -> bool {
    doubt.at_start && doubt.before < doubt.clock && doubt.verdict.is_none()
}

/// What happened, what it costs, what to do.
pub fn explain(doubt: &ClockDoubt) -> String {
    let (clock, before) = (utc(doubt.clock), utc(doubt.before));
    let state = match doubt.verdict {
        Some(Candidate::Before) => {
            format!("the machine's clock is wrong: it says {clock}, and points that come have times near {before}")
        }
        _ if is_gap(doubt) => format!(
            "the clock says {clock}, and this folder was last in use at {before}: points that come will show whether the \
             program did not run meanwhile, or the clock is wrong"
        ),
        _ if doubt.at_start => format!("the clock says {clock}, but this folder was in use at {before}"),
        _ => format!("the clock jumped to {clock}; by the stopwatch it is {before}"),
    };
    let next = match doubt.verdict {
        Some(Candidate::Before) => "set the clock",
        _ => {
            "this ends when points agree with the clock, when the clock is set right, or with POST /admin/clock?trust=clock"
        }
    };
    format!("{state}. Points of both times are accepted, and nothing expires; {next}")
}

/// What waits for the end of a doubt, behind [`explain`].
pub fn explain_waiting(metrics: u64) -> Option<String> {
    let text = "metrics keep the retentions from before the last change of carbon's files until then";
    (0 < metrics).then(|| format!("; {metrics} {text}"))
}

/// The doubt in `/admin/status`; null while the clock is trusted.
pub fn status(time: &JudgingTime) -> Value {
    let Some(doubt) = time.doubt() else { return Value::Null };
    json!({
        "clock": doubt.clock,
        "before": doubt.before,
        "at_start": doubt.at_start,
        "seconds": doubt.seconds,
        "points_agree_with": doubt.verdict.map(|verdict| match verdict {
            Candidate::Clock => "clock",
            Candidate::Before => "before",
        }),
        "batches": {"clock": doubt.batches[0], "before": doubt.batches[1]},
        "why": explain(&doubt),
    })
}

/// `POST /admin/clock?trust=clock` or `trust=before`. The error says what the query must be.
pub fn settle(time: &Arc<JudgingTime>, query: Option<&str>) -> Result<Value, String> {
    let candidate = match query {
        Some("trust=clock") => Candidate::Clock,
        Some("trust=before") => Candidate::Before,
        _ => return Err("trust must be 'clock' or 'before': POST /admin/clock?trust=clock".to_owned()),
    };
    let was_doubtful = time.trust(candidate);
    tracing::warn!(?candidate, was_doubtful, "an operator settled which time is right");
    if was_doubtful && let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let time = time.clone();
        // A failure is logged by the next regular write.
        drop(runtime.spawn_blocking(move || time.save()));
    }
    Ok(json!({"was_in_doubt": was_doubtful, "clock_in_doubt": status(time)}))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use host::ManualClock;

    use super::*;

    #[test]
    fn an_operator_reads_what_happened_and_what_to_do() {
        let clock = Arc::new(ManualClock::at(1_795_000_000));
        let time = Arc::new(JudgingTime::of(clock.clone()));
        assert_eq!(status(&time), Value::Null);
        clock.set(0);
        let why = status(&time)["why"].as_str().unwrap().to_owned();
        assert_eq!(
            why,
            "the clock jumped to 1970-01-01T00:00:00Z; by the stopwatch it is 2026-11-18T11:06:40Z. Points of both times are \
             accepted, and nothing expires; this ends when points agree with the clock, when the clock is set right, or with \
             POST /admin/clock?trust=clock"
        );
        let waiting = "; 3 metrics keep the retentions from before the last change of carbon's files until then";
        assert_eq!((explain_waiting(0), explain_waiting(3).as_deref()), (None, Some(waiting)));
        assert!(settle(&time, Some("trust=me")).is_err());
        assert_eq!(settle(&time, Some("trust=clock")).unwrap()["clock_in_doubt"], Value::Null);
    }
}
