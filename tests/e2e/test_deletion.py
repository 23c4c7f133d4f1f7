"""Metrics that are deleted: counted first, gone from every answer, memory and disk, also after kill -9 at any moment; the
same name begins again without the old points.
"""

import json
import threading
import time

import pytest

from load import Steady
from plumbago import QUIET, aligned_now, eventually, run

FLUSHED = QUIET + '[ingest]\nflush_after = "10min"\n'


def delete(server, *arguments):
    """`plumbago delete`: its exit status, output and errors."""
    done = run("delete", "--http", f"127.0.0.1:{server.ports['http']}", *arguments)
    return done.returncode, done.stdout, done.stderr


def served(server, target):
    """The number of non-null points of a target in every format that has values."""
    counts = {}
    window = {"from": "-2h", "until": "now"}
    answer = server.get("/render", target=target, format="json", **window).json()
    counts["json"] = sum(value is not None for series in answer for value, _ in series["datapoints"])
    counts["raw"] = sum(
        value not in ("None", "") for line in server.get("/render", target=target, format="raw", **window).text.split()
        for value in line.split("|")[1].split(",")
    )
    lines = server.get("/render", target=target, format="csv", **window).text.splitlines()
    counts["csv"] = sum(bool(line) and not line.endswith(",") for line in lines)
    return counts


def test_a_glob_and_tags_name_what_is_deleted(server):
    now = aligned_now()
    server.send([(f"a.n{i}.cpu", now - 60, i) for i in range(30)] + [("a;dc=x;host=1", now - 60, 1), ("a;dc=y", now - 60, 2), ("a;dc=w;host=3", now - 60, 2)])
    eventually(lambda: len(server.find("a.*.cpu")), 30)
    status, out, _ = delete(server, "a.n1*.cpu", "--dry-run")
    assert status == 0 and out.splitlines()[-1] == "11 metrics would be deleted" and "a.n1.cpu" in out
    assert len(server.find("a.*.cpu")) == 30
    # Without a terminal to ask on, nothing happens.
    status, _, err = delete(server, "a.n1*.cpu")
    assert status == 1 and "--yes" in err and len(server.find("a.*.cpu")) == 30
    status, out, _ = delete(server, "a.n1*.cpu", "--yes", "--json")
    assert (status, json.loads(out)["deleted"], len(server.find("a.*.cpu"))) == (0, 11, 19)
    assert delete(server, "--tags", "dc=~x|z", "--yes")[1] == "deleted 1 metrics\n"
    assert server.points("a;dc=y", **{"from": now - 120}) and not server.points("a;dc=x;host=1", **{"from": now - 120})
    assert delete(server, "a;z=1;dc=u", "--dry-run")[1] == "0 metrics would be deleted\n"
    assert delete(server, "a{host=\"3\",dc=\"w\"}", "--dry-run")[1].endswith("\n1 metrics would be deleted\n")
    assert delete(server, "a;host=3;dc=w", "--yes")[1] == "deleted 1 metrics\n"
    assert server.post("/tags/delSeries", data={"path": ["a;dc=y", "a;dc=z"]}).json() is True
    assert server.post("/tags/delSeries?pretty=1", data={"path": "a"}).text == "true"
    assert server.post("/tags/delSeries", data={"pretty": "1"}).text == '{\n  "error": "no path specified"\n}'
    assert "jsonp is off" in server.post("/tags/delSeries", data={"path": "a", "jsonp": "f"}).json()["error"]
    assert not server.points("a;dc=y", **{"from": now - 120})
    assert delete(server, "nothing.*", "--yes") == (1, "", "plumbago: no metric matches nothing.*; nothing was deleted\n")
    assert delete(server, "nothing.*", "--dry-run") == (0, "0 metrics would be deleted\n", "")
    assert server.counter("plumbago_deleted_total") == 14
    for form, code in [({}, 400), ({"query": "a[b-a]" + "{" * 2000}, 422), ({"expr": "nonsense"}, 400)]:
        answer = server.post("/admin/delete", data=form)
        assert answer.status_code in (code, 200) and (code == 422 or answer.json()["error"]), answer.text
    assert server.get("/admin/delete").json() == {"metrics": 0, "metrics_done": 0}


def test_a_deletion_that_is_not_understood_deletes_nothing(server):
    now = aligned_now()
    server.send([("keep.a", now - 60, 1), ("keep.b", now - 60, 1), ("t;dc=x", now - 60, 1)])
    eventually(lambda: server.find("keep.*"), ["keep.a", "keep.b"])

    def post(path, **kwargs):
        answer = server.post(path, **kwargs)
        return answer.status_code, answer.json().get("error", "") if answer.content.startswith(b"{") else answer.text

    status, error = post("/admin/delete?query=keep.*&dryrun=1")
    assert status == 400 and "'dryrun'" in error and "query, expr, dry_run" in error
    assert post("/admin/delete", data={"query": "keep.*", "dry-run": "1"})[0] == 400
    assert post("/tags/delSeries", data={"path": "t;dc=x", "dry_run": "1"})[0] == 400
    assert post("/admin/flush?dir=x")[0] == 400
    status, error = post("/admin/backup", data={"dir": "/tmp", "proof": ".plumbago-x", "keep": "3"})
    assert status == 400 and "'keep'" in error and "dir, proof" in error
    # A question by GET is not the progress of deletions.
    answer = server.get("/admin/delete", query="keep.*")
    assert answer.status_code == 405 and "POST" in answer.json()["error"]
    # Globs find names without tags, expressions those with tags: both together look like a narrower request than they are.
    status, error = post("/admin/delete", data={"query": "keep.*", "expr": "dc=x"})
    assert status == 400 and "not both" in error
    status, _, err = delete(server, "keep.*", "--tags", "dc=x", "--yes")
    assert status == 1 and "not both" in err
    for glob in ["keep.{a,b", "keep.[a", "kee}p.*"]:
        status, _, err = delete(server, glob, "--dry-run")
        assert status == 1 and ("not closed" in err or "not opened" in err), (glob, err)
    assert server.find("keep.*") == ["keep.a", "keep.b"] and server.counter("plumbago_deleted_total") == 0


