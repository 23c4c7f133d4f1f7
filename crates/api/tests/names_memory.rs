//! Memory and time of finds and lists: by the bytes of the names, and no longer than their clients wait.

mod support;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use api::{Doorkeeper, NameScope, Scope, SenderLimits, Viewer};
use hyper::HeaderMap;
use support::{Metric, Server, Setup, send};

const MIB: usize = 1 << 20;

fn server(names: impl Iterator<Item = String>, change: impl FnOnce(&mut Setup)) -> Server {
    let metric = |name| Metric { name, step: 60, kept: 60, coarser: None, values: Default::default() };
    let mut setup = Setup::new(names.map(metric).collect());
    setup.limits.memory_wait = Duration::from_millis(300);
    change(&mut setup);
    setup.start()
}

/// Sees one name of all.
struct One;

impl Doorkeeper for One {
    fn viewer(&self, _: &HeaderMap, _: SocketAddr) -> Option<Arc<Viewer>> {
        let names = NameScope::new(vec!["m.a00007.".to_owned()], Vec::new()).ok().map(Arc::new);
        let (name, limits) = ("one".to_owned(), SenderLimits::default());
        Some(Arc::new(Viewer { name, scopes: vec![Scope::Read], names, limits, writes: Default::default() }))
    }
}

#[test]
fn a_list_takes_memory_by_the_bytes_of_its_names() {
    let long = "x".repeat(4000);
    let names = || (0..2000).map(|i| format!("m.a{i:05}.{long}"));
    let small = server(names(), |setup| setup.limits.answer_memory = 8 * MIB);
    let large = server(names(), |setup| setup.limits.answer_memory = 32 * MIB);
    for path in ["/metrics/index.json", "/metrics/list", "/metrics/details?format=json"] {
        let answer = small.get(path);
        assert_eq!(answer.status, 422, "{path}");
        assert!(answer.text().contains("http.answer_memory"), "{}", answer.text());
        let answer = large.get(path);
        assert!(answer.status == 200 && answer.body.len() > 2000 * 4000, "{path}");
    }
}

#[test]
fn hidden_names_take_no_memory_of_a_list() {
    let server = server((0..20_000).map(|i| format!("m.a{i:05}.b")), |setup| {
        setup.limits.answer_memory = MIB;
        setup.doorkeeper = Arc::new(One);
    });
    assert_eq!(server.get("/metrics/index.json").text(), "[\"m.a00007.b\"]");
    assert_eq!(server.get("/metrics/details").status, 200);
}

#[test]
fn a_find_takes_memory_before_it_has_its_names() {
    let long = "x".repeat(1000);
    let server = server((0..3000).map(|i| format!("m.a{i:05}.{long}")), |setup| setup.limits.memory = 4 * MIB);
    let find = |query: &str| server.get(&format!("/metrics/find?query={query}")).status;
    // 3 MB are more than a third of what there is.
    assert_eq!([find("m.*"), find("m.*.*"), find("m.a000*.*")], [200, 422, 200]);
    let render = server.get("/render?format=json&target=countSeries(m.a*.*)&from=-1h");
    assert!(render.status == 422 && render.text().contains("query.memory"), "{}", render.text());
    assert_eq!(server.api.query_memory().used, 0);
}

#[test]
fn a_large_find_searches_once_where_memory_is_free() {
    let long = "x".repeat(1000);
    let ask = |memory: usize| {
        let server = server((0..3000).map(|i| format!("m.a{i:05}{long}")), |setup| setup.limits.memory = memory);
        let finds = || server.notes.finds.swap(0, std::sync::atomic::Ordering::Relaxed);
        let found = server.get("/metrics/find?query=m.*");
        assert!(found.status == 200 && found.body.len() > 3000 * 1000, "{}", found.status);
        let mut searched = vec![finds()];
        let render = server.get("/render?format=json&target=countSeries(m.a*)&from=-1h");
        assert_eq!(render.status, 200, "{}", render.text());
        searched.push(finds());
        searched
    };
    assert_eq!(ask(256 * MIB), [1, 1]);
}

#[test]
fn answers_that_fit_alone_wait_for_each_other_in_turn() {
    let long = "x".repeat(1000);
    let server = server((0..3000).map(|i| format!("m.a{i:05}.{long};t=v")), |setup| {
        setup.limits.memory = 18 * MIB;
        setup.limits.memory_wait = Duration::from_secs(30);
    });
    let ask = || server.get("/tags/findSeries?expr=t=v");
    let answer = ask();
    assert!(answer.status == 200 && answer.body.len() > 3000 * 1000, "{}", answer.status);
    for _ in 0..5 {
        let answers = std::thread::scope(|scope| {
            let all: Vec<_> = (0..6).map(|_| scope.spawn(ask)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
        });
        let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, [200; 6], "{:?}", answers.iter().find(|one| one.status != 200).map(|one| one.text()));
    }
    assert_eq!(server.api.query_memory().used, 0);
}

#[test]
fn answers_without_a_turn_take_memory() {
    let names = || (0..300).map(|i| format!("m.a{i:05}"));
    let (small, large) = (server(names(), |setup| setup.limits.answer_memory = 20 << 10), server(names(), |_| {}));
    let targets: String = names().map(|name| format!("&target={name}")).collect();
    for path in ["/functions/?grouped=1", &format!("/info?format=json{targets}")] {
        let answer = small.get(path);
        assert_eq!(answer.status, 422, "{path:.30}");
        assert!(answer.text().contains("http.answer_memory"), "{}", answer.text());
        assert_eq!(large.get(path).status, 200, "{path:.30}");
    }
    eventually_free(&large);
}

fn eventually_free(server: &Server) {
    let begun = Instant::now();
    while server.api.answer_memory().used > 0 {
        assert!(begun.elapsed() < Duration::from_secs(5), "it is given back");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn patterns_without_a_match_end_with_their_client() {
    let server = server((0..10).map(|i| format!("m.a{i}")), |_| {});
    let targets = |i: usize| format!("target=z{i}.{}x&", "{a,b}".repeat(13));
    let body: String = (0..1000).map(targets).chain(["from=-1h&format=json".to_owned()]).collect();
    let mut client = server.connect();
    send(&mut client, "POST", "/render", &[], body.as_bytes());
    let begun = Instant::now();
    while server.api.activity().running == 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "it does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    drop(client);
    let left = Instant::now();
    while server.api.activity().running > 0 {
        assert!(left.elapsed() < Duration::from_secs(5), "it goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
}
