//! Pickles: the output is in proportion to the input, a frame that fails gives no point, and a used decoder reads a
//! frame as a new one does.
#![no_main]

use std::cell::RefCell;

use carbon::{RejectReason, Sink, pickle::Decoder};
use libfuzzer_sys::fuzz_target;

#[derive(Default, PartialEq, Debug)]
struct Seen {
    points: usize,
    rejects: Vec<RejectReason>,
    sums: (usize, i64, u64),
}

impl Sink for Seen {
    fn point(&mut self, name: &[u8], time: i64, value: f64) {
        assert!(!value.is_nan());
        assert!((-(1 << 53)..=1 << 53).contains(&time));
        self.points += 1;
        self.sums = (self.sums.0 + name.len(), self.sums.1 ^ time, self.sums.2 ^ value.to_bits());
    }

    fn reject(&mut self, reason: RejectReason, _: &[u8]) {
        self.rejects.push(reason);
    }
}

thread_local! {
    static USED: RefCell<Decoder> = RefCell::new(Decoder::new());
}

fuzz_target!(|frame: &[u8]| {
    let mut fresh = Seen::default();
    Decoder::new().decode(frame, 42, &mut fresh);
    assert!(fresh.points <= frame.len() && fresh.rejects.len() <= frame.len().max(1));
    if fresh.rejects.iter().any(|reason| matches!(reason, RejectReason::BadPickle | RejectReason::UnsafePickle)) {
        assert_eq!((fresh.points, fresh.rejects.len()), (0, 1));
    }
    let mut used = Seen::default();
    USED.with_borrow_mut(|decoder| decoder.decode(frame, 42, &mut used));
    assert_eq!(fresh, used);
});
