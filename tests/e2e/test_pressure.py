"""At a bound senders wait and nothing is dropped: little memory, a small journal, a full disk."""

import os
import socket
import subprocess
import threading
import time

import pytest
import requests

import wire
from disk_shim import DiskShim
from plumbago import QUIET, Plumbago, aligned_now, eventually, run, wait_until


class Flood:
    """Sends `points` seconds of `metrics` names over one connection as fast as the server reads, and counts its progress."""

    def __init__(self, server, prefix, start, metrics, points):
        self.server, self.prefix, self.start, self.metrics, self.points = server, prefix, start, metrics, points
        self.sent = 0
        self.error = None
        self.thread = threading.Thread(target=self._send)
        self.thread.start()

    def value(self, m, i):
        # Values that do not compress: no two differences are alike.
        return ((m * 7919 + i * 104729) % 1_000_003) / 997

    def _send(self):
        try:
            with self.server.connect() as connection:
                connection.settimeout(300)
                for i in range(self.points):
                    batch = [(f"{self.prefix}.m{m:04}", self.start + i, self.value(m, i)) for m in range(self.metrics)]
                    connection.sendall(wire.lines(batch))
                    self.sent = i + 1
        except OSError as error:
            self.error = error

    def expected(self):
        return {
            f"{self.prefix}.m{m:04}": {self.start + i: self.value(m, i) for i in range(self.points)}
            for m in range(self.metrics)
        }

    def everything_arrives(self, seconds):
        self.thread.join(seconds)
        assert not self.thread.is_alive(), f"after {seconds} s the sender is still at {self.sent} of {self.points}"
        assert self.error is None, self.error
        look = lambda: self.server.columns(f"{self.prefix}.*", self.start - 1, self.start + self.points)  # noqa: E731
        eventually(look, self.expected(), 30)


LIMITS = {
    "little memory": 'memory_limit = "1MiB"\n',
    "a small journal": 'journal_limit = "1MiB"\n',
    "both": 'memory_limit = "1MiB"\njournal_limit = "1MiB"\n',
}


@pytest.mark.parametrize("limits", LIMITS)
def test_a_fast_sender_waits_and_loses_nothing(make_server, limits, tmp_path):
    # No sender is fast enough for every machine. While rows cannot be written, each is faster than the store.
    shim = DiskShim(tmp_path)
    server = make_server(start=False, settings=QUIET + "[ingest]\n" + LIMITS[limits])
    server.environment = shim.environment(server.data / "store" / "datapoints")
    server.start()
    shim.begin("hang")
    flood = Flood(server, "second.flood", aligned_now() - 3000, metrics=300, points=1500)
    try:
        wait_until(lambda: server.counter("plumbago_stalled") == 1, 60, "the sender never had to wait")
        assert flood.sent < 1500
    finally:
        shim.end()
    flood.everything_arrives(120)
    assert server.stalled_seconds() > 0
    assert server.stop() == 0


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a file system of 32 MiB, most of it taken by a ballast file.

    Mounting needs root. Without root the test is skipped, with a message.
    """
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(disk)], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"NOT TESTED: a full disk needs a file system of its own, and mounting one failed: {mounted.stderr}")
    (disk / "ballast").write_bytes(bytes(20 << 20))
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(server, points=4000):
    """Sends until the disk is full and the server no longer reads; returns the blocked sender."""
    flood = Flood(server, "second.full", aligned_now() - points - 1000, metrics=250, points=points)

    def is_stuck():
        before = flood.sent
        time.sleep(2)
        assert flood.error is None, f"the server closed the connection instead of waiting: {flood.error}"
        assert flood.thread.is_alive(), "the server accepted everything: the disk is too large for this test"
        return flood.sent == before

    wait_until(is_stuck, 120, "the sender never had to wait")
    return flood


def server_on(disk, folder):
    """A server whose data, and nothing else, is on the disk, which it may fill to the last byte."""
    server = Plumbago(folder, settings=QUIET + '[data]\nreserve = "0B"\n')
    server.data = disk / "data"
    return server.start()


def test_a_full_disk_stops_accepting_with_an_error_and_resumes_when_there_is_space(small_disk, tmp_path):
    server = server_on(small_disk, tmp_path / "server")
    try:
        start = aligned_now() - 600
        server.send([("second.before", start, 1.0)])
        eventually(lambda: server.points("second.before", **{"from": start - 1}), {start: 1.0})
        flood = fill(server)
        assert os.statvfs(small_disk).f_bavail < 512, "the disk is not full"
        # The server is not ready, and the log says why.
        assert server.get("/ready").status_code == 503
        assert "No space left" in server.logs()
        # Reads and the rest of the program continue.
        assert server.points("second.before", **{"from": start - 1}) == {start: 1.0}
        assert len(server.find("second.full.*")) == 250
        (small_disk / "ballast").unlink()
        flood.everything_arrives(120)
        wait_until(lambda: server.get("/ready").status_code == 200, 20, "the server did not become ready again")
        assert server.stop() == 0
        server.start()
        flood.everything_arrives(1)
        assert server.points("second.before", **{"from": start - 1}) == {start: 1.0}
    finally:
        if server.process is not None:
            server.kill()


def test_kill_9_on_a_full_disk_loses_no_served_point(small_disk, tmp_path):
    server = server_on(small_disk, tmp_path / "server")
    try:
        # A sender that a busy machine slows down leaves the server time to make room.
        flood = fill(server, points=12_000)
        served = server.columns("second.full.*", flood.start - 1, flood.start + flood.points)
        server.kill()
        flood.thread.join(30)
        (small_disk / "ballast").unlink()
        server.start()
        again = server.columns("second.full.*", flood.start - 1, flood.start + flood.points)
        assert {name: len(column) for name, column in again.items()} == {name: len(c) for name, c in served.items()}
        assert again == served
    finally:
        if server.process is not None:
            server.kill()


def test_idle_connections_keep_no_health_check_and_no_operator_out(make_server):
    """Connections that are silent, between two requests, or in the middle of a head make room. One in a body does not."""
    server = make_server(settings=QUIET + "[http]\nmax_connections = 40\n")
    address = ("127.0.0.1", server.ports["http"])
    busy = socket.create_connection(address)
    busy.sendall(b"POST /ingest HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\nroom.a ")
    idle = []
    for number in range(200):
        idle.append(socket.create_connection(address))
        if number % 3 == 1:
            idle[-1].sendall(b"GET /healthy HTTP/1.1\r\nHost: localhost\r\n\r\n")
        if number % 3 == 2:
            idle[-1].sendall(b"GET /healthy HTTP/1.1\r\nHo")
    time.sleep(1)
    for path in ["/healthy", "/ready", "/metrics", "/admin/status"] * 3:
        began = time.monotonic()
        assert requests.get(server.url(path), timeout=10, headers={"Connection": "close"}).status_code == 200
        assert time.monotonic() - began < 1.5, path
    assert run("flush", "--http", f"127.0.0.1:{address[1]}").returncode == 0
    assert server.logs().count("the longest idle ones are closed") == 1
    # Each health check that finds no room has one of 16 places in the reserve, and its connection ends with the answer; all others
    # but 40 were closed for new ones.
    checks = len(range(1, 200, 3))
    assert server.counter("plumbago_http_connections") <= 40 + 16
    assert server.counter("plumbago_http_idle_closed_total") >= 200 - 40 - checks
    busy.sendall(b"1 %d\n" % time.time())
    assert b'"points":1' in busy.recv(4096), "a request under way is not cut off"
    for connection in [busy, *idle]:
        connection.close()
