"""Quotas of branches, from go-carbon's storage-quotas.conf."""

import pytest

from plumbago import QUIET, aligned_now, eventually, run

QUOTAS = """
[*]
metrics = 1,000
throughput = max

[second.*]
metrics = 3
throughput = 50
stat-metric-prefix = "level2."

[second.watched]
metrics = 1
dropping-policy = none

[/]
metrics = 10
logical-size = 5
"""


@pytest.fixture
def server(make_server, tmp_path):
    (tmp_path / "storage-quotas.conf").write_text(QUOTAS)
    return make_server(settings=QUIET + f'[limits]\nquotas = "{tmp_path}/storage-quotas.conf"\nprefixes = "second.lab.=2/100"\n')


def names(server):
    return sorted(server.get("/metrics/index.json").json())


def branches(server):
    return {branch["branch"]: branch for branch in server.get("/admin/status").json()["quotas"]}


def test_each_branch_has_its_own_number_of_metrics(server):
    now = aligned_now()
    sent = [f"second.{branch}.m{i}" for branch in ["a", "b", "watched", "lab"] for i in range(4)]
    for name in sent:
        server.send([(name, now, 1.0)])
    expected = [f"second.{branch}.m{i}" for branch, count in [("a", 3), ("b", 3), ("watched", 4)] for i in range(count)]
    eventually(lambda: names(server), sorted(expected))
    # Ten of all names: lab has none.
    assert server.rejected("too_many_metrics") == len(sent) - len(expected)
    limits = {reject["limit"] for reject in server.rejects()}
    assert {"limits.quotas: metrics = 3 of second.a.*", "limits.quotas: metrics = 10 of all names"} <= limits
    shown = branches(server)
    assert (shown["second.a"]["metrics"], shown["second.a"]["metrics_limit"], shown["second.a"]["metrics_beyond"]) == (3, 3, 1)
    assert shown["second.watched"]["only_reports"] and shown["second.watched"]["metrics_beyond"] == 3
    assert shown[""]["metrics"] == 10 and shown["second.lab."]["metrics"] == 0
    assert server.counter("plumbago_quota_metrics", branch="second.b") == 3
    assert server.counter("plumbago_quota_beyond_total", branch="second.b", what="metrics") == 1
    assert "'logical-size' has no effect" in server.logs()
    # Deleted metrics make room, and a restart counts again.
    assert server.post("/admin/delete", data={"query": "second.a.*"}).status_code == 200
    eventually(lambda: branches(server).get("second.a", {}).get("metrics", 0), 0)
    server.stop()
    server.start()
    assert branches(server)["second.b"]["metrics"] == 3
    server.send([("second.a.again", now, 1.0)])
    eventually(lambda: "second.a.again" in names(server), True)


def test_points_beyond_the_number_of_a_minute_are_rejected(server):
    now = aligned_now()
    server.send([("second.a.m", now, 1.0)])
    server.send([("second.other.m", now, 1.0)])
    eventually(lambda: len(names(server)), 2)
    before = server.counter_of_points()
    server.send([("second.a.m", now - i, 1.0) for i in range(300)])
    eventually(lambda: server.rejected("over_quota") + server.counter_of_points() - before, 300)
    # Fifty, and as many again where a minute ended meanwhile.
    assert server.rejected("over_quota") >= 200
    rejected = server.rejected("over_quota")
    server.send([("second.other.m", now - i, 1.0) for i in range(20)])
    eventually(lambda: server.counter_of_points() - before >= 20, True)
    assert server.rejected("over_quota") == rejected
    assert branches(server)["second.a"]["points_beyond"] == rejected


def test_an_invalid_file_refuses_the_start(tmp_path):
    quotas, config = tmp_path / "quotas", tmp_path / "plumbago.toml"
    config.write_text(QUIET + f'[limits]\nquotas = "{quotas}"\n')
    assert "limits.quotas" in run("check-config", "--config", config).stderr
    quotas.write_text("[a]\nmetrics = many\n")
    done = run("check-config", "--config", config)
    assert done.returncode == 1 and "storage-quotas.conf:2" in done.stderr and "'many' must be" in done.stderr
    quotas.write_text(QUOTAS)
    assert run("check-config", "--config", config).returncode == 0


def test_a_changed_file_is_in_force_without_a_restart(make_server, tmp_path):
    quotas = tmp_path / "storage-quotas.conf"
    quotas.write_text("[*]\nmetrics = 2\n")
    server = make_server(settings=QUIET + f'[limits]\nquotas = "{quotas}"\n[rules]\nreload_every = "1s"\n')
    now = aligned_now()
    for i in range(3):
        server.send([(f"web-1.m{i}", now, 1.0)])
    eventually(lambda: server.rejected("too_many_metrics"), 1)
    quotas.write_text("[*]\nmetrics = many\n")
    eventually(lambda: "the old quotas stay in force" in server.logs(), True)
    server.send([("web-1.m4", now, 1.0)])
    eventually(lambda: server.rejected("too_many_metrics"), 2)
    quotas.write_text("[{web,db}-[0-9]]\nmetrics = 9\nnamespaces = 1\n[db-*]\nmetrics = 1\ndropping-policy = all\n")
    eventually(lambda: "the new quotas are in force" in server.logs(), True)
    for name in ["web-1.m4", "web-1.dir.m", "web-1.other.m", "db-1.a"]:
        server.send([(name, now, 1.0)])
    eventually(lambda: names(server), ["db-1.a", "web-1.dir.m", "web-1.m0", "web-1.m1", "web-1.m4"])
    assert "limits.quotas: namespaces = 1 of web-1.*" in {reject["limit"] for reject in server.rejects()}

    def is_shut():
        # One more shuts the branch for the rest of the minute.
        server.send([("db-1.b", now, 1.0)])
        server.send([("db-1.a", now, 1.0)])
        return 0 < server.rejected("over_quota")

    eventually(is_shut, True)
    assert branches(server)["web-1"]["namespaces"] == 1
