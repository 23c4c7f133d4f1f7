"""Backups of a running server: restored, they have the moment that they name; damage is found."""

import json
import time

from plumbago import run


def backup(server, folder):
    done = run("backup", str(folder), "--http", f"127.0.0.1:{server.ports['http']}", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_restored_backup_has_the_moment_it_names(make_server, tmp_path):
    server = make_server()
    now = int(time.time())
    sent = {"a.stored": {now - 100: 1.0}, "a.journalled": {now - 50: 2.0}, "a.later": {now - 20: 3.0}}
    server.send([("a.stored", now - 100, 1.0)])
    assert server.post("/admin/flush").status_code == 200
    server.send([("a.journalled", now - 50, 2.0)])
    first = backup(server, tmp_path / "backups")
    server.send([("a.later", now - 20, 3.0)])
    second = backup(server, tmp_path / "backups")
    assert second["backup"].endswith("backup-000002")
    server.stop()

    for made, is_there in [(first, [True, True, False]), (second, [True, True, True])]:
        verified = run("verify", made["backup"])
        assert verified.returncode == 0, verified.stdout
        restored = make_server(start=False)
        data = restored.data
        done = run("restore", made["backup"], str(data))
        assert done.returncode == 0, done.stderr
        assert run("restore", made["backup"], str(data)).returncode == 1, "it is not empty"
        restored.start()
        for (name, point), there in zip(sent.items(), is_there):
            assert restored.points(name, **{"from": "-1h"}) == (point if there else {}), name
        restored.stop()


def test_a_flipped_bit_in_a_backup_is_found_and_not_restored(make_server, tmp_path):
    server = make_server()
    server.send([("a.b", int(time.time()) - 100, 1.0)])
    assert server.post("/admin/flush").status_code == 200
    made = backup(server, tmp_path / "backups")
    server.stop()
    (rows,) = (tmp_path / "backups").glob("**/*.rows")
    # Its own bytes: the file is a link to that of the server.
    damaged = bytearray(rows.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    rows.unlink()
    rows.write_bytes(damaged)
    verified = run("verify", made["backup"], "--json")
    assert verified.returncode == 1 and json.loads(verified.stdout)["damage"]
    done = run("restore", made["backup"], str(tmp_path / "restored"))
    assert done.returncode == 1 and "is damaged" in done.stderr
    assert not (tmp_path / "restored").exists()
