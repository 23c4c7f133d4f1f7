//! The segments that are there, compared with what the store and other segments know of the journal.
//!
//! The manifest of the store says below which number every segment is stored ([`JournalMark`]), and each segment which one
//! with records was before it. Numbers are compared only of segments that this store, an earlier opening of it, or a
//! later one wrote: a copy that went on elsewhere has others.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use host::{Disk, Open};
use store::{Identity, Incarnation, JournalMark, LAST_NUMBER};

use super::{
    cut_end::{CutEnd, cut_ends},
    cut_notes::cut_short_in,
    damage::JournalDamage,
    header::SegmentHeader,
    lengths::{Lengths, header_bytes},
    missing_notes::noted_segments,
    newest::{self, Newest, newest_of},
    plan::Planned,
    reader::{SEARCHED, Start, start},
    segment::{EMPTY_BYTES, Folder, path_of},
    segment_bytes::{are_zeros, has_nothing},
};

/// What is wrong with a file of the newest segment that says nothing of the segments that are there.
pub const OTHER_NEWEST: &str = "it is of another store, or of another time than the journal";

/// A file that is shorter has no record.
const LEAST_BYTES: u64 = 32;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compared {
    /// Numbers of files whose points are stored. A kill left them, or they were copied here soon after they were removed.
    pub stored: Vec<u64>,
    /// Numbers of files that were removed long ago, and came back from a copy.
    pub stale: Vec<u64>,
    /// First and last number of segments that are missing; those between them may not have been there.
    pub missing: Vec<(u64, u64)>,
    /// Bytes of the last of them, and of those that have lost their contents, that were on the disk, by their numbers, where that is known.
    pub missing_bytes: BTreeMap<u64, u64>,
    /// Numbers of files that an earlier start reported as missing, or found without their ends, and that the store counts as stored since.
    pub returned: Vec<u64>,
    /// Numbers of files that have lost their contents.
    pub emptied: Vec<u64>,
    /// Segments that have lost their end.
    pub cut: Vec<CutEnd>,
    /// How many bytes of segments were on the disk as whole records, by their numbers.
    pub synced: BTreeMap<u64, u64>,
    /// Numbers of files whose headers say another number: copies, or renamed files. A start puts them aside.
    pub misnamed: Vec<(u64, u64)>,
    /// Those of them that this store wrote and has not stored, and whose place is free: under the number of their headers they are right.
    pub exchanged: Vec<(u64, u64)>,
    /// Numbers of files of another store, with that store. A start refuses them.
    pub foreign: Vec<(u64, u128)>,
    /// Numbers of files of another timeline of this store: their numbers say nothing about ours.
    pub other: Vec<u64>,
    /// Whether the file of the newest segment is of another store, or of another time than the segments: it says nothing of missing ones.
    pub has_other_newest: bool,
}

/// A file of the journal.
struct Seen<'a> {
    number: u64,
    bytes: u64,
    header: Option<&'a SegmentHeader>,
    /// Whether it has bytes, and all of them are zeros.
    is_zeros: bool,
    /// Whether it lacks a whole record, and even a header.
    has_nothing: bool,
}

impl Seen<'_> {
    /// Whether nothing is left of what it had. Its header was on the disk before anything else said its number.
    fn has_lost_all(&self) -> bool {
        self.header.is_none() && (self.bytes < LEAST_BYTES || self.is_zeros || self.has_nothing)
    }
}

