//! Carbon's pickle protocol: one pickled `[(name, (time, value)), …]` a frame, in Python's protocols 0 to 5.
//!
//! A pickle is a program for a stack machine. This one knows lists, tuples, text, bytes, numbers and the memo,
//! and no way to call anything. In steps:
//!
//! 1. run the program: every value is sixteen bytes and refers to the frame or to an arena, never to another
//!    value's memory, so that sharing costs nothing, nothing is expanded, and nothing recurses;
//! 2. walk the root's items: each is a name and its points, or is refused alone.
//!
//! A frame whose program fails gives no point at all and one refusal.

use metric::Timestamp;

use crate::{
    Reject, Sink,
    frame::Expansion,
    number::{NotATime, parse_float, time_of, time_of_integer},
};

/// Values (list items, stack, memo) that a frame may make; a frame of 64 MiB from a relay makes fewer. Beyond it
/// the frame is refused. Sixteen bytes each.
const MAX_VALUES: usize = 8 << 20;

/// Bytes of text that is read as a number, at most; a longer one is no number.
const MAX_NUMBER_BYTES: usize = 512;

/// Values for which memory is kept between frames.
const KEPT_VALUES: usize = 64 << 10;

/// Bytes of a refused item that are written out for the operator.
const MAX_SAMPLE_BYTES: usize = 512;

/// Decodes the body of one frame, with memory of its own. A connection keeps a [`Decoder`] instead.
pub fn decode<S: Sink>(frame: &[u8], now: Timestamp, sink: &mut S) {
    Decoder::new().decode(frame, now, sink);
}

/// Decodes frames, keeping its memory between them, so that a usual frame allocates nothing.
#[derive(Debug, Default)]
pub struct Decoder {
    stack: Vec<Value>,
    /// Heights of the stack at the open marks.
    marks: Vec<usize>,
    memo: Vec<Option<Value>>,
    /// The items of tuples and of the chunks of lists.
    items: Vec<Value>,
    lists: Vec<List>,
    chunks: Vec<Chunk>,
    /// Text that had to be unescaped.
    text: Vec<u8>,
    /// Bytes of text that `_codecs.encode` was given so far.
    encoded_bytes: usize,
    /// A refused item, written for the operator.
    sample: Vec<u8>,
}

/// Anything in a pickle. Offsets are 32 bits, because a frame is shorter than 4 GiB.
#[derive(Debug, Clone, Copy)]
enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Text or bytes in the frame.
    Borrowed(Span),
    /// Text or bytes in [`Decoder::text`].
    Unescaped(Span),
    /// In [`Decoder::items`].
    Tuple(Span),
    /// In [`Decoder::lists`].
    List(u32),
    /// A dictionary, which no point has; its contents are not kept.
    Dict,
    /// `_codecs.encode`: how Python 3 writes bytes in protocols 0 to 2.
    Encode,
    /// `bytes`: how Python 3 writes empty bytes there.
    Bytes,
}

/// Where a run of bytes or values begins and how many they are.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    len: u32,
}

/// A list grows, so that its items lie in chunks, in order.
#[derive(Debug, Clone, Copy)]
struct List {
    /// First and last in [`Decoder::chunks`].
    chunks: Option<(u32, u32)>,
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    items: Span,
    next: Option<u32>,
}

/// Why a program stops.
enum Stop {
    /// Not a pickle, or beyond the bounds.
    Bad,
    /// It would run something.
    Unsafe,
}

impl Span {
    fn new(start: usize, len: usize) -> Result<Span, Stop> {
        match (u32::try_from(start), u32::try_from(len)) {
            (Ok(start), Ok(len)) => Ok(Span { start, len }),
            _ => Err(Stop::Bad),
        }
    }

    /// The run itself, from what the span was made for.
    #[inline]
    fn of<T>(self, all: &[T]) -> &[T] {
        all.get(self.start as usize..).and_then(|rest| rest.get(..self.len as usize)).unwrap_or_default()
    }
}

impl Decoder {
    /// A decoder without memory yet.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Decodes the body of a frame. `now` (Unix seconds) is what a time of -1 means.
    ///
    /// As carbon does it: lists pass for tuples, text for numbers, a `None` value is skipped in silence. As
    /// go-carbon does it: an item may have several points. The name is handed on as it is, spaces and all.
    pub fn decode<S: Sink>(&mut self, frame: &[u8], now: Timestamp, sink: &mut S) {
        match self.run(frame) {
            Ok(root) => self.walk(root, frame, now, sink),
            Err(Stop::Bad) => sink.reject(Reject::BadPickle, frame),
            Err(Stop::Unsafe) => sink.reject(Reject::UnsafePickle, frame),
        }
        self.clear();
    }

