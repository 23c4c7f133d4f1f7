#!/usr/bin/env python3
"""Records what graphite-web 1.1.10 answers to the requests of this list, over whisper files, into recorded.jsonl.

    tests/install-peers                       (once, in the root of the repository)
    tests/.cache/venv/bin/python crates/api/tests/record.py

The first line of recorded.jsonl holds the metrics; each other line holds a request and its answer. Every time is
fixed, so that recording again changes nothing. What differs from one machine to the next (a find's intervals, which
are the ages of files) is replaced by [0, NOW].
"""

import json
import os
import pickle
import re
import sys
import tempfile
from urllib.parse import urlencode

NOW = 1700000000  # 2023-11-14 22:13:20 UTC
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../../tests"))
import graphite_web


def wave(seed, count, step):
    """Values that look like a gauge's, with holes."""
    values = {}
    state = seed
    for i in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        if state % 11 < 8:
            values[NOW - NOW % step - i * step] = [state % 1000 / 10.0, float(state % 97), state / 7.0][state % 3]
    return values


def ladder(values, step):
    first = NOW - NOW % step
    return {first - i * step: value for i, value in enumerate(values)}


INF = float("inf")
METRICS = {
    # name: (step, points kept, values by time)
    "servers.a.cpu": (60, 1440, wave(1, 120, 60)),
    "servers.b.cpu": (60, 1440, wave(2, 120, 60)),
    "servers.a.load": (60, 1440, wave(3, 120, 60)),
    "servers.a.disk.sda": (60, 1440, wave(4, 10, 60)),
    "fine.a": (10, 2160, wave(5, 360, 10)),
    "hourly.a": (3600, 720, wave(6, 100, 3600)),
    "never.written": (60, 1440, {}),
    "both": (60, 1440, wave(7, 5, 60)),
    "both.child": (60, 1440, wave(8, 5, 60)),
    "odd.per%20cent+plus": (60, 1440, wave(9, 3, 60)),
    "odd.ünïcode": (60, 1440, wave(10, 3, 60)),
    'odd.quo"ted': (60, 1440, wave(11, 3, 60)),
    "deep.er.still.down.leaf": (60, 1440, wave(12, 3, 60)),
    "numbers.odd": (
        60,
        1440,
        ladder(
            [0.0, -0.0, 1e16, 1e15, 123456789.123, 0.1 + 0.2, 1e-4, 1e-5, -1.5e-7, 5e-324, 1.7976931348623157e308,
             INF, -INF, 1 / 3, 100.0, -2.5, 9007199254740993.0, 1e22],
            60,
        ),
    ),
}

FORMATS = ["json", "csv", "raw", "pickle", "msgpack", "dygraph", "rickshaw"]


