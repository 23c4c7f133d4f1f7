//! What one writer has stored of the coarse slots that are still open, so that newer points extend them
//! and nothing has to be read.
//!
//! Of each coarse stage it keeps the fold of the *closed* children of the slot that the latest stage-0 slot
//! lies in: of stage 1 every stage-0 slot that is stored, of stage k the slots of stage k−1 before the one that
//! is open itself. Going on from there adds the same numbers in the same order as [`crate::Derivation`] does,
//! so that both ways to a slot come to the same bits.

use metric::{Aggregation, Partial, Policy, Retention, Slot};

use crate::{Derived, Pending, derive};

/// What a writer has stored of one metric: up to where, and of the slots that are open there.
#[derive(Debug, Clone, PartialEq)]
pub struct Own {
    // Of the stage of index k + 1; one for each coarse stage.
    closed: Vec<Partial>,
    until: Slot,
    looked_until: Slot,
}

impl Own {
    /// Nothing is stored.
    pub fn nothing(retention: &Retention) -> Own {
        Own { closed: vec![Partial::NONE; retention.stages().len() - 1], until: 0, looked_until: Slot::MAX }
    }

    /// What [`Own::until`], [`Own::looked_until`] and [`Own::closed`] told.
    pub fn new(until: Slot, looked_until: Slot, closed: Vec<Partial>) -> Own {
        Own { closed, until, looked_until }
    }

    /// From this stage-0 slot on this writer has stored nothing, in any stage, up to [`Own::looked_until`].
    pub fn until(&self) -> Slot {
        self.until
    }

    /// From this stage-0 slot on it is not known what is stored: points from the future may have been, and it was
    /// not looked so far ahead.
    pub fn looked_until(&self) -> Slot {
        self.looked_until
    }

    /// Whether nothing is stored in any slot from [`Own::until`] on.
    pub fn is_all(&self) -> bool {
        self.looked_until == Slot::MAX
    }

    /// Of each coarse stage, the fold of the closed children of its open slot.
    pub fn closed(&self) -> &[Partial] {
        &self.closed
    }

    /// Of each coarse stage, what this writer's row of the open slot says.
    pub fn rows(&self, method: Aggregation) -> Vec<Partial> {
        let mut finer = Partial::NONE;
        let full = |&closed: &Partial| {
            finer = method.merge(closed, finer);
            finer
        };
        self.closed.iter().map(full).collect()
    }

    /// The same slots after this writer's rows of them were made to say `rows`. `None` where that cannot be
    /// told apart into closed children and the rest.
    pub(crate) fn with_rows(self, rows: &[Partial], method: Aggregation) -> Option<Own> {
        let mut closed = Vec::with_capacity(rows.len());
        let mut finer = Partial::NONE;
        for &row in rows {
            // A correction of what others count: a value without a count, which no fold would keep.
            if row.count == 0 && !(row.value.is_nan() || row.value == 0.0) {
                return None;
            }
            let count = row.count.checked_sub(finer.count)?;
            let value = match method {
                Aggregation::Average | Aggregation::Sum | Aggregation::AvgZero if finer.count > 0 => {
                    row.value - finer.value
                }
                // An extreme may be folded in twice, and of the latest the open child has a later one.
                _ => row.value,
            };
            closed.push(if count == 0 { Partial::NONE } else { Partial { value, count } });
            finer = row;
        }
        Some(Own { closed, ..self })
    }

    /// Whether `pending` only has stage-0 points that come after everything stored.
    pub fn precedes(&self, pending: &Pending) -> bool {
        let ends = pending.only_stage_0().and_then(|points| points.first().zip(points.last()));
        ends.is_some_and(|(first, last)| self.until <= first.slot && last.slot < self.looked_until)
    }