    /// Runs the program; the root is the value on top when it stops.
    fn run(&mut self, frame: &[u8]) -> Result<Value, Stop> {
        let mut rest = frame;
        loop {
            let (&opcode, after) = rest.split_first().ok_or(Stop::Bad)?;
            rest = after;
            match opcode {
                b'.' => return self.pop(),
                b'X' | b'T' | b'B' => {
                    let length = u32::from_le_bytes(take_chunk(&mut rest)?);
                    self.push_bytes(frame, &mut rest, u64::from(length))?;
                }
                b'U' | b'C' | 0x8c => {
                    let [length] = take_chunk(&mut rest)?;
                    self.push_bytes(frame, &mut rest, u64::from(length))?;
                }
                0x8d | 0x8e | 0x96 => {
                    let length = u64::from_le_bytes(take_chunk(&mut rest)?);
                    self.push_bytes(frame, &mut rest, length)?;
                }
                b'J' => self.push(Value::Int(i64::from(i32::from_le_bytes(take_chunk(&mut rest)?))))?,
                b'K' => self.push(Value::Int(i64::from(u8::from_le_bytes(take_chunk(&mut rest)?))))?,
                b'M' => self.push(Value::Int(i64::from(u16::from_le_bytes(take_chunk(&mut rest)?))))?,
                b'G' => self.push(Value::Float(f64::from_be_bytes(take_chunk(&mut rest)?)))?,
                0x86 => self.tuple_of_top(2)?,
                b'q' => {
                    let [number] = take_chunk(&mut rest)?;
                    self.put(frame, u64::from(number))?;
                }
                b'r' => {
                    let number = u32::from_le_bytes(take_chunk(&mut rest)?);
                    self.put(frame, u64::from(number))?;
                }
                0x94 => self.put(frame, self.memo.len() as u64)?,
                b'h' => {
                    let [number] = take_chunk(&mut rest)?;
                    self.get(u64::from(number))?;
                }
                b'j' => {
                    let number = u32::from_le_bytes(take_chunk(&mut rest)?);
                    self.get(u64::from(number))?;
                }
                b'(' => {
                    within(self.marks.len())?;
                    self.marks.push(self.stack.len());
                }
                b'e' => {
                    let from = self.pop_mark()?;
                    self.append(from)?;
                }
                b'a' => {
                    let from = self.floor_of_top(1)?;
                    self.append(from)?;
                }
                b']' => self.push_list()?,
                b'l' => {
                    let from = self.pop_mark()?;
                    self.push_list()?;
                    // The list goes below its items, where `append` looks for it.
                    self.stack.get_mut(from..).ok_or(Stop::Bad)?.rotate_right(1);
                    self.append(from + 1)?;
                }
                b't' => {
                    let from = self.pop_mark()?;
                    self.tuple(from)?;
                }
                b')' => self.push(Value::Tuple(Span { start: 0, len: 0 }))?,
                0x85 => self.tuple_of_top(1)?,
                0x87 => self.tuple_of_top(3)?,
                b'N' => self.push(Value::None)?,
                0x88 => self.push(Value::Bool(true))?,
                0x89 => self.push(Value::Bool(false))?,
                0x8a => {
                    let [length] = take_chunk(&mut rest)?;
                    let number = take(&mut rest, u64::from(length))?;
                    self.push(long(number))?;
                }
                0x8b => {
                    let length = i32::from_le_bytes(take_chunk(&mut rest)?);
                    let number = take(&mut rest, u64::try_from(length).map_err(|_| Stop::Bad)?)?;
                    self.push(long(number))?;
                }
                b'I' => self.push(match take_line(&mut rest)? {
                    b"00" => Value::Bool(false),
                    b"01" => Value::Bool(true),
                    text => decimal(text)?,
                })?,
                b'L' => {
                    let text = take_line(&mut rest)?;
                    self.push(decimal(text.strip_suffix(b"L").unwrap_or(text))?)?;
                }
                b'F' => {
                    let number = parse_float(take_line(&mut rest)?.trim_ascii()).ok_or(Stop::Bad)?;
                    self.push(Value::Float(number))?;
                }
                b'S' => {
                    let quoted = take_line(&mut rest)?.trim_ascii_end();
                    let text = match quoted {
                        [b'\'', text @ .., b'\''] | [b'"', text @ .., b'"'] => text,
                        _ => return Err(Stop::Bad),
                    };
                    self.push_unescaped(frame, text, unescape_string)?;
                }
                b'V' => {
                    let text = take_line(&mut rest)?;
                    self.push_unescaped(frame, text, unescape_unicode)?;
                }
                b'p' => {
                    let number = memo_number(take_line(&mut rest)?)?;
                    self.put(frame, number)?;
                }
                b'g' => {
                    let number = memo_number(take_line(&mut rest)?)?;
                    self.get(number)?;
                }
                b'0' => match self.marks.last() {
                    Some(&mark) if mark == self.stack.len() => drop(self.marks.pop()),
                    _ => drop(self.pop()?),
                },
                b'1' => {
                    let from = self.pop_mark()?;
                    self.stack.truncate(from);
                }
                b'2' => {
                    let top = self.top()?;
                    self.push(top)?;
                }
                b'}' => self.push(Value::Dict)?,
                b'd' => {
                    let from = self.pop_mark()?;
                    self.stack.truncate(from);
                    self.push(Value::Dict)?;
                }
                b's' => {
                    let from = self.floor_of_top(2)?;
                    self.set_items(from)?;
                }
                b'u' => {
                    let from = self.pop_mark()?;
                    self.set_items(from)?;
                }
                0x80 => {
                    let [protocol] = take_chunk(&mut rest)?;
                    if protocol > 5 {
                        return Err(Stop::Bad);
                    }
                }
                0x95 => {
                    let length = u64::from_le_bytes(take_chunk(&mut rest)?);
                    if length > rest.len() as u64 {
                        return Err(Stop::Bad);
                    }
                }
                b'c' => {
                    let module = take_line(&mut rest)?;
                    let name = take_line(&mut rest)?;
                    self.push(match (module, name) {
                        (b"_codecs", b"encode") => Value::Encode,
                        (b"__builtin__" | b"builtins", b"bytes") => Value::Bytes,
                        _ => return Err(Stop::Unsafe),
                    })?;
                }
                b'R' => self.reduce(frame)?,
                // Everything else that Python knows finds or makes an object: INST, OBJ, BUILD, NEWOBJ,
                // NEWOBJ_EX, STACK_GLOBAL, EXT1 to EXT4, PERSID and BINPERSID.
                b'i' | b'o' | b'b' | 0x81 | 0x92 | 0x93 | 0x82..=0x84 | b'P' | b'Q' => return Err(Stop::Unsafe),
                _ => return Err(Stop::Bad),
            }
        }
    }

