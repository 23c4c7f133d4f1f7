//! The manifest: which files of rows a store has, so that a missing one is noticed.
//!
//! ```text
//! plumbago rows 7
//! store 0000000000000000000000000000002a
//! next 10
//! metrics 1000
//! remade 1700000000
//! journal 3 5 6 83ab0f1577c29d04
//! names 1 70512
//! events 1 60
//! lost datapoints_10080p_60s_0/7083 28333 0 28333 99 28333540
//! missing datapoints_10080p_60s_0/7083/10-10.rows 912 27cc8e01 40 0 39 28333790 83ab0f1577c29d04
//! gone datapoints_10080p_60s_0/7083/11-11.rows 880 5b1f08aa 40 0 39 28333795 83ab0f1577c29d04
//! file datapoints_10080p_60s_0/7083/3-9.rows 70512 9f01c4d2 1000 0 999 28333777 83ab0f1577c29d04
//! expired datapoints_10080p_60s_0/7041
//! store 0000000000000000000000000000002a
//! lost datapoints_10080p_60s_0/7083 28333 0 28333 99 28333540
//! missing datapoints_10080p_60s_0/7083/10-10.rows 912 27cc8e01 40 0 39 28333790 83ab0f1577c29d04
//! gone datapoints_10080p_60s_0/7083/11-11.rows 880 5b1f08aa 40 0 39 28333795 83ab0f1577c29d04
//! end 5ab3f1c0
//! ```
//!
//! `journal` is a [`JournalMark`]; there is none before the first start, and in version 1. `names` and `events` are the
//! [`LogEnd`]s of the logs; version 3 may have them. A file has its bytes, the checksum of its index, its rows, its first and last metric, its newest slot, and the
//! opening of the store that wrote it, where that is known (version 3; of the mark, too). `missing` is a file that a start did
//! not find (version 4), `gone` one that a restored backup lacks (version 5). Version 6 may name tables of rollups. `remade` says when
//! a start made the manifest again of the files that were there, until a repair (version 7). `end` has the CRC-32 of all bytes before the line.
//!
//! The lines of lost rows and of files that are not there come twice, in front of the `file` lines and at the end, and there a
//! second `store` line: nothing else remembers what they say, and a manifest with damage in one of both still has the other.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt::Write,
    path::Path,
};

use metric::{Aggregation, MetricId, Slot, Stage, Table, Timestamp};
use store::{Identity, JournalMark};

use crate::{
    lost::{ANY_FLUSH, Lost},
    record_log::{LogEnd, LogEnds},
    row_file::{Bounds, Flushes, Header, RowFile},
    row_key::{GROUP_SLOTS, RowKey},
    window_key::{WindowKey, folder, window_slots},
};

const FIRST_LINE: &str = "plumbago rows ";
/// The version that is read, and written where a start made the manifest again. Of others version 6 is written where a table is the rollup of a method, of others version 5 is written, without `gone` files version 4, and without missing ones version 3. One whose files do not say who wrote them is written as version 2, and one without lost rows
/// and a mark of the journal, too, as version 1: earlier programs read these.
pub(crate) const VERSION: u32 = 7;

/// Bytes that are read of a manifest: those of two million files.
pub(crate) const LONGEST: u64 = 256 << 20;

/// What the manifest says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ManifestFile {
    pub(crate) window: WindowKey,
    pub(crate) flushes: Flushes,
    pub(crate) bytes: u64,
    /// Also once the end of the file is lost. Zero where it is not known.
    pub(crate) index_crc: u32,
    /// Zero where it is not known, because the end of the file is lost: then it may have had rows of other metrics, too.
    pub(crate) rows: u64,
    pub(crate) metrics: (MetricId, MetricId),
    pub(crate) newest: Slot,
    /// The number of the opening that wrote it; 0 where it is not known.
    pub(crate) opening: u64,
    /// Whether it is missing for good, as after a restore of a backup that lacks it: nothing waits for it.
    pub(crate) is_gone: bool,
}

