"""Records the answers of BigGraphite 0.14.20 about its tables, its reader and its queries, for tests in Rust to replay.

  tests/.cache/biggraphite/bin/python tests/biggraphite/record.py

writes crates/store-cassandra/tests/biggraphite/*.txt. It needs no Cassandra: it calls only BigGraphite's pure parts. The first lines of a file
name its columns; columns are separated by tabs.
"""

import math
import random
import types
from pathlib import Path

from biggraphite import accessor, glob_utils, metric
from biggraphite.drivers import cassandra, cassandra_sasi

OUT = Path(__file__).resolve().parents[2] / "crates" / "store-cassandra" / "tests" / "biggraphite"
KEYSPACE = "biggraphite"
SEED = 20

# Stage 0 first in each; the last retention has an extremely fine and an extremely coarse stage.
RETENTIONS = [
    "86400*1s:10080*60s",
    "8640*10s:10080*60s:8760*3600s",
    "11520*60s:720*3600s:730*86400s",
    "60*60s:24*300s",
    "1440*60s:2016*300s:2880*900s:17520*1800s",
    "300*1s:600*5s:1000000*604800s",
]


def write(name, about, rows):
    OUT.mkdir(parents=True, exist_ok=True)
    lines = [f"# {line}" for line in about] + ["\t".join(str(cell) for cell in row) for row in rows]
    (OUT / name).write_text("\n".join(lines) + "\n")


def stages():
    """Every stage of the retentions, once."""
    found = []
    for retention in RETENTIONS:
        for stage in metric.Retention.from_string(retention).stages:
            if stage not in found:
                found.append(stage)
    return found


def statements():
    """BigGraphite's maker of statements, for a Cassandra that supports time windows."""
    host = types.SimpleNamespace(release_version="3.11.3")
    session = types.SimpleNamespace(get_pools=lambda: [types.SimpleNamespace(host=host)])
    return cassandra._LazyPreparedStatements(session, KEYSPACE, 0, False, None, None)


def one_line(cql):
    return " ".join(cql.split())


def record_tables():
    maker = statements()
    write(
        "datapoints.txt",
        ["stage, row size in ms, CREATE TABLE as BigGraphite writes it (runs of spaces made one)"],
        [
            (stage.as_full_string, cassandra._row_size_ms(stage), one_line(maker._create_datapoints_table_stmt(stage)))
            for stage in stages()
        ],
    )
    keyspace = {"keyspace": KEYSPACE + "_metadata"}
    cql = cassandra._METADATA_CREATION_CQL + cassandra._METADATA_CREATION_CQL_SASI
    write("metadata.txt", ["statement"], [(one_line(statement % keyspace),) for statement in cql])


def record_names():
    names = [
        "x",
        "a.b.c",
        "é.b",
        "a..b",
        ".a.b.",
        "servers.dc1.host00001.cpu.0.user",
        "日本.東京",
        "with space.and;tag=1",
        "UPPER.lower-_1",
        "a.b'quote",
        "deep." + ".".join(str(level) for level in range(60)),
    ]
    rows = []
    for name in names:
        made = metric.make_metric_with_defaults(name, metric.MetricMetadata.create())
        rows.append((name, made.name, made.id, made.name.rpartition(".")[0] + "."))
    write("names.txt", ["name as sent, name in the tables, its id, its parent"], rows)


def record_offsets():
    generator = random.Random(SEED)
    rows = []
    for stage in stages():
        row_size = cassandra._row_size_ms(stage)
        for _ in range(20):
            # A point's time as its writer passes it: already rounded down to the stage.
            at = stage.round_down(generator.randrange(1_000_000_000, 2_100_000_000))
            start = at * 1000 - at * 1000 % row_size
            rows.append((stage.as_full_string, at, start, stage.step_ms(at * 1000 - start)))
    write("offsets.txt", ["stage, time in s, time_start_ms, offset"], rows)


def record_selects():
    """The partitions and offsets of a read, from the accessor itself."""
    class Recorder:
        def prepare_select(self, stage, metric_id, row_start_ms, row_min_offset, row_max_offset):
            return None, (row_start_ms, row_min_offset, row_max_offset)

    reader = cassandra._CassandraAccessor()
    reader._CassandraAccessor__lazy_statements = Recorder()
    generator = random.Random(SEED)
    rows = []
    for stage in stages():
        for _ in range(6):
            start = stage.round_down(generator.randrange(1_500_000_000, 1_900_000_000))
            end = start + stage.precision * generator.choice([0, 1, 100, 1999, 2000, 4500])
            asked = reader._fetch_points_make_selects("id", start * 1000, end * 1000, stage)
            plan = " ".join("%d:%d-%d" % request.params for request in asked)
            rows.append((stage.as_full_string, start, end, plan))
    write(
        "selects.txt",
        [
            "stage, from in s, until in s, what is asked: time_start_ms:first offset-offset after the last",
            "(the last partition is asked even when no offset of it is wanted, as in 0-0)",
        ],
        rows,
    )


