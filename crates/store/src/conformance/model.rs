//! Random operations on points against a naive model.

use std::collections::BTreeMap;

use metric::{Slot, Timestamp};

use super::{
    Fixture,
    metric::{ABSENT, Metric, assert_same},
};
use crate::{Cells, PointStore, Run};

/// Writes, overwrites, fetches, syncs, expiries and reopenings from a printed seed, against a map of slots.
pub(super) async fn any_operations_agree_with_a_map<F: Fixture<dyn PointStore>>(
    fixture: &mut F,
    largest_count: u32,
    now: Timestamp,
) {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(now as u64);
    println!("seed {seed}; to run it again set SEED={seed}");
    let mut random = Random(seed | 1);
    let metrics: Vec<Metric> = (0..24)
        .map(|i| match i % 3 {
            0 => Metric::new(30_000 + i, "40000*10s", false, now),
            1 => Metric::new(30_000 + i, "30000*60s", false, now),
            _ => Metric::new(30_000 + i, "30000*3600s", true, now),
        })
        .collect();
    let mut model: BTreeMap<(u32, Slot), (f64, u32)> = BTreeMap::new();
    let mut store = fixture.open().await;
    for _ in 0..600 {
        match random.below(100) {
            0 => store.sync().await.unwrap(),
            1 => store.expire(now).await.unwrap(),
            2 if F::OUTLIVES => {
                store.sync().await.unwrap();
                drop(store);
                store = fixture.open().await;
            }
            3..50 => {
                let mut runs = Vec::new();
                for _ in 0..random.below(12) + 1 {
                    let m = &metrics[random.below(metrics.len() as u32) as usize];
                    let run = random.run(m);
                    for (i, &value) in run.values.iter().enumerate() {
                        if !value.is_nan() {
                            let count = run.counts.get(i).map_or(0, |&count| count.min(largest_count));
                            model.insert((m.id, run.first_slot + i as Slot), (value, count));
                        }
                    }
                    runs.push(run);
                }
                store.write(runs).await.unwrap();
            }
            _ => {
                let m = &metrics[random.below(metrics.len() as u32) as usize];
                let first = random.below(8000);
                let fetch = m.fetch_of(first..first + random.below(3000));
                let stored: Vec<_> = model.range((m.id, fetch.first_slot)..(m.id, fetch.end_slot)).collect();
                let mut wanted = Cells::default();
                if !stored.is_empty() {
                    wanted.values = vec![ABSENT; (fetch.end_slot - fetch.first_slot) as usize];
                    wanted.counts = vec![0; if m.table.aggregated { wanted.values.len() } else { 0 }];
                }
                for (&(_, slot), &(value, count)) in stored {
                    wanted.values[(slot - fetch.first_slot) as usize] = value;
                    if m.table.aggregated {
                        wanted.counts[(slot - fetch.first_slot) as usize] = count;
                    }
                }
                let context = format!("seed {seed}, {fetch:?}");
                let got = store.fetch(vec![fetch]).await.unwrap().remove(0);
                assert_same(&got.values, &wanted.values, &context);
                assert_eq!(got.counts, wanted.counts, "{context}");
            }
        }
    }
}

/// Marsaglia's xorshift64*: enough to pick cases with, and needs no crate.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, end: u32) -> u32 {
        (((self.next() >> 32) * u64::from(end)) >> 32) as u32
    }

    /// Short runs mostly, as a live metric is written; now and then one that spans partitions.
    fn run(&mut self, metric: &Metric) -> Run {
        let len = match self.below(10) {
            0 => self.below(4500),
            1..4 => self.below(120),
            _ => self.below(6) + 1,
        };
        let kind = self.below(6);
        let holes = self.below(3) == 0;
        let mut level = f64::from(self.below(1000));
        let values: Vec<f64> = (0..len)
            .map(|_| {
                level += f64::from(self.below(9)) - 4.0;
                match kind {
                    _ if holes && self.below(3) == 0 => ABSENT,
                    0 => level,
                    1 => level / 100.0,
                    2 => f64::from_bits(self.next()),
                    3 => 42.0,
                    4 => [-0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, 1e18][self.below(5) as usize],
                    _ => level.sqrt(),
                }
            })
            .collect();
        let mut run = metric.run(self.below(8000), &values);
        for count in &mut run.counts {
            *count = if self.below(20) == 0 { self.next() as u32 | 1 } else { 60 };
        }
        run
    }
}
