"""The packed layout of Cassandra over HTTP: a keyspace moves over and back, nodes of both settings run together, and nothing is lost."""

import threading
import time

import requests
from cassandra import OverCassandra, flush
from plumbago import aligned_now, eventually, run, variables

SCHEMAS = "[all]\npattern = .*\nretentions = 10s:1h,60s:1d\n"


def shown(server, target, start, until):
    answer = server.get("/render", target=target, format="json", **{"from": start - 1, "until": until})
    assert answer.status_code == 200, answer.text
    series = answer.json()
    return {time: value for value, time in series[0]["datapoints"] if value is not None} if series else {}


def test_a_keyspace_moves_over_and_back_and_nodes_of_both_settings_read_each_other(make_server, cassandra, tmp_path):
    rows = OverCassandra(make_server, cassandra, cassandra='layout = "rows"\n')
    packed = OverCassandra(make_server, cassandra, keyspace=rows.keyspace, cassandra='layout = "packed"\n')
    start = aligned_now() // 60 * 60 - 1800
    wanted = {}

    def send(server, first, number, value):
        points = [("moving.m", start + 10 * (first + at), value + at) for at in range(number)]
        server.send(points)
        wanted.update({time: float(value) for _, time, value in points})
        flush(server)

    server = rows.server(schemas=SCHEMAS)
    send(server, 0, 30, 100)
    for settings, first, value in [(packed, 20, 200), (rows, 40, 300), (packed, 55, 400), (rows, 5, 500)]:
        server.stop()
        (server.folder / "plumbago.toml").write_text(settings.settings)
        server.start()
        # New points, some of them over those of the other layout.
        send(server, first, 20, value)
        assert shown(server, "moving.m", start, start + 1200) == wanted
    # Nodes that know only the tables.
    others = [over.server(schemas=SCHEMAS) for over in [rows, packed]]
    for other in others:
        eventually(lambda: shown(other, "moving.m", start, start + 1200), wanted, 30)
    # Each sees what the other writes into the same minute.
    send(others[0], 80, 1, 600)
    send(others[1], 82, 2, 700)
    for node in [*others, server]:
        eventually(lambda: shown(node, "moving.m", start, start + 1200), wanted, 30)
    # Minutes are the means of all points, whichever node wrote them in which layout.
    minutes = {}
    for time, value in wanted.items():
        minutes.setdefault(time // 60 * 60, []).append(value)
    minutes = {time: sum(values) / len(values) for time, values in minutes.items()}
    query = {"target": "moving.m", "format": "json", "from": start - 7200, "until": start + 1200}
    for node in [*others, server]:
        coarse = node.get("/render", **query).json()[0]["datapoints"]
        assert {time: value for value, time in coarse if value is not None} == minutes
    # And what it overwrites.
    send(others[0], 7, 1, 800)
    send(others[1], 14, 2, 900)
    for node in [*others, server]:
        eventually(lambda: shown(node, "moving.m", start, start + 1200), wanted, 30)
    # The setting's tables exist, and the table `spec` says so.
    environment = variables(PLUMBAGO_CASSANDRA_LAYOUT="packed", PLUMBAGO_CASSANDRA_INDEXES="none")
    (tmp_path / "storage-schemas.conf").write_text(SCHEMAS)
    options = ["--cassandra", cassandra, "--keyspace", rows.keyspace, "--conf-dir", tmp_path]
    applied = run("schema", "apply", *options, env=environment)
    assert "created table datapoints_10080p_60s_packed" in applied.stdout, applied.stdout + applied.stderr
    checked = run("schema", "check", *options, env=environment)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "ok       table datapoints_360p_10s_packed" in checked.stdout, checked.stdout
    shown_schema = run("schema", "show", *options, env=environment).stdout
    assert "datapoints_1440p_60s_packed (" in shown_schema and "('packed_version', '1')" in shown_schema


def test_a_kill_amid_batches_of_runs_loses_nothing(make_server, cassandra, seeded):
    over = OverCassandra(make_server, cassandra, cassandra='layout = "packed"\n')
    server = over.server(schemas=SCHEMAS)
    start, metrics, minutes = aligned_now() // 60 * 60 - 1800, 6_000, 5
    server.send((f"killed.m{metric}", start - 600, 0) for metric in range(metrics))
    flush(server)

    def flush_until_killed():
        try:
            server.post("/admin/flush")
        except requests.ConnectionError:
            pass

    for kill in range(2):
        first = start + kill * 60 * minutes
        server.send((f"killed.m{metric}", first + 10 * at, metric + at) for at in range(6 * minutes) for metric in range(metrics))
        flushing = threading.Thread(target=flush_until_killed)
        flushing.start()
        time.sleep(seeded.random() * 0.8)
        server.kill()
        flushing.join()
        server.start()
        flush(server)
    # A node that knows only the tables: every point, and every minute.
    reader = over.server(schemas=SCHEMAS)
    all_metrics, until = sum(range(metrics)), start + 2 * 60 * minutes
    points = shown(reader, "sumSeries(killed.m*)", start, until - 10)
    assert points == {start + 10 * at: all_metrics + metrics * (at % (6 * minutes)) for at in range(12 * minutes)}
    query = {"target": "sumSeries(killed.m*)", "format": "json", "from": start - 7200, "until": until - 60}
    means = {at: value for value, at in reader.get("/render", **query).json()[0]["datapoints"] if value and start <= at}
    assert means == {start + 60 * at: all_metrics + metrics * (6 * (at % minutes) + 2.5) for at in range(2 * minutes)}
