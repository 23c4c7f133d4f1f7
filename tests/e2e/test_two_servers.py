"""Two servers on one data folder whose file system grants every lock: the first notices the second, and stops writing."""

from disk_shim import DiskShim
from plumbago import QUIET, Plumbago, aligned_now, eventually, wait_until


def test_the_first_of_two_servers_stops_and_says_so_and_the_second_has_all_points(make_server, tmp_path):
    locks = DiskShim(tmp_path).granting_locks()
    first = make_server(environment=locks)
    start = aligned_now() - 600
    first.send([("second.before", start, 1.0)])
    eventually(lambda: first.points("second.before", **{"from": start - 1}), {start: 1.0})
    assert first.post("/admin/flush").status_code == 200

    second = Plumbago(tmp_path / "second", settings=QUIET, environment=locks)
    second.data = first.data
    try:
        second.start()
        said = wait_until(lambda: not_ready(first), 10, "the first server still says that it is ready")
        assert "another process uses the data folder" in said, said
        assert "another process uses the data folder" in first.logs()
        # It takes no more points, and removes nothing.
        assert first.post("/admin/flush").status_code == 503
        second.send([("second.after", start + 1, 2.0)])
        eventually(lambda: second.points("second.after", **{"from": start - 1}), {start + 1: 2.0})
        assert second.points("second.before", **{"from": start - 1}) == {start: 1.0}
        assert second.post("/admin/flush").status_code == 200
        first.kill()
        assert second.get("/ready").status_code == 200
    finally:
        assert second.stop() == 0
    first.start()
    for name, expected in [("second.before", {start: 1.0}), ("second.after", {start + 1: 2.0})]:
        assert first.points(name, **{"from": start - 1}) == expected


def not_ready(server):
    """What /ready says, unless it is a success."""
    answer = server.get("/ready")
    return answer.text if answer.status_code == 503 else None
