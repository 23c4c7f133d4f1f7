//! The parts of segments that a replay reads, and whose ids they have.

use std::{collections::HashMap, io, ops::Range};

use host::retried;
use metric::Timestamp;

use super::{
    cut_end::has_lost_synced,
    damage::JournalDamage,
    header::{Repeats, SegmentHeader},
    lengths::Lengths,
    newest::Newest,
    reader::{Records, Start, records, start},
    record::{MAGIC_BYTES, Record},
    segment::{Folder, Segment},
    segment_bytes::{SegmentBytes, are_zeros, has_nothing},
};

/// Bytes of a segment that tell how it begins.
const FIRST_BYTES: usize = 4096;

/// A segment to be read.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) segment: Segment,
    /// The writer's header; `None` where the segment has none, or none that can be read.
    pub(crate) header: Option<SegmentHeader>,
    /// Whether the segment should have a header.
    pub(crate) is_header_lost: bool,
    /// Whether it has bytes, and all of them are zeros.
    pub(super) is_zeros: bool,
    /// Whether it lacks a whole record, and even a header.
    pub(super) has_nothing: bool,
    /// Its bytes that were on the disk as whole records, where the process that wrote it says so, or a later one.
    synced: Option<u64>,
    /// The end of the header, where there is one.
    header_end: Option<usize>,
    /// What is behind this byte is repeated in a later segment.
    until: Option<u64>,
    /// Bytes that repeat records of earlier segments and are damaged, while the earlier ones are whole and are read.
    read_earlier: Option<Range<usize>>,
}

impl Planned {
    /// The records of its bytes that are read.
    pub(crate) fn records<'a>(&self, bytes: &'a [u8]) -> Records<'a> {
        records(self.part(bytes)).passing_over(self.read_earlier.clone().unwrap_or_default())
    }

    /// The part of its bytes that is read.
    pub(crate) fn part<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        match self.until {
            Some(until) => &bytes[..bytes.len().min(until as usize)],
            None => bytes,
        }
    }
}

impl Planned {
    /// Copies and reports what was found damaged in its bytes. The end of a record that was not written whole is not
    /// damage, where it was not on the disk: a process or a machine that stops leaves such.
    pub(crate) fn keep_damage(&self, damaged: &JournalDamage, segment: &SegmentBytes, read: &Records<'_>) {
        damaged.keep_unread(&self.segment, segment);
        let (bytes, found) = (&segment.bytes, read.replayed);
        if found.damaged_bytes == 0 {
            return;
        }
        tracing::warn!(
            file = %self.segment.path.display(), bytes = found.damaged_bytes, whole_records = found.records,
            "a journal segment has damaged bytes; replayed its intact records and skipped the rest"
        );
        let torn = read.torn_tail().filter(|torn| !self.synced.is_some_and(|synced| has_lost_synced(torn, synced)));
        let times: Vec<(usize, Timestamp)> = records(self.part(bytes))
            .filter_map(|(place, record)| match record {
                Record::Points { now, .. } => Some((place.start, now.low())),
                _ => None,
            })
            .collect();
        // What was not read is kept with the whole segment.
        let is_unread = |damage: &Range<usize>| {
            segment.unread.iter().any(|part| part.start < damage.end as u64 && (damage.start as u64) < part.end)
        };
        for damage in read.damage.iter().filter(|&damage| torn.as_ref() != Some(damage) && !is_unread(damage)) {
            let next = times.partition_point(|&(start, _)| start < damage.start);
            let accepted = |place: usize| times.get(place).map(|&(_, now)| now);
            let around = (next.checked_sub(1).and_then(accepted), accepted(next));
            damaged.keep_damage(&self.segment, &bytes[damage.clone()], damage, around);
        }
    }
}

