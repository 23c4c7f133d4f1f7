//! The parts of segments that a replay reads, and whose ids they have.

use std::{collections::HashMap, io};

use metric::Timestamp;

use super::{
    damage::JournalDamage,
    header::{Repeats, SegmentHeader},
    reader::{Records, Start, records, start},
    record::Record,
    segment::{Folder, Segment, patiently},
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
    /// What is behind this byte is repeated in a later segment.
    until: Option<u64>,
}

impl Planned {
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
    /// damage: a process or a machine that stops leaves such.
    pub(crate) fn keep_damage(&self, damaged: &JournalDamage, bytes: &[u8], read: &Records<'_>) -> io::Result<()> {
        let found = read.replayed;
        if found.damaged_bytes == 0 {
            return Ok(());
        }
        tracing::warn!(
            file = %self.segment.path.display(), bytes = found.damaged_bytes, whole_records = found.records,
            "a journal segment has damaged bytes; replayed its intact records and skipped the rest"
        );
        let torn = read.torn_tail();
        let times: Vec<(usize, Timestamp)> = records(self.part(bytes))
            .filter_map(|(place, record)| match record {
                Record::Points { now, .. } => Some((place.start, now.low())),
                _ => None,
            })
            .collect();
        for damage in read.damage.iter().filter(|&damage| torn.as_ref() != Some(damage)) {
            let next = times.partition_point(|&(start, _)| start < damage.start);
            let accepted = |place: usize| times.get(place).map(|&(_, now)| now);
            let around = (next.checked_sub(1).and_then(accepted), accepted(next));
            damaged.keep_damage(&self.segment, &bytes[damage.clone()], damage, around)?;
        }
        Ok(())
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
    /// Goes through the beginnings of the segments.
    pub(crate) fn plan(&self) -> Result<Vec<Planned>, PlanError> {
        let mut planned = Vec::new();
        for segment in self.segments().map_err(PlanError::Disk)? {
            let first = match patiently(|| self.read_first(&segment, FIRST_BYTES)) {
                Ok(first) => first,
                // A cycle has trimmed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(source) => return Err(PlanError::Unreadable { segment, source }),
            };
            let (header, is_header_lost) = match start(&first) {
                Start::Known(header) => (Some(*header), false),
                Start::Old => (None, false),
                Start::Damaged => (None, true),
                Start::Newer(version) => return Err(PlanError::Newer { segment, version }),
            };
            planned.push(Planned { segment, header, is_header_lost, until: None });
        }
        self.leave_out_repeated(&mut planned)?;
        Ok(planned)
    }

    /// Of records that are there twice, only the later ones are read: the earlier ones are those that an fsync failed
    /// for, and a policy between them must not hold for points before it.
    fn leave_out_repeated(&self, planned: &mut [Planned]) -> Result<(), PlanError> {
        let mut until: HashMap<u64, u64> = HashMap::new();
        for place in 0..planned.len() {
            let Some(repeats) = planned[place].header.as_ref().and_then(|header| header.repeats) else { continue };
            let segment = &planned[place].segment;
            let unreadable = |source| PlanError::Unreadable { segment: segment.clone(), source };
            if !self.is_whole(segment, repeats).map_err(unreadable)? {
                // The process ended while it was written, and nothing relies on it.
                until.insert(segment.number, 0);
                continue;
            }
            for earlier in &planned[..place] {
                let number = earlier.segment.number;
                let from = if number == repeats.segment { repeats.offset } else { 0 };
                if repeats.segment <= number {
                    until.entry(number).and_modify(|until| *until = from.min(*until)).or_insert(from);
                }
            }
        }
        for one in planned {
            one.until = until.get(&one.segment.number).copied();
        }
        Ok(())
    }

    fn is_whole(&self, segment: &Segment, repeats: Repeats) -> io::Result<bool> {
        let bytes = patiently(|| self.read(segment))?;
        let mut found = records(&bytes);
        let start = found.by_ref().take_while(|(_, record)| matches!(record, Record::Segment { .. })).last();
        let Some(end) = start.map(|(place, _)| place.end as u64 + repeats.bytes) else { return Ok(false) };
        let Some(repeated) = bytes.get(..end as usize) else { return Ok(false) };
        let mut repeated = records(repeated);
        repeated.by_ref().for_each(drop);
        Ok(repeated.damage.is_empty())
    }
}
