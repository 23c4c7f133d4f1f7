#!/usr/bin/env python3
"""Records what graphite-web 1.1.10 answers when clients submit and request events, into events.jsonl.

    tests/install-peers                       (once, in the root of the repository)
    tests/.cache/venv/bin/python crates/api/tests/record_events.py

Each line holds a request and its answer, in order: each submitted event is visible to the requests that follow. Ids
start at 1. Answers of 500 and above are crashes and are not recorded; ours are in differences.md.
"""

import json
import os
import sys
import tempfile
from urllib.parse import quote, urlencode

NOW = 1700000000  # 2023-11-14 22:13:20 UTC
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../../tests"))
import graphite_web

EVENTS = [
    {"what": "deployed 1.2", "tags": ["deploy", "web"], "data": "by é 😀 \"quoted\"\n", "when": NOW - 600},
    {"what": "deployed 1.3", "tags": "deploy db", "data": "", "when": NOW - 300},
    {"what": "rolled back", "tags": "deploy,web", "when": NOW - 200},
    {"what": "no tags", "tags": [], "when": NOW - 100},
    {"what": "quoted", "tags": 'one "two three"', "when": NOW - 90},
    {"what": "quoted with a comma", "tags": 'four "five, six", seven', "when": NOW - 80},
    {"what": "many blanks", "tags": "  web   db ", "when": NOW - 70},
    {"what": "a list with blanks", "tags": ["web db", "x"], "when": NOW - 60},
    {"what": "same second, told first", "tags": "s", "when": NOW - 50},
    {"what": "same second, told second", "tags": "s", "when": NOW - 50},
    {"what": "earlier, told later", "tags": "s", "when": NOW - 700},
    {"what": "before 1970", "tags": "old", "when": -100},
    {"what": "in the future", "tags": "future", "when": NOW + 10_000_000},
    {"what": "twice the same tag", "tags": "again again", "when": NOW - 30},
    {"what": "Case", "tags": "Case", "when": NOW - 20},
    {"what": "neither tags nor data", "when": NOW - 15},
    {"what": "null tags", "tags": None, "when": NOW - 15},
    {"what": "", "tags": "empty", "data": "", "when": NOW - 10},
]


def cases():
    for event in EVENTS:
        yield {"method": "POST", "path": "/events/", "body": json.dumps(event)}
    yield {"method": "POST", "path": "/events", "body": json.dumps({**EVENTS[0], "what": "without a slash"})}
    for tags in [5, True, {"a": 1}, 1.5]:
        yield {"method": "POST", "path": "/events/", "body": json.dumps({"what": "x", "tags": tags, "when": NOW})}

    def get(**params):
        return {"path": "/events/get_data?" + urlencode({"from": NOW - 1000, "until": NOW, **params}, quote_via=quote)}

    yield get()
    yield {"path": f"/events/get_data?until={NOW}"}
    yield get(**{"from": NOW - 301, "until": NOW - 299})
    yield get(**{"from": NOW - 299, "until": NOW - 201})
    yield get(**{"from": NOW, "until": NOW - 1000})
    yield get(until=NOW + 20_000_000_000)
    for kind in [None, "union", "intersection", "nonsense"]:
        more = {"set": kind} if kind else {}
        for tags in ["deploy", "web", "db", "deploy web", "web deploy", "db web", "s", "old", "again", "Case", "one",
                     "two", "deploy,web", "five", "four"]:
            yield get(tags=tags, **more)
    yield get(tags="nothing")
    yield get(tags="")
    yield get(tags="deploy ")
    yield get(tags="deploy nothing", set="union")
    yield get(tags="deploy nothing", set="intersection")
    yield get(tags="nothing", set="intersection")
    yield get(tags="web", jsonp="callback")
    for number in range(1, 20):
        yield {"path": f"/events/{number}", "headers": {"Accept": "application/json"}}
    yield {"path": "/events/1/", "headers": {"Accept": "application/json"}}
    yield {"path": "/events/999", "headers": {"Accept": "application/json"}}


def main():
    with tempfile.TemporaryDirectory() as root:
        graphite_web.start(root)
        from django.test import Client

        client = Client(raise_request_exception=False)
        lines = []
        for case in cases():
            headers = {"HTTP_" + name.upper().replace("-", "_"): v for name, v in case.get("headers", {}).items()}
            body = case.get("body", "").encode()
            response = client.generic(case.get("method", "GET"), case["path"], body, "application/json", **headers)
            if response.status_code >= 500:
                print("failed:", case["path"], case.get("body"), response.content[-200:], file=sys.stderr)
                continue
            lines.append({"request": case, "answer": {
                "status": response.status_code, "type": response["Content-Type"], "text": response.content.decode(),
            }})
        with open(os.path.join(HERE, "events.jsonl"), "w") as out:
            for line in lines:
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
        print(f"{len(lines)} answers recorded")


main()