/// Why there is no plan.
#[derive(Debug)]
pub(crate) enum PlanError {
    Disk(io::Error),
    /// The disk does not return how a segment begins, or what it repeats: what its points are is not known. Another
    /// attempt may succeed, whereas bytes that are wrong stay wrong.
    Unreadable {
        segment: Segment,
        source: io::Error,
    },
    /// A segment of this version, which only a later program reads.
    Newer {
        segment: Segment,
        version: String,
    },
}

impl Folder {
    /// Goes through the beginnings of the segments. One that is listed and cannot be found is not read: no cycle runs
    /// now, so that its disk is away for a moment. The second part are files whose headers say other numbers than their names:
    /// read at their places, their points would come behind newer ones. `newest` is what the file next to the folder says.
    pub(crate) fn plan(&self, newest: Option<Newest>) -> Result<(Vec<Planned>, Vec<Planned>), PlanError> {
        let (mut planned, _) = self.plan_each(|_| false, |_| false)?;
        // Here alone: it reads all of a file.
        let lost = planned.iter_mut().filter(|one| one.is_header_lost);
        lost.for_each(|one| one.has_nothing = self.has_nothing(&one.segment));
        let is_misnamed =
            |one: &mut Planned| one.header.as_ref().is_some_and(|header| header.is_misnamed(one.segment.number));
        let misnamed = planned.extract_if(.., is_misnamed).collect();
        let headers = planned.iter().filter_map(|one| Some((one.segment.number, one.header.as_ref()?)));
        let synced = Lengths::new(headers, newest).whole();
        planned.iter_mut().for_each(|one| one.synced = synced.get(&one.segment.number).copied());
        self.leave_out_repeated(&mut planned)?;
        Ok((planned, misnamed))
    }

    /// As [`Folder::plan`], while others remove segments. Those that are listed and cannot be found are left out; they are the
    /// second part. Those that were `given_up` are in neither.
    pub(crate) fn plan_while_trimmed(
        &self,
        given_up: impl Fn(u64) -> bool,
    ) -> Result<(Vec<Planned>, Vec<Segment>), PlanError> {
        let (mut planned, gone) = self.plan_each(|_| true, given_up)?;
        self.leave_out_repeated(&mut planned)?;
        Ok((planned, gone))
    }

    fn plan_each(
        &self,
        may_be_gone: impl Fn(u64) -> bool,
        given_up: impl Fn(u64) -> bool,
    ) -> Result<(Vec<Planned>, Vec<Segment>), PlanError> {
        let (mut planned, mut gone) = (Vec::new(), Vec::new());
        for segment in self.segments().map_err(PlanError::Disk)? {
            if given_up(segment.number) {
                continue;
            }
            match self.plan_alone(segment) {
                Err(PlanError::Unreadable { segment, source })
                    if source.kind() == io::ErrorKind::NotFound && may_be_gone(segment.number) =>
                {
                    gone.push(segment);
                }
                one => planned.push(one?),
            }
        }
        Ok((planned, gone))
    }

    /// As [`Folder::plan`], of one file, which may be elsewhere. What it repeats of others is read again.
    pub(crate) fn plan_alone(&self, segment: Segment) -> Result<Planned, PlanError> {
        let first = match retried(|| self.read_first(&segment, FIRST_BYTES)) {
            Ok(first) => first,
            Err(source) => return Err(PlanError::Unreadable { segment, source }),
        };
        let (header, is_header_lost) = match start(&first) {
            Start::Known(header) => (Some(*header), false),
            Start::Old => (None, false),
            Start::Damaged => (None, true),
            Start::Newer(version) => return Err(PlanError::Newer { segment, version }),
        };
        let header_end = header_end(&first);
        let is_zeros = is_header_lost && are_zeros(&*self.disk, &segment.path, &first);
        Ok(Planned {
            segment,
            header,
            is_header_lost,
            is_zeros,
            has_nothing: false,
            synced: None,
            header_end,
            until: None,
            read_earlier: None,
        })
    }

