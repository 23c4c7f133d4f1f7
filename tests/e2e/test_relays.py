"""Relays that users already run forward to the server, which serves every point."""

import pytest

import wire
from plumbago import aligned_now, eventually
from relays import c_relay, carbon_relay

METRICS = 100
POINTS = 40


def some_points(prefix, value):
    """METRICS metrics with a point in each of the last POINTS seconds, interleaved as agents send them."""
    start = aligned_now() - POINTS - 5
    return [
        (f"{prefix}.host{m:03}.cpu.user", start + second, value(m, second))
        for second in range(POINTS)
        for m in range(METRICS)
    ]


def everything_arrives(server, prefix, points):
    expected = {}
    for name, time, value in points:
        expected.setdefault(name, {})[time] = value
    start, until = points[0][1] - 1, points[-1][1]
    eventually(lambda: server.columns(f"{prefix}.*.cpu.user", start, until), expected, 20)


@pytest.fixture
def relay_to(tmp_path):
    running = []

    def start(make, *arguments):
        relay = make(tmp_path, *arguments)
        running.append(relay)
        return relay

    yield start
    for relay in running:
        relay.stop()


@pytest.mark.parametrize("listener", ["pickle", "protobuf"])
def test_every_double_arrives_through_carbon_relay(shared_server, relay_to, listener):
    relay = relay_to(carbon_relay, shared_server.ports[listener], listener)
    prefix = f"second.relay-{listener}"
    # Thirds and tiny fractions: all 53 bits must survive.
    points = some_points(prefix, lambda m, second: (m + 1) / 3 + second * 1e-9)
    relay.send(wire.lines(points))
    everything_arrives(shared_server, prefix, points)


def test_every_decimal_arrives_through_carbon_relay_by_line(shared_server, relay_to):
    relay = relay_to(carbon_relay, shared_server.ports["line"], "line")
    prefix = "second.relay-line"
    # carbon's line sender writes %.10f: values with at most ten decimals survive.
    points = some_points(prefix, lambda m, second: round(m * 1.25 + second / 8, 10))
    relay.send(wire.lines(points))
    everything_arrives(shared_server, prefix, points)


def test_every_double_arrives_through_carbon_c_relay(shared_server, relay_to):
    relay = relay_to(c_relay, shared_server.ports["line"])
    prefix = "second.c-relay"
    # carbon-c-relay forwards the text of the value unchanged.
    points = some_points(prefix, lambda m, second: (m + 1) / 7 - second * 1e-3)
    relay.send(wire.lines(points))
    everything_arrives(shared_server, prefix, points)


def test_a_relay_continues_after_an_outage_of_the_server(make_server, relay_to):
    server = make_server()
    relay = relay_to(carbon_relay, server.ports["pickle"], "pickle")
    points = some_points("second.away", lambda m, second: float(m * 1000 + second))
    half = len(points) // 2
    relay.send(wire.lines(points[:half]))
    everything_arrives(server, "second.away", points[:half])
    port = server.ports["pickle"]
    assert server.stop() == 0
    relay.send(wire.lines(points[half:]))
    server.start(pickle=port)
    # carbon-relay reconnects after at most a few seconds, and keeps its queue until then.
    everything_arrives(server, "second.away", points)
