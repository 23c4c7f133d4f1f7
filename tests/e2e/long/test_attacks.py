"""Hostile clients: how much memory they take, and how long a good client waits meanwhile.

SECONDS (20) for each attack. The table of figures is printed at the end (pytest -s).
"""

import os
import resource
import time

import pytest

from attacks import ATTACKS, CONNECTIONS, MIB, Watch, fill, processor_time

SECONDS = float(os.environ.get("SECONDS", "20"))
GROWTH = 512 * MIB
P99 = 1
COUNT = 4096


@pytest.fixture(scope="module")
def table():
    rows = []
    yield rows
    print(f"\n{'attack':14} {'growth MiB':>10} {'p99 s':>8} {'requests':>9} {'failures':>9} {'CPU s in the second after':>26}")
    for name, watch, after in rows:
        print(f"{name:14} {watch.growth / MIB:10.0f} {watch.p99:8.3f} {len(watch.waits):9} {len(watch.failures):9} {after:26.2f}")


@pytest.mark.parametrize("name", [*ATTACKS, *CONNECTIONS])
def test_a_good_client_is_served(make_server, table, name):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = make_server()
    fill(server, points=600)
    attack = ATTACKS.get(name) or CONNECTIONS[name](COUNT)
    with Watch(server) as watch:
        attack(server, time.monotonic() + SECONDS)
        time.sleep(0.1)
        before = processor_time(server)
        time.sleep(1)
        after = processor_time(server) - before
    table.append((name, watch, after))
    assert watch.growth <= GROWTH
    assert watch.p99 <= P99
    assert not watch.failures
