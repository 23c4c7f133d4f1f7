//! Metrics by name, where damage is known by ids.

use metadata::Registry;
use metric::MetricId;

/// Names of metrics that one finding of damage lists; a longer range is given by its first ones and its count.
const DAMAGED_NAMES: u32 = 10;

/// The first names of a range of metrics.
pub fn metric_names(registry: &Registry, first: MetricId, last: MetricId) -> Vec<String> {
    let names = registry.read();
    let range = first.0..=last.0.min(first.0.saturating_add(DAMAGED_NAMES - 1));
    range.map(MetricId).filter(|&metric| names.is_shown(metric)).map(|metric| names.name(metric).to_owned()).collect()
}
