"""Several rollups of one metric: rules with a list of aggregation methods, and consolidateBy, which picks one of them."""

import pytest

from plumbago import aligned_now, run

SCHEMAS = "[one]\npattern = ^one\\.\nretentions = 10s:1d\n\n[all]\npattern = .*\nretentions = 10s:1h,60s:1d\n"
AGGREGATION = """
[both]
pattern = ^(both|one)\\.
xFilesFactor = 0
aggregationMethod = avg, max

[max]
pattern = ^max\\.
xFilesFactor = 0
aggregationMethod = max

[avg]
pattern = .*
xFilesFactor = 0
aggregationMethod = avg
"""


@pytest.fixture
def server(make_server):
    return make_server(schemas=SCHEMAS, aggregation=AGGREGATION)


def read(server, target, now):
    """The values of the coarse stage by time, and its lineage."""
    answer = server.get(
        "/render", target=target, format="json", meta="true", **{"from": now - 2 * 3600, "until": now - 300, "now": now}
    )
    assert answer.status_code == 200, answer.text
    [series] = answer.json()["series"]
    [lineage] = series["meta"]
    values = {time: value for value, time in series["datapoints"] if value is not None}
    return values, (lineage["archive-read"], lineage["archive-interval"], lineage["consolidator-normfetch"].removesuffix("Consolidator"))


