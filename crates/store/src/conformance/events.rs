//! Facts about a store of events.

use super::Fixture;
use crate::{Event, Events, NewEvent};

/// Checks every fact about events. The store may hold other events, but none before 1970.
pub async fn events_suite<F: Fixture<dyn Events>>(fixture: &mut F) {
    let events = fixture.open().await;
    let sent = [
        event(-500, "é first", "a b", "line\nline"),
        event(-300, "third", "", ""),
        event(-400, "second", "b", "\u{0}"),
        event(-300, "fourth", "b", "x"),
        event(-100, "", "a", &"long ".repeat(10_000)),
    ];
    let mut ids = Vec::new();
    for each in &sent {
        ids.push(events.put_event(each.clone()).await.unwrap());
    }
    check(&*events, &sent, &ids).await;
    drop(events);
    if !F::OUTLIVES {
        check_expiry(&*fixture.open().await, &ids).await;
        return;
    }
    let events = fixture.open().await;
    check(&*events, &sent, &ids).await;
    let next = events.put_event(event(-50, "later", "", "")).await.unwrap();
    assert!(!ids.contains(&next), "an id is given once, also after a restart");
    assert_eq!(events.event(next).await.unwrap().unwrap().content.what, "later");
    check_expiry(&*events, &ids).await;
    drop(events);
    let events = fixture.open().await;
    let left: Vec<u64> = events.events((-1000, 0), -60, 100).await.unwrap().iter().map(|event| event.id).collect();
    assert_eq!(left, [ids[1], ids[3], ids[4]], "what expired stays away after a restart");
}

/// Deletes the first and the third of the events that were sent, which are the earliest.
async fn check_expiry(events: &dyn Events, ids: &[u64]) {
    assert_eq!(events.expire_events(-1000).await.unwrap(), 0);
    assert_eq!(events.expire_events(-300).await.unwrap(), 2);
    assert_eq!(events.expire_events(-300).await.unwrap(), 0);
    let left: Vec<u64> = events.events((-1000, 0), -60, 100).await.unwrap().iter().map(|event| event.id).collect();
    assert_eq!(left, [ids[1], ids[3], ids[4]], "an event at the time itself stays");
    assert_eq!(events.event(ids[0]).await.unwrap(), None);
    let extra = events.put_event(event(-400, "deleted by its id", "", "")).await.unwrap();
    assert_eq!(events.delete_events(vec![extra, ids[0], extra, u64::MAX]).await.unwrap(), 1);
    assert_eq!((events.event(extra).await.unwrap(), events.delete_events(Vec::new()).await.unwrap()), (None, 0));
    let next = events.put_event(event(-40, "after an expiry", "", "")).await.unwrap();
    assert!(ids.iter().all(|id| *id < next), "an id is given once");
}

fn event(when: i64, what: &str, tags: &str, data: &str) -> NewEvent {
    NewEvent { when, what: what.to_owned(), tags: tags.to_owned(), data: data.to_owned() }
}

async fn check(events: &dyn Events, sent: &[NewEvent], ids: &[u64]) {
    let mut kept: Vec<Event> = sent.iter().zip(ids).map(|(sent, &id)| Event { id, content: sent.clone() }).collect();
    kept.sort_by_key(|event| (event.content.when, event.id));
    for event in &kept {
        assert!((1..=1 << 53).contains(&event.id), "{}", event.id);
        assert_eq!(events.event(event.id).await.unwrap().as_ref(), Some(event), "an event is found by its id");
    }
    assert_eq!(events.event(u64::MAX).await.unwrap(), None);
    assert_eq!(events.event(0).await.unwrap(), None);

    let all = events.events((-1000, 0), -60, 100).await.unwrap();
    assert_eq!(all, kept, "in the order of time, and of ids where times are the same");
    assert_eq!(events.events((-500, 0), -400, 100).await.unwrap(), kept[..2], "both ends are in the span");
    assert_eq!(events.events((-499, 0), -401, 100).await.unwrap(), []);
    assert_eq!(events.events((-60, 0), -1000, 100).await.unwrap(), [], "a span that ends before it begins is empty");
    assert_eq!(events.events((-1000, 0), -60, 0).await.unwrap(), []);

    let mut paged = Vec::new();
    let mut after = (-1000, 0);
    loop {
        let page = events.events(after, -60, 2).await.unwrap();
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        after = (last.content.when, last.id);
        paged.extend(page);
    }
    assert_eq!(paged, kept, "pages are the whole");
}
