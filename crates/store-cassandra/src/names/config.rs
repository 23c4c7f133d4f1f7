//! The columns of a metric besides its name: a policy as the three words that BigGraphite keeps in `config`, and back; ids
//! and creation times. Pure.
//!
//! BigGraphite knows five of carbon's eight methods. The others are stored under the nearest of the five, together with a key
//! of our own that BigGraphite ignores. If BigGraphite rewrites the map, the nearest method remains.

use std::collections::BTreeMap;

use metric::{Aggregation, Policy, Timestamp};
use scylla::value::{CqlTimeuuid, MaybeEmpty};
use store::{PolicyChange, SharedMetric};
use uuid::Uuid;

/// The keys of `config`, and of what refines its aggregator.
const AGGREGATOR: &str = "aggregator";
const RETENTION: &str = "retention";
const X_FILES_FACTOR: &str = "carbon_xfilesfactor";
pub(crate) const CARBON_AGGREGATOR: &str = "plumbago_aggregator";
/// The policies before: each with the second since when it held, `SECOND METHOD XFILESFACTOR RETENTION`, oldest first, then the second since when
/// the one of the config holds, all with `;` between them.
const BEFORE: &str = "plumbago_before";

/// Earlier policies that are kept and read, the latest ones.
const MOST_BEFORE: usize = 16;

/// Why a `config` is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigError {
    /// BigGraphite does not read it either.
    #[error("the config has no '{0}'")]
    Missing(&'static str),
    /// A value that cannot be.
    #[error("'{key}' is '{value}'")]
    Value {
        /// Which.
        key: &'static str,
        /// As it is stored.
        value: String,
    },
}

/// BigGraphite's name of a method, or of the nearest that it has.
fn biggraphite_name(method: Aggregation) -> &'static str {
    match method {
        // A row of avg_zero holds the sum and the count, as one of average does.
        Aggregation::Average | Aggregation::AvgZero => "average",
        Aggregation::Sum => "total",
        Aggregation::Last => "last",
        Aggregation::Max | Aggregation::AbsMax => "maximum",
        Aggregation::Min | Aggregation::AbsMin => "minimum",
    }
}

/// A policy as the tables keep it.
pub(crate) fn config(policy: &Policy) -> BTreeMap<&'static str, String> {
    let nearest = biggraphite_name(policy.aggregation);
    let mut config = BTreeMap::from([
        (AGGREGATOR, nearest.to_owned()),
        (RETENTION, policy.retention.to_string()),
        (X_FILES_FACTOR, format!("{:.6}", policy.x_files_factor)),
    ]);
    if method(nearest) != Some(policy.aggregation) {
        config.insert(CARBON_AGGREGATOR, policy.aggregation.name().to_owned());
    }
    config
}

/// The policies of a metric as the tables keep them, the one that holds last.
pub(crate) fn config_of(policies: &[PolicyChange]) -> Option<BTreeMap<&'static str, String>> {
    let (last, before) = policies.split_last()?;
    let mut config = config(&last.policy);
    if !before.is_empty() {
        let kept = &before[before.len().saturating_sub(MOST_BEFORE)..];
        let text = |PolicyChange { since, policy }: &PolicyChange| {
            format!("{since} {} {:.6} {}", policy.aggregation.name(), policy.x_files_factor, policy.retention)
        };
        let mut all: Vec<String> = kept.iter().map(text).collect();
        all.push(last.since.to_string());
        config.insert(BEFORE, all.join(";"));
    }
    Some(config)
}

/// The policies before that of a `config`, and since when that one holds. None where another program wrote the config.
pub(crate) fn before<'a>(config: impl IntoIterator<Item = (&'a str, &'a str)>) -> (Vec<PolicyChange>, Timestamp) {
    let text = config.into_iter().find(|(key, _)| *key == BEFORE).map(|(_, text)| text);
    text.and_then(parse_before).unwrap_or_default()
}

