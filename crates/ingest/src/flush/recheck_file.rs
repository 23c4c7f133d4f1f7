//! Spans to be derived again (`rechecks.rs`), kept over a restart in `data/rechecks`.
//!
//! A cycle saves them before the journal lets go of their points: after a kill, each of these points is in the journal, and derived
//! again, or its span is here. Text: a first line with the version, a line for each metric, and a last line with their number.

use std::{io, ops::Range, path::PathBuf, sync::Arc};

use host::{Disk, replace_file};
use metric::{MetricId, Timestamp};
use parking_lot::Mutex;

/// The first line, without the version.
const HEADER: &str = "plumbago rechecks ";
const VERSION: &str = "1";

/// A metric with spans. Each is derived again after as long as if it had been written at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Saved {
    pub(super) metric: MetricId,
    pub(super) wait: Wait,
    /// As in a recheck.
    pub(super) spans: Vec<Range<Timestamp>>,
}

/// What a metric waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Other nodes may have been writing it at the same moment.
    Soon,
    /// BigGraphite may have rows of it in memory.
    Late,
    /// This node corrected rows of others, which may write over that. Earlier versions take it for the one before.
    Corrected,
}

impl Wait {
    fn word(self) -> &'static str {
        match self {
            Wait::Soon => "soon",
            Wait::Late => "late",
            Wait::Corrected => "corrected",
        }
    }
}

/// The file.
pub(crate) struct RecheckFile {
    disk: Arc<dyn Disk>,
    /// Without a data folder, nothing is kept.
    path: Option<PathBuf>,
    // The changes of the spans that the file has.
    saved: Mutex<Option<u64>>,
}

impl RecheckFile {
    pub(crate) fn new(disk: Arc<dyn Disk>, data_dir: Option<&std::path::Path>) -> RecheckFile {
        RecheckFile { disk, path: data_dir.map(|data| data.join("rechecks")), saved: Mutex::default() }
    }

    /// The spans of before the start. None where the file is not there, or cannot be read: slots that other nodes wrote at the same
    /// moment may then stay as they are.
    pub(super) fn read(&self) -> Vec<Saved> {
        let Some(path) = &self.path else { return Vec::new() };
        let why = match self.disk.read_to_string(path) {
            Ok(text) => match parse(&text) {
                Some(saved) => return saved,
                None => "it is not a whole file of version 1".to_owned(),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(why, file = %path.display(),
            "cannot read which coarse slots are to be derived again; those that two nodes wrote at the same moment shortly before the \
             last stop may stay wrong");
        Vec::new()
    }

    /// Saves the spans where they have changed; `changes` counts that. An error keeps the file as it was, and the next cycle tries again.
    pub(super) fn save(&self, changes: u64, all: impl FnOnce() -> Vec<Saved>) {
        let mut saved = self.saved.lock();
        let Some(path) = self.path.as_ref().filter(|_| *saved != Some(changes)) else { return };
        match replace_file(&*self.disk, path, text(&all()).as_bytes()) {
            Ok(()) => *saved = Some(changes),
            Err(error) => tracing::warn!(%error, file = %path.display(),
                "cannot save which coarse slots are to be derived again; a kill forgets them; retrying with the next flush"),
        }
    }
}

fn text(all: &[Saved]) -> String {
    let mut text = format!("{HEADER}{VERSION}\n");
    for Saved { metric, wait, spans } in all {
        text += &format!("{} {}", wait.word(), metric.0);
        spans.iter().for_each(|span| text += &format!(" {}..{}", span.start, span.end));
        text.push('\n');
    }
    text + &format!("end {}\n", all.len())
}

/// `None` where the text is not whole.
fn parse(text: &str) -> Option<Vec<Saved>> {
    let mut lines = text.strip_prefix(HEADER)?.lines();
    lines.next().filter(|version| *version == VERSION)?;
    let mut all = Vec::new();
    loop {
        let mut words = lines.next()?.split(' ');
        let kind = words.next()?;
        if kind == "end" {
            return (words.next()? == all.len().to_string()).then_some(all);
        }
        let metric = MetricId(words.next()?.parse().ok()?);
        let span = |word: &str| {
            let (start, end) = word.split_once("..")?;
            let span: Range<Timestamp> = start.parse().ok()?..end.parse().ok()?;
            (!span.is_empty()).then_some(span)
        };
        let spans = words.map(span).collect::<Option<Vec<_>>>()?;
        let wait = [Wait::Soon, Wait::Corrected].into_iter().find(|wait| wait.word() == kind).unwrap_or(Wait::Late);
        all.push(Saved { metric, wait, spans });
    }
}

#[cfg(test)]
mod tests {
    use host::SystemDisk;

    use super::*;

    #[test]
    fn spans_are_read_as_they_were_saved_and_a_file_that_is_not_whole_counts_as_none() {
        let data = tempfile::tempdir().unwrap();
        let file = || RecheckFile::new(Arc::new(SystemDisk), Some(data.path()));
        assert_eq!(file().read(), []);
        let of = |metric, wait, spans| Saved { metric: MetricId(metric), wait, spans };
        let one = || std::iter::once(0..180).collect();
        let all = vec![
            of(7, Wait::Soon, vec![0..60, 120..180]),
            of(7, Wait::Late, one()),
            of(9, Wait::Corrected, one()),
            of(u32::MAX, Wait::Late, vec![]),
        ];
        let first = file();
        first.save(3, || all.clone());
        assert_eq!(file().read(), all);
        // Nothing has changed since.
        first.save(3, || panic!("they are saved"));
        let path = data.path().join("rechecks");
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "plumbago rechecks 1\nsoon 7 0..60 120..180\nlate 7 0..180\ncorrected 9 0..180\nlate 4294967295\nend 4\n"
        );
        for broken in
            [&text[..text.len() - 8], &text.replace("60", "-1"), &text.replace("rechecks 1", "rechecks 2"), ""]
        {
            std::fs::write(&path, broken).unwrap();
            assert_eq!(file().read(), [], "{broken}");
        }
        first.save(4, Vec::new);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "plumbago rechecks 1\nend 0\n");
    }
}
