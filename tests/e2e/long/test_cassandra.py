"""A Cassandra that does not answer for a whole minute, and kill -9 during flushes for minutes: run by tests/long."""

import os

import pytest

import test_cassandra_faults
from cassandra import OverCassandra, flush
from plumbago import aligned_now
from test_cassandra_faults import ALONE, alone, node, the_tables_hold  # noqa: F401
from test_restart import coarse_stages_are_exact, kill_in_a_loop

MINUTES = float(os.environ.get("MINUTES", 5))


def test_a_node_that_does_not_answer_for_a_minute(make_server, node, monkeypatch):  # noqa: F811
    monkeypatch.setattr(test_cassandra_faults, "PAUSE_SECONDS", 60)
    test_cassandra_faults.test_a_node_that_does_not_answer_for_a_while_costs_only_latency(make_server, node)


@pytest.mark.parametrize("flush_after", ["1s", "5s"])
def test_kill_9_of_the_server_for_minutes(make_server, node, seeded, flush_after):  # noqa: F811
    over = OverCassandra(make_server, ALONE, more=f'[ingest]\nflush_after = "{flush_after}"\n')
    server = over.server()
    rounds = int(MINUTES * 60 / 2 / 3)
    # A series of rounds must end before its batches reach the present; then use other names.
    for series in range(0, rounds, 8):
        prefix = f"second.kill{series}"
        print("\n".join(kill_in_a_loop(server, min(8, rounds - series), 2, seeded, prefix)))
        start = aligned_now(60) - 6900
        expected = server.columns(f"{prefix}.*", start, start + 6900)
        flush(server)
        reader = the_tables_hold(over, f"{prefix}.*", expected, start, start + 6900)
        coarse_stages_are_exact(reader, f"{prefix}.*", expected, aligned_now(60))
        reader.stop()
