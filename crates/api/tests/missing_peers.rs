//! Answers name the nodes whose points in memory they lack.

mod support;

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
};

use metadata::Registry;
use metric::Policy;
use serde_json::Value;
use store::{FetchError, FetchedSeries, SeriesRequest, SeriesSource};
use support::{NOW, Setup};

/// Series of metrics, each with the nodes that it lacks.
struct Lacking(Vec<&'static [&'static str]>);

impl SeriesSource for Lacking {
    fn fetch(
        self: Arc<Self>,
        requests: Vec<SeriesRequest>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Option<FetchedSeries>>, FetchError>> + Send>> {
        let read = move |request: &SeriesRequest| {
            let missing: Arc<[String]> = self.0[request.metric.index()].iter().map(|&peer| peer.to_owned()).collect();
            let missing_peers = (!missing.is_empty()).then_some(missing);
            Some(FetchedSeries {
                start: NOW - 60,
                step: 60,
                values: vec![1.0],
                missing_peers,
                ..FetchedSeries::default()
            })
        };
        Box::pin(std::future::ready(Ok(requests.iter().map(read).collect())))
    }
}

/// Series of many points. Each read lacks a node of its own, besides those that its caller names. Notes these.
#[derive(Default)]
struct OneByOne(Mutex<Vec<Vec<String>>>);

impl SeriesSource for OneByOne {
    fn fetch(
        self: Arc<Self>,
        _requests: Vec<SeriesRequest>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Option<FetchedSeries>>, FetchError>> + Send>> {
        unreachable!("a query says what its answer lacks already")
    }

    fn fetch_further(
        self: Arc<Self>,
        requests: Vec<SeriesRequest>,
        missing: Vec<String>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Option<FetchedSeries>>, FetchError>> + Send>> {
        let mut reads = self.0.lock().unwrap();
        reads.push(missing.clone());
        let missing: Arc<[String]> = missing.into_iter().chain([format!("n{}:80", reads.len())]).collect();
        let read = |_: &SeriesRequest| {
            Some(FetchedSeries {
                start: NOW - 60,
                step: 60,
                values: vec![1.0],
                missing_peers: Some(missing.clone()),
                ..FetchedSeries::default()
            })
        };
        Box::pin(std::future::ready(Ok(requests.iter().map(read).collect())))
    }
}

#[test]
fn a_read_in_parts_says_which_nodes_its_answer_lacks_already() {
    let registry = Registry::new();
    for name in ["a", "b", "c"] {
        // Two of these are more than a part may have.
        let policy = registry.intern(&Policy { retention: "1500000*1s".parse().unwrap(), ..Policy::default() });
        registry.write().create(registry.hash(name.as_bytes()), name, policy, 0);
    }
    let source = Arc::new(OneByOne::default());
    let mut setup = Setup::new(Vec::new());
    setup.series = Some(source.clone());
    setup.registry = Some(Arc::new(registry));
    let server = setup.start();
    let answer = server.get(&format!("/render?target=*&from={}&until={NOW}&format=json", NOW - 1_400_000));
    assert_eq!(answer.header("x-plumbago-missing-peers"), Some("n1:80, n2:80, n3:80"), "{}", answer.text());
    assert_eq!(
        *source.0.lock().unwrap(),
        [vec![], vec!["n1:80".to_owned()], vec!["n1:80".to_owned(), "n2:80".to_owned()]]
    );
}

#[test]
fn an_answer_names_each_node_that_any_of_its_series_lacks() {
    let registry = Registry::new();
    for name in ["a", "b", "c"] {
        let policy = registry.intern(&Policy { retention: "1440*60s".parse().unwrap(), ..Policy::default() });
        registry.write().create(registry.hash(name.as_bytes()), name, policy, 0);
    }
    let mut setup = Setup::new(Vec::new());
    setup.series = Some(Arc::new(Lacking(vec![&[], &["n2:80", "n1:80"], &["n3:80", "n1:80"]])));
    setup.registry = Some(Arc::new(registry));
    let server = setup.start();
    let check = |target: &str, named: Option<&str>| {
        for format in ["json&meta=true", "json", "pickle", "csv", "png", "carbonapi_v2_pb"] {
            let answer = server.get(&format!("/render?target={target}&from={}&until={NOW}&format={format}", NOW - 600));
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(answer.header("x-plumbago-missing-peers"), named, "{target}, {format}");
            if format.contains("meta") {
                let meta: Value = serde_json::from_slice::<Value>(&answer.body).unwrap()["meta"].clone();
                let of_meta = meta.get("missing-peers").map(|peers| {
                    peers.as_array().unwrap().iter().map(|peer| peer.as_str().unwrap()).collect::<Vec<_>>().join(", ")
                });
                assert_eq!(of_meta.as_deref(), named, "{target}");
            }
        }
    };
    check("a", None);
    check("b", Some("n1:80, n2:80"));
    check("sumSeries(*)", Some("n1:80, n2:80, n3:80"));
    // A series that a function leaves out was read all the same.
    check("limit(group(a,c),1)", Some("n1:80, n3:80"));
}
