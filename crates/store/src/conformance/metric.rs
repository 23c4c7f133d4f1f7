//! A metric of the suite: its runs, its fetches, and what they must read.

use metric::{Aggregation, MetricId, Retention, Slot, Stage, Table, Timestamp};

use crate::{Cells, Fetch, PointStore, Run};

pub(super) const ABSENT: f64 = f64::NAN;

/// A metric in one table. The suite counts its slots from `base`, a slot some days before now.
#[derive(Debug, Clone)]
pub(super) struct Metric {
    pub(super) id: u32,
    pub(super) table: Table,
    pub(super) base: Slot,
}

pub(super) fn table(stage: &str, aggregated: bool) -> Table {
    // A retention's text is the only one a stage is read from; BigGraphite's form of one stage is one.
    let stage: Stage = stage.parse::<Retention>().expect("a stage").finest();
    Table { stage, aggregated, rollup: None }
}

impl Metric {
    pub(super) fn new(id: u32, stage: &str, aggregated: bool, now: Timestamp) -> Metric {
        let table = table(stage, aggregated);
        let newest = table.stage.slot(now).expect("a time with a slot");
        Metric { id, table, base: newest - table.stage.points() / 2 }
    }

    pub(super) fn run(&self, first: Slot, values: &[f64]) -> Run {
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

    pub(super) fn fetch_of(&self, slots: std::ops::Range<Slot>) -> Fetch {
        Fetch {
            metric: MetricId(self.id),
            name: format!("conformance.m{}", self.id),
            table: self.table,
            first_slot: self.base + slots.start,
            end_slot: self.base + slots.end,
            aggregation: Aggregation::Sum,
        }
    }

    pub(super) async fn write(&self, store: &dyn PointStore, first: Slot, values: &[f64]) {
        store.write(vec![self.run(first, values)]).await.unwrap();
    }

    pub(super) async fn write_counted(&self, store: &dyn PointStore, first: Slot, values: &[f64], counts: &[u32]) {
        let mut run = self.run(first, values);
        if self.table.aggregated {
            run.counts = counts.to_vec();
        }
        store.write(vec![run]).await.unwrap();
    }

    pub(super) async fn fetch(&self, store: &dyn PointStore, slots: std::ops::Range<Slot>) -> Cells {
        store.fetch(vec![self.fetch_of(slots)]).await.unwrap().remove(0)
    }

    pub(super) async fn reads(&self, store: &dyn PointStore, slots: std::ops::Range<Slot>, values: &[f64]) {
        let cells = self.fetch(store, slots.clone()).await;
        assert_same(&cells.values, values, &format!("slots {slots:?} of {self:?}"));
        if !self.table.aggregated {
            assert_eq!(cells.counts, [], "a stage-0 table has no counts");
        }
    }

    pub(super) async fn reads_counted(
        &self,
        store: &dyn PointStore,
        slots: std::ops::Range<Slot>,
        values: &[f64],
        counts: &[u32],
    ) {
        let cells = self.fetch(store, slots.clone()).await;
        assert_same(&cells.values, values, &format!("slots {slots:?} of {self:?}"));
        assert_eq!(cells.counts, counts, "slots {slots:?} of {self:?}");
    }
}

/// Equal to the bit, all NaNs being the same.
pub(super) fn assert_same(got: &[f64], wanted: &[f64], context: &str) {
    assert_eq!(got.len(), wanted.len(), "length; {context}");
    for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        let same = got.to_bits() == wanted.to_bits() || got.is_nan() && wanted.is_nan();
        assert!(same, "value {i} is {got:?} where {wanted:?} was stored; {context}");
    }
}
