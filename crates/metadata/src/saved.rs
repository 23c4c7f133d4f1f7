//! The registry as a file, so that a million metrics are loaded in a fraction of a second.
//!
//! All integers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `plumbgo1` |
//! | 4 | version, [`VERSION`] |
//! | 16, 8, 8, 8 | since version 3: the state of the metrics table that this is a copy of ([`NamesMark`]): store, opening, file, bytes; all 0 if it is not known |
//! | 4 | the next id; not in version 1 |
//! | 4 | chunks of names |
//! | per chunk | `u32` length, then as many bytes of records as they lie in memory; a removed one has the id 2³² - 1 |
//! | 4 | segments of the path index |
//! | per segment | `u64` length, the transducer; `u32` names, as many `u32` ids by rank |
//! | 4 | policies |
//! | per policy | `u32` length, the retention as `10080*60s:720*3600s`; `u8` method, by its place in `Aggregation::ALL`, or of several `u8` 128 + how many, then each; `f64` xFilesFactor |
//! | 4 | histories |
//! | per history | `u32` metric; `u32` changes, each an `i64` since and a `u16` policy |
//! | 4 | CRC-32 of everything before |
//!
//! The hash table is not kept: it is filled again with another seed. The tail of the path index is what is in
//! no segment; an id of a segment without a record was removed. Policies come after the names, so that a policy that a name refers to is always there.

use std::{
    io::{self, BufWriter, Write},
    path::Path,
    sync::Arc,
};

use fst::raw::Fst;
use host::{Disk, DiskFile, Open};
use metric::{Aggregation, Column, Methods, MetricId, Policy, is_tagged};
use store::NamesMark;

use crate::{
    arena::{Arena, NOWHERE},
    name_table::ManyPlaces,
    names::Table,
    policies::{Policies, PolicySpan},
    registry::Registry,
    saved_tags::{self, SAVED_TAGS, SavedTags},
    segment::Segment,
    tag_index::NamesFile,
};

/// The first bytes of a saved registry.
const MAGIC: &[u8; 8] = b"plumbgo1";

/// The way that the rest is laid out.
const VERSION: u32 = 3;

/// In the byte that says how many methods a policy has, where it has several.
const LIST: u8 = 0x80;

/// Written until the file said which state of the metrics table it is a copy of.
const WITHOUT_MARK: u32 = 2;

/// Written until metrics could be removed.
const WITHOUT_NEXT_ID: u32 = 1;

/// A mark of no table.
const UNKNOWN: NamesMark = NamesMark { store: 0, opening: 0, end: (0, 0) };

/// A saved registry.
pub struct SavedNames {
    /// The names.
    pub registry: Registry,
    /// The state of the metrics table that they are a copy of, if the file has one.
    pub mark: Option<NamesMark>,
    // The file itself.
    pub(crate) file: NamesFile,
}