@pytest.mark.parametrize("flushed", [False, True])
def test_a_deleted_metric_is_in_no_answer_and_its_name_begins_again(make_server, flushed):
    server = make_server(settings=FLUSHED)
    now = aligned_now()
    server.send([(f"second.del.m{i}", now - 60 + j, j) for i in range(5) for j in range(20)])
    eventually(lambda: served(server, "second.del.*")["json"], 100)
    if flushed:
        assert server.post("/admin/flush").status_code == 200
    assert delete(server, "second.del.m[0-3]", "--yes")[1] == "deleted 4 metrics\n"

    def check():
        assert server.find("second.del.*") == ["second.del.m4"]
        assert served(server, "second.del.*") == {"json": 20, "raw": 20, "csv": 20}
        for name in ["second.del.m0", "second.del.m3"]:
            assert served(server, name) == {"json": 0, "raw": 0, "csv": 0}
        assert "del.m0" not in server.get("/metrics/index.json").text

    check()
    server.kill()
    server.start()
    check()
    assert server.post("/admin/flush").status_code == 200
    server.stop()
    server.start()
    check()
    server.send([("second.del.m0", now - 5, 7)])
    eventually(lambda: server.points("second.del.m0", **{"from": now - 3600}), {now - 5: 7})
    assert server.post("/admin/flush").status_code == 200
    assert server.points("second.del.m0", **{"from": now - 3600}) == {now - 5: 7}
    server.kill()
    server.start()
    assert server.points("second.del.m0", **{"from": now - 3600}) == {now - 5: 7}


@pytest.mark.parametrize("moment", [0.0, 0.01, 0.03, 0.1])
def test_kill_at_any_moment_of_a_deletion_leaves_a_metric_whole_or_gone(make_server, moment):
    server = make_server(settings=FLUSHED)
    now = aligned_now()
    names = [f"second.kill.m{i:05}" for i in range(3000)]
    server.send([(name, now - 60 + j, j) for name in names for j in range(3)])
    eventually(lambda: len(server.find("second.kill.*")), 3000, 30)
    assert server.post("/admin/flush").status_code == 200
    server.send([(name, now - 30, 9) for name in names])

    def post():
        try:
            server.post("/admin/delete", data={"query": "second.kill.*"})
        except Exception:
            pass  # It was killed.

    deleting = threading.Thread(target=post)
    deleting.start()
    time.sleep(moment)
    server.kill()
    deleting.join()
    server.start()
    left = server.find("second.kill.*")
    columns = server.columns("second.kill.*", now - 120, now) if left else {}
    whole = {now - 60 + j: j for j in range(3)} | {now - 30: 9}
    assert all(columns[name] == whole for name in left), "a metric is whole or gone"
    assert sorted(columns) == left
    # Both go on.
    server.send([(names[0], now - 5, 1)])
    expected = {**(whole if names[0] in left else {}), now - 5: 1}
    eventually(lambda: server.points(names[0], **{"from": now - 3600}), expected)


def test_points_that_come_while_metrics_are_deleted_make_new_ones(make_server):
    server = make_server(settings=FLUSHED)
    now = aligned_now()
    steady = Steady(server, "second.on", now - 3000)
    steady.run_from(0)
    for _ in range(10):
        time.sleep(0.1)
        assert delete(server, "second.on.*", "--yes")[0] == 0
        assert server.post("/admin/flush").status_code == 200
    steady.stop()
    eventually(lambda: len(server.find("second.on.*")), 50)
    before = server.columns("second.on.*", now - 3001, now)
    for name, column in before.items():
        metric = int(name[-3:])
        assert all(value == (t - steady.start) * 1000 + metric for t, value in column.items()), name
        # What came after the last deletion is there without a gap, up to the last batch.
        assert sorted(column) == list(range(min(column), max(column) + 1))
    assert max(map(max, before.values())) - min(map(max, before.values())) <= 1
    server.kill()
    server.start()
    assert server.columns("second.on.*", now - 3001, now) == before


def test_a_metric_without_points_for_long_expires_and_others_stay(make_server):
    settings = '[ingest]\nflush_after = "1s"\n[data]\nexpire_every = "1s"\n[limits]\nidle_after = "8s"\n'
    server = make_server(settings=QUIET + settings)
    # One stage of 1 s: a point is in its slot for a idle. With coarser stages a metric may stay for a coarse slot longer.
    server.send([("idle.dead", int(time.time()), 1), ("idle.live", int(time.time()), 1)])
    eventually(lambda: server.find("idle.*"), ["idle.dead", "idle.live"])

    def names():
        server.send([("idle.live", int(time.time()), 2)])
        return server.find("idle.*")

    eventually(names, ["idle.live"], 60)
    assert (server.counter("plumbago_expired_metrics_total"), server.counter("plumbago_deleted_total")) == (1, 1)
    eventually(lambda: "deleted metrics without points for long" in server.logs(), True)
    server.stop()
    server.start()
    assert server.find("idle.*") == ["idle.live"]
