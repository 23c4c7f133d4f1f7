//! The suite every driver passes: what a store keeps, said once, as facts.
//!
//! Each fact has metrics of its own and none needs an empty store, so that a driver whose store is dear
//! to make (a keyspace, a cluster) runs them all in one. A fact that does not hold panics.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use metric::{Aggregation, MetricId, Policy, ROW_POINTS, Retention, Slot, Stage, Table, Timestamp};

use crate::{Cells, Driver, Fetch, MetricRecord, PolicyChange, Run};

/// How the suite gets at a driver.
pub trait Fixture {
    /// Whether what was synced is still there when the store is opened again.
    const OUTLIVES: bool;

    /// The largest count a slot can hold; a larger one is kept as this.
    const LARGEST_COUNT: u32 = u32::MAX;

    /// Opens the store. Before every call but the first, the driver that the call before returned has
    /// been dropped.
    fn open(&mut self) -> impl Future<Output = Arc<dyn Driver>>;
}

/// Checks every fact. `now` is Unix seconds: points are written at times shortly before it, because a
/// driver may refuse to keep what its retention says is gone.
pub async fn suite<F: Fixture>(fixture: &mut F, now: Timestamp) {
    let driver = fixture.open().await;
    what_is_written_is_read(&*driver, now).await;
    a_miss_allocates_nothing(&*driver, now).await;
    the_last_write_of_a_slot_wins(&*driver, now).await;
    nan_leaves_what_is_stored(&*driver, now).await;
    every_bit_of_a_value_is_kept(&*driver, now).await;
    counts_are_kept_beside_values(&*driver, F::LARGEST_COUNT, now).await;
    a_whole_is_the_part_of_a_writer_alone(&*driver, now).await;
    runs_cross_partitions(&*driver, now).await;
    tables_and_metrics_are_apart(&*driver, now).await;
    answers_are_in_the_order_of_the_fetches(&*driver, now).await;
    writes_at_once_lose_nothing(&*driver, now).await;
    a_dropped_fetch_harms_nothing(&*driver, now).await;
    expiry_keeps_what_a_stage_keeps(&*driver, now).await;
    metrics_are_scanned_as_they_were_put(&*driver).await;
    usage_is_told(&*driver, now).await;
    drop(driver);
    what_was_synced_outlives_the_driver(fixture, now).await;
    any_operations_agree_with_a_map(fixture, now).await;
}

/// A run reads back whole and in part, and beyond it nothing is stored.
pub async fn what_is_written_is_read(driver: &dyn Driver, now: Timestamp) {
    let m = Metric::new(1, "10080*60s", false, now);
    m.write(driver, 10, &[1.0, 2.0, 3.0]).await;
    m.reads(driver, 10..13, &[1.0, 2.0, 3.0]).await;
    m.reads(driver, 11..12, &[2.0]).await;
    m.reads(driver, 8..15, &[ABSENT, ABSENT, 1.0, 2.0, 3.0, ABSENT, ABSENT]).await;
    m.reads(driver, 11..11, &[]).await;
}

/// Where no slot of the whole fetch is stored, both columns are empty.
pub async fn a_miss_allocates_nothing(driver: &dyn Driver, now: Timestamp) {
    let m = Metric::new(2, "10080*60s", false, now);
    m.write(driver, 10, &[1.0]).await;
    m.reads(driver, 0..10, &[]).await;
    m.reads(driver, 11..300, &[]).await;
    Metric::new(3, "10080*60s", false, now).reads(driver, 0..1440, &[]).await;
    let never_written = Metric::new(2, "7*77s", true, now);
    assert_eq!(never_written.fetch(driver, 0..7).await, Cells::default());
}

/// Overwriting, in one batch and in several; and writing the same again changes nothing.
pub async fn the_last_write_of_a_slot_wins(driver: &dyn Driver, now: Timestamp) {
    let m = Metric::new(4, "10080*60s", false, now);
    m.write(driver, 0, &[1.0, 2.0, 3.0, 4.0]).await;
    m.write(driver, 1, &[20.0, 30.0]).await;
    m.reads(driver, 0..4, &[1.0, 20.0, 30.0, 4.0]).await;
    driver.write(vec![m.run(0, &[5.0, 6.0]), m.run(1, &[7.0]), m.run(1, &[8.0])]).await.unwrap();
    m.reads(driver, 0..4, &[5.0, 8.0, 30.0, 4.0]).await;
    driver.write(vec![m.run(0, &[5.0, 6.0]), m.run(1, &[7.0]), m.run(1, &[8.0])]).await.unwrap();
    m.reads(driver, 0..4, &[5.0, 8.0, 30.0, 4.0]).await;
}

