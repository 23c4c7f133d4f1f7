//! The cost of new names, scans and globs, compared with the bare statements, in turns. With a Cassandra at PLUMBAGO_TEST_CASSANDRA:
//! `cargo run --release -p store-cassandra --example names -- sasi|sai|none METRICS`. It says what it does as it goes, and
//! ends with a line of JSON: names a second, seconds of a scan, p50 of a find in milliseconds.

#[path = "../tests/node/mod.rs"]
mod node;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt, stream};
use metric::{MetricId, Policy};
use scylla::{
    errors::ExecutionError,
    statement::batch::{Batch, BatchType},
};
use store::{MetricRecord, PolicyChange, ScanPace, SharedNames};
use store_cassandra::{
    CassandraDriver, Indexes, Options,
    schema::{self, Schema},
};
use uuid::Uuid;

type ExampleError = Box<dyn std::error::Error>;

/// How long Cassandra has for the compactions of what was written, at most.
const SETTLING: Duration = Duration::from_secs(600);

/// Concurrent statements.
const IN_FLIGHT: usize = 256;

fn name(part: &str, number: usize) -> String {
    let (host, rest) = (number / 25, number % 25);
    let dc = host % 8;
    format!("{part}.dc{dc}.host{host:05}.cpu.{}.{}", rest / 5, ["user", "system", "idle", "iowait", "nice"][rest % 5])
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let indexes = match arguments.next().as_deref() {
        Some("sasi") => Indexes::Sasi,
        Some("sai") => Indexes::Sai,
        _ => Indexes::None,
    };
    let metrics: usize = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let keyspace = node::Keyspace::make(node::address().expect("a Cassandra"), "names_bench").await;
    let options = Options { indexes, in_flight: IN_FLIGHT, glob_rows: 100_000, ..keyspace.options() };
    let schema = Schema::new(&options, &[]);
    let begun = Instant::now();
    schema::apply(&options, &schema, &mut |_| {}).await.unwrap();
    eprintln!("schema {:.1} s", begun.elapsed().as_secs_f64());
    let driver = CassandraDriver::connect(options).await.unwrap();
    driver.verify().await.unwrap();

    // In turns, so that compactions and a warming machine fall on both.
    const ROUND: usize = 10_000;
    let (mut ours, mut bares) = (0.0, 0.0);
    let bare = Bare::new(&keyspace).await;
    for round in 0..metrics.div_ceil(2 * ROUND) {
        let numbers = round * ROUND..(round + 1) * ROUND;
        let policies = vec![PolicyChange { since: 0, policy: Policy::default() }];
        let records: Vec<MetricRecord> = numbers
            .clone()
            .map(|number| MetricRecord {
                id: MetricId(number as u32),
                name: name("servers", number),
                created_on: 1_700_000_000,
                policies: policies.clone(),
            })
            .collect();
        let begun = Instant::now();
        driver.put_names(&records).await.unwrap();
        let our_seconds = begun.elapsed().as_secs_f64();
        let names: Vec<String> = numbers.map(|number| name("machines", number)).collect();
        let begun = Instant::now();
        bare.put(&names).await;
        let bare_seconds = begun.elapsed().as_secs_f64();
        // The first two rounds warm up.
        if round >= 2 {
            ours += our_seconds;
            bares += bare_seconds;
        }
    }
    let counted = (metrics.div_ceil(2 * ROUND).saturating_sub(2) * ROUND) as f64;
    let (ours, bares) = (counted / ours, counted / bares);
    eprintln!("put: driver {ours:.0}/s, bare {bares:.0}/s, ratio {:.2}", ours / bares);

    // Until then every find takes ten times as long.
    settle(&keyspace).await;
    let begun = Instant::now();
    let mut scanned = 0;
    driver.scan(ScanPace::default(), &mut |batch, _| scanned += batch.len()).await.unwrap();
    let scan = begun.elapsed().as_secs_f64();
    eprintln!("scan: {scanned} metrics in {scan:.1} s");
    let finds = match indexes {
        Indexes::None => String::new(),
        _ => find(&driver, &keyspace).await,
    };
    println!(
        r#"{{"metrics": {metrics}, "put": {ours:.0}, "bare_put": {bares:.0}, "scanned": {scanned}, "scan_seconds": {scan:.2}{finds}}}"#
    );
    keyspace.run(&format!("DROP KEYSPACE {}_metadata", keyspace.name)).await;
    keyspace.drop().await;
}