def cases():
    def render(**params):
        return {"path": "/render?" + urlencode({"now": NOW, **params}, doseq=True)}

    for form in FORMATS:
        yield render(target="servers.a.cpu", **{"from": "-10min"}, format=form)
        yield render(target=["servers.*.cpu", "servers.a.load", "servers.a.cpu"], **{"from": "-5min"}, format=form)
        yield render(target="numbers.odd", **{"from": "-20min"}, format=form)
        yield render(target="no.such.metric", format=form)
        yield render(target="never.written", **{"from": "-3min"}, format=form)
        yield render(target="odd.*", **{"from": "-3min"}, format=form)
        yield render(target="servers.a.cpu", **{"from": "-3min"}, format=form, pretty="1")
        yield render(target="servers.a.cpu", **{"from": "-3min"}, format=form, jsonp="callback")
        yield render(format=form)
        yield render(target="", format=form)
        yield render(target="constantLine(100)", **{"from": "-1h"}, format=form)
        yield render(target="sumSeries(servers.*.cpu)", **{"from": "-3min"}, format=form, xFilesFactor="0.5")
    yield render(target="servers.*.cpu", **{"from": "-3min"}, format="json", pretty="1", noNullPoints="1")
    yield render(target="servers.*.cpu", **{"from": "-30min"}, format="json", noNullPoints="")
    yield render(target=["never.written", "servers.a.cpu"], **{"from": "-30min"}, format="json", noNullPoints="1")
    yield render(target="never.written", **{"from": "-30min"}, format="json", noNullPoints="1")
    yield render(target="never.written", **{"from": "-30min"}, format="json", noNullPoints="1", pretty="1")
    for most in ["1", "2", "3", "7", "29", "30", "100", "-5", "9.5", "abc", ""]:
        yield render(target=["servers.*.cpu", "fine.a"], **{"from": "-30min"}, format="json", maxDataPoints=most)
    yield render(target="servers.*.cpu", **{"from": "-30min"}, format="json", maxDataPoints="7", xFilesFactor="0.8")
    yield render(target="servers.*.cpu", **{"from": "-30min"}, format="json", maxDataPoints="7", noNullPoints="1")
    yield render(target="servers.*.cpu", **{"from": "-30min"}, format="csv", maxDataPoints="3")
    yield render(target="hourly.a", **{"from": "-5h"}, format="csv", tz="Europe/Berlin")
    yield render(target="hourly.a", **{"from": "-5h"}, format="csv", tz="America/Chicago")
    yield render(target="hourly.a", **{"from": "-5h"}, format="csv", tz="Nowhere/Else")
    yield render(target="hourly.a", **{"from": "midnight", "until": "noon"}, format="raw", tz="Europe/Berlin")
    yield render(target="hourly.a", **{"from": "noon yesterday", "until": "12:00_20231114"}, format="raw")
    yield render(target="servers.a.cpu", **{"from": NOW, "until": NOW - 120}, format="raw")
    yield render(target="servers.a.cpu", **{"from": NOW - 10, "until": NOW - 5}, format="raw")
    yield render(target="servers.a.cpu", **{"from": NOW - 300, "until": NOW + 300}, format="raw")
    yield render(target="servers.a.cpu", **{"from": NOW + 60, "until": NOW + 300}, format="raw")
    yield render(target="servers.a.cpu", **{"from": "-1y", "until": "-11mon"}, format="raw")
    yield render(target="servers.a.cpu", **{"from": "-3min"}, rawData="1")
    yield render(target="servers.a.cpu", **{"from": "-3min"}, rawData="1", format="json")
    yield render(target="servers.a.cpu", **{"from": "-3min"}, pickle="1")
    yield render(target="servers.a.cpu", **{"from": "-3min"}, pickle="1", rawData="1", jsonp="cb")
    yield {"path": f"/render?target[]=servers.a.cpu&target[]=both&from=-3min&now={NOW}&format=raw"}
    yield {"path": f"/render?target=both&target[]=servers.a.cpu&from=-3min&now={NOW}&format=raw"}
    yield {"path": f"/render/?target=both&from=-3min&now={NOW}&format=raw"}
    yield render(target="servers.{a,b}.{cpu,load}", **{"from": "-3min"}, format="raw")
    yield render(target="servers.[ab].cpu", **{"from": "-3min"}, format="raw")
    form = "application/x-www-form-urlencoded"
    yield {
        "method": "POST", "path": f"/render?target=both&now={NOW}&format=json", "type": form,
        "body": "target=servers.a.cpu&from=-3min&format=raw",
    }
    yield {"method": "POST", "path": "/render", "type": form, "body": f"target=both&from=-3min&format=raw&now={NOW}"}
    part = "--x\r\nContent-Disposition: form-data; name=\"{}\"\r\n\r\n{}\r\n"
    fields = [("target", "both"), ("target", "servers.a.*"), ("from", "-3min"), ("format", "raw"), ("now", str(NOW))]
    yield {
        "method": "POST", "path": "/render/", "type": "multipart/form-data; boundary=x",
        "body": "".join(part.format(*field) for field in fields) + "--x--\r\n",
    }
    yield {
        "method": "POST", "path": f"/render?target=both&from=-3min&format=raw&now={NOW}", "type": "application/json",
        "body": "{\"target\": \"servers.a.cpu\"}",
    }
    # What keeps an answer, and for how long.
    for params in [{}, {"noCache": "1"}, {"cacheTimeout": "0"}, {"cacheTimeout": "5"}]:
        yield {**render(target="both", **{"from": "-3min"}, format="raw", **params), "caching": True}
    # Mistakes. `words`: whether ours are the same, or better ones.
    yield render(target="nosuch(servers.a.cpu)", format="json")
    yield {
        **render(target=["nosuch(a)", "b"], format="json"),
        "headers": {"X-Dashboard-Id": "7", "X-Panel-Id": "3", "X-Grafana-Org-Id": "1"},
    }
    yield render(target="both", format="json", xFilesFactor="abc")
    yield render(target="both", format="json", cacheTimeout="abc")
    yield render(target="both", format="json", cacheTimeout="1'2")
    yield render(target="both", format="json", graphType="round")
    yield render(target="both", format="json", **{"from": "now"})
    yield {**render(target="both", format="json", **{"from": "bogus"}), "words": False}
    yield {**render(target="both", format="json", **{"until": "1h"}), "words": False}

    def find(**params):
        return {"path": "/metrics/find?" + urlencode(params, doseq=True)}

    for form in ["treejson", "completer", "json", "nodelist", "pickle", "msgpack"]:
        for query in ["servers.*", "servers.a.*", "servers.*.cpu", "se", "servers.a", "no.such", "deep.er.*.down", "odd.*"]:
            yield find(query=query, format=form)
        yield find(query="servers.a.*", format=form, leavesOnly="1")
        yield find(query="servers.a.*", format=form, wildcards="1")
        yield find(query="servers.a", format=form, wildcards="1")
        yield find(query="servers.a.*", format=form, pretty="1")
        yield find(query="servers.a.*", format=form, jsonp="callback")
        yield find(query="odd.*", format=form, jsonp="callback", pretty="1", wildcards="1")
        yield {**find(query="odd.*", format=form), "headers": {"Accept": "application/json"}}
        yield {**find(query="odd.*", format=form), "headers": {"Accept": "application/json, */*"}}
        yield {**find(query="servers.*", format=form), "headers": {"Accept": "*/*"}}
    yield find(query="servers.a.c", format="completer", automatic_variants="1")
    yield find(query="servers.a,b.c", format="completer", automatic_variants="1")
    yield find(query="servers..cpu", format="completer")
    yield find(query="servers.*.*", format="completer", wildcards="1")
    yield find(query="servers.**", format="treejson")
    yield find(query="servers.*.cpu", format="nodelist", position="1")
    yield find(query="servers.*.cpu", format="nodelist", position="0")
    yield find(query="servers.*.cpu", format="nodelist", position="-2")
    yield find(query="both", format="treejson")
    yield find(query="*")
    yield {"path": "/metrics?query=servers.*"}
    yield {"path": "/metrics/?query=servers.*"}
    yield {"path": "/metrics/find/?query=servers.*&from=-1&until=-1"}
    yield {"method": "POST", "path": "/metrics/find?from=-1h", "type": "application/x-www-form-urlencoded",
           "body": "query=servers.{a,b}.*"}
    yield {"path": "/metrics/find"}
    yield find(query="")
    yield find(query="a", format="xml")
    yield find(query="a", leavesOnly="x")
    yield find(query="a", local="1.5")
    yield {**find(query="a", **{"from": "bogus"}), "words": False}

    def expand(**params):
        return {"path": "/metrics/expand?" + urlencode(params, doseq=True)}

    yield expand(query="servers.*")
    yield expand(query="servers.a.*")
    yield expand(query=["servers.a.*", "servers.*.cpu", "odd.*"])
    yield expand(query=["servers.a.*", "servers.*.cpu"], groupByExpr="1")
    yield expand(query=["servers.a.*", "servers.*.cpu"], groupByExpr="1", pretty="1")
    yield expand(query="servers.a.*", leavesOnly="1")
    yield expand(query="no.such")
    yield expand(query="no.such", pretty="1")
    yield expand(query="servers.*", jsonp="callback")
    yield {"path": "/metrics/expand"}
    yield {"path": "/metrics/index.json"}
    yield {"path": "/metrics/index.json?jsonp=callback"}
    yield {"path": "/metrics/index.json?pretty=1"}
    yield {"path": "/version"}
    yield {"path": "/version/"}
    yield {"path": "/tags"}
    yield {"path": "/tags/nothing"}
    yield {"path": "/tags/autoComplete/tags"}
    yield {"path": "/tags/autoComplete/values?tag=nothing"}
    yield {"path": "/events/get_data?from=-1h&until=now"}
    yield {"path": "/events/get_data?jsonp=callback"}


