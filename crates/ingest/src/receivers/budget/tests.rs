use host::SystemClock;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

fn budget(units: usize) -> ReceiveBudget {
    ReceiveBudget::new((units * UNIT) as u64, Arc::new(SystemClock))
}

#[tokio::test]
async fn bytes_are_given_back_when_a_share_shrinks_or_ends() {
    let budget = budget(8);
    let mut first = budget.share();
    assert!(first.try_raise(6 * UNIT) && !first.try_raise(9 * UNIT));
    let mut second = budget.share();
    assert!(!second.try_raise(3 * UNIT));
    first.lower(UNIT + 1);
    assert_eq!((first.bytes(), budget.usage().used), (2 * UNIT, 2 * UNIT as u64));
    assert!(second.try_raise(6 * UNIT));
    drop((first, second));
    assert_eq!(budget.usage().used, 0);
}

#[tokio::test]
async fn one_that_waits_gets_what_an_empty_connection_gives_back() {
    let budget = budget(8);
    let mut idle = budget.share();
    assert!(idle.try_raise(8 * UNIT));
    idle.enter(Stage::Empty);
    let mut waiting = budget.share();
    let gives = async {
        assert_eq!(idle.asked().await, Asked::Release);
        idle.lower(0);
    };
    let (raised, ()) = tokio::time::timeout(PATIENCE, async { tokio::join!(waiting.raise(4 * UNIT), gives) })
        .await
        .expect("there is room");
    assert!(raised.is_ok() && budget.usage().closed == 0);
}

#[tokio::test]
async fn the_largest_that_stands_in_a_message_is_closed_and_counted() {
    let budget = budget(8);
    let (mut small, mut large, mut waiting) = (budget.share(), budget.share(), budget.share());
    assert!(small.try_raise(2 * UNIT) && large.try_raise(6 * UNIT));
    small.enter(Stage::Partial);
    large.enter(Stage::Partial);
    let ends = async {
        assert_eq!(large.asked().await, Asked::Close);
        drop(large);
    };
    let (raised, ()) = tokio::time::timeout(PATIENCE, async { tokio::join!(waiting.raise(4 * UNIT), ends) })
        .await
        .expect("there is room");
    assert!(raised.is_ok() && budget.usage().closed == 1 && small.bytes() == 2 * UNIT);
}

#[tokio::test]
async fn connections_that_all_wait_for_each_other_do_not_wait_for_ever() {
    let budget = budget(8);
    let (mut first, mut second) = (budget.share(), budget.share());
    assert!(first.try_raise(5 * UNIT) && second.try_raise(3 * UNIT));
    let large = async {
        let raised = first.raise(8 * UNIT).await;
        drop(first);
        raised
    };
    let (large, small) = tokio::time::timeout(PATIENCE, async { tokio::join!(large, second.raise(6 * UNIT)) })
        .await
        .expect("one gives way");
    assert!(large.is_err() && small.is_ok());
}

#[tokio::test]
async fn nothing_is_closed_while_a_connection_is_busy_and_will_free_memory_itself() {
    let budget = budget(8);
    let (mut busy, mut blocked) = (budget.share(), budget.share());
    assert!(busy.try_raise(5 * UNIT) && blocked.try_raise(3 * UNIT));
    let waited = tokio::time::timeout(3 * PAUSED, blocked.raise(4 * UNIT)).await;
    assert!(waited.is_err() && budget.usage().closed == 0);
}

#[tokio::test]
async fn a_connection_that_needs_little_does_not_wait_behind_long_messages() {
    let budget = budget(8192);
    let mut shares: Vec<BudgetShare> = (0..7).map(|_| budget.share()).collect();
    for share in &mut shares {
        assert!(share.try_raise(1024 * UNIT));
    }
    // They all wait for more, and one of them has just become busy.
    let mut long = budget.share();
    let waits = tokio::spawn(async move { long.raise(2048 * UNIT).await });
    tokio::time::sleep(SEARCH).await;
    let mut lines = budget.share();
    let raised = tokio::time::timeout(PAUSED, lines.raise(16 * UNIT)).await.expect("there is room for little");
    assert!(raised.is_ok() && !lines.try_raise(128 * UNIT));
    lines.lower(4 * UNIT);
    assert_eq!((lines.bytes(), budget.usage().used), (4 * UNIT, (7168 + 4) * UNIT as u64));
    waits.abort();
}

#[tokio::test]
async fn messages_that_never_end_are_closed_although_their_senders_never_pause() {
    let budget = budget(64);
    let mut slow = budget.share();
    assert!(slow.try_raise(64 * UNIT));
    slow.end_message();
    let mut waiting = budget.share();
    let drips = async {
        loop {
            slow.enter(Stage::Partial);
            tokio::select! {
                asked = slow.asked() => if asked == Asked::Close { break },
                () = tokio::time::sleep(PAUSED / 4) => {}
            }
        }
        drop(slow);
    };
    let (raised, ()) = tokio::time::timeout(3 * LONG_MESSAGE, async { tokio::join!(waiting.raise(4 * UNIT), drips) })
        .await
        .expect("the slow sender is closed");
    assert!(raised.is_ok() && budget.usage().closed == 1);
}

#[tokio::test]
async fn as_many_are_closed_at_once_as_give_what_others_wait_for() {
    let budget = budget(64);
    let mut paused: Vec<BudgetShare> = (0..64).map(|_| budget.share()).collect();
    for share in &mut paused {
        assert!(share.try_raise(UNIT));
        share.enter(Stage::Partial);
    }
    let mut waiting = budget.share();
    let ends = async {
        let mut all: Vec<_> = paused
            .into_iter()
            .map(|share| tokio::spawn(async move { while share.asked().await != Asked::Close {} }))
            .collect();
        while all.iter().filter(|one| one.is_finished()).count() < 32 {
            tokio::time::sleep(SEARCH / 10).await;
        }
        all.drain(..).for_each(|one| one.abort());
    };
    let (raised, ()) = tokio::time::timeout(2 * PAUSED, async { tokio::join!(waiting.raise(32 * UNIT), ends) })
        .await
        .expect("there is room");
    assert!(raised.is_ok() && budget.usage().closed == 32);
}
