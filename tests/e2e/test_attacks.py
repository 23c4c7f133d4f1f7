"""Hostile clients for a second each, one attack after the other on one server: the short form of long/test_attacks.py.

Resident memory grows by at most 512 MiB over all of them, a good client gets right answers meanwhile, and no processor time is
spent for clients that are gone.
"""

import resource
import time

import pytest

from attacks import ATTACKS, CONNECTIONS, MIB, Watch, fill, processor_time, resident
from plumbago import Plumbago

SECONDS = 1
GROWTH = 512 * MIB
# For a program that is not optimised, next to other tests. The long form asks for a second.
P99 = 10
CONNECTION_COUNT = 200


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """A server with metrics, and its resident memory before the first attack."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = Plumbago(tmp_path_factory.mktemp("attacked")).start()
    fill(server)
    yield server, resident(server)
    server.stop()


def busy(server):
    """The share of a second in which a processor works."""
    before = processor_time(server)
    time.sleep(1)
    return processor_time(server) - before


def idle_within(server, seconds):
    begun = time.monotonic()
    while 0.3 <= (share := busy(server)):
        assert time.monotonic() - begun < seconds, f"works {share:.2f} s a second for clients that are gone"


@pytest.mark.parametrize("name", [*ATTACKS, *CONNECTIONS])
def test_a_good_client_is_served(attacked, name):
    server, before = attacked
    attack = ATTACKS.get(name) or CONNECTIONS[name](CONNECTION_COUNT)
    with Watch(server) as watch:
        attack(server, time.monotonic() + SECONDS)
    growth = (watch.peak - before) / MIB
    print(f"grew by {growth:.0f} MiB, p99 of a good client {watch.p99:.3f} s of {len(watch.waits)}, failures {watch.failures}")
    assert watch.peak - before <= GROWTH
    assert watch.p99 <= P99
    assert not watch.failures
    idle_within(server, 3)