impl ManifestFile {
    pub(crate) fn of(file: &RowFile) -> ManifestFile {
        let (header, Bounds { rows, metrics, newest, index_crc }) = (file.header(), file.possible());
        ManifestFile {
            window: (header.table, header.window),
            flushes: header.flushes,
            bytes: file.len(),
            index_crc,
            rows,
            metrics,
            newest,
            opening: file.opening().map_or(0, |opening| opening.id),
            is_gone: false,
        }
    }

    /// A file that cannot be read now and that no line names. It may have had anything of its window up to this time.
    pub(crate) fn of_name(window: WindowKey, flushes: Flushes, bytes: u64, until: Timestamp) -> ManifestFile {
        ManifestFile {
            window,
            flushes,
            bytes,
            index_crc: 0,
            rows: 0,
            // No higher one: above it, ids are free.
            metrics: (MetricId(0), MetricId(0)),
            newest: Lost::all_of(window, until).newest,
            opening: 0,
            is_gone: false,
        }
    }

    /// What it says of the rows of the file.
    pub(crate) fn bounds(&self) -> Bounds {
        let ManifestFile { rows, metrics, newest, index_crc, .. } = *self;
        Bounds { rows, metrics, newest, index_crc }
    }

    /// Whether it has rows, as far as that is known.
    pub(crate) fn has_metrics(&self) -> bool {
        self.metrics.0 <= self.metrics.1
    }

    /// The metrics that it had, the lowest and the highest; none where it may have had any.
    pub(crate) fn known_metrics(&self) -> Option<(MetricId, MetricId)> {
        let is_unknown = self.rows == 0 && self.has_metrics();
        (!is_unknown).then_some(self.metrics)
    }

    /// The metrics that it may have had, the lowest and the highest.
    fn possible_metrics(&self) -> (MetricId, MetricId) {
        self.known_metrics().unwrap_or((MetricId(0), MetricId(u32::MAX)))
    }

    /// Whether it may have had a metric.
    pub(crate) fn may_have_had(&self, metric: MetricId) -> bool {
        let (lowest, highest) = self.possible_metrics();
        (lowest..=highest).contains(&metric)
    }

    /// The first and the last group that it may have had.
    pub(crate) fn groups(&self) -> (u32, u32) {
        let groups = window_slots(self.window.0.stage) / GROUP_SLOTS;
        let first = self.window.1.saturating_mul(groups);
        let last = first.saturating_add(groups - 1);
        (first, last.min(self.newest / GROUP_SLOTS).max(first))
    }

    /// From and until of the points that it may have had, Unix seconds.
    pub(crate) fn span(&self) -> (Timestamp, Timestamp) {
        let key = |group| RowKey { group, metric: MetricId(0) };
        let (first, last) = self.groups();
        key(first).span_to(key(last), self.window.0.stage)
    }

    /// What is lost with the file.
    pub(crate) fn lost(&self) -> Vec<Lost> {
        let (groups, (lowest, highest)) = (self.groups(), self.possible_metrics());
        if highest < lowest {
            return Vec::new();
        }
        let first = RowKey { group: groups.0, metric: lowest };
        let last = RowKey { group: groups.1, metric: highest };
        Lost { first, last, newest: self.newest, flush: self.flushes.last }.of_metrics((lowest, highest))
    }

    fn add_to(&self, text: &mut String, word: &str) {
        let ManifestFile { bytes, index_crc, rows, metrics: (first, last), newest, opening, .. } = self;
        let path = self.path();
        let _ = write!(text, "{word} {} {bytes} {index_crc:08x} {rows} {first} {last} {newest}", path.display());
        end_with(text, *opening);
    }

    /// The path in the folder of the store.
    pub(crate) fn path(&self) -> std::path::PathBuf {
        folder(self.window).join(self.flushes.file_name())
    }
}

