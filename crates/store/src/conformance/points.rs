//! Facts about a store of points.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

use metric::{ROW_POINTS, Timestamp};

use super::{
    Fixture,
    metric::{ABSENT, Metric, table},
    model::any_operations_agree_with_a_map,
};
use crate::{Cells, PointStore};

/// Checks every fact about points. `now` is Unix seconds: points are written at times shortly before it, because a
/// driver may refuse to keep what its retention says is gone. `largest_count` is the largest count that a slot can
/// hold; a larger one is stored as this.
pub async fn points_suite<F: Fixture<dyn PointStore>>(fixture: &mut F, largest_count: u32, now: Timestamp) {
    let store = fixture.open().await;
    what_is_written_is_read(&*store, now).await;
    a_miss_allocates_nothing(&*store, now).await;
    the_last_write_of_a_slot_wins(&*store, now).await;
    nan_leaves_what_is_stored(&*store, now).await;
    every_bit_of_a_value_is_kept(&*store, now).await;
    counts_are_kept_with_values(&*store, largest_count, now).await;
    runs_cross_partitions(&*store, now).await;
    tables_and_metrics_are_apart(&*store, now).await;
    answers_are_in_the_order_of_the_fetches(&*store, now).await;
    writes_at_once_lose_nothing(&*store, now).await;
    a_dropped_fetch_harms_nothing(&*store, now).await;
    expiry_keeps_what_a_stage_keeps(&*store, now).await;
    usage_counts_the_tables(&*store, now).await;
    drop(store);
    synced_points_outlive_the_driver(fixture, now).await;
    any_operations_agree_with_a_map(fixture, largest_count, now).await;
}

/// A run reads back whole and in part, and beyond it nothing is stored.
async fn what_is_written_is_read(store: &dyn PointStore, now: Timestamp) {
    let m = Metric::new(1, "10080*60s", false, now);
    m.write(store, 10, &[1.0, 2.0, 3.0]).await;
    m.reads(store, 10..13, &[1.0, 2.0, 3.0]).await;
    m.reads(store, 11..12, &[2.0]).await;
    m.reads(store, 8..15, &[ABSENT, ABSENT, 1.0, 2.0, 3.0, ABSENT, ABSENT]).await;
    m.reads(store, 11..11, &[]).await;
}

/// Where no slot of the whole fetch is stored, both columns are empty.
async fn a_miss_allocates_nothing(store: &dyn PointStore, now: Timestamp) {
    let m = Metric::new(2, "10080*60s", false, now);
    m.write(store, 10, &[1.0]).await;
    m.reads(store, 0..10, &[]).await;
    m.reads(store, 11..300, &[]).await;
    Metric::new(3, "10080*60s", false, now).reads(store, 0..1440, &[]).await;
    let never_written = Metric::new(2, "7*77s", true, now);
    assert_eq!(never_written.fetch(store, 0..7).await, Cells::default());
}

/// Overwriting, in one batch and in several; and writing the same again changes nothing.
async fn the_last_write_of_a_slot_wins(store: &dyn PointStore, now: Timestamp) {
    let m = Metric::new(4, "10080*60s", false, now);
    m.write(store, 0, &[1.0, 2.0, 3.0, 4.0]).await;
    m.write(store, 1, &[20.0, 30.0]).await;
    m.reads(store, 0..4, &[1.0, 20.0, 30.0, 4.0]).await;
    store.write(vec![m.run(0, &[5.0, 6.0]), m.run(1, &[7.0]), m.run(1, &[8.0])]).await.unwrap();
    m.reads(store, 0..4, &[5.0, 8.0, 30.0, 4.0]).await;
    store.write(vec![m.run(0, &[5.0, 6.0]), m.run(1, &[7.0]), m.run(1, &[8.0])]).await.unwrap();
    m.reads(store, 0..4, &[5.0, 8.0, 30.0, 4.0]).await;
}

/// NaN neither stores nor erases a value.
async fn nan_leaves_what_is_stored(store: &dyn PointStore, now: Timestamp) {
    let m = Metric::new(5, "10080*60s", false, now);
    m.write(store, 0, &[ABSENT, ABSENT]).await;
    m.reads(store, 0..2, &[]).await;
    m.write(store, 0, &[1.0, ABSENT, 3.0]).await;
    m.write(store, 0, &[ABSENT, 2.0, ABSENT, ABSENT]).await;
    m.reads(store, 0..4, &[1.0, 2.0, 3.0, ABSENT]).await;
    store.write(vec![m.run(9, &[])]).await.unwrap();
    store.write(vec![]).await.unwrap();

    let aggr = Metric::new(5, "720*3600s", true, now);
    aggr.write_counted(store, 0, &[10.0, 20.0], &[6, 7]).await;
    aggr.write_counted(store, 0, &[ABSENT, 21.0], &[1, 8]).await;
    aggr.reads_counted(store, 0..2, &[10.0, 21.0], &[6, 8]).await;
}

