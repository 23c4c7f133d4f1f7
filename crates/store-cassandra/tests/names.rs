//! The tables of names on a real Cassandra: made, found as another program left them, written, scanned, and asked
//! for globs.

mod node;

use std::collections::BTreeSet;

use metadata::{FindLimits, Registry};
use metric::{Aggregation, MetricId, Policy, Timestamp};
use store::{MetricRecord, PolicyChange, ScanPace, SharedMetric, SharedNames, SharedNode, StoreError};
use store_cassandra::{
    CassandraDriver, Identity, Indexes, Location, Options,
    schema::{self, Schema},
};

/// Columns for components in these tests: 134 indexes take too long.
const COMPONENTS: usize = 6;

/// Both keyspaces of a test.
struct Keyspaces {
    keyspace: node::Keyspace,
    options: Options,
}

impl Keyspaces {
    /// Made by `apply`, or `None` where there is no Cassandra.
    async fn apply(test: &str, indexes: Indexes) -> Option<Keyspaces> {
        let keyspaces = Keyspaces::empty(test, indexes).await?;
        keyspaces.applied().await.unwrap();
        Some(keyspaces)
    }

    async fn empty(test: &str, indexes: Indexes) -> Option<Keyspaces> {
        let keyspace = node::Keyspace::make(node::address()?, test).await;
        let options = Options { indexes, ..keyspace.options() };
        Some(Keyspaces { keyspace, options })
    }

    fn schema(&self) -> Schema {
        Schema::new(&self.options, &[Policy::default().retention]).with_components(COMPONENTS)
    }

    /// Applies the schema; what it said.
    async fn applied(&self) -> Result<Vec<String>, StoreError> {
        let mut said = Vec::new();
        schema::apply(&self.options, &self.schema(), &mut |text| said.push(text.to_owned())).await?;
        Ok(said)
    }

    async fn driver(&self) -> CassandraDriver {
        CassandraDriver::connect(self.options.clone()).await.expect("the node answers")
    }

    async fn run(&self, cql: &str) {
        self.keyspace.run(&cql.replace("META", &format!("{}_metadata", self.keyspace.name))).await;
    }

    async fn drop(self) {
        self.run("DROP KEYSPACE IF EXISTS META").await;
        self.keyspace.drop().await;
    }
}

fn record(number: u32, name: &str, policy: &Policy, created_on: Timestamp) -> MetricRecord {
    let policies = vec![PolicyChange { since: 0, policy: policy.clone() }];
    MetricRecord { id: MetricId(number), name: name.to_owned(), created_on, policies }
}

async fn put(driver: &CassandraDriver, names: &[&str]) {
    let records: Vec<MetricRecord> =
        names.iter().enumerate().map(|(at, name)| record(at as u32, name, &Policy::default(), 1_700_000_000)).collect();
    driver.put_names(&records).await.unwrap();
}

async fn scanned(driver: &CassandraDriver) -> Vec<SharedMetric> {
    let mut metrics = Vec::new();
    let mut part = 0.0;
    driver
        .scan(ScanPace::default(), &mut |batch, progress| {
            metrics.extend(batch);
            part = progress.part;
        })
        .await
        .unwrap();
    assert_eq!(part, 1.0);
    metrics.sort_by(|a, b| a.name.cmp(&b.name));
    metrics
}

/// The nodes found, a branch as `a.b+`.
async fn found(driver: &CassandraDriver, pattern: &str) -> Vec<String> {
    let nodes = driver.find(pattern, 5000).await.unwrap_or_else(|error| panic!("{pattern}: {error}"));
    text(nodes.iter().map(|SharedNode { path, is_leaf, is_branch }| (path.as_str(), *is_leaf, *is_branch)))
}

fn text<'a>(nodes: impl Iterator<Item = (&'a str, bool, bool)>) -> Vec<String> {
    let mut texts = Vec::new();
    for (path, is_leaf, is_branch) in nodes {
        texts.extend(is_leaf.then(|| path.to_owned()));
        texts.extend(is_branch.then(|| format!("{path}+")));
    }
    texts
}

