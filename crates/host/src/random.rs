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

    /// A number below `bound`, which is not 0.
    fn below(&self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// An index into a list of this length, which is not 0.
    fn index(&self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number from 0 to 1, without 1.
    fn unit(&self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
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

    /// The seed for a test: that of the environment variable `SEED`, or `otherwise`. Prints it, so that a failing run can
    /// be repeated.
    pub fn test_seed(otherwise: u64) -> u64 {
        let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(otherwise);
        println!("SEED={seed}");
        seed
    }

    /// One element of a list that is not empty.
    pub fn choose<'a, T: ?Sized>(&self, from: &[&'a T]) -> &'a T {
        from[self.index(from.len())]
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

    #[test]
    fn numbers_are_below_their_bound() {
        let random = SeededRandom::new(1);
        assert!((0..1000).all(|_| random.below(3) < 3 && (0.0..1.0).contains(&random.unit())));
    }
}
