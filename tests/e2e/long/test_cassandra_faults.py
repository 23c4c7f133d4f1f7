"""Faults of a Cassandra cost latency and memory, never an accepted point.

Every test ends with a reader whose folder is empty, so its answers come from the tables.
"""

import shutil
import threading
import time

import pytest

from cassandra import OverCassandra, flush, listens
from load import Steady
from nodes import THREE, Cluster
from plumbago import aligned_now, eventually, run, wait_until
from test_pressure import Flood
from test_restart import by_name, coarse_stages_are_exact, kill_in_a_loop, some_points

ALONE = "127.0.0.14"
# Seconds without an answer of a node; longer than a statement may take. tests/long uses a minute.
PAUSE_SECONDS = 15


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A single node. Acknowledged writes are on its disk: with one replica no other node has them."""
    cluster = Cluster(tmp_path_factory.mktemp("alone"), [ALONE], durable=True)
    cluster.start()
    yield cluster
    cluster.forget()


@pytest.fixture
def node(alone):
    """The node, up and running."""
    (one,) = alone.nodes
    if one.state() == "paused":
        one.resume()
    alone.start()
    yield one
    if one.state() == "paused":
        one.resume()


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    """Three nodes."""
    cluster = Cluster(tmp_path_factory.mktemp("three"), THREE, heap="512M")
    cluster.start()
    yield cluster
    cluster.forget()


@pytest.fixture
def three(trio):
    trio.start()
    yield trio
    for node in trio.nodes:
        if node.state() == "paused":
            node.resume()


def accepted(load):
    """{name: {time: value}} of the batches that are served whole."""
    return by_name(point for i in range(load.whole_batches()) for point in load.batch(i))


def the_tables_hold(over, pattern, expected, start, until):
    """A server that knows only the tables serves exactly the expected points."""
    reader = over.server()
    served = reader.columns(pattern, start, until)
    missing = {name: sorted(set(column) - set(served.get(name, {})))[:5] for name, column in expected.items()}
    missing = {name: times for name, times in missing.items() if times}
    assert not missing, f"points of {len(missing)} metrics are not in the tables: {dict(list(missing.items())[:3])}"
    assert served == expected
    return reader


def test_cassandra_is_absent_at_start_and_comes_later(make_server, node):
    over = OverCassandra(make_server, ALONE)
    known = over.server()
    start = aligned_now() - 600
    known.send(some_points("second.known", start, metrics=20, points=10))
    known.kill()
    node.stop()

    # A node that was connected before accepts points at once: it has its journal, its rules and its names.
    known.spawn()
    wait_until(lambda: listens(known), 30, "no receiver listened while Cassandra was away")
    known.send(some_points("second.known", start + 10, metrics=20, points=10))
    # A new node says what it waits for.
    new = over.server(start=False)
    new.spawn()
    wait_until(lambda: ALONE in new.logs(), 30, "the log does not mention the absent node")
    assert new.process.poll() is None, new.logs()

    node.start()
    for server in (known, new):
        wait_until(server._is_ready, 60, f"the server was not ready: {server.logs()[-2000:]}")
    new.send(some_points("second.new", start, metrics=20, points=10))
    expected = by_name(
        some_points("second.known", start, metrics=20, points=10) + some_points("second.known", start + 10, metrics=20, points=10)
    )
    eventually(lambda: served(known, "second.known.*", start - 1, start + 60), expected, 60)
    flush(known)
    flush(new)
    expected |= by_name(some_points("second.new", start, metrics=20, points=10))
    the_tables_hold(over, "second.*.*", expected, start - 1, start + 60)


def test_a_drain_that_cassandra_interrupts_says_what_is_left_and_goes_on_when_it_is_back(make_server, node):
    over = OverCassandra(make_server, ALONE)
    server = over.server()
    start = aligned_now() - 600
    points = some_points("second.drain", start, metrics=20, points=50)
    server.send(points)
    flush(server)
    more = some_points("second.drain", start + 50, metrics=20, points=50)
    server.send(more)
    node.stop()
    # The command gives up; the node does not.
    done = run("drain", "--admin", f"127.0.0.1:{server.ports['http']}")
    assert done.returncode == 1 and "1000 points and 0 new names are left, safe in its journal" in done.stderr, done
    assert server.get("/admin/drain").json()["state"] == "draining"
    assert server.get("/ready").status_code == 503
    # A kill in between costs nothing, and ends the drain.
    server.kill()
    server.spawn()
    wait_until(lambda: listens(server), 30, "no receiver listened while Cassandra was away")
    assert server.get("/admin/drain").json()["state"] == "off"
    assert server.post("/admin/drain").json()["points_left"] == 1000
    node.start()
    eventually(lambda: server.get("/admin/drain").json()["state"], "drained", 120)
    server.kill()
    shutil.rmtree(server.data)
    the_tables_hold(over, "second.*.*", by_name(points + more), start - 1, start + 200)


def test_cassandra_stops_under_load_and_starts_again(make_server, node):
    over = OverCassandra(make_server, ALONE, more='[ingest]\nflush_after = "2s"\n')
    server = over.server()
    load = Steady(server, "second.stops", aligned_now(60) - 6500, metrics=50, batches_per_second=100)
    load.run_from(0)
    wait_until(lambda: load.next > 300, 30, "nothing was sent")
    node.stop()
    before = load.next
    time.sleep(5)
    assert load.next - before > 200, "points were not accepted while Cassandra was away"

    # Points in memory are served, or the answer says why not; a gap would be wrong. (Today even a name that was never written
    # needs the tables, and is a 503.)
    start = aligned_now() - 60
    server.send([("second.memory.m", start + i, float(i)) for i in range(10)])
    memory = {"second.memory.m": {start + i: float(i) for i in range(10)}}
    said = served(server, "second.memory.m", start - 1, start + 30)
    assert said == memory or "the store could not be read" in said
    answer = server.get("/render", target="second.stops.*", format="json", **{"from": load.start, "until": load.start + 500})
    assert answer.status_code == 503 and "the store could not be read" in answer.text, f"{answer.status_code}: {answer.text[:200]}"

    node.start()
    # The backlog does not starve new points.
    wait_until(lambda: is_back(server), 60, "it did not find Cassandra again")
    before = load.next
    time.sleep(2)
    assert load.next - before > 80, "the backlog starves new points"
    load.stop()
    eventually(lambda: served_batches(load), load.next, 60)
    expected = accepted(load)
    flush(server)
    coarse_stages_are_exact(server, "second.stops.*", expected, aligned_now(60))
    reader = the_tables_hold(over, "second.stops.*", expected, load.start - 1, load.start + load.next + 10)
    coarse_stages_are_exact(reader, "second.stops.*", expected, aligned_now(60))
    assert reader.columns("second.memory.m", start - 1, start + 30) == memory


def test_answers_and_logs_while_cassandra_is_away(make_server, node):
    """Requests get the reason and the waiting points within a bounded time; the log has the reason once."""
    over = OverCassandra(make_server, ALONE, more='[ingest]\nflush_after = "2s"\n')
    server = over.server()
    start = aligned_now() - 600
    server.send(some_points("second.stored", start, metrics=20, points=10))
    flush(server)
    assert server.get("/ready").text == "ready\n"
    node.kill()
    server.send(some_points("second.held", start, metrics=20, points=10))
    wait_until(lambda: not is_back(server), 60, "it did not notice")
    why = f"Cassandra at {ALONE}: nothing listens there; check that Cassandra runs and that the port is the one for CQL (9042)"
    is_ready = server.get("/ready")
    assert (is_ready.status_code, is_ready.text) == (
        200,
        f"ready, but the store rejects points: {why}; points are accepted, and queries read memory\n",
    )
    # Points in memory are served at once, and other reads fail at once.
    window = {"from": start - 1, "until": start + 60}
    began = time.monotonic()
    expected = by_name(some_points("second.held", start, metrics=20, points=10))
    assert server.columns("second.held.*", window["from"], window["until"]) == expected
    answer = server.get("/render", target="second.stored.*", format="json", **window)
    assert (answer.status_code, answer.text.strip()) == (503, f"the store could not be read: {why}")
    assert server.find("second.*") == ["second.held", "second.stored"]
    assert time.monotonic() - began < 5, "reads wait for a store that is known to be away"
    # A flush gives up, and reports the waiting points.
    waits = "200 points are in memory and 0 are in the journal alone; all are safe in the journal and are written"
    began = time.monotonic()
    answer = server.post("/admin/flush")
    assert answer.status_code == 503 and answer.json()["held_points"] == 200, answer.text
    assert f"{why}; {waits}" in answer.json()["error"] and time.monotonic() - began < 30
    asked = run("flush", "--http", f"127.0.0.1:{server.ports['http']}")
    assert asked.returncode != 0 and f"{why}; {waits}" in asked.stderr and asked.stdout == "", asked
    status = server.get("/admin/status").json()
    assert (status["store_failing"], status["store_problem"]) == (True, why)
    assert server.counter("plumbago_store_failing") == 1

    node.start()
    wait_until(lambda: is_back(server), 60, "it did not find Cassandra again")
    # The server writes as soon as Cassandra is back, not at the next cycle.
    wait_until(lambda: server.counter("plumbago_held_slots") == 0, 20, "the backlog waits")
    flush(server)
    the_tables_hold(over, "second.held.*", expected, window["from"], window["until"]).stop()
    lines = server.logs().splitlines()
    away = [line for line in lines if "ERROR" in line and "a request failed" not in line]
    assert len(away) == 1 and "the store cannot be reached" in away[0] and why in away[0], away
    back = [line for line in lines if "again" in line and "INFO" in line]
    assert len(back) == 1, back


@pytest.mark.parametrize("how", ["killed", "paused"])
def test_a_stop_while_cassandra_is_away_is_quick_and_the_next_start_continues(make_server, node, how):
    # A statement is in flight and the outage is not known yet: the stop does not wait for the statement's timeout.
    over = OverCassandra(make_server, ALONE, more='[ingest]\nflush_after = "2s"\n')
    over.settings = over.settings.replace('timeout = "10s"', 'timeout = "10min"')
    server = over.server()
    start = aligned_now() - 600
    server.send(some_points("second.stop", start, metrics=20, points=10))
    flush(server)
    node.kill() if how == "killed" else node.pause()
    server.send(some_points("second.stop", start + 10, metrics=20, points=10))
    server.send(some_points("second.new", start, metrics=20, points=10))
    time.sleep(1)
    began = time.monotonic()
    assert server.stop() == 0
    # Five seconds without an answer count as an outage; then three more, and the rest is a busy machine.
    assert time.monotonic() - began < 15, f"the stop took {time.monotonic() - began:.1f} s"
    logged = [line for line in server.logs().splitlines() if "stopped while the store accepts nothing" in line]
    assert len(logged) == 1 and "held_points=400" in logged[0], server.logs()[-2000:]

    # A second start while Cassandra is away, and a second stop.
    server.spawn()
    wait_until(lambda: listens(server), 60, "no receiver listened while Cassandra was away")
    server.send(some_points("second.new", start + 10, metrics=20, points=10))
    assert server.stop() == 0
    node.start() if how == "killed" else node.resume()
    server.start()
    sent = [some_points(f"second.{name}", at, metrics=20, points=10) for name in ["stop", "new"] for at in [start, start + 10]]
    expected = by_name(point for points in sent for point in points)
    eventually(lambda: served(server, "second.*.*", start - 1, start + 60), expected, 30)
    flush(server)
    reader = the_tables_hold(over, "second.*.*", expected, start - 1, start + 60)
    coarse_stages_are_exact(reader, "second.*.*", expected, aligned_now(60))


def test_a_stop_while_the_journal_is_full_keeps_sent_points(make_server, node):
    over = OverCassandra(make_server, ALONE, more='[ingest]\njournal_limit = "1MiB"\nmemory_limit = "4MiB"\n')
    server = over.server()
    node.kill()
    flood = Flood(server, "second.full", aligned_now() - 3000, metrics=300, points=1500)
    wait_until(lambda: server.counter("plumbago_stalled") == 1, 60, "no sender had to wait")
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 15, f"the stop took {time.monotonic() - began:.1f} s"
    flood.thread.join(30)
    node.start()
    server.start()
    flush(server)
    there = server.columns("second.full.*", flood.start - 1, flood.start + flood.points)
    # The sender was cut off in the middle of a batch; before that nothing is missing.
    whole = min(len(column) for column in there.values())
    assert 0 < whole and max(len(column) for column in there.values()) - whole <= 1
    assert len(there) == flood.metrics
    for name, column in flood.expected().items():
        assert there[name] == {time: column[time] for time in there[name]}
        assert set(list(column)[:whole]) <= set(there[name])
    the_tables_hold(over, "second.full.*", there, flood.start - 1, flood.start + flood.points)


def test_senders_wait_for_a_full_journal_and_nothing_is_lost(make_server, node):
    over = OverCassandra(make_server, ALONE, more='[ingest]\njournal_limit = "1MiB"\nmemory_limit = "4MiB"\n')
    server = over.server()
    node.stop()
    flood = Flood(server, "second.full", aligned_now() - 3000, metrics=300, points=1500)
    wait_until(lambda: server.counter("plumbago_stalled") == 1, 60, "no sender had to wait")
    # Points in flight fill the sockets' buffers.
    time.sleep(3)
    stuck_at, stalled = flood.sent, server.stalled_seconds()
    time.sleep(3)
    assert flood.sent == stuck_at < flood.points, "the server accepted more than the journal may contain"
    # One sender waits: the counter rises while it waits.
    assert 2.5 < server.stalled_seconds() - stalled < 6
    assert "senders wait" in server.get("/ready").text
    node.start()
    flood.everything_arrives(120)
    flush(server)
    the_tables_hold(over, "second.full.*", flood.expected(), flood.start - 1, flood.start + flood.points)


def test_kill_9_of_a_node_and_of_the_server_at_once_loses_nothing(make_server, node):
    over = OverCassandra(make_server, ALONE, more='[ingest]\nflush_after = "1s"\n')
    server = over.server()
    load = Steady(server, "second.bothdie", aligned_now(60) - 3000, metrics=50, batches_per_second=100)
    first = 0
    for _ in range(2):
        load.run_from(first)
        wait_until(lambda first=first: load.next > first + 250, 30, "nothing was sent")
        served = load.whole_batches()
        node.kill()
        server.kill()
        load.stop()
        node.start()
        server.start()
        first = load.whole_batches()
        assert first >= served, f"{served} batches were served before, {first} after"
    expected = server.columns("second.bothdie.*", load.start - 1, load.start + load.next + 10)
    flush(server)
    the_tables_hold(over, "second.bothdie.*", expected, load.start - 1, load.start + load.next + 10)


def test_a_node_that_does_not_answer_for_a_while_costs_only_latency(make_server, node):
    over = OverCassandra(make_server, ALONE, cassandra='request_timeout = "5s"', more='[ingest]\nflush_after = "2s"\n')
    server = over.server()
    load = Steady(server, "second.paused", aligned_now(60) - 6000, metrics=50, batches_per_second=50)
    load.run_from(0)
    wait_until(lambda: load.next > 150, 30, "nothing was sent")
    node.pause()
    before = load.next
    began = time.monotonic()
    answer = server.get("/render", target="second.paused.*", format="json", **{"from": load.start, "until": load.start + 500})
    assert answer.status_code == 503 and "the store could not be read" in answer.text, f"{answer.status_code}: {answer.text[:200]}"
    assert time.monotonic() - began < 30
    time.sleep(max(0, PAUSE_SECONDS - (time.monotonic() - began)))
    assert load.next - before > 20 * PAUSE_SECONDS, "points were not accepted while Cassandra did not answer"
    node.resume()
    load.stop()
    # Cassandra first answers everything that waited.
    wait_until(lambda: is_back(server), 60, "it did not find Cassandra again")
    eventually(lambda: served_batches(load), load.next, 60)
    expected = accepted(load)
    flush(server)
    the_tables_hold(over, "second.paused.*", expected, load.start - 1, load.start + load.next + 10)


def is_back(server):
    """Whether the server can write to Cassandra. It is ready in an outage of up to 30 s; then the answer has the reason."""
    answer = server.get("/ready")
    assert answer.status_code == 200 or "the store rejects points" in answer.text, answer.text
    return answer.text == "ready\n"


def served(server, pattern, start, until):
    """The served points, or the reason for none."""
    try:
        return server.columns(pattern, start, until)
    except AssertionError as error:
        return str(error)[:300]


def served_batches(load):
    """The number of complete batches served, or the reason for none."""
    try:
        return load.whole_batches()
    except AssertionError as error:
        return str(error)[:300]


def test_kill_9_of_the_server_during_flushes_loses_nothing(make_server, node, seeded):
    over = OverCassandra(make_server, ALONE, more='[ingest]\nflush_after = "1s"\n')
    server = over.server()
    print("\n".join(kill_in_a_loop(server, rounds=4, seconds=2, random=seeded, prefix="second.killed")))
    start = aligned_now(60) - 6900
    expected = server.columns("second.killed.*", start, start + 6900)
    flush(server)
    reader = the_tables_hold(over, "second.killed.*", expected, start, start + 6900)
    coarse_stages_are_exact(reader, "second.killed.*", expected, aligned_now(60))


def test_a_dropped_table_is_created_again_with_all_unwritten_points(make_server, node, keyspace_of):
    over = OverCassandra(make_server, ALONE)
    server = over.server()
    cql = keyspace_of(over)
    start = aligned_now() - 600
    server.send(some_points("second.dropped", start, metrics=20, points=10))
    flush(server)
    cql(f'DROP TABLE "{over.keyspace}"."datapoints_7200p_1s_0"')
    server.send(some_points("second.dropped", start + 10, metrics=20, points=10))
    wait_until(lambda: server.post("/admin/flush").status_code == 200, 60, "the table did not come back")
    later = by_name(some_points("second.dropped", start + 10, metrics=20, points=10))
    the_tables_hold(over, "second.dropped.*", later, start - 1, start + 60)


# Three nodes.

THREE_REPLICAS = """replication = "{'class': 'SimpleStrategy', 'replication_factor': 3}"
data_write_consistency = "local_quorum"
data_read_consistency = "local_quorum"
meta_write_consistency = "local_quorum"
meta_read_consistency = "local_quorum"
"""


class Reader:
    """Reads the points of a load again and again, and keeps every incomplete answer."""

    def __init__(self, load, least):
        self.load, self.seen, self.slowest, self.failures = load, least, 0.0, []
        self.asked = 0
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._ask, daemon=True)
        self.thread.start()

    def _ask(self):
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                whole = self.load.whole_batches()
                assert whole >= self.seen, f"{self.seen} batches were served and then {whole}"
                self.seen = whole
            except Exception as error:  # noqa: BLE001
                self.failures.append(repr(error)[:300])
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.asked += 1

    def stop(self):
        self._stop.set()
        self.thread.join()
        assert not self.failures, f"{len(self.failures)} of {self.asked} reads failed: {self.failures[0]}"


def batches_in(load, seconds):
    """How many batches are sent in so many seconds."""
    sent = load.next
    time.sleep(seconds)
    return load.next - sent


@pytest.mark.parametrize("how", ["killed", "paused"])
def test_the_loss_of_one_of_three_nodes_changes_no_answer(make_server, three, how):
    points = ",".join(node.address for node in three.nodes)
    over = OverCassandra(make_server, points, cassandra=THREE_REPLICAS, more='[ingest]\nflush_after = "2s"\n')
    server = over.server()
    load = Steady(server, f"second.{how}", aligned_now(60) - 6000, metrics=50, batches_per_second=50)
    load.run_from(0)
    wait_until(lambda: load.next > 200, 60, "nothing was sent")
    reader = Reader(load, 0)
    time.sleep(2)
    before = batches_in(load, 3)
    fallen = three.nodes[1]
    fallen.kill() if how == "killed" else fallen.pause()
    time.sleep(10)
    # Sender and reader share this process and the machine with three nodes: only the rates of one run can be compared.
    after = batches_in(load, 3)
    assert after > before / 2, f"senders noticed: {after} batches in three seconds, {before} before"
    flush(server)
    fallen.start() if how == "killed" else fallen.resume()
    time.sleep(3)
    reader.stop()
    load.stop()
    print(f"the slowest of {reader.asked} reads took {reader.slowest:.1f} s")
    eventually(load.whole_batches, load.next, 30)
    expected = accepted(load)
    flush(server)
    # Another node falls: every row is on two other nodes.
    three.nodes[2].kill()
    the_tables_hold(over, f"second.{how}.*", expected, load.start - 1, load.start + load.next + 10)
    coarse_stages_are_exact(server, f"second.{how}.*", expected, aligned_now(60))


def test_the_loss_of_two_of_three_nodes_is_an_error_and_loses_no_point(make_server, three):
    points = ",".join(node.address for node in three.nodes)
    over = OverCassandra(make_server, points, cassandra=THREE_REPLICAS + 'request_timeout = "5s"\n')
    server = over.server()
    start = aligned_now() - 600
    server.send(some_points("second.two", start, metrics=20, points=10))
    flush(server)
    for node in three.nodes[1:]:
        node.kill()
    server.send([(f"second.two.m{m:03}", start + 10 + i, m + (10 + i) / 8) for i in range(10) for m in range(20)])
    answer = server.get("/render", target="second.two.*", format="json", **{"from": start - 1, "until": start + 60})
    assert answer.status_code == 503 and "the store could not be read" in answer.text, f"{answer.status_code}: {answer.text[:200]}"
    assert server.post("/admin/flush").status_code >= 500
    three.start()
    expected = by_name(some_points("second.two", start, metrics=20, points=20))
    wait_until(lambda: server.post("/admin/flush").status_code == 200, 60, "it did not find Cassandra again")
    the_tables_hold(over, "second.two.*", expected, start - 1, start + 60)