#[tokio::test]
async fn a_schema_is_created_once_and_then_checked_as_fine() {
    let Some(keyspaces) = Keyspaces::empty("schema", Indexes::Sasi).await else { return };
    let missing = schema::check(&keyspaces.options, &keyspaces.schema()).await.unwrap();
    assert!(!missing.is_fine(), "{missing}");
    let said = keyspaces.applied().await.unwrap();
    assert!(said.iter().any(|text| text == "created the keyspace of the names"), "{said:?}");
    assert!(said.iter().any(|text| text == "created the index over directories.component_5"), "{said:?}");
    let report = schema::check(&keyspaces.options, &keyspaces.schema()).await.unwrap();
    assert!(report.is_fine() && !report.is_unfinished(), "{report}");
    assert!(report.to_string().contains("ok       SASI indexes over the names\n"), "{report}");
    assert_eq!(keyspaces.applied().await.unwrap(), ["nothing was missing"]);
    // As if their creation ended before the last.
    let index = keyspaces.keyspace.session.query_unpaged(
        format!(
            "SELECT index_name FROM system_schema.indexes WHERE keyspace_name = '{}_metadata' LIMIT 1 ALLOW FILTERING",
            keyspaces.keyspace.name
        ),
        (),
    );
    let index = index.await.unwrap().into_rows_result().unwrap().single_row::<(String,)>().unwrap().0;
    keyspaces.run(&format!("DROP INDEX META.\"{index}\"")).await;
    let report = schema::check(&keyspaces.options, &keyspaces.schema()).await.unwrap();
    assert!(!report.is_fine() && report.is_unfinished() && !report.is_unmade(), "{report}");
    let said = keyspaces.applied().await.unwrap();
    assert!(said.len() == 2 && said[0].starts_with("created the index"), "{said:?}");
    // No second kind is added.
    let other =
        Keyspaces { keyspace: keyspaces.keyspace, options: Options { indexes: Indexes::Sai, ..keyspaces.options } };
    let said = other.applied().await.unwrap();
    assert!(said[0].contains("kept the SASI indexes of the tables of names"), "{said:?}");
    let report = schema::check(&other.options, &other.schema()).await.unwrap();
    assert!(report.to_string().contains("differs  SASI indexes over the names; the setting says SAI\n"), "{report}");
    other.drop().await;
}

#[tokio::test]
async fn tables_of_biggraphite_are_opened_unchanged_and_others_rejected() {
    let Some(keyspaces) = Keyspaces::empty("found", Indexes::Sasi).await else { return };
    let driver = keyspaces.driver().await;
    let error = driver.verify().await.unwrap_err().to_string();
    assert!(error.contains(&format!("no keyspace '{}_metadata'", keyspaces.keyspace.name)), "{error}");

    keyspaces.applied().await.unwrap();
    keyspaces.run("DROP TABLE META.spec").await;
    keyspaces.run("DROP TABLE META.writers").await;
    let report = schema::check(&keyspaces.options, &keyspaces.schema()).await.unwrap();
    assert!(report.is_fine() && report.to_string().contains("added    table writers"), "a node would start: {report}");
    driver.verify().await.unwrap();
    let report = schema::check(&keyspaces.options, &keyspaces.schema()).await.unwrap();
    assert!(report.is_fine(), "spec and writers were added: {report}");

    keyspaces.run("UPDATE META.spec SET value = '2' WHERE name = 'schema_version'").await;
    let error = keyspaces.driver().await.verify().await.unwrap_err();
    assert!(matches!(error, StoreError::Spec { .. }), "{error}");
    assert!(error.to_string().contains("schema_version 2, this program expects schema_version 1"), "{error}");
    keyspaces.run("UPDATE META.spec SET value = '1' WHERE name = 'schema_version'").await;

    let table = format!("{}.datapoints_10080p_60s_0", keyspaces.keyspace.name);
    keyspaces.run(&format!("ALTER TABLE {table} WITH comment = '{{\"row_size\": 25000.0}}'")).await;
    let error = keyspaces.driver().await.verify().await.unwrap_err().to_string();
    assert!(error.contains("keeps 25000 points in a partition, this program expects 2000"), "{error}");
    assert!(keyspaces.applied().await.is_err());
    keyspaces.drop().await;
}

