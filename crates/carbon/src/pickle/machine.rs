//! The stack machine that a pickle is a program for: lists, tuples, text, bytes, numbers and the memo.
//!
//! Every value is sixteen bytes and refers to the frame or to an arena, never to another value's memory, so that
//! sharing costs nothing, nothing is expanded, and nothing recurses. There is no way to call anything.

use std::slice;

use super::{
    argument::{decimal, long, memo_number, take, take_chunk, take_line, unescape_string, unescape_unicode},
    memory::{Memory, reserve},
    opcode::*,
    value::{Span, Stop, Value},
};
use crate::number::parse_float;

/// Bytes of memory that are kept between frames.
const KEPT_BYTES: usize = 1 << 20;

/// Runs pickles, keeping its memory between them.
#[derive(Debug, Default)]
pub(super) struct Machine {
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
    memory: Memory,
}

/// A list grows, so its items are in chunks, in order.
#[derive(Debug, Clone, Copy)]
struct List {
    /// First and last in [`Machine::chunks`].
    chunks: Option<(u32, u32)>,
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    items: Span,
    next: Option<u32>,
}

/// The items of a tuple or a list, in order.
#[derive(Clone)]
pub(super) struct Items<'a> {
    machine: &'a Machine,
    chunk: slice::Iter<'a, Value>,
    next: Option<u32>,
}

/// A place among the items of a tuple or a list, for [`Machine::items_from`].
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemsPlace {
    chunk: Span,
    next: Option<u32>,
}

impl Items<'_> {
    pub(super) fn place(&self) -> ItemsPlace {
        let rest = self.chunk.as_slice();
        let start = match rest.is_empty() {
            true => 0,
            false => (rest.as_ptr() as usize - self.machine.items.as_ptr() as usize) / size_of::<Value>(),
        };
        ItemsPlace { chunk: Span { start: start as u32, len: rest.len() as u32 }, next: self.next }
    }

    /// The place of the item that came last.
    pub(super) fn place_of_last(&self) -> ItemsPlace {
        let rest = self.chunk.as_slice();
        let after = (rest.as_ptr() as usize - self.machine.items.as_ptr() as usize) / size_of::<Value>();
        ItemsPlace { chunk: Span { start: after as u32 - 1, len: rest.len() as u32 + 1 }, next: self.next }
    }
}

impl Iterator for Items<'_> {
    type Item = Value;

    #[inline]
    fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(&item) = self.chunk.next() {
                return Some(item);
            }
            let chunk = self.machine.chunks.get(self.next? as usize)?;
            self.chunk = chunk.items.of(&self.machine.items).iter();
            self.next = chunk.next;
        }
    }
}

impl Machine {
    /// Runs the program within so many bytes of memory; the root is the value on top when it stops. One that stops for
    /// memory can be run again, with more.
    pub(super) fn run(&mut self, frame: &[u8], allowed: usize) -> Result<Value, Stop> {
        self.forget();
        self.memory.allowed = allowed;
        let mut rest = frame;
        loop {
            let (&opcode, after) = rest.split_first().ok_or(Stop::Bad)?;
            rest = after;
            match opcode {
                STOP => return self.pop(),
                BINUNICODE | BINSTRING | BINBYTES => {
                    let length = u32::from_le_bytes(take_chunk(&mut rest)?);
                    self.push_bytes(frame, &mut rest, u64::from(length))?;
                }
                SHORT_BINSTRING | SHORT_BINBYTES | SHORT_BINUNICODE => {
                    let [length] = take_chunk(&mut rest)?;
                    self.push_bytes(frame, &mut rest, u64::from(length))?;
                }
                BINUNICODE8 | BINBYTES8 | BYTEARRAY8 => {
                    let length = u64::from_le_bytes(take_chunk(&mut rest)?);
                    self.push_bytes(frame, &mut rest, length)?;
                }
                BININT => self.push(Value::Int(i64::from(i32::from_le_bytes(take_chunk(&mut rest)?))))?,
                BININT1 => self.push(Value::Int(i64::from(u8::from_le_bytes(take_chunk(&mut rest)?))))?,
                BININT2 => self.push(Value::Int(i64::from(u16::from_le_bytes(take_chunk(&mut rest)?))))?,
                BINFLOAT => self.push(Value::Float(f64::from_be_bytes(take_chunk(&mut rest)?)))?,
                TUPLE2 => self.tuple_of_top(2)?,
                BINPUT => {
                    let [number] = take_chunk(&mut rest)?;
                    self.put(frame, u64::from(number))?;
                }
                LONG_BINPUT => {
                    let number = u32::from_le_bytes(take_chunk(&mut rest)?);
                    self.put(frame, u64::from(number))?;
                }
                MEMOIZE => self.put(frame, self.memo.len() as u64)?,
                BINGET => {
                    let [number] = take_chunk(&mut rest)?;
                    self.get(u64::from(number))?;
                }
                LONG_BINGET => {
                    let number = u32::from_le_bytes(take_chunk(&mut rest)?);
                    self.get(u64::from(number))?;
                }
                MARK => {
                    reserve(&mut self.marks, 1, &mut self.memory)?;
                    self.marks.push(self.stack.len());
                }
                APPENDS => {
                    let from = self.pop_mark()?;
                    self.append(from)?;
                }
                APPEND => {
                    let from = self.floor_of_top(1)?;
                    self.append(from)?;
                }
                EMPTY_LIST => self.push_list()?,
                _ => self.run_rare(opcode, frame, &mut rest)?,
            }
        }
    }