/// Why a saved registry was not opened. The caller falls back to the metrics table, which has everything.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be read; most often because there is none.
    #[error("cannot read the saved registry: {0}")]
    Io(#[from] io::Error),
    /// The file was written in another way than this program reads.
    #[error("the saved registry has version {found}, this program reads {expected}")]
    Version {
        /// The version of the file.
        found: u32,
        /// The version that this program reads.
        expected: u32,
    },
    /// The file is cut short or altered.
    #[error("the saved registry is damaged: {0}")]
    Damaged(&'static str),
}

impl Registry {
    /// Writes names, ids, policies and the path index to `path`, in place of what was there: after a crash
    /// the file is the old or the new one, whole. Metrics created or changed meanwhile may be missing in it.
    ///
    /// Metrics can be created meanwhile: the lock is held for one chunk of a mebibyte at a time. A removal waits.
    ///
    /// While ids are reserved ([`Registry::reserve`]) this removes the file: the metrics table may have those ids or
    /// not, so the next start must read the table to give none of them to another name.
    ///
    /// `mark` is the state of the metrics table that has just these names; without one the file stands for no table.
    ///
    /// The tag index goes to the file [`SAVED_TAGS`] next to it.
    pub fn save(&self, disk: &dyn Disk, path: &Path, mark: Option<NamesMark>) -> io::Result<()> {
        let tags_path = path.with_file_name(SAVED_TAGS);
        if !self.names.read().reserved.is_empty() {
            return saved_tags::remove(disk, path).and(saved_tags::remove(disk, &tags_path));
        }
        self.update_tags();
        // No record moves meanwhile, and none goes that the tag index has.
        let _compacting = self.compacting.lock();
        let tags = self.tags.read();
        let mut names = NamesFile { bytes: 0, checksum: 0 };
        host::replace_file_with(disk, path, |file| {
            let mut out = Checked { out: BufWriter::with_capacity(1 << 20, file), crc: crc32fast::Hasher::new() };
            self.write_to(&mut out, mark)?;
            names.checksum = out.crc.clone().finalize();
            out.u32(names.checksum)?;
            out.out.flush()?;
            names.bytes = out.out.get_ref().len()?;
            Ok(())
        })?;
        saved_tags::save(&tags, disk, &tags_path, names);
        Ok(())
    }

    /// Reads the file of [`Registry::save`]. Metrics created or changed since are then restored on top.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<SavedNames, OpenError> {
        let mut file = disk.open(path, Open::Read)?;
        // One read of a known length: growing a buffer as it comes would copy it many times.
        let length = usize::try_from(file.len()?).map_err(|_| OpenError::Damaged("it is too long"))?;
        let mut bytes = vec![0; length];
        file.read_exact(&mut bytes)?;
        read_from(&bytes)
    }

    fn write_to(&self, out: &mut Checked<'_>, mark: Option<NamesMark>) -> io::Result<()> {
        out.write(MAGIC)?;
        out.u32(VERSION)?;
        let NamesMark { store, opening, end } = mark.unwrap_or(UNKNOWN);
        out.write(&store.to_le_bytes())?;
        for value in [opening, end.0, end.1] {
            out.write(&value.to_le_bytes())?;
        }
        let (next, ends, segments) = {
            let table = self.names.read();
            (table.places.end(), table.arena.ends(), table.segments.clone())
        };
        out.u32(next.0)?;
        out.u32(ends.len() as u32)?;
        let mut copy = Vec::new();
        for (chunk, &end) in ends.iter().enumerate() {
            copy.clear();
            copy.extend_from_slice(&self.names.read().arena.chunk(chunk)[..end as usize]);
            out.u32(end)?;
            out.write(&copy)?;
        }
        out.u32(segments.len() as u32)?;
        for segment in &segments {
            out.write(&(segment.fst.size() as u64).to_le_bytes())?;
            out.write(segment.fst.as_bytes())?;
            out.u32(segment.ids.len() as u32)?;
            for ids in segment.ids.chunks(4096) {
                copy.clear();
                copy.extend(ids.iter().flat_map(|id| id.0.to_le_bytes()));
                out.write(&copy)?;
            }
        }
        out.write(&self.policies.read().to_bytes())
    }
}

impl SavedNames {
    /// The names. The first question about tags, or [`Registry::compact`], takes the tag index that was saved next to them in a
    /// folder.
    pub fn expecting_tags(self, disk: &Arc<dyn Disk>, folder: &Path) -> Registry {
        let tags = SavedTags::begin(disk, folder.join(SAVED_TAGS));
        self.expecting(tags)
    }

    /// As [`SavedNames::expecting_tags`], of a file that is being read.
    pub(crate) fn expecting(self, tags: Option<SavedTags>) -> Registry {
        *self.registry.saved_tags.lock() = tags.map(|tags| (tags, self.file));
        self.registry
    }
}

