//! Intended differences from graphite-web 1.1.10, and our own promises: bounds, plans, messages.

use std::sync::atomic::{AtomicUsize, Ordering};

use host::{Random, SeededRandom};
use render::{
    Budget, Context, Data, Error, Evaluation, EventFetch, Expression, Fetch, Fetches, Series, Span, evaluate, parse,
    plan,
};

const SPAN: Span = Span { from: 600, until: 900 };

fn context() -> Context<'static> {
    Context::new(SPAN.until, SPAN.from, SPAN.until)
}

/// Answers every fetch with two series of five points, or one for a path without a star.
fn fetched(fetch: &Fetch) -> Vec<Series> {
    let names = if fetch.path.contains('*') { vec!["a.one", "a.two"] } else { vec![&*fetch.path] };
    let Span { from, until } = fetch.span;
    // No store has more than this.
    let from = from.clamp(-100_000, 100_000).min(until);
    let until = until.clamp(-100_000, 100_000);
    let start = from - from.rem_euclid(60) + 60;
    let count = ((until - from) / 60).max(0);
    let values = |name: &str| (0..count).map(|i| if name == "a.two" && i == 1 { f64::NAN } else { i as f64 }).collect();
    names.into_iter().map(|name| Series::fetched(name, fetch.path.clone(), start, 60, values(name))).collect()
}

fn answer_within(target: &str, context: &Context, budget: &Budget) -> Result<Vec<Series>, Error> {
    let targets = [parse(target)?];
    let mut data = Data::new();
    let mut wanted = plan(&targets, context, &Budget::unlimited())?;
    for _ in 0..5 {
        for fetch in wanted.series {
            data.put(fetch.clone(), fetched(&fetch));
        }
        for fetch in wanted.events {
            data.put_events(fetch, Vec::new());
        }
        match evaluate(&targets, context, &data, budget)? {
            Evaluation::Done(series) => return Ok(series),
            Evaluation::Fetch(more) => wanted = more,
        }
    }
    panic!("{target}: no answer after five rounds");
}

fn answer(target: &str) -> Result<Vec<Series>, Error> {
    answer_within(target, &context(), &Budget::unlimited())
}

fn names(target: &str) -> Vec<String> {
    answer(target).expect(target).iter().map(|series| series.name.to_string()).collect()
}

fn values(target: &str) -> Vec<f64> {
    answer(target).expect(target)[0].values.to_vec()
}

fn message(target: &str) -> String {
    answer(target).expect_err(target).to_string()
}

fn planned(target: &str, context: &Context) -> Vec<String> {
    let fetches = plan(&[parse(target).expect(target)], context, &Budget::unlimited()).expect(target);
    fetches.series.iter().map(|fetch| format!("{} {} {}", fetch.path, fetch.span.from, fetch.span.until)).collect()
}

// ---- where graphite-web fails, or answers by accident -----------------------------------------------------

#[test]
fn braces_in_a_target_hold_what_they_hold_in_a_pattern_of_find() {
    // graphite-web reads all of these as the path `a`.
    for path in
        ["a.{b,{c,d}}.e", "a.{b,{c,{d,e}}x}", "a.{b.c,d}.e", "a.{b, c}", "a.{b,}", "a.{,b}.c", "a.{}", "a.{{b}}"]
    {
        assert_eq!(parse(path), Ok(Expression::Path(path.to_owned())));
        let call = format!("scale(sumSeries( {path} , a),2)");
        assert_eq!(planned(&call, &context()), [format!("{path} 600 900"), "a 600 900".to_owned()], "{call}");
    }
    // An open brace without a closing one is read as graphite-web reads it.
    for text in ["a.{b,{c,d}.e", "a.{b,'c'}", "a.{b,f(c)}", "a.{b|f()}", "a.{b\tc}", "a.{b,{c"] {
        assert_eq!(parse(text), Ok(Expression::Path("a".to_owned())), "{text}");
    }
}

#[test]
fn counters_with_gaps_may_have_bounds() {
    // 500 in graphite-web: it compares a null with maxValue.
    assert_eq!(names("perSecond(a.two,maxValue=100)"), ["perSecond(a.two)"]);
}

