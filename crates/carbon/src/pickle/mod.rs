//! Carbon's pickle protocol: one pickled `[(name, (time, value)), …]` a frame, in Python's protocols 0 to 5.
//!
//! A frame whose program fails gives no point at all and one rejection; of a good one every item stands for itself.

mod machine;

mod argument;
mod memory;
mod opcode;
mod value;

use metric::Timestamp;

use crate::{
    Progress, RejectReason, Sink,
    frame::Expansion,
    number::{NotATime, parse_float, time_of, time_of_integer},
};
use machine::{Items, ItemsPlace, Machine};
use value::{Stop, Value};

/// The most bytes of a text that is read as a number. Many items may share one text; to parse a long one for each of them
/// would stall the connection.
const MAX_NUMBER_BYTES: usize = 512;

/// Bytes of a rejected item that are written out for the operator.
const MAX_SAMPLE_BYTES: usize = 512;

/// Levels of a rejected item that are written out: the item, its points, and what is in their place.
const SAMPLE_LEVELS: u32 = 3;

/// Decodes the body of one frame, with memory of its own. A connection keeps a [`Decoder`] instead.
pub fn decode<S: Sink>(frame: &[u8], now: Timestamp, sink: &mut S) {
    Decoder::new().decode(frame, now, sink);
}

/// Decodes frames, keeping its memory between them, so that a usual frame allocates nothing.
#[derive(Debug, Default)]
pub struct Decoder {
    machine: Machine,
    /// A rejected item, written for the operator.
    sample: Vec<u8>,
    /// How far the sink got, in a frame that has run.
    place: Option<Place>,
}

/// A place in a frame that has run.
#[derive(Debug, Clone, Copy)]
struct Place {
    items: ItemsPlace,
    /// The item before them, and its points that are left.
    begun: Option<(Value, ItemsPlace)>,
    expansion: Expansion,
}

impl Decoder {
    /// A decoder without memory yet.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Decodes the body of a frame, for a sink that always has room. `now` (Unix seconds) is what a time of -1 means.
    ///
    /// As carbon does it: lists pass for tuples, text for numbers, a `None` value is skipped in silence. As
    /// go-carbon does it: an item may have several points. The name is handed on as it is, spaces and all.
    pub fn decode<S: Sink>(&mut self, frame: &[u8], now: Timestamp, sink: &mut S) {
        let progress = self.decode_within(frame, now, sink, usize::MAX);
        debug_assert_eq!(progress, Progress::Done);
    }

    /// As `decode`, within so many bytes of memory, and until the sink has no room.
    pub fn decode_within<S: Sink>(
        &mut self,
        frame: &[u8],
        now: Timestamp,
        sink: &mut S,
        allowed_bytes: usize,
    ) -> Progress {
        let begun = match self.place.take() {
            Some(place) => Ok(place),
            None => self.begin(frame, allowed_bytes),
        };
        match begun {
            Ok(place) => {
                self.place = Run { machine: &self.machine, frame, now }.walk(place, &mut self.sample, sink);
            }
            Err(Stop::Memory) => return Progress::NeedsMemory(self.machine.wanted_bytes()),
            Err(Stop::Bad) => sink.reject(RejectReason::BadPickle, frame),
            Err(Stop::Unsafe) => sink.reject(RejectReason::UnsafePickle, frame),
        }
        if self.place.is_some() {
            return Progress::SinkFull;
        }
        self.machine.clear();
        Progress::Done
    }

    /// Bytes of memory that it has.
    pub fn memory_bytes(&self) -> usize {
        self.machine.memory_bytes() + self.sample.capacity()
    }

    /// Forgets a frame that needs memory, and frees what there is.
    pub fn release_memory(&mut self) {
        *self = Decoder::default();
    }

    fn begin(&mut self, frame: &[u8], allowed_bytes: usize) -> Result<Place, Stop> {
        let root = self.machine.run(frame, allowed_bytes)?;
        let items = self.machine.items(root).ok_or(Stop::Bad)?.place();
        Ok(Place { items, begun: None, expansion: Expansion::of(frame.len()) })
    }
}

/// A frame that has run.
struct Run<'a> {
    machine: &'a Machine,
    frame: &'a [u8],
    now: Timestamp,
}

