//! The CQL of every table, word for word. Pure: nothing here speaks with a cluster.

use metric::{ROW_POINTS, Table};

/// Seconds that a row outlives its retention, as in BigGraphite: points come late.
pub(crate) const OUT_OF_ORDER_SECONDS: i64 = 15 * 60;

/// The longest TTL that Cassandra takes, in seconds: twenty years. What is kept longer is kept as long as this.
pub(crate) const MAX_TTL_SECONDS: i64 = 20 * 365 * 24 * 3600;

/// The statement that makes a datapoints table, if it is not there: BigGraphite's name, columns, clustering,
/// comment, compaction windows and TTL. `keyspace` is the name as it is, in its own case.
///
/// Two things are not as BigGraphite writes them. It names one of the two clustering columns, which Cassandra 5 fills
/// up with the other ascending; we say both. And it has every memtable flushed each quarter of an hour, because its
/// keyspace has no commit log; ours has, and small SSTables cost compactions.
pub fn datapoints_table(keyspace: &str, table: Table) -> String {
    let Table { stage, aggregated } = table;
    let resolution = i64::from(stage.resolution());
    let row_ms = resolution * i64::from(ROW_POINTS) * 1000;
    let ttl = (stage.duration() + OUT_OF_ORDER_SECONDS).min(MAX_TTL_SECONDS);
    let (unit, size) = compaction_window(ttl, resolution);
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
             AND compaction = {{'class': 'TimeWindowCompactionStrategy', 'timestamp_resolution': 'MICROSECONDS', \
                 'compaction_window_unit': '{unit}', 'compaction_window_size': {size}}};",
        keyspace = quoted(keyspace),
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
        Table { stage: Stage::new(resolution, points).unwrap(), aggregated }
    }

    fn check(table: Table, expected: Expect) {
        expected.assert_eq(&datapoints_table("biggraphite", table));
    }

    #[test]
    fn a_first_stage_keeps_points_as_they_came() {
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

    #[test]
    fn a_keyspace_keeps_its_case_and_its_quotes() {
        let cql = datapoints_table("My\"Ks", table(60, 10, false));
        assert!(cql.starts_with("CREATE TABLE IF NOT EXISTS \"My\"\"Ks\".datapoints_10p_60s_0 ("), "{cql}");
    }
}