    /// Opcodes that senders of points use little: those of the stack, dictionaries and objects.
    #[cold]
    fn run_rare(&mut self, opcode: u8, frame: &[u8], rest: &mut &[u8]) -> Result<(), Stop> {
        match opcode {
            LIST => {
                let from = self.pop_mark()?;
                self.push_list()?;
                // The list goes below its items, where `append` looks for it.
                self.stack.get_mut(from..).ok_or(Stop::Bad)?.rotate_right(1);
                self.append(from + 1)?;
            }
            TUPLE => {
                let from = self.pop_mark()?;
                self.tuple(from)?;
            }
            EMPTY_TUPLE => self.push(Value::Tuple(Span { start: 0, len: 0 }))?,
            TUPLE1 => self.tuple_of_top(1)?,
            TUPLE3 => self.tuple_of_top(3)?,
            NONE => self.push(Value::None)?,
            NEWTRUE => self.push(Value::Bool(true))?,
            NEWFALSE => self.push(Value::Bool(false))?,
            POP => match self.marks.last() {
                Some(&mark) if mark == self.stack.len() => drop(self.marks.pop()),
                _ => drop(self.pop()?),
            },
            POP_MARK => {
                let from = self.pop_mark()?;
                self.stack.truncate(from);
            }
            DUP => {
                let top = self.top()?;
                self.push(top)?;
            }
            EMPTY_DICT => self.push(Value::Dict)?,
            DICT => {
                let from = self.pop_mark()?;
                self.stack.truncate(from);
                self.push(Value::Dict)?;
            }
            SETITEM => {
                let from = self.floor_of_top(2)?;
                self.set_items(from)?;
            }
            SETITEMS => {
                let from = self.pop_mark()?;
                self.set_items(from)?;
            }
            PROTO => {
                let [protocol] = take_chunk(rest)?;
                if protocol > 5 {
                    return Err(Stop::Bad);
                }
            }
            FRAME => {
                let length = u64::from_le_bytes(take_chunk(rest)?);
                if length > rest.len() as u64 {
                    return Err(Stop::Bad);
                }
            }
            REDUCE => self.reduce(frame)?,
            // All of these find or make an object.
            INST | OBJ | BUILD | NEWOBJ | NEWOBJ_EX | STACK_GLOBAL | EXT1 | EXT2 | EXT4 | PERSID | BINPERSID => {
                return Err(Stop::Unsafe);
            }
            _ => return self.run_long_or_text(opcode, frame, rest),
        }
        Ok(())
    }

    /// Long integers, and the opcodes whose argument is a line of text: those of protocol 0.
    #[cold]
    fn run_long_or_text(&mut self, opcode: u8, frame: &[u8], rest: &mut &[u8]) -> Result<(), Stop> {
        match opcode {
            LONG1 => {
                let [length] = take_chunk(rest)?;
                let number = take(rest, u64::from(length))?;
                self.push(long(number))?;
            }
            LONG4 => {
                let length = i32::from_le_bytes(take_chunk(rest)?);
                let number = take(rest, u64::try_from(length).map_err(|_| Stop::Bad)?)?;
                self.push(long(number))?;
            }
            INT => self.push(match take_line(rest)? {
                b"00" => Value::Bool(false),
                b"01" => Value::Bool(true),
                text => decimal(text)?,
            })?,
            LONG => {
                let text = take_line(rest)?;
                self.push(decimal(text.strip_suffix(b"L").unwrap_or(text))?)?;
            }
            FLOAT => {
                let number = parse_float(take_line(rest)?.trim_ascii()).ok_or(Stop::Bad)?;
                self.push(Value::Float(number))?;
            }
            STRING => {
                let quoted = take_line(rest)?.trim_ascii_end();
                let text = match quoted {
                    [b'\'', text @ .., b'\''] | [b'"', text @ .., b'"'] => text,
                    _ => return Err(Stop::Bad),
                };
                self.push_unescaped(frame, text, unescape_string)?;
            }
            UNICODE => {
                let text = take_line(rest)?;
                self.push_unescaped(frame, text, unescape_unicode)?;
            }
            PUT => {
                let number = memo_number(take_line(rest)?)?;
                self.put(frame, number)?;
            }
            GET => {
                let number = memo_number(take_line(rest)?)?;
                self.get(number)?;
            }
            GLOBAL => {
                let module = take_line(rest)?;
                let name = take_line(rest)?;
                self.push(match (module, name) {
                    (b"_codecs", b"encode") => Value::Encode,
                    (b"__builtin__" | b"builtins", b"bytes") => Value::Bytes,
                    _ => return Err(Stop::Unsafe),
                })?;
            }
            _ => return Err(Stop::Bad),
        }
        Ok(())
    }

