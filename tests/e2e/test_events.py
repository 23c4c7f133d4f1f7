"""Accepted events survive stops and kills of the program."""


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


def test_an_event_is_listed_at_once(server):
    for number in range(30):
        tell(server, what=f"event {number}", tags="t")
        assert len(listed(server, tags="t", **{"from": "-1min"})) == number + 1
