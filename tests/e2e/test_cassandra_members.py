"""Nodes over one Cassandra: they see each other, and follow each other's names within seconds, without reading all of them."""

import signal
import time

import pytest
from cassandra import OverCassandra, flush
from plumbago import aligned_now, eventually, wait_until


def status(server):
    return server.get("/admin/status").json()


def finds(server, name):
    answer = server.get("/metrics/find", query=name, format="json")
    assert answer.status_code == 200, answer.text
    return any(node["path"] == name and node["is_leaf"] for node in answer.json())


def until(server, name, is_there, seconds=10):
    """Waits until a server finds a name, or does not; returns how long that took."""
    began = time.monotonic()
    wait_until(lambda: finds(server, name) == is_there, seconds, f"{name} is {'not ' if is_there else ''}there")
    return time.monotonic() - began


def delete(server, name):
    answer = server.post("/admin/delete", data={"query": name})
    assert answer.status_code == 200, answer.text


def follow(*servers):
    """Waits until servers follow each other: their first polls read what was written before."""
    for server in servers:
        wait_until(lambda server=server: status(server)["changes"]["read_age_seconds"] is not None, 20)


def test_nodes_see_each_other_and_who_is_gone(make_server, cassandra):
    over = OverCassandra(make_server, cassandra)
    one, other = nodes = over.server(), over.server()

    def addresses(server):
        return sorted((node["address"], node["alive"]) for node in status(server)["nodes"])

    both = sorted((f"127.0.0.1:{node.ports['http']}", True) for node in nodes)
    for node in nodes:
        eventually(lambda node=node: addresses(node), both, 15)
        [own] = [seen for seen in status(node)["nodes"] if seen["self"]]
        assert own["address"] == f"127.0.0.1:{node.ports['http']}" and abs(own["started"] - time.time()) < 60
        assert own["version"] == status(node)["version"] and own["heartbeat_age_seconds"] < 15
        assert node.counter("plumbago_nodes_alive") == 2
    # A clean stop says so; a kill is noticed by the silence.
    address = f"127.0.0.1:{one.ports['http']}"
    other.stop()
    eventually(lambda: addresses(one), [(address, True)], 15)
    other.start()
    eventually(lambda: len(addresses(one)), 2, 15)
    other.kill()
    eventually(lambda: sorted(alive for _, alive in addresses(one)), [False, True], 30)


def test_names_that_one_node_creates_deletes_and_creates_again_are_followed_within_seconds(make_server, cassandra):
    over = OverCassandra(make_server, cassandra)
    one, other = over.server(), over.server()
    follow(one, other)
    took = []
    for turn in range(20):
        name = f"second.follow.m{turn}"
        one.send([(name, aligned_now(), 1.0)])
        took.append(until(other, name, True))
    took.sort()
    print(f"created on one node, found on the other: p50 {took[9]:.2f} s, p95 {took[18]:.2f} s, longest {took[19]:.2f} s")
    assert took[18] < 2.5
    # Tagged ones, too.
    one.send([("second.follow.tagged;dc=x", aligned_now(), 1.0)])
    answer = lambda: other.get("/tags/findSeries", expr="dc=x").json()  # noqa: E731
    eventually(answer, ["second.follow.tagged;dc=x"], 10)

    flush(one)
    for turn in range(3):
        delete(one, "second.follow.m0")
        # A deletion ends when other nodes know of it.
        assert not finds(one, "second.follow.m0")
        assert until(other, "second.follow.m0", False) < 2
        # It begins again, now here, now there, without the old points.
        now = aligned_now()
        sender = [one, other][turn % 2]
        sender.send([("second.follow.m0", now, 7.0 + turn)])
        for node in [one, other]:
            until(node, "second.follow.m0", True)
        assert sender.points("second.follow.m0", **{"from": now - 600}) == {now: 7.0 + turn}
    # It stays on both.
    for _ in range(15):
        time.sleep(0.2)
        assert finds(one, "second.follow.m0") and finds(other, "second.follow.m0")
    assert other.counter("plumbago_changes_total", names="followed") >= 23
    assert other.counter("plumbago_changes_missed_total") == 0