#[tokio::test]
async fn written_names_are_scanned_and_looked_up() {
    let Some(keyspaces) = Keyspaces::apply("put", Indexes::None).await else { return };
    let driver = keyspaces.driver().await;
    let policies = [Aggregation::Sum, Aggregation::AvgZero, Aggregation::Last].map(|aggregation| Policy {
        aggregation,
        x_files_factor: 0.25,
        ..Policy::default()
    });
    let names = ["a.b.c", "a.b.d", "x", "é.b", "cpu;host=a.b", "a.b"];
    let records: Vec<MetricRecord> = names
        .iter()
        .enumerate()
        .map(|(at, name)| record(at as u32, name, &policies[at % 3], 1_600_000_000 + at as Timestamp))
        .collect();
    driver.put_names(&records).await.unwrap();
    // Again, with another policy for one.
    let mut changed = records[0].clone();
    changed.policies.push(PolicyChange { since: 1_700_000_000, policy: policies[2].clone() });
    driver.put_names(&[changed]).await.unwrap();

    let metrics = scanned(&driver).await;
    let mut expected: Vec<(&str, Policy, Option<Timestamp>)> = records
        .iter()
        .map(|record| (record.name.as_str(), record.policies[0].policy.clone(), Some(record.created_on)))
        .collect();
    expected[0].1 = policies[2].clone();
    expected.sort_by_key(|(name, ..)| *name);
    let got: Vec<_> =
        metrics.iter().map(|metric| (metric.name.as_str(), metric.policy.clone(), metric.created_on)).collect();
    assert_eq!(got, expected);
    assert!(metrics.iter().all(|metric| metric.updated_on.is_some_and(|time| (node::now() - time).abs() < 60)));
    let before = |metric: &SharedMetric| (metric.earlier.clone(), metric.since);
    let of_changed = (vec![records[0].policies[0].clone()], 1_700_000_000);
    let of_each = |metric: &SharedMetric| if metric.name == "a.b.c" { of_changed.clone() } else { (Vec::new(), 0) };
    assert!(metrics.iter().all(|metric| before(metric) == of_each(metric)), "{metrics:?}");

    let looked_up = driver.lookup(vec!["x".into(), "nothing".into(), "a.b.c".into()]).await.unwrap();
    let expected: Vec<&SharedMetric> =
        ["x", "a.b.c"].map(|name| metrics.iter().find(|metric| metric.name == name).unwrap()).into();
    assert_eq!(looked_up.iter().collect::<Vec<_>>(), expected);
    assert_eq!(found(&driver, "**").await, ["a+", "a.b", "a.b+", "a.b.c", "a.b.d", "x", "é+", "é.b"]);

    // Nodes that do not know what the rows have: one with a new data folder, and one that was down during a change.
    let average = Policy { aggregation: Aggregation::Average, ..policies[1].clone() };
    let absent = Policy { retention: "7*60s".parse().unwrap(), ..policies[2].clone() };
    let changed = PolicyChange { since: 1_700_000_500, policy: average.clone() };
    let was_down = MetricRecord {
        policies: vec![PolicyChange { since: 0, policy: absent.clone() }, changed.clone()],
        ..records[0].clone()
    };
    driver
        .put_names(&[record(0, "a.b.c", &policies[2], 1_600_000_000), record(1, "a.b.d", &average, 7)])
        .await
        .unwrap();
    let lookup = async |name: &str| driver.lookup(vec![name.to_owned()]).await.unwrap().remove(0);
    assert_eq!(before(&lookup("a.b.c").await), of_changed);
    assert_eq!(lookup("a.b.d").await.policy, average, "not avg_zero, which is stored as average, too");
    driver.put_names(&[was_down]).await.unwrap();
    let of_all = [&absent, &records[0].policies[0].policy, &policies[2]].into_iter().zip([0, 0, 1_700_000_000]);
    let of_all: Vec<PolicyChange> =
        of_all.map(|(policy, since)| PolicyChange { since, policy: policy.clone() }).collect();
    let metric = lookup("a.b.c").await;
    assert_eq!((before(&metric), &metric.policy), ((of_all.clone(), changed.since), &average));

    // One that has not read the names makes a metric by other rules.
    let fresh = keyspaces.driver().await;
    fresh.put_names(&[record(0, "a.b.c", &policies[1], 1_700_000_900), record(1, "new", &average, 7)]).await.unwrap();
    let metric = lookup("a.b.c").await;
    assert_eq!((metric.earlier, metric.policy), ([of_all, vec![changed]].concat(), policies[1].clone()));
    assert_eq!(metric.since, 1_700_000_900, "since it was made there");
    assert_eq!(before(&lookup("new").await), (Vec::new(), 0));
    keyspaces.drop().await;
}