/// NaN is no value: it neither stores nor erases.
pub async fn nan_leaves_what_is_stored(driver: &dyn Driver, now: Timestamp) {
    let m = Metric::new(5, "10080*60s", false, now);
    m.write(driver, 0, &[ABSENT, ABSENT]).await;
    m.reads(driver, 0..2, &[]).await;
    m.write(driver, 0, &[1.0, ABSENT, 3.0]).await;
    m.write(driver, 0, &[ABSENT, 2.0, ABSENT, ABSENT]).await;
    m.reads(driver, 0..4, &[1.0, 2.0, 3.0, ABSENT]).await;
    driver.write(vec![m.run(9, &[])]).await.unwrap();
    driver.write(vec![]).await.unwrap();

    let aggr = Metric::new(5, "720*3600s", true, now);
    aggr.write_counted(driver, 0, &[10.0, 20.0], &[6, 7]).await;
    aggr.write_counted(driver, 0, &[ABSENT, 21.0], &[1, 8]).await;
    aggr.reads_counted(driver, 0..2, &[10.0, 21.0], &[6, 8]).await;
}

/// Negative zero, subnormals, infinities and the largest values come back as they were, to the bit.
pub async fn every_bit_of_a_value_is_kept(driver: &dyn Driver, now: Timestamp) {
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
    m.write(driver, 3, &values).await;
    m.reads(driver, 3..16, &values).await;
    for (i, &value) in values.iter().enumerate() {
        m.write(driver, 100 + 7 * i as u32, &[value]).await;
        m.reads(driver, 100 + 7 * i as u32..101 + 7 * i as u32, &[value]).await;
    }
}

/// An aggregated table keeps a count for each value; a slot is overwritten with both.
pub async fn counts_are_kept_beside_values(driver: &dyn Driver, largest: u32, now: Timestamp) {
    let m = Metric::new(7, "720*3600s", true, now);
    m.write_counted(driver, 0, &[1.0, 2.0, 3.0], &[60, 59, u32::MAX]).await;
    m.reads_counted(driver, 0..4, &[1.0, 2.0, 3.0, ABSENT], &[60, 59, largest, 0]).await;
    m.write_counted(driver, 2, &[4.0, 5.0], &[1, 2]).await;
    m.reads_counted(driver, 1..4, &[2.0, 4.0, 5.0], &[59, 1, 2]).await;
    // More than BigGraphite's 16-bit count can hold: a day of seconds.
    m.write_counted(driver, 9, &[7.5], &[86_400]).await;
    m.reads_counted(driver, 9..10, &[7.5], &[largest.min(86_400)]).await;
}

/// Where nobody else wrote, a writer's own part is the whole, before and after it is stored.
pub async fn a_whole_is_the_part_of_a_writer_alone(driver: &dyn Driver, now: Timestamp) {
    for (i, aggregation) in Aggregation::ALL.into_iter().enumerate() {
        let m = Metric::new(700 + i as u32, "720*3600s", true, now);
        let mut run = m.run(5, &[1.5, ABSENT, -3.0]);
        run.aggregation = aggregation;
        run.counts = vec![60, 0, 59];
        for _ in 0..2 {
            let own = driver.own_part(vec![run.clone()]).await.unwrap();
            assert_eq!(own.len(), 1);
            assert_eq!((own[0].first_slot, &own[0].counts), (run.first_slot, &run.counts), "{aggregation:?}");
            assert_same(&own[0].values, &run.values, "an own part");
            driver.write(own).await.unwrap();
        }
    }
    assert_eq!(driver.own_part(vec![]).await.unwrap(), []);
}