/// The segments that the store does not have. Reports those that are missing; those that came back from a copy go to
/// `damaged/`: their values may have been overwritten since. `noted` are those that starts missed; where that is not known, a
/// segment that the store counts as stored stays in its place, and its number is in the second part. `misnamed` are files with other
/// names than their headers say.
pub(crate) fn leave_out_stored(
    folder: &Folder,
    damage: &JournalDamage,
    (mut planned, misnamed): (Vec<Planned>, &[Planned]),
    (mark, newest): (Option<JournalMark>, Option<Newest>),
    ours: &Identity,
    noted: io::Result<Vec<RangeInclusive<u64>>>,
) -> (Vec<Planned>, Vec<u64>) {
    let notes = noted.and_then(|noted| Ok((noted, damage.cut_short()?)));
    let ((noted, cut_before), unknown) =
        notes.map_or_else(|error| (Default::default(), Some(error)), |notes| (notes, None));
    let mut left_alone = Vec::new();
    damage.set_ours(ours);
    let found = compare(&planned, Known { mark, newest, noted: &noted, cut_before: &cut_before, misnamed }, ours);
    if found.has_other_newest {
        damage.report_newest(&newest::path_next_to(folder.dir()), &io::Error::other(OTHER_NEWEST));
    }
    for cut in &found.cut {
        damage.report_cut(&folder.path_of(cut.segment), cut, cut.how(&*folder.disk, folder.dir()));
    }
    for other in planned.iter().filter(|planned| found.other.contains(&planned.segment.number)) {
        damage.report_other(&other.segment);
    }
    for &(first, last) in &found.missing {
        let bytes = found.missing_bytes.get(&last).copied().unwrap_or(0);
        damage.report_missing(&folder.path_of(first), &folder.path_of(last), bytes);
    }
    if let Some(error) = unknown {
        let is_counted = |number: &u64| found.stale.contains(number) || found.stored.contains(number);
        for one in planned.extract_if(.., |planned| is_counted(&planned.segment.number)) {
            damage.report_perhaps_returned(&one.segment, &error);
            left_alone.push(one.segment.number);
        }
    }
    for stale in planned.extract_if(.., |planned| found.stale.contains(&planned.segment.number)) {
        damage.move_stale(&stale.segment, mark.map_or(0, |mark| mark.stored_below));
    }
    for emptied in planned.extract_if(.., |planned| found.emptied.contains(&planned.segment.number)) {
        let bytes = found.missing_bytes.get(&emptied.segment.number).copied().unwrap_or(0);
        damage.report_emptied(folder, &emptied, bytes);
    }
    for returned in planned.extract_if(.., |planned| found.returned.contains(&planned.segment.number)) {
        if let Err(error) = damage.keep_returned(folder, &returned.segment) {
            tracing::warn!(%error, "cannot move a segment of the journal that was missing; it stays, and is not replayed");
        }
    }
    // One that nothing was stored behind is replayed in its place.
    let is_noted =
        |number: u64| noted.iter().any(|missing| missing.contains(&number)) || cut_before.contains_key(&number);
    // One of a copy of the store, in the place of ours, is none of these, also where a start has taken it.
    let is_back = |one: &&Planned| one.header.as_ref().is_some_and(|header| !is_of_a_copy(header, ours));
    planned
        .iter()
        .filter(is_back)
        .filter(|one| is_noted(one.segment.number))
        .for_each(|one| damage.note_returned(folder, &one.segment, one.header.as_ref()));
    // The next cycle removes them.
    for stored in planned.extract_if(.., |planned| found.stored.contains(&planned.segment.number)) {
        let file = stored.segment.path.display().to_string();
        tracing::warn!(
            file,
            "the store has this segment of the journal already; a kill left it there, or a copy brought it back; it is not replayed"
        );
    }
    damage.set_replayed(planned.iter().map(|one| one.segment.number).collect());
    (planned, left_alone)
}

/// Compares the segments of a plan.
fn compare(planned: &[Planned], known: Known<'_>, ours: &Identity) -> Compared {
    let all: Vec<Seen<'_>> = planned
        .iter()
        .map(|one| Seen {
            number: one.segment.number,
            bytes: one.segment.bytes,
            header: one.header.as_ref(),
            is_zeros: one.is_zeros,
            has_nothing: one.has_nothing,
        })
        .collect();
    compare_seen(&all, known, ours)
}

