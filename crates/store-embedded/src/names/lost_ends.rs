//! Ends of the log that were lost, as its records say it.

use metric::MetricId;

use super::record::{LOST_END, decode_runs};
use crate::record_log::LostEnd;

/// The end of the log that a record of this file says was lost, with the runs of ids that were missing for it.
pub(crate) fn lost_end_of(file: u64, kind: u8, payload: &[u8]) -> Option<(LostEnd, Vec<(MetricId, u32)>)> {
    let (lost, runs) = (kind == LOST_END).then(|| LostEnd::decode(file, payload)).flatten()?;
    Some((lost, decode_runs(runs).collect()))
}

/// Leaves out the runs that were missing for ends which are back.
pub(crate) fn leave_out_back(
    missing: &mut Vec<(MetricId, u32)>,
    lost_ends: &mut Vec<(LostEnd, Vec<(MetricId, u32)>)>,
    is_back: impl Fn(&LostEnd) -> bool,
) {
    for (_, runs) in lost_ends.extract_if(.., |(lost, _)| is_back(lost)) {
        missing.retain(|run| !runs.contains(run));
    }
    // A run may be missing for several ends.
    missing.extend(lost_ends.iter().flat_map(|(_, runs)| runs));
    missing.sort_unstable();
    missing.dedup();
}