/// A run and a fetch may span partitions, and begin and end anywhere in them.
pub async fn runs_cross_partitions(driver: &dyn Driver, now: Timestamp) {
    let m = Metric::new(8, "20000*60s", false, now);
    let boundary = ROW_POINTS - m.base % ROW_POINTS;
    let values: Vec<f64> = (0..2 * ROW_POINTS + 10).map(|i| f64::from(i) / 100.0).collect();
    m.write(driver, boundary - 5, &values).await;
    m.reads(driver, boundary - 5..boundary + 2 * ROW_POINTS + 5, &values).await;
    m.reads(driver, boundary - 1..boundary + 1, &values[4..6]).await;
    m.reads(driver, boundary..boundary + ROW_POINTS, &values[5..5 + ROW_POINTS as usize]).await;
    m.write(driver, boundary + ROW_POINTS - 1, &[-1.0, -2.0]).await;
    m.reads(driver, boundary + ROW_POINTS - 2..boundary + ROW_POINTS + 2, &[20.03, -1.0, -2.0, 20.06]).await;
}

/// The same slot of another metric, another stage, or the aggregated table of the same stage is another.
pub async fn tables_and_metrics_are_apart(driver: &dyn Driver, now: Timestamp) {
    let base = Metric::new(9, "10080*60s", false, now);
    let others = [
        Metric { table: table("10080*60s", true), ..base.clone() },
        Metric { table: table("10081*60s", false), ..base.clone() },
        Metric { base: base.base, ..Metric::new(10, "10080*60s", false, now) },
        Metric { base: base.base, ..Metric::new(9 + 256, "10080*60s", false, now) },
    ];
    base.write(driver, 0, &[1.0]).await;
    for other in &others {
        assert_eq!(other.fetch(driver, 0..1).await, Cells::default(), "{other:?}");
    }
    for (i, other) in others.iter().enumerate() {
        other.write_counted(driver, 0, &[i as f64], &[3]).await;
    }
    base.reads(driver, 0..2, &[1.0, ABSENT]).await;
    for (i, other) in others.iter().enumerate() {
        assert_eq!(other.fetch(driver, 0..1).await.values, [i as f64], "{other:?}");
    }
}

/// Whatever order the driver reads in, each answer stands where its fetch stood; one may be asked twice.
pub async fn answers_are_in_the_order_of_the_fetches(driver: &dyn Driver, now: Timestamp) {
    let metrics: Vec<Metric> = (0..200).map(|i| Metric::new(1000 + i, "10080*60s", false, now)).collect();
    let runs = metrics.iter().map(|m| m.run(0, &[f64::from(m.id), 0.5])).collect();
    driver.write(runs).await.unwrap();
    // 77 has no divisor in common with 200: a walk through all of them, far from sorted, then twice the first.
    let order = || (0..200).map(|i| &metrics[i * 77 % 200]).chain([&metrics[0], &metrics[0]]);
    let answers = driver.fetch(order().map(|m| m.fetch_of(0..1)).collect()).await.unwrap();
    let wanted: Vec<Cells> = order().map(|m| Cells { values: vec![f64::from(m.id)], counts: vec![] }).collect();
    assert_eq!(answers, wanted);
    assert_eq!(driver.fetch(vec![]).await.unwrap(), []);
}

/// Two writes under way at once, to different slots of one row, are both there afterwards.
pub async fn writes_at_once_lose_nothing(driver: &dyn Driver, now: Timestamp) {
    for round in 0..50 {
        let m = Metric::new(1300 + round, "10080*60s", false, now);
        let one = driver.write((0..20).map(|i| m.run(2 * i, &[1.0])).collect());
        let other = driver.write((0..20).map(|i| m.run(2 * i + 1, &[2.0])).collect());
        let (one, other) = both(one, other).await;
        one.unwrap();
        other.unwrap();
        m.reads(driver, 0..40, &[1.0, 2.0].repeat(20)).await;
    }
}

/// A fetch that nobody waits for any more is dropped, and the driver goes on.
pub async fn a_dropped_fetch_harms_nothing(driver: &dyn Driver, now: Timestamp) {
    let m = Metric::new(11, "10080*60s", false, now);
    m.write(driver, 0, &[1.0; 1440]).await;
    for _ in 0..20 {
        let mut fetch = driver.fetch((0..50).map(|_| m.fetch_of(0..1440)).collect());
        poll_fn(|context| {
            let _ = fetch.as_mut().poll(context);
            Poll::Ready(())
        })
        .await;
    }
    m.reads(driver, 0..1440, &[1.0; 1440]).await;
}

