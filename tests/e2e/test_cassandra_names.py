"""Names in Cassandra: tables and path index give the same answers, and nodes follow what other nodes create and delete."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from cassandra import OverCassandra, flush
from plumbago import aligned_now, eventually, run

GLOBS = ["*", "**", "a.*", "a.b*", "a.*.c", "*.b1.*", "a.{b1,b2}.c", "a.b[12].?", "x.**", "no.such.*", "a.b1.c", "*.*.{c,d}", "a.b1"]


def listed(server, glob):
    answer = server.get("/metrics/find", query=glob, format="json")
    assert answer.status_code == 200, answer.text
    return [(node["path"], node["is_leaf"]) for node in answer.json()]


@pytest.mark.parametrize("indexes", ["sasi", "none"])
def test_the_tables_and_the_path_index_give_the_same_answers(make_server, cassandra, indexes):
    here = OverCassandra(make_server, cassandra)
    tables = OverCassandra(make_server, cassandra, keyspace=here.keyspace, cassandra='globs = "cassandra"\n')
    for over in [here, tables]:
        over.settings = over.settings.replace('indexes = "none"', f'indexes = "{indexes}"')
    server = here.server()
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    parts = ["a", "b1", "b2", "b10", "c", "d", "x", "é", "b-1"]
    names = {".".join(chance.choice(parts) for _ in range(chance.randint(1, 5))) for _ in range(150)}
    names |= {"a.b1.c", "a.b1", "x.y.z"}
    now = aligned_now()
    server.send([(name, now, 1.0) for name in sorted(names)])
    flush(server)
    other = tables.server()
    for glob in GLOBS + [".".join(chance.choice([*parts, "*", "b*", "[bc]*", "{a,b1}"]) for _ in range(3)) for _ in range(40)]:
        assert listed(other, glob) == listed(server, glob), glob
    answer = other.get("/render", target="countSeries(**)", **{"from": now - 60, "until": now + 60, "format": "json"}).json()
    assert max(value for value, _ in answer[0]["datapoints"] if value is not None) == len(names)


def test_names_too_deep_for_the_tables_remain_readable(make_server, cassandra):
    over = OverCassandra(make_server, cassandra, cassandra='reconcile_every = "1s"\n')
    server = over.server()
    # The tables have 64 columns, one of them for the mark of the end; a name may have 64 components.
    path = ["deep", *"12345678" * 7, "x"]
    names = [".".join([*path, *(f"d{at}" for at in range(depth - len(path)))]) for depth in (59, 62, 63, 64)]
    now = aligned_now()
    server.send([(name, now, 1.0) for name in names])
    flush(server)
    globs = ["deep.*", "deep.**", "**.d5", *(".".join([*path, *["*"] * more]) for more in range(1, 7)), ".".join("*" * 64)]
    before = [listed(server, glob) for glob in globs]
    assert [name for name, is_leaf in before[1] if is_leaf] == sorted(names, key=len)
    # Reading the tables, which lack one of these names, hides none of them.
    time.sleep(3)
    assert [listed(server, glob) for glob in globs] == before
    server.stop()
    (server.folder / "plumbago.toml").write_text(over.settings + 'globs = "cassandra"\n')
    server.start()
    for glob, expected in zip(globs, before):
        assert listed(server, glob) == expected, glob
    assert server.get("/metrics/find", query=".".join("*" * 65)).status_code == 400


def test_a_node_follows_what_another_creates_and_deletes(make_server, cassandra, keyspace_of):
    over = OverCassandra(make_server, cassandra, cassandra='reconcile_every = "1s"\n')
    one, other = over.server(), over.server()
    now = aligned_now()
    one.send([("second.here", now, 1.0), ("second.gone", now, 2.0)])
    flush(one)
    eventually(lambda: listed(other, "second.*"), [("second.gone", True), ("second.here", True)], 20)
    cql = keyspace_of(over)
    cql(f"DELETE FROM \"{over.keyspace}_metadata\".metrics WHERE name = 'second.gone'")
    cql(f"DELETE FROM \"{over.keyspace}_metadata\".metrics_metadata WHERE name = 'second.gone'")
    # Both nodes have seen the deletion; otherwise one would hide the name again below.
    for node in [one, other]:
        eventually(lambda node=node: listed(node, "second.*"), [("second.here", True)], 20)
    # A new point brings it back: at once on this node, soon on the other.
    other.send([("second.gone", now, 3.0)])
    assert listed(other, "second.gone") == [("second.gone", True)]
    eventually(lambda: listed(one, "second.*"), [("second.gone", True), ("second.here", True)], 20)
    # The name stays: neither node hides it again.
    for _ in range(20):
        time.sleep(0.2)
        assert [listed(node, "second.gone") for node in [one, other]] == [[("second.gone", True)]] * 2


def test_what_another_node_writes_before_it_has_followed_a_deletion_is_deleted_too(make_server, cassandra, keyspace_of):
    over = OverCassandra(make_server, cassandra)
    one, other = over.server(), over.server()
    now = aligned_now()
    one.send([("again.x", now - 60, 1.0)])
    flush(one)
    eventually(lambda: listed(other, "again.x"), [("again.x", True)], 20)
    cql = keyspace_of(over)
    tables = cql(f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{over.keyspace}'")
    tables = [f'"{over.keyspace}".{row[0]}' for row in tables if row[0].endswith("_0")]
    rows = [(table, row) for table in tables for row in cql(f"SELECT metric, time_start_ms, offset, value FROM {table}")]
    [(table, (metric, start, offset, value))] = rows
    with ThreadPoolExecutor(1) as pool:
        deletion = pool.submit(other.post, "/admin/delete", data={"query": "again.x"})
        # A flush that began just before the other node followed.
        time.sleep(0.7)
        assert not deletion.done()
        cql(f"INSERT INTO {table} (metric, time_start_ms, offset, value) VALUES ({metric}, {start}, {offset}, {value})")
        assert deletion.result().json()["deleted"] == 1
    assert list(cql(f"SELECT offset FROM {table}")) == []
    # What is sent behind the answer stays.
    one.send([("again.x", now, 2.0)])
    flush(one)
    for node in [one, other]:
        eventually(lambda node=node: node.points("again.x", **{"from": now - 3600}), {now: 2.0}, 20)


def test_a_deletion_is_in_the_tables_and_on_all_nodes_and_stays_over_restarts(make_server, cassandra, keyspace_of):
    over = OverCassandra(make_server, cassandra, cassandra='reconcile_every = "1s"\n')
    nodes = one, other = over.server(), over.server()
    now = aligned_now()
    names = [f"second.del.m{i}" for i in range(10)]
    one.send([(name, now - 60 + j, j) for name in [*names, "second.tagged;dc=x"] for j in range(20)])
    flush(one)
    eventually(lambda: len(listed(other, "second.del.*")), 10, 20)

    def delete(*arguments):
        done = run("delete", "--http", f"127.0.0.1:{one.ports['http']}", *arguments)
        return done.returncode, done.stdout, done.stderr

    assert delete("second.del.m[0-7]", "--dry-run")[1].splitlines()[-1] == "8 metrics would be deleted"
    assert delete("second.del.m[0-7]", "--yes") == (0, "deleted 8 metrics\n", "")
    assert delete("--tags", "dc=x", "--yes") == (0, "deleted 1 metrics\n", "")
    left = [("second.del.m8", True), ("second.del.m9", True)]

    def check():
        for node in nodes:
            eventually(lambda node=node: listed(node, "second.del.*"), left, 20)
            whole = {now - 60 + j: j for j in range(20)}
            window = {"from": now - 3600}
            assert [node.points(name, **window) for name in ["second.del.m0", "second.del.m7", "second.tagged;dc=x"]] == [{}] * 3
            assert node.points("second.del.m9", **window) == whole

    check()
    cql = keyspace_of(over)
    tables = f"\"{over.keyspace}_metadata\""
    for table in ["metrics", "metrics_metadata"]:
        rows = [row[0] for row in cql(f"SELECT name FROM {tables}.{table}")]
        assert sorted(name for name in rows if "del" in name or "dc" in name) == ["second.del.m8", "second.del.m9"], table
    one.kill()
    one.start()
    other.stop()
    other.start()
    check()
    # Several rounds of names that are read from the tables.
    time.sleep(3)
    check()
    # The name begins again without the old points, on both nodes.
    other.send([("second.del.m0", now - 5, 7)])
    flush(other)
    left.insert(0, ("second.del.m0", True))
    for node in nodes:
        eventually(lambda node=node: listed(node, "second.del.*"), left, 20)
        assert node.points("second.del.m0", **{"from": now - 3600}) == {now - 5: 7}


def test_what_a_node_deleted_is_not_back_after_its_restart(make_server, cassandra):
    # Names are read whole once, at the start: afterwards the log of changes alone says what is there.
    over = OverCassandra(make_server, cassandra)
    one, other = over.server(), over.server()
    now = aligned_now()
    other.send([(name, now, 1.0) for name in ["back.deleted", "back.kept", "back.made_again"]])
    eventually(lambda: len(listed(one, "back.*")), 3, 20)
    flush(other)
    for name in ["back.deleted", "back.made_again"]:
        assert one.post("/admin/delete", data={"query": name}).status_code == 200
    eventually(lambda: listed(other, "back.*"), [("back.kept", True)], 20)
    other.send([("back.made_again", now, 2.0)])
    left = [("back.kept", True), ("back.made_again", True)]
    eventually(lambda: listed(one, "back.*"), left, 20)
    flush(other)
    for end in [one.stop, one.kill]:
        end()
        one.start()
        eventually(lambda: listed(one, "back.*"), left, 20)
        # The start has read all names and followed the log by then.
        for _ in range(15):
            time.sleep(0.2)
            assert [listed(node, "back.*") for node in [one, other]] == [left] * 2
