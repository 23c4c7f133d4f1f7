"""Damage in every kind of file of a data folder: verify names the file, and repair keeps everything else."""

import json
import random
import shutil
import time

from plumbago import eventually, run

METRICS = 300
STORED = 60
# Seconds of a row of points of one second: 1,000 slots.
ROW = 1000


def fill(server):
    """Metrics with stored points, an event, and points of one metric that are in the journal alone."""
    now = int(time.time())
    values = random.Random(12)
    # The points of a metric are in one row: damage between two rows touches metrics of the end and of the beginning.
    last = now - 700
    if last % ROW < 10 * STORED:
        last -= last % ROW + 1
    expected = {f"m.{n:03}": {last - 10 * i: values.random() for i in range(STORED)} for n in range(METRICS)}
    server.send([(name, at, value) for name, points in expected.items() for at, value in points.items()])
    assert server.post("/events/", json={"what": "deploy", "tags": ["a"], "data": "first"}).status_code == 200
    assert server.post("/admin/flush").status_code == 200
    server.send([("journalled.a", now - 50, 1.0)])
    server.send([("journalled.b", now - 50, 2.0)])
    return expected, now


def flip(path, place=0.5):
    damaged = bytearray(path.read_bytes())
    damaged[int(len(damaged) * place)] ^= 4
    path.write_bytes(damaged)


def verify(data):
    done = run("verify", str(data), "--json")
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def test_one_flipped_bit_in_each_kind_of_file_is_found(make_server, tmp_path):
    server = make_server()
    fill(server)
    time.sleep(1)
    server.kill()
    killed = tmp_path / "killed"
    shutil.copytree(server.data, killed)
    server.start()
    assert server.stop() == 0
    status, report = verify(server.data)
    assert status == 0, report
    assert {"rows", "names", "events", "manifest", "spec", "clock", "saved names"} <= set(report["kinds"]), report

    kinds = [
        (killed, "journal/*.journal"),
        (server.data, "store/datapoints_*/*/*.rows"),
        (server.data, "store/names/*.log"),
        (server.data, "store/events/*.log"),
        (server.data, "store/manifest"),
        (server.data, "store/spec"),
        (server.data, "clock"),
        (server.data, "names"),
    ]
    for data, pattern in kinds:
        path = max(data.glob(pattern), key=lambda file: file.stat().st_size)
        whole = path.read_bytes()
        for place in [0, 0.1, 0.5, 0.9]:
            flip(path, place)
            status, report = verify(data)
            assert status == 1 and str(path.relative_to(data)) in [found["file"] for found in report["damage"]], (
                pattern, place, report,
            )
            path.write_bytes(whole)


def test_a_repair_keeps_all_that_can_be_read(make_server):
    server = make_server()
    expected, now = fill(server)
    time.sleep(1)
    server.kill()
    data = server.data
    (rows,) = [file for file in data.glob("store/datapoints_*/*/*.rows") if file.stat().st_size > 100_000]
    journal = max(data.glob("journal/*.journal"), key=lambda file: file.stat().st_size)
    (names,) = data.glob("store/names/*.log")
    flip(rows)
    # The last record of the journal; its beginning tells it from a torn write.
    flip(journal, 0.999)
    # A name in the middle of the log.
    record = bytearray(names.read_bytes())
    record[record.index(b"m.150")] ^= 3
    names.write_bytes(record)
    for path in ["store/manifest", "store/spec", "clock"]:
        flip(data / path)

    planned = run("repair", str(data), "--dry-run", "--json")
    assert planned.returncode == 3, planned.stderr
    planned = json.loads(planned.stdout)
    assert not planned["repaired"] and not (data / "damaged").exists()
    files = {found["file"]: found for found in planned["damage"]}
    assert len(files) == 6, files
    lost = files[str(rows.relative_to(data))]
    assert 0 < lost["metrics"] < METRICS / 2 and lost["names"][0].startswith("m."), lost

    done = run("repair", str(data), "--json")
    assert done.returncode == 3, done.stderr
    repaired = json.loads(done.stdout)
    assert repaired["repaired"] and repaired["good"] and repaired["damage"] == planned["damage"]
    status, report = verify(data)
    assert status == 0, report
    kept = [file.name for file in (data / "damaged").iterdir()]
    for path in [rows, journal, names, data / "store/manifest", data / "store/spec", data / "clock"]:
        flat = "_".join(path.relative_to(data).parts)
        assert any(name.startswith(flat) for name in kept), (flat, kept)
    again = run("repair", str(data))
    assert again.returncode == 0 and "nothing is damaged" in again.stdout

    server.start()
    first, last = lost["metric_ids"]
    whole = 0
    for name, points in server.columns("m.*", now - 2000, now).items():
        assert points.items() <= expected[name].items(), name
        whole += points == expected[name]
    assert METRICS - (last - first + 1) - 1 <= whole < METRICS
    found = [server.points(name, **{"from": "-1h"}) for name in ["journalled.a", "journalled.b"]]
    assert found == [{now - 50: 1.0}, {}]
    events = server.get("/events/get_data").json()
    assert [event["what"] for event in events] == ["deploy"]