#[tokio::test]
async fn incomplete_rows_are_counted_and_skipped() {
    let Some(keyspaces) = Keyspaces::apply("partial", Indexes::None).await else { return };
    let driver = keyspaces.driver().await;
    put(
        &driver,
        &["good.a", "listed.only", "metadata.only", "no.id", "bad.config", "other.id", "empty.id", "no.times"],
    )
    .await;
    for cql in [
        "DELETE FROM META.metrics_metadata WHERE name = 'listed.only'",
        "DELETE FROM META.metrics WHERE name = 'metadata.only'",
        "DELETE id FROM META.metrics_metadata WHERE name = 'no.id'",
        "UPDATE META.metrics_metadata SET config['aggregator'] = 'median' WHERE name = 'bad.config'",
        // Empty values, which any type may have.
        "UPDATE META.metrics_metadata SET id = blob_as_uuid(0x) WHERE name = 'empty.id'",
        "UPDATE META.metrics_metadata SET created_on = blob_as_timeuuid(0x), updated_on = blob_as_timeuuid(0x) WHERE name = 'no.times'",
        "UPDATE META.metrics_metadata SET id = 7a870c4c-6df3-56f6-a60b-e9ee2f955ac1 WHERE name = 'other.id'",
    ] {
        keyspaces.run(cql).await;
    }
    let metrics = scanned(&driver).await;
    assert_eq!(
        metrics.iter().map(|metric| metric.name.as_str()).collect::<Vec<_>>(),
        ["good.a", "no.times", "other.id"]
    );
    let looked_up = driver.lookup(vec!["empty.id".to_owned(), "no.times".to_owned()]).await.unwrap();
    assert_eq!(looked_up.len(), 1);
    assert_eq!(
        (looked_up[0].name.as_str(), looked_up[0].created_on, looked_up[0].updated_on),
        ("no.times", None, None)
    );
    let report = driver.last_scan().unwrap();
    assert_eq!((report.metrics, report.without_metadata, report.without_name), (3, 1, 1));
    assert_eq!((report.partial, report.unreadable, report.other_ids), (2, 1, 1));
    assert_eq!(report.example.as_deref(), Some("bad.config: 'aggregator' is 'median'"));

    // Touching makes no row: one without an id would break BigGraphite.
    driver.mark_updated(vec!["gone".into(), "good.a".into()]).await.unwrap();
    driver.mark_read(vec!["gone".into(), "good.a".into()]).await.unwrap();
    scanned(&driver).await;
    assert_eq!(driver.last_scan().unwrap().without_name, 1);
    keyspaces.drop().await;
}

#[tokio::test]
async fn a_name_deeper_than_the_tables_is_rejected_and_the_others_are_written() {
    let Some(keyspaces) = Keyspaces::apply("deep", Indexes::None).await else { return };
    let driver = keyspaces.driver().await;
    put(&driver, &["a.b.c.d.e", "a.b.c.d.e.f", "a.b"]).await;
    let rejected = driver.rejected_names();
    assert_eq!((rejected.metrics, rejected.example.as_deref()), (1, Some("a.b.c.d.e.f")));
    assert_eq!(found(&driver, "a.**").await, ["a.b", "a.b+", "a.b.c+", "a.b.c.d+", "a.b.c.d.e", "a.b.c.d.e+"]);
    keyspaces.drop().await;
}