    /// Calls out for every item of the root.
    fn walk<S: Sink>(&mut self, root: Value, frame: &[u8], now: Timestamp, sink: &mut S) {
        let mut expansion = Expansion::of(frame.len());
        let mut next = match root {
            Value::Tuple(items) => Some(Chunk { items, next: None }),
            Value::List(list) => self.first_chunk(list),
            _ => return sink.reject(Reject::BadPickle, frame),
        };
        let mut sample = std::mem::take(&mut self.sample);
        while let Some(chunk) = next {
            for &item in chunk.items.of(&self.items) {
                let mut refuse = |reason, sink: &mut S| {
                    sample.clear();
                    self.describe(item, frame, 3, &mut sample);
                    sink.reject(reason, &sample);
                };
                let Some([name, first]) = self.first_two(item) else {
                    refuse(Reject::BadItem, sink);
                    continue;
                };
                let Some(name) = self.bytes(name, frame) else {
                    refuse(Reject::BadItem, sink);
                    continue;
                };
                let others = match item {
                    Value::Tuple(parts) => parts.of(&self.items).get(2..).unwrap_or_default(),
                    _ => &[],
                };
                for pair in std::iter::once(first).chain(others.iter().copied()) {
                    if expansion.take(name).is_none() {
                        refuse(Reject::FrameExpands, sink);
                        self.sample = sample;
                        return;
                    }
                    match self.point(pair, frame, now) {
                        Ok(Some((time, value))) => sink.point(name, time, value),
                        Ok(None) => {}
                        Err(reason) => {
                            refuse(reason, sink);
                            if reason == Reject::BadItem {
                                break;
                            }
                        }
                    }
                }
            }
            next = chunk.next.and_then(|next| self.chunks.get(next as usize).copied());
        }
        self.sample = sample;
    }