/// Negative zero, subnormals, infinities and the largest values come back as they were, to the bit.
async fn every_bit_of_a_value_is_kept(store: &dyn PointStore, now: Timestamp) {
    let m = Metric::new(6, "10080*60s", false, now);
    let values = [
        -0.0,
        0.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        f64::from_bits(1),
        0.1 + 0.2,
        9_007_199_254_740_993.0,
        1e300,
        -1.5e-300,
        12.34,
    ];
    m.write(store, 3, &values).await;
    m.reads(store, 3..16, &values).await;
    for (i, &value) in values.iter().enumerate() {
        m.write(store, 100 + 7 * i as u32, &[value]).await;
        m.reads(store, 100 + 7 * i as u32..101 + 7 * i as u32, &[value]).await;
    }
}

/// An aggregated table keeps a count for each value; a slot is overwritten with both.
async fn counts_are_kept_with_values(store: &dyn PointStore, largest: u32, now: Timestamp) {
    let m = Metric::new(7, "720*3600s", true, now);
    m.write_counted(store, 0, &[1.0, 2.0, 3.0], &[60, 59, u32::MAX]).await;
    m.reads_counted(store, 0..4, &[1.0, 2.0, 3.0, ABSENT], &[60, 59, largest, 0]).await;
    m.write_counted(store, 2, &[4.0, 5.0], &[1, 2]).await;
    m.reads_counted(store, 1..4, &[2.0, 4.0, 5.0], &[59, 1, 2]).await;
    // More than BigGraphite's 16-bit count can hold: a day of seconds.
    m.write_counted(store, 9, &[7.5], &[86_400]).await;
    m.reads_counted(store, 9..10, &[7.5], &[largest.min(86_400)]).await;
}

/// A run and a fetch may span partitions, and begin and end anywhere in them.
async fn runs_cross_partitions(store: &dyn PointStore, now: Timestamp) {
    let m = Metric::new(8, "20000*60s", false, now);
    let boundary = ROW_POINTS - m.base % ROW_POINTS;
    let values: Vec<f64> = (0..2 * ROW_POINTS + 10).map(|i| f64::from(i) / 100.0).collect();
    m.write(store, boundary - 5, &values).await;
    m.reads(store, boundary - 5..boundary + 2 * ROW_POINTS + 5, &values).await;
    m.reads(store, boundary - 1..boundary + 1, &values[4..6]).await;
    m.reads(store, boundary..boundary + ROW_POINTS, &values[5..5 + ROW_POINTS as usize]).await;
    m.write(store, boundary + ROW_POINTS - 1, &[-1.0, -2.0]).await;
    m.reads(store, boundary + ROW_POINTS - 2..boundary + ROW_POINTS + 2, &[20.03, -1.0, -2.0, 20.06]).await;
}

/// The same slot of another metric, another stage, or the aggregated table of the same stage is another.
async fn tables_and_metrics_are_apart(store: &dyn PointStore, now: Timestamp) {
    let base = Metric::new(9, "10080*60s", false, now);
    let others = [
        Metric { table: table("10080*60s", true), ..base.clone() },
        Metric { table: table("10081*60s", false), ..base.clone() },
        Metric { base: base.base, ..Metric::new(10, "10080*60s", false, now) },
        Metric { base: base.base, ..Metric::new(9 + 256, "10080*60s", false, now) },
    ];
    base.write(store, 0, &[1.0]).await;
    for other in &others {
        assert_eq!(other.fetch(store, 0..1).await, Cells::default(), "{other:?}");
    }
    for (i, other) in others.iter().enumerate() {
        other.write_counted(store, 0, &[i as f64], &[3]).await;
    }
    base.reads(store, 0..2, &[1.0, ABSENT]).await;
    for (i, other) in others.iter().enumerate() {
        assert_eq!(other.fetch(store, 0..1).await.values, [i as f64], "{other:?}");
    }
}

