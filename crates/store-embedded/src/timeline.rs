//! Whether a file is of this store's timeline, or of one that was given up.
//!
//! A store that is restored, or a copy that goes on elsewhere, shares ids with the store that it was copied from up to the
//! copy, and gives later ones to other names. Each timeline has openings of its own. `spec` has those of this store, a file of
//! rows the one that wrote it, and the log of names all that wrote to it.

use std::{collections::BTreeMap, path::Path};

use metric::MetricId;
use store::{Identity, Incarnation, StoreError};

use crate::{
    manifest::{Manifest, ManifestFile},
    names::Names,
    row_file::RowFile,
};

/// Why a file of rows, up to the metric `highest`, is not of the timeline with the openings `ours`. `None` where it is, or
/// where nothing says so.
///
/// The openings that a spec has forgotten came before the first that it has, and so did all ids of their files.
pub(crate) fn fault_of_rows(ours: &[Incarnation], wrote: Option<Incarnation>, highest: MetricId) -> Option<String> {
    let (wrote, oldest) = (wrote?, ours.first()?);
    let Some(place) = ours.iter().position(|opening| opening.id == wrote.id) else {
        let id = wrote.id;
        return (oldest.first_id <= highest).then(|| {
            format!("it is of another timeline of this store: the opening {id:016x} wrote it, which spec does not have")
        });
    };
    let next = ours.get(place + 1)?.first_id;
    (next <= highest).then(|| {
        format!(
            "it is of another timeline of this store: it has rows of metric {highest}, and this store gave the ids from {next} on \
             after the opening that wrote it"
        )
    })
}

/// As [`fault_of_rows`], of an open file.
pub(crate) fn fault_of(ours: &[Incarnation], file: &RowFile) -> Option<String> {
    if file.summary().rows == 0 { None } else { fault_of_rows(ours, file.opening(), file.summary().metrics.1) }
}

/// The openings of a store, from those of its spec and of its log of names.
///
/// A spec that was made again has none, and one that was put back may lack the last.
pub(crate) fn with_names(mut ours: Vec<Incarnation>, names: &[Incarnation]) -> Vec<Incarnation> {
    let Some(last) = ours.last() else { return names.to_vec() };
    if let Some(place) = names.iter().position(|opening| opening.id == last.id) {
        ours.extend_from_slice(&names[place + 1..]);
    }
    ours
}

/// Whether a chain may lack openings: what the log of names added to `before` openings of the spec came from a log that has lost
/// records. The manifest then vouches for the files that it has.
pub(crate) fn is_unsure(before: usize, with_names: &[Incarnation], is_whole: bool) -> bool {
    !is_whole && before < with_names.len()
}

/// Files of rows that the manifest has, one for each opening that neither the spec nor the log of names knows, by the opening. Those
/// that the spec has forgotten came before all ids that it gave.
pub(crate) fn of_later<'m>(ours: &[Incarnation], manifest: &'m Manifest) -> BTreeMap<u64, &'m ManifestFile> {
    let Some(oldest) = ours.first() else { return BTreeMap::new() };
    let is_later = |file: &&ManifestFile| {
        file.opening != 0
            && file.has_metrics()
            && oldest.first_id <= file.metrics.1
            && ours.iter().all(|known| known.id != file.opening)
    };
    manifest.files.iter().filter(is_later).map(|file| (file.opening, file)).collect()
}

/// Refuses a spec and a log of names that are both of an earlier time than the rows: to put the rows aside, or to give them the names
/// of others, costs more than to put the two files back.
pub(crate) fn refuse_earlier(spec: &Path, later: &BTreeMap<u64, &ManifestFile>) -> StoreError {
    let opening = later.keys().next().copied().unwrap_or(0);
    StoreError::Spec {
        found: format!(
            "in {}: openings of an earlier time, or of another timeline: the opening {opening:016x} wrote files of rows that the manifest \
             has, and neither spec nor the log of names knows it",
            spec.display()
        ),
        expected: "the spec and the log of names that belong to the rows next to them; nothing was changed: put both back, or restore a \
                   backup into another data folder; where they are lost, move spec away: it is made again of the other files, and later \
                   metrics have no names"
            .to_owned(),
    }
}

/// Adds the openings that files of rows name to a chain that was lost.
pub(crate) fn with_rows(chain: &mut Vec<Incarnation>, of_rows: impl IntoIterator<Item = Incarnation>) {
    for opening in of_rows {
        if chain.iter().all(|known| known.id != opening.id) {
            let place = chain.partition_point(|known| known.first_id <= opening.first_id);
            chain.insert(place, opening);
        }
    }
}

