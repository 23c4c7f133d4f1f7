"""Absences of nodes that are longer than what other nodes remember of them: rows of the table `nodes` and claims of writer ids expire."""

import os
import signal
import time

from cassandra import flush
from test_cassandra_elastic import AGGREGATION, Ring, missing
from test_cassandra_heads import meet, over_with, render
from test_cassandra_members import status
from plumbago import eventually

# Beyond the minute of a row in `nodes`, and the two minutes of a claim.
ABSENT_SECONDS = int(os.environ.get("ABSENT_SECONDS", "130"))


def test_nodes_that_were_suspended_or_moved_after_a_kill_come_back_and_aggregates_stay_exact(make_server, cassandra, tmp_path, seeded):
    over = over_with(make_server, cassandra, tmp_path)
    servers = [over.server(aggregation=AGGREGATION) for _ in range(3)]
    meet(*servers)
    ring = Ring(seeded, servers)
    ring.step([0])
    ring.known(*servers)
    ring.step([0, 1, 2], 300)
    # One is suspended, another one killed; both have points in memory.
    servers[1].suspend()
    servers[2].kill()
    began = time.monotonic()
    servers[2].data.rename(tmp_path / "moved")
    servers[2].data = tmp_path / "moved"
    ring.step([0], 300)
    flush(servers[0])
    # At another path its id counts as taken for a while.
    servers[2].spawn()
    assert servers[2].process.wait(60) == 1
    assert "stop that node and wait as long" in servers[2].logs()
    servers[2].process = None
    eventually(lambda: len(status(servers[0])["nodes"]), 1, 120)
    assert missing(render(servers[0], ring.names[0])) == []
    ring.step([0], 200)
    time.sleep(max(0, began + ABSENT_SECONDS - time.monotonic()))

    servers[1].process.send_signal(signal.SIGCONT)
    servers[2].start()
    meet(*servers)
    ring.compare(servers[0], "all are back")
    ring.step([0, 1, 2], 300)
    for server in servers:
        ring.compare(server, "all have received points again")
    for server in seeded.sample(servers, 3):
        flush(server)
    ids = [node["id"] for node in status(servers[0])["nodes"]]
    assert len(set(ids)) == 3
    reader = over.server(aggregation=AGGREGATION)
    ring.known(reader)
    for server in [*servers, reader]:
        ring.compare(server, "at the end")