#[test]
fn a_piped_window_sees_what_was_piped_into_it() {
    // graphite-web forgets scale(2) when it fetches again for the window.
    assert_eq!(names("a.one|scale(2)|movingAverage(2)"), ["movingAverage(scale(a.one,2),2)"]);
    assert_eq!(names("a.one|scale(2)|timeShift('1min')"), ["timeShift(scale(a.one,2), \"-1min\")"]);
}

#[test]
fn a_window_in_a_template_sees_its_values() {
    // graphite-web fetches $x, which is nothing.
    assert_eq!(names("template(movingAverage(a.$x,2),x='one')"), ["movingAverage(a.one,2)"]);
}

#[test]
fn series_may_be_given_by_name() {
    // graphite-web fetches only positional arguments, and takes the rest for nothing.
    assert_eq!(names("asPercent(a.one,total=a.two)"), ["asPercent(a.one,a.two)"]);
    assert_eq!(names("transformNull(a.two,1,referenceSeries=a.one)"), ["transformNull(a.two,1,referenceSeries)"]);
}

#[test]
fn numbers_are_valid_as_texts() {
    assert_eq!(names("grep(alias(a.one,'x5'),5)"), ["x5"]);
    assert_eq!(names("aliasSub(alias(a.one,'x5'),5,6)"), ["x6"]);
}

#[test]
fn none_means_not_given() {
    assert_eq!(values("keepLastValue(a.two,none)"), [0.0, 0.0, 2.0, 3.0, 4.0]);
    assert_eq!(message("alias(a.one,none)"), "alias: newName is missing");
    assert_eq!(message("constantLine(none)"), "constantLine: value is missing");
}

#[test]
fn names_that_cannot_be_read_have_nodes_all_the_same() {
    assert_eq!(names("aliasByNode(alias(a.one,''),0)"), [""]);
    assert_eq!(names("aliasByNode(alias(a.one,'((a.b)'),0)"), ["((a"]);
    assert_eq!(names("aliasByNode(alias(a.one,'f()'),0)"), ["f()"]);
}

#[test]
fn a_total_may_be_missing_from_the_first() {
    // graphite-web has no span for the answer unless something was combined before.
    let series = answer("asPercent(a.one,sumSeries(b.one),0)").expect("an answer");
    assert_eq!(&*series[0].name, "asPercent(a.one,MISSING)");
    assert_eq!((series[0].start, series[0].end, series[0].step), (660, 960, 60));
}

#[test]
fn a_difference_of_infinities_is_null() {
    // Python's nan is a value of its own, which JSON shows as null.
    assert!(values("derivative(scale(a.one,inf))").iter().all(|value| value.is_nan()));
}