impl Policies {
    /// The part of the file about policies.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((self.distinct().len() as u32).to_le_bytes());
        for policy in self.distinct() {
            let retention = policy.retention.to_string();
            bytes.extend((retention.len() as u32).to_le_bytes());
            bytes.extend(retention.as_bytes());
            let number = |method| Aggregation::ALL.iter().position(|&known| known == method);
            let number = |method| number(method).expect("every method is in the list of all") as u8;
            if !policy.rollups.is_empty() {
                bytes.push(LIST | policy.rollups.len() as u8);
            }
            bytes.extend(policy.methods().iter().map(number));
            bytes.extend(policy.x_files_factor.to_le_bytes());
        }
        bytes.extend((self.histories().len() as u32).to_le_bytes());
        for (id, spans) in self.histories() {
            bytes.extend(id.0.to_le_bytes());
            bytes.extend((spans.len() as u32).to_le_bytes());
            for span in spans {
                bytes.extend(span.since.to_le_bytes());
                bytes.extend(span.policy.to_le_bytes());
            }
        }
        bytes
    }
}

/// A file, and the checksum of what went into it.
struct Checked<'a> {
    out: BufWriter<&'a mut dyn DiskFile>,
    crc: crc32fast::Hasher,
}

impl Checked<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc.update(bytes);
        self.out.write_all(bytes)
    }

    fn u32(&mut self, value: u32) -> io::Result<()> {
        self.write(&value.to_le_bytes())
    }
}

fn read_from(bytes: &[u8]) -> Result<SavedNames, OpenError> {
    let mut fields = Fields { rest: bytes };
    if fields.take(MAGIC.len())? != MAGIC {
        return Err(OpenError::Damaged("it is not a saved registry"));
    }
    let version = fields.u32()?;
    if !(WITHOUT_NEXT_ID..=VERSION).contains(&version) {
        return Err(OpenError::Version { found: version, expected: VERSION });
    }
    let (body, crc) = bytes.split_last_chunk::<4>().ok_or(OpenError::Damaged("it is cut short"))?;
    if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return Err(OpenError::Damaged("its checksum is wrong"));
    }
    let mut mark = UNKNOWN;
    if WITHOUT_MARK < version {
        mark.store = u128::from_le_bytes(fields.array()?);
        mark.opening = fields.u64()?;
        mark.end = (fields.u64()?, fields.u64()?);
    }
    let mark = (mark != UNKNOWN).then_some(mark);
    let next = if version == WITHOUT_NEXT_ID { 0 } else { fields.u32()? };
    // The checksum is right, but a forged file can have a right one. So everything is checked, except the
    // transducers.
    let mut arena = Arena::new();
    for _ in 0..fields.u32()? {
        let length = fields.u32()? as usize;
        arena.push_chunk(fields.take(length)?).ok_or(OpenError::Damaged("a chunk of names does not add up"))?;
    }
    let mut segments = Vec::new();
    for _ in 0..fields.u32()? {
        let length = usize::try_from(fields.u64()?).map_err(|_| OpenError::Damaged("a segment is too long"))?;
        let fst = Fst::new(fields.take(length)?.to_vec());
        let fst = fst.map_err(|_| OpenError::Damaged("a segment cannot be read"))?;
        let count = fields.u32()? as usize;
        let ids = fields.take(count.checked_mul(4).ok_or(OpenError::Damaged("a segment is too long"))?)?;
        let ids: Vec<MetricId> = ids.as_chunks().0.iter().map(|&id| MetricId(u32::from_le_bytes(id))).collect();
        if fst.len() != ids.len() {
            return Err(OpenError::Damaged("a segment does not add up"));
        }
        segments.push(Segment { fst, ids });
    }
    let mut policies = Policies::new();
    for id in 0..fields.u32()? {
        let length = fields.u32()? as usize;
        let retention = std::str::from_utf8(fields.take(length)?).ok().and_then(|text| text.parse().ok());
        let retention = retention.ok_or(OpenError::Damaged("a retention cannot be read"))?;
        let methods = fields.methods()?;
        let x_files_factor = f64::from_bits(fields.u64()?);
        let policy = Policy { retention, x_files_factor, ..Policy::default() }.with_methods(methods);
        if u32::from(policies.intern(&policy)) != id {
            return Err(OpenError::Damaged("a policy is there twice"));
        }
    }
    for _ in 0..fields.u32()? {
        let metric = MetricId(fields.u32()?);
        let mut spans = Vec::new();
        for _ in 0..fields.u32()? {
            let since = fields.u64()? as i64;
            let policy = fields.u16()?;
            policies.get(policy).ok_or(OpenError::Damaged("a history has an unknown policy"))?;
            spans.push(PolicySpan { since, policy });
        }
        policies.set_history(metric, spans);
    }
    let file = NamesFile { bytes: bytes.len() as u64, checksum: u32::from_le_bytes(*crc) };
    Ok(SavedNames { registry: registry(MetricId(next), arena, segments, policies)?, mark, file })
}

