//! Names of several ids in a data folder.

use std::path::Path;

use host::Disk;
use metric::MetricId;

/// What names of several ids cost, and the first and last id whose points nothing shows; `None` where there are none.
pub(crate) fn find(disk: &dyn Disk, store: &Path) -> Option<(String, (MetricId, MetricId))> {
    let same = store_embedded::same_names(disk, store);
    let (name, ids) = same.first()?;
    let others = same.iter().flat_map(|(_, ids)| &ids[1..]);
    let ends = (*others.clone().min()?, *others.max()?);
    Some((how(same.len(), name, ids[0], &ids[1..]), ends))
}

/// What names of several ids cost, for operators.
pub fn how(count: usize, name: &str, taken: MetricId, others: &[MetricId]) -> String {
    let others: Vec<String> = others.iter().map(MetricId::to_string).collect();
    format!(
        "{count} names have several ids each, such as {name}: {taken}, which is used, and {}: points that are stored under any but the lowest \
         id are in no answer; an earlier version gave second ids while it could not read all of the log of names",
        others.join(", ")
    )
}
