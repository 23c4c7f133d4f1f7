"""carbonapi in front of the server answers as the server itself does, in each of its protocols."""

import pytest

from carbonapi import Carbonapi
from plumbago import aligned_now, eventually

PROTOCOLS = ["carbonapi_v3_pb", "carbonapi_v2_pb", "msgpack", "auto"]
HOSTS = 150
MINUTES = 30


@pytest.fixture(scope="module")
def filled(shared_server):
    """A server with points of the last half hour, some of them missing, and their span."""
    until = aligned_now() - 60
    start = until - 60 * MINUTES
    points = [
        (f"sixty.api.host{host:03}.load", start + 60 * (minute + 1), host / 3 + minute)
        for host in range(HOSTS)
        for minute in range(MINUTES)
        if (host + minute) % 7
    ]
    points += [("sixty.api.host000", until, 5.0), ("sixty.tagged;dc=a;rack=1", until, 6.5)]
    shared_server.configure("storage-schemas.conf", "[sixty]\npattern = .*\nretentions = 60s:1d\n")
    shared_server.stop()
    shared_server.start()
    shared_server.send(points)
    eventually(lambda: len(shared_server.columns("sixty.api.*.load", start, until)), HOSTS)
    return shared_server, start, until


@pytest.fixture(scope="module", params=PROTOCOLS)
def front(request, filled, tmp_path_factory):
    server, _, _ = filled
    api = Carbonapi(tmp_path_factory.mktemp("carbonapi"), server.ports["http"], request.param)
    yield api
    api.stop()


def rendered(answer):
    assert answer.status_code == 200, answer.text
    return {series["target"]: [tuple(point) for point in series["datapoints"]] for series in answer.json()}


@pytest.mark.parametrize(
    "target",
    [
        "sixty.api.*.load",
        "sixty.api.host00[1-3].load",
        "sixty.api.{host001,host002,nothing}.load",
        "sixty.api.host001.load",
        "sixty.api.host000",
        "sumSeries(sixty.api.host00*.load)",
        "aliasByNode(scale(sixty.api.host01*.load, 2), 2)",
        "nothing.at.all",
        "sixty.api.nothing*.load",
    ],
)
def test_renders_are_the_same(filled, front, target):
    server, start, until = filled
    asked = {"target": target, "from": start, "until": until, "format": "json"}
    assert rendered(front.get("/render", **asked)) == rendered(server.get("/render", **asked)), front.logs()[-3000:]


def test_two_targets_over_the_same_series_are_both_answered(filled, front):
    server, start, until = filled
    targets = ["sixty.api.host001.load", "sixty.api.host00*.load", "alias(sixty.api.host001.load, 'x')"]
    asked = {"target": targets, "from": start, "until": until, "format": "json"}
    answered = front.get("/render", **asked)
    assert len(answered.json()) == 1 + 10 + 1, answered.text
    assert rendered(answered) == rendered(server.get("/render", **asked))


def test_a_shifted_window_is_fetched_for_itself(filled, front):
    server, start, until = filled
    targets = ["sixty.api.host001.load", "timeShift(sixty.api.host001.load, '10min')"]
    asked = {"target": targets, "from": until - 600, "until": until, "format": "json"}
    ours, theirs = rendered(server.get("/render", **asked)), rendered(front.get("/render", **asked))
    assert len(theirs) == 2
    values = lambda answer: sorted([str(value) for value, _ in points] for points in answer.values())
    assert values(theirs) == values(ours)


@pytest.mark.parametrize("query", ["*", "sixty.*", "sixty.api.*", "sixty.api.host00?", "sixty.api.*.load", "nothing.*"])
def test_finds_are_the_same(filled, front, query):
    server, _, _ = filled
    found = lambda answer: {(node["text"], node["leaf"]) for node in answer.json()}
    theirs = front.get("/metrics/find", query=query, format="treejson")
    assert theirs.status_code == 200, theirs.text
    ours = found(server.get("/metrics/find", query=query, format="treejson"))
    assert found(theirs) == ours, front.logs()[-3000:]


def test_info_says_how_a_metric_is_stored(filled, tmp_path):
    # In version 3 carbonapi sends this request to /metrics/find, and takes any answer.
    server, _, _ = filled
    front = Carbonapi(tmp_path, server.ports["http"], "carbonapi_v2_pb")
    try:
        answer = front.get("/info", target="sixty.api.host001.load", format="json")
        assert answer.status_code == 200, answer.text
        assert "86400" in answer.text and "1440" in answer.text
    finally:
        front.stop()


def test_the_log_of_carbonapi_names_a_reached_limit(make_server, tmp_path):
    server = make_server(settings='[own]\nevery = "off"\n[query]\nmax_series = 3\n')
    now = aligned_now()
    server.send([(f"second.many.m{i}", now, 1.0) for i in range(10)])
    front = Carbonapi(tmp_path, server.ports["http"], "carbonapi_v3_pb")
    try:
        answer = front.get("/render", **{"target": "second.many.*", "from": now - 60, "until": now, "format": "json"})
        # carbonapi's own user gets an empty answer.
        assert answer.status_code == 200
        assert "HTTP Code: 422" in front.logs() and "query.max_series raises this" in front.logs()
    finally:
        front.stop()