/// The store and the openings that the newest segment with a header names; of this store, where that is known. `None` where no segment does.
pub fn identity_of_newest(disk: &dyn Disk, journal: &Path, store: Option<u128>) -> Option<Identity> {
    let mut files: Vec<_> = disk.read_dir(journal).ok()?.into_iter().map(|entry| entry.path).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "journal"));
    files.sort();
    let header_of = |path: &PathBuf| {
        let file = disk.open(path, Open::Read).ok()?;
        let mut first = vec![0; SEARCHED.min(file.len().ok()? as usize)];
        file.read_exact_at(&mut first, 0).ok()?;
        match start(&first) {
            Start::Known(header) => Some(*header),
            _ => None,
        }
    };
    let is_of = |header: &SegmentHeader| {
        store.is_none_or(|store| store == header.identity.store) && !header.identity.chain.is_empty()
    };
    let SegmentHeader { mut identity, next_id, .. } = files.iter().rev().filter_map(header_of).find(is_of)?;
    // The newest segment may be missing, and with it the last opening.
    if let Some(newest) = newest_of(disk, journal)
        && newest.opening != 0
        && identity.chain.iter().all(|opening| opening.id != newest.opening)
    {
        identity.chain.push(Incarnation { id: newest.opening, first_id: next_id });
    }
    Some(identity)
}

/// Compares the segments of a folder that no process uses.
///
/// # Errors
/// Whatever the disk says.
pub fn check_chain(
    disk: &dyn Disk,
    journal: &Path,
    mark: Option<JournalMark>,
    ours: &Identity,
) -> io::Result<Compared> {
    let entries = match disk.read_dir(journal) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let number = entry.name.to_str().and_then(|name| name.strip_suffix(".journal")?.parse::<u64>().ok());
        let is_one = |&number: &u64| number <= LAST_NUMBER && path_of(journal, number) == entry.path;
        let Some(number) = number.filter(is_one) else { continue };
        let file = disk.open(&entry.path, Open::Read)?;
        let bytes = file.len()?;
        let mut first = vec![0; SEARCHED.min(bytes as usize)];
        file.read_exact_at(&mut first, 0)?;
        let header = match start(&first) {
            Start::Known(header) => Some(*header),
            _ => None,
        };
        let is_zeros = header.is_none() && are_zeros(disk, &entry.path, &first);
        let has_nothing = header.is_none() && has_nothing(disk, &entry.path, &first, bytes);
        found.push((number, bytes, header, [is_zeros, has_nothing]));
    }
    found.sort_by_key(|&(number, ..)| number);
    let misnamed_as = |(number, _, header, _): &(u64, u64, Option<SegmentHeader>, [bool; 2])| {
        header.as_ref().filter(|header| header.is_misnamed(*number)).map(|header| (*number, header.segment))
    };
    let misnamed: Vec<(u64, u64)> = found.iter().filter_map(misnamed_as).collect();
    let damaged = journal.parent().unwrap_or(Path::new("")).join("damaged");
    let noted = noted_segments(disk, &damaged)?;
    let lowest_named = found.iter().find(|one| one.2.is_some() && misnamed_as(one).is_none()).map(|one| one.0);
    let is_unstored = |number: u64| match mark {
        Some(mark) => mark.stored_below <= number || noted.iter().any(|noted| noted.contains(&number)),
        // Where nothing tells what is stored, one that another names, and not below all others: the last one that is stored is named, too.
        None => {
            let is_named = |(_, _, of, _): &(u64, u64, Option<SegmentHeader>, [bool; 2])| {
                of.as_ref().is_some_and(|of| of.previous == Some(number))
            };
            let is_newest = newest_of(disk, journal).is_some_and(|newest| newest.number == number);
            is_newest || lowest_named.is_some_and(|lowest| lowest < number) && found.iter().any(is_named)
        }
    };
    let is_free = |number: u64| found.iter().all(|one| one.0 != number || misnamed_as(one).is_some());
    let is_right = |(name, _, header, _): &&(u64, u64, Option<SegmentHeader>, [bool; 2])| {
        header.as_ref().filter(|header| header.is_misnamed(*name)).is_some_and(|header| {
            let number = header.segment;
            is_kin(header, ours)
                && !is_of_other_timeline(header, number, mark, ours)
                && is_unstored(number)
                && is_free(number)
        })
    };
    // Of several copies the longest is the whole one.
    let mut right: Vec<_> = found.iter().filter(is_right).collect();
    right.sort_by_key(|(_, bytes, ..)| std::cmp::Reverse(*bytes));
    let mut exchanged: Vec<(u64, u64)> = right.into_iter().filter_map(misnamed_as).collect();
    let mut taken = BTreeSet::new();
    exchanged.retain(|(_, number)| taken.insert(*number));
    // A repair gives them their names before anything else.
    for one in &mut found {
        if let Some((_, number)) = misnamed_as(one).filter(|one| exchanged.contains(one)) {
            one.0 = number;
        }
    }
    found.retain(|one| misnamed_as(one).is_none());
    found.sort_by_key(|&(number, ..)| number);
    let seen: Vec<Seen<'_>> = found
        .iter()
        .map(|(number, bytes, header, [is_zeros, has_nothing])| Seen {
            number: *number,
            bytes: *bytes,
            header: header.as_ref(),
            is_zeros: *is_zeros,
            has_nothing: *has_nothing,
        })
        .collect();
    let cut_before = cut_short_in(disk, &damaged)?;
    let known = Known { mark, newest: newest_of(disk, journal), noted: &noted, cut_before: &cut_before, misnamed: &[] };
    Ok(Compared { misnamed, exchanged, ..compare_seen(&seen, known, ours) })
}

