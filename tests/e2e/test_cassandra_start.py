"""A node that cannot use its Cassandra, or has not read it yet, answers with an error, never with an empty answer."""

import re

from cassandra import OverCassandra, listens
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
