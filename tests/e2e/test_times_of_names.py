"""Searches with times leave out metrics without points in them; metrics are counted by branch, tag and value."""

import json
import os
import signal

import pytest

from plumbago import QUIET, aligned_now, eventually, run

DAY = 86_400


@pytest.fixture
def server(make_server):
    return make_server(settings=QUIET)


def send(server, now):
    server.send([("ten.web.a", now, 1.0), ("ten.web.b", now - 5 * DAY, 1.0), ("ten.old.c", now - 5 * DAY, 1.0)])
    server.send([("ten.cpu;host=new", now, 1.0), ("ten.cpu;host=old", now - 5 * DAY, 1.0)])
    eventually(lambda: len(server.get("/metrics/list").json()["Metrics"]), 3)
    eventually(lambda: server.get("/tags/findSeries", expr="name=ten.cpu").json(), ["ten.cpu;host=new", "ten.cpu;host=old"])


def texts(server, query, **times):
    return [node["id"] for node in server.get("/metrics/find", query=query, **times).json()]


def check(server, now):
    recent, past = {"from": now - 3600, "until": now}, {"from": now - 6 * DAY, "until": now - 4 * DAY}
    assert texts(server, "ten.*") == texts(server, "ten.*", **{"from": "undefined", "until": ""}) == ["ten.old", "ten.web"]
    assert texts(server, "ten.*", **recent) == ["ten.web"]
    assert texts(server, "ten.web.*", **recent) == ["ten.web.a"]
    assert texts(server, "ten.*", **past) == ["ten.old", "ten.web"]
    assert texts(server, "ten.web.*", **past) == ["ten.web.b"]
    assert server.get("/metrics/expand", query="ten.*.*", **recent).json() == {"results": ["ten.web.a"]}
    assert server.get("/metrics/index.json", **past).json() == ["ten.old.c", "ten.web.b"]
    assert server.get("/metrics/list", **recent).json() == {"Metrics": ["ten.web.a"]}
    assert server.get("/tags/findSeries", expr="name=ten.cpu", **recent).json() == ["ten.cpu;host=new"]
    assert server.get("/tags/autoComplete/values", tag="host", **past).json() == ["old"]
    bad = server.get("/tags/autoComplete/tags", **{"from": "yesterda"})
    assert bad.status_code == 400 and "yesterda" in bad.json()["error"]
    # A series without points in the times of a render is empty, not missing.
    series = server.render("ten.*.*", **recent)
    assert sorted(one["target"] for one in series) == ["ten.old.c", "ten.web.a", "ten.web.b"]


def test_searches_with_times_have_the_metrics_with_points_then_also_after_a_kill(server):
    now = aligned_now()
    send(server, now)
    check(server, now)
    server.post("/admin/flush")
    check(server, now)
    server.kill()
    server.start()
    check(server, now)


def test_stale_metrics_are_hidden_by_rules_that_come_and_change_while_the_server_runs(server):
    now = aligned_now()
    send(server, now)
    server.post("/admin/flush")

    def rules(text):
        server.configure("index-rules.conf", text)
        os.kill(server.process.pid, signal.SIGHUP)

    def drawn(**times):
        return sorted(one["target"] for one in server.render("ten.*.*", **times))

    recent, past = {"from": now - 3600, "until": now}, {"from": now - 6 * DAY, "until": now - 4 * DAY}
    assert texts(server, "ten.*") == ["ten.old", "ten.web"]
    rules("[ten]\npattern = ^ten\nmax-stale = 3d\n")
    eventually(lambda: texts(server, "ten.*"), ["ten.web"])
    assert texts(server, "ten.*", **past) == ["ten.old", "ten.web"]
    assert server.get("/tags/findSeries", expr="name=ten.cpu").json() == ["ten.cpu;host=new"]
    assert (drawn(**recent), drawn(**past)) == (["ten.web.a"], ["ten.old.c", "ten.web.a", "ten.web.b"])
    assert [one["target"] for one in server.render("ten.old.c", **recent)] == ["ten.old.c"]
    rules("[ten]\npattern = ^ten\nmax-stale = 3x\n")
    eventually(lambda: server.counter("plumbago_rules_refused"), 1)
    assert texts(server, "ten.*") == ["ten.web"]
    rules("[ten]\npattern = ^ten\nmax-stale = 0\n")
    eventually(lambda: texts(server, "ten.*"), ["ten.old", "ten.web"])
    # A deletion goes by all metrics.
    rules("[ten]\npattern = ^ten\nmax-stale = 3d\n")
    eventually(lambda: texts(server, "ten.*"), ["ten.web"])
    assert run("delete", "--http", f"127.0.0.1:{server.ports['http']}", "ten.old.*", "--yes").stdout == "deleted 1 metrics\n"


def test_metrics_are_counted_by_branch_tag_and_value(server):
    send(server, aligned_now())
    unknown = server.get("/admin/cardinality").json()["all"]
    assert unknown["metrics"] and unknown["bytes_estimate"] is None, "nothing is stored that a size could be estimated by"
    server.post("/admin/flush")
    counted = server.get("/admin/cardinality", prefix="ten").json()
    # A file of rows has some hundred bytes for a metric with a point.
    assert 100 < counted["all"]["bytes_estimate"] < 100_000 and 0 < counted["groups"][-1]["bytes_estimate"]
    assert [(group["name"], group["metrics"], group["new"], group["live"]) for group in counted["groups"]] == [
        ("ten.cpu", 2, 2, 1), ("ten.web", 2, 2, 1), ("ten.old", 1, 1, 0)
    ]
    assert (counted["all"]["metrics"], counted["tagged"]) == (5, 2)
    below = server.get("/admin/cardinality", prefix="ten.web", limit=1).json()
    assert ([group["name"] for group in below["groups"]], below["groups_not_shown"]) == (["ten.web.a"], 1)
    values = server.get("/admin/cardinality", by="tag:host").json()
    assert [group["name"] for group in values["groups"]] == ["new", "old"]
    assert server.get("/admin/cardinality", by="nothing").status_code == 400
    address = server.url("/").removeprefix("http://").rstrip("/")
    table = run("cardinality", "--tags", "--admin", address)
    assert table.returncode == 0 and "host\n" in table.stdout, table.stderr
    shown = run("cardinality", "ten.web", "--json", "--admin", address)
    assert json.loads(shown.stdout)["counted"]["metrics"] == 2
    server.get("/metrics")
    eventually(lambda: server.counter("plumbago_branch_metrics", branch="ten"), 5)
