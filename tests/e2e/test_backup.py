"""Backups of a running server: restored, they have the moment that they name; damage is found."""

import fcntl
import json
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import requests
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


def test_a_backup_that_fails_is_in_the_log_and_counted(make_server):
    server = make_server()
    done = run("backup", str(server.data / "backups"), "--http", f"127.0.0.1:{server.ports['http']}")
    assert done.returncode == 1 and "is in the data folder" in done.stderr, done.stderr
    assert server.counter("plumbago_backups_failed_total") == 1
    assert server.get("/admin/status").json()["backups"] == {"made": 0, "failed": 1, "last_moment": None}


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


def test_a_backup_has_one_moment_while_points_come_flush_and_are_deleted(make_server, tmp_path):
    server = make_server()
    now = int(time.time()) - 3000
    server.send([("deleted.a", now, 1.0), ("kept.a", now, 1.0)])
    stop, failures = threading.Event(), []
    # Each value says how many points of the sender were before it.
    sent = {"s.a": 0, "s.b": 0}

    def during(work):
        def run_it():
            try:
                while not stop.is_set():
                    work()
            except Exception as error:
                failures.append(error)

        thread = threading.Thread(target=run_it)
        thread.start()
        return thread

    def sender(name):
        def work():
            first = sent[name]
            server.send([(name, now + n, float(n)) for n in range(first, min(first + 20, 2900))])
            sent[name] = min(first + 20, 2900)
            time.sleep(0.01)

        return work

    def flush():
        assert requests.post(server.url("/admin/flush"), timeout=30).status_code == 200

    threads = [during(sender(name)) for name in sent] + [during(flush)]
    made = []
    try:
        for _ in range(3):
            time.sleep(0.3)
            before = dict(sent)
            done = backup(server, tmp_path / "backups")
            made.append((done, before, {name: count + 20 for name, count in sent.items()}))
            if len(made) == 1:
                deleted = run("delete", "deleted.a", "--yes", "--http", f"127.0.0.1:{server.ports['http']}")
                assert deleted.returncode == 0, deleted.stderr
                server.configure("storage-schemas.conf", "[default]\npattern = .*\nretentions = 1s:8h\n")
    finally:
        stop.set()
        [thread.join() for thread in threads]
    assert not failures
    server.stop()

    for number, (done, before, after) in enumerate(made):
        assert run("verify", done["backup"]).returncode == 0
        restored = make_server(start=False)
        assert run("restore", done["backup"], str(restored.data)).returncode == 0
        restored.start()
        for name in sent:
            points = restored.points(name, **{"from": str(now - 1), "until": str(now + 3000)})
            count = len(points)
            assert points == {now + n: float(n) for n in range(count)}, (number, name)
            assert before[name] <= count <= after[name], (number, name, before, count, after)
        for name, is_there in [("kept.a", True), ("deleted.a", number == 0)]:
            points = restored.points(name, **{"from": str(now - 1), "until": str(now + 10)})
            assert points == ({now: 1.0} if is_there else {}), (number, name)
        restored.stop()


def test_a_killed_backup_leaves_nothing_that_looks_whole_and_the_next_one_works(make_server, tmp_path):
    server = make_server()
    now = int(time.time())
    folder = tmp_path / "backups"
    server.send([(f"m.{n}", now - 100, 1.0) for n in range(200)])
    for round_ in range(4):
        assert server.post("/admin/flush").status_code == 200
        asked = threading.Thread(target=run, args=("backup", folder, "--http", f"127.0.0.1:{server.ports['http']}"))
        asked.start()
        time.sleep(0.02 * (round_ + 1))
        server.kill()
        asked.join()
        for found in folder.glob("backup-*") if folder.exists() else []:
            whole = not found.name.endswith(".unfinished")
            assert (run("verify", found).returncode == 0) == whole, found
        server.start()
    made = backup(server, folder)
    assert run("verify", made["backup"]).returncode == 0
    assert not list(folder.glob("*.unfinished")) and not (server.data / ".backup").exists()


def test_backups_on_another_file_system_are_copied_once_and_restored_into_a_folder_that_exists(make_server, tmp_path):
    elsewhere = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path))
    try:
        server = make_server()
        now = int(time.time())
        server.send([(f"m.{n}", now - i, float(i)) for n in range(50) for i in range(50)])
        assert server.post("/admin/flush").status_code == 200
        backup(server, elsewhere)
        second = backup(server, elsewhere)
        assert second["linked_files"] > 0, "its rows are those of the first"
        expected = server.points("m.7", **{"from": "-1h"})
        server.stop()
        # The first can go: the second has all that it needs.
        shutil.rmtree(elsewhere / "backup-000001")
        restored = make_server(start=False)
        restored.data.mkdir()
        (restored.data / "lost+found").mkdir()
        inode = restored.data.stat().st_ino
        done = run("restore", elsewhere, restored.data)
        assert done.returncode == 0, done.stderr
        assert restored.data.stat().st_ino == inode, "a mount point cannot be replaced"
        restored.start()
        assert restored.points("m.7", **{"from": "-1h"}) == expected and len(expected) == 50
    finally:
        shutil.rmtree(elsewhere)