    /// The header of a segment, where it has one that can be read.
    pub(crate) fn header_of(&self, segment: &Segment) -> Option<SegmentHeader> {
        match start(&retried(|| self.read_first(segment, FIRST_BYTES)).ok()?) {
            Start::Known(header) => Some(*header),
            _ => None,
        }
    }

    /// The segment with records that was before this one, where its header says.
    pub(super) fn previous_of(&self, segment: &Segment) -> Option<u64> {
        self.header_of(segment)?.previous
    }

    /// Up to where a segment had whole records on the disk, by the header of the next one that is there; 0 where that does not say it. Reads no
    /// header behind that one: many segments may be back at once.
    pub(super) fn said_of(&self, number: u64) -> io::Result<u64> {
        let behind = self.segments()?.into_iter().filter(|segment| number < segment.number);
        let mut headers = behind.filter_map(|segment| self.header_of(&segment));
        let next = headers.find(|header| header.previous.is_some_and(|previous| number <= previous));
        let said = next.filter(|header| header.previous == Some(number)).and_then(|header| header.previous_whole);
        Ok(said.unwrap_or(0))
    }

    /// The opening of the store that wrote a segment, where its header says.
    pub(super) fn opening_of(&self, segment: &Segment) -> Option<u64> {
        self.header_of(segment)?.identity.chain.last().map(|opening| opening.id)
    }

    /// Whether a segment has neither a header nor a record. Not where its disk does not return it.
    pub(super) fn has_nothing(&self, segment: &Segment) -> bool {
        let first = retried(|| self.read_first(segment, FIRST_BYTES));
        first.is_ok_and(|first| has_nothing(&*self.disk, &segment.path, &first, segment.bytes))
    }

    /// Of records that are there twice, only the later ones are read: the earlier ones are those that an fsync failed
    /// for, and a policy between them must not hold for points before it. Where the later ones are damaged and the earlier
    /// ones are not, these are read.
    fn leave_out_repeated(&self, planned: &mut [Planned]) -> Result<(), PlanError> {
        let mut until: HashMap<u64, u64> = HashMap::new();
        for place in 0..planned.len() {
            let Some(repeats) = planned[place].header.as_ref().and_then(|header| header.repeats) else { continue };
            let (earlier, this) = (&planned[..place], &planned[place]);
            let unreadable = |source| PlanError::Unreadable { segment: this.segment.clone(), source };
            match self.repetition(this, repeats, earlier).map_err(unreadable)? {
                // The process ended while it was written, and nothing relies on it.
                Repetition::Unfinished => _ = until.insert(this.segment.number, 0),
                Repetition::Better => {
                    for earlier in earlier {
                        let number = earlier.segment.number;
                        let from = if number == repeats.segment { repeats.offset } else { 0 };
                        if repeats.segment <= number {
                            until.entry(number).and_modify(|until| *until = from.min(*until)).or_insert(from);
                        }
                    }
                }
                Repetition::Worse(bytes) => planned[place].read_earlier = Some(bytes),
            }
        }
        for one in planned {
            one.until = until.get(&one.segment.number).copied();
        }
        Ok(())
    }

    /// Compares what a segment repeats with what is repeated. Pages that cannot be read are damage here: they say nothing of
    /// how far the segment was written.
    fn repetition(&self, this: &Planned, repeats: Repeats, earlier: &[Planned]) -> io::Result<Repetition> {
        let bytes = self.read_patiently(&this.segment)?;
        let Some(start) = this.header_end else { return Ok(Repetition::Unfinished) };
        let end = start.saturating_add(repeats.bytes as usize);
        let Some(until_end) = bytes.get(..end) else { return Ok(Repetition::Unfinished) };
        let mut found = records(until_end);
        let named = found.by_ref().filter(|(place, record)| start <= place.start && !is_policy(record));
        let first = named.map(|(place, _)| place.start).min().unwrap_or(end);
        let damage: Vec<_> = found.damage.into_iter().filter(|damage| start < damage.end).collect();
        if damage.is_empty() {
            return Ok(Repetition::Better);
        }
        let repeated = self.repeated(repeats, earlier)?;
        let mut whole = records(&repeated);
        whole.by_ref().for_each(drop);
        let Some(from) = end.checked_sub(repeated.len()) else { return Ok(Repetition::Better) };
        let is_damaged = |at: usize| damage.iter().any(|damage| damage.contains(&at));
        let is_same = repeated.iter().zip(from..end).all(|(&byte, at)| bytes[at] == byte || is_damaged(at));
        // Policies are before all other records, and are not repeated.
        let is_all = start <= from && from <= first;
        Ok(if is_same && is_all && whole.damage.is_empty() {
            Repetition::Worse(start..end)
        } else {
            Repetition::Better
        })
    }

