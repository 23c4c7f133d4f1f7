"""Fixtures: servers that begin in an empty folder and stop when their test ends, also after a failure."""

import os
import random
import time

import pytest

# Failed asserts in these modules show the compared values, as asserts of tests do.
pytest.register_assert_rewrite("plumbago", "load", "relays")

from biggraphite import BigGraphite  # noqa: E402
from graphite_web import GraphiteWeb  # noqa: E402
from nodes import SHARED, Cluster  # noqa: E402
from plumbago import Plumbago  # noqa: E402


@pytest.fixture
def make_server(tmp_path):
    """Makes servers, each in its own folder; stops them at the end of the test."""
    made = []

    def make(start=True, **kwargs):
        server = Plumbago(tmp_path / f"server{len(made)}", **kwargs)
        made.append(server)
        return server.start() if start else server

    yield make
    for server in made:
        if server.process is not None:
            server.stop()


@pytest.fixture
def server(make_server):
    """A server with the default configuration of these tests."""
    return make_server()


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory):
    """One server for a module whose tests do not disturb each other: each uses names of its own."""
    server = Plumbago(tmp_path_factory.mktemp("shared")).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def graphite_database(tmp_path_factory):
    """An empty database for graphite-web, made once: its migrations take seconds."""
    return GraphiteWeb.make_database(tmp_path_factory.mktemp("graphite"))


@pytest.fixture(scope="session")
def cassandra(tmp_path_factory):
    """host:port of the Cassandra node that suites share: the node of tests/run, or a node of this session."""
    if "PLUMBAGO_TEST_CASSANDRA" in os.environ:
        yield os.environ["PLUMBAGO_TEST_CASSANDRA"]
        return
    cluster = Cluster(tmp_path_factory.mktemp("cassandra"), [SHARED])
    yield cluster.start().contact_points
    cluster.forget()


@pytest.fixture(scope="module")
def keyspaces(cassandra, tmp_path_factory):
    """Makes a BigGraphite over keyspaces that no other test uses, and removes them at the end."""
    made = []

    def make(schemas=None):
        name = f"e2e_{os.getpid()}_{time.time_ns() % 1_000_000_000}"
        biggraphite = BigGraphite(tmp_path_factory.mktemp("biggraphite") / "peer", cassandra, name)
        made.append(biggraphite)
        if schemas is not None:
            biggraphite.make_keyspaces()
            biggraphite.syncdb(schemas)
        return biggraphite

    yield make
    for biggraphite in made:
        biggraphite.drop_keyspaces()
        biggraphite.close()


@pytest.fixture
def seeded():
    """A random source whose seed is printed; SEED=n repeats a run."""
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    print(f"SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def keyspace_of(tmp_path):
    """Runs CQL on the keyspaces of a server."""
    from biggraphite import BigGraphite

    made = []

    def make(over, **kwargs):
        host = over.contact_points.split(",")[0]
        address = host if ":" in host else host + ":9042"
        made.append(BigGraphite(tmp_path / f"cql{len(made)}", address, over.keyspace, **kwargs))
        return made[-1].cql

    yield make
    for one in made:
        one.close()