def check(server, now, sent):
    minutes = {}
    for time, value in sent.items():
        minutes.setdefault(time // 60 * 60, []).append(value)
    means = {time: pytest.approx(sum(values) / len(values)) for time, values in minutes.items()}
    largest = {time: max(values) for time, values in minutes.items()}
    average, maximum = (1, 60, "Average"), (1, 60, "Maximum")
    for target, values, lineage in [
        ("both.a", means, average),
        ("consolidateBy(both.a,'max')", largest, maximum),
        ("consolidateBy(both.a,'average')", means, average),
        # The list lacks it: the first of the list answers.
        ("consolidateBy(both.a,'min')", means, average),
        # The inner one is nearer; functions between pass it on.
        ("consolidateBy(consolidateBy(scale(both.a,1),'max'),'avg')", largest, maximum),
        ("consolidateBy(scale(both.a,1),'max')", largest, maximum),
        ("alias(consolidateBy(max.a,'avg'),'x')", largest, maximum),
        ("consolidateBy(avg.a,'max')", means, average),
    ]:
        assert read(server, target, now) == (values, lineage), target
    # A derivative means something else than its argument: it does not pass the method on.
    assert read(server, "consolidateBy(derivative(both.a),'max')", now)[1] == average
    assert read(server, "derivative(consolidateBy(both.a,'max'))", now)[1] == maximum


def test_consolidate_by_picks_a_rollup_also_after_late_points_a_restart_and_a_kill(server):
    now = aligned_now()
    sent = {}

    def send(times):
        points = {time: (time * 7919 // 10 % 1000) / 8 - 60 for time in times}
        sent.update(points)
        server.send((f"{name}.a", time, value) for name in ["both", "max", "avg"] for time, value in points.items())

    send(range(now - 3000, now - 1800, 10))
    check(server, now, sent)
    server.stop()
    server.start()
    check(server, now, sent)
    send(range(now - 1800, now - 900, 10))
    # Late points, in slots that are stored.
    send(range(now - 3300, now - 2500, 30))
    check(server, now, sent)
    server.kill()
    server.start()
    check(server, now, sent)
    server.stop()
    tables = {path.name for path in (server.data / "store").glob("datapoints_*")}
    assert {"datapoints_1440p_60s_average", "datapoints_1440p_60s_max", "datapoints_1440p_60s_aggr"} <= tables
    assert run("verify", server.data).returncode == 0
    server.start()
    check(server, now, sent)


def test_both_rollups_are_consolidated_for_fewer_points(server):
    now = aligned_now(600)
    server.send(("both.a", time, time // 10 % 100) for time in range(now - 3000, now - 1200, 10))
    span = {"from": now - 7200, "until": now, "now": now, "maxDataPoints": 12, "format": "json"}
    [largest] = server.get("/render", target="consolidateBy(both.a,'max')", **span).json()
    [mean] = server.get("/render", target="both.a", **span).json()
    largest, mean = ({time: value for value, time in series["datapoints"]} for series in (largest, mean))
    assert len(largest) == 12 and largest.keys() == mean.keys()
    assert max(value for value in largest.values() if value is not None) == 99
    assert max(value for value in mean.values() if value is not None) < 99


def test_a_change_of_the_list_keeps_what_is_stored(make_server):
    now = aligned_now()
    server = make_server(schemas=SCHEMAS, aggregation=AGGREGATION, settings='[own]\nevery = "off"\n[rules]\nreload_every = "1s"\n')
    points = {time: (time // 10 * 37 % 101) for time in range(now - 3000, now - 1800, 10)}
    server.send(("both.a", time, value) for time, value in points.items())
    largest, lineage = read(server, "consolidateBy(both.a,'max')", now)
    server.stop()
    for methods in ["max, avg", "min,max", "max"]:
        server.configure("storage-aggregation.conf", AGGREGATION.replace("avg, max", methods))
        server.start()
        values, lineage = read(server, "consolidateBy(both.a,'max')", now)
        assert (values, lineage[2]) == (largest, "Maximum"), methods
        server.stop()


def test_a_method_that_comes_into_a_list_is_made_of_points_or_the_lineage_names_the_one_that_was_there(make_server):
    server = make_server(schemas=SCHEMAS, aggregation=AGGREGATION.replace("avg, max", "avg"))
    now = aligned_now(60)
    sent = {time: (time * 7919 // 10 % 1000) / 8 - 60 for time in range(now - 3000, now - 1800, 10)}
    # Points that the first stage did not keep when they came.
    old = {time: float(time // 60 % 97) for time in range(now - 7200, now - 6000, 60)}

    def origins(target, begin, end):
        span = {"from": begin - 1, "until": end, "now": now, "format": "json", "meta": "true", "maxDataPoints": 1000}
        [series] = server.get("/render", target=target, **span).json()["series"]
        return {origin["consolidator-normfetch"].removesuffix("Consolidator") for origin in series["meta"]}

    for points in [sent, old]:
        server.send(("both.a", time, value) for time, value in points.items())
    server.stop()
    server.configure("storage-aggregation.conf", AGGREGATION)
    server.start()
    minutes = {}
    for time, value in sent.items():
        minutes.setdefault(time // 60 * 60, []).append(value)
    largest = {time: max(values) for time, values in minutes.items()}
    for stop in [None, server.kill, server.stop]:
        if stop is not None:
            server.send([("both.a", now - 2000, 500.0), ("both.a", now - 6600, 600.0)])
            stop()
            server.start()
            sent[now - 2000] = largest[(now - 2000) // 60 * 60] = 500.0
        span = {"from": now - 7500, "until": now, "now": now, "format": "json", "meta": "true"}
        [series] = server.get("/render", target="consolidateBy(both.a,'max')", **span).json()["series"]
        values = {time: value for value, time in series["datapoints"] if value is not None}
        assert {time: values[time] for time in largest} == largest
        assert {origin["consolidator-normfetch"] for origin in series["meta"]} == {"MaximumConsolidator", "AverageConsolidator"}
        assert origins("both.a", now - 7500, now) == {"Average"}
    # Of a metric whose list had the method from its first point on, lineage has one entry.
    server.send(("both.b", time, value) for time, value in old.items())
    assert origins("consolidateBy(both.b,'max')", now - 7500, now) == {"Maximum"}


def test_explain_and_the_check_of_the_configuration_show_the_list(server):
    explained = run("explain", "both.a", "--conf-dir", server.conf)
    assert "aggregation: average,max  (storage-aggregation.conf:2: [both]" in explained.stdout, explained
    assert "no effect" not in explained.stdout
    assert "so that the methods have no effect" in run("explain", "one.a", "--conf-dir", server.conf).stdout
    assert run("check-config", "--conf-dir", server.conf).returncode == 0
    for list_, problem in [("avg, max, avg", "the method average is there twice"), ("avg,most", "'most' is not an aggregation")]:
        server.configure("storage-aggregation.conf", AGGREGATION.replace("avg, max", list_))
        checked = run("check-config", "--conf-dir", server.conf)
        assert checked.returncode == 1 and problem in checked.stderr + checked.stdout, checked
