"""Nodes over one Cassandra come and go: added, drained, killed, suspended, replaced; and metrics move between them in mid-slot."""

import shutil
import signal
import socket
import time

import pytest
import requests

from cassandra import flush
from naive import Metric
from plumbago import aligned_now, eventually, run, wait_until
from test_cassandra_heads import address, meet, missing, over_with, render, values
from test_cassandra_members import finds, follow, status, until

TENS = "10s:2h,60s:1d,600s:30d"

METHODS = ["average", "sum", "min", "max", "last", "avg_zero", "absmax", "absmin"]

AGGREGATION = "".join(
    f"[{method}]\npattern = \\.of_{method}\\.\nxFilesFactor = 0\naggregationMethod = {method}\n\n" for method in METHODS
)

STAGES = [(0, 7000), (1, 80_000), (2, 900_000)]


def drain(server, *options):
    """`plumbago drain`, and what it says."""
    return run("drain", "--admin", address(server), *options)


def drain_status(server):
    answer = server.get("/admin/drain")
    assert answer.status_code == 200, answer.text
    return answer.json()


def is_refused(server, listener):
    try:
        server.connect(listener).close()
    except ConnectionError:
        return True
    return False


def shown(server, glob, begin, end, back):
    """{name: {time: value}} of the stage that a window of so many seconds reads, within [begin, end], in an answer that lacks no node."""

    def whole():
        answer = server.get("/render", target=glob, format="json", **{"from": int(time.time()) - back, "until": end})
        assert answer.status_code == 200, answer.text
        return answer if missing(answer) == [] else None

    answer = wait_until(whole, 60, "answers lack a node")
    seen = {}
    for series in answer.json():
        seen[series["target"]] = {at: value for value, at in series["datapoints"] if value is not None and begin <= at}
    return seen


def compare(server, model, begin, end, when):
    """Every stage of every metric on a server is what the naive model says."""
    for stage, back in STAGES:
        first = begin - begin % 600
        seen = shown(server, "ten.*.*.*", first, end, back)
        for name, metric in model.items():
            expected = {at: value for at, value in metric.stage(stage).items() if first <= at <= end}
            values_of = seen.get(name, {})
            if ".of_abs" in name and stage > 0:
                # Of two that are as far from zero, which one came first is not in the rows.
                values_of, expected = ({at: abs(value) for at, value in of.items()} for of in (values_of, expected))
            assert values_of == pytest.approx(expected), f"{name}, stage {stage}, {when}"


def test_a_node_that_is_stopped_right_after_its_start_stores_its_points_and_leaves(make_server, cassandra, tmp_path):
    over = over_with(make_server, cassandra, tmp_path)
    one, other = over.server(), over.server()
    meet(one, other)
    now = aligned_now()
    expected = {}
    for turn in range(3):
        one.stop()
        one.start()
        name = f"second.early.m{turn}"
        one.send([(name, now - 30 + turn, turn)])
        assert one.stop() == 0
        assert "stopped before all points were written" not in one.logs()
        # Its row is gone, and has not expired.
        eventually(lambda: len(status(other)["nodes"]), 1, 15)
        until(other, name, True)
        expected = {now - 30 + turn: turn}
        answer = render(other, name, **{"from": now - 600})
        assert values(answer) == expected and missing(answer) == []
        one.start()


