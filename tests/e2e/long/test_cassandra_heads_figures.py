"""Figures of points that nodes over one Cassandra give each other: printed, and not asserted, since the machine is shared."""

import signal
import socket
import time

from cassandra import flush
from plumbago import aligned_now
from test_cassandra_heads import address, meet, missing, over_with, render, values
from test_cassandra_members import until


def shown(seconds):
    """Median, 99th percentile and longest, in milliseconds."""
    took = sorted(seconds)
    return f"p50 {1e3 * took[len(took) // 2]:.1f} ms, p99 {1e3 * took[len(took) * 99 // 100]:.1f} ms, longest {1e3 * took[-1]:.1f} ms"


def timed(ask):
    began = time.monotonic()
    answer = ask()
    return time.monotonic() - began, answer


def test_figures_of_points_in_the_memory_of_other_nodes(make_server, cassandra, tmp_path):
    over = over_with(make_server, cassandra, tmp_path, timeout="500ms")
    one, other = over.server(), over.server()
    meet(one, other)
    now = aligned_now()

    # From the sending of a point to one node until the other renders it.
    name = "second.latency.m"
    one.send([(name, now - 1000, 0.0)])
    until(other, name, True)
    took = []
    with socket.create_connection(("127.0.0.1", one.ports["line"])) as connection:
        for turn in range(500):
            at = now - 900 + turn
            began = time.monotonic()
            connection.sendall(f"{name} {turn + 1} {at}\n".encode())
            while values(render(other, name, **{"from": at - 1, "until": at})).get(at) != turn + 1:
                pass
            took.append(time.monotonic() - began)
    print(f"\nsent to one node, rendered by the other: {shown(took)}")

    # 1,000 series of 60 points that are in the memory of one node alone, and as many that are stored.
    window = {"from": now - 120, "until": now}
    for kind in ["held", "stored"]:
        names = [f"second.{kind}.m{number:04}" for number in range(1000)]
        one.send([(name, now - 60 + i, number + i) for number, name in enumerate(names) for i in range(60)])
        if kind == "stored":
            continue
        until(other, names[-1], True)
        until(other, names[0], True)
        until(other, names[500], True)
    until(other, "second.stored.m0999", True)

    def compare(kind):
        figures = {one: [], other: []}
        for _ in range(40):
            for server in [one, other]:
                seconds, answer = timed(lambda server=server: render(server, f"second.{kind}.*", **window))
                assert missing(answer) == []
                figures[server].append(seconds)
        series = [render(server, f"second.{kind}.*", **window).json() for server in [one, other]]
        assert series[0] == series[1] and len(series[0]) == 1000
        assert all(sum(value is not None for value, _ in one["datapoints"]) == 60 for one in series[0])
        ratio = sorted(figures[other])[20] / sorted(figures[one])[20]
        print(f"1,000 x 60, {kind}: the node that has them {shown(figures[one])}")
        print(f"1,000 x 60, {kind}: the node that has none {shown(figures[other])}; {ratio:.2f} x")

    compare("held")
    flush(one)
    compare("stored")

    # A stopped node.
    ask = lambda: render(other, "second.latency.m", **{"from": now - 900, "until": now})  # noqa: E731
    before = [timed(ask)[0] for _ in range(200)]
    one.suspend()
    first, at_first = timed(ask)
    assert missing(at_first) == [address(one)]
    during = [timed(ask) for _ in range(200)]
    assert all(missing(answer) == [address(one)] for _, answer in during)
    time.sleep(5)
    after = [timed(ask)[0] for _ in range(200)]
    one.process.send_signal(signal.SIGCONT)
    print(f"before a node is stopped: {shown(before)}")
    print(f"stopped: first {1e3 * first:.0f} ms, then {shown([seconds for seconds, _ in during])}; after 5 s {shown(after)}")
