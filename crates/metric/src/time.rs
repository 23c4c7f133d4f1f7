//! Points, windows and slots of time.

/// Seconds since the Unix epoch, UTC. Signed, so that a window may reach before 1970 and arithmetic
/// on it never wraps.
pub type Timestamp = i64;

/// The number of a slot of a stage: `time / resolution`. Slots are counted from the epoch, so that two
/// nodes agree without an exchange. A `u32` of one-second slots lasts until 2106.
pub type Slot = u32;

/// A value at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Unix seconds.
    pub time: Timestamp,
    /// Never NaN once accepted; infinities are values, as in carbon.
    pub value: f64,
}

/// A span of time, `from` included, `until` not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    // Invariant: from <= until.
    from: Timestamp,
    until: Timestamp,
}

impl Window {
    /// The window between two moments, in either order.
    pub fn between(a: Timestamp, b: Timestamp) -> Window {
        Window { from: a.min(b), until: a.max(b) }
    }

    /// The first second of the window.
    pub fn from(self) -> Timestamp {
        self.from
    }

    /// The first second after the window.
    pub fn until(self) -> Timestamp {
        self.until
    }

    /// Length in seconds.
    pub fn seconds(self) -> i64 {
        self.until - self.from
    }
}