    /// The rows of every stage that `pending` makes, and what is stored once they are. Needs
    /// [`Own::precedes`].
    pub fn extend(&mut self, policy: &Policy, pending: &Pending) -> Vec<Derived> {
        debug_assert!(self.precedes(pending), "points that are stored already cannot be told from new ones");
        let stages = policy.retention.stages();
        let method = policy.aggregation;
        let points = pending.of_stage(0);
        let mut made = Vec::new();
        derive::runs_of_points(points, &mut made);
        let finest = stages[0].resolution();
        let ratios: Vec<u32> = stages[1..].iter().map(|stage| stage.resolution() / finest).collect();
        let mut rows: Vec<Vec<(Slot, Partial)>> = vec![Vec::new(); ratios.len()];
        let mut last = self.until.checked_sub(1);
        // Whether a point of `pending` is in the open slots: they lie within each other, so in all or in none.
        let mut touched = false;
        if let Some(&ratio) = ratios.first() {
            let mut first_slot = last.map_or(0, |last| last / ratio * ratio);
            for point in points {
                if let Some(last) = last.filter(|_| point.slot - first_slot >= ratio) {
                    self.close(last, point.slot, &ratios, method, touched.then_some(&mut rows[..]));
                    first_slot = point.slot / ratio * ratio;
                } else if last.is_none() {
                    first_slot = point.slot / ratio * ratio;
                }
                self.closed[0] = method.merge(self.closed[0], Partial::point(point.value));
                (last, touched) = (Some(point.slot), true);
            }
        }
        if let Some(point) = points.last() {
            for ((rows, full), ratio) in rows.iter_mut().zip(self.rows(method)).zip(&ratios) {
                rows.push((point.slot / ratio, full));
            }
            self.until = point.slot.saturating_add(1);
        }
        for (index, rows) in rows.iter().enumerate() {
            derive::runs_of_partials(index + 1, rows, &mut made);
        }
        made
    }

    /// Closes the slots that `last` lies in and `next` does not, and folds each into the stage above.
    fn close(
        &mut self,
        last: Slot,
        next: Slot,
        ratios: &[u32],
        method: Aggregation,
        mut rows: Option<&mut [Vec<(Slot, Partial)>]>,
    ) {
        for (index, ratio) in ratios.iter().enumerate() {
            let slot = last / ratio;
            if slot == next / ratio {
                return;
            }
            let full = std::mem::replace(&mut self.closed[index], Partial::NONE);
            if let Some(rows) = rows.as_mut().and_then(|rows| rows.get_mut(index)) {
                rows.push((slot, full));
            }
            if let Some(above) = self.closed.get_mut(index + 1) {
                *above = method.merge(*above, full);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Derivation, Moment, Open};

    /// Of each stage, what is stored.
    type Store = Vec<BTreeMap<Slot, Partial>>;

    fn put(store: &mut Store, rows: &[Derived]) {
        for row in rows {
            for (i, &value) in row.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
                let count = row.counts.get(i).copied().unwrap_or(1);
                store[row.stage].insert(row.first_slot + i as u32, Partial { value, count });
            }
        }
    }

    fn fetch(store: &Store, plan: &Derivation<'_>) -> Vec<(Vec<f64>, Vec<u32>)> {
        let cells = |need: &crate::Need| {
            let stored = |slot| store[need.stage].get(&slot).copied().unwrap_or(Partial::NONE);
            need.slots.clone().map(|slot| (stored(slot).value, stored(slot).count)).unzip()
        };
        plan.needs().iter().map(cells).collect()
    }

    /// Every stage from stage 0, folded in order, child by child.
    fn naive(policy: &Policy, points: &BTreeMap<Slot, Partial>) -> Store {
        let mut stages = vec![points.clone()];
        for pair in policy.retention.stages().windows(2) {
            let ratio = pair[1].resolution() / pair[0].resolution();
            let mut coarse = BTreeMap::new();
            for (slot, &partial) in stages.last().unwrap() {
                let all = coarse.entry(slot / ratio).or_insert(Partial::NONE);
                *all = policy.aggregation.merge(*all, partial);
            }
            stages.push(coarse);
        }
        stages
    }

    #[test]
    fn both_ways_to_a_slot_come_to_the_same_bits() {
        let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_121);
        println!("SEED={seed}");
        let mut state: u64 = seed;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let (mut extended, mut derived) = (0, 0);
        for method in Aggregation::ALL {
            let retention: Retention = "2000*1s:700*7s:400*21s:300*84s".parse().unwrap();
            let policy = Policy { retention, aggregation: method, x_files_factor: 0.0 };
            let moment = Moment { now: 1500, since: 0 };
            let mut own = Some(Own::nothing(&policy.retention));
            let mut store: Store = vec![BTreeMap::new(); 4];
            let mut points = BTreeMap::new();
            let mut next: Slot = 3;
            for flush in 0..120 {
                let mut open = Open::default();
                for _ in 0..below(40) {
                    next += 1 + (below(10) == 0) as u32 * below(60) as u32;
                    let late = below(150) == 0;
                    let slot = if late { below(u64::from(next)) as u32 } else { next };
                    let value = (below(2000) as f64 - 1000.0) * 0.1;
                    open.push(slot, value);
                    points.insert(slot, Partial::point(value));
                }
                if below(12) == 0 {
                    own = None;
                }
                let unstored_from = own.as_ref().filter(|own| own.is_all()).map_or(Slot::MAX, Own::until);
                let pending = Pending::of(&[&open], unstored_from);
                if pending.is_empty() {
                    continue;
                }
                let rows = match own.as_mut().filter(|own| own.precedes(&pending)) {
                    Some(own) => {
                        extended += 1;
                        own.extend(&policy, &pending)
                    }
                    None => {
                        derived += 1;
                        let plan = Derivation::plan_to_remember(&policy, &pending, own.as_ref(), moment);
                        let cells = fetch(&store, &plan);
                        let cells: Vec<_> = cells.iter().map(|(values, counts)| (&values[..], &counts[..])).collect();
                        let made = plan.derive_to_remember(own.as_ref(), &cells);
                        own = made.remembered.map(|remembered| remembered.own().clone());
                        made.rows
                    }
                };
                put(&mut store, &rows);
                if let Some(own) = &own {
                    assert_eq!(own.until(), points.last_key_value().map_or(0, |(slot, _)| slot + 1));
                }
                for (k, (is, want)) in store.iter().zip(naive(&policy, &points)).enumerate() {
                    let bits = |(slot, partial): (&Slot, &Partial)| (*slot, partial.value.to_bits(), partial.count);
                    let (is, want): (Vec<_>, Vec<_>) = (is.iter().map(bits).collect(), want.iter().map(bits).collect());
                    assert_eq!(is, want, "{method}, stage {k}, flush {flush}");
                }
            }
        }
        assert!(extended > 100 && derived > 100, "{extended} flushes extended, {derived} derived");
    }

