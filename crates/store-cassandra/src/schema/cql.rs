//! The CQL of every table, word for word. Pure: nothing here speaks with a cluster.

use metric::{ROW_POINTS, Stage, Table};

use crate::{Indexes, Layout};

/// Columns for components of a name, in tables that this program creates: BigGraphite's number. One of them has
/// [`LAST_COMPONENT`].
pub(crate) const COMPONENTS: usize = 64;

/// What follows the last component of a name in its row.
pub(crate) const LAST_COMPONENT: &str = "__END__";

/// The tables of names, which have a column for each component.
pub(crate) const NAME_TABLES: [&str; 2] = ["metrics", "directories"];

/// The version of the schema, stored in the table `spec`.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// The version of the packed tables, stored in the table `spec` by nodes that write them.
pub(crate) const PACKED_VERSION: u8 = codec::RUN_VERSION;

/// The class that makes a SASI index.
pub(crate) const SASI: &str = "org.apache.cassandra.index.sasi.SASIIndex";

/// The class that makes a storage-attached index, by the name that Cassandra gives it.
pub(crate) const SAI: &str = "StorageAttachedIndex";

/// Seconds that a row outlives its retention, as in BigGraphite: points come late.
pub(crate) const OUT_OF_ORDER_SECONDS: i64 = 15 * 60;

/// The longest TTL that Cassandra takes, in seconds: twenty years. Rows with a longer retention expire after this time.
pub(crate) const MAX_TTL_SECONDS: i64 = 20 * 365 * 24 * 3600;

/// The statement that creates a missing datapoints table: BigGraphite's name, columns, clustering,
/// comment, compaction windows and TTL. `keyspace` is the name as it is, in its own case.
///
/// Two things differ from BigGraphite's statement. It names one of the two clustering columns, which Cassandra 5 fills
/// up with the other ascending; here both are named. And it has every memtable flushed each quarter of an hour, because its
/// keyspace has no commit log; ours has, and small SSTables cost compactions.
pub fn datapoints_table(keyspace: &str, table: Table) -> String {
    let Table { stage, aggregated, rollup: _ } = table;
    let resolution = i64::from(stage.resolution());
    let row_ms = resolution * i64::from(ROW_POINTS) * 1000;
    let ttl = (stage.duration() + OUT_OF_ORDER_SECONDS).min(MAX_TTL_SECONDS);
    let compaction = compaction(ttl, resolution);
    let (columns, key, order) = match aggregated {
        true => {
            ("    shard smallint,\n    value double,\n    count smallint,\n", "offset, shard", "offset DESC, shard ASC")
        }
        false => ("    value double,\n", "offset", "offset DESC"),
    };
    let kind = if aggregated { "aggr" } else { "0" };
    format!(
        "CREATE TABLE IF NOT EXISTS {keyspace}.{table} (\n    \
             metric uuid,\n    \
             time_start_ms bigint,\n    \
             offset smallint,\n\
             {columns}    \
             PRIMARY KEY ((metric, time_start_ms), {key})\n\
         ) WITH CLUSTERING ORDER BY ({order})\n    \
             AND default_time_to_live = {ttl}\n    \
             AND gc_grace_seconds = 86400\n    \
             AND comment = '{{\"created_by\": \"biggraphite\", \"schema_version\": 0, \"stage\": \"{stage}_{kind}\", \
                 \"row_size_ms\": {row_ms}, \"row_size\": {ROW_POINTS}.0}}'\n    \
             AND compaction = {compaction};",
        keyspace = quoted(keyspace),
    )
}

/// The name of the packed table of a stage.
pub(crate) fn packed_name(stage: Stage) -> String {
    format!("datapoints_{}p_{}s_packed", stage.points(), stage.resolution())
}