fn parse_before(text: &str) -> Option<(Vec<PolicyChange>, Timestamp)> {
    let (before, since) = text.rsplit_once(';')?;
    let since: Timestamp = since.parse().ok()?;
    let change = |text: &str| {
        let mut words = text.splitn(4, ' ');
        let since = words.next()?.parse().ok()?;
        let aggregation = words.next()?.parse().ok()?;
        let x_files_factor: f64 = words.next()?.parse().ok()?;
        let retention = words.next()?.parse().ok()?;
        let policy = Policy { retention, aggregation, x_files_factor, ..Policy::default() };
        (0.0..=1.0).contains(&x_files_factor).then_some(PolicyChange { since, policy })
    };
    let mut before = before.split(';').take(MOST_BEFORE).map(change).collect::<Option<Vec<_>>>()?;
    before.first_mut()?.since = 0;
    let is_ordered = before.is_sorted_by_key(|change| change.since) && before.last()?.since <= since;
    is_ordered.then_some((before, since))
}

/// Adds to the policies of a metric those that its row has and they lack, before the one that holds. Where that one is alone, it is of this time,
/// unless the row has it already.
pub(crate) fn add_known(
    policies: &mut Vec<PolicyChange>,
    known: &SharedMetric,
    (created_on, now): (Timestamp, Timestamp),
) {
    let Some(mut last) = policies.pop() else { return };
    let is_same = is_kept_alike(&last.policy, &known.policy);
    let present = PolicyChange { since: known.since, policy: known.policy.clone() };
    let of_row = || known.earlier.iter().chain(Some(&present).filter(|_| !is_same));
    if last.since <= 0 {
        // This node made the metric then, by its own rules. The others are those that it knows others to have had, and no times of them.
        let since_creation = if known.since < created_on { created_on } else { now.max(known.since) };
        last.since = if is_same { known.since } else { since_creation };
        let is_in_row = |own: &PolicyChange| {
            of_row().any(|change| is_kept_alike(&own.policy, &change.policy))
                || is_kept_alike(&own.policy, &last.policy)
        };
        policies.retain(|own| !is_in_row(own));
        policies.extend(of_row().cloned());
    }
    // Those in front have no times: others had them, or have. One that has a time as well needs no place there.
    while let [first, second, ..] = &policies[..]
        && second.since <= 0
        && policies[1..].iter().chain([&last]).any(|own| 0 < own.since && is_kept_alike(&own.policy, &first.policy))
    {
        policies.remove(0);
    }
    if is_same && 0 < known.since {
        // A node that has the policy in force later than others has nothing new about the one before.
        let of_row = || known.earlier.iter().map(|change| &change.policy).chain([&known.policy]);
        let is_known = |own: &PolicyChange| of_row().any(|other| is_kept_alike(&own.policy, other));
        policies.retain(|own| own.since < known.since || !is_known(own));
        if policies.iter().all(|own| own.since < known.since) {
            last.since = last.since.min(known.since);
        }
    }
    for change in of_row() {
        let are_of_unknown_times = 1 < policies.iter().filter(|own| own.since == 0).count();
        match policies.iter_mut().find(|own| is_kept_alike(&own.policy, &change.policy)) {
            Some(own) if own.since == 0 && are_of_unknown_times => own.since = change.since.min(last.since),
            Some(_) => {}
            None => policies.push(PolicyChange { since: change.since.min(last.since), policy: change.policy.clone() }),
        }
    }
    policies.sort_by_key(|change| change.since);
    if let Some(first) = policies.first_mut() {
        first.since = 0;
    }
    policies.push(last);
}

/// Whether the tables tell two policies apart.
fn is_kept_alike(one: &Policy, other: &Policy) -> bool {
    one.retention == other.retention
        && one.aggregation == other.aggregation
        && format!("{:.6}", one.x_files_factor) == format!("{:.6}", other.x_files_factor)
}

/// A method by the names that BigGraphite takes: its own and carbon's.
fn method(name: &str) -> Option<Aggregation> {
    match name {
        "total" => Some(Aggregation::Sum),
        "minimum" => Some(Aggregation::Min),
        "maximum" => Some(Aggregation::Max),
        _ => name.parse().ok(),
    }
}

