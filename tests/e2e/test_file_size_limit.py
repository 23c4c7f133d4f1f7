"""A limit of the size of files (`ulimit -f`, `LimitFSIZE=`): treated as a full disk is."""

import resource
import socket

from plumbago import aligned_now, eventually, wait_until

import wire


def test_a_limit_of_the_size_of_files_stops_points_but_not_the_server(make_server):
    server = make_server()
    start = aligned_now() - 6000
    before = {f"second.m{i}": {start: 1.0} for i in range(50)}
    server.send([(name, start, 1.0) for name in before])
    _, hardest = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (64 << 10, hardest))
    later = [(f"second.m{i}", start + second, 2.0) for second in range(1, 200) for i in range(50)]
    with socket.create_connection(("127.0.0.1", server.ports["line"]), timeout=30) as connection:
        connection.sendall(wire.lines(later))
        connection.shutdown(socket.SHUT_WR)
        wait_until(
            lambda: server.http.get(server.url("/ready"), timeout=5).status_code == 503,
            20,
            "the server went on as ready, or it ended",
        )
        assert server.process.poll() is None
        assert "File too large" in server.logs()
        # What was accepted before is served.
        assert server.points("second.m7", **{"from": start - 1})[start] == 1.0
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hardest, hardest))
        while connection.recv(4096):
            pass
    eventually(lambda: len(server.points("second.m7", **{"from": start - 1})), 200, 30)
    server.kill()
    server.start()
    assert len(server.points("second.m7", **{"from": start - 1})) == 200