    /// Text or bytes; `frame` is what was run.
    #[inline]
    pub(super) fn bytes<'a>(&'a self, value: Value, frame: &'a [u8]) -> Option<&'a [u8]> {
        match value {
            Value::Borrowed(span) => Some(span.of(frame)),
            Value::Unescaped(span) => Some(span.of(&self.text)),
            _ => None,
        }
    }

    /// The items of a tuple or a list.
    #[inline]
    pub(super) fn items(&self, value: Value) -> Option<Items<'_>> {
        match value {
            Value::Tuple(span) => Some(Items { machine: self, chunk: span.of(&self.items).iter(), next: None }),
            Value::List(list) => {
                let first = self.lists.get(list as usize)?.chunks.map(|(first, _)| first);
                Some(Items { machine: self, chunk: slice::Iter::default(), next: first })
            }
            _ => None,
        }
    }

    /// The items from a place on.
    pub(super) fn items_from(&self, place: ItemsPlace) -> Items<'_> {
        Items { machine: self, chunk: place.chunk.of(&self.items).iter(), next: place.next }
    }

    /// Bytes that a program needed that stopped for memory.
    pub(super) fn wanted_bytes(&self) -> usize {
        self.memory.wanted
    }

    /// Bytes of its allocations.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory.used
    }

    /// Forgets a frame, and the memory of an uncommonly large one.
    pub(super) fn clear(&mut self) {
        if self.memory.used > KEPT_BYTES {
            *self = Machine::default();
        } else {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.stack.clear();
        self.marks.clear();
        self.memo.clear();
        self.items.clear();
        self.lists.clear();
        self.chunks.clear();
        self.text.clear();
        self.encoded_bytes = 0;
    }

    #[inline]
    fn push(&mut self, value: Value) -> Result<(), Stop> {
        reserve(&mut self.stack, 1, &mut self.memory)?;
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
        // A byte of Latin-1 has two in UTF-8; every escape is longer than what it means.
        reserve(&mut self.text, 2 * text.len(), &mut self.memory)?;
        unescape(text, &mut self.text)?;
        self.push(Value::Unescaped(Span::new(start, self.text.len() - start)?))
    }

    fn push_list(&mut self) -> Result<(), Stop> {
        reserve(&mut self.lists, 1, &mut self.memory)?;
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
        reserve(&mut self.items, moved.len(), &mut self.memory)?;
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
        reserve(&mut self.chunks, 1, &mut self.memory)?;
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

    /// Forgets the pairs above `from`; a dictionary is right below them.
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
    /// number beyond the frame's length does not come from a pickler; it would only cost memory.
    #[inline]
    fn put(&mut self, frame: &[u8], number: u64) -> Result<(), Stop> {
        let top = self.top()?;
        if number > frame.len() as u64 {
            return Err(Stop::Bad);
        }
        let number = number as usize;
        if number >= self.memo.len() {
            let more = number + 1 - self.memo.len();
            reserve(&mut self.memo, more, &mut self.memory)?;
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
        let length = bytes.len();
        // For the bytes here and where they are kept.
        reserve(&mut self.text, 2 * length, &mut self.memory)?;
        let bytes = self.bytes(text, frame).ok_or(Stop::Bad)?;
        // Each character of the text stands for the byte of its number.
        let characters = std::str::from_utf8(bytes).map_err(|_| Stop::Bad)?.chars();
        let bytes = characters.map(|c| u8::try_from(c).map_err(|_| Stop::Bad)).collect::<Result<Vec<u8>, Stop>>()?;
        self.encoded_bytes = encoded_bytes;
        let start = self.text.len();
        self.text.extend_from_slice(&bytes);
        self.push(Value::Unescaped(Span::new(start, bytes.len())?))
    }
}