    #[test]
    fn what_other_writers_count_is_not_taken_for_ones_own() {
        let policy = Policy {
            retention: "60*60s:48*3600s:60*86400s".parse().unwrap(),
            aggregation: Aggregation::Sum,
            x_files_factor: 0.0,
        };
        let mut open = Open::default();
        (58..63).for_each(|slot| _ = open.push(slot, 1.0));
        let pending = Pending::of(&[&open], Slot::MAX);
        let moment = Moment { now: 63 * 60, since: 0 };
        let plan = Derivation::plan_to_remember(&policy, &pending, None, moment);
        // Somebody else stored minute 57 and 60, and says so.
        let cells = |need: &crate::Need| -> (Vec<f64>, Vec<u32>) {
            let one = |slot| match (need.stage, slot) {
                (0, 57 | 60) | (1, 0 | 1) => (1.0, 1),
                (2, 0) => (2.0, 2),
                _ => (f64::NAN, 0),
            };
            need.slots.clone().map(one).unzip()
        };
        let cells: Vec<_> = plan.needs().iter().map(cells).collect();
        let cells: Vec<_> = cells.iter().map(|(values, counts)| (&values[..], &counts[..])).collect();
        let made = plan.derive_to_remember(None, &cells);
        let remembered = made.remembered.expect("nothing is stored after these");
        assert_eq!(remembered.open_slots(&policy.retention).collect::<Vec<_>>(), [(1, 1), (2, 0)]);
        assert_eq!(
            remembered.own().rows(Aggregation::Sum),
            [3.0, 6.0].map(|value| Partial { value, count: value as u32 })
        );
        let own = remembered.written([(2.0, 2), (4.0, 4)].map(|(value, count)| Partial { value, count }).into_iter());
        let own = own.expect("it can be told apart");
        assert_eq!(
            (own.until(), own.closed()[0], own.closed()[1]),
            (63, Partial { value: 2.0, count: 2 }, Partial { value: 2.0, count: 2 })
        );
    }
}
