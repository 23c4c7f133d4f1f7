"""Tags for the peers that ask this server as a tag database: graphite-web's HttpTagDB, and carbon's tagger."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphite_web import GraphiteWeb
from plumbago import QUIET, Plumbago, eventually, wait_until
from relays import carbon_cache

RECORDED = Path(__file__).parents[2] / "crates/api/tests/tag_api.jsonl"

NAMES = [
    f"requests;dc={dc};host=web-{i:02};role={role}" for dc in ["ams", "ber"] for role in ["api", "web"] for i in range(20)
] + ["load;env=é", "load;env=pre prod"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Plumbago(tmp_path_factory.mktemp("server")).start()
    now = int(time.time())
    # In a line a space would end the name.
    server.send([(name, now, 1.0) for name in NAMES], listener="pickle")
    eventually(lambda: server.get("/tags/findSeries?expr=name=~.").json(), sorted(NAMES))
    yield server
    server.stop()


def test_graphite_web_uses_the_server_as_its_tag_database(server, tmp_path):
    database = GraphiteWeb.make_database(tmp_path / "database")
    for complete_here in [True, False]:
        more = (
            "TAGDB = 'graphite.tags.http.HttpTagDB'\n"
            f"TAGDB_HTTP_URL = {server.url('')!r}\n"
            f"TAGDB_HTTP_AUTOCOMPLETE = {complete_here}\n"
            "TAGDB_CACHE_DURATION = 0\n"
        )
        web = GraphiteWeb(tmp_path / f"web-{complete_here}", database, more=more).start()
        try:
            for path in [
                "?filter=d",
                "/host?filter=web-0&limit=3",
                "/nothing",
                "/findSeries?expr=dc=ams&expr=host=~web-0",
                "/findSeries?expr=env=é",
                "/autoComplete/tags?expr=dc=ams",
                "/autoComplete/tags?tagPrefix=r",
                "/autoComplete/values?tag=host&expr=role=api&limit=5",
                "/autoComplete/values?tag=env&valuePrefix=p",
            ]:
                answer, own = web.get("/tags" + path), server.get("/tags" + path)
                assert (answer.status_code, answer.json()) == (200, own.json()), path
                assert own.json() or path == "/nothing"
            bad = web.get("/tags/findSeries?expr=dc")
            assert (bad.status_code, bad.json()) == (400, {"error": "Invalid tagspec dc"})
            doomed = f"doomed;at=here-{complete_here}"
            server.send([(doomed, int(time.time()), 1.0)], listener="pickle")
            eventually(lambda: web.get("/tags/findSeries?expr=name=doomed").json(), [doomed])
            deleted = web.http.post(web.address + "/tags/delSeries", data={"path": [doomed, "none;a=b"]}, timeout=60)
            assert (deleted.status_code, deleted.json()) == (200, True)
            assert web.get("/tags/findSeries?expr=name=doomed").json() == []
            tagged = web.http.post(web.address + "/tags/tagSeries", data={"path": "load;b=1;a=2"}, timeout=60)
            assert tagged.json() == "load;a=2;b=1"
        finally:
            web.stop()


def as_graphite_web_has_it(answer):
    """Without ids, which are another database's."""
    if isinstance(answer, dict):
        return {key: as_graphite_web_has_it(value) for key, value in answer.items() if key != "id"}
    return [as_graphite_web_has_it(one) for one in answer] if isinstance(answer, list) else answer


def test_deletions_answer_and_leave_what_graphite_web_answers_and_leaves(make_server):
    lines = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    server, now = make_server(), int(time.time())
    server.send([(name, now, 1.0) for name in lines[0]["names"]], listener="pickle")
    eventually(lambda: server.get("/tags/findSeries?expr=name=~.").json(), sorted(lines[0]["names"]))
    first = next(i for i, line in enumerate(lines) if line.get("path", "").startswith("/tags/delSeries"))
    for line in lines[first:]:
        headers = {"Content-Type": line["type"]} if "type" in line else {}
        body = line.get("body", "").encode()
        answer = server.http.request(line["method"], server.url(line["path"]), data=body, headers=headers, timeout=20)
        # A path that cannot be read is the client's mistake: docs/differences.md.
        assert answer.status_code == (400 if line["status"] == 500 else line["status"]), (line, answer.text)
        if line["answer"] and line["status"] == 200:
            assert as_graphite_web_has_it(answer.json()) == as_graphite_web_has_it(json.loads(line["answer"])), line
        elif line["answer"]:
            assert answer.json()["error"].startswith(json.loads(line["answer"])["error"].split(",")[0].strip()), line
    assert len(lines) - first > 15


TAGGER = """
import sys
from types import SimpleNamespace
from carbon import http, log
from carbon.database import TimeSeriesDatabase

log.setDebugEnabled(False)
ask = http.httpRequest

def shown(*arguments, **more):
    print(ask(*arguments, **more).decode())

http.httpRequest = shown
TimeSeriesDatabase(SimpleNamespace(GRAPHITE_URL=sys.argv[1])).tag("b;y=2;x=1", "a;t=v")
"""


def test_carbons_tagger_gets_the_canonical_names(server):
    run = subprocess.run([sys.executable, "-c", TAGGER, server.url("")], capture_output=True, text=True, timeout=60)
    assert json.loads(run.stdout.splitlines()[0]) == ["b;x=1;y=2", "a;t=v"], run.stdout + run.stderr


def test_a_carbon_cache_enters_the_tags_of_its_metrics(make_server, tmp_path):
    queries = tmp_path / "queries.jsonl"
    server = make_server(settings=QUIET + f'[log]\nqueries = "{queries}"\n')
    now = int(time.time())
    cache = carbon_cache(tmp_path, server.url(""))
    try:
        lines = [f"cpu;host=h{i};dc=ams 1 {now}\n" for i in range(250)] + [f"plain.metric 1 {now}\n"]
        cache.send("".join(lines).encode())

        def entered():
            return [line for line in map(json.loads, queries.read_text().splitlines()) if line["path"] == "/tags/tagMultiSeries"]

        # In requests of a hundred.
        wait_until(lambda: len(entered()) >= 3, 30, "carbon did not enter its tags")
        assert {(line["method"], line["status"]) for line in entered()} == {("POST", 200)}
        assert "Error tagging" not in cache.log.read_text()
    finally:
        cache.stop()
    # Their points are in whisper files: the README says that they are not found here.
    assert server.get("/tags/findSeries?expr=name=cpu").json() == []
