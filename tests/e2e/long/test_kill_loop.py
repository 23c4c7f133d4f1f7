"""kill -9 for minutes: run by tests/long, not by tests/run."""

import os

import pytest

from plumbago import QUIET
from test_restart import kill_in_a_loop

MINUTES = float(os.environ.get("MINUTES", 5))


@pytest.mark.parametrize("flush_after", ["1s", "5s", "10min"])
def test_kill_9_for_minutes(make_server, seeded, flush_after):
    server = make_server(settings=QUIET + f'[ingest]\nflush_after = "{flush_after}"\n')
    seconds = 1.5
    rounds = int(MINUTES * 60 / 3 / (seconds + 1))
    # A series of rounds must end before its batches reach the present; then use other names.
    per_series = 8
    for series in range(0, rounds, per_series):
        report = kill_in_a_loop(server, min(per_series, rounds - series), seconds, seeded, f"second.kill{series}")
        print("\n".join(report))