/// What is known of the journal without its segments.
#[derive(Clone, Copy)]
struct Known<'a> {
    mark: Option<JournalMark>,
    /// The newest segment that may have a record.
    newest: Option<Newest>,
    /// Segments that starts missed, or that a restored backup lacked.
    noted: &'a [RangeInclusive<u64>],
    /// Segments that starts found without their ends, and how many bytes were there.
    cut_before: &'a BTreeMap<u64, u64>,
    /// Files with other names than their headers say, which a start puts aside.
    misnamed: &'a [Planned],
}

impl Known<'_> {
    /// Segments that have records and are not stored, and that files with other names are, with their bytes.
    fn under_other_names(&self, ours: &Identity) -> impl Iterator<Item = (u64, u64)> {
        let is_unstored = |header: &SegmentHeader| {
            is_kin(header, ours)
                && !is_of_other_timeline(header, header.segment, self.mark, ours)
                && self.mark.is_some_and(|mark| mark.stored_below <= header.segment)
        };
        let one = move |one: &Planned| {
            let header = one.header.as_ref().filter(|header| is_unstored(header))?;
            (header_bytes(header) < one.segment.bytes).then_some((header.segment, one.segment.bytes))
        };
        self.misnamed.iter().filter_map(one)
    }
}

/// Compares segments in the order of their numbers.
fn compare_seen(seen: &[Seen<'_>], known: Known<'_>, ours: &Identity) -> Compared {
    let Known { mark, newest, noted, cut_before, .. } = known;
    let under_other_names: BTreeMap<u64, u64> = known.under_other_names(ours).collect();
    let bytes_elsewhere = |number: u64| under_other_names.get(&number).copied().unwrap_or(0);
    let adopted = adopted_openings(seen, ours);
    let is_ours = |header: &SegmentHeader, ours: &Identity| is_ours(header, ours) || is_of(header, &adopted);
    let is_other = |one: &Seen<'_>| {
        one.header
            .is_some_and(|header| !is_of(header, &adopted) && is_of_other_timeline(header, one.number, mark, ours))
    };
    let other = seen.iter().filter(|one| is_other(one)).map(|one| one.number).collect();
    let all = seen;
    let seen: &Vec<&Seen<'_>> = &all.iter().filter(|one| !is_other(one)).collect();
    let mut found = Compared { other, ..Compared::default() };
    if let Some(mark) = mark {
        for one in seen.iter().filter(|one| one.header.is_some_and(|header| is_ours(header, ours))) {
            let number = one.number;
            let was_missing = noted.iter().any(|missing| missing.contains(&number));
            let was_cut = cut_before.get(&number).is_some_and(|there| *there < one.bytes);
            if number < mark.stored_below && (was_missing || was_cut) {
                found.returned.push(one.number);
            } else if number < mark.removed_below {
                found.stale.push(one.number);
            } else if number < mark.stored_below {
                found.stored.push(one.number);
            }
        }
    }
    let store = |one: &Seen<'_>| one.header.map_or(0, |header| header.identity.store);
    let is_foreign = |store: u128| store != 0 && ours.store != 0 && store != ours.store;
    found.foreign = all.iter().map(|one| (one.number, store(one))).filter(|&(_, store)| is_foreign(store)).collect();
    let there: BTreeSet<u64> = seen.iter().map(|one| one.number).collect();
    let kin: Vec<(u64, &SegmentHeader)> =
        seen.iter().filter_map(|one| Some((one.number, one.header.filter(|header| is_kin(header, ours))?))).collect();
    let lowest = kin.first().map_or(0, |&(number, _)| number);
    let below = mark.map_or(lowest, |mark| mark.stored_below).max(1);
    let mut known: BTreeSet<u64> = kin.iter().filter_map(|(_, header)| header.previous).collect();
    let gone = newest.filter(|newest| is_missing(*newest, &kin, ours)).map(|newest| newest.number);
    found.has_other_newest = newest.is_some_and(|newest| is_of_another_time(newest, seen, &kin, ours));
    known.extend(gone);
    known.extend(under_other_names.keys());
    // A segment gets its header, and that is put on the disk, before anything else: no crash leaves a long one without it.
    let has_lost_header = |one: &&&Seen<'_>| one.header.is_none() && one.has_nothing && EMPTY_BYTES < one.bytes;
    known.extend(seen.iter().filter(has_lost_header).map(|one| one.number));
    if let Some(mark) = mark.filter(|mark| gone.is_none_or(|gone| gone < mark.newest))
        && !ours.chain.is_empty()
    {
        // A start removes a segment without a record, and begins a later one.
        let is_explained = there.contains(&mark.newest) || kin.iter().any(|&(number, _)| mark.newest < number);
        if !is_explained || there.contains(&mark.newest) {
            known.insert(mark.newest);
        }
    }
    let bytes = |number: u64| seen.iter().find(|one| one.number == number).map(|one| one.bytes);
    let lengths = Lengths::new(kin.iter().copied(), newest);
    found.cut = cut_ends(&lengths, bytes, below);
    found.synced = lengths.whole();
    for number in known.into_iter().filter(|&number| below <= number) {
        let bytes = || {
            let of_newest = newest.filter(|_| gone == Some(number)).map_or(0, |newest| newest.synced);
            let bytes = lengths.of_missing(number).max(of_newest).max(bytes_elsewhere(number));
            (0 < bytes).then_some((number, bytes))
        };
        match seen.iter().find(|one| one.number == number) {
            Some(one) if one.has_lost_all() => {
                found.emptied.push(number);
                found.missing_bytes.extend(bytes());
            }
            // In the place of the newest may be another, of an earlier opening.
            Some(one) if one.header.is_none() || gone != Some(number) => {}
            _ => {
                let before = there.range(..number).next_back().map_or(0, |before| before + 1);
                found.missing.push((before.max(below), number));
                found.missing_bytes.extend(bytes());
            }
        }
    }
    found
}

