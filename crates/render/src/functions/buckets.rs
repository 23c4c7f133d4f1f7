//! Sums per interval: counts of hits, summaries aligned to a calendar, sums that begin again.

use jiff::{Timestamp, ToSpan, civil::DateTime, tz::TimeZone};

use crate::{
    Error, Kind, Literal, Series, Span,
    argument::{Interval, Named, ParameterPosition, SeriesList, Take, Value, parameters},
    function::{AskedRollup, Evaluate, FirstArgument, Function, Inputs, Needs, Reach, Reaching},
    functions::summarize::{INTERVALS, from_start},
    scope::{CallContext, Scope},
    time::{local_time, parse_interval},
};

const GROUP: &str = "Transform";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::reaching::<HitCount>(
        "hitcount",
        GROUP,
        "How many hits there were in each interval, of a series that says how many there are per second. A value counts for \
         its whole step, in parts where intervals divide that. Intervals end with the series, or, with alignToInterval, \
         begin with the minute, hour or day.",
    ).asks_for(AskedRollup::First),
    Function::of::<IntegralByInterval>(
        "integralByInterval",
        GROUP,
        "The sum of all values so far, beginning again at zero with each interval since the graph's start.",
    ).asks_for(AskedRollup::First),
    Function::reaching::<SmartSummarize>(
        "smartSummarize",
        GROUP,
        "Folds the values of each interval by func. Intervals begin with the graph, or with the second, minute, hour, day, \
         week, month or year that its start is in. weeks3 begins weeks on Wednesday.",
    ).asks_for(AskedRollup::First),
];

parameters! {
    /// integralByInterval.
    struct IntegralByInterval {
        series: SeriesList = "seriesList".required();
        unit: String = "intervalUnit".required();
    }
}

impl Evaluate for IntegralByInterval {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let unit = self.unit;
        let problem = || format!("intervalUnit must be an interval such as '1h', got '{unit}'");
        let interval = parse_interval(&unit).ok().map(i64::abs).filter(|seconds| *seconds > 0);
        let interval = interval.ok_or_else(|| scope.reject(problem()))?;
        let origin = scope.span().from;
        let mut summed = Vec::with_capacity(self.series.0.len());
        for mut series in self.series.0 {
            scope.spend(series.values.len())?;
            let mut sum = 0.0;
            let number = |time: i64| (time - origin).div_euclid(interval);
            let mut add = |(i, value): (usize, &f64)| {
                let time = series.start + i as i64 * series.step;
                if number(time) != number(time - series.step) {
                    sum = 0.0;
                }
                if !value.is_nan() {
                    sum += value;
                }
                sum
            };
            let values = series.values.iter().enumerate().map(&mut add).collect();
            series.tags.put("integralByInterval", unit.as_str());
            let name = format!("integralByInterval({},'{unit}')", series.name);
            summed.push(series.with(values).called(name));
        }
        Ok(summed.into())
    }
}

/// A beginning on the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    /// From which day, Monday being 1.
    Week(i8),
    Month,
    Year,
}

impl Unit {
    /// The last beginning at or before a time.
    fn floor(self, time: i64, zone: &TimeZone) -> Option<i64> {
        let local = zone.to_datetime(Timestamp::from_second(time).ok()?);
        let (date, clock) = (local.date(), local.time());
        let at = |hour: i8, minute: i8| date.at(hour, minute, 0, 0);
        let floor: DateTime = match self {
            Unit::Second => return Some(time),
            Unit::Minute => at(clock.hour(), clock.minute()),
            Unit::Hour => at(clock.hour(), 0),
            Unit::Day => at(0, 0),
            Unit::Week(first) => {
                let back = (date.weekday().to_monday_one_offset() - first).rem_euclid(7);
                at(0, 0).checked_sub(i64::from(back).days()).ok()?
            }
            Unit::Month => date.first_of_month().at(0, 0, 0, 0),
            Unit::Year => date.first_of_year().at(0, 0, 0, 0),
        };
        local_time(floor, zone)
    }
}

/// The alignment of a summary, by words such as `hours` and `weeks3`; true and false are valid and align nothing.
struct Alignment(Option<Unit>);

impl Take for Alignment {
    const KIND: Kind = Kind::String;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        const UNITS: [(&str, Unit); 7] = [
            ("s", Unit::Second),
            ("min", Unit::Minute),
            ("h", Unit::Hour),
            ("d", Unit::Day),
            ("w", Unit::Week(1)),
            ("mon", Unit::Month),
            ("y", Unit::Year),
        ];
        let text = match &value {
            Value::Boolean(_) => return Ok(Alignment(None)),
            Value::Text(text) => text.as_str(),
            _ => "",
        };
        let unit = UNITS.iter().find(|(prefix, _)| text.starts_with(prefix)).map(|(_, unit)| *unit);
        let first = text.chars().last().filter(|last| !last.is_alphabetic());
        let unit = match (unit, first) {
            (Some(Unit::Week(_)), Some(digit @ '1'..='7')) => Some(Unit::Week(digit as i8 - b'0' as i8)),
            (Some(Unit::Week(_)), Some(_)) => None,
            (unit, _) => unit,
        };
        let expected =
            "must be one of 'seconds', 'minutes', 'hours', 'days', 'weeks', 'weeks1' to 'weeks7', 'months', 'years'";
        match unit {
            Some(unit) => Ok(Alignment(Some(unit))),
            None => Err(position.problem(format!("{expected}, got '{}'", value.text().unwrap_or_default()))),
        }
    }
}