#[test]
fn the_last_percentile_may_be_interpolated() {
    assert_eq!(values("percentileOfSeries(a.*,100,true)"), [0.0, 1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn a_line_over_one_second_has_a_step() {
    let narrow = Context::new(601, 600, 601);
    let line = answer_within("constantLine(5)", &narrow, &Budget::unlimited()).expect("a line");
    assert_eq!((line[0].step, line[0].values.len()), (1, 3));
}

#[test]
fn a_delay_of_zero_changes_nothing() {
    // graphite-web cuts off all values but the last none.
    assert_eq!(values("delay(a.one,0)"), [0.0, 1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn nulls_are_not_outliers() {
    // 500 in graphite-web: it compares nulls.
    assert_eq!(names("removeBetweenPercentile(a.*,50)"), ["a.one", "a.two"]);
    assert_eq!(names("removeBetweenPercentile(group(a.two,add(a.two,1),add(a.two,2)),75)"), ["a.two", "add(a.two,2)"]);
    let lists = "group(a.one,add(a.one,1),add(a.one,2),pow(add(a.one,-9),0.5))";
    assert_eq!(names(&format!("averageOutsidePercentile({lists},75)")), ["a.one", "add(a.one,2)"]);
    for target in ["removeAbovePercentile(a.one,101)", "removeBelowPercentile(a.one,-1)"] {
        assert!(message(target).contains(": n must be greater than 0 and at most 100, got "), "{}", message(target));
    }
    let rejected = "averageOutsidePercentile: n must be at least 0 and at most 100, got 200.0";
    assert_eq!(message("averageOutsidePercentile(a.*,200)"), rejected);
}

#[test]
fn a_stack_may_be_given_by_name() {
    // /functions calls it so; graphite-web's own function calls it stackName, and fails.
    assert_eq!(names("stacked(a.*,stack='x')"), ["a.one", "a.two"]);
}

#[test]
fn an_overflow_is_null_or_the_limit() {
    // OverflowError in graphite-web.
    assert!(values("exp(scale(a.one,1000))")[1].is_nan());
    assert_eq!(values("sigmoid(scale(a.one,-1000))")[1..], [0.0; 4]);
    assert!(values("stdev(scale(a.one,1e200),2)")[2].is_nan());
    assert_eq!(names("mostDeviant(group(a.one,alias(scale(a.one,1e200),'x')),1)"), ["x"]);
}

#[test]
fn hits_behind_the_end_do_not_count() {
    // 500 in graphite-web: the last point of a line is at its end.
    assert_eq!(values("hitcount(constantLine(1),'100s')"), [100.0; 3]);
}

#[test]
fn weeks_begin_on_one_of_seven_days() {
    let rejected = "smartSummarize: alignTo must be one of 'seconds', 'minutes', 'hours', 'days', 'weeks', 'weeks1' to \
                   'weeks7', 'months', 'years', got 'weeks9'";
    assert_eq!(message("smartSummarize(a.one,'1h','sum','weeks9')"), rejected);
}

#[test]
fn graph_options_survive_other_functions() {
    // graphite-web forgets it wherever a function makes a new series.
    for target in
        ["movingAverage(secondYAxis(a.one),2)", "summarize(secondYAxis(a.one),'2min')", "scale(secondYAxis(a.one),2)"]
    {
        let series = answer(target).expect(target);
        assert!(series[0].graph_options().second_axis, "{target}");
    }
    let drawn =
        answer("group(color(lineWidth(a.one,2),'red'),dashed(alpha(a.one,0.5)),stacked(drawAsInfinite(a.one)),a.one)");
    let drawn = drawn.expect("series");
    let options: Vec<&render::GraphOptions> = drawn.iter().map(|series| series.graph_options()).collect();
    assert_eq!((options[0].color.as_deref(), options[0].line_width), (Some("red"), Some(2.0)));
    assert_eq!((options[1].alpha, options[1].dashed), (Some(0.5), Some(5.0)));
    assert!(options[2].stacked && options[2].infinite);
    assert_eq!(options[3], &render::GraphOptions::default());
    let between = answer("areaBetween(a.*)").expect("series");
    assert!(between[0].graph_options().invisible && between[1].graph_options().stacked);
}

// ---- messages -----------------------------------------------------------------------------------------

#[test]
fn mistakes_are_named() {
    let cases = [
        ("nope(a.one)", "Received request for unknown function: nope"),
        ("sumSerie(a.one)", "Received request for unknown function: sumSerie (did you mean sumSeries?)"),
        ("scale(a.one)", "scale: factor is missing"),
        ("scale(a.one,'x')", "scale: factor must be a number, got 'x'"),
        ("scale(2,a.one)", "scale: seriesList must be series, got 2"),
        ("scale(a.one,2,3)", "scale: takes 2 arguments and 3 were given"),
        ("scale(a.one,by=2)", "scale: by is not a parameter; there are seriesList, factor"),
        ("scale(a.one,2,factor=2)", "scale: factor is given twice"),
        ("limit(a.one,1.5)", "limit: n must be a whole number, got 1.5"),
        ("summarize(a.one,'5m')", "summarize: intervalString must be an interval such as '5min', got '5m'"),
        ("summarize(a.one,'-1h')", "summarize: intervalString must be longer than nothing, got '-1h'"),
        (
            "movingAverage(a.one,'5')",
            "movingAverage: windowSize must be a number of points or an interval such as '5min', got '5'",
        ),
        (
            "movingAverage(a.one,-5)",
            "movingAverage: windowSize must be a number of points or an interval such as '5min', got -5",
        ),
        ("sortByName(a.one,'yes')", "sortByName: natural must be true or false, got 'yes'"),
        ("aliasSub(a.one,'a','\\2')", "aliasSub: replace refers to the group 2, which the pattern does not have"),
        (
            "consolidateBy(a.one,'p95')",
            "consolidateBy: consolidationFunc must be one of 'average', 'avg', 'avg_zero', 'first', 'last', 'max', 'min', 'sum', got 'p95'",
        ),
        ("percentileOfSeries(a.one,101)", "percentileOfSeries: n must be greater than 0 and at most 100, got 101.0"),
        ("divideSeries(a.one,a.*)", "divideSeries: divisorSeries must be exactly 1 series, got 2"),
        ("template(scale(a.one,2),a.two)", "invalid template() syntax, only string/numeric arguments are allowed"),
        ("", "no metric name or function call at character 0 of ''"),
    ];
    for (target, expected) in cases {
        assert_eq!(message(target), expected);
    }
}

#[test]
fn errors_have_the_status_of_graphite_web() {
    let status = |target: &str| answer(target).expect_err(target).graphite_web_status();
    assert_eq!(status("nope(a.one)"), 400);
    assert_eq!(status("aggregate(a.one,'p95')"), 400);
    assert_eq!(status("scale(a.one)"), 500);
    assert_eq!(status("("), 500);
}

#[test]
fn mistakes_are_found_before_anything_is_fetched() {
    for target in ["scale(a.*)", "sumSeries(nope(a.*))", "movingAverage(a.*,'5')", "summarize(a.*,'x')"] {
        assert!(plan(&[parse(target).expect(target)], &context(), &Budget::unlimited()).is_err(), "{target}");
    }
}

// ---- plans -------------------------------------------------------------------------------------------------

#[test]
fn a_plan_holds_every_fetch_once() {
    assert_eq!(planned("sumSeries(a.*,a.*,scale(b.*,2))", &context()), ["a.* 600 900", "b.* 600 900"]);
    assert_eq!(planned("asPercent(a,total=b)", &context()), ["a 600 900", "b 600 900"]);
    assert_eq!(planned("sumSeries(seriesByTag('x=y'))", &context()), ["seriesByTag('x=y') 600 900"]);
    assert_eq!(planned("constantLine(5)", &context()), [] as [&str; 0]);
}

#[test]
fn windows_and_shifts_are_planned() {
    assert_eq!(planned("timeShift(a,'1h')", &context()), ["a 600 900", "a -3000 -2700"]);
    assert_eq!(planned("movingAverage(a,'5min')", &context()), ["a 300 900"]);
    assert_eq!(planned("movingAverage(scale(a,2),'5min')", &context()), ["a 600 900", "a 300 900"]);
    assert_eq!(planned("movingAverage(timeShift(a,'1h'),'5min')", &context()).len(), 4);
}

#[test]
fn a_window_in_points_is_planned_where_the_step_is_known() {
    assert_eq!(planned("movingAverage(a,5)", &context()), ["a 600 900"]);
    let step_of = |_: &Fetch| Some(60);
    let knowing = Context { largest_step: Some(&step_of), ..context() };
    assert_eq!(planned("movingAverage(a,5)", &knowing), ["a 300 900"]);
}

#[test]
fn an_evaluation_asks_for_the_rest_of_a_plan() {
    let targets = [parse("movingAverage(a.one,2)").expect("a target")];
    let mut data = Data::new();
    for fetch in plan(&targets, &context(), &Budget::unlimited()).expect("a plan").series {
        data.put(fetch.clone(), fetched(&fetch));
    }
    let wide = Fetch::new("a.one", Span { from: 480, until: 900 });
    let evaluation = evaluate(&targets, &context(), &data, &Budget::unlimited()).expect("an evaluation");
    assert_eq!(evaluation, Evaluation::Fetch(Fetches { series: vec![wide], events: Vec::new() }));
}

// ---- bounds ------------------------------------------------------------------------------------------------

#[test]
fn deep_targets_are_rejected_at_once() {
    let nested = |depth: usize| format!("{}a{}", "sumSeries(".repeat(depth), ")".repeat(depth));
    assert!(answer(&nested(90)).is_ok());
    assert!(message(&nested(101)).contains("nested too deeply"));
    assert!(message(&nested(50_000)).contains("nested too deeply"));
    assert!(message(&format!("a{}", "|sumSeries()".repeat(200))).contains("nested too deeply"));
    // Each level could be a template or a call to a function of that name: 2^n ways to read it.
    assert!(parse(&"template(f(".repeat(45)).is_ok() || message(&"template(f(".repeat(45)).contains("nested"));
    assert!(message(&"a".repeat(2 << 20)).contains("too long"));
}

#[test]
fn windows_in_windows_are_rejected_where_they_multiply() {
    let target = format!("{}a.one{}", "movingAverage(scale(".repeat(40), ",1),'1min')".repeat(40));
    let error = plan(&[parse(&target).expect("a target")], &context(), &Budget::unlimited()).expect_err("too much");
    assert!(matches!(error, Error::Fetches { .. }), "{error}");
}

#[test]
fn windows_beyond_the_calendar_are_rejected() {
    for target in ["movingAverage(a.*,99999999999999)", "timeShift(a.*,'9000y')", "timeShift(a.*,'+9000y')"] {
        assert!(message(target).contains("calendar"), "{target}");
    }
}

#[test]
fn an_evaluation_ends_with_its_budget() {
    let budget = |points: usize| Budget::new(points, &|| false);
    assert!(answer_within("scale(a.*,2)", &context(), &budget(12)).is_ok());
    let error = answer_within("scale(a.*,2)", &context(), &budget(11)).expect_err("too much");
    assert_eq!(error, Error::Budget { points: 11 });
    // A million years in seconds, without the memory for them.
    let long = Context::new(0, -31_557_600_000_000, 0);
    let coarse = [Series::fetched("a", "a".into(), long.span.from, 86_400, vec![1.0; 1 << 20])];
    let mut data = Data::new();
    data.put(Fetch::new("a", long.span), coarse.to_vec());
    let targets = [parse("summarize(a,'1s')").expect("a target")];
    assert!(matches!(evaluate(&targets, &long, &data, &budget(1 << 24)), Err(Error::Budget { .. })));
}

#[test]
fn a_cancelled_evaluation_stops() {
    let asked = AtomicUsize::new(0);
    let cancelled = || asked.fetch_add(1, Ordering::Relaxed) >= 3;
    let budget = Budget::new(usize::MAX, &cancelled);
    let error = answer_within("scale(offset(absolute(a.*),1),2)", &context(), &budget).expect_err("cancelled");
    assert_eq!(error, Error::Cancelled);
    assert!(asked.load(Ordering::Relaxed) < 8);
}

/// Text made of what targets are made of, from a printed seed: nothing of it may panic.
#[test]
fn no_target_panics() {
    const PIECES: &[&str] = &[
        "(",
        ")",
        ",",
        "|",
        "'",
        "\"",
        "{",
        "}",
        ".",
        "\\",
        "$x",
        "*",
        "=",
        " ",
        "a.one",
        "a.*",
        "1",
        "-2",
        "0",
        "1e3",
        "inf",
        "none",
        "true",
        "'5min'",
        "'-1h'",
        "'sum'",
        "'(.*)'",
        "é",
        "template(",
        "seriesByTag('a=b')",
        "x=",
        "'\\1'",
        "99999999999",
        "0.5",
    ];
    let functions: Vec<&str> = render::functions::all().map(|function| function.name).collect();
    let random = SeededRandom::new(SeededRandom::test_seed(0x5EED));
    let below = |bound: usize| random.index(bound);
    let (mut read, mut answered) = (0, 0);
    for round in 0..20_000 {
        let mut target = String::new();
        if round % 2 == 0 {
            // A call that is well formed, of a function with any arguments.
            target = format!("{}(a.*", functions[below(functions.len())]);
            for _ in 0..below(4) {
                target.push(',');
                target.push_str(PIECES[14 + below(PIECES.len() - 14)]);
            }
            target.push(')');
        } else {
            for _ in 0..below(12) {
                match below(5) {
                    0 => target.push_str(&format!("{}(", functions[below(functions.len())])),
                    _ => target.push_str(PIECES[below(PIECES.len())]),
                }
            }
        }
        read += usize::from(parse(&target).is_ok());
        answered += usize::from(answer_within(&target, &context(), &Budget::new(1 << 20, &|| false)).is_ok());
    }
    assert!(read > 10_000 && answered > 3_000, "{read} read, {answered} answered");
}

/// Answers events in a request for ten seconds.
fn counted(target: &str, times: &[i64]) -> (Vec<EventFetch>, Vec<Series>) {
    let context = Context::new(1010, 1000, 1010);
    let targets = [parse(target).expect("a target")];
    let mut data = Data::new();
    let Fetches { series, events } = plan(&targets, &context, &Budget::unlimited()).expect("a plan");
    assert_eq!(series, [], "events are not paths");
    for fetch in &events {
        data.put_events(fetch.clone(), times.to_vec());
    }
    match evaluate(&targets, &context, &data, &Budget::unlimited()).expect("an evaluation") {
        Evaluation::Done(series) => (events, series),
        Evaluation::Fetch(more) => panic!("{target} needs {more:?} as well"),
    }
}

#[test]
fn events_are_counted_by_the_second() {
    let (wanted, series) = counted("events('a','b')", &[1000, 1003, 1003, 1009, 1010, 999]);
    let tags = render::EventTags::All(["a".to_owned(), "b".to_owned()].as_slice().into());
    assert_eq!(wanted, [EventFetch { tags, span: Span { from: 1000, until: 1010 } }]);
    let [series] = series.as_slice() else { panic!("one series") };
    assert_eq!((&*series.name, series.start, series.end, series.step), ("events(\"a\", \"b\")", 1000, 1010, 1));
    let shown: Vec<String> = series.values.iter().map(f64::to_string).collect();
    assert_eq!(shown.join(" "), "1 NaN NaN 2 NaN NaN NaN NaN NaN 1", "one at the very end has no second of its own");
    assert_eq!(series.consolidation.to_string(), "sum");

    let (wanted, series) = counted("sumSeries(events('*'),events('c'),timeShift(events('*'),'1h'))", &[]);
    assert_eq!(wanted.len(), 3);
    assert_eq!(wanted[0].tags, render::EventTags::Any);
    assert!(series[0].values.iter().all(|value| value.is_nan()));
}

/// The helper of these tests answers every fetch of events with none.
#[test]
fn a_caller_without_events_answers_none() {
    assert!(values("events('*')").iter().all(|value| value.is_nan()));
}

#[test]
fn a_walk_goes_by_chance_and_stays_the_same() {
    let (one, again, other) = (values("randomWalk('x',1)"), values("randomWalk('x',1)"), values("randomWalk('y',1)"));
    assert_eq!(one, again);
    assert_ne!(one, other);
    assert_eq!((one.len(), one[0]), (300, 0.0));
    assert!(one.windows(2).all(|steps| (steps[1] - steps[0]).abs() <= 0.5));
    assert!(one.windows(2).any(|steps| steps[1] > steps[0]) && one.windows(2).any(|steps| steps[1] < steps[0]));
    assert!(message("randomWalk('x',0)").contains("step must be at least 1, got 0"));
    assert!(message("time('x',-60)").contains("step must be at least 1"));
}

#[test]
fn dates_are_those_of_the_request() {
    assert_eq!(names("timeSlice(a.one,'-4min')"), ["timeSlice(a.one, 660, 900)"]);
    assert_eq!(names("linearRegression(a.one,'-4min','-1min')"), ["linearRegression(a.one, 660, 840)"]);
    assert_eq!(names("verticalLine('-1min')"), [""]);
    assert!(message("timeSlice(a.one,'whenever')").contains("startSliceAt must be a time such as '-1h'"));
    assert!(message("verticalLine('-1h')").contains("before start of range"));
}

#[test]
fn incomplete_groups_are_left_out() {
    let reduced = "reduceSeries(mapSeries(group(x.a.n,x.b.n,y.a.n,short),0),'diffSeries',1,'a','b')";
    assert_eq!(names(reduced), ["x.reduce.diffSeries"], "graphite-web fails for y and for short");
    assert_eq!(names("reduceSeries(group(x.a.n,x.b.n),'diffSeries',1,'a','b')"), ["x.reduce.diffSeries"]);
    assert!(message("mapSeries(a.*,0)").contains("mapSeries: makes lists of series"));
    assert!(message("scale(mapSeries(a.*,0),2)").contains("must be series, got lists of series"));
    assert!(message("reduceSeries(mapSeries(a.*,0),'movingAverage',1,'one')").contains("cannot call movingAverage"));
    assert_eq!(names("groupByTags(a.*,'sum','none')").len(), 1);
    assert_eq!(names("holtWintersConfidenceArea(group(),3,'1h','5min')").len(), 0);
    assert!(message("holtWintersForecast(a.one,'1h','1min')").contains("seasonality must be at least two steps"));
}

#[test]
fn nulls_do_not_hide_a_series_above_a_value() {
    assert_eq!(names("useSeriesAbove(a.two,1,'two','three')"), ["a.three"]);
}

#[test]
fn targets_made_of_names_are_bounded() {
    let long = "x".repeat(900_000);
    assert!(message(&format!("applyByNode({long}.one,0,'group(%,%)')")).contains("makes a text of more than"));
    assert!(message(&format!("template(a.$x$x$x$x$x$x,x='{long}')")).contains("template() makes paths of more than"));
    let doubled = (0..30).fold("a.one".to_owned(), |inner, _| format!("aliasSub({inner},'(.+)','\\1\\1')"));
    assert!(message(&doubled).contains("make a name of more than"));
    assert!(message("timeStack(a.one,'1s',0,100000)").contains("at most 1000"));
    // Each of the names asks for another path, and is rejected before all are collected.
    let many: Vec<String> = (0..20_000).map(|i| format!("n{i}")).collect();
    let many = format!("applyByNode(group({}),0,'x.%')", many.join(","));
    let targets = [parse(&many).expect("a target")];
    let mut data = Data::new();
    for i in 0..20_000 {
        let fetch = Fetch::new(format!("n{i}"), SPAN);
        let one = Series::fetched(&fetch.path.clone(), fetch.path.clone(), 660, 60, vec![1.0]);
        data.put(fetch, vec![one]);
    }
    assert!(matches!(evaluate(&targets, &context(), &data, &Budget::unlimited()), Err(Error::Fetches { .. })));
    // Their points count against the budget, like all others.
    let budget = Budget::new(1000, &|| false);
    let walks = "applyByNode(group(a,b,c,d),0,'randomWalk(\"%\",1)')";
    assert!(matches!(answer_within(walks, &context(), &budget), Err(Error::Budget { .. })));
}

#[test]
fn one_long_function_stops_when_cancelled() {
    let checks = AtomicUsize::new(0);
    for target in [
        "aggregate(a.*,'median')",
        "percentileOfSeries(a.*,50)",
        "holtWintersForecast(a.*,'1h','5min')",
        "aliasSub(a.*,'(.)','x')",
        "applyByNode(a.*,1,'%')",
        "groupByTags(a.*,'sum','name')",
        "exponentialMovingAverage(a.*,'5min')",
        "sumSeriesWithWildcards(a.*,1)",
    ] {
        // The check runs more often than there are calls, so it runs within them.
        checks.store(0, Ordering::Relaxed);
        let count = || checks.fetch_add(1, Ordering::Relaxed) > 1000;
        answer_within(target, &context(), &Budget::new(usize::MAX, &count)).expect(target);
        let asked = checks.load(Ordering::Relaxed);
        assert!(asked > 3, "{target} asks {asked} times");
        for after in 0..asked {
            checks.store(0, Ordering::Relaxed);
            let cancelled = || checks.fetch_add(1, Ordering::Relaxed) >= after;
            let answer = answer_within(target, &context(), &Budget::new(usize::MAX, &cancelled));
            assert_eq!(answer, Err(Error::Cancelled), "{target} after {after}");
        }
    }
}

#[test]
fn lines_and_areas_carry_their_graph_options() {
    let options = |target: &str| -> Vec<render::GraphOptions> {
        answer(target).expect(target).iter().map(|series| series.graph_options().clone()).collect()
    };
    assert_eq!(options("threshold(5,'x','red')")[0].color.as_deref(), Some("red"));
    let vertical = options("verticalLine('-1min','x',color='blue')");
    assert!(vertical[0].infinite && vertical[0].color.as_deref() == Some("blue"));
    let area = options("holtWintersConfidenceArea(a.one,3,'10min','5min')");
    assert_eq!(
        area.iter().map(|band| (band.stacked, band.invisible)).collect::<Vec<_>>(),
        [(true, true), (true, false)]
    );
}

#[test]
fn legends_are_as_wide_as_the_longest_name() {
    // A format's own width ends at 65,535, with a panic.
    let long = format!("alias(a.one,'{}')", "x".repeat(15_000));
    let longer = format!("aliasSub({long},'^.+','\\g<0>\\g<0>\\g<0>\\g<0>')");
    let longest = format!("legendValue({longer}{})", ",'avg'".repeat(600));
    let widths: Vec<usize> = names(&format!("cactiStyle(group(a.two,{longest}))")).iter().map(String::len).collect();
    assert!(widths.len() == 2 && widths[0] == widths[1] && widths[0] > 65_535, "{widths:?}");
    let budget = Budget::new(1000, &|| false);
    let target = format!("cactiStyle(group(a.two,{long}))");
    assert_eq!(answer_within(&target, &context(), &budget), Err(Error::Budget { points: 1000 }));
}
