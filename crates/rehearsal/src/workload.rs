//! The fixed workload: what nodes live through, in a few hundred calls of the disk.

use std::time::Duration;

use host::{Random, SeededRandom};

use crate::{Sent, Step};

/// Metrics of each method.
const KINDS: [&str; 3] = ["a", "strict", "steady"];

/// Points of metrics of every method: `seconds` of them, the newest `newest` seconds old.
pub(crate) fn points(random: &SeededRandom, newest: i64, seconds: i64, one_in: u64) -> Vec<Sent> {
    let mut points = Vec::new();
    for method in metric::Aggregation::ALL {
        for kind in KINDS {
            if random.below(one_in) > 0 {
                continue;
            }
            for age in (newest..newest + seconds).rev() {
                if random.below(3) > 0 {
                    let value = random.below(2001) as f64 / 8.0 - 125.0;
                    points.push(Sent { name: format!("{}.{kind}", method.name()), age, value });
                }
            }
        }
    }
    points
}

/// One of the names of [`points`].
pub(crate) fn name(random: &SeededRandom) -> String {
    let method = metric::Aggregation::ALL[random.index(metric::Aggregation::ALL.len())];
    format!("{}.{}", method.name(), KINDS[random.index(KINDS.len())])
}

fn brief(random: &SeededRandom) -> Vec<Sent> {
    (0..30).map(|age| Sent { name: "brief.a".to_owned(), age, value: random.below(100) as f64 }).collect()
}

/// Points of a metric with a list of methods, which changes with the rules.
pub(crate) fn listed(newest: i64, seconds: i64) -> Vec<Sent> {
    // Of its own numbers: those of the other metrics stay.
    let random = SeededRandom::new(newest.unsigned_abs() << 16 | seconds.unsigned_abs());
    let ages = (newest..newest + seconds).rev().filter(|_| 0 < random.below(3));
    ages.map(|age| Sent { name: "list.a".to_owned(), age, value: random.below(2001) as f64 / 8.0 - 125.0 }).collect()
}

/// Points of a metric that is not there yet.
fn young(random: &SeededRandom) -> Vec<Sent> {
    (0..20).map(|age| Sent { name: "sum.young".to_owned(), age, value: random.below(100) as f64 }).collect()
}

/// Ingestion, late and old points, flushes, merges, changes of retentions and lists of methods, expiry, deletions, backups, events,
/// clean stops.
pub fn workload() -> Vec<Step> {
    let random = SeededRandom::new(1);
    let both = |newest, seconds, one_in| [points(&random, newest, seconds, one_in), listed(newest, seconds)].concat();
    let send = |newest, seconds, one_in| Step::Send(vec![both(newest, seconds, one_in)]);
    let pass = |seconds| Step::Pass(Duration::from_secs(seconds));
    let delete = |names: &[&str]| Step::Delete(names.iter().map(|name| (*name).to_owned()).collect());
    vec![
        send(0, 40, 1),
        Step::Send(vec![brief(&random)]),
        Step::Event("first".to_owned()),
        pass(3),
        // Two connections write the same slots.
        Step::Send(vec![points(&random, 0, 10, 2), points(&random, 0, 10, 2)]),
        Step::Flush,
        pass(30),
        // Late, within stage 0; and so old that only a coarse stage holds them.
        send(20, 60, 2),
        send(1500, 30, 4),
        Step::Flush,
        Step::Rules(1),
        send(0, 20, 2),
        Step::Event("second".to_owned()),
        Step::Restart,
        pass(60),
        send(0, 40, 2),
        Step::Flush,
        send(0, 5, 2),
        send(1200, 30, 4),
        Step::Flush,
        Step::Backup,
        pass(30),
        send(0, 20, 3),
        // Metrics with stored points, and points in the journal alone; they are there again with the next points.
        delete(&["sum.a", "max.strict", "last.steady"]),
        send(0, 20, 3),
        // One that only the journal has.
        Step::Send(vec![young(&random)]),
        delete(&["sum.young"]),
        Step::Send(vec![young(&random)]),
        pass(3),
        Step::Flush,
        // And once more where all is stored.
        delete(&["sum.young", "average.a"]),
        Step::Expire,
        pass(1500),
        send(0, 20, 2),
        Step::Expire,
        Step::Flush,
        pass(7200),
        Step::Expire,
        send(0, 20, 3),
        // It shares files with the first.
        Step::Backup,
        Step::Restart,
        send(0, 20, 3),
        delete(&["min.a"]),
    ]
}