/// Whether the newest segment is not there, nor one that was begun behind it. One of its number that an earlier opening began
/// is another: numbers of segments without a record are given again.
fn is_missing(newest: Newest, kin: &[(u64, &SegmentHeader)], ours: &Identity) -> bool {
    let place_of = |id: u64| ours.chain.iter().position(|opening| opening.id == id);
    // A store of an earlier time than the file knows nothing of that opening. The journal may be of the time of the file.
    let Some(place) = place_of(newest.opening) else {
        let is_later =
            |header: &SegmentHeader| header.identity.chain.last().is_some_and(|last| place_of(last.id).is_none());
        // A start, or a repair, begins one behind it.
        let is_behind = |(number, _): &(u64, &SegmentHeader)| newest.number <= *number;
        return newest.opening != 0 && kin.iter().any(|(_, header)| is_later(header)) && !kin.iter().any(is_behind);
    };
    let is_as_late = |header: &SegmentHeader| {
        let last = header.identity.chain.last();
        last.is_some_and(|last| place_of(last.id).is_none_or(|of_segment| place <= of_segment))
    };
    !kin.iter().any(|(number, header)| newest.number <= *number && is_as_late(header))
}

/// Whether the file of the newest segment says nothing of these: none of their writers knows the opening that it names, or it names one
/// below a segment that has records, which is named in it first.
fn is_of_another_time(newest: Newest, seen: &[&Seen<'_>], kin: &[(u64, &SegmentHeader)], ours: &Identity) -> bool {
    let is_known = |id: u64| ours.chain.iter().any(|opening| opening.id == id);
    if newest.opening == 0 || ours.chain.is_empty() {
        return false;
    }
    if !is_known(newest.opening) {
        let is_later = |header: &SegmentHeader| header.identity.chain.last().is_some_and(|last| !is_known(last.id));
        return !kin.iter().any(|(_, header)| is_later(header));
    }
    // One that repeats others has records before it is named. Programs that did not write the file wrote shorter headers.
    let has_named_records = |one: &&&Seen<'_>| {
        let header = one.header.filter(|header| is_kin(header, ours) && header.repeats.is_none());
        header.is_some_and(|header| header.previous_whole.is_some() && header_bytes(header) < one.bytes)
    };
    seen.iter().filter(has_named_records).any(|one| newest.number < one.number)
}

