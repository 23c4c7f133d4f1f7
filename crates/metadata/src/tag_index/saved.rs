//! The tag index as a file next to the saved registry, so that a start does not make it again from a million names.
//!
//! All integers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `plumbtg1` |
//! | 4 | version, [`VERSION`] |
//! | 8, 4 | bytes and CRC-32 of the saved registry that it belongs to |
//! | | the set of all metrics in the index |
//! | 4 | tags |
//! | per tag, by text | its text; the set of its metrics; `u32` values |
//! | per value, by text | its text; the set of its metrics |
//! | 4 | CRC-32 of everything before |
//!
//! A text is a `u16` length and as many bytes. A set is a `u32` number of ids and as many ids in rising order; or 2³² - 1, a `u32` length
//! and a bitmap in the portable format of Roaring.

use std::io::{self, BufWriter, Write};

use roaring::RoaringBitmap;

use super::{
    index::TagIndex,
    postings::{Posting, Shape},
};
use crate::name_table::ManyPlaces;

/// The first bytes.
const MAGIC: &[u8; 8] = b"plumbtg1";

/// The way that the rest is laid out.
const VERSION: u32 = 1;

/// In place of a number of ids: a bitmap follows.
const BITMAP: u32 = u32::MAX;

/// Identifies a file of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamesFile {
    /// Bytes.
    pub bytes: u64,
    /// The checksum that it ends with.
    pub checksum: u32,
}

/// Writes an index, which has no changes to settle.
pub(crate) fn write_index(index: &TagIndex, of: NamesFile, out: &mut dyn Write) -> io::Result<()> {
    let mut out = Writer(BufWriter::with_capacity(1 << 20, Checked { out, crc: crc32fast::Hasher::new() }));
    out.write_all(MAGIC)?;
    out.u32(VERSION)?;
    out.write_all(&of.bytes.to_le_bytes())?;
    out.u32(of.checksum)?;
    out.bitmap(index.all())?;
    let tags = index.tags_with_prefix("");
    out.u32(tags.len() as u32)?;
    for &tag in tags {
        out.text(index.tag_text(tag))?;
        out.set(index, index.tag_metrics(tag))?;
        let values = index.values_with_prefix(tag, "");
        out.u32(values.len() as u32)?;
        for &value in values {
            out.text(index.value_text(value))?;
            out.set(index, index.value_metrics(value))?;
        }
    }
    out.0.flush()?;
    let Checked { out, crc } = out.0.get_mut();
    out.write_all(&crc.clone().finalize().to_le_bytes())?;
    out.flush()
}

/// Reads a file of [`write_index`], and which names it belongs to.
///
/// # Errors
/// Why it cannot be used.
pub(crate) fn read_index(bytes: &[u8]) -> Result<(NamesFile, TagIndex), &'static str> {
    let (body, crc) = bytes.split_last_chunk::<4>().ok_or("it is cut short")?;
    let mut fields = Fields { rest: body };
    if fields.take(MAGIC.len())? != MAGIC {
        return Err("it is not a saved tag index");
    }
    if fields.u32()? != VERSION {
        return Err("it has another version");
    }
    let of = NamesFile { bytes: u64::from_le_bytes(fields.array()?), checksum: fields.u32()? };
    if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return Err("its checksum is wrong");
    }
    let mut index = TagIndex::of_metrics(fields.bitmap()?);
    let mut places = ManyPlaces::new(0);
    for _ in 0..fields.u32()? {
        let (text, metrics) = (fields.text()?, fields.set(&mut index)?);
        let values = fields.u32()?;
        // A value takes more bytes than one.
        if values as usize > fields.rest.len() {
            return Err("it is cut short");
        }
        let tag = index.append_tag(text, metrics, values as usize).ok_or("its tags are not in order")?;
        for _ in 0..values {
            let (text, metrics) = (fields.text()?, fields.set(&mut index)?);
            index.append_value(tag, text, metrics, &mut places).ok_or("its values are not in order")?;
        }
    }
    index.find_appended(places);
    if fields.rest.is_empty() { Ok((of, index)) } else { Err("it is too long") }
}

/// A file, and the checksum of what went into it.
struct Checked<'a> {
    out: &'a mut dyn Write,
    crc: crc32fast::Hasher,
}

impl Write for Checked<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.crc.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// What fields are written to.
struct Writer<'a>(BufWriter<Checked<'a>>);

impl Writer<'_> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn u32(&mut self, value: u32) -> io::Result<()> {
        self.write_all(&value.to_le_bytes())
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.write_all(&(text.len() as u16).to_le_bytes())?;
        self.write_all(text.as_bytes())
    }

    fn bitmap(&mut self, map: &RoaringBitmap) -> io::Result<()> {
        self.u32(BITMAP)?;
        self.u32(map.serialized_size() as u32)?;
        map.serialize_into(&mut self.0)
    }

    fn set(&mut self, index: &TagIndex, metrics: Posting) -> io::Result<()> {
        match index.postings.shape(&metrics) {
            Shape::Ids(ids) => {
                self.u32(ids.len() as u32)?;
                match *ids {
                    // Two may be in any order.
                    [one, other] => [one.min(other), one.max(other)].iter().try_for_each(|&id| self.u32(id)),
                    _ => ids.iter().try_for_each(|&id| self.u32(id)),
                }
            }
            Shape::Map(map) => self.bitmap(map),
        }
    }
}

/// The unread bytes.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or("it is cut short")?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or("it is cut short")?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        self.array().map(u32::from_le_bytes)
    }

    fn text(&mut self) -> Result<&'a str, &'static str> {
        let bytes = usize::from(u16::from_le_bytes(self.array()?));
        std::str::from_utf8(self.take(bytes)?).map_err(|_| "a text is not UTF-8")
    }

    /// A bitmap; the mark that one follows is next.
    fn bitmap(&mut self) -> Result<RoaringBitmap, &'static str> {
        if self.u32()? != BITMAP {
            return Err("a bitmap is missing");
        }
        let bytes = self.u32()? as usize;
        RoaringBitmap::deserialize_from(self.take(bytes)?).map_err(|_| "a bitmap cannot be read")
    }

    /// A set, into an index.
    fn set(&mut self, index: &mut TagIndex) -> Result<Posting, &'static str> {
        if self.rest.first_chunk() == Some(&BITMAP.to_le_bytes()) {
            return Ok(index.postings.of_map(self.bitmap()?));
        }
        let count = self.u32()? as usize;
        let bytes = self.take(count.checked_mul(4).ok_or("it is cut short")?)?;
        let ids = bytes.as_chunks().0.iter().map(|&id| u32::from_le_bytes(id));
        if !ids.clone().is_sorted_by(|a, b| a < b) || ids.clone().any(|id| id == u32::MAX) {
            return Err("ids are not in order");
        }
        Ok(index.postings.of_ids(ids))
    }
}