/// The statement that creates a missing packed table: the partitions, windows and TTL of BigGraphite's tables, and a row for each
/// run of points.
pub fn packed_table(keyspace: &str, stage: Stage) -> String {
    let resolution = i64::from(stage.resolution());
    let row_ms = resolution * i64::from(ROW_POINTS) * 1000;
    let ttl = (stage.duration() + OUT_OF_ORDER_SECONDS).min(MAX_TTL_SECONDS);
    format!(
        "CREATE TABLE IF NOT EXISTS {keyspace}.{table} (\n    \
             metric uuid,\n    \
             time_start_ms bigint,\n    \
             offset smallint,\n    \
             shard smallint,\n    \
             count smallint,\n    \
             holes blob,\n    \
             points blob,\n    \
             PRIMARY KEY ((metric, time_start_ms), offset, shard, count, holes)\n\
         ) WITH CLUSTERING ORDER BY (offset DESC, shard ASC, count ASC, holes ASC)\n    \
             AND default_time_to_live = {ttl}\n    \
             AND gc_grace_seconds = 86400\n    \
             AND comment = '{{\"created_by\": \"plumbago\", \"packed_version\": {PACKED_VERSION}, \"stage\": \"{stage}\", \
                 \"row_size_ms\": {row_ms}, \"row_size\": {ROW_POINTS}.0}}'\n    \
             AND compression = {{'class': 'ZstdCompressor', 'chunk_length_in_kb': 16}}\n    \
             AND compaction = {compaction};",
        keyspace = quoted(keyspace),
        table = packed_name(stage),
        compaction = compaction(ttl, resolution),
    )
}

/// The statement that creates a missing keyspace. `replication` is a CQL map.
pub(crate) fn keyspace(name: &str, replication: &str) -> String {
    let name = quoted(name);
    format!("CREATE KEYSPACE IF NOT EXISTS {name} WITH replication = {replication} AND durable_writes = true;")
}

/// The statement that creates a missing table of the metadata keyspace.
fn metadata_table(keyspace: &str, table: &str, columns: &[String]) -> String {
    format!("CREATE TABLE IF NOT EXISTS {}.{table} (\n    {}\n);", quoted(keyspace), columns.join(",\n    "))
}

/// The statement that creates `metrics` or `directories`.
pub(crate) fn name_table(keyspace: &str, table: &str, components: usize) -> String {
    let mut columns = vec!["name text PRIMARY KEY".to_owned(), "parent text".to_owned()];
    // Eight on a line.
    let of_line = |from: usize| {
        let line = (from..components.min(from + 8)).map(|component| format!("component_{component} text"));
        line.collect::<Vec<_>>().join(", ")
    };
    columns.extend((0..components).step_by(8).map(of_line));
    metadata_table(keyspace, table, &columns)
}

/// The statement that creates `metrics_metadata`: the columns of a metric besides its name.
pub(crate) fn metrics_metadata(keyspace: &str) -> String {
    let columns = [
        "name text PRIMARY KEY",
        "created_on timeuuid",
        "updated_on timeuuid",
        "read_on timeuuid",
        "id uuid",
        "config map<text, text>",
    ];
    metadata_table(keyspace, "metrics_metadata", &columns.map(str::to_owned))
}

/// The statement that creates `spec`, the layout of the tables.
pub(crate) fn spec_table(keyspace: &str) -> String {
    let columns = ["name text PRIMARY KEY", "value text"];
    metadata_table(keyspace, "spec", &columns.map(str::to_owned))
}

/// The rows of `spec` for tables with that many columns for components.
pub(crate) fn spec(components: usize, layout: Layout) -> Vec<(&'static str, String)> {
    let mut spec = vec![
        ("schema_version", SCHEMA_VERSION.to_string()),
        ("components", components.to_string()),
        ("row_points", ROW_POINTS.to_string()),
    ];
    if layout == Layout::Packed {
        spec.push(("packed_version", PACKED_VERSION.to_string()));
    }
    spec
}

/// The statement that adds a missing row to `spec`.
pub(crate) fn spec_row(keyspace: &str, name: &str, value: &str) -> String {
    format!("INSERT INTO {}.spec (name, value) VALUES ('{name}', '{value}') IF NOT EXISTS;", quoted(keyspace))
}

/// The statement that creates `writers`: which node writes under which id. A row stays; `alive` has a TTL.
pub(crate) fn writers_table(keyspace: &str) -> String {
    let columns = [
        "writer int PRIMARY KEY",
        "node uuid",
        "host text",
        "data_directory text",
        "claimed_on timestamp",
        "alive boolean",
    ];
    metadata_table(keyspace, "writers", &columns.map(str::to_owned))
}

