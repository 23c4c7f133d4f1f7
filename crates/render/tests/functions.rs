//! Every target of functions/*.txt comes out as graphite-web 1.1.10 answered it: names, times, tags, and
//! values to the bit. See record.py for how the files are made and read.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use render::{
    Argument, Budget, Context, Data, Evaluation, Fetch, Series, Span, consolidate, evaluate, parse, plan, python_float,
    time_range,
};

struct Metric {
    name: String,
    step: i64,
    start: i64,
    values: Vec<f64>,
    fixed: bool,
}

#[derive(Default)]
struct Case {
    line: usize,
    span: Option<Span>,
    options: BTreeMap<String, String>,
    target: String,
    fetches: Vec<(Fetch, Vec<String>)>,
    answer: Vec<Vec<String>>,
}

fn words(line: &str) -> Vec<String> {
    let word = |word: &str| {
        let mut out = String::new();
        let mut characters = word.chars();
        while let Some(character) = characters.next() {
            out.push(match character {
                '\\' => match characters.next() {
                    Some('t') => '\t',
                    Some('n') => '\n',
                    Some('r') => '\r',
                    Some('0') => '\0',
                    other => other.expect("an escape"),
                },
                plain => plain,
            });
        }
        out
    };
    line.split('\t').map(word).collect()
}

fn value(word: &str) -> f64 {
    if word == "None" { f64::NAN } else { word.parse().expect("a value") }
}

fn read(path: &Path) -> (Vec<Metric>, Vec<Case>) {
    let (mut metrics, mut cases) = (Vec::new(), Vec::<Case>::new());
    for (number, line) in fs::read_to_string(path).expect("a recorded file").lines().enumerate() {
        let words = words(line);
        let integer = |place: usize| -> i64 { words[place].parse().expect("an integer") };
        let case = cases.last_mut();
        match words[0].as_str() {
            "metric" | "fixed" => metrics.push(Metric {
                name: words[1].clone(),
                step: integer(2),
                start: integer(3),
                values: words[4..].iter().map(|word| value(word)).collect(),
                fixed: words[0] == "fixed",
            }),
            "case" => cases.push(Case {
                line: number + 1,
                span: Some(Span { from: integer(1), until: integer(2) }),
                options: words[3..]
                    .iter()
                    .map(|word| word.split_once('=').expect("key=value"))
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
                ..Case::default()
            }),
            "target" => case.expect("a case").target = words[1].clone(),
            "fetch" => {
                let span = Span { from: integer(1), until: integer(2) };
                let fetch = Fetch::new(words[3].as_str(), span);
                case.expect("a case").fetches.push((fetch, words[4..].to_vec()));
            }
            "series" | "tags" | "values" | "points" | "error" => case.expect("a case").answer.push(words),
            _ => {}
        }
    }
    (metrics, cases)
}

impl Metric {
    fn fetched(&self, fetch: &Fetch) -> Series {
        let Span { from, until } = fetch.span;
        if self.fixed {
            return Series::fetched(&self.name, fetch.path.clone(), self.start, self.step, self.values.clone());
        }
        let first = from - from.rem_euclid(self.step) + self.step;
        let mut end = until - until.rem_euclid(self.step) + self.step;
        if first == end {
            end += self.step;
        }
        let at = |time: i64| {
            let place = usize::try_from((time - self.start).div_euclid(self.step)).ok();
            place.and_then(|place| self.values.get(place)).copied().unwrap_or(f64::NAN)
        };
        let values = (first..end).step_by(self.step as usize).map(at).collect();
        Series::fetched(&self.name, fetch.path.clone(), first, self.step, values)
    }
}

/// The answer as the recorder writes it.
fn answered(case: &Case, metrics: &[Metric], with_steps: bool) -> Result<Vec<Vec<String>>, render::Error> {
    Ok(evaluated(case, metrics, with_steps)?.iter().flat_map(written).collect())
}

fn evaluated(case: &Case, metrics: &[Metric], with_steps: bool) -> Result<Vec<Series>, render::Error> {
    let span = case.span.expect("a span");
    let recorded: BTreeMap<&Fetch, &Vec<String>> = case.fetches.iter().map(|(fetch, names)| (fetch, names)).collect();
    let series_of = |fetch: &Fetch| -> Vec<Series> {
        let names = recorded.get(fetch).map_or(&[][..], |names| names.as_slice());
        let metric = |name: &String| metrics.iter().find(|metric| metric.name == *name).expect("a metric");
        names.iter().map(|name| metric(name).fetched(fetch)).collect()
    };
    let largest_step = |fetch: &Fetch| {
        // Where graphite-web did not fetch this, nothing is known of it.
        recorded.contains_key(fetch).then(|| series_of(fetch).iter().map(|series| series.step).max())?
    };
    let option = |key: &str| case.options.get(key).map(String::as_str);
    let template = case.options.iter().filter_map(|(key, value)| Some((key.strip_prefix("template.")?, value)));
    let mut context = Context {
        template: template.map(|(key, value)| (key.to_owned(), value.clone())).collect(),
        x_files_factor: option("xff").map_or(0.0, |factor| factor.parse().expect("a factor")),
        ..Context::new(span.until, span.from, span.until)
    };
    if let Some(zone) = option("zone") {
        context.time_zone = jiff::tz::TimeZone::get(zone).expect("a time zone");
    }
    if with_steps {
        context.largest_step = Some(&largest_step);
    }
    let targets: Vec<_> = match case.target.trim() {
        "" => Vec::new(),
        target => vec![parse(target)?],
    };
    let mut data = Data::new();
    let mut wanted = plan(&targets, &context, &Budget::unlimited())?;
    for _ in 0..10 {
        for fetch in wanted.series {
            data.put(fetch.clone(), series_of(&fetch));
        }
        for fetch in wanted.events {
            data.put_events(fetch, Vec::new());
        }
        match evaluate(&targets, &context, &data, &Budget::unlimited())? {
            Evaluation::Fetch(more) => wanted = more,
            Evaluation::Done(series) => return Ok(series),
        }
    }
    panic!("line {}: more than ten rounds", case.line);
}