def test_a_metric_that_another_node_receives_is_deleted_with_its_points_and_begins_again(make_server, cassandra):
    over = OverCassandra(make_server, cassandra)
    one, other = over.server(), over.server()
    follow(one, other)
    now = aligned_now()
    name = "second.received"
    other.send([(name, now - 30 + i, i) for i in range(20)])
    until(one, name, True)
    # Its points are in the memory of the other node alone.
    delete(one, name)
    assert until(other, name, False) < 2
    assert other.points(name, **{"from": now - 600}) == {}
    later = int(time.time())
    other.send([(name, later, 5.0)])
    for node in [one, other]:
        until(node, name, True)
    flush(other)
    for node in [one, other]:
        assert node.points(name, **{"from": now - 600}) == {later: 5.0}
    # Over a restart, too: the journal has the deletion.
    other.kill()
    other.start()
    assert other.points(name, **{"from": now - 600}) == {later: 5.0}


def test_a_node_that_was_away_finds_what_it_missed(make_server, cassandra):
    over = OverCassandra(make_server, cassandra)
    one, other = over.server(), over.server()
    follow(one, other)
    now = aligned_now()
    one.send([("second.away.old", now, 1.0)])
    until(other, "second.away.old", True)
    # Suspended, it can neither follow nor report.
    other.process.send_signal(19)
    one.send([("second.away.new", now, 1.0)])
    flush(one)
    delete(one, "second.away.old")
    eventually(lambda: [node["alive"] for node in status(one)["nodes"] if not node["self"]], [False], 30)
    other.process.send_signal(18)
    assert until(other, "second.away.new", True) < 5
    assert until(other, "second.away.old", False) < 5
    # Killed in the middle of telling: its start tells again.
    other.kill()
    other.start()
    other.send([("second.away.last", now, 1.0)])
    other.kill()
    other.start()
    until(one, "second.away.last", True, 20)


def test_what_is_deleted_while_a_node_is_down_stays_deleted_when_its_journal_is_replayed(make_server, cassandra):
    over = OverCassandra(make_server, cassandra)
    one, other = over.server(), over.server()
    follow(one, other)
    # At the beginning of a second: all that follows may come in the same one.
    time.sleep(1 - time.time() % 1)
    now = aligned_now()
    other.send([(name, now - 10 + i, i) for name in ["second.down.gone", "second.down.kept"] for i in range(5)])
    until(one, "second.down.gone", True)
    until(one, "second.down.kept", True)
    # Its journal names both, and has their points.
    other.kill()
    delete(one, "second.down.gone")
    other.start()
    until(other, "second.down.gone", False)
    for _ in range(15):
        time.sleep(0.2)
        assert not finds(one, "second.down.gone") and not finds(other, "second.down.gone")
    kept = {now - 10 + i: i for i in range(5)}
    assert other.points("second.down.gone", **{"from": now - 600}) == {}
    assert other.points("second.down.kept", **{"from": now - 600}) == kept
    flush(other)
    assert one.points("second.down.kept", **{"from": now - 600}) == kept
    later = int(time.time())
    other.send([("second.down.gone", later, 9.0)])
    until(one, "second.down.gone", True)
    assert other.points("second.down.gone", **{"from": now - 600}) == {later: 9.0}