/// The policy that a `config` stands for. Unknown keys are ignored.
pub(crate) fn policy<'a>(config: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Policy, ConfigError> {
    let (mut aggregator, mut retention, mut x_files_factor, mut carbon) = (None, None, None, None);
    for (key, value) in config {
        match key {
            AGGREGATOR => aggregator = Some(value),
            RETENTION => retention = Some(value),
            X_FILES_FACTOR => x_files_factor = Some(value),
            CARBON_AGGREGATOR => carbon = Some(value),
            _ => {}
        }
    }
    let wrong = |key, value: &str| ConfigError::Value { key, value: value.to_owned() };
    let mut aggregation = match aggregator {
        // As BigGraphite takes it.
        None | Some("") => Aggregation::Average,
        Some(name) => method(name).ok_or_else(|| wrong(AGGREGATOR, name))?,
    };
    // Another program may have changed what this refines, and kept this.
    let refined = carbon.and_then(|name| name.parse::<Aggregation>().ok());
    if let Some(refined) = refined.filter(|refined| method(biggraphite_name(*refined)) == Some(aggregation)) {
        aggregation = refined;
    }
    let retention = retention.filter(|text| !text.is_empty()).ok_or(ConfigError::Missing(RETENTION))?;
    let retention = retention.parse().map_err(|_| wrong(RETENTION, retention))?;
    let x_files_factor = x_files_factor.ok_or(ConfigError::Missing(X_FILES_FACTOR))?;
    let known: f64 = x_files_factor.trim().parse().map_err(|_| wrong(X_FILES_FACTOR, x_files_factor))?;
    if !(0.0..=1.0).contains(&known) {
        return Err(wrong(X_FILES_FACTOR, x_files_factor));
    }
    Ok(Policy { retention, aggregation, x_files_factor: known, ..Policy::default() })
}

/// Hundreds of nanoseconds from the beginning of the calendar of time UUIDs, 1582, to 1970.
const CALENDAR: u64 = 0x01b2_1dd2_1381_4000;

/// A time UUID of a second, the same each time for a metric: a creation that is written twice is written once.
pub(crate) fn time_uuid(time: Timestamp, metric: Uuid) -> Uuid {
    let ticks = (u64::try_from(time).unwrap_or(0)).saturating_mul(10_000_000).saturating_add(CALENDAR);
    let [clock_low, clock_high, node @ ..] = *metric.as_bytes().last_chunk::<8>().expect("a UUID has sixteen bytes");
    // The bit says that no network card has this number.
    let node = [node[0] | 1, node[1], node[2], node[3], node[4], node[5]];
    let clock = [clock_low & 0x3f | 0x80, clock_high];
    let high = (ticks >> 48) as u16 & 0x0fff | 0x1000;
    Uuid::from_fields(
        ticks as u32,
        (ticks >> 32) as u16,
        high,
        &[clock[0], clock[1], node[0], node[1], node[2], node[3], node[4], node[5]],
    )
}

/// The second of a column, as far as it has one.
pub(crate) fn time(column: Option<MaybeEmpty<CqlTimeuuid>>) -> Option<Timestamp> {
    match column? {
        MaybeEmpty::Value(uuid) => time_of(uuid.into()),
        MaybeEmpty::Empty => None,
    }
}

