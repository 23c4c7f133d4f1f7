"""A node that cannot use its Cassandra, or has not read it yet, answers with an error, never with an empty answer."""

import re

from cassandra import OverCassandra, flush, listens
from plumbago import aligned_now, eventually, wait_until

# An address of this machine where nothing listens.
UNREACHABLE = "127.0.0.250:9042"


def gauge(server, name):
    found = re.search(rf"^{name} (\S+)$", server.get("/metrics").text, re.M)
    return found and float(found[1])


def test_a_new_node_that_cannot_read_the_names_says_so(make_server):
    over = OverCassandra(make_server, UNREACHABLE)
    server = over.server(start=False)
    server.spawn()
    wait_until(lambda: listens(server), 30, "no receiver listened while Cassandra was away")
    ready = server.get("/ready")
    assert ready.status_code == 503 and UNREACHABLE in ready.text, ready.text
    for path, query in [
        ("/metrics/find", {"query": "*"}),
        ("/render", {"target": "a.*", "format": "json"}),
        ("/render", {"target": "seriesByTag('name=a')", "format": "json"}),
        ("/metrics/index.json", {}),
        ("/metrics/details", {"format": "json"}),
    ]:
        answer = server.get(path, **query)
        assert answer.status_code == 503, (path, answer.status_code, answer.text)
        assert "names in Cassandra have not been read yet" in answer.text and UNREACHABLE in answer.text, answer.text
    assert gauge(server, "plumbago_cassandra_connected") == 0
    # The node accepts points, and a query by exact name returns them.
    now = aligned_now()
    server.send([("here.m", now, 1.5)])
    query = {"target": "here.m", "format": "json", "from": now - 1, "until": now}
    eventually(lambda: [point[0] for point in server.get("/render", **query).json()[0]["datapoints"]], [1.5], 10)


def test_an_unknown_data_centre_is_named(make_server, cassandra):
    over = OverCassandra(make_server, cassandra, cassandra='datacenter = "dc9"\n')
    server = over.server(start=False)
    server.spawn()
    wait_until(lambda: listens(server), 30, "no receiver listened")
    ready = server.get("/ready")
    assert ready.status_code == 503
    assert "no node is in the data centre 'dc9' (datacenter); its nodes are in 'datacenter1'" in ready.text, ready.text


def test_a_node_that_was_connected_before_answers_from_its_data_folder(make_server, cassandra):
    over = OverCassandra(make_server, cassandra)
    server = over.server()
    assert gauge(server, "plumbago_cassandra_connected") == 1
    now = aligned_now()
    server.send([("here.m", now, 1.5)])
    assert server.post("/admin/flush").status_code == 200
    server.stop()
    server.arguments = ["--cassandra", UNREACHABLE, "--keyspace", over.keyspace]
    server.start()
    ready = server.get("/ready")
    assert ready.status_code == 200 and UNREACHABLE in ready.text, ready.text
    found = server.get("/metrics/find", query="here.*")
    assert [node["text"] for node in found.json()] == ["m"]


def test_the_log_mentions_points_of_a_time_without_cassandra(make_server, cassandra):
    over = OverCassandra(make_server, cassandra)
    alone = make_server(settings=over.settings)
    alone.send([("old.m", aligned_now(), 1.0)])
    assert alone.post("/admin/flush").status_code == 200
    alone.stop()
    alone.arguments = ["--cassandra", cassandra, "--keyspace", over.keyspace]
    assert "a time without Cassandra" in alone.start().logs()


def test_a_damaged_writer_file_ends_the_start(make_server, cassandra):
    over = OverCassandra(make_server, cassandra)
    server = over.server()
    server.stop()
    (server.data / "writer").write_text("nonsense")
    server.spawn()
    assert server.process.wait(30) != 0
    assert "holds the id under which this node writes" in server.logs()


def test_of_a_list_of_methods_the_first_applies_and_the_log_says_so(make_server, cassandra):
    over = OverCassandra(make_server, cassandra)
    rules = {
        "schemas": "[all]\npattern = .*\nretentions = 10s:1h,60s:1d\n",
        "aggregation": "[all]\npattern = .*\nxFilesFactor = 0\naggregationMethod = max, avg\n",
    }
    server = over.server(**rules)
    message = "over Cassandra only the first method of each list applies"
    assert message in server.logs(), server.logs()
    now = aligned_now()
    sent = {}

    def send(times):
        points = [("list.m", time, (time * 7919 // 10 % 1000) / 8 - 60) for time in times]
        # A late point replaces the one of its ten seconds.
        sent.update((time // 10 * 10, value) for _, time, value in points)
        server.send(points)
        flush(server)

    def check(reader):
        """The coarse stage, by any method that is asked for: maxima, which lineage names."""
        largest = {}
        for time, value in sent.items():
            largest[time // 60 * 60] = max(value, largest.get(time // 60 * 60, value))
        span = {"format": "json", "meta": "true", "from": now - 2 * 3600, "until": now - 300, "now": now}
        for target in ["list.m", "consolidateBy(list.m,'avg')", "consolidateBy(list.m,'max')"]:
            [series] = reader.get("/render", target=target, **span).json()["series"]
            assert {time: value for value, time in series["datapoints"] if value is not None} == largest, target
            [origin] = series["meta"]
            assert (origin["archive-interval"], origin["consolidator-normfetch"]) == (60, "MaximumConsolidator"), origin

    send(range(now - 3000, now - 1800, 10))
    check(server)
    # Late points, and a slot that goes on.
    send(range(now - 2995, now - 900, 70))
    check(server)
    server.kill()
    server.start()
    assert message in server.logs()
    check(server)
    # A node that knows only the tables, and whose rules have one method.
    check(over.server(**rules | {"aggregation": rules["aggregation"].replace("max, avg", "max")}))
    # Another list with the same first method: what is stored stays, and the log says it again. With one method it says nothing.
    for methods, is_said in [("max,min", True), ("max", False)]:
        server.stop()
        server.configure("storage-aggregation.conf", rules["aggregation"].replace("max, avg", methods))
        server.start()
        assert (message in server.logs()) == is_said, methods
        check(server)