/// Ids below the answer mean in a log of names what they mean in the store. `is_whole` says that the log has lost no record, so
/// that what it does not have was never in it.
pub(crate) fn common_with_names(ours: &Identity, names: &[Incarnation], is_whole: bool) -> MetricId {
    if ours.chain.is_empty() || names.is_empty() {
        return MetricId::NONE;
    }
    if is_whole {
        let theirs = Identity { store: ours.store, chain: names.to_vec() };
        return ours.common_ids(&theirs).unwrap_or(MetricId(0));
    }
    let is_ours = |opening: &Incarnation| ours.chain.iter().any(|known| known.id == opening.id);
    let last = names.iter().rposition(is_ours).map_or(0, |place| place + 1);
    names.get(last).map_or(MetricId::NONE, |other| other.first_id)
}

/// Why a log of names is not of this timeline: it gives ids of the store other names. `highest` is the highest metric that it
/// names, and `in_use` above every id that the store has used.
pub(crate) fn fault_of_names(
    ours: &Identity,
    names: &[Incarnation],
    is_whole: bool,
    highest: Option<MetricId>,
    in_use: MetricId,
) -> Option<String> {
    let common = common_with_names(ours, names, is_whole);
    let named = highest.filter(|named| common <= *named && common < in_use)?;
    Some(format!(
        "a log of names of another timeline of this store, as from before a restore: it names the metrics {common} to {named}, and \
         this store gave these ids to others"
    ))
}

/// Refuses a log of names of another timeline. `stored` is above every metric that has rows.
pub(crate) fn refuse_other_names(
    ours: &Identity,
    names: &Names,
    stored: impl Fn() -> MetricId,
) -> Result<(), StoreError> {
    let (openings, highest) = (names.openings(), names.highest_given());
    let in_use = || ours.first_id().max(stored());
    let fault = |in_use| fault_of_names(ours, &openings, names.is_whole(), highest, in_use);
    // The manifest is read only where it matters.
    let Some(how) = fault(MetricId::NONE).and_then(|_| fault(in_use())) else { return Ok(()) };
    Err(StoreError::Spec {
        found: format!("in {}: {how}", names.folder().display()),
        expected: "the log of names that belongs to the spec and the rows next to it; nothing was changed: put that log back, also \
                   an older one of this timeline, or restore a backup into another data folder"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(id: u64, first_id: u32) -> Incarnation {
        Incarnation { id, first_id: MetricId(first_id) }
    }

    #[test]
    fn rows_of_another_timeline_are_known_by_their_opening_and_their_ids() {
        let ours = [opening(1, 0), opening(2, 20), opening(3, 30)];
        let fault = |wrote: Option<Incarnation>, highest| fault_of_rows(&ours, wrote, MetricId(highest)).is_some();
        assert!(!fault(None, 99), "a file of an earlier program");
        assert!(!fault(Some(opening(1, 0)), 19) && !fault(Some(opening(3, 30)), 99));
        assert!(fault(Some(opening(1, 0)), 20), "the opening went on elsewhere");
        assert!(fault(Some(opening(5, 20)), 0), "an opening elsewhere");
        assert_eq!(fault_of_rows(&[], Some(opening(5, 20)), MetricId(9)), None);
        // A spec that has forgotten the first opening.
        let late = [opening(2, 20), opening(3, 30)];
        let fault = |highest| fault_of_rows(&late, Some(opening(1, 0)), MetricId(highest)).is_some();
        assert!(!fault(19) && fault(20));
    }

    #[test]
    fn a_lost_chain_is_found_in_names_and_rows() {
        let names = [opening(1, 0), opening(2, 20), opening(4, 40)];
        assert_eq!(with_names(Vec::new(), &names), names);
        assert_eq!(with_names(names[..2].to_vec(), &names), names);
        let other = vec![opening(1, 0), opening(3, 20)];
        assert_eq!(with_names(other.clone(), &names), other);
        let mut chain = names.to_vec();
        with_rows(&mut chain, [opening(3, 30), opening(2, 20), opening(7, 40)]);
        assert_eq!(chain, [opening(1, 0), opening(2, 20), opening(3, 30), opening(4, 40), opening(7, 40)]);
    }

    #[test]
    fn a_log_of_names_shares_the_ids_from_before_the_timelines_part() {
        let ours = Identity { store: 7, chain: vec![opening(1, 0), opening(2, 20)] };
        let common = |names: &[Incarnation], is_whole| common_with_names(&ours, names, is_whole).0;
        for is_whole in [true, false] {
            assert_eq!(common(&[opening(1, 0), opening(2, 20)], is_whole), u32::MAX);
            assert_eq!(common(&[opening(1, 0), opening(5, 25)], is_whole), if is_whole { 20 } else { 25 });
            assert_eq!(common(&[], is_whole), u32::MAX);
        }
        assert_eq!(common(&[opening(1, 0)], true), 20, "an older log, or one that went on elsewhere");
        assert_eq!(common(&[opening(1, 0)], false), u32::MAX, "the opening's record may be damaged");
        assert_eq!(common(&[opening(8, 9)], false), 9);
    }
}