    /// The point that a pair means; `None` when its value is None.
    #[inline]
    fn point(&self, pair: Value, frame: &[u8], now: Timestamp) -> Result<Option<(Timestamp, f64)>, Reject> {
        let [time, value] = self.first_two(pair).filter(|_| self.count(pair) == 2).ok_or(Reject::BadItem)?;
        if let Value::None = value {
            return Ok(None);
        }
        let value = self.number(value, frame).ok_or(Reject::BadValue)?;
        let time = match time {
            Value::Int(seconds) => time_of_integer(seconds, now),
            _ => {
                let seconds = self.number(time, frame).ok_or(NotATime);
                seconds.and_then(|seconds| time_of(seconds, now)).map_err(|NotATime| Reject::BadTimestamp)?
            }
        };
        if value.is_nan() {
            return Err(Reject::NanValue);
        }
        Ok(Some((time, value)))
    }

    /// A number, or text that `float()` reads.
    #[inline]
    fn number(&self, value: Value, frame: &[u8]) -> Option<f64> {
        match value {
            Value::Float(number) => Some(number),
            Value::Int(number) => Some(number as f64),
            Value::Bool(bool) => Some(f64::from(u8::from(bool))),
            _ => {
                let text = self.bytes(value, frame)?;
                // Text may be shared by many items, so that reading a long one again and again would stall us.
                if text.len() > MAX_NUMBER_BYTES { None } else { parse_float(text.trim_ascii()) }
            }
        }
    }

    /// Text or bytes.
    #[inline]
    fn bytes<'a>(&'a self, value: Value, frame: &'a [u8]) -> Option<&'a [u8]> {
        match value {
            Value::Borrowed(span) => Some(span.of(frame)),
            Value::Unescaped(span) => Some(span.of(&self.text)),
            _ => None,
        }
    }

    /// The first two items of a tuple or a list, when there are as many. A list of more than two is no item.
    #[inline]
    fn first_two(&self, value: Value) -> Option<[Value; 2]> {
        match value {
            Value::Tuple(span) => span.of(&self.items).first_chunk().copied(),
            Value::List(list) => {
                let mut first = self.first_items(list);
                let two = [first.next()?, first.next()?];
                first.next().is_none().then_some(two)
            }
            _ => None,
        }
    }

    /// How many items a tuple has; for a list, two when `first_two` took it.
    #[inline]
    fn count(&self, value: Value) -> u32 {
        if let Value::Tuple(span) = value { span.len } else { 2 }
    }

    fn first_items(&self, list: u32) -> impl Iterator<Item = Value> {
        let mut chunk = self.first_chunk(list);
        let mut at = 0;
        std::iter::from_fn(move || {
            loop {
                let current = chunk?;
                if let Some(&item) = current.items.of(&self.items).get(at) {
                    at += 1;
                    return Some(item);
                }
                chunk = current.next.and_then(|next| self.chunks.get(next as usize).copied());
                at = 0;
            }
        })
    }

    fn first_chunk(&self, list: u32) -> Option<Chunk> {
        let (first, _) = self.lists.get(list as usize)?.chunks?;
        self.chunks.get(first as usize).copied()
    }

