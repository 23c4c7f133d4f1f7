"""HTTP as clients use it: compression, callbacks, forms, clients that go away, limits, and Grafana's own requests."""

import gzip
import json
import os
import re
import socket
import threading
import time

import pytest

from plumbago import QUIET, Plumbago, aligned_now, eventually, wait_until

HOSTS = [f"host{i:02}" for i in range(20)]


def fill(server):
    """Twenty hosts with ten minutes of seconds each, ending a minute ago."""
    start = aligned_now() - 660
    server.send([(f"second.{host}.load", start + i, i + h / 4) for h, host in enumerate(HOSTS) for i in range(600)])
    last = f"second.{HOSTS[-1]}.load"
    eventually(lambda: len(server.points(last, **{"from": start - 1, "until": start + 600})), 600)
    return start


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    server = Plumbago(tmp_path_factory.mktemp("http"), settings=QUIET + "[http]\njsonp = true\n").start()
    server.begin = fill(server)
    yield server
    server.stop()


def window(server):
    return {"from": server.begin - 1, "until": server.begin + 599}


# Forms of a request.


def test_get_and_every_form_of_post_give_the_same_answer(filled):
    question = {"target": "second.*.load", "format": "json", **window(filled)}
    expected = filled.get("/render", **question)
    assert len(expected.json()) == 20
    as_multipart = {key: (None, str(value)) for key, value in question.items()}
    in_url = {key: question.pop(key) for key in ["format", "from"]}
    answers = [
        filled.post("/render", data={**question, **in_url}),
        filled.post("/render/", data={**question, **in_url}),
        filled.post("/render", files=as_multipart),
        filled.post("/render", params=in_url, data=question),
    ]
    for answer in answers:
        assert (answer.status_code, answer.content) == (200, expected.content)


def test_targets_of_the_url_come_before_those_of_the_body(filled):
    answer = filled.post(
        "/render",
        params={"target": "second.host03.load", "format": "json", **window(filled)},
        data={"target": ["second.host01.load", "second.host02.load"]},
    )
    assert [s["target"] for s in answer.json()] == [f"second.host{i}.load" for i in ["03", "01", "02"]]


@pytest.mark.parametrize(
    "path", ["/render", "/metrics/find", "/metrics/expand", "/metrics/index.json", "/version", "/functions"]
)
def test_a_trailing_slash_changes_nothing(filled, path):
    question = {
        "target": "second.host01.load",
        "query": "*",
        "format": "treejson" if "find" in path else "json",
        **window(filled),
    }
    without, with_slash = filled.get(path, **question), filled.get(path + "/", **question)
    assert without.status_code == with_slash.status_code == 200
    assert without.content == with_slash.content


def raw(server, data, timeout=10):
    """Bytes to the HTTP port, and everything that comes back until it closes."""
    with socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=timeout) as connection:
        connection.sendall(data)
        said = b""
        while chunk := connection.recv(65536):
            said += chunk
        return said


def test_http_1_0_and_head(filled):
    said = raw(filled, b"GET /version HTTP/1.0\r\n\r\n")
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.") and b" 200 " in head.splitlines()[0]
    assert re.fullmatch(rb"\d+\.\d+\.\d+\n", body)
    assert filled.http.head(filled.url("/version")).status_code == 200


def test_requests_on_one_connection_are_answered_in_order(filled):
    ask = b"GET /metrics/expand?query=second.%s.load HTTP/1.1\r\nHost: x\r\n%s\r\n"
    pipelined = b"".join(ask % (host.encode(), b"") for host in HOSTS[:-1]) + ask % (
        HOSTS[-1].encode(),
        b"Connection: close\r\n",
    )
    said = raw(filled, pipelined).decode()
    assert re.findall(r'"second\.(host\d\d)\.load"', said) == HOSTS


# Compression, callbacks, cache headers.