/// Expiry never takes what lies within the duration of its stage; a stage goes on being written after it.
pub async fn expiry_keeps_what_a_stage_keeps(driver: &dyn Driver, now: Timestamp) {
    let mut m = Metric::new(12, "2000*60s", false, now);
    m.base -= 5000;
    let newest = m.table.stage.slot(now).expect("a time with a slot") - m.base;
    let values: Vec<f64> = (0..6000).map(f64::from).collect();
    m.write(driver, newest - 5999, &values).await;
    driver.expire(now).await.unwrap();
    m.reads(driver, newest - 1999..newest + 1, &values[4000..]).await;
    m.write(driver, newest, &[-1.0]).await;
    m.reads(driver, newest - 1..newest + 1, &[5998.0, -1.0]).await;
}

/// Every field of a row of the metrics table comes back, and a second put of an id replaces the first.
pub async fn metrics_are_scanned_as_they_were_put(driver: &dyn Driver) {
    let records: Vec<MetricRecord> = (20_000..20_700).map(record).collect();
    driver.put_metrics(records.clone()).await.unwrap();
    assert_eq!(scan(driver, 20_000..20_700).await, records);

    let mut changed = records[33].clone();
    changed.policies.push(PolicyChange { since: 1_700_000_000, policy: Policy::default() });
    driver.put_metrics(vec![changed.clone()]).await.unwrap();
    assert_eq!(scan(driver, 20_033..20_034).await, [changed]);
    assert_eq!(scan(driver, 20_000..20_700).await.len(), records.len());
    driver.put_metrics(vec![]).await.unwrap();
}

/// A table that was written counts as one.
pub async fn usage_is_told(driver: &dyn Driver, now: Timestamp) {
    let m = Metric::new(13, "4321*7s", false, now);
    m.write(driver, 0, &[1.0]).await;
    assert!(driver.usage().tables >= 1);
}

/// What was synced is there when the store is opened again; a store that is not kept is let off.
pub async fn what_was_synced_outlives_the_driver<F: Fixture>(fixture: &mut F, now: Timestamp) {
    if !F::OUTLIVES {
        return;
    }
    let m = Metric::new(14, "20000*60s", false, now);
    let aggr = Metric::new(14, "720*3600s", true, now);
    let values: Vec<f64> = (0..5000).map(|i| f64::from(i % 97) / 10.0).collect();
    let driver = fixture.open().await;
    m.write(&*driver, 0, &values).await;
    aggr.write_counted(&*driver, 0, &values[..300], &[60; 300]).await;
    driver.put_metrics(vec![record(14)]).await.unwrap();
    driver.sync().await.unwrap();
    drop(driver);

    let driver = fixture.open().await;
    m.reads(&*driver, 0..5000, &values).await;
    aggr.reads_counted(&*driver, 0..300, &values[..300], &[60; 300]).await;
    assert_eq!(scan(&*driver, 14..15).await, [record(14)]);
    m.write(&*driver, 2, &[-5.0]).await;
    driver.sync().await.unwrap();
    driver.sync().await.unwrap();
    drop(driver);

    let driver = fixture.open().await;
    m.reads(&*driver, 1..4, &[0.1, -5.0, 0.3]).await;
}

/// Writes, overwrites, fetches, syncs, expiries and reopenings from a printed seed, against a map of slots.
pub async fn any_operations_agree_with_a_map<F: Fixture>(fixture: &mut F, now: Timestamp) {
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
    let mut driver = fixture.open().await;
    for _ in 0..600 {
        match random.below(100) {
            0 => driver.sync().await.unwrap(),
            1 => driver.expire(now).await.unwrap(),
            2 if F::OUTLIVES => {
                driver.sync().await.unwrap();
                drop(driver);
                driver = fixture.open().await;
            }
            3..50 => {
                let mut runs = Vec::new();
                for _ in 0..random.below(12) + 1 {
                    let m = &metrics[random.below(metrics.len() as u32) as usize];
                    let run = random.run(m);
                    for (i, &value) in run.values.iter().enumerate() {
                        if !value.is_nan() {
                            let count = run.counts.get(i).map_or(0, |&count| count.min(F::LARGEST_COUNT));
                            model.insert((m.id, run.first_slot + i as Slot), (value, count));
                        }
                    }
                    runs.push(run);
                }
                driver.write(runs).await.unwrap();
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
                let got = driver.fetch(vec![fetch]).await.unwrap().remove(0);
                assert_same(&got.values, &wanted.values, &context);
                assert_eq!(got.counts, wanted.counts, "{context}");
            }
        }
    }
}

const ABSENT: f64 = f64::NAN;