/// The manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Manifest {
    pub(crate) store: u128,
    /// The number of the first flush that may be missing here.
    pub(crate) next_flush: u64,
    /// Every metric that a row was ever of is below it.
    pub(crate) metrics_below: u32,
    /// When a start made it again of the files that were there, Unix seconds: which were missing then is not known. Until a repair.
    pub(crate) remade: Option<Timestamp>,
    /// How much of the journal is in the files and in the names.
    pub(crate) journal: Option<JournalMark>,
    /// The places up to which the logs were on the disk when the manifest was written, or before.
    pub(crate) ends: LogEnds,
    pub(crate) files: Vec<ManifestFile>,
    /// Windows whose folders are on their way to the trash.
    pub(crate) expired: BTreeSet<WindowKey>,
    /// Rows that were lost.
    pub(crate) lost: Vec<(WindowKey, Lost)>,
    /// Files that a start did not find, or that a restored backup lacks. Nothing is merged over their flushes: one that comes
    /// back is used.
    pub(crate) missing: Vec<ManifestFile>,
}

/// Why a manifest cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ManifestError {
    Damaged(String),
    /// A later program wrote it.
    Version(u32),
}

impl Manifest {
    /// Whether it names a table that earlier programs do not know.
    fn has_rollups(&self) -> bool {
        let files = self.files.iter().chain(&self.missing).map(|file| file.window);
        let windows = files.chain(self.expired.iter().copied()).chain(self.lost.iter().map(|(window, _)| *window));
        windows.into_iter().any(|(table, _)| table.rollup.is_some())
    }

    pub(crate) fn encode(&self) -> String {
        let version = match () {
            () if self.remade.is_some() => VERSION,
            () if self.has_rollups() => 6,
            () if self.missing.iter().any(|file| file.is_gone) => 5,
            () if !self.missing.is_empty() => 4,
            () if self.files.iter().any(|file| file.opening != 0) => 3,
            () if self.journal.is_some_and(|mark| mark.opening != 0) => 3,
            () if self.ends != LogEnds::default() => 3,
            () if self.lost.is_empty() && self.journal.is_none() => 1,
            () => 2,
        };
        let mut text = format!(
            "{FIRST_LINE}{version}\nstore {:032x}\nnext {}\nmetrics {}\n",
            self.store, self.next_flush, self.metrics_below
        );
        if let Some(at) = self.remade {
            let _ = writeln!(text, "remade {at}");
        }
        if let Some(JournalMark { removed_below, stored_below, newest, opening }) = self.journal {
            let _ = write!(text, "journal {removed_below} {stored_below} {newest}");
            end_with(&mut text, opening);
        }
        for (word, end) in [("names", self.ends.names), ("events", self.ends.events)] {
            if let Some(LogEnd { file, bytes }) = end {
                let _ = writeln!(text, "{word} {file} {bytes}");
            }
        }
        let has_losses = !(self.lost.is_empty() && self.missing.is_empty());
        self.add_losses(&mut text);
        self.files.iter().for_each(|file| file.add_to(&mut text, "file"));
        for window in &self.expired {
            let _ = writeln!(text, "expired {}", folder(*window).display());
        }
        if has_losses {
            let _ = writeln!(text, "store {:032x}", self.store);
            self.add_losses(&mut text);
        }
        let crc = crc32fast::hash(text.as_bytes());
        let _ = writeln!(text, "end {crc:08x}");
        text
    }

    /// Lines of lost rows that [`Manifest::salvage`] finds behind a damaged manifest of this store.
    pub(crate) fn lost_lines(&self) -> String {
        let mut text = format!("\nstore {:032x}\n", self.store);
        self.add_losses(&mut text);
        text
    }