    /// Writes a value as Python would, to so many levels and [`MAX_SAMPLE_BYTES`].
    fn describe(&self, value: Value, frame: &[u8], levels: u32, out: &mut Vec<u8>) {
        match value {
            Value::None => out.extend_from_slice(b"None"),
            Value::Bool(bool) => out.extend_from_slice(if bool { b"True" } else { b"False" }),
            Value::Int(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Value::Float(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Value::Borrowed(_) | Value::Unescaped(_) => {
                let text = self.bytes(value, frame).unwrap_or_default();
                let room = MAX_SAMPLE_BYTES.saturating_sub(out.len());
                out.push(b'\'');
                out.extend_from_slice(&text[..text.len().min(room)]);
                out.push(b'\'');
            }
            Value::Dict => out.extend_from_slice(b"{...}"),
            Value::Encode | Value::Bytes => out.extend_from_slice(b"<function>"),
            Value::Tuple(_) | Value::List(_) if levels == 0 => out.extend_from_slice(b"..."),
            Value::Tuple(span) => {
                out.push(b'(');
                self.describe_all(span.of(&self.items).iter().copied(), frame, levels, out);
                out.extend_from_slice(if span.len == 1 { b",)" } else { b")" });
            }
            Value::List(list) => {
                out.push(b'[');
                self.describe_all(self.first_items(list), frame, levels, out);
                out.push(b']');
            }
        }
    }

    fn describe_all(&self, items: impl Iterator<Item = Value>, frame: &[u8], levels: u32, out: &mut Vec<u8>) {
        for (i, item) in items.enumerate() {
            if i > 0 {
                out.extend_from_slice(b", ");
            }
            if out.len() >= MAX_SAMPLE_BYTES {
                return out.extend_from_slice(b"...");
            }
            self.describe(item, frame, levels - 1, out);
        }
    }

    #[inline]
    fn push(&mut self, value: Value) -> Result<(), Stop> {
        within(self.stack.len())?;
        self.stack.push(value);
        Ok(())
    }

    /// Pushes `length` bytes from the front of `rest`, which is the end of `frame`.
    #[inline]
    fn push_bytes(&mut self, frame: &[u8], rest: &mut &[u8], length: u64) -> Result<(), Stop> {
        let start = frame.len() - rest.len();
        let bytes = take(rest, length)?;
        self.push(Value::Borrowed(Span::new(start, bytes.len())?))
    }

    /// Pushes `text`, a part of `frame`; `unescape` appends what it means.
    fn push_unescaped(
        &mut self,
        frame: &[u8],
        text: &[u8],
        unescape: impl FnOnce(&[u8], &mut Vec<u8>) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if text.is_ascii() && !text.contains(&b'\\') {
            let start = text.as_ptr() as usize - frame.as_ptr() as usize;
            return self.push(Value::Borrowed(Span::new(start, text.len())?));
        }
        let start = self.text.len();
        unescape(text, &mut self.text)?;
        self.push(Value::Unescaped(Span::new(start, self.text.len() - start)?))
    }

    fn push_list(&mut self) -> Result<(), Stop> {
        within(self.lists.len())?;
        self.lists.push(List { chunks: None });
        self.push(Value::List(self.lists.len() as u32 - 1))
    }

    /// The height of the stack above which the top `count` values lie; a mark is never reached below.
    #[inline]
    fn floor_of_top(&self, count: usize) -> Result<usize, Stop> {
        let bottom = self.marks.last().copied().unwrap_or(0);
        match self.stack.len().checked_sub(count) {
            Some(from) if from >= bottom => Ok(from),
            _ => Err(Stop::Bad),
        }
    }

    #[inline]
    fn pop(&mut self) -> Result<Value, Stop> {
        self.floor_of_top(1)?;
        self.stack.pop().ok_or(Stop::Bad)
    }

    #[inline]
    fn top(&self) -> Result<Value, Stop> {
        self.floor_of_top(1)?;
        self.stack.last().copied().ok_or(Stop::Bad)
    }

    #[inline]
    fn pop_mark(&mut self) -> Result<usize, Stop> {
        self.marks.pop().ok_or(Stop::Bad)
    }

    #[inline]
    fn tuple_of_top(&mut self, count: usize) -> Result<(), Stop> {
        let from = self.floor_of_top(count)?;
        self.tuple(from)
    }

    /// Replaces everything above `from` by a tuple of it.
    #[inline]
    fn tuple(&mut self, from: usize) -> Result<(), Stop> {
        let span = self.keep_items(from)?;
        self.push(Value::Tuple(span))
    }

    /// Moves everything above `from` to the arena of items.
    #[inline]
    fn keep_items(&mut self, from: usize) -> Result<Span, Stop> {
        let moved = self.stack.get(from..).ok_or(Stop::Bad)?;
        within(self.items.len() + moved.len())?;
        let span = Span::new(self.items.len(), moved.len())?;
        self.items.extend_from_slice(moved);
        self.stack.truncate(from);
        Ok(span)
    }

    /// Moves everything above `from` to the end of the list right below it.
    fn append(&mut self, from: usize) -> Result<(), Stop> {
        let bottom = self.marks.last().copied().unwrap_or(0);
        let list = match from.checked_sub(1) {
            Some(below) if below >= bottom => self.stack.get(below).copied(),
            _ => None,
        };
        let Some(Value::List(list)) = list else {
            return Err(Stop::Bad);
        };
        let items = self.keep_items(from)?;
        if items.len == 0 {
            return Ok(());
        }
        let list = self.lists.get_mut(list as usize).ok_or(Stop::Bad)?;
        let chunk = self.chunks.len() as u32;
        match &mut list.chunks {
            None => list.chunks = Some((chunk, chunk)),
            Some((_, last)) => {
                let before = self.chunks.get_mut(*last as usize).ok_or(Stop::Bad)?;
                if before.items.start + before.items.len == items.start {
                    before.items.len += items.len;
                    return Ok(());
                }
                before.next = Some(chunk);
                *last = chunk;
            }
        }
        self.chunks.push(Chunk { items, next: None });
        Ok(())
    }

    /// Forgets the pairs above `from`; a dictionary lies right below them.
    fn set_items(&mut self, from: usize) -> Result<(), Stop> {
        if !self.stack.len().saturating_sub(from).is_multiple_of(2) {
            return Err(Stop::Bad);
        }
        self.stack.truncate(from);
        match self.top()? {
            Value::Dict => Ok(()),
            _ => Err(Stop::Bad),
        }
    }

    /// Keeps the top in the memo. Picklers count from 0 or 1, and keeping takes a byte at least, so that a
    /// number beyond the frame's length is no pickler's, and would only make us allocate.
    #[inline]
    fn put(&mut self, frame: &[u8], number: u64) -> Result<(), Stop> {
        let top = self.top()?;
        if number > frame.len() as u64 {
            return Err(Stop::Bad);
        }
        let number = number as usize;
        if number >= self.memo.len() {
            within(number)?;
            self.memo.resize(number + 1, None);
        }
        *self.memo.get_mut(number).ok_or(Stop::Bad)? = Some(top);
        Ok(())
    }

    #[inline]
    fn get(&mut self, number: u64) -> Result<(), Stop> {
        let number = usize::try_from(number).map_err(|_| Stop::Bad)?;
        let value = self.memo.get(number).copied().flatten().ok_or(Stop::Bad)?;
        self.push(value)
    }

    /// Replaces a function and its arguments by the bytes they mean; there are two such functions.
    fn reduce(&mut self, frame: &[u8]) -> Result<(), Stop> {
        let arguments = self.pop()?;
        let function = self.pop()?;
        let Value::Tuple(span) = arguments else {
            return Err(Stop::Bad);
        };
        let text = match (function, span.of(&self.items)) {
            (Value::Bytes, []) => return self.push(Value::Borrowed(Span { start: 0, len: 0 })),
            (Value::Encode, &[text, charset]) => match self.bytes(charset, frame) {
                Some(b"latin1" | b"latin-1") => text,
                _ => return Err(Stop::Unsafe),
            },
            _ => return Err(Stop::Unsafe),
        };
        let bytes = self.bytes(text, frame).ok_or(Stop::Bad)?;
        // Python encodes a text once and then keeps the bytes in the memo. More work than the frame is long
        // means a text that is shared to keep us busy.
        let encoded_bytes = self.encoded_bytes + bytes.len();
        if encoded_bytes > frame.len() {
            return Err(Stop::Bad);
        }
        if bytes.is_ascii() {
            self.encoded_bytes = encoded_bytes;
            return self.push(text);
        }
        // Each character of the text stands for the byte of its number.
        let characters = std::str::from_utf8(bytes).map_err(|_| Stop::Bad)?.chars();
        let bytes = characters.map(|c| u8::try_from(c).map_err(|_| Stop::Bad)).collect::<Result<Vec<u8>, Stop>>()?;
        self.encoded_bytes = encoded_bytes;
        let start = self.text.len();
        self.text.extend_from_slice(&bytes);
        self.push(Value::Unescaped(Span::new(start, bytes.len())?))
    }

    /// Forgets a frame, and the memory of an uncommonly large one.
    fn clear(&mut self) {
        let kept = [&self.stack, &self.items].map(Vec::capacity).iter().sum::<usize>()
            + self.memo.capacity()
            + self.lists.capacity()
            + self.chunks.capacity()
            + self.text.capacity() / size_of::<Value>();
        if kept > KEPT_VALUES {
            *self = Decoder::new();
            return;
        }
        self.stack.clear();
        self.marks.clear();
        self.memo.clear();
        self.items.clear();
        self.lists.clear();
        self.chunks.clear();
        self.text.clear();
        self.encoded_bytes = 0;
    }
}

/// Whether there is room for another value.
#[inline]
fn within(count: usize) -> Result<(), Stop> {
    if count < MAX_VALUES { Ok(()) } else { Err(Stop::Bad) }
}

#[inline]
fn take<'a>(rest: &mut &'a [u8], length: u64) -> Result<&'a [u8], Stop> {
    let length = usize::try_from(length).map_err(|_| Stop::Bad)?;
    let (bytes, after) = rest.split_at_checked(length).ok_or(Stop::Bad)?;
    *rest = after;
    Ok(bytes)
}

