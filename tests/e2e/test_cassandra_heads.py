"""Nodes over one Cassandra give each other their points in memory: any node answers with the points of all."""

import http.server
import signal
import socket
import threading
import time

import requests

from cassandra import OverCassandra, flush
from naive import Metric
from plumbago import aligned_now, eventually, wait_until
from test_cassandra_members import finds, follow, status, until

SECRET = "a-secret-of-these-tests"

HEADER = "X-Plumbago-Missing-Peers"

# So long that a busy machine misses nothing.
PATIENT = "10s"

TENS = "10s:2h,60s:1d,600s:30d"


def over_with(make_server, cassandra, tmp_path, timeout=PATIENT, more="", tables=""):
    """Servers over one keyspace with one secret; `tables` are lines of the settings of Cassandra."""
    (tmp_path / "secret").write_text(SECRET + "\n")
    (tmp_path / "secret").chmod(0o644)
    peers = f'[peers]\nsecret_file = "{tmp_path}/secret"\ntimeout = "{timeout}"\n{more}'
    return OverCassandra(make_server, cassandra, cassandra=tables, more=peers)


def address(server):
    return f"127.0.0.1:{server.ports['http']}"


def meet(*servers):
    """Waits until servers follow each other's names, and each asks all others."""
    follow(*servers)

    def given(server):
        others = [node for node in status(server)["nodes"] if not node["self"]]
        return [node["points_in_memory"] for node in others]

    for server in servers:
        eventually(lambda server=server: given(server), ["given"] * (len(servers) - 1), 30)


def missing(answer):
    """The nodes that an answer names."""
    return [node for node in answer.headers.get(HEADER, "").split(", ") if node]


def render(server, target, **params):
    return server.get("/render", target=target, format="json", **params)


def nothing_of(status, where):
    """The answer of a node at an address to a request for nothing."""
    [node] = [node["id"].encode() for node in status["nodes"] if node["address"] == where]
    return b"PLBA\x01" + bytes([len(node)]) + node + bytes(4)


def values(answer):
    """{time: value} of the only series of an answer."""
    assert answer.status_code == 200, answer.text
    [series] = answer.json()
    return {time: value for value, time in series["datapoints"] if value is not None}


def test_any_node_answers_with_the_points_that_any_node_accepted(make_server, cassandra, tmp_path):
    over = over_with(make_server, cassandra, tmp_path)
    one, other = over.server(), over.server()
    meet(one, other)
    now = aligned_now()
    name = "second.heads.m"
    one.send([(name, now - 30 + i, i) for i in range(20)])
    until(other, name, True)
    expected = {now - 30 + i: i for i in range(20)}
    answer = render(other, name, **{"from": now - 600})
    assert values(answer) == expected and missing(answer) == []
    # Points of both; this node's own come before another's.
    other.send([(name, now - 12 + i, 100 + i) for i in range(5)])
    expected |= {now - 12 + i: 100 + i for i in range(5)}
    assert values(render(other, name, **{"from": now - 600})) == expected
    # Each function reads them, and so do globs and pictures.
    [total] = render(other, f"sumSeries({name[:-1]}*)", **{"from": now - 600}).json()
    assert {time: value for value, time in total["datapoints"] if value is not None} == expected
    assert other.get("/render", target=name, format="png", **{"from": now - 600}).headers["content-type"] == "image/png"
    # A window without them has none.
    assert values(render(other, name, **{"from": now - 600, "until": now - 300})) == {}
    assert other.counter("plumbago_peer_requests_total", result="answered") >= 4
    assert other.counter("plumbago_peer_points_total") >= 60
    assert one.counter("plumbago_peer_answers_total", result="given") >= 4
    for server in [one, other]:
        assert server.counter("plumbago_peers_missing") == 0
    # Stored, they are the same.
    flush(one)
    flush(other)
    for server in [one, other]:
        assert values(render(server, name, **{"from": now - 600})) == expected
    # A node that is stopped cleanly is not missed.
    one.stop()
    eventually(lambda: len(status(other)["nodes"]), 1, 15)
    answer = render(other, name, **{"from": now - 600})
    assert values(answer) == expected and missing(answer) == []