impl Run<'_> {
    /// Calls out for every item from a place on; `sample` is memory for rejected ones. Returns the place where the sink had
    /// no room.
    fn walk<S: Sink>(&self, place: Place, sample: &mut Vec<u8>, sink: &mut S) -> Option<Place> {
        let Place { items, mut begun, mut expansion } = place;
        let mut items = self.machine.items_from(items);
        loop {
            let (item, left) = match begun.take() {
                Some((item, left)) => (item, Some(left)),
                None => (items.next()?, None),
            };
            let mut reject = |reason, sink: &mut S| {
                sample.clear();
                self.describe(item, SAMPLE_LEVELS, sample);
                sink.reject(reason, sample);
            };
            let Some((name, pairs)) = self.name_and_pairs(item) else {
                reject(RejectReason::BadItem, sink);
                continue;
            };
            let mut pairs = left.map_or(pairs, |left| self.machine.items_from(left));
            while let Some(pair) = pairs.next() {
                if !sink.has_room(name.len()) {
                    return Some(Place { items: items.place(), begun: Some((item, pairs.place_of_last())), expansion });
                }
                if expansion.take(name).is_none() {
                    reject(RejectReason::FrameExpands, sink);
                    return None;
                }
                match self.point(pair) {
                    Ok(Some((time, value))) => sink.point(name, time, value),
                    Ok(None) => {}
                    Err(RejectReason::BadItem) => {
                        reject(RejectReason::BadItem, sink);
                        break;
                    }
                    Err(reason) => reject(reason, sink),
                }
            }
        }
    }

    /// An item's name and its points. At least one point.
    #[inline]
    fn name_and_pairs(&self, item: Value) -> Option<(&[u8], Items<'_>)> {
        let mut parts = self.machine.items(item)?;
        let name = self.bytes(parts.next()?)?;
        parts.clone().next()?;
        Some((name, parts))
    }

    /// The point that a pair means; `None` when its value is None.
    #[inline]
    fn point(&self, pair: Value) -> Result<Option<(Timestamp, f64)>, RejectReason> {
        let mut parts = self.machine.items(pair).ok_or(RejectReason::BadItem)?;
        let (Some(time), Some(value), None) = (parts.next(), parts.next(), parts.next()) else {
            return Err(RejectReason::BadItem);
        };
        if let Value::None = value {
            return Ok(None);
        }
        let value = self.number(value).ok_or(RejectReason::BadValue)?;
        let time = match time {
            Value::Int(seconds) => time_of_integer(seconds, self.now),
            _ => {
                let seconds = self.number(time).ok_or(RejectReason::BadTimestamp)?;
                time_of(seconds, self.now).map_err(|NotATime| RejectReason::BadTimestamp)?
            }
        };
        if value.is_nan() {
            return Err(RejectReason::NanValue);
        }
        Ok(Some((time, value)))
    }

    /// A number, or text that `float()` reads.
    #[inline]
    fn number(&self, value: Value) -> Option<f64> {
        match value {
            Value::Float(number) => Some(number),
            Value::Int(number) => Some(number as f64),
            Value::Bool(bool) => Some(f64::from(u8::from(bool))),
            _ => {
                let text = self.bytes(value).filter(|text| text.len() <= MAX_NUMBER_BYTES)?;
                parse_float(text.trim_ascii())
            }
        }
    }

    #[inline]
    fn bytes(&self, value: Value) -> Option<&[u8]> {
        self.machine.bytes(value, self.frame)
    }

    /// Writes a value as Python would, to so many levels and about [`MAX_SAMPLE_BYTES`].
    fn describe(&self, value: Value, levels: u32, out: &mut Vec<u8>) {
        let (open, close) = match value {
            Value::None => return out.extend_from_slice(b"None"),
            Value::Bool(bool) => return out.extend_from_slice(if bool { b"True" } else { b"False" }),
            Value::Int(number) => return out.extend_from_slice(number.to_string().as_bytes()),
            Value::Float(number) => return out.extend_from_slice(number.to_string().as_bytes()),
            Value::Dict => return out.extend_from_slice(b"{...}"),
            Value::Encode | Value::Bytes => return out.extend_from_slice(b"<function>"),
            Value::Borrowed(_) | Value::Unescaped(_) => {
                let text = self.bytes(value).unwrap_or_default();
                let room = MAX_SAMPLE_BYTES.saturating_sub(out.len());
                out.push(b'\'');
                out.extend_from_slice(&text[..text.len().min(room)]);
                return out.push(b'\'');
            }
            Value::Tuple(_) | Value::List(_) if levels == 0 => return out.extend_from_slice(b"..."),
            Value::Tuple(_) if self.machine.items(value).is_some_and(|items| items.take(2).count() == 1) => {
                (b'(', &b",)"[..])
            }
            Value::Tuple(_) => (b'(', &b")"[..]),
            Value::List(_) => (b'[', &b"]"[..]),
        };
        out.push(open);
        for (i, item) in self.machine.items(value).into_iter().flatten().enumerate() {
            if i > 0 {
                out.extend_from_slice(b", ");
            }
            if out.len() >= MAX_SAMPLE_BYTES {
                out.extend_from_slice(b"...");
                break;
            }
            self.describe(item, levels - 1, out);
        }
        out.extend_from_slice(close);
    }
}
