//! Targets: any target is parsed, planned, fetched and evaluated within its budget, or rejected.
#![no_main]

use libfuzzer_sys::fuzz_target;
use render::{Budget, Context, Data, Evaluation, Fetch, Series, evaluate, parse, plan};

/// Points that functions may make, and rounds of fetching, as a server would bound them.
const POINTS: usize = 200_000;
const ROUNDS: usize = 100;

/// Bytes that an evaluation may take.
const MEMORY: usize = 256 << 20;

/// Points of a fetched series, at most: a server reads a coarser stage then.
const FETCHED_POINTS: i64 = 500;

/// Some series for a fetch: fine and coarse ones, with gaps, infinities and numbers of all sizes.
fn fetched(fetch: &Fetch) -> Vec<Series> {
    let is_glob = fetch.path.contains(['*', '?', '[', '{', '(']);
    let words: &[&str] = if is_glob { &["one", "two", "ten"] } else { &["one"] };
    let series = words.iter().enumerate().filter_map(|(i, word)| {
        let seconds = fetch.span.until.checked_sub(fetch.span.from).filter(|&seconds| seconds > 0)?;
        let step = (seconds / FETCHED_POINTS / 60 + 1) * [60, 60, 300][i];
        let start = fetch.span.from - fetch.span.from.rem_euclid(step) + step;
        let count = (fetch.span.until - start).max(0) / step;
        let values = (0..count).map(|at| match (at + i as i64) % 11 {
            3 => f64::NAN,
            5 => 0.0,
            7 => -1e300,
            8 if i == 1 => f64::INFINITY,
            9 => at as f64 / 3.0,
            part => part as f64 * 1000.0,
        });
        let name = fetch.path.replace(['*', '?', '[', ']', '{', '}', '(', ')', ','], word);
        Some(Series::fetched(&name, fetch.path.clone(), start, step, values.collect()))
    });
    series.collect()
}

fuzz_target!(|target: &str| {
    let Ok(target) = parse(target) else { return };
    let targets = [target];
    let now = 1_700_000_000;
    let context = Context::new(now, now - 3600, now);
    let budget = Budget { points: POINTS, cancelled: &|| false, memory: &|bytes| bytes <= MEMORY };
    let Ok(mut needed) = plan(&targets, &context, &budget) else { return };
    let mut data = Data::new();
    let mut fetches = 0;
    for _ in 0..ROUNDS {
        for fetch in needed.events {
            assert!(data.get_events(&fetch).is_none(), "{fetch:?} is fetched again");
            // Within the span, before it and after it.
            let times = vec![now - 60, now - 7200, now + 60];
            data.put_events(fetch, times);
        }
        for fetch in needed.series {
            fetches += 1;
            assert!(data.get(&fetch).is_none(), "{fetch:?} is fetched again");
            // A server rejects this many series; that is not an error of the evaluation.
            if fetches > 200 {
                return;
            }
            let series = fetched(&fetch);
            data.put(fetch, series);
        }
        match evaluate(&targets, &context, &data, &budget) {
            Err(error) => return assert!(!error.to_string().is_empty()),
            Ok(Evaluation::Fetch(more)) => needed = more,
            Ok(Evaluation::Done(series)) => {
                assert!(series.iter().map(|series| series.values.len()).sum::<usize>() <= POINTS + 10_000);
                return series.iter().for_each(|series| assert!(series.step > 0, "{series:?}"));
            }
        }
    }
    panic!("the evaluation asks for data without end");
});
