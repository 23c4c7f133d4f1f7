#!/usr/bin/env python3
"""Records what graphite-web 1.1.10 answers at /tags and below it, with its local tag database, into tag_api.jsonl.

    tests/install-peers                       (once, in the root of the repository)
    tests/.cache/venv/bin/python crates/api/tests/record_tag_api.py

The first line holds the names; each other line holds a request and its answer. Ids are those of graphite-web's database: the
test leaves them out.
"""

import itertools
import json
import os
import sys
import tempfile
from urllib.parse import quote, urlencode

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../../tests"))
import graphite_web

NAMES = [
    "cpu;dc=ams;host=a1;role=db",
    "cpu;dc=ber;host=b2",
    "disk.used;dc=ams;host=a1;device=sda",
    "disk.used;dc=cdg;host=c.1;device=sdb1",
    "load;env=prod",
    "load;env=Prod",
    "load;env=pre prod",
    "load;env=é",
    "load;env=日本",
    'load;env=quo"ted\\back',
    "load;env=<b>&amp",
    "odd;a-b=1;a.b=2;a_b=3;A=4",
    "odd;eq=a=b",
    "odd;%25=1;+=2",
    "~tilde;dc=ams",
    "einzel;allein=1",
] + [
    f"{name};dc={dc};host={role}-{i:03};role={role};zone={dc}{i % 3}"
    for name, dc, role, i in itertools.product(["requests", "errors.5xx"], ["ams", "ber", "cdg"], ["web", "db"], range(25))
]

EXPRESSIONS = [
    [],
    ["dc=ams"],
    ["dc=ams", "role=web"],
    ["host=~web-01", "dc!=ams"],
    ["host=~^web-0[12]", "dc=~b|c"],
    ["name=requests", "zone="],
    ["name=~.", "role!~web"],
    ["name=~.", "role!=~web"],
    ["zone!=", "zone!=~.*2$"],
    ["env=é"],
    ["env=~pr"],
    ["nothing=x"],
    ["dc="],
    ["dc!=ams"],
    ["dc"],
    ["=x"],
    ["a;b=c"],
    ["dc=ams", "dc=ber"],
    ["dc=~a", "dc!=ams"],
    ["A=4"],
    ["eq=a=b"],
]


def get(path, *pairs):
    return {"method": "GET", "path": path + ("?" + urlencode(pairs) if pairs else "")}


def post(path, *pairs):
    kind = "application/x-www-form-urlencoded"
    return {"method": "POST", "path": path, "type": kind, "body": urlencode(pairs)}


def multipart(path, *pairs):
    parts = [f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in pairs]
    return {"method": "POST", "path": path, "type": "multipart/form-data; boundary=x", "body": "".join(parts) + "--x--\r\n"}


