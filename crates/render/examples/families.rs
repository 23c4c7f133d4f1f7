//! The cost of a point in each family of functions, so that a regression shows.
//!
//!     cargo run --release -p render --example families [TEXT]
//!
//! One line for each target (with TEXT: for those that hold it): the median time of an evaluation, and that divided
//! by the points it read. Fetching is not in it. A path `n100.…` stands for a hundred series of a day in minutes.

use std::{sync::Arc, time::Instant};

use render::{Budget, Context, Data, Evaluation, Fetch, Series, Span, evaluate, parse, plan};

const DAY: Span = Span { from: 1_700_006_400, until: 1_700_006_400 + 86_400 };

const TARGETS: &[&str] = &[
    // Combine
    "sumSeries(n1000.*.*.*)",
    "averageSeries(n1000.*.*.*)",
    "maxSeries(n1000.*.*.*)",
    "stddevSeries(n1000.*.*.*)",
    "aggregate(n1000.*.*.*,'median')",
    "percentileOfSeries(n1000.*.*.*,95)",
    "asPercent(n1000.*.*.*)",
    "divideSeriesLists(n1000.*.*.*,n1000.*.*.*)",
    "powSeries(n100.*.*.*)",
    "groupByNode(n1000.*.*.*,1,'sum')",
    "groupByNodes(n1000.*.*.*,'average',1,3)",
    "sumSeriesWithWildcards(n1000.*.*.*,2)",
    "groupByTags(n1000.*.*.*,'sum','name')",
    "reduceSeries(mapSeries(n1000.*.*.*,2),'sumSeries',3,'value')",
    "weightedAverage(n1000.*.*.*,n1000.*.*.*,2)",
    "applyByNode(n100.*.*.*,1,'sumSeries(%.*.*)')",
    // Transform
    "scale(n1000.*.*.*,2)",
    "offset(n1000.*.*.*,1)",
    "derivative(n1000.*.*.*)",
    "perSecond(n1000.*.*.*)",
    "integral(n1000.*.*.*)",
    "keepLastValue(n1000.*.*.*)",
    "round(n1000.*.*.*,2)",
    "log(n1000.*.*.*)",
    "summarize(n1000.*.*.*,'1h','sum')",
    "smartSummarize(n1000.*.*.*,'1h','sum')",
    "hitcount(n1000.*.*.*,'1h')",
    "interpolate(n1000.*.*.*)",
    "timeShift(n1000.*.*.*,'1h')",
    "timeSlice(n1000.*.*.*,'1700010000','1700050000')",
    // Calculate
    "movingAverage(n100.*.*.*,60)",
    "movingMedian(n100.*.*.*,60)",
    "movingMax(n100.*.*.*,60)",
    "movingWindow(n100.*.*.*,60,'stddev')",
    "movingMedian(n100.*.*.*,'6h')",
    "exponentialMovingAverage(n100.*.*.*,60)",
    "linearRegression(n1000.*.*.*)",
    "holtWintersForecast(n100.*.*.*,'1d','6h')",
    "holtWintersAberration(n100.*.*.*,3,'1d','6h')",
    "nPercentile(n1000.*.*.*,95)",
    "stdev(n100.*.*.*,10)",
    // Filters and order
    "highestAverage(n1000.*.*.*,10)",
    "averageAbove(n1000.*.*.*,50)",
    "mostDeviant(n1000.*.*.*,10)",
    "removeBelowPercentile(n1000.*.*.*,50)",
    "grep(n1000.*.*.*,'g1.*(?<!5)\\.value')",
    "sortByMaxima(n1000.*.*.*)",
    "sortByName(n1000.*.*.*,true)",
    // Names
    "alias(n1000.*.*.*,'x')",
    "aliasByNode(n1000.*.*.*,1,2)",
    "aliasSub(n1000.*.*.*,'^n1000\\.(g..)\\.(h.*)\\.value$','\\2 in \\1')",
    "aliasByNode(scale(n1000.*.*.*,2),1,2)",
];

fn fetched(fetch: &Fetch) -> Vec<Series> {
    let first = fetch.path.split('.').next().unwrap_or_default();
    let count: usize = first.trim_start_matches('n').parse().unwrap_or(1);
    let group = fetch.path.split('.').nth(1).and_then(|group| group.strip_prefix('g')?.parse::<usize>().ok());
    let Span { from, until } = fetch.span;
    let points = usize::try_from((until - from) / 60).unwrap_or(0);
    let mut chance = 88_172_645_463_325_252_u64;
    let mut series = Vec::with_capacity(count);
    for i in (0..count).filter(|i| group.is_none_or(|group| group == i % 25)) {
        let mut value = |_| {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            if chance.is_multiple_of(50) { f64::NAN } else { (chance % 100_000) as f64 / 1e3 }
        };
        let values = (0..points).map(&mut value).collect();
        let name = format!("{first}.g{:02}.h{i:05}.value", i % 25);
        series.push(Series::fetched(&name, fetch.path.clone(), from + 60, 60, values));
    }
    series
}

fn measure(target: &str) -> Result<(), render::Error> {
    let targets = [parse(target)?];
    let step = |_: &Fetch| Some(60);
    let context = Context { largest_step: Some(&step), ..Context::new(DAY.until, DAY.from, DAY.until) };
    let mut data = Data::new();
    let mut points = 0;
    let mut file = |data: &mut Data, fetches: Vec<Fetch>| {
        for fetch in fetches {
            let series = fetched(&fetch);
            points += series.iter().map(|series| series.values.len()).sum::<usize>();
            data.put(fetch, series);
        }
    };
    file(&mut data, plan(&targets, &context, &Budget::unlimited())?.series);
    let mut times = Vec::new();
    let began = Instant::now();
    while times.len() < 5 || (times.len() < 50 && began.elapsed().as_millis() < 300) {
        let start = Instant::now();
        match evaluate(&targets, &context, &data, &Budget::unlimited())? {
            Evaluation::Done(series) => {
                times.push(start.elapsed());
                std::hint::black_box(Arc::new(series));
            }
            Evaluation::Fetch(fetches) => file(&mut data, fetches.series),
        }
    }
    times.sort();
    let median = times[times.len() / 2];
    let each = median.as_nanos() as f64 / points.max(1) as f64;
    println!("{:9.3} ms {each:8.3} ns/point  {target}", median.as_secs_f64() * 1e3);
    Ok(())
}

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    for target in TARGETS.iter().filter(|target| target.contains(&wanted)) {
        if let Err(error) = measure(target) {
            println!("{target}: {error}");
        }
    }
}