def test_a_backup_after_a_restore_has_nothing_of_the_time_that_was_given_up(make_server, tmp_path):
    """The numbers of flushes come again, and files of both times have the same names, lengths and first keys."""
    server = make_server()
    now = int(time.time()) // 60 * 60 - 600

    def put(value, first, last):
        server.send([(f"second.m{n}", now + at, value) for n in range(20) for at in range(first, last)])
        assert server.post("/admin/flush").status_code == 200

    put(1.0, 0, 50)
    first = backup(server, tmp_path / "backups")
    put(7.0, 60, 160)
    backup(server, tmp_path / "backups")
    server.stop()
    server.data.rename(tmp_path / "given-up")
    assert run("restore", first["backup"], str(server.data)).returncode == 0
    server.start()
    put(8.0, 60, 160)
    third = backup(server, tmp_path / "backups")
    expected = {now + at: 1.0 for at in range(50)} | {now + at: 8.0 for at in range(60, 160)}
    server.stop()

    restored = make_server(start=False)
    assert run("restore", third["backup"], str(restored.data)).returncode == 0
    restored.start()
    assert restored.points("second.m3", **{"from": now - 1}) == expected


def test_a_backup_removes_what_interrupted_calls_left(make_server, tmp_path):
    server = make_server()
    folder = tmp_path / "backups"
    folder.mkdir()
    (folder / ".plumbago-0123456789abcdef").write_text("")
    (folder / ".plumbago-notes").write_text("mine")
    backup(server, folder)
    assert sorted(file.name for file in folder.iterdir()) == [".plumbago-notes", "backup-000001"]


def test_a_backup_leaves_the_folder_to_another_that_still_runs(make_server, tmp_path):
    server = make_server()
    folder = tmp_path / "backups"
    draft = folder / "backup-000001.unfinished"
    draft.mkdir(parents=True)
    with_lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(with_lock, fcntl.LOCK_EX)
    refused = run("backup", str(folder), "--http", f"127.0.0.1:{server.ports['http']}")
    assert refused.returncode == 1 and "another backup is being made in" in refused.stderr, refused
    assert draft.is_dir()
    os.close(with_lock)
    assert backup(server, folder)["backup"] == str(folder / "backup-000001")
    assert not draft.exists()


def test_a_restore_takes_a_path_with_a_slash_at_its_end(make_server, tmp_path):
    server = make_server()
    server.send([("a.stored", int(time.time()) - 100, 1.0)])
    made = backup(server, tmp_path / "backups")
    for number, end in enumerate(["/", "/.", "//"]):
        data = tmp_path / f"restored-{number}"
        done = run("restore", made["backup"], f"{data}{end}")
        assert done.returncode == 0, done.stderr
        assert (data / "store" / "spec").exists() and run("verify", str(data)).returncode == 0


def test_a_restore_leaves_the_folder_of_another_that_still_runs(make_server, tmp_path):
    server = make_server()
    server.send([("a.stored", int(time.time()) - 100, 1.0)])
    made = backup(server, tmp_path / "backups")
    missing, empty = tmp_path / "missing", tmp_path / "empty"
    for data, draft in [(missing, tmp_path / "missing.unfinished"), (empty, empty / ".restoring")]:
        (draft / "store").mkdir(parents=True)
        with_lock = os.open(draft, os.O_RDONLY)
        fcntl.flock(with_lock, fcntl.LOCK_EX)
        refused = run("restore", made["backup"], str(data))
        assert refused.returncode == 1 and "another restore writes to" in refused.stderr, refused
        assert (draft / "store").exists()
        os.close(with_lock)
        done = run("restore", made["backup"], str(data))
        assert done.returncode == 0, done.stderr
        assert run("verify", str(data)).returncode == 0


def test_a_folder_of_backups_a_data_folder_and_a_backup_are_not_taken_for_each_other(make_server, tmp_path):
    server = make_server()
    made = backup(server, tmp_path / "backups")["backup"]
    done = run("restore", str(server.data), str(tmp_path / "restored"))
    assert done.returncode == 1 and "is a data folder, not a backup" in done.stderr, done.stderr
    for inside, why in [
        (server.data / "inner", f"is in the data folder {server.data}"),
        (Path(made) / "inner", f"is in the backup {made}"),
        (tmp_path / "backups" / "inner", "which has backups"),
    ]:
        done = run("restore", made, str(inside))
        assert done.returncode == 1 and why in done.stderr, done.stderr
        assert not inside.exists()
    done = run("serve", "--data", str(tmp_path / "backups"))
    assert done.returncode == 1 and "has backups, such as" in done.stderr, done.stderr
    # As an earlier program made it.
    shutil.copytree(server.data / "store", tmp_path / "backups" / "store")
    done = run("verify", str(tmp_path / "backups"))
    assert done.returncode == 1 and "has a store and also backups" in done.stderr, done.stderr
    assert run("verify", made).returncode == 0


def test_a_command_does_not_wait_for_what_does_not_speak_http(make_server, tmp_path):
    server = make_server()
    began = time.monotonic()
    done = run("backup", str(tmp_path / "backups"), "--admin", f"127.0.0.1:{server.ports['line']}")
    assert done.returncode == 1 and "does not answer over HTTP within 10 seconds" in done.stderr, done.stderr
    assert time.monotonic() - began < 30


def test_a_backup_of_logs_and_segments_that_have_lost_their_end_says_so(make_server, tmp_path):
    server = make_server()
    now = int(time.time())
    for at in range(20):
        server.send([(f"a.b{at}", now - 50 + at, 1.0)])
        assert server.post("/admin/flush").status_code == 200 or at
    server.stop()
    (log,) = (server.data / "store" / "names").glob("*.log")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size // 2)
    server.start()
    done = run("backup", str(tmp_path / "backups"), "--http", f"127.0.0.1:{server.ports['http']}")
    assert done.returncode == 3 and "store/names" in done.stdout + done.stderr, done
    (made,) = (tmp_path / "backups").iterdir()
    assert run("verify", str(made)).returncode == 1