/// Times a glob of one result a host, by the driver and by its two statements alone.
async fn find(driver: &CassandraDriver, keyspace: &node::Keyspace) -> String {
    let host = "servers.dc1.*.cpu.0.user";
    let cql = format!(
        "SELECT name FROM {}_metadata.metrics WHERE component_0 = 'servers' AND component_1 = 'dc1' AND component_3 = 'cpu' AND component_4 = '0' AND \
         component_5 = 'user' AND component_6 = '__END__' LIMIT 100001 ALLOW FILTERING",
        keyspace.name
    );
    let directories = cql.replace("_metadata.metrics", "_metadata.directories");
    let (mut found, mut ours, mut bares) = (0, Vec::new(), Vec::new());
    for _ in 0..9 {
        let begun = Instant::now();
        found = driver.find(host, 100_000).await.unwrap().len();
        ours.push(begun.elapsed().as_secs_f64() * 1e3);
        let begun = Instant::now();
        let mut rows = 0;
        // The same two statements, one after the other.
        for cql in [&cql, &directories] {
            let mut tries = 0;
            rows += loop {
                let asked = keyspace.session.query_iter(cql.as_str(), ()).await.map_err(ExampleError::from);
                let counted = async {
                    let rows = asked?.rows_stream::<(String,)>()?;
                    Ok::<_, ExampleError>(rows.try_fold(0, |n, _| async move { Ok(n + 1) }).await?)
                };
                match counted.await {
                    Ok(rows) => break rows,
                    Err(error) if tries == 5 => panic!("{error}"),
                    Err(_) => tries += 1,
                }
            };
        }
        assert_eq!(rows, found, "both read the same rows");
        bares.push(begun.elapsed().as_secs_f64() * 1e3);
        eprintln!(
            "find {host}: driver {found} in {:.1} ms, bare {:.1} ms",
            ours[ours.len() - 1],
            bares[bares.len() - 1]
        );
    }
    // The first ones warm up.
    let p50 = |mut times: Vec<f64>| {
        times.drain(..4);
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    format!(r#", "found": {found}, "find_ms": {:.1}, "bare_find_ms": {:.1}"#, p50(ours), p50(bares))
}

/// Waits until nothing is compacted for some seconds.
async fn settle(keyspace: &node::Keyspace) {
    let begun = Instant::now();
    let mut quiet = 0;
    while quiet < 5 && begun.elapsed() < SETTLING {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let tasks = keyspace.session.query_unpaged("SELECT * FROM system_views.sstable_tasks", ()).await;
        let idle = tasks.ok().and_then(|tasks| tasks.into_rows_result().ok()).is_some_and(|rows| rows.rows_num() == 0);
        quiet = if idle { quiet + 1 } else { 0 };
    }
    eprintln!("compacted {:.0} s", begun.elapsed().as_secs_f64());
}

/// A statement, tried again when Cassandra did not manage it in its own two seconds, as it does not now and then.
async fn again<T, F: Future<Output = Result<T, ExecutionError>>>(
    attempt: impl Fn() -> F,
) -> Result<(), ExecutionError> {
    for _ in 0..5 {
        if attempt().await.is_ok() {
            return Ok(());
        }
    }
    attempt().await.map(drop)
}

/// The same rows by the statements alone.
struct Bare<'a> {
    session: &'a scylla::client::session::Session,
    directories: Vec<scylla::statement::prepared::PreparedStatement>,
    metric: Batch,
}

impl Bare<'_> {
    async fn new(keyspace: &node::Keyspace) -> Bare<'_> {
        let session = &keyspace.session;
        let metadata = format!("{}_metadata", keyspace.name);
        let insert = |table: &str, components: usize| {
            let columns: String = (0..=components).map(|at| format!(", component_{at}")).collect();
            let marks = ", ?".repeat(components + 1);
            format!("INSERT INTO {metadata}.{table} (name, parent{columns}) VALUES (?, ?{marks})")
        };
        let mut directories = Vec::new();
        for components in 1..6 {
            directories.push(session.prepare(insert("directories", components)).await.unwrap());
        }
        let name = session.prepare(insert("metrics", 6)).await.unwrap();
        let other = format!(
            "INSERT INTO {metadata}.metrics_metadata (name, created_on, updated_on, id, config) VALUES (?, now(), now(), ?, ?)"
        );
        let other = session.prepare(other).await.unwrap();
        let metric = Batch::new_with_statements(BatchType::Unlogged, vec![name.into(), other.into()]);
        Bare { session, directories, metric }
    }

    async fn put(&self, names: &[String]) {
        let mut directories: BTreeSet<&str> = BTreeSet::new();
        for name in names {
            directories.extend(name.match_indices('.').map(|(dot, _)| &name[..dot]));
        }
        let bound = |path: &str| {
            let mut values =
                vec![path.to_owned(), format!("{}.", path.rsplit_once('.').map_or("", |(parent, _)| parent))];
            values.extend(path.split('.').map(str::to_owned));
            values.push("__END__".to_owned());
            values
        };
        let writes = directories.into_iter().map(|path| {
            let values = bound(path);
            async move {
                let statement = &self.directories[values.len() - 4];
                again(|| self.session.execute_unpaged(statement, &values)).await
            }
        });
        stream::iter(writes).buffer_unordered(IN_FLIGHT).try_collect::<()>().await.unwrap();
        let config = [("aggregator", "average"), ("retention", "10080*60s"), ("carbon_xfilesfactor", "0.500000")];
        let config = &std::collections::HashMap::from(config);
        let writes = names.iter().map(|name| async move {
            let values = (bound(name), (name, Uuid::new_v4(), config));
            again(|| self.session.batch(&self.metric, &values)).await
        });
        stream::iter(writes).buffer_unordered(IN_FLIGHT).try_collect::<()>().await.unwrap();
    }
}
