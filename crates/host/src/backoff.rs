//! Waits between attempts.

use std::time::Duration;

/// Waits that double from the first to the longest, without end. The caller sleeps, on the clock it has.
///
/// ```
/// use std::time::Duration;
///
/// let mut backoff = host::Backoff::new(Duration::from_secs(1), Duration::from_secs(3));
/// let waits = [backoff.next_wait(), backoff.next_wait(), backoff.next_wait(), backoff.next_wait()];
/// assert_eq!(waits.map(|wait| wait.as_secs()), [1, 2, 3, 3]);
/// ```
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// Before the first wait.
    pub const fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff { first, next: first, longest }
    }

    /// The next wait, without taking it.
    pub fn peek(&self) -> Duration {
        self.next
    }

    /// The next wait.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (2 * wait).min(self.longest);
        wait
    }

    /// Starts again with the first wait, after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_starts_again_with_the_first_wait() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        let waits: Vec<u128> = (0..8).map(|_| backoff.next_wait().as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        backoff.reset();
        assert_eq!(backoff.peek(), Duration::from_millis(50));
        assert_eq!(backoff.next_wait(), Duration::from_millis(50));
    }
}