def test_a_folder_in_use_is_not_repaired(make_server):
    server = make_server()
    done = run("repair", str(server.data))
    assert done.returncode == 1 and "another process uses" in done.stderr, done.stderr


def make_other_store(make_server):
    """A folder with points, cleanly stopped, and another one whose server was killed."""
    server, other = make_server(), make_server()
    for one in [server, other]:
        fill(one)
        time.sleep(1)
    assert server.stop() == 0
    other.kill()
    return server.data, other.data


def test_a_journal_of_another_store_is_said_by_verify_as_by_the_start(make_server):
    data, other = make_other_store(make_server)
    (segment,) = [file for file in other.glob("journal/*.journal") if file.stat().st_size > 500]
    shutil.copy(segment, data / "journal")
    status, report = verify(data)
    (found,) = [one for one in report["damage"] if one["what"] == "journal segment of another store"]
    assert status == 1 and "a start refuses it" in found["why"], report
    repaired = run("repair", str(data))
    assert repaired.returncode == 1 and "kept as it is: journal/" in repaired.stdout, repaired.stdout
    assert (data / "journal" / segment.name).exists()


def test_a_spec_of_another_store_is_what_is_wrong(make_server):
    data, other = make_other_store(make_server)
    shutil.copy(other / "store/spec", data / "store/spec")
    status, report = verify(data)
    assert status == 1 and [one["file"] for one in report["damage"]] == ["store/spec"], report
    repaired = run("repair", str(data))
    assert repaired.returncode == 0 and "made again: store/spec" in repaired.stdout, (repaired.stdout, repaired.stderr)
    status, report = verify(data)
    assert status == 0, report


