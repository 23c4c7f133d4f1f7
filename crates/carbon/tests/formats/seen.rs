//! A sink that writes down what it sees.

use std::fmt::Write;

use carbon::{RejectReason, Sink};

/// What came out of a decoder: a line a call, `name value timestamp` or `reason: sample`.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
pub struct Seen {
    pub text: String,
}

impl Sink for Seen {
    fn point(&mut self, name: &[u8], time: i64, value: f64) {
        writeln!(self.text, "{} {value} {time}", name.escape_ascii()).unwrap();
    }

    fn reject(&mut self, reason: RejectReason, sample: &[u8]) {
        let sample = &sample[..sample.len().min(100)];
        writeln!(self.text, "{}: {}", reason.name(), sample.escape_ascii()).unwrap();
    }
}

/// The time that every test calls now.
pub const NOW: i64 = 1_800_000_000;

/// What `decode` tells its sink.
pub fn seen(decode: impl FnOnce(&mut Seen)) -> String {
    let mut seen = Seen::default();
    decode(&mut seen);
    seen.text
}