/// Openings of a later time of this store, whose segments a start of ours took when the store next to them was of an earlier
/// one: a segment of ours was begun behind theirs, and says how long the last of them is. With those that it continues.
fn adopted_openings(seen: &[Seen<'_>], ours: &Identity) -> Vec<u64> {
    let before = |header: &SegmentHeader| {
        let before = seen.iter().find(|one| Some(one.number) == header.previous)?;
        let is_same = 0 < header.previous_bytes && header.previous_bytes == before.bytes;
        before.header.filter(|_| is_same)
    };
    let of_ours = seen.iter().filter_map(|one| one.header.filter(|header| is_ours(header, ours)));
    let openings = of_ours.filter_map(before).flat_map(|header| &header.identity.chain).map(|opening| opening.id);
    openings.filter(|id| ours.chain.iter().all(|opening| opening.id != *id)).collect()
}

/// Whether one of these openings wrote a segment.
fn is_of(header: &SegmentHeader, openings: &[u64]) -> bool {
    header.identity.chain.last().is_some_and(|last| openings.contains(&last.id))
}

/// Whether an opening of this store, up to the last, wrote a segment.
fn is_ours(header: &SegmentHeader, ours: &Identity) -> bool {
    let last = header.identity.chain.last();
    header.identity.store == ours.store
        && last.is_some_and(|last| ours.chain.iter().any(|opening| opening.id == last.id))
}

/// Whether a copy of this store wrote a segment that parted from it before its last opening.
pub(super) fn is_of_a_copy(header: &SegmentHeader, ours: &Identity) -> bool {
    header.identity.store == ours.store
        && !ours.chain.is_empty()
        && !header.identity.chain.is_empty()
        && !is_kin(header, ours)
}

/// Whether a copy of this store wrote a segment that parted from it: an opening that neither has before the other, or one of
/// ours that there gave ids which a later opening of ours gave, or that wrote a segment behind one of a later opening of ours.
fn is_of_other_timeline(header: &SegmentHeader, number: u64, mark: Option<JournalMark>, ours: &Identity) -> bool {
    let Some(last) = header.identity.chain.last() else { return false };
    if header.identity.store != ours.store || ours.chain.is_empty() {
        return false;
    }
    let place_of = |id: u64| ours.chain.iter().position(|opening| opening.id == id);
    let Some(place) = place_of(last.id) else { return !is_kin(header, ours) };
    let gave_others = ours.chain.get(place + 1).is_some_and(|next| next.first_id < header.next_id);
    let newest = mark.filter(|mark| mark.newest <= number).and_then(|mark| place_of(mark.opening));
    gave_others || newest.is_some_and(|newest| place < newest)
}

/// As [`is_ours`], or whether this store went on, and later wrote the segment.
fn is_kin(header: &SegmentHeader, ours: &Identity) -> bool {
    let is_later = |last: &store::Incarnation| header.identity.chain.iter().any(|opening| opening.id == last.id);
    is_ours(header, ours) || header.identity.store == ours.store && ours.chain.last().is_some_and(is_later)
}