def start_graphite(root):
    """graphite-web in this process, over an empty folder."""
    graphite_web.start(root, INDEX_FILE=root + "/index")
    from django.conf import settings

    assert settings.WHISPER_DIR.rstrip("/") == root + "/whisper", settings.WHISPER_DIR
    settings.FIND_CACHE_DURATION = 0
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}


def write_metrics(root):
    import whisper

    for name, (step, kept, values) in METRICS.items():
        path = os.path.join(root, "whisper", *name.split(".")) + ".wsp"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        whisper.create(path, [(step, kept)])
        # As if written in its time: whisper drops what is older than it keeps, by the clock.
        whisper.time.time, clock = (lambda: NOW), whisper.time.time
        try:
            whisper.update_many(path, sorted(values.items()))
        finally:
            whisper.time.time = clock


def as_text(text):
    """A body without what differs by machine, and with null for infinities in JSON: we write what every reader reads."""
    text = re.sub(r'"y": -?Infinity', '"y": null', text)
    text = re.sub(r'\[(\s*)-?1e9999,', r'[\1null,', text)
    return re.sub(r'"start": [0-9.]+,(\s*)"end": [0-9.]+', rf'"start": 0,\1"end": {NOW}', text)


def plain(value):
    """An unpickled or unpacked value as JSON can hold it. Floats that JSON cannot hold become texts."""
    from graphite.intervals import IntervalSet

    if isinstance(value, IntervalSet):
        return [[0, NOW]]
    if isinstance(value, dict):
        return {
            key: ([[0, NOW]] if key == "intervals" and each else plain(each)) for key, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, float) and value in (INF, -INF):
        return repr(value)
    return value


