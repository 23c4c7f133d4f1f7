//! Random numbers.

use std::{
    fmt::Debug,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Gives random numbers. Not for secrets, unless the implementation says so.
pub trait Random: Debug + Send + Sync + 'static {
    /// 64 random bits.
    fn bits(&self) -> u64;

    /// 128 random bits.
    fn bits_128(&self) -> u128 {
        u128::from(self.bits()) << 64 | u128::from(self.bits())
    }
}

/// The operating system's random numbers, good enough for secrets.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn bits(&self) -> u64 {
        // The low half of a version 4 UUID has two fixed bits at its top; another's low bits replace them.
        let low = || uuid::Uuid::new_v4().as_u128() as u64;
        low() ^ low().rotate_left(32)
    }
}

/// Numbers that a seed determines (SplitMix64): a failing run can be repeated.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom(AtomicU64::new(seed))
    }
}

impl Random for SeededRandom {
    fn bits(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut bits = self.0.fetch_add(STEP, Relaxed).wrapping_add(STEP);
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_published_sequence_of_splitmix64() {
        let random = SeededRandom::new(1_234_567);
        assert_eq!([random.bits(), random.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }
}