def test_a_missing_file_of_rows_is_given_up_by_a_repair_and_an_exchanged_one_is_found(make_server, tmp_path):
    server = make_server()
    fill(server)
    assert server.stop() == 0
    files = sorted(server.data.glob("store/datapoints_*/*/*.rows"))
    exchanged = tmp_path / "exchanged"
    shutil.copytree(server.data, exchanged)
    one, other = (exchanged / path.relative_to(server.data) for path in (files[0], files[-1]))
    one.write_bytes(other.read_bytes())
    status, report = verify(exchanged)
    assert status == 1 and "it says that it is" in report["damage"][0]["why"], report
    assert run("repair", str(exchanged), "--dry-run").returncode == 3

    missing = str(files[0].relative_to(server.data))
    files[0].unlink()
    server.start()
    assert server.stop() == 0
    for command in [("repair", "--dry-run"), ("repair",)]:
        done = run(command[0], str(server.data), *command[1:])
        assert done.returncode == 3 and f"not kept: {missing}: file of rows: a start did not find it" in done.stdout, done
    assert "given up; everything that is there can be read" in done.stdout
    done = run("repair", str(server.data), "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["given_up"] == [], done
    server.start()
    assert server.get("/admin/status").json()["store"]["missing_files"] == 0


def test_an_end_of_the_newest_segment_that_its_file_system_lost_is_missed(make_server):
    server = make_server()
    now = int(time.time())
    for at in range(20):
        server.send([("journalled.a", now - 50 + at, float(at))])
    noted = server.data / "segments"
    eventually(lambda: "synced" in noted.read_text(), True, seconds=20)
    server.kill()
    segment = max((server.data / "journal").glob("*.journal"))
    status, report = verify(server.data)
    assert status == 0, report
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size // 2)
    status, report = verify(server.data)
    assert status == 1, report
    assert [(damage["what"], damage["file"]) for damage in report["damage"]] == [
        ("journal records", f"journal/{segment.name}")
    ]
    assert "its end is missing" in str(report["damage"]), report
    assert report["cut_off"] == [], report

    # A start goes on without it, and says what it misses, and so does the next one.
    for _ in range(2):
        server.start()
        damage = server.get("/admin/status").json()["damage"]
        assert "its end is missing" in str(damage), damage
        server.kill()
    assert run("repair", str(server.data)).returncode == 3
    status, report = verify(server.data)
    assert status == 0, report
    # Its note stays until someone removes it, also once the other points are stored.
    for _ in range(2):
        server.start()
        damage = server.get("/admin/status").json()["damage"]
        assert "its end is missing" not in str(damage), damage
        assert "the end of the segment was missing" in str(damage), damage
        server.stop()
        status, report = verify(server.data)
        assert (status, ".cut+" in str(report["known_losses"])) == (0, True), report
    (note,) = (server.data / "damaged").glob("*.cut+*")
    # With the beginning of its last record, which the repair has cut out.
    for file in [note, *(server.data / "damaged").glob("*.journal+*")]:
        file.unlink()
    server.start()
    assert server.get("/admin/status").json()["damage"]["findings"] == 0


def test_a_newest_segment_with_the_bytes_of_another_file_has_lost_its_contents(make_server):
    for garbage in (b"\xff" * 9000, b"\xff" * 1200, bytes(9000)):
        server = make_server()
        now = int(time.time())
        for at in range(20):
            server.send([(f"journalled.a{i}", now - 50 + at, float(at)) for i in range(9)])
        server.kill()
        segment = max((server.data / "journal").glob("*.journal"))
        segment.write_bytes(garbage)
        status, report = verify(server.data)
        assert status == 1, report
        assert [(damage["what"], damage["file"]) for damage in report["damage"]] == [
            ("journal segment", f"journal/{segment.name}")
        ]
        # Also behind a stop, which stores what there is.
        for _ in range(3):
            server.start()
            damage = server.get("/admin/status").json()["damage"]
            assert damage["findings"] > 0 and segment.stem in str(damage), damage
            server.stop()
        kept = [file.read_bytes() for file in (server.data / "damaged").iterdir()]
        assert garbage in kept or not any(garbage), kept


def journalled(make_server, segments=3):
    """A stopped data folder whose journal has several segments with points that are not stored, and the points of each."""
    server = make_server()
    now = int(time.time())
    # The store knows how far the journal is stored.
    server.send([("stored.a", now - 50, 1.0)])
    assert server.post("/admin/flush").status_code == 200
    points = {}
    for segment in range(segments):
        points[segment] = [(f"journalled.a{segment}", now - 600 + at, float(at)) for at in range(60)]
        server.send(points[segment])
        if segment + 1 < segments:
            # A backup begins the next segment.
            made = run("backup", str(server.folder / f"backups-{segment}"), "--http", f"127.0.0.1:{server.ports['http']}")
            assert made.returncode == 0, made
    noted = server.data / "segments"
    eventually(lambda: "synced" in noted.read_text(), True, seconds=20)
    server.kill()
    files = sorted((server.data / "journal").glob("*.journal"))
    assert len(files) == segments, files
    return server, files, points


def is_there(server, points):
    expected = {at: value for _, at, value in points}
    return server.points(points[0][0], **{"from": min(expected) - 1, "until": max(expected)}) == expected


def test_a_repair_puts_exchanged_segments_right_and_reports_a_missing_one_with_another_in_its_place(make_server):
    server, files, points = journalled(make_server)
    first, last = files[0].read_bytes(), files[2].read_bytes()
    files[0].write_bytes(last)
    files[2].write_bytes(first)
    assert verify(server.data)[0] == 1
    for options in [["--dry-run"], []]:
        repaired = run("repair", str(server.data), *options)
        assert repaired.returncode == 0 and repaired.stdout.count("put right: journal/") == 2, repaired
        assert "not kept" not in repaired.stdout, repaired.stdout
    status, report = verify(server.data)
    assert (status, report["known_losses"]) == (0, []), report
    assert [file.read_bytes() for file in (files[0], files[2])] == [first, last]

    # Of two copies of a missing one, the whole one.
    files[0].unlink()
    files[0].with_name("00000040.journal").write_bytes(first[:-300])
    files[0].with_name("00000041.journal").write_bytes(first)
    assert run("repair", str(server.data)).returncode == 3
    assert files[0].read_bytes() == first
    # What is renamed and has lost its end is reported for that.
    files[2].with_name("00000040.journal").write_bytes(last[:-300])
    files[2].unlink()
    for options in [["--dry-run"], []]:
        repaired = run("repair", str(server.data), *options)
        assert repaired.returncode == 3 and "its end is missing" in repaired.stdout, repaired
    assert ".cut+" in str(verify(server.data)[1]["known_losses"])
    files[2].write_bytes(last)
    server.start()
    assert all(is_there(server, of_segment) for of_segment in points.values())
    server.kill()

    # A copy of another one in the place of the newest.
    files[2].write_bytes(first)
    assert run("repair", str(server.data)).returncode == 3
    status, report = verify(server.data)
    assert status == 0 and "missing" in str(report["known_losses"]), report
    for _ in range(2):
        server.start()
        damage = server.get("/admin/status").json()["damage"]
        assert files[2].stem in str(damage), damage
        assert is_there(server, points[0] + points[1])
        server.stop()


def test_a_repair_of_a_folder_with_the_spec_of_another_store_is_one_that_starts(make_server, tmp_path):
    server, files, points = journalled(make_server)
    other = make_server()
    other.send([("other.a", int(time.time()), 1.0)])
    other.stop()
    (server.data / "store" / "spec").write_bytes((other.data / "store" / "spec").read_bytes())
    assert run("repair", str(server.data)).returncode in (0, 1, 3)
    server.start()
    assert all(is_there(server, of_segment) for of_segment in points.values())


def test_a_repair_puts_a_segment_of_another_store_aside(make_server):
    server, files, points = journalled(make_server)
    other, others, _ = journalled(make_server, segments=4)
    # The number that its header has is free here.
    (server.data / "journal" / "00000040.journal").write_bytes(others[-1].read_bytes())
    assert run("repair", str(server.data)).returncode == 3
    assert verify(server.data)[0] == 0
    assert others[-1].read_bytes() in [file.read_bytes() for file in (server.data / "damaged").iterdir()]
    server.start()
    assert all(is_there(server, of_segment) for of_segment in points.values())


def test_a_missing_spec_hides_no_lost_end_of_the_journal(make_server):
    server, files, points = journalled(make_server)
    (server.data / "store" / "spec").unlink()
    with files[-1].open("r+b") as file:
        file.truncate(files[-1].stat().st_size - 400)
    status, report = verify(server.data)
    assert status == 1 and "its end is missing" in str(report["damage"]), report
    assert run("repair", str(server.data)).returncode == 3
    status, report = verify(server.data)
    assert status == 0 and ".cut+" in str(report["known_losses"]), report
    server.start()
    damage = server.get("/admin/status").json()["damage"]
    assert "the end of the segment was missing" in str(damage), damage
    assert is_there(server, points[0] + points[1])


def test_a_repair_without_a_manifest_replays_no_copy_of_a_stored_segment(make_server):
    server = make_server()
    at = int(time.time()) - 100
    server.send([("stored.a", at, 1.0)])
    # The last one that is stored is named by the next one.
    segment = max((server.data / "journal").glob("*.journal"))
    copy = segment.read_bytes()
    server.send([("stored.a", at, 2.0)])
    assert server.post("/admin/flush").status_code == 200
    server.send([("journalled.a", at, 3.0)])
    server.kill()
    assert not segment.exists()
    segment.with_name("00000040.journal").write_bytes(copy)
    (server.data / "store" / "manifest").unlink()
    assert run("repair", str(server.data)).returncode == 3
    server.start()
    assert [is_there(server, [(name, at, value)]) for name, value in [("stored.a", 2.0), ("journalled.a", 3.0)]] == [True] * 2


def is_missed(server, newest):
    """`verify` and `repair` say that a segment is missing, and so does the server, which is started."""
    status, report = verify(server.data)
    assert status == 1 and newest.name in str(report["damage"]), report
    assert run("repair", str(server.data)).returncode == 3
    status, report = verify(server.data)
    assert status == 0 and newest.stem in str(report["known_losses"]), report
    server.start()
    assert newest.stem in str(server.get("/admin/status").json()["damage"])


def test_a_spec_of_an_earlier_time_hides_no_missing_segment(make_server):
    server = make_server()
    now = int(time.time())
    server.send([("stored.a", now - 50, 1.0)])
    server.stop()
    spec = (server.data / "store" / "spec").read_bytes()
    server.start()
    server.send([("journalled.a", now - 40, 2.0)])
    eventually(lambda: "synced" in (server.data / "segments").read_text(), True, seconds=20)
    server.kill()
    newest = max((server.data / "journal").glob("*.journal"))
    newest.unlink()
    (server.data / "store" / "spec").write_bytes(spec)
    is_missed(server, newest)


def test_a_store_of_an_earlier_time_hides_no_missing_segment(make_server):
    server = make_server()
    at = int(time.time()) - 100
    server.send([("stored.a", at, 1.0)])
    server.stop()
    store = server.folder / "store-before"
    shutil.copytree(server.data / "store", store)
    for name in ["journalled.a", "journalled.b"]:
        server.start()
        server.send([(name, at, 2.0)])
        eventually(lambda: "synced" in (server.data / "segments").read_text(), True, seconds=20)
        server.kill()
    newest = max((server.data / "journal").glob("*.journal"))
    newest.unlink()
    shutil.rmtree(server.data / "store")
    shutil.copytree(store, server.data / "store")
    is_missed(server, newest)
    assert is_there(server, [("journalled.a", at, 2.0)]) and is_there(server, [("stored.a", at, 1.0)])


def test_a_repair_says_that_deletions_may_be_lost_and_what_is_back_is_back_with_its_points(make_server):
    server = make_server()
    now = int(time.time())
    server.send([("kept.a", now - 50, 1.0), ("gone.a", now - 50, 2.0)])
    assert server.post("/admin/flush").status_code == 200
    assert run("delete", "gone.*", "--yes", "--http", f"127.0.0.1:{server.ports['http']}").returncode == 0
    assert server.find("*.a") == server.find("kept.a")
    server.stop()
    (log,) = (server.data / "store" / "names").glob("*.log")
    damaged = bytearray(log.read_bytes())
    damaged[-8:] = bytes(8)
    log.write_bytes(damaged)
    done = run("repair", str(server.data), "--json")
    assert done.returncode == 3 and "deleted may be back" in str(json.loads(done.stdout)["lost_deletions"]), done
    assert verify(server.data)[0] == 0
    server.start()
    for name, value in {"kept.a": 1.0, "gone.a": 2.0}.items():
        assert server.points(name, **{"from": now - 60, "until": now}) == {now - 50: value}, name


def test_a_segment_of_another_timeline_ends_no_report_of_the_one_in_whose_place_it_is(make_server):
    server, files, points = journalled(make_server)
    copy = make_server(start=False)
    shutil.copytree(server.data, copy.data)
    now = int(time.time())
    # Both go on from here.
    for one, name in ((server, "here.a"), (copy, "elsewhere.a")):
        one.start()
        one.send([(name, now - 600 + at, 7.0) for at in range(60)])
        eventually(lambda: "synced" in (one.data / "segments").read_text(), True, seconds=20)
        one.kill()
    place = max((server.data / "journal").glob("*.journal"))
    foreign = (copy.data / "journal" / place.name).read_bytes()
    for repairs, is_killed in ((False, False), (False, True), (True, False), (True, True)):
        folder = make_server(start=False)
        shutil.copytree(server.data, folder.data)
        (folder.data / "journal" / place.name).write_bytes(foreign)
        if repairs:
            assert run("repair", str(folder.data)).returncode in (1, 3)
        for start in range(3):
            folder.start()
            damage = folder.get("/admin/status").json()["damage"]
            assert place.stem in str(damage), (repairs, is_killed, start, damage)
            assert all(is_there(folder, of_segment) for of_segment in points.values())
            if is_killed and start == 0:
                folder.kill()
            else:
                folder.stop()