/// A metric in one table. The suite counts its slots from `base`, a slot some days before now.
#[derive(Debug, Clone)]
struct Metric {
    id: u32,
    table: Table,
    base: Slot,
}

fn table(stage: &str, aggregated: bool) -> Table {
    // A retention's text is the only one a stage is read from; BigGraphite's form of one stage is one.
    let stage: Stage = stage.parse::<Retention>().expect("a stage").finest();
    Table { stage, aggregated }
}

impl Metric {
    fn new(id: u32, stage: &str, aggregated: bool, now: Timestamp) -> Metric {
        let table = table(stage, aggregated);
        let newest = table.stage.slot(now).expect("a time with a slot");
        Metric { id, table, base: newest - table.stage.points() / 2 }
    }

    fn run(&self, first: Slot, values: &[f64]) -> Run {
        let counts = if self.table.aggregated { vec![1; values.len()] } else { vec![] };
        Run {
            metric: MetricId(self.id),
            name: format!("conformance.m{}", self.id),
            table: self.table,
            first_slot: self.base + first,
            values: values.to_vec(),
            counts,
            aggregation: Aggregation::Sum,
        }
    }

    fn fetch_of(&self, slots: std::ops::Range<Slot>) -> Fetch {
        Fetch {
            metric: MetricId(self.id),
            name: format!("conformance.m{}", self.id),
            table: self.table,
            first_slot: self.base + slots.start,
            end_slot: self.base + slots.end,
            aggregation: Aggregation::Sum,
        }
    }

    async fn write(&self, driver: &dyn Driver, first: Slot, values: &[f64]) {
        driver.write(vec![self.run(first, values)]).await.unwrap();
    }

    async fn write_counted(&self, driver: &dyn Driver, first: Slot, values: &[f64], counts: &[u32]) {
        let mut run = self.run(first, values);
        if self.table.aggregated {
            run.counts = counts.to_vec();
        }
        driver.write(vec![run]).await.unwrap();
    }

    async fn fetch(&self, driver: &dyn Driver, slots: std::ops::Range<Slot>) -> Cells {
        driver.fetch(vec![self.fetch_of(slots)]).await.unwrap().remove(0)
    }

    async fn reads(&self, driver: &dyn Driver, slots: std::ops::Range<Slot>, values: &[f64]) {
        let cells = self.fetch(driver, slots.clone()).await;
        assert_same(&cells.values, values, &format!("slots {slots:?} of {self:?}"));
        if !self.table.aggregated {
            assert_eq!(cells.counts, [], "a stage-0 table has no counts");
        }
    }

    async fn reads_counted(&self, driver: &dyn Driver, slots: std::ops::Range<Slot>, values: &[f64], counts: &[u32]) {
        let cells = self.fetch(driver, slots.clone()).await;
        assert_same(&cells.values, values, &format!("slots {slots:?} of {self:?}"));
        assert_eq!(cells.counts, counts, "slots {slots:?} of {self:?}");
    }
}

/// Equal to the bit, all NaNs being the same.
fn assert_same(got: &[f64], wanted: &[f64], context: &str) {
    assert_eq!(got.len(), wanted.len(), "length; {context}");
    for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        let same = got.to_bits() == wanted.to_bits() || got.is_nan() && wanted.is_nan();
        assert!(same, "value {i} is {got:?} where {wanted:?} was stored; {context}");
    }
}

fn record(id: u32) -> MetricRecord {
    let policy = Policy {
        retention: "11520*60s:720*3600s:730*86400s".parse().expect("a retention"),
        aggregation: Aggregation::ALL[id as usize % 8],
        x_files_factor: f64::from(id % 11) / 10.0,
    };
    MetricRecord {
        id: MetricId(id),
        name: format!("servers.dc{}.é.conformance-{id};role=db", id % 4),
        created_on: 1_600_000_000 + i64::from(id),
        policies: vec![PolicyChange { since: 0, policy }],
    }
}

/// The rows with these ids, sorted by id.
async fn scan(driver: &dyn Driver, ids: std::ops::Range<u32>) -> Vec<MetricRecord> {
    let mut found = Vec::new();
    let mut each = |batch: Vec<MetricRecord>| {
        found.extend(batch.into_iter().filter(|record| ids.contains(&record.id.0)));
    };
    driver.scan_metrics(&mut each).await.unwrap();
    found.sort_by_key(|record| record.id);
    found
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
