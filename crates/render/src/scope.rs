//! The scope of a function: the request, the call and the budget. No function reaches the fetched data or the engine
//! through it; [`crate::function::Reach`] is the way to ask for more.

use std::{cell::Cell, collections::HashMap};

use jiff::tz::TimeZone;

use crate::{Budget, Context, Error, Series, Span, argument::Date, time::parse_at_time};

/// A call, as the function sees it before and while it is evaluated.
#[derive(Clone, Copy)]
pub(crate) struct CallContext<'a> {
    /// The function, by the name in the request.
    pub(crate) function: &'static str,
    /// The span of the call: the request's, unless a function around the call moved it.
    pub(crate) span: Span,
    /// The request's.
    pub(crate) time_zone: &'a TimeZone,
    /// The request's, Unix seconds.
    pub(crate) now: i64,
}

impl<'a> CallContext<'a> {
    pub(crate) fn new(function: &'static str, span: Span, request: &'a Context) -> CallContext<'a> {
        CallContext { function, span, time_zone: &request.time_zone, now: request.now }
    }

    /// The Unix seconds of a date in this request.
    pub(crate) fn time(&self, date: &Date, parameter: &str) -> Result<i64, Error> {
        parse_at_time(&date.0, self.now, self.time_zone).map_err(|_| {
            let given: String = date.0.chars().take(100).collect();
            Error::Argument {
                function: self.function,
                parameter: parameter.to_owned(),
                problem: format!("must be a time such as '-1h' or '20260121', got '{given}'"),
            }
        })
    }

    /// The span of the call with its ends moved by so many seconds, or the error that it leaves the calendar.
    pub(crate) fn moved(&self, from_by: i64, until_by: i64, parameter: &str) -> Result<Span, Error> {
        let moved = self.span.moved(from_by, until_by);
        moved.ok_or_else(|| self.reject(format!("{parameter} reaches beyond the calendar, the years 1 to 9999")))
    }

    /// The function rejects its arguments or their series.
    pub(crate) fn reject(&self, problem: impl Into<String>) -> Error {
        Error::Rejected { function: self.function, problem: problem.into() }
    }
}

/// The functions that other functions call. The table of functions is above this module and comes with the scope.
#[derive(Clone, Copy)]
pub(crate) struct Callbacks {
    /// The error of a name that no function has.
    pub(crate) check: fn(&str) -> Result<(), Error>,
    pub(crate) call: CallBack,
}

/// Calls a function by name, with a list of series for each parameter.
type CallBack = fn(&str, Vec<Vec<Series>>, &mut Scope) -> Result<Vec<Series>, Error>;

/// Steps between two looks at the flag: a few milliseconds.
const STEPS_PER_LOOK: usize = 4 << 20;

/// Values of a column between two questions for steps.
const BLOCK: usize = 1 << 13;

/// A function holds a text of its arguments so many times for each series: `cactiStyle` has it in three columns and the name.
const COPIES_OF_TEXT: usize = 4;

/// Bytes of a made name that the budget does not count.
const FREE_NAME_BYTES: usize = 512;