/// The span of the call, beginning where a unit does.
fn aligned(unit: Unit, call: &CallContext, parameter: &str) -> Result<Span, Error> {
    let from = unit.floor(call.span.from, call.time_zone).unwrap_or(call.span.from);
    call.moved(from - call.span.from, 0, parameter)
}

const ALIGNMENTS: &[Literal] = &[
    Literal::Boolean(false),
    Literal::None,
    Literal::Boolean(true),
    Literal::Text("days"),
    Literal::Text("hours"),
    Literal::Text("minutes"),
    Literal::Text("months"),
    Literal::Text("seconds"),
    Literal::Text("weeks"),
    Literal::Text("years"),
];

parameters! {
    /// smartSummarize.
    struct SmartSummarize {
        series: SeriesList = "seriesList".required();
        interval: Interval = "intervalString".required().suggest(INTERVALS);
        func: Named = "func".default(Literal::Text("sum"));
        align_to: Option<Alignment> = "alignTo".options(ALIGNMENTS);
    }
}

impl SmartSummarize {
    fn unit(&self) -> Option<Unit> {
        self.align_to.as_ref().and_then(|alignment| alignment.0)
    }
}

impl Reaching for SmartSummarize {
    fn reach(&self, call: &CallContext, _: &FirstArgument) -> Result<Reach, Error> {
        match self.unit() {
            None => Ok(Reach::arguments()),
            Some(unit) => Ok(Reach::InsteadOfFirst(Needs::spans(vec![aligned(unit, call, "alignTo")?]))),
        }
    }

    fn evaluate(self, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        let (interval, text) = (self.interval.seconds, &self.interval.text);
        if interval <= 0 {
            return Err(scope.reject(format!("intervalString must be longer than nothing, got '{text}'")));
        }
        let list = if self.unit().is_some() { inputs.only() } else { self.series.0 };
        let mut summarized = Vec::with_capacity(list.len());
        for mut series in list {
            scope.spend(usize::try_from((series.end - series.start) / interval).unwrap_or(0))?;
            let values = from_start(&series, self.func.aggregator, interval, series.start);
            series.tags.put("smartSummarize", text.as_str());
            series.tags.put("smartSummarizeFunction", self.func.name.as_str());
            let name = format!("smartSummarize({}, \"{text}\", \"{}\")", series.name, self.func.name);
            let end = series.start + interval * values.len() as i64;
            let integers = self.func.aggregator.keeps_integers(series.integers);
            summarized.push(Series { end, step: interval, integers, ..series.with(values).called(name) });
        }
        Ok(summarized.into())
    }
}

parameters! {
    /// hitcount.
    struct HitCount {
        series: SeriesList = "seriesList".required();
        interval: Interval = "intervalString".required().suggest(INTERVALS);
        align: bool = "alignToInterval".default(Literal::Boolean(false));
    }
}

impl HitCount {
    fn unit(&self) -> Unit {
        match self.interval.seconds {
            86_400.. => Unit::Day,
            3600.. => Unit::Hour,
            60.. => Unit::Minute,
            _ => Unit::Second,
        }
    }
}

impl Reaching for HitCount {
    fn reach(&self, call: &CallContext, _: &FirstArgument) -> Result<Reach, Error> {
        match self.align {
            false => Ok(Reach::arguments()),
            true => Ok(Reach::InsteadOfFirst(Needs::spans(vec![aligned(self.unit(), call, "alignToInterval")?]))),
        }
    }

    fn evaluate(self, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        let (interval, text) = (self.interval.seconds, &self.interval.text);
        if interval <= 0 {
            return Err(scope.reject(format!("intervalString must be longer than nothing, got '{text}'")));
        }
        let mut list = self.series.0;
        if self.align {
            list = inputs.only();
            for series in &mut list {
                let intervals = (series.end - series.start).div_euclid(interval);
                series.end = series.start + (intervals + 1) * interval;
            }
        }
        let suffix = if self.align { ", true" } else { "" };
        let mut counted = Vec::with_capacity(list.len());
        for mut series in list {
            let buckets = (series.end - series.start).max(0);
            let buckets = buckets / interval + i64::from(buckets % interval != 0);
            scope.spend(usize::try_from(buckets).unwrap_or(usize::MAX))?;
            let start = series.end - buckets * interval;
            let values = hits(&series, interval, start, buckets);
            series.tags.put("hitcount", text.as_str());
            let name = format!("hitcount({}, \"{text}\"{suffix})", series.name);
            counted.push(Series { start, step: interval, ..series.with_alike(values).called(name) });
        }
        Ok(counted.into())
    }
}

/// The sum of each value times the seconds for which it stands in a bucket. `start` is not after the series' own,
/// and values behind the last bucket do not count.
fn hits(series: &Series, interval: i64, start: i64, buckets: i64) -> Vec<f64> {
    let mut sums = vec![f64::NAN; usize::try_from(buckets).unwrap_or(0)];
    for (i, value) in series.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
        let mut from = series.start + i as i64 * series.step - start;
        let until = (from + series.step).min(buckets * interval);
        while from < until {
            let bucket = from / interval;
            let here = until.min((bucket + 1) * interval);
            if let Some(sum) = usize::try_from(bucket).ok().and_then(|bucket| sums.get_mut(bucket)) {
                // The seconds of a whole interval or of its part are a whole number either way.
                let part = value * (here - from) as f64;
                *sum = if sum.is_nan() { part } else { *sum + part };
            }
            from = here;
        }
    }
    sums
}
