"""A data folder that is moved away while the server runs: nothing is written into the folder that takes its place."""

import time

from plumbago import run


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_restored_folder_in_the_place_of_a_used_one_stays_as_it_is(make_server, tmp_path):
    server = make_server()
    now = int(time.time())
    server.send([("a.stored", now - 100, 1.0)])
    assert server.post("/admin/flush").status_code == 200
    made = run("backup", str(tmp_path / "backups"), "--http", f"127.0.0.1:{server.ports['http']}")
    assert made.returncode == 0, made.stderr
    server.send([("a.later", now - 50, 2.0)])

    server.data.rename(tmp_path / "old")
    assert run("restore", str(tmp_path / "backups"), str(server.data)).returncode == 0
    restored = files(server.data)
    flushed = server.post("/admin/flush")
    assert flushed.status_code == 503 and "was moved away or removed" in flushed.json()["error"], flushed.text
    deadline = time.monotonic() + 30
    while server.get("/ready").status_code == 200:
        assert time.monotonic() < deadline, "it takes no points, and has to say so"
        server.send([("a.lost", now - 20, 3.0)])
        time.sleep(0.2)
    server.stop()
    assert files(server.data) == restored

    server.start()
    assert server.points("a.stored", **{"from": "-1h"}) == {now - 100: 1.0}
    assert server.points("a.later", **{"from": "-1h"}) == {}
