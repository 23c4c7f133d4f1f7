"""Logs of requests: queries, slow queries, and the audit of writes, administration and refused clients."""

import json
import socket
import time

import pytest
import requests

from plumbago import QUIET, Plumbago, aligned_now, eventually, run, wait_until


class Logged:
    def __init__(self, folder, more=""):
        self.folder = folder
        tokens = folder / "tokens.toml"
        done = run("token", "add", "ops", "--scope", "read,write,events,admin", "--file", tokens)
        assert done.returncode == 0, done.stderr
        settings = QUIET + f'[http]\ntokens = "{tokens}"\n[log]\nqueries = "{folder}/queries"\naudit = "{folder}/audit"\n'
        settings += f'slow_queries = "{folder}/slow"\nslow_after = "0s"\n[query]\nmax_points = 10\n'
        self.server = Plumbago(folder / "server", settings=settings)
        self.server.http.headers["Authorization"] = "Bearer " + done.stdout.strip()
        self.server.start()

    def lines(self, name):
        text = (self.folder / name).read_text()
        return [json.loads(line) for line in text.splitlines() if text.endswith("\n")]

    def last(self, name, **values):
        """The last line with these values, once there is one."""
        def found():
            return [line for line in self.lines(name) if values.items() <= line.items()]
        wait_until(found, 10, f"no line with {values}")
        return found()[-1]


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    logged = Logged(tmp_path_factory.mktemp("logged"))
    logged.now = aligned_now()
    logged.server.send([("second.a", logged.now - i, 1.0) for i in range(30)])
    eventually(lambda: logged.server.find("second.*"), ["second.a"])
    yield logged
    logged.server.stop()


def test_a_query_has_a_line_with_its_sender_its_cost_and_grafanas_panel(logged):
    headers = {"X-Dashboard-Uid": "dash-1", "X-Panel-Id": "7", "X-Grafana-Org-Id": "3"}
    data = {"target": "second.a", "from": logged.now - 6, "until": logged.now, "format": "json"}
    answer = logged.server.post("/render", data=data, headers=headers)
    assert answer.status_code == 200
    line = logged.last("queries", dashboard="dash-1")
    assert (line["kind"], line["who"], line["method"], line["asked"], line["status"]) == ("render", "ops", "POST", "second.a", 200)
    assert (line["panel"], line["org"], line["series"], line["whole"]) == ("7", "3", 1, True)
    assert line["bytes"] == len(answer.content) and line["points"] >= 6 and 0 <= line["seconds"] <= line["sent_seconds"] < 10
    assert line["address"].startswith("127.0.0.1:") and line["time"].endswith("Z")
    assert logged.last("slow", dashboard="dash-1") == line
    # Grafana's pages have another header than its backend.
    logged.server.post("/render", data=data, headers={"X-Dashboard-Id": "dash-2", "X-Panel-Id": "8"})
    assert logged.last("queries", dashboard="dash-2")["panel"] == "8"


def test_the_limit_that_was_met_is_named(logged):
    answer = logged.server.get("/render", target="second.a", **{"from": logged.now - 7200, "until": logged.now})
    assert answer.status_code == 422
    assert logged.last("queries", status=422)["limit"] == "query.max_points"


def test_one_line_is_one_line_of_a_bounded_length(logged):
    before = len(logged.lines("queries"))
    target = "x\n\r\u2028" + '{"time":"forged"}\n' * 1000
    logged.server.post("/render", data={"target": target}, headers={"X-Dashboard-Uid": "d" * 5000})
    logged.server.get("/nowhere" + "y" * 5000)
    wait_until(lambda: len(logged.lines("queries")) == before + 2, 10)
    long, path = logged.lines("queries")[-2:]
    assert len(long["asked"].encode()) <= 200 and long["asked_bytes"] == len(target.encode()) and len(long["dashboard"]) == 200
    assert len(path["path"]) == 200 and path["status"] == 404
    assert max(len(line) for line in (logged.folder / "queries").read_text().splitlines()) < 2000


def test_writes_and_administration_are_in_the_audit(logged):
    server = logged.server
    assert server.post("/ingest", data=f"second.b 1 {logged.now}\nnonsense\n").status_code == 200
    line = logged.last("audit", path="/ingest")
    assert (line["who"], line["points"], line["rejected"], line["status"]) == ("ops", 1, 1, 200)
    server.post("/events/", data='{"what": "x"}')
    assert logged.last("audit", kind="events")["status"] == 200
    server.post("/admin/flush")
    server.post("/tags/delSeries", data={"path": "second.none"})
    for path in ["/admin/flush", "/tags/delSeries"]:
        assert logged.last("audit", path=path)["who"] == "ops"
    assert logged.last("audit", path="/tags/delSeries")["asked"] == "path=second.none"
    server.post("/admin/delete", data={"query": "second.none*", "dry_run": "1"})
    assert logged.last("audit", path="/admin/delete")["asked"] == "query=second.none* dry_run=1"
    server.post("/admin/backup", data={"dir": "/none", "proof": ".plumbago-secret"})
    assert logged.last("audit", path="/admin/backup")["asked"] == "dir=/none"
    answer = server.post("/admin/delete_events", data={"from": "0", "until": str(logged.now + 60)})
    assert answer.json() == {"events": 1, "deleted": 1, "dry_run": False}
    assert logged.last("audit", path="/admin/delete_events")["asked"] == f"from=0 until={logged.now + 60}"
    assert all(line["path"] not in ("/healthy", "/ready", "/metrics") for line in logged.lines("audit") + logged.lines("queries"))
    assert (logged.folder / "audit").stat().st_mode & 0o077 == 0


def test_refused_clients_have_few_lines_that_count_the_others(logged):
    count = 300
    for _ in range(count):
        assert requests.get(logged.server.url("/render?target=a"), timeout=10).status_code == 401
    wait_until(lambda: logged.last("audit", status=401), 10)
    time.sleep(1.2)
    requests.get(logged.server.url("/render?target=a"), timeout=10)

    def counted():
        lines = [line for line in logged.lines("audit") if line["status"] == 401]
        return len(lines) + sum(line.get("refused_without_a_line", 0) for line in lines)

    eventually(counted, count + 1)
    assert not any(line["status"] == 401 for line in logged.lines("queries"))


def test_requests_whose_head_cannot_be_read_are_counted(logged):
    def count():
        return logged.server.counter("plumbago_http_requests_unreadable_total")

    before = count()
    with logged.server.connect("http") as client:
        client.sendall(b"GET / HTTP/9.9\r\n\r\n")
        assert b" 400 " in client.recv(100)
    eventually(count, before + 1)


def test_a_log_may_be_moved_away_at_any_time(logged):
    (logged.folder / "queries").rename(logged.folder / "queries.1")
    logged.server.get("/metrics/find", query="moved.*")
    wait_until(lambda: (logged.folder / "queries").exists(), 10)
    assert logged.last("queries", asked="moved.*")["kind"] == "find"


def test_a_log_that_cannot_be_written_refuses_the_start(tmp_path):
    config = tmp_path / "plumbago.toml"
    config.write_text(QUIET + f'[log]\nqueries = "{tmp_path}/none/queries"\n[listen]\nline = "off"\npickle = "off"\nhttp = "127.0.0.1:0"\n')
    done = run("serve", "--config", config, "--data", tmp_path / "data")
    assert done.returncode == 1 and "log.queries" in done.stderr