    /// The bytes that were to be repeated, as far as they are there.
    fn repeated(&self, repeats: Repeats, earlier: &[Planned]) -> io::Result<Vec<u8>> {
        let mut repeated = Vec::new();
        for one in earlier.iter().filter(|one| repeats.segment <= one.segment.number) {
            let is_first = one.segment.number == repeats.segment;
            // Another attempt at the same repetition.
            if !is_first && one.header.as_ref().is_some_and(|header| header.repeats.is_some()) {
                continue;
            }
            let bytes = self.read_patiently(&one.segment)?;
            let from = if is_first { Some(repeats.offset as usize) } else { one.header_end };
            repeated.extend_from_slice(from.and_then(|from| bytes.get(from..)).unwrap_or_default());
        }
        Ok(repeated)
    }
}

/// How good the repetition of records is.
enum Repetition {
    /// It was not written to its end.
    Unfinished,
    /// It is whole, or at least not worse than what it repeats.
    Better,
    /// It is damaged, and what it repeats is whole: its bytes.
    Worse(Range<usize>),
}

fn is_policy(record: &Record<'_>) -> bool {
    matches!(record, Record::Policy { .. })
}

/// The end of a segment's header, which is there twice.
fn header_end(bytes: &[u8]) -> Option<usize> {
    let is_header = |record: &Record<'_>| matches!(record, Record::Segment { .. });
    let found = records(&bytes[..bytes.len().min(FIRST_BYTES)]).find(|(_, record)| is_header(record));
    found.map(|(place, _)| MAGIC_BYTES + 2 * place.len())
}

#[cfg(test)]
mod tests {
    use std::{
        path::Path,
        sync::{
            Arc,
            atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        },
    };

    use host::{Call, FailingDisk, Host, Now, SystemDisk};
    use metric::{MetricId, Policy};
    use store::Identity;

    use super::*;
    use crate::wal::{Accepted, Journal, JournalOptions, NewestFile, ResolvedPoint, WriterIdentity};

