"""Connections without an end: many of one address, idle ones at a low limit of open files, and clients that trickle."""

import contextlib
import socket
import subprocess
import time

import pytest
import requests

from plumbago import QUIET, binary, eventually, wait_until


def own_address():
    """An address of this machine that is not loopback, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            address = probe.getsockname()[0]
        except OSError:
            return None
    return None if address.startswith("127.") else address


@contextlib.contextmanager
def connected(address, port, count, begin=b""):
    """So many connections; those that are refused count, too."""
    connections = []
    try:
        for _ in range(count):
            connection = socket.socket()
            connection.settimeout(5)
            connections.append(connection)
            try:
                connection.connect((address, port))
                connection.sendall(begin)
            except OSError:
                pass
        yield connections
    finally:
        for connection in connections:
            connection.close()


def is_open(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


@pytest.mark.skipif(own_address() is None, reason="this machine has loopback alone")
def test_an_address_has_a_number_of_connections(tmp_path):
    address = own_address()
    config = tmp_path / "plumbago.toml"
    config.write_text(
        QUIET + '[http]\nconnections_per_address = 10\n'
        '[listen]\ninsecure = true\nline = "off"\npickle = "off"\nhttp = "0.0.0.0:0"\nadmin = "127.0.0.1:0"\n'
    )
    out, err = (tmp_path / "out").open("wb"), (tmp_path / "err").open("wb")
    process = subprocess.Popen([binary(), "serve", "--config", config, "--data", tmp_path / "data"], stdout=out, stderr=err)
    try:
        wait_until(lambda: "\nready" in (tmp_path / "out").read_text(), 60)
        port = int((tmp_path / "out").read_text().split("http://0.0.0.0:")[1].split()[0])
        check_addresses(address, port)
        assert "http.connections_per_address" in (tmp_path / "err").read_text()
    finally:
        process.terminate()
        process.wait(30)


def check_addresses(address, port):
    body = b"POST /render HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx"
    with connected(address, port, 30, body) as connections:
        eventually(lambda: sum(map(is_open, connections)), 10)
        # Loopback is another address, and exempt.
        with connected("127.0.0.1", port, 30) as local:
            time.sleep(0.5)
            assert all(map(is_open, local))
            assert requests.get(f"http://127.0.0.1:{port}/version", timeout=5).status_code == 200
    # Idle ones make room for a new one.
    with connected(address, port, 10):
        time.sleep(0.5)
        assert requests.get(f"http://{address}:{port}/version", timeout=5).status_code == 200


def test_idle_connections_at_a_low_limit_of_files_do_not_shut_health_out(make_server):
    server = make_server(wrapper=["prlimit", "--nofile=1024:1024"])
    for listener in ["http", "line", "pickle", "protobuf"]:
        if listener not in server.ports:
            continue
        with connected("127.0.0.1", server.ports[listener], 1100):
            for _ in range(5):
                begun = time.monotonic()
                assert requests.get(server.url("/healthy"), timeout=10).status_code == 200
                assert time.monotonic() - begun < 1, listener
                assert requests.get(server.url("/metrics/find?query=*"), timeout=10).status_code == 200
    # Points and files find descriptors, too.
    server.send([("second.a", int(time.time()), 1.0)])
    eventually(lambda: server.find("second.*"), ["second.a"])
    assert server.post("/admin/flush").status_code == 200


def test_a_body_of_points_that_trickles_is_refused(make_server):
    server = make_server(settings=QUIET + '[http]\nidle_timeout = "2s"\nmin_rate = "100B"\n')
    with socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=20) as connection:
        connection.sendall(b"POST /ingest HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        connection.settimeout(0.2)
        begun, answer = time.monotonic(), b""
        while not answer and time.monotonic() - begun < 15:
            connection.sendall(b"x")
            with contextlib.suppress(TimeoutError):
                answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 408") and time.monotonic() - begun < 10