def cases():
    filters = ["", "d", "^d", "a|e", "^a|e$", ".*e", "[hr]o", "nothing", "(?i)a", "n.me"]
    for path in ["/tags", "/tags/"]:
        yield get(path)
        yield get(path, ("pretty", "1"))
    for regex in filters:
        yield get("/tags", ("filter", regex))
        yield get("/tags", ("filter", regex), ("limit", "2"))
    for limit in ["", "0", "1", "3", "100", "-1", "x", " 2 ", "2.5"]:
        yield get("/tags", ("limit", limit))
        yield get("/tags/dc", ("limit", limit))
    for tag in ["name", "dc", "host", "env", "a-b", "a.b", "A", "a", "eq", "%", "+", "none", "é", "allein", "zone"]:
        yield get("/tags/" + quote(tag))
        for regex in ["a", "^[bw]", "1$", ".*1$", "é|p"]:
            yield get("/tags/" + quote(tag), ("filter", regex))
            yield get("/tags/" + quote(tag), ("filter", regex), ("limit", "2"))
    yield get("/tags/dc", ("pretty", "1"))
    yield get("/tags/none", ("pretty", "1"))
    for exprs in EXPRESSIONS:
        pairs = [("expr", expr) for expr in exprs]
        yield get("/tags/findSeries", *pairs)
        yield post("/tags/findSeries", *pairs)
        yield get("/tags/findSeries", *[("expr[]", expr) for expr in exprs])
        for prefix in [None, "", "d", "host", "z", "n", "no"]:
            of_prefix = [("tagPrefix", prefix)] if prefix is not None else []
            yield get("/tags/autoComplete/tags", *pairs, *of_prefix)
            yield post("/tags/autoComplete/tags", *pairs, *of_prefix, ("limit", "2"))
        for tag in ["host", "dc", "name", "env", "nothing", "zone", ""]:
            for prefix in [None, "", "web-", "web-01", "a", "é", "p", "("]:
                of_prefix = [("valuePrefix", prefix)] if prefix is not None else []
                yield get("/tags/autoComplete/values", ("tag", tag), *pairs, *of_prefix)
        yield get("/tags/autoComplete/values", *pairs)
        yield get("/tags/autoComplete/values", ("tag", "host"), *pairs, ("limit", "7"))
        yield multipart("/tags/autoComplete/values", ("tag", "host"), *pairs, ("limit", "7"))
        yield multipart("/tags/autoComplete/tags", *pairs, ("limit", "3"))
        yield multipart("/tags/findSeries", *pairs)
        # As Grafana's backend asks.
        empty = [("from", ""), ("until", ""), ("tagPrefix", ""), ("valuePrefix", "")]
        yield get("/tags/autoComplete/tags", *empty, *pairs, ("limit", "10000"))
        yield get("/tags/autoComplete/values", *empty, *pairs, ("tag", "dc"), ("limit", "10000"))
        for limit in ["0", "", "x", "-1"]:
            yield get("/tags/autoComplete/tags", *pairs, ("limit", limit))
            yield get("/tags/autoComplete/values", *pairs, ("tag", "dc"), ("limit", limit))
    yield get("/tags/findSeries", ("expr", "dc=ams"), ("pretty", "1"))
    yield get("/tags/findSeries", ("expr", "dc"), ("pretty", "1"))
    yield get("/tags/findSeries", ("expr", "dc=ams"), ("local", "1"))
    yield get("/tags/autoComplete/tags", ("pretty", "1"), ("expr", "nothing=x"))
    yield get("/tags/autoComplete/values", ("tag", "a;b"), ("expr", "dc=ams"))
    yield get("/tags/autoComplete/values", ("tag", "dc"), ("expr", "dc!=ams"))
    yield get("/tags/autoComplete/values", ("tag", "dc"), ("expr", "dc="))
    known = ["cpu;host=a1;dc=ams;role=db", "load;env=prod", "odd;eq=a=b"]
    for path in known:
        yield post("/tags/tagSeries", ("path", path))
    yield post("/tags/tagSeries", ("path", 'cpu{role="db",host="a1",dc="ams"}'))
    yield post("/tags/tagSeries", ("path", known[0]), ("pretty", "1"))
    yield post("/tags/tagMultiSeries", *[("path", path) for path in known])
    yield post("/tags/tagMultiSeries", *[("path[]", path) for path in known], ("pretty", "1"))
    yield multipart("/tags/tagMultiSeries", *[("path", path) for path in known])
    for route in ["tagSeries", "tagMultiSeries"]:
        yield post("/tags/" + route)
        yield post("/tags/" + route, ("path", ""))
        for bad in [";a=b", "x;", "x;a", "x;a=", "x;=b", "x;a!=b", "x;a=~b", "~;a=b", 'x{a="b",c}"}']:
            yield post("/tags/" + route, ("path", bad))
        yield get("/tags/" + route, ("path", known[0]))
    yield post("/tags")
    yield post("/tags/dc")
    # Last, since they change the names: tests/e2e/test_tags.py asks for these.
    yield get("/tags/delSeries", ("path", "load;env=prod"))
    yield post("/tags/delSeries")
    for bad in ["", ";a=b", "x;a"]:
        yield post("/tags/delSeries", ("path", bad))
    yield post("/tags/delSeries", ("path", "load;env=prod"))
    yield post("/tags/delSeries", ("path", "load;env=prod"), ("pretty", "1"))
    yield post("/tags/delSeries", ("path", "cpu;role=db;host=a1;dc=ams"), ("path", "none;a=b"), ("path", "load;env=Prod"))
    yield post("/tags/delSeries", ("path[]", "requests;zone=ams1;dc=ams;host=web-001;role=web"), ("path[]", "load;env=é"))
    yield multipart("/tags/delSeries", ("path", "load;env=日本"))
    yield multipart("/tags/delSeries", ("path", "load;env=pre prod"), ("path", "requests;dc=ams;host=web-002;role=web;zone=ams2"))
    yield multipart("/tags/delSeries", ("path[]", "odd;eq=a=b"), ("path[]", "einzel;allein=1"))
    yield post("/tags/delSeries", ("path[]", "disk.used;dc=ams;host=a1;device=sda"), ("path", "none;a=b"))
    yield post("/tags/delSeries?path=" + quote("~tilde;dc=ams"))
    yield get("/tags/findSeries", ("expr", "name=~."))
    yield get("/tags/env")


def main():
    with tempfile.TemporaryDirectory() as root:
        graphite_web.start(root)
        from django.test import Client
        from graphite.storage import STORE

        database = STORE.tagdb
        names = [database.tag_series(name) for name in NAMES]
        # Not through its cache.
        database.cache = None
        client = Client(raise_request_exception=False)
        lines = [{"names": names}]
        for case in cases():
            if case["method"] == "GET":
                answer = client.get(case["path"])
            else:
                answer = client.post(case["path"], data=case["body"], content_type=case["type"])
            body = answer.content.decode()
            kind = answer.get("Content-Type", "").split(";")[0]
            lines.append({**case, "status": answer.status_code, "answer": body if kind == "application/json" else None})
        with open(os.path.join(HERE, "tag_api.jsonl"), "w") as out:
            for line in lines:
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
        print(f"{len(lines) - 1} answers recorded")


main()