/// See the module's head.
pub(crate) struct Scope<'a> {
    call: CallContext<'a>,
    callbacks: Callbacks,
    budget: &'a Budget<'a>,
    points_left: usize,
    // Steps since the last look at the flag.
    steps: Cell<usize>,
    // Bytes of values that the walk holds now, and the most that was reserved for them.
    live: usize,
    reserved: usize,
    /// The share of known values that folding needs here.
    pub(crate) x_files_factor: f64,
    /// How high each stack of series is by now, for all targets of the request. One point a time, of series that the
    /// budget bounds.
    pub(crate) stacks: HashMap<String, Vec<f64>>,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(request: &'a Context, budget: &'a Budget<'a>, callbacks: Callbacks) -> Scope<'a> {
        Scope {
            call: CallContext::new("", request.span, request),
            callbacks,
            budget,
            points_left: budget.points,
            steps: Cell::new(0),
            live: 0,
            reserved: 0,
            x_files_factor: request.x_files_factor,
            stacks: HashMap::new(),
        }
    }

    /// Begins a call; the engine and callbacks do.
    pub(crate) fn begin(&mut self, call: CallContext<'a>) {
        self.call = call;
    }

    /// Runs a call inside of the current one, with its span.
    pub(crate) fn within<T>(&mut self, function: &'static str, run: impl FnOnce(&mut Self) -> T) -> T {
        let caller = std::mem::replace(&mut self.call.function, function);
        let result = run(self);
        self.call.function = caller;
        result
    }

    /// Calls another function with nothing but series, a list for each parameter.
    pub(crate) fn call_back(&mut self, function: &str, lists: Vec<Vec<Series>>) -> Result<Vec<Series>, Error> {
        (self.callbacks.call)(function, lists, self)
    }

    /// The error of a callback that does not exist.
    pub(crate) fn check_callback(&self, function: &str) -> Result<(), Error> {
        (self.callbacks.check)(function)
    }

    /// The function that is being evaluated, by the name in the request.
    pub(crate) fn function(&self) -> &'static str {
        self.call.function
    }

    /// The span of the call.
    pub(crate) fn span(&self) -> Span {
        self.call.span
    }

    /// The time of the request, Unix seconds.
    pub(crate) fn now(&self) -> i64 {
        self.call.now
    }

    /// The Unix seconds of a date in this request.
    pub(crate) fn time(&self, date: &Date, parameter: &str) -> Result<i64, Error> {
        self.call.time(date, parameter)
    }

    /// See [`CallContext::moved`].
    pub(crate) fn moved(&self, from_by: i64, until_by: i64, parameter: &str) -> Result<Span, Error> {
        self.call.moved(from_by, until_by, parameter)
    }

    /// The function rejects its arguments or their series.
    pub(crate) fn reject(&self, problem: impl Into<String>) -> Error {
        self.call.reject(problem)
    }

    /// The error of a request that was cancelled. For loops over series.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if (self.budget.cancelled)() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// The same for loops whose rounds take different times. `steps` are what a round takes, about a nanosecond each.
    pub(crate) fn check_after(&self, steps: usize) -> Result<(), Error> {
        let steps = self.steps.get().saturating_add(steps);
        self.steps.set(if steps < STEPS_PER_LOOK { steps } else { 0 });
        if steps < STEPS_PER_LOOK { Ok(()) } else { self.check() }
    }

    /// What `make` answers to each value of a column, from the first to the last. `steps` are what one value takes.
    pub(crate) fn column<V, T>(
        &self,
        values: &[V],
        steps: usize,
        mut make: impl FnMut(&V) -> T,
    ) -> Result<Vec<T>, Error> {
        let mut made = Vec::with_capacity(values.len());
        for block in values.chunks(BLOCK) {
            self.check_after(steps * block.len())?;
            made.extend(block.iter().map(&mut make));
        }
        Ok(made)
    }

    /// The same for two columns, as far as both reach.
    pub(crate) fn column_of_both<T>(
        &self,
        a: &[f64],
        b: &[f64],
        steps: usize,
        mut make: impl FnMut(f64, f64) -> T,
    ) -> Result<Vec<T>, Error> {
        let rows = a.len().min(b.len());
        let mut made = Vec::with_capacity(rows);
        for (a, b) in a[..rows].chunks(BLOCK).zip(b[..rows].chunks(BLOCK)) {
            self.check_after(steps * a.len())?;
            made.extend(a.iter().zip(b).map(|(a, b)| make(*a, *b)));
        }
        Ok(made)
    }

    /// Takes a name that a function makes from the budget, as many points as fill the same memory. Names of usual length
    /// are free.
    pub(crate) fn spend_name(&mut self, bytes: usize) -> Result<(), Error> {
        self.spend(bytes.saturating_sub(FREE_NAME_BYTES) / size_of::<f64>())
    }

    /// Takes the texts among a call's arguments from the budget, once for each series that it gets, before the function
    /// writes them there. Texts of usual length are free.
    pub(crate) fn spend_texts(&mut self, bytes: usize, series: usize) -> Result<(), Error> {
        let counted = bytes.saturating_sub(FREE_NAME_BYTES) / size_of::<f64>();
        self.spend(counted.saturating_mul(COPIES_OF_TEXT).saturating_mul(series))
    }

    /// Takes points from the budget, before memory is taken for them.
    pub(crate) fn spend(&mut self, points: usize) -> Result<(), Error> {
        self.spend_made(points)?;
        self.hold(points.saturating_mul(size_of::<f64>()))
    }

    /// Takes points from the budget whose memory is held already.
    pub(crate) fn spend_made(&mut self, points: usize) -> Result<(), Error> {
        self.check()?;
        self.points_left = self.points_left.checked_sub(points).ok_or(Error::Budget { points: self.budget.points })?;
        Ok(())
    }

    /// Bytes that the walk holds.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Reserves memory before it is taken. The engine gives it back, when the value of the call is known.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), Error> {
        self.hold_in_all(self.live.saturating_add(bytes))
    }

    /// The walk holds so many bytes. The reservation does not shrink: the walk may need it again.
    pub(crate) fn hold_in_all(&mut self, bytes: usize) -> Result<(), Error> {
        self.live = bytes;
        if self.reserved < bytes {
            if !(self.budget.memory)(bytes) {
                self.check()?;
                return Err(Error::Memory);
            }
            self.reserved = bytes;
        }
        Ok(())
    }
}

/// Runs a function's parts that need a scope but no request.
#[cfg(test)]
pub(crate) fn in_scope<T>(run: impl FnOnce(&Scope) -> T) -> T {
    let (context, budget) = (Context::new(0, 0, 0), Budget::unlimited());
    let callbacks = Callbacks { check: |_| Ok(()), call: |_, _, _| Ok(Vec::new()) };
    run(&Scope::new(&context, &budget, callbacks))
}
