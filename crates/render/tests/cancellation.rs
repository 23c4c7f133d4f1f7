//! Every function looks often whether its client is gone.
//!
//!     cargo test --release -p render --test cancellation -- --nocapture
//!
//! prints the most processor time between two looks, for each function.

mod calls;

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use render::{Budget, Context, Data, Evaluation, Fetch, Series, evaluate, functions, parse, plan};

const SCALE: usize = if cfg!(debug_assertions) { 1 } else { 40 };

/// The most processor time between two looks: for a program that is not optimised, far more than for one that is.
const BOUND: Duration = Duration::from_millis(if cfg!(debug_assertions) { 300 } else { 100 });

/// A client that stays for so long.
const PATIENCE: Duration = Duration::from_secs(1);

/// The processor time of this thread, which other programs do not lengthen.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanos = text.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanos.expect("nanoseconds"))
}

const UNTIL: i64 = 1_700_000_000;

/// What a path stands for.
#[derive(Debug, Clone, Copy)]
enum Size {
    /// Few series with many points.
    Long,
    /// Many series with few points.
    Many,
    /// Few series with many times and no value.
    Nulls,
}

impl Size {
    fn points(self) -> i64 {
        match self {
            Size::Long | Size::Nulls => 100_000 * SCALE as i64,
            Size::Many => 50,
        }
    }

    fn series(self, path: &str) -> usize {
        match self {
            _ if !path.contains('*') => 1,
            Size::Long | Size::Nulls => 2,
            Size::Many => 1500 * SCALE,
        }
    }

    fn fetched(self, fetch: &Fetch) -> Vec<Series> {
        let points = (fetch.span.until - fetch.span.from).clamp(1, 2 * self.points());
        let mut chance = 88_172_645_463_325_252_u64;
        let mut value = |_| {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            if chance.is_multiple_of(50) || matches!(self, Size::Nulls) {
                f64::NAN
            } else {
                (chance % 100_000) as f64 / 1e3
            }
        };
        let mut one = |i: usize| {
            let name = format!("a.{}{i:06}.{}", ["one", "two"][i % 2], "long-component".repeat(10));
            let values = (0..points).map(&mut value).collect();
            Series::fetched(&name, fetch.path.clone(), fetch.span.until - points, 1, values)
        };
        (0..self.series(&fetch.path)).map(&mut one).collect()
    }
}

/// Heavier arguments than the shortest valid ones.
fn heavy(target: &str, size: Size) -> String {
    let window = size.points() / 4;
    match target.split('(').next().unwrap_or_default() {
        name @ ("kolmogorovSmirnovTest2" | "ksTest2" | "pearson") => format!("{name}(a.one,a.two,{window})"),
        name @ ("movingAverage"
        | "movingMax"
        | "movingMedian"
        | "movingMin"
        | "movingSum"
        | "movingWindow"
        | "exponentialMovingAverage") => format!("{name}(a.*,'{window}s')"),
        "stdev" => format!("stdev(a.*,{window})"),
        "polyfit" => "polyfit(a.*,10,'1h')".to_owned(),
        "aliasSub" => r"aliasSub(a.*,'(?=(.*)(.*)(.*)x)(.*)$','\1')".to_owned(),
        name @ ("grep" | "exclude") => format!("{name}(a.*,'(?=(.*)(.*)(.*)x)(.*)y$')"),
        name @ ("map" | "mapSeries") => format!("aggregate({name}(a.*,1),'sum')"),
        _ => target.to_owned(),
    }
}

/// The longest time between two looks while a target is evaluated.
fn longest(target: &str, size: Size) -> Duration {
    let targets = [parse(target).expect(target)];
    let step = |_: &Fetch| Some(1);
    let context = Context { largest_step: Some(&step), ..Context::new(UNTIL, UNTIL - size.points(), UNTIL) };
    let mut data = Data::new();
    let mut wanted = plan(&targets, &context, &Budget::unlimited()).unwrap_or_else(|error| panic!("{target}: {error}"));
    let mut longest = Duration::ZERO;
    for _ in 0..5 {
        for fetch in wanted.series {
            data.put(fetch.clone(), size.fetched(&fetch));
        }
        for fetch in wanted.events {
            data.put_events(fetch, Vec::new());
        }
        let begun = processor_time();
        let looks = Mutex::new((begun, Duration::ZERO, Instant::now()));
        let cancelled = || {
            let (last, most, at) = &mut *looks.lock().unwrap();
            // Reading the processor time takes longer than most looks are apart.
            if at.elapsed() < Duration::from_millis(5) {
                return false;
            }
            let now = processor_time();
            *most = (*most).max(now - *last);
            (*last, *at) = (now, Instant::now());
            now - begun > PATIENCE
        };
        let answer = evaluate(&targets, &context, &data, &Budget::new(usize::MAX, &cancelled));
        std::thread::sleep(Duration::from_millis(6));
        cancelled();
        longest = longest.max(looks.into_inner().unwrap().1);
        match answer {
            Ok(Evaluation::Fetch(more)) => wanted = more,
            _ => break,
        }
    }
    longest
}

#[test]
fn every_function_stops_soon_when_its_client_is_gone() {
    let wanted = std::env::var("FUNCTION").unwrap_or_default();
    let mut late = Vec::new();
    for function in functions::all().filter(|function| function.name.contains(&wanted)) {
        let target = calls::call(function, |parameter| parameter.required);
        let mut both = [Duration::ZERO; 2];
        for (size, most) in [Size::Long, Size::Many].into_iter().zip(&mut both) {
            let target = heavy(&target, size);
            *most = longest(&target, size);
            if *most > BOUND {
                late.push(format!("{target} with {size:?} looks each {most:?}"));
            }
        }
        let [long, many] = both.map(|most| most.as_secs_f64() * 1e3);
        println!("{:32} {long:8.1} ms {many:8.1} ms", function.name);
    }
    assert!(late.is_empty(), "{}", late.join("\n"));
}

#[test]
fn windows_without_values_are_counted() {
    for target in ["ksTest2(a.one,a.two,5000)", "pearson(a.one,a.two,5000)", "movingWindow(a.*,'5000s','diff')"] {
        let most = longest(target, Size::Nulls);
        assert!(most <= BOUND, "{target} looks each {most:?}");
    }
}
