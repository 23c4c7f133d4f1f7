//! What a pickle's program computes with: values, the runs of bytes or values that they refer to, and why it stops.

/// Anything in a pickle. Offsets are 32 bits, because a frame is shorter than 4 GiB.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Text or bytes in the frame.
    Borrowed(Span),
    /// Text or bytes in the machine's arena of text.
    Unescaped(Span),
    /// In the machine's arena of items.
    Tuple(Span),
    /// In the machine's lists.
    List(u32),
    /// A dictionary, which no point has; its contents are not kept.
    Dict,
    /// `_codecs.encode`: how Python 3 writes bytes in protocols 0 to 2.
    Encode,
    /// `bytes`: how Python 3 writes empty bytes there.
    Bytes,
}

const _: () = assert!(size_of::<Option<Value>>() == 16, "the machine's limit on values counts sixteen bytes each");

/// Where a run of bytes or values begins and how many they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Span {
    pub(super) fn new(start: usize, len: usize) -> Result<Span, Stop> {
        match (u32::try_from(start), u32::try_from(len)) {
            (Ok(start), Ok(len)) => Ok(Span { start, len }),
            _ => Err(Stop::Bad),
        }
    }

    /// The run itself, from what the span was made for.
    #[inline]
    pub(super) fn of<T>(self, all: &[T]) -> &[T] {
        all.get(self.start as usize..).and_then(|rest| rest.get(..self.len as usize)).unwrap_or_default()
    }
}

/// Why a program stops.
pub(super) enum Stop {
    /// Not a pickle, or beyond the bounds.
    Bad,
    /// It would run something.
    Unsafe,
    /// It needs more memory; how much is not here, so that a result fits into a register.
    Memory,
}
