"""Accepted events survive stops and kills of the program, until they are too old."""

import time

from plumbago import QUIET, eventually


def tell(server, **event):
    answer = server.post("/events/", json=event)
    assert (answer.status_code, answer.text) == (200, "")


def listed(server, **params):
    answer = server.get("/events/get_data", **params)
    assert answer.status_code == 200, answer.text
    return [event["what"] for event in answer.json()]


def test_an_event_outlives_kill_9_and_a_stop(server):
    tell(server, what="first", tags=["deploy", "web"], when=1700000000)
    server.kill()
    server.start()
    tell(server, what="second", tags="deploy db", when=1700000100, data="more")
    server.stop()
    server.start()
    assert listed(server) == ["first", "second"]
    assert listed(server, tags="deploy web") == ["first"]
    assert listed(server, tags="web db", set="union") == ["first", "second"]
    event = server.get("/events/2").json()
    assert event == {"id": 2, "when": "2023-11-14T22:15:00Z", "what": "second", "data": "more", "tags": ["deploy", "db"]}


def test_events_have_a_bound_and_an_age(make_server):
    limits = '[limits]\nevents = 3\nevents_bytes = "100KiB"\nevents_keep = "1h"\n[data]\nexpire_every = "1s"\n'
    server = make_server(settings=QUIET + limits)
    now = int(time.time())
    for number in range(3):
        tell(server, what=str(number), when=now - 3600 + 15 if number == 0 else now)
    answer = server.post("/events/", json={"what": "one more"})
    assert answer.status_code == 507 and "limits.events allows" in answer.json()["error"]
    answer = server.post("/events/", json={"what": "old", "when": now - 3700})
    assert answer.status_code == 400 and "limits.events_keep" in answer.json()["error"]
    assert server.counter("plumbago_events_refused_total") == 1
    assert server.counter("plumbago_events") == 3
    # The oldest goes, and makes room.
    eventually(lambda: listed(server), ["1", "2"], seconds=60)
    tell(server, what="one more", data="x" * 60_000)
    eventually(lambda: "deleted events that are older than limits.events_keep" in server.logs(), True)
    server.kill()
    server.start()
    assert listed(server) == ["1", "2", "one more"]
    assert server.get("/admin/status").json()["events"]["events"] == 3


def test_an_event_is_listed_at_once(server):
    for number in range(30):
        tell(server, what=f"event {number}", tags="t")
        assert len(listed(server, tags="t", **{"from": "-1min"})) == number + 1