fn number(value: f64, series: &Series) -> String {
    match (value.is_nan(), series.integers) {
        (true, _) => "None".to_owned(),
        (false, true) => format!("{value:.0}"),
        (false, false) => repr(value),
    }
}

fn written(series: &Series) -> [Vec<String>; 3] {
    let word = |word: &str| word.to_owned();
    let Series { name, path_expression, start, end, step, consolidation, x_files_factor, .. } = series;
    [
        vec![
            word("series"),
            word(name),
            word(path_expression),
            start.to_string(),
            end.to_string(),
            step.to_string(),
            consolidation.to_string(),
            repr(*x_files_factor),
        ],
        [word("tags")].into_iter().chain(series.tags.iter().map(|(tag, value)| format!("{tag}={value}"))).collect(),
        [word("values")].into_iter().chain(series.values.iter().map(|value| number(*value, series))).collect(),
    ]
}

fn repr(value: f64) -> String {
    python_float(value)
}

/// Every word is the same, but for two things: Python's nan is our null, and where it holds integers among
/// floats they are floats here.
fn same(ours: &[Vec<String>], theirs: &[Vec<String>]) -> bool {
    let line = |(ours, theirs): (&Vec<String>, &Vec<String>)| {
        let floats = theirs[0] == "values" && theirs.iter().any(|word| word.contains('.'));
        let word = |(ours, theirs): (&String, &String)| {
            let integer = theirs.parse::<i64>().is_ok();
            ours == theirs
                || (ours == "None" && theirs == "nan")
                || (floats && integer && ours.strip_suffix(".0") == Some(theirs))
        };
        ours.len() == theirs.len() && ours.iter().zip(theirs).all(word)
    };
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(line)
}

fn replay(family: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/functions").join(format!("{family}.txt"));
    let (metrics, cases) = read(&path);
    assert!(cases.len() > 10, "{family} has cases");
    let mut wrong = String::new();
    let mut failures = 0;
    for case in &cases {
        for with_steps in [false, true] {
            let ours = answered(case, &metrics, with_steps);
            let as_recorded = match (&ours, case.answer.first()) {
                (Err(error), Some(answer)) if answer[0] == "error" => {
                    // Where it fails we may reject with a reason of our own, never the other way round.
                    answer[1] == "500" || answer[1] == error.graphite_web_status().to_string()
                }
                (Ok(ours), _) => same(ours, &case.answer),
                (Err(_), _) => false,
            };
            if as_recorded {
                continue;
            }
            failures += 1;
            let _ = writeln!(wrong, "\n{}:{} {} {:?}", path.display(), case.line, case.target, case.options);
            let _ = writeln!(wrong, "  ours   {ours:?}\n  theirs {:?}", case.answer);
            break;
        }
    }
    assert!(failures == 0, "{failures} of {} differ:{wrong}", cases.len());
}

macro_rules! families {
    ($($name:ident)*) => {
        const FAMILIES: &[&str] = &[$(stringify!($name)),*];
        $(
        #[test]
        fn $name() {
            replay(stringify!($name));
        }
    )*};
}

families! {
    alias buckets combine consolidation constant deviation exponential filter forecast gaps generate graph language
    legend lists maths moving node outlier pairs percent query shift sort summarize tag time transform wildcards
}

/// consolidate.txt holds requests with maxDataPoints and the points of graphite-web's JSON.
#[test]
fn max_data_points_leaves_what_graphite_web_leaves() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/consolidate.txt");
    let (metrics, cases) = read(&path);
    assert!(cases.len() > 200);
    let mut wrong = String::new();
    for case in &cases {
        let most = case.options["max"].parse().expect("a number");
        let mut series = evaluated(case, &metrics, true).expect("an answer");
        let nothing = series.iter().all(|series| series.values.is_empty());
        let range = time_range(&series);
        series.iter_mut().for_each(|series| consolidate(series, most, range));
        let points = |series: &Series| {
            let points = series.datapoints().map(|(time, value)| format!("{}@{time}", number(value, series)));
            [("points".to_owned()), series.name.to_string()].into_iter().chain(points).collect::<Vec<String>>()
        };
        let ours: Vec<Vec<String>> = if nothing { Vec::new() } else { series.iter().map(points).collect() };
        // graphite-web fails on a series that has no value at all among others, or loses all.
        let fails = case.answer.first().is_some_and(|answer| answer[0] == "error");
        if !fails && ours != case.answer {
            let _ =
                writeln!(wrong, "{} {} {most}\n  ours   {ours:?}\n  theirs {:?}", case.line, case.target, case.answer);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_recorded_file_is_replayed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/functions");
    let files = fs::read_dir(folder).expect("the folder").map(|file| file.expect("a file").path());
    let mut families: Vec<String> = files.map(|file| file.file_stem().expect("a name").display().to_string()).collect();
    families.sort();
    assert_eq!(families, FAMILIES);
}

#[test]
fn a_target_reads_back_as_an_expression() {
    let expression = parse("alias(a.b, 'x')").expect("a target");
    let render::Expression::Call(call) = expression else { panic!("a call") };
    assert_eq!(call.positional[1], Argument::Text("x".to_owned()));
}
