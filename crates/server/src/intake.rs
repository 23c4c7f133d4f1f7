//! The intake of points: everything that brings points from outside holds a share of it, and it is closed once, for good, when the
//! node drains or stops.

use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, RwLock, watch};

/// Whether points come in.
pub struct Intake {
    is_closed: watch::Sender<bool>,
    /// Read by those who bring points.
    users: Arc<RwLock<()>>,
}

/// Held while points come.
pub struct IntakeShare {
    _user: OwnedRwLockReadGuard<()>,
}

impl Intake {
    /// Open.
    pub fn new() -> Arc<Intake> {
        Arc::new(Intake { is_closed: watch::channel(false).0, users: Arc::default() })
    }

    /// A share, or `None` from the close on.
    pub async fn enter(&self) -> Option<IntakeShare> {
        if self.is_closed() {
            return None;
        }
        let user = self.users.clone().read_owned().await;
        (!self.is_closed()).then_some(IntakeShare { _user: user })
    }

    /// Says when receivers must end: they read what the kernel has received before they do.
    pub fn closes(&self) -> watch::Receiver<bool> {
        self.is_closed.subscribe()
    }

    /// Whether it is closed; points that were under way may still come.
    pub fn is_closed(&self) -> bool {
        *self.is_closed.borrow()
    }

    /// Closes it.
    pub fn close(&self) {
        self.is_closed.send_replace(true);
    }

    /// Waits for the end of every share that was given before the close. No point comes after that.
    pub async fn closed(&self) {
        debug_assert!(self.is_closed(), "it is closed first");
        drop(self.users.write().await);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_close_waits_for_what_is_under_way_and_lets_nothing_more_in() {
        let intake = Intake::new();
        let (first, second) = (intake.enter().await, intake.enter().await);
        assert!(first.is_some() && second.is_some());
        intake.close();
        assert!(intake.enter().await.is_none());
        drop(first);
        let closed = intake.closed();
        tokio::pin!(closed);
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut closed).await.is_err());
        // Without a wait, although the close waits.
        assert!(intake.enter().await.is_none());
        drop(second);
        closed.await;
        assert!(intake.enter().await.is_none());
    }
}