def test_coarse_stages_are_exact_while_points_move_from_memory_to_the_tables(make_server, cassandra, tmp_path):
    over = over_with(make_server, cassandra, tmp_path)
    nodes = [over.server(), over.server()]
    meet(*nodes)
    names = [f"ten.moving.m{i}" for i in range(8)]
    model = {name: Metric(TENS) for name in names}
    begin = aligned_now(600) - 3000
    now = int(time.time())

    def send(server, points):
        for name, at, value in points:
            assert model[name].write(at, value, now)
        server.send(points)

    def compare(server, during):
        for stage, back in [(0, 7000), (1, 80_000), (2, 900_000)]:
            answer = server.get("/render", target="ten.moving.*", format="json", **{"from": now - back, "until": begin + 3000})
            assert answer.status_code == 200 and missing(answer) == [], (answer.text[:500], missing(answer))
            seen = {
                series["target"]: {at: value for value, at in series["datapoints"] if value is not None}
                for series in answer.json()
            }
            for name in names:
                expected = {at: value for at, value in model[name].stage(stage).items() if now - back < at <= begin + 3000}
                assert seen[name] == expected, f"{name}, stage {stage}, {during}"

    send(nodes[0], [(name, begin, 1.0) for name in names])
    for name in names:
        until(nodes[1], name, True)
    compared = 0
    for turn in range(1, 13):
        at = begin + turn * 200
        # Metrics move between the nodes in the middle of coarse slots; slots of the past get other values, of either node.
        send(nodes[0], [(name, at + 10 * i, turn * 100 + i) for name in names for i in range(10)])
        send(nodes[1], [(name, at + 100 + 10 * i, turn * 1000 + i) for name in names for i in range(9)])
        send(nodes[0], [(name, at - 200 + 10 * (turn % 7), turn) for name in names[::2]])
        compare(nodes[1], f"turn {turn}, before the flush")
        failed = []

        def flushing(server):
            try:
                flush(server)
            except AssertionError as error:
                failed.append(error)

        flush_of = threading.Thread(target=flushing, args=[nodes[turn % 3 // 2]])
        flush_of.start()
        while flush_of.is_alive():
            compare(nodes[1], f"turn {turn}, while a node flushes")
            compared += 1
        flush_of.join()
        assert not failed
        for server in nodes:
            compare(server, f"turn {turn}, after the flush")
    print(f"{compared} times three stages compared during flushes")
    for server in nodes:
        flush(server)
    for server in nodes:
        compare(server, "at the end")


def test_a_stopped_node_costs_one_bounded_wait_and_is_named_until_it_answers(make_server, cassandra, tmp_path):
    over = over_with(make_server, cassandra, tmp_path, timeout="1s")
    one, other = over.server(), over.server()
    meet(one, other)
    now = aligned_now()
    name = "second.silent.m"
    one.send([(name, now - 30 + i, i) for i in range(20)])
    until(other, name, True)
    other.send([(name, now, 7.0)])
    expected = {now - 30 + i: i for i in range(20)} | {now: 7.0}
    assert values(render(other, name, **{"from": now - 600})) == expected

    one.suspend()
    began = time.monotonic()
    answer = render(other, name, **{"from": now - 600})
    first = time.monotonic() - began
    # Its own points, and the name of the node that has more.
    assert values(answer) == {now: 7.0} and missing(answer) == [address(one)]
    waits = other.counter("plumbago_peer_wait_seconds_total")
    took = []
    for _ in range(20):
        began = time.monotonic()
        answer = render(other, name, meta="true", **{"from": now - 600})
        took.append(time.monotonic() - began)
        assert missing(answer) == [address(one)]
        assert answer.json()["meta"]["missing-peers"] == [address(one)]
    print(f"a stopped node: {first:.3f} s the first time, then {sorted(took)[10]:.3f} s and {max(took):.3f} s at most")
    # None of them waited for it: by the clock of the node, whatever else keeps the machine busy.
    assert other.counter("plumbago_peer_wait_seconds_total") - waits < 0.5
    assert other.counter("plumbago_peer_skipped_total") >= 20
    assert other.counter("plumbago_peer_requests_total", result="silent") >= 1
    assert other.counter("plumbago_peers_missing") == 1
    [seen] = [node for node in status(other)["nodes"] if not node["self"]]
    assert "does not answer" in seen["points_in_memory"] or "does not report" in seen["points_in_memory"]
    assert "does not give its points in memory" in other.logs()

    one.process.send_signal(signal.SIGCONT)
    eventually(lambda: missing(render(other, name, **{"from": now - 600})), [], 30)
    assert values(render(other, name, **{"from": now - 600})) == expected
    eventually(lambda: other.counter("plumbago_peers_missing"), 0, 10)
    # Killed, it is named for as long as its row says that it was there.
    one.kill()
    answer = render(other, name, **{"from": now - 600})
    assert values(answer) == {now: 7.0} and missing(answer) == [address(one)]


def test_another_secret_is_refused_counted_and_said(make_server, cassandra, tmp_path):
    over = over_with(make_server, cassandra, tmp_path)
    one = over.server()
    (tmp_path / "other").write_text("another-secret-of-these-tests\n")
    other = over.server(settings=over.settings.replace(f"{tmp_path}/secret", f"{tmp_path}/other"))
    follow(one, other)
    now = aligned_now()
    name = "second.secret.m"
    one.send([(name, now, 1.0)])
    until(other, name, True)
    wait_until(lambda: len(status(other)["nodes"]) == 2, 15)
    answer = render(other, name, **{"from": now - 600})
    assert values(answer) == {} and missing(answer) == [address(one)]
    assert other.counter("plumbago_peer_requests_total", result="refused") >= 1
    assert one.counter("plumbago_peer_answers_total", result="refused") >= 1
    assert "peers.secret_file must be the same for all nodes" in one.logs()
    assert "refuses this node's secret" in other.logs()
    assert SECRET not in one.logs() + other.logs()
    # Nor does anyone else get points, whatever the method or the body.
    url = one.url("/peers/heads")
    for headers in [{}, {"X-Plumbago-Secret": ""}, {"X-Plumbago-Secret": SECRET[:-1]}, {"Authorization": f"Bearer {SECRET}"}]:
        assert requests.post(url, data=b"PLBQ\x01\0\0\0\0\0", headers=headers, timeout=10).status_code == 403
    assert requests.get(url, timeout=10).status_code == 405
    right = {"X-Plumbago-Secret": SECRET}
    answer = requests.post(url, data=b"PLBQ\x01\0\0\0\0\0", headers=right, timeout=10)
    empty = nothing_of(status(one), address(one))
    assert (answer.status_code, answer.content) == (200, empty)
    assert requests.post(url, data=b"PLBQ\x02\0\0\0\0\0", headers=right, timeout=10).content == empty
    assert requests.post(url, data=b"PLBQ\x07\0\0\0\0\0", headers=right, timeout=10).status_code == 501
    assert requests.post(url, data=b"garbage", headers=right, timeout=10).status_code == 400
    # A secret is replaced one node after the other: the first line is shown, each is accepted.
    (tmp_path / "secret").write_text(f"{SECRET}\nanother-secret-of-these-tests\n")
    readable = "all users of this machine can read peers.secret_file"
    assert readable in one.logs()
    (tmp_path / "secret").chmod(0o600)
    one.stop()
    one.start()
    assert readable not in one.logs()
    eventually(lambda: missing(render(other, name, **{"from": now - 600})), [], 30)
    one.send([(name, now + 1, 2.0)])
    assert values(render(other, name, **{"from": now - 600})) == {now: 1.0, now + 1: 2.0}


def test_a_node_that_starts_is_asked_from_its_first_point_on(make_server, cassandra, tmp_path):
    over = over_with(make_server, cassandra, tmp_path)
    one, other = over.server(), over.server()
    meet(one, other)
    now = aligned_now()
    name = "second.starting.m"
    one.send([(name, now - 100, 0.0)])
    until(other, name, True)
    expected = {now - 100: 0.0}
    for turn in range(3):
        one.stop()
        eventually(lambda: len(status(other)["nodes"]), 1, 15)
        one.start()
        one.send([(name, now - 50 + turn, 1.0)])
        expected[now - 50 + turn] = 1.0
        answer = render(other, name, **{"from": now - 600})
        assert values(answer) == expected and missing(answer) == []
        flush(one)
    # And one that was never there.
    third = over.server()
    until(third, name, True)
    third.send([(name, now, 9.0)])
    for server in [one, other]:
        answer = render(server, name, **{"from": now - 600})
        assert values(answer) == expected | {now: 9.0} and missing(answer) == []


def test_requests_are_read_when_they_have_a_turn_and_have_a_largest_size(make_server, cassandra, tmp_path):
    over = over_with(make_server, cassandra, tmp_path)
    server = over.server()
    follow(server)
    url, right = server.url("/peers/heads"), {"X-Plumbago-Secret": SECRET}
    nothing = b"PLBQ\x01\0\0\0\0\0"
    answer = requests.post(url, data=nothing + bytes(7 << 20), headers=right, timeout=30)
    assert answer.status_code == 400 and "6291456" in answer.text, answer.text
    assert requests.post(url, data=nothing, headers=right, timeout=10).status_code == 200

    def begun():
        """A request whose body does not end."""
        begun = socket.create_connection(("127.0.0.1", server.ports["http"]))
        head = f"POST /peers/heads HTTP/1.1\r\nHost: x\r\nX-Plumbago-Secret: {SECRET}\r\nContent-Length: 1000\r\n\r\n"
        begun.sendall(head.encode() + b"PLBQ")
        return begun

    # As many as have a turn at once: the next one waits for one of them.
    began = time.monotonic()
    held = [begun() for _ in range(8)]
    time.sleep(1)
    assert requests.post(url, data=nothing, headers=right, timeout=60).status_code == 200
    assert time.monotonic() - began > 1.9
    for one in held:
        one.close()
    assert requests.post(url, data=nothing, headers=right, timeout=10).status_code == 200


def test_without_a_secret_no_points_in_memory_are_asked_for_or_given(make_server, cassandra):
    over = OverCassandra(make_server, cassandra)
    one, other = over.server(), over.server()
    follow(one, other)
    now = aligned_now()
    name = "second.without.m"
    one.send([(name, now, 1.0)])
    until(other, name, True)
    answer = render(other, name, **{"from": now - 600})
    assert values(answer) == {} and missing(answer) == []
    for server in [one, other]:
        assert server.logs().count("peers.secret_file is not set") == 1
        assert status(server)["peers"] is None
        assert requests.post(server.url("/peers/heads"), data=b"PLBQ\x01\0\0\0\0\0", timeout=10).status_code == 403
    flush(one)
    assert values(render(other, name, **{"from": now - 600})) == {now: 1.0}


class Garbage(http.server.BaseHTTPRequestHandler):
    """What answers in place of a node."""

    answers = []
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        code, body = self.answers[0]
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_a_node_whose_answer_makes_no_sense_costs_only_its_own_points(make_server, cassandra, tmp_path):
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Garbage)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    over = over_with(make_server, cassandra, tmp_path)
    one, other = over.server(), over.server()
    # The third one is reached through something that answers otherwise.
    wrong = f"127.0.0.1:{proxy.server_address[1]}"
    third = over.server(settings=over.settings.replace("[cassandra]\n", f'[cassandra]\npeer_address = "{wrong}"\n'))
    follow(one, other, third)
    now = aligned_now()
    name = "second.garbage.m"
    one.send([(name, now, 1.0)])
    third.send([(name, now + 1, 2.0)])
    until(other, name, True)
    wait_until(lambda: len(status(other)["nodes"]) == 3, 15)
    nothing = nothing_of(status(other), wrong)
    huge = nothing[:-4] + b"\xff\xff\xff\xff"
    run = nothing[:-4] + b"\x01\0\0\0" + b"\xff\xff\xff\x7f" + b"\x01\0" + bytes(13)
    for code, body, result in [
        (200, b"<html>welcome</html>", "invalid"),
        (200, b"", "invalid"),
        (200, huge, "invalid"),
        (200, run, "invalid"),
        (502, b"bad gateway", "invalid"),
        # An address that leads to another node.
        (200, nothing_of(status(other), address(other)), "invalid"),
        (404, b"no such path", "unsupported"),
    ]:
        Garbage.answers = [(code, body)]
        before = other.counter("plumbago_peer_requests_total", result=result)
        # Marked, it is asked by probes alone; what is marked is named all the same.
        for _ in range(3):
            answer = render(other, name, **{"from": now - 600})
            assert values(answer) == {now: 1.0} and missing(answer) == [wrong]
        eventually(lambda before=before, result=result: other.counter("plumbago_peer_requests_total", result=result) > before, True, 20)
        # What is well again is asked again.
        Garbage.answers = [(200, nothing)]
        wait_until(lambda: [n for n in status(other)["nodes"] if n["address"] == wrong][0]["points_in_memory"] == "given", 20)
    proxy.shutdown()
    assert finds(other, name)