#[inline]
fn take_chunk<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Stop> {
    let (chunk, after) = rest.split_first_chunk::<N>().ok_or(Stop::Bad)?;
    *rest = after;
    Ok(*chunk)
}

/// An argument that ends at a LF, without it and a CR before it.
fn take_line<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Stop> {
    let end = memchr::memchr(b'\n', rest).ok_or(Stop::Bad)?;
    let line = take(rest, end as u64)?;
    take(rest, 1)?;
    Ok(line.strip_suffix(b"\r").unwrap_or(line))
}

fn memo_number(text: &[u8]) -> Result<u64, Stop> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Stop::Bad)
}

/// An integer in decimal; a float when it is large.
fn decimal(text: &[u8]) -> Result<Value, Stop> {
    let text = std::str::from_utf8(text).map_err(|_| Stop::Bad)?.trim();
    if let Ok(number) = text.parse() {
        return Ok(Value::Int(number));
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Stop::Bad);
    }
    text.parse().map(Value::Float).map_err(|_| Stop::Bad)
}

/// An integer in two's complement, lowest byte first; a float when it is large.
fn long(bytes: &[u8]) -> Value {
    let negative = bytes.last().is_some_and(|&byte| byte >= 0x80);
    let fill = if negative { 0xff } else { 0 };
    if bytes.len() <= 8 {
        let mut number = [fill; 8];
        number[..bytes.len()].copy_from_slice(bytes);
        return Value::Int(i64::from_le_bytes(number));
    }
    // The sum of the bytes' worth, each negated by the fill; a double overflows to infinity as it should.
    let magnitude = bytes.iter().rev().fold(0.0, |sum, &byte| sum * 256.0 + f64::from(byte ^ fill));
    Value::Float(if negative { -magnitude - 1.0 } else { magnitude })
}

