//! Functions around series of different steps, of metrics with one method and with several.

mod support;

use std::{future::Future, pin::Pin, sync::Arc};

use metadata::Registry;
use metric::Policy;
use serde_json::Value;
use store::{FetchError, FetchedSeries, SeriesRequest, SeriesSource};
use support::{NOW, Setup};

/// Two metrics of 10 s with the values 0 to 5 in each minute, two of a minute, and whether their policy is a list.
const METRICS: [(&str, u32, &str); 4] = [
    ("list.fine", 10, "avg,max"),
    ("list.coarse", 60, "avg,max"),
    ("single.fine", 10, "max"),
    ("single.coarse", 60, "max"),
];

struct Stages(Arc<Registry>);

impl SeriesSource for Stages {
    fn fetch(
        self: Arc<Self>,
        requests: Vec<SeriesRequest>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Option<FetchedSeries>>, FetchError>> + Send>> {
        Box::pin(async move {
            let read = |request: &SeriesRequest| {
                let policy = self.0.policy(self.0.read().policy_id(request.metric));
                let (_, step, _) = METRICS[request.metric.index()];
                let asked = request.rollup.filter(|&method| policy.methods().contains(method));
                let start = (NOW - 3600) / 60 * 60;
                let values = (0..3600 / step).map(|place| f64::from(place % (60 / step)) * 2.0).collect();
                Some(FetchedSeries {
                    start,
                    step,
                    values,
                    aggregation: asked.unwrap_or(policy.aggregation),
                    is_of_list: !policy.rollups.is_empty(),
                    ..FetchedSeries::default()
                })
            };
            Ok(requests.iter().map(read).collect())
        })
    }
}

/// The first value of a target, and the methods that its lineage names.
fn first(server: &support::Server, target: &str) -> (f64, Vec<String>) {
    let from = NOW - 3600;
    let answer = server.get(&format!("/render?target={target}&from={from}&until={NOW}&format=json&meta=true"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    let [series] = answer["series"].as_array().unwrap().as_slice() else { panic!("{answer}") };
    let of = |origin: &Value| origin["consolidator-normfetch"].as_str().unwrap().replace("Consolidator", "");
    let mut methods: Vec<String> = series["meta"].as_array().unwrap().iter().map(of).collect();
    methods.dedup();
    (series["datapoints"][0][0].as_f64().unwrap(), methods)
}

#[test]
fn consolidate_by_around_series_of_different_steps_folds_the_finer_ones_by_its_method_where_the_rules_have_a_list() {
    let registry = Registry::new();
    for (name, step, methods) in METRICS {
        let policy = Policy { retention: format!("1440*{step}s:1440*600s").parse().unwrap(), ..Policy::default() };
        let policy = registry.intern(&policy.with_methods(methods.parse().unwrap()));
        registry.write().create(registry.hash(name.as_bytes()), name, policy, 0);
    }
    let registry = Arc::new(registry);
    let mut setup = Setup::new(Vec::new());
    setup.series = Some(Arc::new(Stages(registry.clone())));
    setup.registry = Some(registry);
    let server = setup.start();
    let sum = |of: &str| format!("sumSeries({of}.fine,{of}.coarse)");
    // Six values, 0 to 10: the mean is 5. The values of a minute are 0.
    for (target, value, method) in [
        (sum("list"), 5.0, "Average"),
        (format!("consolidateBy({},'max')", sum("list")), 10.0, "Maximum"),
        ("consolidateBy(sumSeries(list.*),'max')".to_owned(), 10.0, "Maximum"),
        (format!("consolidateBy(alias({},'x'),'avg')", sum("list")), 5.0, "Average"),
        // The list lacks the method: the first one of the list is read, and folds.
        (format!("consolidateBy({},'min')", sum("list")), 5.0, "Average"),
        // The inner one is nearer.
        ("consolidateBy(sumSeries(consolidateBy(list.*,'max')),'avg')".to_owned(), 10.0, "Maximum"),
        // A derivative does not pass the method on.
        (format!("consolidateBy(integral({}),'max')", sum("list")), 5.0, "Average"),
        // Metrics with one method are folded as in graphite-web: by the mean, unless consolidateBy stands inside.
        (sum("single"), 5.0, "Maximum"),
        (format!("consolidateBy({},'max')", sum("single")), 5.0, "Maximum"),
        ("sumSeries(consolidateBy(single.*,'max'))".to_owned(), 10.0, "Maximum"),
    ] {
        assert_eq!(first(&server, &target), (value, vec![method.to_owned()]), "{target}");
    }
}