def number(value):
    return "nan" if math.isnan(value) else repr(float(value))


def record_merges():
    """Rows of one slot as Cassandra returns them to BigGraphite's reader, and the reader's result."""
    generator = random.Random(SEED)
    stage = metric.Stage(points=720, precision=3600)
    rows = []
    for aggregator in metric.Aggregator:
        made = metric.make_metric_with_defaults("a.b", metric.MetricMetadata.create(aggregator=aggregator))
        for case in range(200):
            shards = set()
            for _ in range(generator.choice([1, 1, 2, 3, 6])):
                replica = generator.choice([0, 0, 0, 1, 2, 3])
                shards.add(accessor.pack_shard(replica, generator.choice([0, 1, 5, 8191, 8192, 16383])))
            signed = sorted((shard - 65536 if shard > 32767 else shard for shard in shards), reverse=True)
            stored = []
            for shard in signed:
                value = generator.choice([float(generator.randrange(-9, 10)), generator.uniform(-1e6, 1e6), 0.1])
                count = generator.choice([1, 1, 2, 3, 60, 32767])
                if generator.random() < 0.05:
                    value = math.nan
                stored.append((0, 7, shard, value, count))

            def read(aggregated):
                group = accessor.PointGrouper(made, 0, 10**12, stage, [(True, stored)], aggregated=aggregated)
                return list(group)

            point = read(True)
            merged = read(False)
            given = " ".join(f"{shard}:{number(value)}:{count}" for _, _, shard, value, count in stored)
            aggregated = number(point[0][1]) if point else "none"
            kept = f"{number(merged[0][1])}:{number(merged[0][2])}" if merged else "none"
            rows.append((aggregator.name, given, aggregated, kept))
    write(
        "merges.txt",
        [
            "aggregator, the rows of one slot as shard:value:count (highest shard first, as its query returns them),",
            "the value its reader gives, and value:count as it merges them when it copies",
        ],
        rows,
    )


GLOBS = """
a.b
x
*
a.*
a.b*
a.b?
a.b*.c
a.b?c.d
a[bc].d
a.[bc]d.e
*.*
*.*.c
a.*.c
a.{b,c}.d
a.{b,c}*.d
a.x{b,c}y.d
a.{b,c{1,2}}.d
{a,b}.{c,d}.{e,f}
{a,b,c,d,e,f,g}.{a,b,c,d,e,f,g}
{a,b,c,d,e,f,g}.{a,b,c,d,e,f,g}*.z
a.{b}.c
a.**
**
a.**.z
**.z
a.b*.**
a.*.**
a.it's.*
a.b-c_d.*:x
é.*
servers.dc1.*.loadavg.01
*.*.*.cpu.*.user
a..b
a.[!x].b
a.b[0-9]
a.b[0-9].c
a*b*.c
**b
b**c.d
""".split()


def record_globs():
    parser = glob_utils.GraphiteGlobParser()
    rows = []
    for glob in GLOBS:
        for table in ["metrics", "directories"]:
            components = parser.parse(glob)
            if parser.is_fully_defined(components):
                path = ".".join(component[0] for component in components)
                rows.append((glob, table, "by name", path))
                continue
            maker = cassandra_sasi.CassandraSASI(KEYSPACE + "_metadata", 42, 5000)
            try:
                for query in maker.generate_queries(table, components):
                    rows.append((glob, table, "query", one_line(query)))
            except accessor.InvalidGlobError as error:
                rows.append((glob, table, "refused", error))
    write(
        "sasi.txt",
        [
            "glob, table, how it is answered (by name: one row by its primary key; query; refused), name or CQL",
            "limits: 42 queries a glob, 5000 rows; a query's LIMIT is one more, to see that there were too many",
        ],
        rows,
    )


NAMES = """
x
a.b
a.b.c
a.b.d
a.bc.d
a.c.d
a.b1.c
a.b2.c
a.b-c.d
ab.c
a.b.c.d.e
b.z
a.q.r.z
é.b
A.b
""".split()


def record_matches():
    rows = []
    for glob in GLOBS:
        rows.append((glob, " ".join(glob_utils.filter_from_glob(NAMES, glob))))
    write("matches.txt", ["names: " + " ".join(NAMES), "glob, those of the names that its last filter lets through"], rows)


if __name__ == "__main__":
    record_tables()
    record_names()
    record_offsets()
    record_selects()
    record_merges()
    record_globs()
    record_matches()
