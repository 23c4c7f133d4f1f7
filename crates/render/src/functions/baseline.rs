//! The usual values of a series: its median at the same time of earlier weeks, days or hours.

use std::{collections::HashMap, sync::Arc};

use crate::{
    Error, Literal, Series, Span,
    aggregator::median,
    argument::{Interval, SeriesList, Value, parameters},
    function::{FirstArgument, Function, Inputs, Needs, Reach, Reaching},
    functions::shift::INTERVALS,
    scope::{CallContext, Scope},
};

const GROUP: &str = "Calculate";

/// Steps of work on a series besides its values.
const STEPS_PER_SERIES: usize = 200;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::reaching::<Baseline>(
        "baseline",
        GROUP,
        "The median at each time of the series as they were some multiples of an interval ago, from timeShiftStart up to, but \
         not including, timeShiftEnd. Left out where more than maxAbsentPercent of it is unknown, or its mean is below minAvg.",
    )
    .preset("aberration", Literal::Boolean(false))
    .extension(),
    Function::reaching::<Baseline>(
        "baselineAberration",
        GROUP,
        "Each value divided by its baseline: 1.1 is ten percent above. Where the baseline is zero, zero.",
    )
    .preset("aberration", Literal::Boolean(true))
    .extension(),
];

/// Shifts of one call at most. Each is a fetch of its own.
const MOST_SHIFTS: i64 = 1000;

parameters! {
    /// baseline and baselineAberration.
    struct Baseline {
        series: SeriesList = "seriesList".required();
        aberration: bool = "aberration";
        unit: Interval = "timeShiftUnit".default(Literal::Text("1d")).suggest(INTERVALS);
        first: i64 = "timeShiftStart".default(Literal::Integer(0));
        after: i64 = "timeShiftEnd".default(Literal::Integer(7));
        most_absent: Option<f64> = "maxAbsentPercent";
        least_average: Option<f64> = "minAvg";
    }
}

impl Baseline {
    /// The span of the call at each earlier time.
    fn spans(&self, call: &CallContext) -> Result<Vec<Span>, Error> {
        if self.after.saturating_sub(self.first) > MOST_SHIFTS {
            return Err(call.reject(format!("timeShiftEnd must be at most {MOST_SHIFTS} after timeShiftStart")));
        }
        // Without a sign the unit goes back.
        let signed = self.unit.text.starts_with(['-', '+']);
        let unit = if signed { self.unit.seconds } else { -self.unit.seconds };
        let shifts = (self.first..self.after).filter(|shift| *shift != 0);
        let span = |shift: i64| {
            let by = shift.saturating_mul(unit);
            call.moved(by, by, "timeShiftUnit")
        };
        shifts.map(span).collect()
    }
}

impl Reaching for Baseline {
    fn reach(&self, call: &CallContext, _: &FirstArgument) -> Result<Reach, Error> {
        let needs = Needs::spans(self.spans(call)?);
        Ok(if self.aberration { Reach::Also(needs) } else { Reach::InsteadOfFirst(needs) })
    }

    fn evaluate(self, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        // Series of one name, over all spans, in the order in which the names first occur.
        let mut groups: Vec<Vec<Series>> = Vec::new();
        let mut places = HashMap::new();
        for (span, shifted) in inputs.spans {
            let by = span.from - scope.span().from;
            for mut series in shifted {
                scope.check_after(STEPS_PER_SERIES)?;
                (series.start, series.end) = (series.start - by, series.end - by);
                let place = *places.entry(series.name.clone()).or_insert(groups.len());
                match groups.get_mut(place) {
                    Some(group) => group.push(series),
                    None => groups.push(vec![series]),
                }
            }
        }
        let name = scope.function();
        let mut baselines = Vec::new();
        let currents: HashMap<Arc<str>, &Series> =
            self.series.0.iter().rev().map(|current| (current.name.clone(), current)).collect();
        for group in groups {
            let Some(first) = group.first() else { continue };
            let current = currents.get(&first.name).copied();
            if self.aberration && current.is_none() {
                continue;
            }
            scope.spend(first.values.len())?;
            let values = medians(&group, first.values.len(), scope)?;
            if !self.wanted(&values) {
                continue;
            }
            let values = match current.filter(|_| self.aberration) {
                Some(current) => {
                    values.iter().zip(current.values.iter()).map(|(base, now)| over(*now, *base)).collect()
                }
                None => values,
            };
            let name = format!("{name}({})", first.name);
            baselines.push(Series { lineage: None, ..first.clone().with(values).called(name) });
        }
        Ok(baselines.into())
    }
}

impl Baseline {
    fn wanted(&self, values: &[f64]) -> bool {
        let known: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
        let absent = 100.0 * (values.len() - known.len()) as f64 / values.len() as f64;
        let average = known.iter().sum::<f64>() / known.len() as f64;
        let too_absent = self.most_absent.is_some_and(|most| absent > most);
        let too_low = self.least_average.is_some_and(|least| average < least);
        !too_absent && !too_low
    }
}

fn over(now: f64, base: f64) -> f64 {
    if base == 0.0 && !now.is_nan() { 0.0 } else { now / base }
}

/// The median of each row.
fn medians(group: &[Series], rows: usize, scope: &Scope) -> Result<Vec<f64>, Error> {
    let mut known = Vec::with_capacity(group.len());
    let median_at = |row: usize| {
        scope.check_after(20 * group.len())?;
        known.clear();
        known.extend(group.iter().filter_map(|series| series.values.get(row)).filter(|value| !value.is_nan()));
        Ok(if known.is_empty() { f64::NAN } else { median(&mut known) })
    };
    (0..rows).map(median_at).collect()
}
