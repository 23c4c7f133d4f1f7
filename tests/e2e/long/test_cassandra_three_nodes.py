"""Three nodes over a Cassandra of three nodes with three replicas, while a relay's ring moves metrics between them in mid-slot: nodes
of either kind die, stop answering and are replaced. No accepted point is lost, what an answer lacks it names, and all are exact."""

import signal
import threading
import time

import pytest

import wire
from cassandra import flush
from naive import Metric
from nodes import THREE, Cluster
from plumbago import aligned_now, eventually, wait_until
from test_cassandra_faults import THREE_REPLICAS
from test_cassandra_heads import meet, missing, over_with, render
from test_restart import SECOND, by_name

METRICS = 60
# Batches, a second each, until the ring moves on: in the middle of slots of 10 and 60 seconds.
MOVES_EVERY = 25
BATCHES_PER_SECOND = 20


class Ring:
    """A relay: sends batch i (a point of each metric at second start + i) to the nodes that it knows, a share of the metrics to each.
    The shares move on every few batches."""

    def __init__(self, start):
        self.start, self.sent, self.nodes = start, 0, []
        self.connections, self.lock = {}, threading.Lock()
        self.stopping, self.failed = threading.Event(), None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def points(self, i):
        return [(f"second.ring.m{m:02}", self.start + i, float(i * 1000 + m)) for m in range(METRICS)]

    def expected(self):
        return by_name(point for i in range(self.sent) for point in self.points(i))

    def use(self, *nodes):
        """From now on only these get points; all that others were sent is in them when this returns."""
        with self.lock:
            left, self.nodes = [node for node in self.nodes if node not in nodes], list(nodes)
            for node in left:
                connection = self.connections.pop(node)
                connection.shutdown(1)
                # The server closes its side when it has taken everything.
                while connection.recv(1):
                    pass
                connection.close()

    def _run(self):
        try:
            while not self.stopping.is_set():
                with self.lock:
                    points, moved = self.points(self.sent), self.sent // MOVES_EVERY
                    for number, node in enumerate(self.nodes):
                        if node not in self.connections:
                            self.connections[node] = node.connect()
                        share = [point for m, point in enumerate(points) if (m + moved) % len(self.nodes) == number]
                        self.connections[node].sendall(wire.lines(share))
                    self.sent += 1
                time.sleep(1 / BATCHES_PER_SECOND)
        except OSError as error:
            self.failed = error

    def goes_on(self, seconds):
        """Waits, and checks that senders did not notice what happened."""
        before = self.sent
        time.sleep(seconds)
        assert self.failed is None, self.failed
        assert self.sent - before > seconds * BATCHES_PER_SECOND / 4, "senders had to wait"

    def stop(self):
        self.stopping.set()
        self.thread.join()
        self.use()


def differences(server, expected):
    """(metric, slot, served, expected) of the coarse stages, against the naive model."""
    now, found = aligned_now(60), []
    for stage, seconds in [(1, 86400), (2, 7 * 86400)]:
        served = server.columns("second.ring.*", now - seconds, now, now=now)
        for name, column in expected.items():
            model = Metric(SECOND)
            for time, value in column.items():
                model.write(time, value, now)
            for slot, value in model.stage(stage).items():
                if served[name].get(slot) != pytest.approx(value, rel=1e-12):
                    found.append((name, slot, served[name].get(slot), value))
    return found


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("three"), THREE, heap="512M")
    cluster.start()
    yield cluster
    cluster.forget()


def test_any_node_dies_stops_or_is_replaced_and_every_answer_is_whole_or_says_what_it_lacks(make_server, three, tmp_path):
    contacts = ",".join(node.address for node in three.nodes)
    over = over_with(make_server, contacts, tmp_path, timeout="2s", more='[ingest]\nflush_after = "2s"\n', tables=THREE_REPLICAS)
    # The first one makes the tables, on three nodes.
    first = over.server(start=False)
    first.spawn()
    wait_until(first._is_ready, 240, "the tables were not made")
    nodes = [first, over.server(), over.server()]
    meet(*nodes)
    ring = Ring(aligned_now(600) - 5400)

    def window():
        return {"from": ring.start - 1, "until": ring.start + ring.sent + 10}

    def whole(server):
        """Whether an answer has all points that were sent before it was asked for, and no other value."""
        sent = ring.sent
        answer = render(server, "second.ring.*", noCache=1, **window())
        assert answer.status_code == 200, answer.text
        for series in answer.json():
            m = int(series["target"][-2:])
            served = {time: value for value, time in series["datapoints"] if value is not None}
            wrong = {t: value for t, value in served.items() if value != (t - ring.start) * 1000 + m}
            assert not wrong, f"{series['target']}: {wrong}"
            lacking = [i for i in range(sent - BATCHES_PER_SECOND) if ring.start + i not in served]
            if lacking:
                assert missing(answer), f"{series['target']} lacks {lacking[:5]}, and the answer names no node"
                return False
        return len(answer.json()) == METRICS and not missing(answer)

    def all_whole(*servers, seconds=60):
        for server in servers:
            wait_until(lambda server=server: whole(server), seconds, "an answer is not whole")

    ring.use(*nodes)
    ring.thread.start()
    ring.goes_on(5)
    all_whole(*nodes)

    # A node dies with points in its memory. The others name it until it is back, with its journal.
    ring.use(nodes[0], nodes[2])
    nodes[1].kill()
    ring.goes_on(5)
    for server in [nodes[0], nodes[2]]:
        answer = render(server, "second.ring.*", noCache=1, **window())
        assert len(missing(answer)) == 1, answer.headers
        whole(server)
    nodes[1].start()
    all_whole(*nodes)
    ring.use(*nodes)
    ring.goes_on(3)

    # Of Cassandra a node dies, and then another one does not answer.
    three.nodes[1].kill()
    ring.goes_on(8)
    all_whole(*nodes)
    three.start()
    ring.goes_on(3)
    three.nodes[2].pause()
    ring.goes_on(10)
    three.nodes[2].resume()
    all_whole(*nodes)

    # A node is stopped for longer than its heartbeats count, and goes on.
    ring.use(nodes[0], nodes[1])
    nodes[2].suspend()
    began = time.monotonic()
    answer = render(nodes[0], "second.ring.*", noCache=1, **window())
    assert len(missing(answer)) == 1 and time.monotonic() - began < 20
    ring.goes_on(25)
    for server in [nodes[0], nodes[1]]:
        whole(server)
    nodes[2].process.send_signal(signal.SIGCONT)
    all_whole(*nodes)

    # A node is replaced by one with an empty folder.
    ring.use(nodes[1], nodes[2])
    assert nodes[0].stop() == 0
    nodes[0] = over.server()
    meet(*nodes)
    ring.use(*nodes)
    ring.goes_on(8)
    all_whole(*nodes)

    ring.stop()
    assert ring.failed is None
    expected = ring.expected()
    for server in nodes:
        flush(server)
    reader = over.server()
    for server in [*nodes, reader]:
        eventually(lambda server=server: server.columns("second.ring.*", ring.start - 1, ring.start + ring.sent + 10), expected, 30)
        # What two nodes wrote at the same moment is derived again within seconds.
        eventually(lambda server=server: differences(server, expected), [], 60)