    /// Appends the lines of what only the manifest remembers.
    fn add_losses(&self, text: &mut String) {
        for (window, Lost { first, last, newest, .. }) in &self.lost {
            let (RowKey { group, metric }, RowKey { group: last_group, metric: last_metric }) = (first, last);
            let window = folder(*window);
            let _ = writeln!(text, "lost {} {group} {metric} {last_group} {last_metric} {newest}", window.display());
        }
        let word = |file: &ManifestFile| if file.is_gone { "gone" } else { "missing" };
        self.missing.iter().for_each(|file| file.add_to(text, word(file)));
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let damaged = |how: &str| ManifestError::Damaged(how.to_owned());
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not text"))?;
        let lines = text.strip_suffix('\n').ok_or_else(|| damaged("its last line is cut"))?;
        let (lines, end) = lines.rsplit_once('\n').ok_or_else(|| damaged("it has one line"))?;
        let crc = end.strip_prefix("end ").ok_or_else(|| damaged("its last line is missing"))?;
        if crc != format!("{:08x}", crc32fast::hash(&bytes[..lines.len() + 1])) {
            return Err(damaged("its checksum is wrong"));
        }
        let mut lines = lines.lines();
        let version = lines.next().and_then(|line| line.strip_prefix(FIRST_LINE)?.parse().ok());
        match version {
            Some(1..=VERSION) => {}
            Some(version) => return Err(ManifestError::Version(version)),
            None => return Err(damaged("it does not begin as a manifest")),
        }
        let mut manifest = Manifest::default();
        for line in lines {
            manifest.read(line).ok_or_else(|| damaged(&format!("the line `{line}` has no meaning")))?;
        }
        let (mut lost, mut missing) = (BTreeSet::new(), BTreeSet::new());
        manifest.lost.retain(|lost_here| lost.insert(*lost_here));
        manifest.missing.retain(|file| missing.insert((file.window, file.flushes)));
        Ok(manifest)
    }

    /// What a damaged manifest of a store says of files and of lost rows, line by line: one flipped bit costs its line. The files are
    /// as if they were missing for good, because a line may be wrong, and nothing must wait for it; one that is there twice is right.
    /// `None` where neither a line of the store nor an opening says that the manifest is of this store.
    pub(crate) fn salvage(bytes: &[u8], ours: &Identity) -> Option<Manifest> {
        let (mut all, mut is_ours) = (Manifest::default(), false);
        for line in bytes.split(|byte| *byte == b'\n') {
            let _ = std::str::from_utf8(line).ok().and_then(|line| all.read(line));
            is_ours |= all.store == ours.store;
        }
        let openings = all.files.iter().chain(&all.missing).map(|file| file.opening);
        let openings = openings.chain(all.journal.map(|mark| mark.opening));
        is_ours |= openings.into_iter().any(|wrote| ours.chain.iter().any(|opening| opening.id == wrote));
        if !is_ours {
            return None;
        }
        let mut missing: BTreeMap<(WindowKey, Flushes), ManifestFile> = BTreeMap::new();
        let for_good = |file: ManifestFile| ManifestFile { is_gone: true, ..file };
        for file in all.missing {
            match missing.entry((file.window, file.flushes)) {
                Entry::Vacant(first) => _ = first.insert(for_good(file)),
                Entry::Occupied(mut first) if *first.get() == for_good(file) => _ = first.insert(file),
                Entry::Occupied(_) => {}
            }
        }
        for file in all.files {
            missing.entry((file.window, file.flushes)).or_insert(for_good(file));
        }
        let missing = missing.into_values().collect();
        let next_flush = all.next_flush;
        // Windows that expire have no other lines, and one whose number is wrong is not to cost those of another.
        Some(Manifest { next_flush, missing, lost: all.lost, ..Manifest::default() })
    }