#[tokio::test]
async fn too_many_rows_are_an_error_and_not_a_truncated_answer() {
    for indexes in [Indexes::Sasi, Indexes::None] {
        let Some(keyspaces) = Keyspaces::apply("many", indexes).await else { return };
        let driver = keyspaces.driver().await;
        let names: Vec<String> = (0..20).map(|number| format!("a.n{number:02}")).collect();
        put(&driver, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        assert_eq!(driver.find("a.*", 20).await.unwrap().len(), 20);
        let error = driver.find("a.*", 19).await.unwrap_err();
        assert!(matches!(error, StoreError::Rejected(_)), "{error}");
        assert!(error.to_string().contains("more than 19"), "{error}");
        assert_eq!(driver.find("a.n07", 1).await.unwrap().len(), 1);
        keyspaces.drop().await;
    }
}

/// A generator of small numbers, the same each time for a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }

    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

const COMPONENT: &[&str] = &["a", "b", "ab", "abc", "b1", "é", "a%", "%b", "it's", "a-b", "c", "__END__"];
const WILD: &[&str] = &[
    "*",
    "?",
    "a*",
    "*b",
    "a?",
    "[ab]",
    "[!a]*",
    "{a,b}",
    "{ab,b*}",
    "a{b,c,}",
    "{a,}",
    "**",
    "{a,**}",
    "a%*",
    "%*",
    "é*",
    "a{,b{1,c}}",
    "{abc,ab,a}",
    "[a-c]*",
    "*'*",
];

#[tokio::test]
async fn every_kind_of_index_and_the_path_index_give_the_same_answers() {
    let mut all = Vec::new();
    for (test, indexes) in [("g_sasi", Indexes::Sasi), ("g_sai", Indexes::Sai), ("g_none", Indexes::None)] {
        let Some(mut keyspaces) = Keyspaces::apply(test, indexes).await else { return };
        if indexes == Indexes::Sai {
            // So few that most braces and depths become something wider.
            keyspaces.options.glob_queries = 4;
        }
        let driver = keyspaces.driver().await;
        all.push((keyspaces, driver));
    }
    let seed = node::now() as u64;
    eprintln!("seed {seed}");
    let mut dice = Dice(seed);
    let mut names: BTreeSet<String> = BTreeSet::new();
    while names.len() < 120 {
        let components: Vec<&str> = (0..=dice.below(COMPONENTS - 1)).map(|_| dice.one_of(COMPONENT)).collect();
        names.insert(components.join("."));
    }
    names.insert("a.b;tag=x.y".to_owned());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let registry = Registry::new();
    let policy = registry.intern(&Policy::default());
    for name in &names {
        registry.write().create(registry.hash(name.as_bytes()), name, policy, 0);
    }
    for (_, driver) in &all {
        put(driver, &names).await;
    }
    for _ in 0..100 {
        let components: Vec<&str> = (0..=dice.below(COMPONENTS - 1))
            .map(|_| if dice.below(2) == 0 { dice.one_of(COMPONENT) } else { dice.one_of(WILD) })
            .collect();
        let pattern = components.join(".");
        let local = registry.find(&pattern, &FindLimits::default()).unwrap();
        let local = text(local.iter().map(|node| (node.path, node.is_leaf, node.is_branch)));
        for (keyspaces, driver) in &all {
            assert_eq!(
                found(driver, &pattern).await,
                local,
                "{pattern} with {:?}, seed {seed}",
                keyspaces.options.indexes
            );
        }
    }
    for (keyspaces, _) in all {
        keyspaces.drop().await;
    }
}

fn place(host: &str) -> Location {
    Location { host: host.to_owned(), data_directory: "/data".to_owned() }
}

#[tokio::test]
async fn a_writer_id_belongs_to_one_live_node() {
    let Some(keyspaces) = Keyspaces::apply("claim", Indexes::None).await else { return };
    let mut driver = keyspaces.driver().await;
    let claim = driver.claim(None, &place("one")).await.unwrap();
    let identity: Identity = claim.identity().to_string().parse().unwrap();
    // A crash: nothing is released.
    drop(claim);
    let claim = driver.claim(Some(identity), &place("one")).await.unwrap();
    assert_eq!(claim.identity(), identity);

    let copy = driver.claim(Some(identity), &place("two")).await.unwrap_err();
    assert!(matches!(copy, StoreError::Rejected(_)), "{copy}");
    assert!(copy.to_string().contains("a copy of this data directory, on host 'one' in /data"), "{copy}");
    let other = Identity { node: driver.claim(None, &place("three")).await.unwrap().identity().node, ..identity };
    let error = driver.claim(Some(other), &place("three")).await.unwrap_err().to_string();
    assert!(error.contains("belongs to another node, on host 'one'"), "{error}");

    // After a clean stop the data directory may be moved at once.
    claim.release().await.unwrap();
    let moved = driver.claim(Some(identity), &place("two")).await.unwrap();
    assert_eq!((moved.identity(), moved.is_lost()), (identity, false));
    keyspaces.drop().await;
}