def test_long_answers_are_gzipped_for_clients_that_accept_it(filled):
    question = {"target": "second.*.load", "format": "json", **window(filled)}
    plain = filled.http.get(filled.url("/render"), params=question, headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    with filled.http.get(filled.url("/render"), params=question, headers={"Accept-Encoding": "gzip"}, stream=True) as packed:
        assert packed.headers["Content-Encoding"] == "gzip"
        body = packed.raw.read(decode_content=False)
    assert gzip.decompress(body) == plain.content
    assert len(body) < len(plain.content) / 3
    refused = filled.http.get(filled.url("/render"), params=question, headers={"Accept-Encoding": "gzip;q=0"})
    assert "Content-Encoding" not in refused.headers


def test_short_answers_are_not_gzipped(filled):
    answer = filled.http.get(filled.url("/version"), headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in answer.headers


def test_jsonp(filled):
    question = {"target": "second.host01.load", "format": "json", **window(filled)}
    plain = filled.get("/render", **question)
    called = filled.get("/render", jsonp="my.callback", **question)
    assert called.text == f"my.callback({plain.text})"
    assert called.headers["Content-Type"].startswith("text/javascript")


def test_cache_headers(filled):
    question = {"target": "second.host01.load", "format": "json", **window(filled)}
    assert "max-age=60" in filled.get("/render", **question).headers["Cache-Control"]
    assert "no-cache" in filled.get("/render", noCache="1", **question).headers["Cache-Control"]
    assert "no-cache" in filled.get("/metrics/find", query="*").headers["Cache-Control"]


# Errors are clear.


@pytest.mark.parametrize(
    "path, params, status, says",
    [
        ("/nowhere", {}, 404, ""),
        ("/render", {"target": "noSuchFunction(a)", "format": "json"}, 400, "noSuchFunction"),
        ("/render", {"target": "scale(second.*.load)", "format": "json"}, 400, "factor"),
        ("/render", {"target": "scale(second.*.load,'x')", "format": "json"}, 400, "factor"),
        ("/render", {"target": "second.*.load", "from": "whenever", "format": "json"}, 400, "whenever"),
        ("/render", {"target": "second.*.load", "from": "now", "until": "now", "format": "json"}, 400, "empty time range"),
        ("/metrics/find", {}, 400, "query"),
    ],
)
def test_an_invalid_request_gets_the_reason(filled, path, params, status, says):
    if path == "/metrics/find":
        answer = filled.get(path, **params, format="json")
    else:
        answer = filled.get(path, **params)
    assert answer.status_code == status
    assert says.lower() in answer.text.lower()


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /render?target=%zz&format=json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"POST /render HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        b"POST /render HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /render HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
        b"GET / HTTP/1.1\r\n" + b"A: " + b"b" * 200_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=lambda data: data[:30].decode(errors="replace"),
)
def test_invalid_http_is_rejected_and_the_server_continues(filled, data):
    with socket.create_connection(("127.0.0.1", filled.ports["http"]), timeout=10) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            said = connection.recv(65536)
        except OSError:
            # A closed connection is an answer too.
            said = b""
    assert not said.startswith(b"HTTP/1.1 5"), said[:500]
    assert filled.get("/version").status_code == 200


DEEP = 100_000

NASTY_TARGETS = {
    "deep calls": "scale(" * DEEP + "a" + ",1)" * DEEP,
    "deep braces": "{" * DEEP,
    "nested braces": "second." + "{a,b}" * 200,
    "many stars": "second." + "*" * 5000 + "x",
    "alternating": "*a" * 2000,
    "double stars": "**." * 500 + "x",
    "pipes": "a" + "|scale(1)" * 20_000,
    "long path": "a." * 50_000 + "b",
    "a bad class": "second.[z-a]*",
    "an open class": "second.[",
    "an open quote": "alias(second.host01.load,'",
    "nul": "second.\0",
    "a bad regex": "aliasSub(second.*.load,'(','x')",
    "a costly regex": "aliasSub(second.*.load,'(a+)+$','x')",
    "huge number": "scale(second.host01.load,1e999)",
    "huge window": "movingAverage(second.host01.load,999999999999)",
    "huge interval": "summarize(second.host01.load,'99999999999y')",
    "zero interval": "summarize(second.host01.load,'0s')",
    "huge shift": "timeShift(second.host01.load,'9999999999d')",
}


@pytest.mark.parametrize("name", NASTY_TARGETS)
def test_nasty_targets_are_answered_quickly_and_without_harm(filled, name):
    began = time.monotonic()
    answer = filled.post("/render", data={"target": NASTY_TARGETS[name], "format": "json", **window(filled)})
    assert time.monotonic() - began < 5
    assert answer.status_code in (200, 400, 413, 414, 422), answer.text[:300]
    assert filled.process.poll() is None
    began = time.monotonic()
    answer = filled.post("/metrics/find", data={"query": NASTY_TARGETS[name]})
    assert time.monotonic() - began < 5
    assert answer.status_code in (200, 400, 413, 414, 422), answer.text[:300]


@pytest.mark.parametrize(
    "times", [("0", "99999999999"), ("-99999999y", "now"), ("99999999999999999999", "now"), ("-1d", "+99999y")]
)
def test_extreme_times_are_answered(filled, times):
    answer = filled.get("/render", target="second.host01.load", format="json", **{"from": times[0], "until": times[1]})
    assert answer.status_code in (200, 400)
    assert filled.get("/version").status_code == 200


# Limits.


def test_a_query_of_too_many_series_is_rejected(make_server):
    server = make_server(settings=QUIET + "[query]\nmax_series = 10\n")
    server.begin = fill(server)
    many = server.get("/render", target="second.*.load", format="json", **window(server))
    assert many.status_code == 422 and "10" in many.text
    few = server.get("/render", target="second.host0[1-9].load", format="json", **window(server))
    assert few.status_code == 200 and len(few.json()) == 9


def test_a_query_of_too_many_points_reads_a_coarser_stage_before_it_is_rejected(make_server):
    server = make_server(settings=QUIET + "[query]\nmax_points = 5000\n")
    server.begin = fill(server)
    # 20 series of 600 seconds are 12,000 points; at ten seconds a point they are 1,200.
    answer = server.get("/render", target="second.*.load", format="raw", **window(server))
    assert answer.status_code == 200
    assert {line.split("|")[0].split(",")[-1] for line in answer.text.splitlines()} == {"10"}
    too_many = server.get("/render", target="second.*.load", format="json", **{"from": "-7d"})
    assert too_many.status_code == 422 and "5000" in too_many.text


def test_a_query_that_takes_too_long_is_ended(make_server):
    server = make_server(settings=QUIET + '[query]\ntimeout = "1ms"\n')
    fill_quickly = [(f"second.many.m{i}", aligned_now() - 60, 1.0) for i in range(20_000)]
    server.send(fill_quickly)
    wait_until(lambda: server.counter_of_points() >= 20_000, 20)
    answer = server.get("/render", target="movingMedian(second.many.*,500)", format="json", **{"from": "-1h"})
    assert answer.status_code == 422, answer.text[:200]
    assert server.get("/version").status_code == 200


def test_clients_that_go_away_stop_the_work(make_server):
    server = make_server()
    start = aligned_now() - 3600
    server.send([(f"second.heavy.m{m}", start + i * 30, float(i)) for m in range(500) for i in range(100)])
    wait_until(lambda: server.counter_of_points() >= 50_000, 30)
    heavy = "/render?target=movingMedian(second.heavy.*,600)&from=-1h&format=json&noCache=1"
    before = cpu_seconds(server)
    assert server.http.get(server.url(heavy), timeout=60).status_code == 200
    one = cpu_seconds(server) - before
    before = cpu_seconds(server)
    asked = 100
    for _ in range(asked):
        with socket.create_connection(("127.0.0.1", server.ports["http"])) as connection:
            connection.sendall(f"GET {heavy} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            # Enough for the server to read the request; an answer takes longer.
            time.sleep(0.02)

    def is_idle():
        used = cpu_seconds(server)
        time.sleep(0.5)
        return cpu_seconds(server) - used < 0.05

    wait_until(is_idle, 60, "the work continues without a client")
    assert cpu_seconds(server) - before < one * asked / 3
    assert server.get("/version").status_code == 200
    assert server.counter("plumbago_http_requests_cancelled_total", path="render") > 0


def cpu_seconds(server):
    """CPU time the server's process has used."""
    fields = open(f"/proc/{server.process.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_many_clients_at_once(filled):
    expected = filled.render("sumSeries(second.*.load)", **window(filled))
    failures = []

    def ask():
        try:
            for _ in range(10):
                # Not the shared session: each client has its own connection.
                with socket.create_connection(("127.0.0.1", filled.ports["http"]), timeout=30) as connection:
                    path = f"/render?target=sumSeries(second.*.load)&format=json&from={filled.begin - 1}&until={filled.begin + 599}"
                    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
                    said = b""
                    while chunk := connection.recv(1 << 20):
                        said += chunk
                head, _, body = said.partition(b"\r\n\r\n")
                assert b" 200 " in head.splitlines()[0]
                if b"chunked" in head.lower():
                    body = dechunk(body)
                assert json.loads(body) == expected
        except Exception as error:  # noqa: BLE001 - the main thread reports it
            failures.append(error)

    clients = [threading.Thread(target=ask) for _ in range(40)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert not failures, failures[0]


def dechunk(body):
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        whole += body[:length]
        body = body[length + 2 :]
    return whole


# Grafana.


GRAFANA = {
    "X-Dashboard-Id": "12",
    "X-Panel-Id": "3",
    "X-Grafana-Org-Id": "1",
    "User-Agent": "Grafana/11.0",
    "Accept": "application/json, text/plain, */*",
}


def test_grafana_panel_query(filled):
    body = {
        "target": [
            r'aliasSub(aliasByNode(second.host0[12].load, 1), "(^.*$)", "\1 A")',
            r'aliasSub(sumSeries(second.*.load), "(^.*$)", "\1 B")',
        ],
        "from": f"{filled.begin - 1}",
        "until": f"{filled.begin + 599}",
        "format": "json",
        "maxDataPoints": "100",
    }
    answer = filled.post("/render", data=body, headers=GRAFANA)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("application/json")
    series = answer.json()
    assert [s["target"] for s in series] == ["host01 A", "host02 A", "sumSeries(second.*.load) B"]
    for one in series:
        assert isinstance(one["tags"], dict)
        assert 0 < len(one["datapoints"]) <= 100
        assert all(isinstance(t, int) for _, t in one["datapoints"])


def test_grafana_relative_times(filled):
    body = {"target": "second.host01.load", "from": "-6h", "until": "now", "format": "json", "maxDataPoints": "1000"}
    assert filled.post("/render", data=body, headers=GRAFANA).json()[0]["target"] == "second.host01.load"


def test_grafana_health_check(filled):
    now = int(time.time())
    body = {
        "target": "constantLine(100)",
        "from": str(now - 3600),
        "until": str(now),
        "format": "json",
        "maxDataPoints": "300",
    }
    answer = filled.post("/render", data=body, headers=GRAFANA)
    assert answer.status_code == 200
    (line,) = answer.json()
    assert {value for value, _ in line["datapoints"]} == {100.0}


def test_grafana_find_with_a_body_that_is_not_encoded(filled):
    url = filled.url(f"/metrics/find?from={filled.begin}&until={filled.begin + 600}")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for query in ["second.*", "second.{host01,host02}.*", "second.host0[1-3].load"]:
        answer = filled.http.post(url, data=f"query={query}", headers={**GRAFANA, **form})
        assert answer.status_code == 200
        nodes = answer.json()
        assert nodes and all({"text", "id", "expandable", "leaf", "allowChildren"} <= set(node) for node in nodes)
    answer = filled.http.get(filled.url("/metrics/find"), params={"query": "second.*"}, headers=GRAFANA)
    assert [node["text"] for node in answer.json()] == HOSTS


def test_grafana_expand_variable(filled):
    answer = filled.get("/metrics/expand", query="second.host0[1-3].load", **window(filled))
    assert answer.json() == {"results": [f"second.host0{i}.load" for i in (1, 2, 3)]}


def test_grafana_function_list(filled):
    functions = filled.get("/functions").json()
    for name in ["sumSeries", "aliasByNode", "aliasSub", "movingAverage", "scale", "groupByNode"]:
        one = functions[name]
        assert one["name"] == name and one["function"].startswith(f"{name}(") and one["group"] and one["description"]
        assert all({"name", "type"} <= set(param) for param in one["params"])
        assert filled.get(f"/functions/{name}").json() == one
    assert filled.get("/functions/noSuch").status_code == 404
    assert functions["scale"]["params"][0]["type"] in ("seriesList", "seriesLists")


def test_grafana_version(filled):
    assert re.fullmatch(r"1\.1\.\d+\n?", filled.get("/version").text)


def test_grafana_tags_and_annotations_are_answered_though_empty(filled):
    assert isinstance(filled.get("/tags/autoComplete/tags", limit=10000).json(), list)
    assert isinstance(filled.get("/tags/autoComplete/values", tag="host").json(), list)
    assert filled.get("/events/get_data", **{"from": "-1h", "until": "now", "tags": "deploy"}).json() == []


# The program's own pages.


def test_metrics_are_prometheus_text(filled):
    text = filled.get("/metrics").text
    assert re.search(r"^# TYPE \w+ (counter|gauge|histogram)$", text, re.MULTILINE)
    assert filled.counter_of_points() >= 12_000


def test_liveness_and_readiness(filled):
    assert filled.get("/ready").status_code == 200
    assert filled.get("/healthy").status_code == 200


def test_the_root_is_a_page(filled):
    answer = filled.get("/")
    assert answer.status_code == 200 and answer.headers["Content-Type"].startswith("text/html")


def test_own_metrics_are_stored_under_carbons_names(make_server):
    server = make_server(
        settings='[own]\nevery = "1s"\nhost = "here"\n', schemas="[all]\npattern = .*\nretentions = 1s:1h\n"
    )
    server.send([("some.metric", aligned_now() - 30, 1.0)])
    wait_until(lambda: "carbon.agents.here-a.metricsReceived" in server.find("carbon.agents.*.*"), 15)
    wait_until(lambda: server.points("carbon.agents.here-a.metricsReceived", **{"from": "-5min"}), 10)