/// Python 2's `repr` of a string without its quotes.
fn unescape_string(text: &[u8], out: &mut Vec<u8>) -> Result<(), Stop> {
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let (&escape, after) = rest.split_first().ok_or(Stop::Bad)?;
        rest = after;
        match escape {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'a' => out.push(7),
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'v' => out.push(11),
            b'\\' | b'\'' | b'"' => out.push(escape),
            b'x' => out.push(hexadecimal(take(&mut rest, 2)?)? as u8),
            b'0'..=b'7' => {
                let mut number = u32::from(escape - b'0');
                for _ in 0..2 {
                    let Some((&digit @ b'0'..=b'7', after)) = rest.split_first() else { break };
                    number = number * 8 + u32::from(digit - b'0');
                    rest = after;
                }
                out.push(number as u8);
            }
            _ => out.extend_from_slice(&[b'\\', escape]),
        }
    }
    Ok(())
}

/// Python's raw-unicode-escape as UTF-8: `\uXXXX` and `\UXXXXXXXX`; every other byte is a character of Latin-1.
fn unescape_unicode(text: &[u8], out: &mut Vec<u8>) -> Result<(), Stop> {
    let mut rest = text;
    let mut buffer = [0; 4];
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let digits = match (byte, rest.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => {
                out.extend_from_slice(char::from(byte).encode_utf8(&mut buffer).as_bytes());
                continue;
            }
        };
        take(&mut rest, 1)?;
        let character = char::from_u32(hexadecimal(take(&mut rest, digits)?)?).ok_or(Stop::Bad)?;
        out.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
    }
    Ok(())
}

fn hexadecimal(digits: &[u8]) -> Result<u32, Stop> {
    digits.iter().try_fold(0, |number, &digit| {
        let digit = char::from(digit).to_digit(16).ok_or(Stop::Bad)?;
        Ok(number << 4 | digit)
    })
}