    /// A journal whose second segment repeats five batches that an fsync failed for, and goes on with five others.
    fn journal_with_a_repetition(dir: &Path) {
        let fails = Arc::new(AtomicBool::new(false));
        let is_failing = fails.clone();
        let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path| {
            let is_segment = path.extension().is_some_and(|ending| ending == "journal");
            let fails = call == Call::Sync && is_segment && is_failing.swap(false, Relaxed);
            fails.then(|| io::Error::from_raw_os_error(5))
        });
        let identity = Identity { store: 7, chain: vec![] };
        let identity = WriterIdentity { identity, next_id: Box::new(|| MetricId(9)), put_opening: Box::new(|| Ok(())) };
        let host = Host { disk: Arc::new(disk), ..Host::system() };
        let damage = JournalDamage::in_folder(&host, dir);
        let options = JournalOptions {
            identity,
            memory_limit: 1 << 30,
            mark: None,
            size: Arc::default(),
            damage,
            newest: (NewestFile::new(host.disk.clone(), None), None),
            read: Default::default(),
        };
        let journal = Journal::open(host, dir, options).unwrap();
        journal.name_policy(0, &Policy::default());
        journal.name_metric(MetricId(1), 0, "a.b", 7);
        for batch in 0..10 {
            if batch == 5 {
                fails.store(true, Relaxed);
                journal.sync().unwrap();
            }
            let points = [ResolvedPoint { metric: MetricId(1), time: batch, value: 1.0 }];
            drop(journal.append(&[Accepted { points: &points, at: Now::at(100) }]).unwrap());
        }
        journal.sync().unwrap();
    }

    /// The times of the points that a replay reads, and the damaged bytes that it finds.
    fn replayed(folder: &Folder) -> (Vec<u32>, u64) {
        let (mut times, mut damaged) = (Vec::new(), 0);
        for one in folder.plan(None).unwrap().0 {
            let bytes = folder.read_patiently(&one.segment).unwrap();
            let mut read = one.records(&bytes);
            for (_, record) in read.by_ref() {
                let Record::Points { points, .. } = record else { continue };
                times.extend(points.map(|point| point.time));
            }
            damaged += read.replayed.damaged_bytes;
        }
        (times, damaged)
    }

    #[test]
    fn a_bit_that_flips_on_the_way_from_the_disk_costs_no_record() {
        let dir = tempfile::tempdir().unwrap();
        journal_with_a_repetition(dir.path());
        for times in [1, 2] {
            for flipped in 0.. {
                let reads = Arc::new(AtomicU64::new(0));
                let counted = reads.clone();
                let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_changed_reads(move |_, bytes| {
                    let read = counted.fetch_add(u64::from(!bytes.is_empty()), Relaxed);
                    if !bytes.is_empty() && (flipped..flipped + times).contains(&read) {
                        let bit = (flipped * 7919) as usize % (8 * bytes.len());
                        bytes[bit / 8] ^= 1 << (bit % 8);
                    }
                });
                let folder = Folder::new(Arc::new(disk), dir.path());
                let (found, damaged) = replayed(&folder);
                assert_eq!((found, damaged), ((0..10).collect(), 0), "read {flipped}");
                if reads.load(Relaxed) <= flipped {
                    break;
                }
            }
        }
    }

    #[test]
    fn a_flipped_bit_in_repeated_records_costs_nothing_while_the_earlier_ones_are_whole() {
        let dir = tempfile::tempdir().unwrap();
        journal_with_a_repetition(dir.path());
        let folder = Folder::new(Arc::new(SystemDisk), dir.path());
        let segments = folder.segments().unwrap();
        assert_eq!((segments.len(), replayed(&folder)), (2, ((0..10).collect(), 0)));
        let whole = folder.read(&segments[1]).unwrap();
        let repeats = folder.plan(None).unwrap().0[1].header.as_ref().unwrap().repeats.unwrap();
        let end = header_end(&whole).unwrap() + repeats.bytes as usize;
        for place in 0..end {
            let mut flipped = whole.clone();
            flipped[place] ^= 1 << (place % 8);
            std::fs::write(&segments[1].path, &flipped).unwrap();
            let (times, damaged) = replayed(&folder);
            assert_eq!(times, (0..10).collect::<Vec<_>>(), "byte {place}");
            assert!(0 < damaged || place < MAGIC_BYTES, "byte {place}");
        }
        // Without the earlier ones it costs its own record.
        std::fs::OpenOptions::new().write(true).open(&segments[0].path).unwrap().set_len(repeats.offset).unwrap();
        let mut flipped = whole.clone();
        flipped[end - 2] ^= 1;
        std::fs::write(&segments[1].path, &flipped).unwrap();
        let (times, damaged) = replayed(&folder);
        assert_eq!((times, 0 < damaged), (vec![0, 1, 2, 3, 5, 6, 7, 8, 9], true));
        // One that was not written to its end is left out.
        std::fs::write(&segments[1].path, &whole[..end - 1]).unwrap();
        assert_eq!(replayed(&folder), (vec![], 0));
    }
}
