"""BigGraphite and Plumbago over the same tables: each reads what the other wrote, to the same values, and both may write
the same metric.

Values are multiples of an eighth, so that sums are exact in any order.
"""

import itertools
import socket

import pytest

import naive
import wire
from biggraphite import CarbonCache
from cassandra import flush
from plumbago import QUIET, aligned_now, eventually, run, wait_until
from relays import free_port

RETENTIONS = "10s:1h,60s:6h,3600s:2d"
CONFIG_RETENTION = "360*10s:360*60s:48*3600s"
# (step, seconds kept) of each stage.
STAGES = [(10, 3600), (60, 21600), (3600, 172800)]
TABLES = ["datapoints_360p_10s_0", "datapoints_360p_60s_aggr", "datapoints_48p_3600s_aggr"]

SCHEMAS = f"[all]\npattern = .*\nretentions = {RETENTIONS}\n"

# Carbon's method, which is also the first component of its metrics here, and BigGraphite's name for it.
SHARED = {"average": "average", "sum": "total", "min": "minimum", "max": "maximum", "last": "last"}
# Methods without a name in BigGraphite.
OURS = ["avg_zero", "absmax", "absmin"]



def aggregation(methods):
    """A storage-aggregation.conf with a rule for each method's names."""
    rule = "[{0}]\npattern = ^{0}\\.\nxFilesFactor = 0\naggregationMethod = {0}\n"
    return "".join(rule.format(method) for method in methods)


AGGREGATION = aggregation([*SHARED, *OURS])


@pytest.fixture(scope="module")
def peer(keyspaces):
    """A BigGraphite whose tables `bgutil syncdb` made."""
    return keyspaces(SCHEMAS)


@pytest.fixture
def on_its_tables(make_server, peer):
    """Makes servers over BigGraphite's keyspace."""

    def make(settings="", **kwargs):
        arguments = ["--cassandra", f"{peer.host}:{peer.port}", "--keyspace", peer.keyspace]
        return make_server(
            schemas=SCHEMAS, aggregation=AGGREGATION, settings=QUIET + settings, arguments=arguments, **kwargs
        )

    return make


def eighths(random):
    return random.randrange(-4000, 4000) / 8


def slots(random, now, share=0.5, back=3000):
    """Times of stage-0 slots of the last `back` seconds, in order."""
    return [t for t in range(now - back, now - 60, 10) if random.random() < share]


def by_plumbago(server, pattern, now):
    """A server's answer for each stage: [{name: {time: value}}]."""
    return [server.columns(pattern, now - reach, now, now=now) for _, reach in STAGES]


