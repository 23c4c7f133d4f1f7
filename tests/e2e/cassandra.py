"""Servers over a Cassandra whose nodes the tests stop, pause and kill, and readers that know only the tables."""

import itertools
import os

from plumbago import QUIET

_numbers = itertools.count(1)


def new_keyspace():
    """A name that no other test uses."""
    return f"faults_{os.getpid()}_{next(_numbers)}"


class OverCassandra:
    """Makes servers over one keyspace of a cluster of nodes."""

    def __init__(self, make_server, contact_points, keyspace=None, cassandra="", more=""):
        """`cassandra` are lines of that table of the settings, `more` are whole other tables."""
        self.make_server = make_server
        self.contact_points = contact_points
        self.keyspace = keyspace or new_keyspace()
        # Cassandra needs time to create 130 indexes, and none of these tests uses them.
        self.settings = QUIET + f'[stop]\ntimeout = "10s"\n[cassandra]\nindexes = "none"\n{cassandra}\n{more}'

    def server(self, settings=None, **kwargs):
        """A server with a folder of its own: it knows only the tables."""
        arguments = ["--cassandra", self.contact_points, "--keyspace", self.keyspace]
        return self.make_server(settings=self.settings if settings is None else settings, arguments=arguments, **kwargs)


def flush(server):
    """Writes out all pending points now; returns when they are stored."""
    answer = server.post("/admin/flush")
    assert answer.status_code == 200, answer.text


def listens(server):
    """Whether the line receiver listens; the server need not be ready."""
    assert server.process.poll() is None, f"the server ended: {server.logs()[-2000:]}"
    try:
        server._is_ready()
        return "line" in server.ports
    except OSError:
        return False
