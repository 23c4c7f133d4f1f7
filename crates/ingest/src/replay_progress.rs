//! Lines of the log about a long replay of the journal. Until its end the program listens at no port, so the log is all that
//! an operator sees.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use host::Clock;

/// Shortest time between two lines.
const EVERY: Duration = Duration::from_secs(5);

/// How far a replay is.
pub(crate) struct ReplayProgress {
    clock: Arc<dyn Clock>,
    began: Instant,
    next: Instant,
    so_far: SoFar,
    /// Bytes of the segments before the one that is read.
    bytes_before: u64,
}

/// What a replay has read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SoFar {
    /// The segment that is read, from 1.
    segment: u64,
    segments: u64,
    records: u64,
    /// Bytes, and how many there are.
    bytes: u64,
    of_bytes: u64,
}

impl SoFar {
    fn percent(self) -> u64 {
        (self.bytes.saturating_mul(100)).checked_div(self.of_bytes).unwrap_or(100)
    }
}

impl ReplayProgress {
    /// Segments of these lengths are going to be read.
    pub(crate) fn begin(clock: Arc<dyn Clock>, lengths: impl Iterator<Item = u64>) -> ReplayProgress {
        let now = clock.instant();
        let mut so_far = SoFar::default();
        for length in lengths {
            so_far.segments += 1;
            so_far.of_bytes += length;
        }
        if 0 < so_far.segments {
            tracing::info!(segments = so_far.segments, bytes = so_far.of_bytes, "replaying the journal");
        }
        ReplayProgress { clock, began: now, next: now + EVERY, so_far, bytes_before: 0 }
    }

    /// The next segment is read.
    pub(crate) fn begin_segment(&mut self) {
        self.so_far.segment += 1;
    }

    /// A segment of this length was read.
    pub(crate) fn end_segment(&mut self, bytes: u64) {
        self.bytes_before += bytes;
    }

    /// A record up to this byte of the segment was taken; `points` are those of the replay. Writes a line if it is time for
    /// one.
    pub(crate) fn took(&mut self, until: usize, points: u64) {
        self.so_far.records += 1;
        let Some(so_far) = self.due(until) else { return };
        let SoFar { segment, segments, records, .. } = so_far;
        tracing::info!(
            percent = so_far.percent(),
            segment,
            segments,
            records,
            points,
            seconds = (self.clock.instant() - self.began).as_secs(),
            "the journal is being replayed; the program listens when that is done"
        );
    }

    fn due(&mut self, until: usize) -> Option<SoFar> {
        let now = self.clock.instant();
        if now < self.next {
            return None;
        }
        self.next = now + EVERY;
        self.so_far.bytes = self.bytes_before + until as u64;
        Some(self.so_far)
    }
}

#[cfg(test)]
mod tests {
    use host::ManualClock;

    use super::*;

    #[test]
    fn a_long_replay_is_reported_every_five_seconds_and_a_short_one_is_not() {
        let clock = Arc::new(ManualClock::at(0));
        let mut progress = ReplayProgress::begin(clock.clone(), [1000, 3000].into_iter());
        progress.begin_segment();
        let mut seen = Vec::new();
        for second in 1..=12 {
            clock.advance(Duration::from_secs(1));
            if second == 7 {
                progress.end_segment(1000);
                progress.begin_segment();
            }
            progress.so_far.records += 1;
            seen.extend(progress.due(500).map(|so_far| (second, so_far.segment, so_far.records, so_far.percent())));
        }
        assert_eq!(seen, [(5, 1, 5, 12), (10, 2, 10, 37)]);
    }

    #[test]
    fn an_empty_journal_is_read_whole() {
        assert_eq!(SoFar::default().percent(), 100);
    }
}