/// Whatever order the driver reads in, each answer stands where its fetch stood; one may be asked twice.
async fn answers_are_in_the_order_of_the_fetches(store: &dyn PointStore, now: Timestamp) {
    let metrics: Vec<Metric> = (0..200).map(|i| Metric::new(1000 + i, "10080*60s", false, now)).collect();
    let runs = metrics.iter().map(|m| m.run(0, &[f64::from(m.id), 0.5])).collect();
    store.write(runs).await.unwrap();
    // 77 has no divisor in common with 200: a walk through all of them, far from sorted, then twice the first.
    let order = || (0..200).map(|i| &metrics[i * 77 % 200]).chain([&metrics[0], &metrics[0]]);
    let answers = store.fetch(order().map(|m| m.fetch_of(0..1)).collect()).await.unwrap();
    let wanted: Vec<Cells> = order().map(|m| Cells { values: vec![f64::from(m.id)], ..Cells::default() }).collect();
    assert_eq!(answers, wanted);
    assert_eq!(store.fetch(vec![]).await.unwrap(), []);
}

/// Two writes under way at once, to different slots of one row, are both there afterwards.
async fn writes_at_once_lose_nothing(store: &dyn PointStore, now: Timestamp) {
    for round in 0..50 {
        let m = Metric::new(1300 + round, "10080*60s", false, now);
        let one = store.write((0..20).map(|i| m.run(2 * i, &[1.0])).collect());
        let other = store.write((0..20).map(|i| m.run(2 * i + 1, &[2.0])).collect());
        let (one, other) = both(one, other).await;
        one.unwrap();
        other.unwrap();
        m.reads(store, 0..40, &[1.0, 2.0].repeat(20)).await;
    }
}

/// A dropped fetch stops, and the driver goes on.
async fn a_dropped_fetch_harms_nothing(store: &dyn PointStore, now: Timestamp) {
    let m = Metric::new(11, "10080*60s", false, now);
    m.write(store, 0, &[1.0; 1440]).await;
    for _ in 0..20 {
        let mut fetch = store.fetch((0..50).map(|_| m.fetch_of(0..1440)).collect());
        poll_fn(|context| {
            let _ = fetch.as_mut().poll(context);
            Poll::Ready(())
        })
        .await;
    }
    m.reads(store, 0..1440, &[1.0; 1440]).await;
}

/// Expiry never frees points within the duration of their stage; the stage can be written afterwards.
async fn expiry_keeps_what_a_stage_keeps(store: &dyn PointStore, now: Timestamp) {
    let mut m = Metric::new(12, "2000*60s", false, now);
    m.base -= 5000;
    let newest = m.table.stage.slot(now).expect("a time with a slot") - m.base;
    let values: Vec<f64> = (0..6000).map(f64::from).collect();
    m.write(store, newest - 5999, &values).await;
    store.expire(now).await.unwrap();
    m.reads(store, newest - 1999..newest + 1, &values[4000..]).await;
    m.write(store, newest, &[-1.0]).await;
    m.reads(store, newest - 1..newest + 1, &[5998.0, -1.0]).await;
}

/// A table that was written counts as one.
async fn usage_counts_the_tables(store: &dyn PointStore, now: Timestamp) {
    let m = Metric::new(13, "4321*7s", false, now);
    m.write(store, 0, &[1.0]).await;
    assert!(store.usage().tables >= 1);
}

/// What was synced is there when the store is opened again; a store that is not kept is let off.
async fn synced_points_outlive_the_driver<F: Fixture<dyn PointStore>>(fixture: &mut F, now: Timestamp) {
    if !F::OUTLIVES {
        return;
    }
    let m = Metric::new(14, "20000*60s", false, now);
    let aggr = Metric::new(14, "720*3600s", true, now);
    let values: Vec<f64> = (0..5000).map(|i| f64::from(i % 97) / 10.0).collect();
    let store = fixture.open().await;
    m.write(&*store, 0, &values).await;
    aggr.write_counted(&*store, 0, &values[..300], &[60; 300]).await;
    store.sync().await.unwrap();
    drop(store);

    let store = fixture.open().await;
    m.reads(&*store, 0..5000, &values).await;
    aggr.reads_counted(&*store, 0..300, &values[..300], &[60; 300]).await;
    m.write(&*store, 2, &[-5.0]).await;
    store.sync().await.unwrap();
    store.sync().await.unwrap();
    drop(store);

    let store = fixture.open().await;
    m.reads(&*store, 1..4, &[0.1, -5.0, 0.3]).await;
}

/// Polls two futures in turn until both are done.
async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut from_a, mut from_b) = (None, None);
    poll_fn(move |context| {
        if from_a.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(context)
        {
            from_a = Some(output);
        }
        if from_b.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(context)
        {
            from_b = Some(output);
        }
        match (from_a.take(), from_b.take()) {
            (Some(output_a), Some(output_b)) => Poll::Ready((output_a, output_b)),
            (output_a, output_b) => {
                (from_a, from_b) = (output_a, output_b);
                Poll::Pending
            }
        }
    })
    .await
}
