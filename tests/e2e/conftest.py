"""Fixtures: servers that begin in an empty folder and are stopped, whatever happened, when their test ends."""

import os
import random
import time

import pytest

# Their asserts say what they compared, as those of tests do.
pytest.register_assert_rewrite("plumbago", "load", "relays")

from graphite_web import GraphiteWeb  # noqa: E402
from plumbago import Plumbago  # noqa: E402


@pytest.fixture
def make_server(tmp_path):
    """Makes servers, each in its own folder; stops those still running."""
    made = []

    def make(**kwargs):
        server = Plumbago(tmp_path / f"server{len(made)}", **kwargs)
        made.append(server)
        return server.start()

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
    """An empty database of graphite-web's, made once: its migrations take seconds."""
    return GraphiteWeb.make_database(tmp_path_factory.mktemp("graphite"))


@pytest.fixture
def seeded():
    """A random source whose seed is printed; SEED=n repeats a run."""
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    print(f"SEED={seed}")
    return random.Random(seed)
