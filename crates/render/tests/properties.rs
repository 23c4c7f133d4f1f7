//! Properties of every row of the table: it documents itself, takes any series, returns values that fit its own times,
//! and explains a wrong call.

mod calls;

use calls::{argument, call};
use render::{Budget, Context, Data, Error, Evaluation, Kind, Parameter, Series, evaluate, functions, parse, plan};

const FROM: i64 = 6000;
const UNTIL: i64 = 9600;

/// Series that a store may return.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    /// Two series of a minute, with a gap.
    Usual,
    /// None.
    Nothing,
    /// Two series without a single point.
    NoPoints,
    /// Two series of nulls.
    Nulls,
    /// Two series of one point.
    OnePoint,
    /// Steps and starts of their own.
    Mismatched,
    /// The extremes of floats.
    Extremes,
}

const SHAPES: [Shape; 7] =
    [Shape::Usual, Shape::Nothing, Shape::NoPoints, Shape::Nulls, Shape::OnePoint, Shape::Mismatched, Shape::Extremes];

impl Shape {
    /// A path without a star finds one series.
    fn fetched(self, fetch: &render::Fetch) -> Vec<Series> {
        let path = &*fetch.path;
        // No store keeps more than this.
        let (from, until) = (fetch.span.from.max(-1_000_000), fetch.span.until.min(1_000_000));
        let grid = |place: usize, step: i64, value: &dyn Fn(i64) -> f64| {
            let start = from - from.rem_euclid(step) + step;
            let values = (start..=until.max(start)).step_by(step as usize).map(|time| value(time / step)).collect();
            Series::fetched(["a.one", "a.two"][place], path.into(), start, step, values)
        };
        let usual = |i: i64| if i % 5 == 0 { f64::NAN } else { (i % 7) as f64 };
        let extremes = |i: i64| {
            let all = [f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, 5e-324, -0.0, 0.0, f64::NAN, 1e300];
            all[i.rem_euclid(9) as usize]
        };
        let mut both = match self {
            Shape::Usual => vec![grid(0, 60, &usual), grid(1, 60, &|i| (i % 3) as f64)],
            Shape::Nothing => Vec::new(),
            Shape::NoPoints => {
                ["a.one", "a.two"].map(|name| Series::fetched(name, path.into(), from, 60, Vec::new())).into()
            }
            Shape::Nulls => vec![grid(0, 60, &|_| f64::NAN), grid(1, 60, &|_| f64::NAN)],
            Shape::OnePoint => {
                ["a.one", "a.two"].map(|name| Series::fetched(name, path.into(), from, 60, vec![5.0])).into()
            }
            Shape::Mismatched => vec![grid(0, 60, &usual), grid(1, 420, &|i| i as f64)],
            Shape::Extremes => vec![grid(0, 60, &extremes), grid(1, 60, &|i| extremes(i + 1))],
        };
        if !path.contains('*') {
            both.truncate(1);
        }
        both
    }
}

fn answer(target: &str, shape: Shape) -> Result<Vec<Series>, Error> {
    let targets = [parse(target)?];
    let context = Context::new(UNTIL, FROM, UNTIL);
    let budget = Budget::new(10_000_000, &|| false);
    let mut data = Data::new();
    let mut wanted = plan(&targets, &context, &Budget::unlimited())?;
    for _ in 0..10 {
        for fetch in wanted.series {
            data.put(fetch.clone(), shape.fetched(&fetch));
        }
        for fetch in wanted.events {
            data.put_events(fetch, Vec::new());
        }
        match evaluate(&targets, &context, &data, &budget)? {
            Evaluation::Done(series) => return Ok(series),
            Evaluation::Fetch(more) => wanted = more,
        }
    }
    panic!("{target}: no answer after ten rounds");
}