    fn read(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ')?;
        match word {
            "store" => self.store = u128::from_str_radix(rest, 16).ok()?,
            "next" => self.next_flush = rest.parse().ok()?,
            "metrics" => self.metrics_below = rest.parse().ok()?,
            "remade" => self.remade = Some(rest.parse().ok()?),
            "journal" => self.journal = Some(mark_of(rest)?),
            "names" => self.ends.names = Some(end_of(rest)?),
            "events" => self.ends.events = Some(end_of(rest)?),
            "file" => self.files.push(file_of(rest)?),
            "missing" => self.missing.push(file_of(rest)?),
            "gone" => self.missing.push(ManifestFile { is_gone: true, ..file_of(rest)? }),
            "expired" => _ = self.expired.insert(window_of(Path::new(rest))?),
            "lost" => self.lost.push(lost_of(rest)?),
            _ => return None,
        }
        Some(())
    }
}

fn lost_of(line: &str) -> Option<(WindowKey, Lost)> {
    let mut words = line.split(' ');
    let window = window_of(Path::new(words.next()?))?;
    let numbers: Vec<u32> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let &[group, metric, last_group, last_metric, newest] = &numbers[..] else { return None };
    let key = |group, metric| RowKey { group, metric: MetricId(metric) };
    let (first, last) = (key(group, metric), key(last_group, last_metric));
    Some((window, Lost { first, last, newest, flush: ANY_FLUSH }))
}

fn mark_of(line: &str) -> Option<JournalMark> {
    let mut words = line.split(' ');
    let mut number = || words.next()?.parse().ok();
    let mark = JournalMark { removed_below: number()?, stored_below: number()?, newest: number()?, opening: 0 };
    let opening = opening_of(&mut words)?;
    words.next().is_none().then_some(JournalMark { opening, ..mark })
}

fn end_of(line: &str) -> Option<LogEnd> {
    let (file, bytes) = line.split_once(' ')?;
    Some(LogEnd { file: file.parse().ok()?, bytes: bytes.parse().ok()? })
}

/// Ends a line with the opening, where it is known.
fn end_with(text: &mut String, opening: u64) {
    let _ = if opening == 0 { writeln!(text) } else { writeln!(text, " {opening:016x}") };
}

/// The opening at the end of a line; 0 where there is none.
fn opening_of<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<u64> {
    words.next().map_or(Some(0), |word| u64::from_str_radix(word, 16).ok())
}

fn file_of(line: &str) -> Option<ManifestFile> {
    let mut words = line.split(' ');
    let path = Path::new(words.next()?);
    let mut file = ManifestFile {
        window: window_of(path.parent()?)?,
        flushes: Flushes::of_file_name(path.file_name()?.to_str()?)?,
        bytes: words.next()?.parse().ok()?,
        index_crc: u32::from_str_radix(words.next()?, 16).ok()?,
        rows: words.next()?.parse().ok()?,
        metrics: (MetricId(words.next()?.parse().ok()?), MetricId(words.next()?.parse().ok()?)),
        newest: words.next()?.parse().ok()?,
        opening: 0,
        is_gone: false,
    };
    file.opening = opening_of(&mut words)?;
    words.next().is_none().then_some(file)
}

/// `datapoints_10080p_60s_0/7083` as a window.
pub(crate) fn window_of(path: &Path) -> Option<WindowKey> {
    let table = table_of(path.parent()?.to_str()?)?;
    Some((table, path.file_name()?.to_str()?.parse().ok()?))
}

/// `datapoints_10080p_60s_0` as a table.
pub(crate) fn table_of(name: &str) -> Option<Table> {
    let (stage, kind) = name.strip_prefix("datapoints_")?.split_once("s_")?;
    let (points, resolution) = stage.split_once("p_")?;
    let stage = Stage::new(resolution.parse().ok()?, points.parse().ok()?).ok()?;
    let rollup = Aggregation::ALL.into_iter().find(|method| method.name() == kind);
    let table = Table { stage, aggregated: kind == "aggr" || rollup.is_some(), rollup };
    (table.to_string() == name).then_some(table)
}

