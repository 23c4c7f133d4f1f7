//! Other times of the same series.

use jiff::{Timestamp, tz::TimeZone};

use crate::{
    Error, Literal, Span,
    argument::{Interval, SeriesList, Value, parameters},
    function::{FirstArgument, Function, Inputs, Needs, Reach, Reaching},
    scope::{CallContext, Scope},
};

/// Shifts that an editor may offer.
pub(super) const INTERVALS: &[Literal] = &[
    Literal::Text("1h"),
    Literal::Text("6h"),
    Literal::Text("12h"),
    Literal::Text("1d"),
    Literal::Text("2d"),
    Literal::Text("7d"),
    Literal::Text("14d"),
    Literal::Text("30d"),
];

pub(super) const FUNCTIONS: &[Function] = &[
    Function::reaching::<TimeShift>(
        "timeShift",
        "Transform",
        "The series as they were a time ago, or, with a plus sign, as they will have been. resetEnd false keeps the end \
         of the shifted series; alignDST moves them an hour where summer time begins or ends between.",
    )
    .signature("timeShift(seriesList, timeShift, resetEnd=True, alignDST=False)"),
    Function::reaching::<TimeStack>(
        "timeStack",
        "Transform",
        "The series as they were timeShiftStart times timeShiftUnit ago, once more often, and so on up to before \
         timeShiftEnd times: one upon the other, to compare days or weeks.",
    ),
];

/// Spans that timeStack fetches at most.
const MAX_STACKED: i64 = 1000;

/// Steps of giving a series tags and a name.
const STEPS_PER_SERIES: usize = 1000;

/// An interval that goes back unless it has a sign.
struct Shift(Interval);

impl crate::argument::Take for Shift {
    const KIND: crate::Kind = crate::Kind::Interval;

    fn one(value: Value, position: &crate::argument::ParameterPosition) -> Result<Self, Error> {
        let back = match value {
            Value::Text(text) if text.starts_with(|first: char| first.is_ascii_digit()) => {
                Value::Text(format!("-{text}"))
            }
            Value::Text(text) if text.is_empty() => {
                return Err(position.problem("must be an interval such as '1d', got ''".to_owned()));
            }
            other => other,
        };
        Interval::one(back, position).map(Shift)
    }
}

parameters! {
    /// timeShift.
    struct TimeShift {
        series: SeriesList = "seriesList".required();
        shift: Shift = "timeShift".required().suggest(INTERVALS);
        reset_end: bool = "resetEnd".default(Literal::Boolean(true));
        align_dst: bool = "alignDst".default(Literal::Boolean(false));
    }
}

impl TimeShift {
    fn shifted(&self, call: &CallContext) -> Result<Span, Error> {
        let shifted = call.moved(self.shift.0.seconds, self.shift.0.seconds, "timeShift")?;
        if !self.align_dst {
            return Ok(shifted);
        }
        let hour = match (summer_time(call.span, call.time_zone), summer_time(shifted, call.time_zone)) {
            (Some(true), Some(false)) => 3600,
            (Some(false), Some(true)) => -3600,
            // A span with a change in it would be wrong on one side either way.
            _ => 0,
        };
        CallContext { span: shifted, ..*call }.moved(hour, hour, "timeShift")
    }
}

/// Whether both ends of a span are in summer time; `None` where they differ.
fn summer_time(span: Span, zone: &TimeZone) -> Option<bool> {
    let at = |time: i64| Some(zone.to_offset_info(Timestamp::from_second(time).ok()?).dst().is_dst());
    at(span.from).filter(|from| Some(*from) == at(span.until))
}

impl Reaching for TimeShift {
    fn reach(&self, call: &CallContext, _: &FirstArgument) -> Result<Reach, Error> {
        Ok(Reach::Also(Needs::spans(vec![self.shifted(call)?])))
    }

    fn evaluate(self, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        let Some(first) = self.series.0.first() else { return Ok(Vec::new().into()) };
        let (start, end) = (first.start, first.end);
        let mut shifted = inputs.only();
        for series in &mut shifted {
            scope.check_after(STEPS_PER_SERIES)?;
            series.tags.put("timeShift", self.shift.0.text.as_str());
            series.name = format!("timeShift({}, \"{}\")", series.name, self.shift.0.text).into();
            series.end = if self.reset_end { end } else { series.end - series.start + start };
            series.start = start;
        }
        Ok(shifted.into())
    }
}

parameters! {
    /// timeStack.
    struct TimeStack {
        series: SeriesList = "seriesList".required();
        unit: Shift = "timeShiftUnit".default(Literal::Text("1d")).suggest(INTERVALS);
        first: i64 = "timeShiftStart".default(Literal::Integer(0));
        after: i64 = "timeShiftEnd".default(Literal::Integer(7));
    }
}

impl TimeStack {
    fn spans(&self, call: &CallContext) -> Result<Vec<Span>, Error> {
        let count = self.after.saturating_sub(self.first);
        if count > MAX_STACKED {
            return Err(call.reject(format!(
                "timeShiftStart and timeShiftEnd ask for {count} shifts; at most {MAX_STACKED} are made"
            )));
        }
        let shifted = |times: i64| {
            let by = self.unit.0.seconds.saturating_mul(times);
            call.moved(by, by, "timeShiftUnit")
        };
        (self.first..self.after).map(shifted).collect()
    }
}

impl Reaching for TimeStack {
    fn reach(&self, call: &CallContext, _: &FirstArgument) -> Result<Reach, Error> {
        Ok(Reach::Also(Needs::spans(self.spans(call)?)))
    }

    fn evaluate(self, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        let Some(first) = self.series.0.first() else { return Ok(Vec::new().into()) };
        let unit = &self.unit.0.text;
        let mut stacked = Vec::new();
        for (times, (_, shifted)) in (self.first..).zip(inputs.spans) {
            for mut series in shifted {
                scope.check_after(STEPS_PER_SERIES)?;
                series.tags.put("timeShiftUnit", unit.as_str());
                series.tags.put("timeShift", times.to_string());
                (series.start, series.end) = (first.start, first.end);
                let name = format!("timeShift({}, {unit}, {times})", series.name);
                stacked.push(series.called(name));
            }
        }
        Ok(stacked.into())
    }
}