def test_a_drained_node_takes_no_points_gives_what_it_has_leaves_and_has_nothing_that_is_needed(make_server, cassandra, tmp_path):
    over = over_with(make_server, cassandra, tmp_path)
    one, other = over.server(), over.server()
    meet(one, other)
    now = aligned_now()
    name = "second.drained.m"
    one.send([(name, now - 300 + i, i) for i in range(200)])
    until(other, name, True)
    expected = {now - 300 + i: i for i in range(200)}
    assert drain_status(one)["state"] == "off" and drain_status(one)["points_left"] == 200

    # Two senders that are connected, and one whose request has begun and does not end for now.
    relay = socket.create_connection(("127.0.0.1", one.ports["line"]))
    relay.sendall(f"{name} 1000 {now - 90}\n{name} 1001 {now - 89}\n".encode())
    expected |= {now - 90: 1000, now - 89: 1001}
    body = f"{name} 1002 {now - 88}\n".encode()
    slow = socket.create_connection(("127.0.0.1", one.ports["http"]))
    slow.sendall(f"POST /ingest HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body[:5])
    wait_until(lambda: one.counter("plumbago_points_total") == 202, 10)
    answer = one.post("/admin/drain")
    assert answer.status_code == 200 and answer.json()["state"] == "draining", answer.text

    # Balancers and relays leave.
    ready = one.get("/ready")
    assert ready.status_code == 503 and ready.text.startswith("draining: no points are taken"), ready.text
    assert one.get("/healthy").status_code == 200
    relay.settimeout(20)
    assert relay.recv(10) == b""
    for listener in ["line", "pickle"]:
        wait_until(lambda listener=listener: is_refused(one, listener), 10, "a listener takes connections")
    refused = requests.post(one.url("/ingest"), data=f"{name} 5 {now}\n", timeout=10)
    assert refused.status_code == 503 and "send to another one" in refused.text
    # Other nodes know, and ask it all the same.
    eventually(lambda: [node["draining"] for node in status(other)["nodes"] if not node["self"]], [True], 15)
    [seen] = [node for node in status(other)["nodes"] if not node["self"]]
    assert seen["alive"] and seen["version"] == status(one)["version"]
    answer = render(other, name, **{"from": now - 600})
    assert values(answer) == expected and missing(answer) == []
    assert drain_status(one)["state"] == "draining"

    # What was under way is taken.
    slow.sendall(body[5:])
    assert slow.recv(100).startswith(b"HTTP/1.1 200")
    expected |= {now - 88: 1002}
    eventually(lambda: drain_status(one)["state"], "drained", 30)
    said = drain_status(one)
    assert [said[key] for key in ["points_left", "in_memory", "in_journal", "unsynced", "names_left", "why"]] == [0, 0, 0, 0, 0, None]
    assert said["only_in_data_folder"] == {"events": 0, "points_without_cassandra": False, "damaged_files": 0}
    assert one.get("/ready").text.startswith("drained:")
    eventually(lambda: len(status(other)["nodes"]), 1, 15)
    # It stays away, and answers queries with the points of others.
    other.send([(name, now, 7.0)])
    expected |= {now: 7.0}
    time.sleep(6)
    assert [node["self"] for node in status(other)["nodes"]] == [True]
    for server in [one, other]:
        answer = render(server, name, **{"from": now - 600})
        assert values(answer) == expected and missing(answer) == []
    # Asked again, it says so at once.
    done = drain(one)
    assert done.returncode == 0 and done.stdout.startswith("drained: 0 points left"), done

    # Nothing in its folder is needed: it is not even stopped cleanly.
    one.kill()
    shutil.rmtree(one.data)
    flush(other)
    fresh = over.server()
    for server in [other, fresh]:
        eventually(lambda server=server: finds(server, name), True, 20)
        answer = render(server, name, **{"from": now - 600})
        assert values(answer) == expected and missing(answer) == []


def test_the_command_drain_waits_for_the_end_and_says_what_only_the_folder_has(make_server, cassandra, tmp_path):
    over = over_with(make_server, cassandra, tmp_path)
    one, other = over.server(), over.server()
    meet(one, other)
    now = aligned_now()
    names = [f"second.command.m{i}" for i in range(50)]
    one.send([(name, now - 300 + i, i) for name in names for i in range(200)])
    done = drain(one, "--json")
    assert done.returncode == 0, done
    assert '"state": "drained"' in done.stdout and '"points_left": 0' in done.stdout
    until(other, names[-1], True)
    assert values(render(other, "sumSeries(second.command.*)", **{"from": now - 600})) == {now - 300 + i: 50 * i for i in range(200)}
    # Started again, it is a node as before.
    one.stop()
    one.start()
    eventually(lambda: [node["draining"] for node in status(other)["nodes"]], [False, False], 15)
    one.send([(names[0], now, 5.0)])
    # Events are in the data folder of the node that got them.
    answer = one.post("/events/", json={"what": "deployed", "tags": "x"})
    assert answer.status_code == 200, answer.text
    done = drain(one)
    assert done.returncode == 3 and "not on other nodes: 1" in done.stdout and "can be removed" not in done.stdout, done
    # A server without Cassandra has nowhere to write its points to.
    alone = make_server()
    done = run("drain", "--admin", address(alone))
    assert done.returncode == 1 and done.stderr.count("cannot be drained") == 1, done
    assert alone.get("/ready").status_code == 200 and drain_status(alone)["state"] == "off"


class Ring:
    """Metrics of every method, the nodes that a ring gives them to, and a naive model of all."""

    def __init__(self, seeded, servers):
        self.random = seeded
        self.servers = servers
        self.names = [f"ten.moves.of_{method}.m{i}" for method in METHODS for i in range(3)]
        self.model = {name: Metric(TENS, method=name.split(".")[2].removeprefix("of_")) for name in self.names}
        self.owner = {name: 0 for name in self.names}
        self.begin = aligned_now(600) - 4200
        self.at = self.begin

    def step(self, owners, seconds=100):
        """Some metrics move to another of the nodes, and each gets points of the next seconds."""
        now = int(time.time())
        points = {owner: [] for owner in owners}
        for name in self.names:
            if self.owner[name] not in owners or self.random.random() < 0.4:
                self.owner[name] = self.random.choice(owners)
            for at in range(self.at, self.at + seconds, 10):
                # Some slots have no point.
                if self.random.random() < 0.9:
                    value = float(self.random.randrange(-50, 50))
                    assert self.model[name].write(at, value, now)
                    points[self.owner[name]].append((name, at, value))
        self.at += seconds
        for owner, of_owner in points.items():
            self.servers[owner].send(of_owner)

    def known(self, *servers):
        for server in servers:
            for name in self.names:
                until(server, name, True)

    def compare(self, server, when):
        compare(server, self.model, self.begin, -(-self.at // 600) * 600, when)


@pytest.mark.parametrize("layout", ["rows", "packed"])
def test_aggregates_of_all_methods_are_exact_where_metrics_move_between_nodes_in_mid_slot_and_back(
    make_server, cassandra, tmp_path, seeded, layout
):
    over = over_with(make_server, cassandra, tmp_path)
    over.settings = over.settings.replace("[cassandra]\n", f'[cassandra]\nlayout = "{layout}"\n')
    servers = [over.server(aggregation=AGGREGATION) for _ in range(2)]
    meet(*servers)
    ring = Ring(seeded, servers)
    ring.step([0])
    ring.known(servers[1])
    for turn in range(20):
        ring.step([0, 1])
        chosen = seeded.random()
        if chosen < 0.5:
            flush(servers[seeded.randrange(2)])
        if turn % 4 == 3:
            ring.compare(servers[seeded.randrange(2)], f"turn {turn}")
    for server in seeded.sample(servers, 2):
        flush(server)
    reader = over.server(aggregation=AGGREGATION)
    ring.known(reader)
    for server in [*servers, reader]:
        ring.compare(server, "at the end")


def test_nodes_are_added_killed_suspended_drained_and_replaced_and_aggregates_stay_exact(make_server, cassandra, tmp_path, seeded):
    over = over_with(make_server, cassandra, tmp_path)

    def new():
        return over.server(aggregation=AGGREGATION)

    servers = [new()]
    follow(*servers)
    ring = Ring(seeded, servers)
    ring.step([0], 300)
    # A node is added.
    servers.append(new())
    meet(*servers)
    ring.known(servers[1])
    ring.step([0, 1], 300)
    ring.compare(servers[1], "a node was added")
    # Killed, and started again: its points come from the journal.
    servers[0].kill()
    ring.step([1], 200)
    assert missing(render(servers[1], ring.names[0])) != []
    servers[0].start()
    meet(*servers)
    ring.step([0, 1], 200)
    ring.compare(servers[0], "a node was killed and started again")
    flush(servers[1])
    # Suspended until it counts as silent. The ring gives its metrics to the others.
    servers[1].suspend()
    eventually(lambda: [node["alive"] for node in status(servers[0])["nodes"] if not node["self"]], [False], 30)
    ring.step([0], 200)
    flush(servers[0])
    servers[1].process.send_signal(signal.SIGCONT)
    meet(*servers)
    ring.step([0, 1], 200)
    ring.compare(servers[1], "a node was suspended")
    # Moved to another folder and another address.
    id_before = [node["id"] for node in status(servers[0])["nodes"] if not node["self"]]
    assert servers[1].stop() == 0
    moved = tmp_path / "moved"
    servers[1].data.rename(moved)
    ring.step([0], 100)
    servers[1].data = moved
    servers[1].start()
    meet(*servers)
    assert [node["id"] for node in status(servers[0])["nodes"] if not node["self"]] == id_before
    ring.step([0, 1], 200)
    ring.compare(servers[0], "a data folder was moved")
    # Drained, and replaced by a node with a new folder.
    assert drain(servers[1]).returncode == 0
    servers[1].kill()
    shutil.rmtree(moved)
    ring.step([0], 100)
    servers[1] = new()
    meet(*servers)
    ring.known(servers[1])
    ring.step([0, 1], 200)
    ring.compare(servers[1], "a node was drained and replaced")
    # Lost with its folder, after a flush: the new one has another writer id, and the rows of the old one count.
    flush(servers[0])
    servers[0].kill()
    shutil.rmtree(servers[0].data)
    ring.step([1], 100)
    servers[0] = new()
    ring.known(servers[0])
    ring.step([0, 1], 300)
    eventually(lambda: [node["alive"] for node in status(servers[1])["nodes"]], [True, True], 90)
    meet(*servers)
    ring.compare(servers[0], "a node was lost and replaced")
    for server in seeded.sample(servers, 2):
        flush(server)
    reader = new()
    ring.known(reader)
    for server in [*servers, reader]:
        ring.compare(server, "at the end")


def test_the_same_points_to_two_nodes_of_different_replicas_count_once_although_each_is_down_for_a_while(
    make_server, cassandra, tmp_path, seeded
):
    over = over_with(make_server, cassandra, tmp_path)
    other_replica = over.settings.replace("[cassandra]\n", "[cassandra]\nreplica = 1\n")
    servers = [over.server(aggregation=AGGREGATION), over.server(settings=other_replica, aggregation=AGGREGATION)]
    meet(*servers)
    for server in servers:
        assert sorted((node["replica"], node["self"]) for node in status(server)["nodes"]) == [
            (0, server is servers[0]),
            (1, server is servers[1]),
        ]
    names = [f"ten.twice.of_{method}.m{i}" for method in METHODS for i in range(2)]
    model = {name: Metric(TENS, method=name.split(".")[2].removeprefix("of_")) for name in names}
    begin = aligned_now(600) - 3600
    end = begin + 600

    def send(up, first, until):
        points = [(name, at, float(seeded.randrange(-50, 50))) for at in range(begin + first, begin + until, 10) for name in names]
        for name, at, value in points:
            assert model[name].write(at, value, int(time.time()))
        for server in up:
            server.send(points)

    one, other = servers
    send(servers, 0, 60)
    for server in servers:
        until(server, names[-1], True)
        flush(server)
    send(servers, 60, 120)
    compare(one, model, begin, end, "both have them in memory")
    # The second one is killed, and misses some; the first one has these in memory alone.
    other.kill()
    send([one], 120, 200)
    other.start()
    meet(*servers)
    send(servers, 200, 260)
    compare(other, model, begin, end, "one was down")
    flush(other)
    compare(other, model, begin, end, "one was down, and has stored what it has")
    flush(one)
    send(servers, 260, 320)
    flush(other)
    compare(one, model, begin, end, "both have stored")
    # Then the first one, in the same slots of ten minutes.
    one.stop()
    send([other], 320, 400)
    one.start()
    meet(*servers)
    send(servers, 400, 480)
    flush(one)
    flush(other)
    for server in servers:
        compare(server, model, begin, end, "each was down for a while")
    # Late points and corrections, to both.
    send(servers, 130, 190)
    compare(other, model, begin, end, "late points are in memory")
    flush(other)
    flush(one)
    reader = over.server(aggregation=AGGREGATION)
    until(reader, names[-1], True)
    for server in [*servers, reader]:
        compare(server, model, begin, end, "at the end")