@pytest.mark.parametrize("how", ["killed", "suspended", "followed late"])
def test_points_of_before_a_deletion_stay_deleted_where_another_node_has_made_the_metric_again(make_server, cassandra, how):
    over = OverCassandra(make_server, cassandra)
    one, other = over.server(), over.server()
    follow(one, other)
    now, name = aligned_now(), "second.made.again"
    other.send([(name, now - 300 + i, 1000.0 + i) for i in range(20)])
    until(one, name, True)
    time.sleep(2)
    if how == "killed":
        other.kill()
    else:
        other.suspend()
    delete(one, name)
    if how != "followed late":
        time.sleep(2)
    one.send([(name, now - 100 + i, 7.0) for i in range(5)])
    time.sleep(2)
    if how == "killed":
        other.start()
    else:
        other.process.send_signal(signal.SIGCONT)
    again = {now - 100 + i: 7.0 for i in range(5)}
    # The nodes do not ask each other here.
    eventually(lambda: other.points(name, **{"from": now - 600}), {}, 20)
    assert one.points(name, **{"from": now - 600}) == again
    flush(other)
    flush(one)
    for node in (one, other):
        assert node.points(name, **{"from": now - 600}) == again
    # What comes now is of the metric that was made again.
    other.send([(name, now - 90, 8.0)])
    other.kill()
    other.start()
    flush(other)
    for node in (one, other):
        assert node.points(name, **{"from": now - 600}) == {**again, now - 90: 8.0}


def test_a_changed_retention_is_followed_by_a_node_that_gets_no_points_of_the_metric(make_server, cassandra):
    over = OverCassandra(make_server, cassandra)
    schemas = "[all]\npattern = .*\nretentions = {}\n"
    writer, reader = (over.server(schemas=schemas.format("60s:1d")) for _ in range(2))
    follow(writer, reader)
    now = aligned_now(60) - 600
    writer.send([("changed.here", now, 1.0)])
    until(reader, "changed.here", True)
    flush(writer)

    writer.configure("storage-schemas.conf", schemas.format("10s:1d"))
    sent = {now + 60 + 10 * i: 2.0 + i for i in range(6)}
    wait_until(lambda: "have another policy than before" in writer.logs(), 30, "the rules were not read again")
    writer.send([("changed.here", time, value) for time, value in sent.items()])
    eventually(lambda: len(writer.points("changed.here", **{"from": now + 1, "until": now + 120})), 6, 20)
    flush(writer)
    # Stored by the new retention. The reader's own files still have the old one.
    def read():
        points = reader.points("changed.here", **{"from": now - 60, "until": now + 120})
        return {time: value for time, value in points.items() if now < time}

    eventually(read, sent, 20)
    writer.stop()
    reader.stop()
    reader.start()
    assert read() == sent


def test_idle_nodes_ask_cassandra_little(make_server, cassandra, keyspace_of):
    over = OverCassandra(make_server, cassandra)
    nodes = [over.server(), over.server()]
    follow(*nodes)
    cql = keyspace_of(over)

    def statements():
        rows = cql("SELECT name, value FROM system_views.cql_metrics")
        return sum(float(value) for name, value in rows if name.endswith("_statements_executed"))

    # Reports of metrics and the first looks at the tables are over.
    time.sleep(10)
    before, began = statements(), time.monotonic()
    # With both kinds of poll, and ends of minutes.
    time.sleep(65)
    after, took = statements(), time.monotonic() - began
    per_node = (after - before) / took / len(nodes)
    print(f"idle: {per_node:.2f} statements a second a node")
    # Own statements of this test are among them.
    assert per_node <= 5
    for node in nodes:
        changes = status(node)["changes"]
        assert changes["read_age_seconds"] < 5 and changes["read_failures"] == 0


def test_without_the_tables_of_nodes_names_are_read_as_before(make_server, cassandra, keyspace_of):
    over = OverCassandra(make_server, cassandra, cassandra='reconcile_every = "1s"\n')
    one, other = over.server(), over.server()
    follow(one, other)
    cql = keyspace_of(over)
    for table in ["nodes", "changes"]:
        cql(f'DROP TABLE "{over.keyspace}_metadata".{table}')
    one.send([("second.without", aligned_now(), 1.0)])
    flush(one)
    until(other, "second.without", True, 20)
    for node in [one, other]:
        assert node.get("/ready").status_code == 200
        wait_until(lambda node=node: node.counter("plumbago_changes_read_failures_total") > 0, 10, "a poll fails")
    # The next start makes them.
    one.stop()
    one.start()
    wait_until(lambda: status(one)["changes"]["read_age_seconds"] is not None, 20)