/// Seconds that the row of a node outlives its last heartbeat.
pub(crate) const NODE_SECONDS: i32 = 60;

/// Seconds that a row of `changes` is kept. A node that was away for longer reads all names instead.
pub(crate) const CHANGES_SECONDS: i32 = 7200;

/// The statement that creates `nodes`: which nodes are alive. All are in one partition, so that one statement reads them.
pub(crate) fn nodes_table(keyspace: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {}.nodes (\n    part int,\n    node uuid,\n    address text,\n    version text,\n    \
         started timestamp,\n    heartbeat timestamp,\n    PRIMARY KEY (part, node)\n) WITH default_time_to_live = \
         {NODE_SECONDS}\n    AND gc_grace_seconds = 3600;",
        quoted(keyspace)
    )
}

/// The statement that creates `changes`: names that nodes created and deleted. `bucket` is a minute since 1970, `written` are
/// microseconds. The kind is 'created' or 'deleted'; names have their second.
pub(crate) fn changes_table(keyspace: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {}.changes (\n    bucket bigint,\n    written bigint,\n    node uuid,\n    part int,\n    \
         kind text,\n    policy frozen<map<text, text>>,\n    names frozen<map<text, bigint>>,\n    \
         PRIMARY KEY (bucket, written, node, part)\n) WITH default_time_to_live = {CHANGES_SECONDS}\n    \
         AND gc_grace_seconds = 3600\n    AND compaction = {{'class': 'TimeWindowCompactionStrategy', \
         'compaction_window_unit': 'HOURS', 'compaction_window_size': 1}};",
        quoted(keyspace)
    )
}

/// The columns of the metadata tables that have an index of this kind, each with its table.
///
/// Globs need those over parents and components. Those of `metrics_metadata` are for `bgutil clean`; nothing here
/// asks them.
pub(crate) fn indexed(indexes: Indexes, components: usize) -> Vec<(&'static str, String)> {
    let mut indexed = Vec::new();
    if indexes == Indexes::Sasi {
        indexed.extend(
            ["id", "created_on", "updated_on", "read_on"].map(|column| ("metrics_metadata", column.to_owned())),
        );
    }
    if indexes != Indexes::None {
        indexed.extend(NAME_TABLES.map(|table| (table, "parent".to_owned())));
        let of_table = |table| (0..components).map(move |component| (table, format!("component_{component}")));
        indexed.extend(NAME_TABLES.into_iter().flat_map(of_table));
    }
    indexed
}

/// The statement that creates a missing index.
pub(crate) fn index(keyspace: &str, table: &str, column: &str, indexes: Indexes) -> String {
    let (class, options) = match indexes {
        Indexes::Sasi if table == "metrics_metadata" => (SASI, " WITH OPTIONS = {'mode': 'SPARSE'}"),
        Indexes::Sasi => (
            SASI,
            " WITH OPTIONS = {'analyzer_class': 'org.apache.cassandra.index.sasi.analyzer.NonTokenizingAnalyzer', \
             'case_sensitive': 'true'}",
        ),
        Indexes::Sai | Indexes::None => (SAI, ""),
    };
    format!("CREATE CUSTOM INDEX IF NOT EXISTS ON {}.{table} ({column}) USING '{class}'{options};", quoted(keyspace))
}

/// The compaction of a table of points.
fn compaction(ttl: i64, resolution: i64) -> String {
    let (unit, size) = compaction_window(ttl, resolution);
    format!(
        "{{'class': 'TimeWindowCompactionStrategy', 'timestamp_resolution': 'MICROSECONDS', \
         'compaction_window_unit': '{unit}', 'compaction_window_size': {size}}}"
    )
}