/// Puts together what the file has, and derives what it does not have.
fn registry(next: MetricId, arena: Arena, segments: Vec<Segment>, policies: Policies) -> Result<Registry, OpenError> {
    let highest = arena.places().map(|place| arena.get(place).id).max();
    let end = highest.map_or(next, |id| next.max(MetricId(id.0.saturating_add(1))));
    let records = arena.places().count();
    let mut indexed = Column::new(|| false);
    for &id in segments.iter().flat_map(|segment| &segment.ids) {
        if id >= end {
            return Err(OpenError::Damaged("a segment has an unknown id"));
        }
        *indexed.entry(id) = true;
    }
    let registry = Registry::of(Table::new(), policies);
    {
        let mut table = registry.names.write();
        let policies = registry.policies.read();
        table.places.extend_to(end);
        let mut hashed = ManyPlaces::new(records);
        for place in arena.places() {
            let record = arena.get(place);
            let name = std::str::from_utf8(record.name).map_err(|_| OpenError::Damaged("a name is not UTF-8"))?;
            policies.get(record.policy).ok_or(OpenError::Damaged("a metric has an unknown policy"))?;
            let held = table.places.entry(record.id);
            if *held != NOWHERE {
                return Err(OpenError::Damaged("an id is there twice"));
            }
            *held = place;
            hashed.add(registry.hash(record.name), place);
            table.names += 1;
            if is_tagged(name) {
                table.tag_changes.read(record.id, name);
            } else if indexed.get(record.id) != Some(&true) {
                table.tail.push(record.id);
            }
        }
        table.by_name.insert_all(hashed);
        let has_record = |&&id: &&MetricId| table.places.get(id).is_some_and(|&place| place != NOWHERE);
        let ids = segments.iter().flat_map(|segment| &segment.ids);
        table.removed = Arc::new(ids.filter(|id| !has_record(id)).copied().collect());
        table.arena = arena;
        for segment in segments {
            table.add_segment(segment);
        }
    }
    *registry.compacting.lock() = records;
    Ok(registry)
}

/// The unread bytes.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], OpenError> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(OpenError::Damaged("it is cut short"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], OpenError> {
        let bytes = self.take(N)?;
        Ok(bytes.try_into().expect("as many bytes as asked for"))
    }

    /// The methods of a policy.
    fn methods(&mut self) -> Result<Methods, OpenError> {
        let (bytes, least) = match self.take(1)?[0] {
            count if LIST < count => (self.take(usize::from(count - LIST))?, 2),
            method => (&[method][..], 1),
        };
        let mut methods = Methods::NONE;
        for &method in bytes {
            let method = *Aggregation::ALL.get(usize::from(method)).ok_or(OpenError::Damaged("a method is unknown"))?;
            methods.add(method);
        }
        let is_right = methods.len() == bytes.len() && least <= bytes.len();
        is_right.then_some(methods).ok_or(OpenError::Damaged("a list of methods does not add up"))
    }

    fn u16(&mut self) -> Result<u16, OpenError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, OpenError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, OpenError> {
        self.array().map(u64::from_le_bytes)
    }
}