def main():
    with tempfile.TemporaryDirectory() as root:
        start_graphite(root)
        write_metrics(root)
        from django.test import Client
        from graphite.storage import STORE

        # Finders are asked in random order, and nodes of one name come in the order of the answers. Ours are
        # in the order of paths.
        find = STORE.find
        STORE.find = lambda *args, **kwargs: sorted(find(*args, **kwargs), key=lambda node: node.path)

        client = Client(raise_request_exception=False)
        lines = [{"now": NOW, "metrics": [
            {"name": name, "step": step, "kept": kept, "values": [[time, repr(v)] for time, v in sorted(values.items())]}
            for name, (step, kept, values) in METRICS.items()
        ]}]
        for case in cases():
            headers = {"HTTP_" + name.upper().replace("-", "_"): v for name, v in case.get("headers", {}).items()}
            response = client.generic(
                case.get("method", "GET"), case["path"].encode().decode("latin-1"), case.get("body", "").encode(),
                case.get("type", "application/octet-stream"), **headers,
            )
            kind = response["Content-Type"]
            answer = {"status": response.status_code, "type": kind}
            if case.get("caching"):
                answer["cache-control"] = response["Cache-Control"]
            if response.status_code >= 500:
                print("failed:", case["path"], response.content[-300:], file=sys.stderr)
                continue
            if kind == "application/pickle":
                answer["value"] = plain(pickle.loads(response.content))
            elif kind == "application/x-msgpack":
                import msgpack

                answer["value"] = plain(msgpack.unpackb(response.content))
            else:
                answer["text"] = as_text(response.content.decode())
            lines.append({"request": case, "answer": answer})
        with open(os.path.join(HERE, "recorded.jsonl"), "w") as out:
            for line in lines:
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
        print(f"{len(lines) - 1} answers recorded")


main()