/// What a report says of a file that belongs to another place than the one that it has in a store.
pub(crate) fn not_its_place(header: &Header, store: u128) -> String {
    if header.store != store {
        return format!(
            "it is of the store {:032x}, and this is the store {store:032x}: it is not used; put it back into the data folder that it came \
             from, and the file of this store in its place, if there is one",
            header.store
        );
    }
    let path = folder((header.table, header.window)).join(header.flushes.file_name());
    format!(
        "it says that it is {}: it is a copy of that, or was renamed, and is not used; if that one is missing, give it that name",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use store::Incarnation;

    use super::*;

    #[test]
    fn the_name_of_a_table_identifies_it() {
        for name in ["datapoints_10080p_60s_0", "datapoints_720p_3600s_aggr", "datapoints_720p_3600s_avg_zero"] {
            assert_eq!(table_of(name).unwrap().to_string(), name);
        }
        for name in
            ["metrics", "datapoints_10080p_60s_x", "datapoints_0p_60s_0", "datapoints_1p_60_0", "datapoints_1p_60s_avg"]
        {
            assert_eq!(table_of(name), None, "{name}");
        }
    }

    #[test]
    fn a_manifest_survives_and_any_flipped_bit_is_noticed() {
        let window = (table_of("datapoints_10080p_60s_0").unwrap(), 7083);
        let file = ManifestFile {
            window,
            flushes: Flushes { first: 3, last: 9 },
            bytes: 70_512,
            index_crc: 0x9f01_c4d2,
            rows: 1000,
            metrics: (MetricId(0), MetricId(999)),
            newest: 28_333_777,
            opening: 0x83ab,
            is_gone: false,
        };
        let expired = BTreeSet::from([(window.0, 7041)]);
        let key = |metric| RowKey { group: 28_333, metric: MetricId(metric) };
        let lost = vec![(window, Lost { first: key(0), last: key(99), newest: 28_333_540, flush: ANY_FLUSH })];
        let journal = Some(JournalMark { removed_below: 3, stored_below: 5, newest: 6, opening: 0x83ab });
        let (files, end) = (vec![file], |file, bytes| Some(LogEnd { file, bytes }));
        let ends = LogEnds { names: end(1, 70_512), events: end(12, 60) };
        let missing = ManifestFile { flushes: Flushes { first: 10, last: 12 }, ..file };
        let gone = ManifestFile { flushes: Flushes { first: 13, last: 13 }, is_gone: true, ..file };
        let missing = vec![missing, gone];
        let remade = None;
        let whole = Manifest {
            store: 42,
            next_flush: 10,
            metrics_below: 1000,
            remade,
            journal,
            ends,
            files,
            expired,
            lost,
            missing,
        };
        let without = Manifest { missing: Vec::new(), ..whole.clone() };
        assert!(without.encode().starts_with("plumbago rows 3\n"), "earlier programs read it");
        let without = Manifest { missing: whole.missing[..1].to_vec(), ..whole.clone() };
        assert!(without.encode().starts_with("plumbago rows 4\n"), "the program before reads it");
        assert!(whole.encode().starts_with("plumbago rows 5\n"), "those that know files that are gone read it");
        let rollup = (table_of("datapoints_720p_3600s_max").unwrap(), 7);
        let manifest = Manifest { expired: [rollup].into_iter().chain(whole.expired.clone()).collect(), ..whole };
        let text = manifest.encode();
        assert!(text.starts_with("plumbago rows 6\n"), "programs that do not know rollups refuse it");
        let manifest = Manifest { remade: Some(1_700_000_000), ..manifest };
        let text = manifest.encode();
        assert!(text.starts_with("plumbago rows 7\n"), "programs that would forget that it was made again refuse it");
        assert_eq!(Manifest::parse(text.as_bytes()), Ok(manifest));
        for bit in 0..text.len() * 8 {
            let mut flipped = text.clone().into_bytes();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Manifest::parse(&flipped), Err(ManifestError::Damaged(_))), "bit {bit}");
        }
        for len in 0..text.len() {
            assert!(Manifest::parse(&text.as_bytes()[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn a_flipped_bit_of_a_manifest_costs_nothing_of_what_it_remembers_of_losses() {
        let window = (table_of("datapoints_10080p_60s_0").unwrap(), 7083);
        let file = ManifestFile {
            window,
            flushes: Flushes { first: 3, last: 9 },
            bytes: 70_512,
            index_crc: 0x9f01_c4d2,
            rows: 1000,
            metrics: (MetricId(0), MetricId(999)),
            newest: 28_333_777,
            opening: 0x83ab,
            is_gone: false,
        };
        let missing = ManifestFile { flushes: Flushes { first: 10, last: 12 }, ..file };
        let gone = ManifestFile { flushes: Flushes { first: 13, last: 13 }, is_gone: true, ..file };
        let key = |metric| RowKey { group: 28_333, metric: MetricId(metric) };
        let lost = (window, Lost { first: key(0), last: key(99), newest: 28_333_540, flush: ANY_FLUSH });
        let whole = Manifest {
            store: 42,
            files: vec![file],
            missing: vec![missing, gone],
            lost: vec![lost],
            ..Manifest::default()
        };
        let text = whole.encode();
        assert_eq!(Manifest::parse(text.as_bytes()), Ok(whole));
        let ours = Identity { store: 42, chain: Vec::new() };
        for bit in 0..text.len() * 8 {
            let mut flipped = text.clone().into_bytes();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = Manifest::salvage(&flipped, &ours).unwrap();
            let has = |file: ManifestFile| {
                found.missing.iter().any(|found| (found.window, found.flushes) == (file.window, file.flushes))
            };
            assert!(has(missing) && has(gone) && found.lost.contains(&lost), "bit {bit}: {found:?}");
        }
        // Where both of its lines are whole, it is waited for.
        let found = Manifest::salvage(&text.as_bytes()[..text.len() - 3], &ours).unwrap();
        assert_eq!(found.missing, [ManifestFile { is_gone: true, ..file }, missing, gone]);
        let other = Identity { store: 43, chain: Vec::new() };
        assert_eq!(Manifest::salvage(text.as_bytes(), &other), None);
    }

    #[test]
    fn a_flipped_bit_costs_a_manifest_without_losses_one_line_also_where_it_names_another_store_then() {
        let window = (table_of("datapoints_10080p_60s_0").unwrap(), 7083);
        let file = |flush| ManifestFile {
            window,
            flushes: Flushes { first: flush, last: flush },
            bytes: 70_512,
            index_crc: 0x9f01_c4d2,
            rows: 1000,
            metrics: (MetricId(0), MetricId(999)),
            newest: 28_333_777,
            opening: 0x83ab,
            is_gone: false,
        };
        let whole = Manifest { store: 42, next_flush: 4, files: [1, 2, 3].map(file).to_vec(), ..Manifest::default() };
        let text = whole.encode();
        let opening = |id| Incarnation { id, first_id: MetricId(0) };
        let ours = Identity { store: 42, chain: vec![opening(7), opening(0x83ab)] };
        let store = text.find("store").unwrap()..text.find("\nnext").unwrap();
        for bit in 0..text.len() * 8 {
            let mut flipped = text.clone().into_bytes();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = Manifest::salvage(&flipped, &ours).unwrap_or_default().missing.len();
            // The end of a line is part of two.
            assert!(1 <= found, "bit {bit}");
            assert!(found == 3 || !store.contains(&(bit / 8)), "bit {bit} of the store's line");
        }
        let other = Identity { store: 43, chain: vec![opening(7)] };
        assert_eq!(Manifest::salvage(text.as_bytes(), &other), None);
    }
}