#[test]
fn every_row_documents_itself() {
    const GROUPS: [&str; 9] =
        ["Alias", "Calculate", "Combine", "Filter Data", "Filter Series", "Graph", "Sorting", "Special", "Transform"];
    for function in functions::all() {
        let name = function.name;
        assert!(GROUPS.contains(&function.group), "{name}: {}", function.group);
        let description = function.description;
        let begins = description.starts_with(|first: char| first.is_uppercase() || first.is_ascii_digit());
        assert!(begins && description.ends_with('.'), "{name}: {description}");
        assert!(!description.contains("  ") && !description.contains('\n'), "{name}: {description}");
        assert!(function.signature_text().starts_with(&format!("{name}(")), "{name}");
        for parameter in function.shown() {
            assert!(!parameter.name.is_empty(), "{name}");
            // A parameter with a default is optional.
            let standing_in = parameter.default.or(parameter.documented);
            assert!(standing_in.is_none() || !parameter.required, "{name}: {}", parameter.name);
        }
        let many = function.shown().position(|parameter| parameter.multiple);
        assert!(many.is_none_or(|at| at + 1 == function.shown().count()), "{name}: many come last");
    }
}

#[test]
fn every_function_takes_any_series() {
    let mut answered = 0;
    let mut wrong = Vec::new();
    for function in functions::all() {
        for shape in SHAPES {
            for target in [call(function, |parameter| parameter.required), call(function, |_| true)] {
                // Lists of series are for functions that take them.
                let lists = matches!(function.name, "map" | "mapSeries");
                let target = if lists { format!("aggregate({target},'sum')") } else { target };
                match answer(&target, shape) {
                    Ok(series) => {
                        answered += 1;
                        // graphite-web gives the step of one series to the values of the other, and so do we.
                        if shape == Shape::Mismatched && matches!(function.name, "asPercent" | "pct") {
                            continue;
                        }
                        wrong.extend(
                            series.iter().filter_map(misfit).map(|problem| format!("{target} of {shape:?}: {problem}")),
                        );
                    }
                    // Unusual series may be rejected; never the call itself.
                    Err(Error::Rejected { .. }) if shape != Shape::Usual => {}
                    // No releases are among the usual; and there must be some value to show.
                    Err(Error::Rejected { function: "timeShiftByMetric" | "legendValue", .. }) => {}
                    Err(error) => wrong.push(format!("{target} of {shape:?}: {error}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(answered > 2 * 7 * 190, "{answered} answers");
}

/// What is wrong with a series that has no step, or whose values are not as many as fit between start and end, or one
/// fewer, or up to two more.
fn misfit(series: &Series) -> Option<String> {
    let Series { name, start, end, step, values, .. } = series;
    if *step <= 0 {
        return Some(format!("{name} has a step of {step}"));
    }
    // A window moves the start behind what it needs, which may be all there was.
    if values.len() < 2 && end < start {
        return None;
    }
    let fitting = (end - start + step - 1).div_euclid(*step);
    let off = fitting - values.len() as i64;
    // A line has a point at its end as well, a vertical one two at its only time.
    let fits = start <= end && (-2..=1).contains(&off);
    (!fits).then(|| format!("{name} has {} values from {start} to {end} by {step}", values.len()))
}

/// Where steps are known, one round is enough for every function that does not make targets of names.
#[test]
fn the_plan_holds_all_that_an_evaluation_needs() {
    let budget = Budget::new(10_000_000, &|| false);
    for function in functions::all() {
        if matches!(function.name, "aliasQuery" | "applyByNode" | "useSeriesAbove") {
            continue;
        }
        for shape in SHAPES {
            let step = |fetch: &render::Fetch| shape.fetched(fetch).iter().map(|series| series.step).max();
            let context = Context { largest_step: Some(&step), ..Context::new(UNTIL, FROM, UNTIL) };
            let target = call(function, |_| true);
            let targets = [parse(&target).expect(&target)];
            let mut data = Data::new();
            let wanted = plan(&targets, &context, &Budget::unlimited()).expect(&target);
            for fetch in wanted.series {
                data.put(fetch.clone(), shape.fetched(&fetch));
            }
            for fetch in wanted.events {
                data.put_events(fetch, Vec::new());
            }
            let evaluation = evaluate(&targets, &context, &data, &budget);
            assert!(!matches!(evaluation, Ok(Evaluation::Fetch(_))), "{target} of {shape:?}: {evaluation:?}");
        }
    }
}

#[test]
fn a_missing_argument_is_named() {
    for function in functions::all() {
        for missing in function.shown().filter(|parameter| parameter.required && !parameter.multiple) {
            // graphite-web says that these are required and takes a default all the same.
            if missing.fallback.is_some() || function.name == "seriesByTag" {
                continue;
            }
            // A call in which nothing is given by place is none, in graphite-web's grammar.
            let before = function.shown().take_while(|parameter| parameter.name != missing.name);
            let arguments: Vec<String> = before.map(|parameter| argument(function, parameter)).collect();
            let target = format!("{}({})", function.name, arguments.join(","));
            let error = answer(&target, Shape::Usual).expect_err(&target).to_string();
            assert_eq!(error, format!("{}: {} is missing", function.name, missing.name), "{target}");
        }
    }
}

#[test]
fn the_error_of_a_wrong_argument_shows_a_valid_one() {
    for function in functions::all().filter(|function| function.name != "seriesByTag") {
        for wrong in function.shown() {
            // Texts and tags may be anything.
            let given = match wrong.kind {
                Kind::Any | Kind::Tag => continue,
                Kind::String | Kind::NodeOrTag | Kind::Date => "a.*",
                Kind::SeriesList | Kind::SeriesLists => "5",
                _ => "'no such thing'",
            };
            let place = function.shown().position(|parameter| parameter.name == wrong.name).expect("it is shown");
            // Required ones may come after optional ones, and are then given with all between.
            let last =
                function.shown().enumerate().filter(|(at, parameter)| *at <= place || parameter.required).count();
            let written = |(at, parameter)| if at == place { given.to_owned() } else { argument(function, parameter) };
            let arguments: Vec<String> = function.shown().enumerate().take(last).map(written).collect();
            let target = format!("{}({})", function.name, arguments.join(","));
            let error = answer(&target, Shape::Usual).expect_err(&target).to_string();
            let names_both = error.starts_with(&format!("{}: {} ", function.name, wrong.name));
            assert!(names_both && (error.contains(" must be ") && error.contains(", got ")), "{target}: {error}");
        }
    }
}

#[test]
fn too_many_arguments_and_unknown_ones_are_named() {
    for function in functions::all().filter(|function| function.name != "seriesByTag") {
        let shown: Vec<&Parameter> = function.shown().collect();
        let target = call(function, |_| true);
        let named = target.replacen(')', "", 0);
        let unknown = format!("{},nope=1)", named.strip_suffix(')').expect("a call")).replace("(,", "(");
        let error = answer(&unknown, Shape::Usual).expect_err(&unknown).to_string();
        assert!(
            error.starts_with(&format!("{}: nope is not a parameter; there are ", function.name)),
            "{unknown}: {error}"
        );
        if shown.last().is_none_or(|last| !last.multiple) {
            let more = format!("{},1)", target.strip_suffix(')').expect("a call"));
            let error = answer(&more, Shape::Usual).expect_err(&more).to_string();
            let (given, takes) = (shown.len() + 1, shown.len());
            assert_eq!(error, format!("{}: takes {takes} arguments and {given} were given", function.name));
        }
    }
}

#[test]
fn a_misspelt_function_is_guessed() {
    for function in functions::all().filter(|function| function.name.len() > 4) {
        let middle = function.name.len() / 2;
        let misspelt: String =
            function.name.char_indices().filter(|(at, _)| *at != middle).map(|(_, letter)| letter).collect();
        if functions::find(&misspelt).is_some() {
            continue;
        }
        let error = answer(&format!("{misspelt}(a.*)"), Shape::Usual).expect_err(&misspelt).to_string();
        assert!(error.contains("(did you mean "), "{misspelt}: {error}");
    }
    let error = answer("movingAvrage(a.*,5)", Shape::Usual).expect_err("a misspelling").to_string();
    assert_eq!(error, "Received request for unknown function: movingAvrage (did you mean movingAverage?)");
}