def by_biggraphite(peer, names, now):
    """The answer of BigGraphite's accessor for each stage: [{name: {time: value}}]."""
    found = []
    for stage, (step, reach) in enumerate(STAGES):
        until = -(-now // step) * step
        found.append({name: peer.read(name, until - reach, until, stage) for name in names})
    return found


def model(method, points, now):
    """The naive model's stages of points (time, value): [{time: value}]."""
    metric = naive.Metric(RETENTIONS, method=method)
    for t, value in points:
        metric.write(t, value, now)
    return [metric.stage(stage) for stage in range(len(STAGES))]


def models(points_by_name, now):
    """The naive model's stages of {name: [(time, value)]}: [{name: {time: value}}]."""
    each = {name: model(name.partition(".")[0], points, now) for name, points in points_by_name.items()}
    return [{name: stages[stage] for name, stages in each.items()} for stage in range(len(STAGES))]


def create(peer, names):
    """Creates metrics with BigGraphite; the first component of a name says the method.

    BigGraphite writes 0.5 for the 0 of the rules: 0 means "not given" there.
    """
    peer.create({name: (SHARED[name.partition(".")[0]], CONFIG_RETENTION, 0.5) for name in names})


def shards(peer, table, metric):
    """The shards of a metric's rows in an aggregated table."""
    uuid = peer.metric(metric)["id"]
    rows = peer.cql(f'SELECT shard FROM "{peer.keyspace}"."{table}" WHERE metric = {uuid} ALLOW FILTERING')
    return {shard for (shard,) in rows}


def test_plumbago_accepts_the_tables_of_biggraphite(peer, tmp_path):
    """`plumbago schema check` finds no problem in the tables of syncdb, and `apply` adds only our tables."""
    (tmp_path / "storage-schemas.conf").write_text(SCHEMAS)
    options = ["--cassandra", f"{peer.host}:{peer.port}", "--keyspace", peer.keyspace, "--conf-dir", tmp_path]

    def tables():
        return peer.cql(
            "SELECT keyspace_name, table_name, id FROM system_schema.tables WHERE keyspace_name IN (%s, %s)",
            [peer.keyspace, peer.keyspace + "_metadata"],
        )

    before = tables()
    applied = run("schema", "apply", *options)
    assert applied.returncode == 0, applied.stdout + applied.stderr
    after = tables()
    assert [table for table in before if table not in after] == [], "a table was created again"
    assert "spec" in [name for _, name, _ in after]
    checked = run("schema", "check", *options)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert run("schema", "apply", *options).returncode == 0
    assert tables() == after


# BigGraphite writes.


def test_plumbago_reads_points_of_biggraphite_to_the_same_values(peer, on_its_tables, seeded):
    """Every aggregator, with several writers, and replicas that each lack some points."""
    now = aligned_now(60)
    writers = {0: [1, 16383], 1: [5, 8192], 3: [1]}
    names = [f"{method}.theirs.m{m}" for method in SHARED for m in range(2)]
    create(peer, names)
    batches = {}
    for name in names:
        for t in slots(seeded, now):
            value = eighths(seeded)
            for replica in writers:
                if seeded.random() < 0.7:
                    # Now and then two writers receive the same point, and both count it.
                    for writer in seeded.sample(writers[replica], 1 + (seeded.random() < 0.1 and len(writers[replica]) > 1)):
                        batches.setdefault((writer, replica), []).append((name, t, value))
    for (writer, replica), points in batches.items():
        peer.write(points, writer, replica)

    server = on_its_tables()
    expected = by_biggraphite(peer, names, now)
    assert all(len(column) > 10 for column in expected[1].values())
    assert by_plumbago(server, "*.theirs.*", now) == expected


def test_one_writer_of_biggraphite_equals_the_naive_model(peer, on_its_tables, seeded):
    now = aligned_now(60)
    points = {f"{method}.single.m": [(t, eighths(seeded)) for t in slots(seeded, now)] for method in SHARED}
    create(peer, points)
    peer.write([(name, t, value) for name, column in points.items() for t, value in column], writer=7)
    server = on_its_tables()
    assert by_plumbago(server, "*.single.*", now) == models(points, now)
    assert by_biggraphite(peer, points, now) == models(points, now)


def test_plumbago_reads_points_of_bgutil(peer, on_its_tables):
    now = aligned_now(10)
    peer.bgutil("write", "--retention", CONFIG_RETENTION, "--aggregator", "total", "sum.bgutil.m", "2.5")
    server = on_its_tables()
    written = server.points("sum.bgutil.m", **{"from": now - 60, "until": now + 60})
    assert list(written.values()) == [2.5]


# Plumbago writes.


def scattered(random, now, name):
    """Points of one metric in a bad order: late, repeated, overwritten."""
    column = [(t, eighths(random)) for t in slots(random, now)]
    late = random.sample(column, len(column) // 4)
    again = [(t, eighths(random)) for t, _ in random.sample(column, len(column) // 5)]
    kept = [point for point in column if point not in late]
    return [[(name, t, value) for t, value in part] for part in (kept, late, again)]


def test_biggraphites_accessor_reads_points_of_plumbago_to_the_same_values(peer, on_its_tables, seeded):
    now = aligned_now(60)
    names = [f"{method}.ours.m{m}" for method in [*SHARED, "absmax", "absmin"] for m in range(2)]
    parts = {name: scattered(seeded, now, name) for name in names}
    server = on_its_tables()
    sent = {name: [] for name in names}
    for part in range(3):
        for name in names:
            server.send(parts[name][part])
            sent[name] += [(t, value) for _, t, value in parts[name][part]]
        # The next part corrects rows in the tables.
        flush(server)
        expected = models(sent, now)
        assert by_plumbago(server, "*.ours.*", now) == expected
        assert by_biggraphite(peer, names, now) == expected
    # One writer has one row a slot.
    assert all(len(shards(peer, TABLES[2], name)) == 1 for name in names)
    # The same from the tables alone.
    assert server.stop() == 0
    again = on_its_tables()
    assert by_plumbago(again, "*.ours.*", now) == expected


def test_bgutil_and_the_finder_read_points_of_plumbago(peer, on_its_tables, seeded):
    now = aligned_now(60)
    names = [f"{method}.tools.m" for method in [*SHARED, *OURS]]
    points = {name: [(t, eighths(seeded)) for t in slots(seeded, now)] for name in names}
    server = on_its_tables()
    server.send([(name, t, value) for name, column in points.items() for t, value in column])
    flush(server)
    expected = models(points, now)

    listed = peer.bgutil("list", "*.tools.*").splitlines()
    assert sorted(line.split()[1] for line in listed if line.startswith("m ")) == sorted(names)
    for method, theirs in SHARED.items():
        config = {"aggregator": theirs, "retention": CONFIG_RETENTION, "carbon_xfilesfactor": "0.000000"}
        # 0 means "not given" to BigGraphite, which shows its default.
        config["carbon_xfilesfactor"] = "0.500000"
        assert f"Metadata:  {config}" in peer.bgutil("info", f"{method}.tools.m")

    now_step = -(-now // 60) * 60
    read = peer.bgutil_read("sum.tools.m", now_step - 3600, now_step, "360*60s_aggr")
    assert read == pytest.approx({t: v for t, v in expected[1]["sum.tools.m"].items()}, abs=1e-6)

    assert [path for path, leaf in peer.find("*.tools.*") if leaf] == sorted(names)
    assert peer.find("sum.tools") == [["sum.tools", False]]
    for stage, (step, reach) in enumerate(STAGES):
        # Its reader takes the first stage that reaches further back than the window.
        fetched = peer.fetch("sum.tools.*", now - reach + step, now, now)
        assert fetched == {"sum.tools.m": (step, expected[stage]["sum.tools.m"])}


def test_both_write_the_same_rows_for_a_name(peer, on_its_tables):
    """metrics, directories of every ancestor, and metrics_metadata: the same cells for names of the same shape."""
    shapes = ["{}", "{}.b", "{}.b.c.d.e", "{}.é.日本", "{}.a-b_c:d.UPPER", "{}." + ".".join("d" * 40)]
    theirs = [shape.format("sumtheirs") for shape in shapes]
    ours = [shape.format("sumours") for shape in shapes]
    metadata = f'"{peer.keyspace}_metadata"'
    peer.create({name: ("average", CONFIG_RETENTION, 0.5) for name in theirs})
    server = on_its_tables()
    server.conf.joinpath("storage-aggregation.conf").write_text("[d]\npattern = .*\nxFilesFactor = 0.5\naggregationMethod = average\n")
    server.stop()
    server.start()
    now = aligned_now(60)
    server.send([(name, now, 1.0) for name in ours])
    flush(server)

    def rows(table, name, columns="*"):
        found = peer.cql(f"SELECT {columns} FROM {metadata}.{table} WHERE name = %s", [name])
        return [[cell.replace("sumtheirs", "sumours") if isinstance(cell, str) else cell for cell in row] for row in found]

    for one, other in zip(theirs, ours):
        assert rows("metrics", one) == rows("metrics", other) != []
        assert rows("metrics_metadata", one, "name, config") == rows("metrics_metadata", other, "name, config") != []
        ((id, created_on, updated_on),) = rows("metrics_metadata", other, "id, created_on, updated_on")
        assert id == peer.metric(other)["id"] and created_on is not None and updated_on is not None
        parts = one.split(".")
        for depth in range(1, len(parts)):
            directory = ".".join(parts[:depth])
            assert rows("directories", directory) == rows("directories", directory.replace("sumtheirs", "sumours")) != []


# Both write.


def test_both_may_write_the_same_metric(peer, on_its_tables, seeded):
    """Points of one metric go to either program, through restarts of both; both read all points."""
    now = aligned_now(60)
    # `last` of two writers' rows is the row of the higher shard, for both readers, even if the other is newer.
    names = [f"{method}.both.m{m}" for method in SHARED if method != "last" for m in range(2)]
    create(peer, names)
    server = on_its_tables()
    writer = itertools.count(11)
    theirs = next(writer)
    sent = {name: [] for name in names}
    times = slots(seeded, now, share=0.8)
    for round, part in enumerate([times[:60], times[60:120], times[120:]]):
        mine, others = [], []
        for t, name in itertools.product(part, names):
            point = (name, t, eighths(seeded))
            (mine if seeded.random() < 0.5 else others).append(point)
            sent[name].append(point[1:])
        peer.write(others, writer=theirs)
        server.send(mine)
        flush(server)
        expected = models(sent, now)
        assert by_biggraphite(peer, names, now) == expected
        assert by_plumbago(server, "*.both.*", now) == expected
        if round == 0:
            # BigGraphite counts an open slot again under a new writer id; Plumbago continues under its own.
            peer.restart(theirs)
            theirs = next(writer)
            server.kill()
            server.start()
    assert all(len(shards(peer, TABLES[2], name)) == 3 for name in names)


def test_a_late_point_corrects_slots_that_both_wrote_long_ago(peer, on_its_tables, seeded):
    now = aligned_now(60)
    names = [f"{method}.correct.m" for method in SHARED if method != "last"]
    create(peer, names)
    server = on_its_tables()
    theirs, mine = {}, {}
    for name in names:
        for t in slots(seeded, now, share=0.8):
            (mine if seeded.random() < 0.5 else theirs).setdefault(name, {})[t] = eighths(seeded)
    peer.write([(name, t, value) for name, column in theirs.items() for t, value in column.items()], writer=21)
    server.send([(name, t, value) for name, column in mine.items() for t, value in column.items()])
    flush(server)
    # The restarted server remembers nothing of these metrics.
    server.stop()
    server.start()
    whole = {name: {**theirs[name], **mine[name]} for name in names}
    changes = []
    for name in names:
        # Points of Plumbago, points of BigGraphite, and free slots.
        free = [t for t in range(now - 2800, now - 1000, 10) if t not in whole[name]]
        for t in seeded.sample(list(mine[name]), 10) + seeded.sample(list(theirs[name]), 10) + seeded.sample(free, 5):
            value = eighths(seeded)
            whole[name][t] = value
            changes.append((name, t, value))
    server.send(changes)
    flush(server)
    expected = models({name: list(column.items()) for name, column in whole.items()}, now)
    assert by_plumbago(server, "*.correct.*", now) == expected
    assert by_biggraphite(peer, names, now) == expected


def test_two_nodes_write_the_same_metric_and_a_crash_adds_no_row(peer, on_its_tables, seeded):
    """Each node has slots of its own. A late point may correct any slot, but takes no extreme from a node that extends it."""
    now = aligned_now(60)
    names = [f"{method}.nodes.m" for method in SHARED if method != "last"]
    nodes = [on_its_tables(), on_its_tables()]
    sent = {name: {} for name in names}
    every = slots(seeded, now, share=0.9)
    for round in range(3):
        # A slot that both nodes receive is counted by both, as in BigGraphite.
        part = every[round * len(every) // 3 : (round + 1) * len(every) // 3]
        for place, node in enumerate(nodes):
            points = []
            for name in names:
                times = [t for t in part if t // 10 % 2 == place]
                behind = [t for t in every if t < part[0]]
                late = seeded.sample(behind, min(len(behind), 10))
                if name.startswith(("min", "max")):
                    late = [t for t in late if t not in sent[name]]
                for t in times + late:
                    sent[name][t] = value = eighths(seeded)
                    points.append((name, t, value))
            node.send(points)
            if seeded.random() < 0.5:
                # Accepted points that were not flushed come back from the journal.
                node.kill()
                node.start()
            flush(node)
        expected = models({name: list(column.items()) for name, column in sent.items()}, now)
        assert by_biggraphite(peer, names, now) == expected, f"round {round}"
        for node in nodes:
            assert by_plumbago(node, "*.nodes.*", now) == expected, f"round {round}"
    assert all(len(shards(peer, TABLES[2], name)) == 2 for name in names)


def test_during_a_move_both_receive_every_point_each_with_its_own_replica(peer, on_its_tables, seeded, tmp_path):
    """bg-carbon-cache continues while Plumbago receives the same points as replica 1: nothing is counted twice."""
    now = aligned_now(60)
    sent = {f"{method}.move.m{m}": [(t, eighths(seeded)) for t in slots(seeded, now)] for method in SHARED for m in range(2)}
    points = [(name, t, value) for name, column in sent.items() for t, value in column]
    points.sort(key=lambda point: point[1])
    cache = CarbonCache(tmp_path / "cache", peer, SCHEMAS, aggregation(SHARED), [free_port() for _ in range(3)])
    try:
        wait_until(cache.listens, 30, "bg-carbon-cache did not listen")
        with socket.create_connection(("127.0.0.1", cache.port)) as connection:
            connection.sendall(wire.lines(points))
        server = on_its_tables("[cassandra]\nreplica = 1\n")
        server.send(points)
        flush(server)
        expected = models(sent, now)
        # Stage 0 has no replicas: the same value twice is the same value.
        wait_until(lambda: by_biggraphite(peer, sent, now)[0] == expected[0], 60, "bg-carbon-cache did not write")
        assert by_plumbago(server, "*.move.*", now) == expected
        assert by_biggraphite(peer, sent, now) == expected
    finally:
        cache.stop()
    # Its last flush is written now: still nothing is counted twice.
    assert by_plumbago(server, "*.move.*", now) == expected
    assert by_biggraphite(peer, sent, now) == expected
    # bg-carbon-cache loses the rows it still delays when it stops: its replica may be missing here.
    replicas = {shard >> 14 & 3 for shard in shards(peer, TABLES[1], "sum.move.m0")}
    assert 1 in replicas and replicas <= {0, 1}


# Names.


GLOBS = """
*
*.glob
*.glob.*
sum.glob.*.*
sum.glob.a*
sum.glob.a?
sum.glob.{a1,b}.*
sum.glob.{a,b}*.c
sum.glob.[ab]*.c
sum.glob.*.c
sum.*.b.c
sum.glob.a1.c
sum.glob.x.y.z.*
sum.glob.é.*
sum.glob.no.such
""".split()

NAMES = """
sum.glob.a1.c
sum.glob.a2.c
sum.glob.b.c
sum.glob.b.d
sum.glob.b
sum.glob.ab
sum.glob.x.y.z.w
sum.glob.é.日本
sum.glob.a-b:c.c
""".split()


@pytest.mark.parametrize("who", ["local", "cassandra"])
def test_both_find_the_same_names_of_either_program(peer, on_its_tables, who):
    now = aligned_now(60)
    create(peer, NAMES[:5])
    server = on_its_tables(f'[cassandra]\nglobs = "{who}"\n')
    server.send([(name, now, 1.0) for name in NAMES[5:]])
    flush(server)
    for glob in GLOBS:
        metrics, directories = peer.glob(glob)
        metrics, directories = [[name for name in found if ".glob" in name] for found in (metrics, directories)]
        nodes = server.get("/metrics/find", query=glob, format="json").json()
        nodes = [node for node in nodes if ".glob" in node["path"]]
        found = sorted(node["path"] for node in nodes if node["is_leaf"])
        branches = sorted(node["path"] for node in nodes if not node["is_leaf"])
        assert (found, branches) == (sorted(metrics), sorted(directories)), glob


def test_plumbago_follows_names_that_biggraphite_creates_and_deletes(peer, on_its_tables):
    server = on_its_tables('[cassandra]\nreconcile_every = "1s"\n')
    now = aligned_now(10)
    create(peer, ["sum.seen.a", "sum.seen.b"])
    eventually(lambda: server.find("sum.seen.*"), ["sum.seen.a", "sum.seen.b"], 20)
    peer.write([("sum.seen.a", now, 3.0)], writer=31)
    eventually(lambda: server.points("sum.seen.a", **{"from": now - 60, "until": now + 60}), {now: 3.0}, 20)
    peer.bgutil("delete", "sum.seen.b")
    eventually(lambda: server.find("sum.seen.*"), ["sum.seen.a"], 20)