/// BigGraphite's windows: about fifty in the life of a row, but no shorter than an hour or than a partition is wide, and
/// whole hours or, beyond a day, whole days.
fn compaction_window(ttl: i64, resolution: i64) -> (&'static str, i64) {
    const HOUR: i64 = 3600;
    const DAY: i64 = 24 * HOUR;
    let fresh = HOUR.max(resolution * i64::from(ROW_POINTS));
    // In fiftieths of a second, so that the fiftieth part of the TTL is a whole number, as in the original's floats.
    let window = ttl.min(fresh * 50);
    let (unit, seconds) = if window > DAY * 50 { ("DAYS", DAY) } else { ("HOURS", HOUR) };
    (unit, (window / (seconds * 50)).max(1))
}

/// The keyspace of the names that go with a keyspace of points.
pub(crate) fn metadata_keyspace(keyspace: &str) -> String {
    format!("{keyspace}_metadata")
}

/// A name as CQL takes it whatever is in it.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use metric::Stage;

    use super::*;

    fn table(resolution: u32, points: u32, aggregated: bool) -> Table {
        Table { stage: Stage::new(resolution, points).unwrap(), aggregated, rollup: None }
    }

    fn check(table: Table, expected: Expect) {
        expected.assert_eq(&datapoints_table("biggraphite", table));
    }

    #[test]
    fn the_first_stage_has_one_row_per_point() {
        check(
            table(60, 11520, false),
            expect![[r#"
            CREATE TABLE IF NOT EXISTS "biggraphite".datapoints_11520p_60s_0 (
                metric uuid,
                time_start_ms bigint,
                offset smallint,
                value double,
                PRIMARY KEY ((metric, time_start_ms), offset)
            ) WITH CLUSTERING ORDER BY (offset DESC)
                AND default_time_to_live = 692100
                AND gc_grace_seconds = 86400
                AND comment = '{"created_by": "biggraphite", "schema_version": 0, "stage": "11520*60s_0", "row_size_ms": 120000000, "row_size": 2000.0}'
                AND compaction = {'class': 'TimeWindowCompactionStrategy', 'timestamp_resolution': 'MICROSECONDS', 'compaction_window_unit': 'HOURS', 'compaction_window_size': 3};"#]],
        );
    }

    #[test]
    fn a_coarser_stage_has_a_row_for_each_writer() {
        check(
            table(3600, 720, true),
            expect![[r#"
            CREATE TABLE IF NOT EXISTS "biggraphite".datapoints_720p_3600s_aggr (
                metric uuid,
                time_start_ms bigint,
                offset smallint,
                shard smallint,
                value double,
                count smallint,
                PRIMARY KEY ((metric, time_start_ms), offset, shard)
            ) WITH CLUSTERING ORDER BY (offset DESC, shard ASC)
                AND default_time_to_live = 2592900
                AND gc_grace_seconds = 86400
                AND comment = '{"created_by": "biggraphite", "schema_version": 0, "stage": "720*3600s_aggr", "row_size_ms": 7200000000, "row_size": 2000.0}'
                AND compaction = {'class': 'TimeWindowCompactionStrategy', 'timestamp_resolution': 'MICROSECONDS', 'compaction_window_unit': 'HOURS', 'compaction_window_size': 14};"#]],
        );
    }

    #[test]
    fn a_packed_table_has_a_row_for_each_run() {
        expect![[r#"
            CREATE TABLE IF NOT EXISTS "k".datapoints_11520p_60s_packed (
                metric uuid,
                time_start_ms bigint,
                offset smallint,
                shard smallint,
                count smallint,
                holes blob,
                points blob,
                PRIMARY KEY ((metric, time_start_ms), offset, shard, count, holes)
            ) WITH CLUSTERING ORDER BY (offset DESC, shard ASC, count ASC, holes ASC)
                AND default_time_to_live = 692100
                AND gc_grace_seconds = 86400
                AND comment = '{"created_by": "plumbago", "packed_version": 1, "stage": "11520*60s", "row_size_ms": 120000000, "row_size": 2000.0}'
                AND compression = {'class': 'ZstdCompressor', 'chunk_length_in_kb': 16}
                AND compaction = {'class': 'TimeWindowCompactionStrategy', 'timestamp_resolution': 'MICROSECONDS', 'compaction_window_unit': 'HOURS', 'compaction_window_size': 3};"#]]
        .assert_eq(&packed_table("k", Stage::new(60, 11520).unwrap()));
    }

    /// What BigGraphite 0.14.20 says of these stages.
    #[test]
    fn time_to_live_and_compaction_windows_are_biggraphites() {
        let vectors = [
            (table(1, 86400, false), 87300, "HOURS", 1),
            (table(10, 8640, false), 87300, "HOURS", 1),
            (table(60, 11520, false), 692_100, "HOURS", 3),
            (table(60, 10080, true), 605_700, "HOURS", 3),
            (table(3600, 720, true), 2_592_900, "HOURS", 14),
            (table(86400, 730, true), 63_072_900, "DAYS", 14),
        ];
        for (table, ttl, unit, size) in vectors {
            let cql = datapoints_table("k", table);
            assert!(cql.contains(&format!("default_time_to_live = {ttl}\n")), "{cql}");
            let window = format!("'compaction_window_unit': '{unit}', 'compaction_window_size': {size}}}");
            assert!(cql.contains(&window), "{cql}");
        }
    }

    /// A statement without what a parser passes over.
    fn bare(cql: &str) -> String {
        let bare: String = cql.chars().filter(|char| !char.is_whitespace() && *char != '"').collect();
        bare.replace("PRIMARYKEY((name))", "PRIMARYKEY(name)")
    }

    /// The parts of a statement, in any order.
    fn parts(cql: &str) -> Vec<String> {
        let mut parts: Vec<String> =
            bare(cql).replace(")WITH", ",").replace("AND", ",").split(',').map(str::to_owned).collect();
        parts.sort();
        parts
    }

    #[test]
    fn the_tables_of_points_are_biggraphites() {
        let mut known = 0;
        for line in include_str!("../../tests/biggraphite/datapoints.txt").lines().filter(|line| !line.starts_with('#'))
        {
            let [name, row_ms, theirs] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let (stage, kind) = name.split_once('_').unwrap();
            // One lasts longer than time does here.
            let Ok(retention) = stage.parse::<metric::Retention>() else { continue };
            let stage = retention.finest();
            let ours = datapoints_table("biggraphite", Table { stage, aggregated: kind == "aggr", rollup: None });
            assert!(ours.contains(&format!("\"row_size_ms\": {row_ms},")), "{ours}");
            let theirs = theirs.replace("AND memtable_flush_period_in_ms = 900000", "");
            let theirs = match kind {
                "aggr" => theirs.replace("(offset DESC)", "(offset DESC, shard ASC)"),
                _ => theirs,
            };
            assert_eq!(parts(&ours), parts(&theirs), "{name}");
            known += 1;
        }
        assert!(known >= 6);
    }

    #[test]
    fn the_tables_of_names_are_biggraphites() {
        let keyspace = "biggraphite_metadata";
        let mut ours: Vec<String> = NAME_TABLES.map(|table| name_table(keyspace, table, COMPONENTS)).into();
        ours.push(metrics_metadata(keyspace));
        let indexed = indexed(Indexes::Sasi, COMPONENTS).into_iter();
        ours.extend(indexed.map(|(table, column)| index(keyspace, table, &column, Indexes::Sasi)));
        // A key may stand at its column or at the end.
        let normal = |cql: &str| match bare(cql).replace(",PRIMARYKEY(name)", "") {
            bare if bare.contains("nametextPRIMARYKEY") => bare.replace("nametextPRIMARYKEY", "nametext"),
            bare => bare,
        };
        let mut ours: Vec<String> = ours.iter().map(|cql| normal(cql)).collect();
        let theirs = include_str!("../../tests/biggraphite/metadata.txt").lines().filter(|line| !line.starts_with('#'));
        let mut theirs: Vec<String> = theirs.map(normal).collect();
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs);
    }

    #[test]
    fn a_keyspace_keeps_its_case_and_its_quotes() {
        let cql = datapoints_table("My\"Ks", table(60, 10, false));
        assert!(cql.starts_with("CREATE TABLE IF NOT EXISTS \"My\"\"Ks\".datapoints_10p_60s_0 ("), "{cql}");
    }
}
