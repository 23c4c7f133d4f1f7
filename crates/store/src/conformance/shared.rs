//! Facts about points that several writers store.

use metric::{Aggregation, Timestamp};

use super::metric::{ABSENT, Metric, assert_same};
use crate::{OwnRows, PointStore, SharedPoints};

/// Checks every fact about writers' partials. `now` is Unix seconds.
pub async fn shared_points_suite(store: &dyn PointStore, shared: &dyn SharedPoints, now: Timestamp) {
    the_partials_of_a_single_writer_are_the_total(store, shared, now).await;
}

/// Where no other process wrote, a writer's partials are the total, before and after they are stored.
async fn the_partials_of_a_single_writer_are_the_total(
    store: &dyn PointStore,
    shared: &dyn SharedPoints,
    now: Timestamp,
) {
    for (i, aggregation) in Aggregation::ALL.into_iter().enumerate() {
        let m = Metric::new(700 + i as u32, "720*3600s", true, now);
        let mut run = m.run(5, &[1.5, ABSENT, -3.0]);
        run.aggregation = aggregation;
        run.counts = vec![60, 0, 59];
        for _ in 0..2 {
            let partials = shared.writer_partials(vec![run.clone()]).await.unwrap();
            assert_eq!(partials.corrected, []);
            let partials = partials.runs;
            assert_eq!(partials.len(), 1);
            assert_eq!((partials[0].first_slot, &partials[0].counts), (run.first_slot, &run.counts), "{aggregation:?}");
            assert_same(&partials[0].values, &run.values, "the partials");
            store.write(partials).await.unwrap();
        }
    }
    assert_eq!(shared.writer_partials(vec![]).await.unwrap(), OwnRows::default());
}