/// The second of a time UUID, or `None` where it is not one or of before 1970.
fn time_of(uuid: Uuid) -> Option<Timestamp> {
    if uuid.get_version_num() != 1 {
        return None;
    }
    let (low, mid, high, _) = uuid.as_fields();
    let ticks = u64::from(high & 0x0fff) << 48 | u64::from(mid) << 32 | u64::from(low);
    Timestamp::try_from(ticks.checked_sub(CALENDAR)? / 10_000_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows;

    fn read(config: &[(&'static str, &'static str)]) -> Result<Policy, ConfigError> {
        policy(config.iter().copied())
    }

    #[test]
    fn every_policy_is_read_back() {
        for aggregation in Aggregation::ALL {
            for x_files_factor in [0.0, 0.333333, 0.5, 1.0] {
                let written = Policy { aggregation, x_files_factor, ..Policy::default() };
                let config = config(&written);
                assert_eq!(policy(config.iter().map(|(key, value)| (*key, value.as_str()))), Ok(written));
            }
        }
    }

    #[test]
    fn a_config_has_biggraphites_three_keys() {
        let config = config(&Policy { aggregation: Aggregation::Sum, ..Policy::default() });
        let config: Vec<_> = config.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let expected = [("aggregator", "total"), ("carbon_xfilesfactor", "0.500000"), ("retention", "10080*60s")];
        assert_eq!(config, expected);
    }

    #[test]
    fn a_method_that_biggraphite_lacks_is_kept_together_with_the_nearest() {
        let config = config(&Policy { aggregation: Aggregation::AbsMin, ..Policy::default() });
        assert_eq!((config["aggregator"].as_str(), config["plumbago_aggregator"].as_str()), ("minimum", "absmin"));
        // BigGraphite's own word holds where it says something else.
        let changed = [
            ("aggregator", "total"),
            ("retention", "1*1s"),
            ("carbon_xfilesfactor", "0"),
            ("plumbago_aggregator", "absmin"),
        ];
        assert_eq!(read(&changed).unwrap().aggregation, Aggregation::Sum);
    }

    #[test]
    fn both_programs_names_are_read() {
        for (name, method) in [
            ("average", Aggregation::Average),
            ("total", Aggregation::Sum),
            ("sum", Aggregation::Sum),
            ("minimum", Aggregation::Min),
            ("min", Aggregation::Min),
            ("maximum", Aggregation::Max),
            ("max", Aggregation::Max),
            ("last", Aggregation::Last),
            ("absmax", Aggregation::AbsMax),
            ("", Aggregation::Average),
        ] {
            let config = [("aggregator", name), ("retention", "60*60s:24*3600s"), ("carbon_xfilesfactor", "0.5")];
            assert_eq!(read(&config).unwrap().aggregation, method, "{name}");
        }
    }

    #[test]
    fn earlier_policies_are_read_as_they_were_written_and_garbage_counts_as_none() {
        let policy = |retention: &str, aggregation| Policy {
            retention: retention.parse().unwrap(),
            aggregation,
            x_files_factor: 0.25,
            ..Policy::default()
        };
        let change = |since, policy| PolicyChange { since, policy };
        let policies = [
            change(0, policy("720*10s:1440*60s", Aggregation::AbsMax)),
            change(1_700_000_000, policy("60*60s", Aggregation::Last)),
            change(1_700_000_500, policy("60*60s", Aggregation::Sum)),
        ];
        let read = |config: &BTreeMap<&'static str, String>| {
            let pairs = || config.iter().map(|(key, value)| (*key, value.as_str()));
            (super::policy(pairs()).unwrap(), before(pairs()))
        };
        let config = config_of(&policies).unwrap();
        assert_eq!(config[BEFORE], "0 absmax 0.250000 720*10s:1440*60s;1700000000 last 0.250000 60*60s;1700000500");
        let [.., last] = &policies;
        assert_eq!(read(&config), (last.policy.clone(), (policies[..2].to_vec(), 1_700_000_500)));
        assert_eq!(read(&config_of(&policies[2..]).unwrap()), (last.policy.clone(), (Vec::new(), 0)));
        assert_eq!(config_of(&[]), None);
        let many: Vec<PolicyChange> = (0..40).map(|n| change(n, policies[0].policy.clone())).collect();
        let (earlier, since) = read(&config_of(&many).unwrap()).1;
        assert_eq!((earlier.len(), earlier[0].since, earlier[1].since, since), (MOST_BEFORE, 0, 24, 39));
        for garbage in [
            "",
            ";",
            "5",
            "x;5",
            "0 sum 0.5;5",
            "0 sum 2 60*60s;5",
            "0 sum 0.5 60*60s;x",
            "0 sum 0.5 60*60s;-1",
            "9 sum 0.5 60*60s;8 sum 0.5 60*60s;7",
        ] {
            let config = BTreeMap::from([(BEFORE, garbage.to_owned())]);
            let (earlier, since) = before(config.iter().map(|(key, value)| (*key, value.as_str())));
            assert_eq!((earlier, since), (Vec::new(), 0), "{garbage}");
        }
    }

    #[test]
    fn an_invalid_config_says_what_is_wrong() {
        assert_eq!(read(&[("aggregator", "last")]), Err(ConfigError::Missing("retention")));
        assert_eq!(read(&[("retention", "1*1s")]), Err(ConfigError::Missing("carbon_xfilesfactor")));
        let wrong = |key, value: &str| Err(ConfigError::Value { key, value: value.to_owned() });
        let check = |aggregator, retention, factor| {
            read(&[("aggregator", aggregator), ("retention", retention), ("carbon_xfilesfactor", factor)])
        };
        assert_eq!(check("median", "1*1s", "0.5"), wrong("aggregator", "median"));
        assert_eq!(check("last", "60s:1d", "0.5"), wrong("retention", "60s:1d"));
        assert_eq!(check("last", "1*1s", "NaN"), wrong("carbon_xfilesfactor", "NaN"));
        assert_eq!(check("last", "1*1s", "1.5"), wrong("carbon_xfilesfactor", "1.5"));
    }

    #[test]
    fn a_time_uuid_holds_its_second() {
        let id = rows::metric_id("a.b");
        for time in [0, 1, 1_700_000_000, 4_000_000_000] {
            let uuid = time_uuid(time, id);
            assert_eq!((uuid.get_version_num(), time_of(uuid)), (1, Some(time)));
            assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
        }
        // Read with Python's uuid.
        assert_eq!(time_of("4e5bd6f0-c67f-11f0-8de9-0242ac120002".parse().unwrap()), Some(1_763_691_052));
        assert_eq!(time_of(id), None);
    }

    #[test]
    fn policies_that_other_nodes_had_are_added_before_the_one_that_holds() {
        let policy = |retention: &str| Policy { retention: retention.parse().unwrap(), ..Policy::default() };
        let change = |since, retention: &str| PolicyChange { since, policy: policy(retention) };
        let known = |since, retention: &str, earlier: &[(Timestamp, &str)]| SharedMetric {
            name: "a.b".to_owned(),
            policy: policy(retention),
            since,
            earlier: earlier.iter().map(|(since, retention)| change(*since, retention)).collect(),
            created_on: None,
            updated_on: None,
        };
        let added = |own: &[(Timestamp, &str)], known: &SharedMetric| {
            let mut policies = own.iter().map(|(since, retention)| change(*since, retention)).collect();
            add_known(&mut policies, known, (0, 1000));
            policies.iter().map(|one| format!("{} {}", one.since, one.policy.retention)).collect::<Vec<_>>().join(", ")
        };
        let (a, b, c) = ("60*60s", "70*60s", "80*60s");
        let down = [(0, a), (900, c)];
        assert_eq!(added(&down, &known(700, c, &[(0, a), (500, b)])), "0 60*60s, 500 70*60s, 700 80*60s");
        assert_eq!(added(&down, &known(500, b, &[(0, a)])), "0 60*60s, 500 70*60s, 900 80*60s", "the first to have it");
        assert_eq!(added(&down, &known(0, c, &[])), "0 60*60s, 900 80*60s");
        assert_eq!(added(&down, &known(2000, b, &[])), "0 60*60s, 900 70*60s, 900 80*60s", "a clock that is ahead");
        assert_eq!(
            added(&[(0, b), (0, a), (900, c)], &known(900, c, &[(0, a), (500, b)])),
            "0 60*60s, 500 70*60s, 900 80*60s"
        );
        // Of one that is made here again.
        assert_eq!(added(&[(0, c)], &known(0, a, &[])), "0 60*60s, 1000 80*60s");
        assert_eq!(added(&[(0, c)], &known(700, b, &[(0, a)])), "0 60*60s, 700 70*60s, 1000 80*60s");
        assert_eq!(added(&[(0, c)], &known(700, c, &[(0, a)])), "0 60*60s, 700 80*60s");
        assert_eq!(
            added(&[(0, a)], &known(700, a, &[(0, a), (500, b)])),
            "0 60*60s, 500 70*60s, 700 60*60s",
            "in force twice"
        );
        assert_eq!(added(&[(0, c)], &known(0, c, &[])), "0 80*60s");
        let mut made = vec![change(0, c)];
        add_known(&mut made, &known(700, b, &[(0, a)]), (990, 1000));
        assert_eq!(
            made,
            [change(0, a), change(700, b), change(990, c)],
            "since it was made here, not since it is written"
        );
        // So where it knows already that others had some, and not when.
        assert_eq!(added(&[(0, a), (0, c)], &known(700, b, &[(0, a)])), "0 60*60s, 700 70*60s, 1000 80*60s");
        assert_eq!(added(&[(0, b), (0, a), (0, c)], &known(700, b, &[(0, a)])), "0 60*60s, 700 70*60s, 1000 80*60s");
        assert_eq!(added(&[(0, a), (0, b)], &known(700, b, &[(0, a)])), "0 60*60s, 700 70*60s");
        assert_eq!(added(&[(0, a), (0, c)], &known(700, b, &[])), "0 60*60s, 700 70*60s, 1000 80*60s");
        // One that has the policy in force later than others, and went on with the one before until then.
        assert_eq!(added(&[(0, a), (500, b), (800, a), (900, b)], &known(500, b, &[(0, a)])), "0 60*60s, 500 70*60s");
        assert_eq!(added(&[(0, a), (800, c), (900, b)], &known(500, b, &[(0, a)])), "0 60*60s, 800 80*60s, 900 70*60s");
    }
}
