"""The disk of the store hangs or fails: health, log and figures say so, and nothing is lost. A start that takes long says what
it does."""

import signal
import time

from disk_shim import DiskShim
from plumbago import QUIET, aligned_now, eventually, run, wait_until

SOON = QUIET + '[ingest]\nflush_after = "1s"\n'

# After so long /ready says that the store takes nothing.
STORE_PATIENCE = 30
EIO, ENOSPC = 5, 28


def send(server, name, count):
    """Points of the last hour; returns them."""
    start = aligned_now() - 600
    points = {start + i: float(i) for i in range(count)}
    server.send([(name, at, value) for at, value in points.items()])
    return points


def served(server, name):
    return lambda: server.points(name, **{"from": aligned_now() - 1200})


def ready(server):
    answer = server.get("/ready")
    return answer.status_code, answer.text


def status(server):
    return server.get("/admin/status").json()


def test_a_disk_of_the_store_that_hangs_is_reported_and_loses_nothing(make_server, tmp_path):
    shim = DiskShim(tmp_path)
    server = make_server(start=False, settings=SOON)
    server.environment = shim.environment(server.data / "store")
    server.start()
    first = send(server, "second.before", 10)
    eventually(served(server, "second.before"), first)
    shim.begin("hang")
    try:
        points = send(server, "second.hung", 60)
        eventually(served(server, "second.hung"), points)
        wait_until(lambda: ready(server)[0] == 503, STORE_PATIENCE + 30, "/ready did not notice that the disk hangs")
        assert "the disk of the store does not answer" in ready(server)[1]
        wait_until(lambda: "the disk of the store does not answer" in server.logs(), 10, "the log does not say it")
        # Points are accepted and read meanwhile.
        more = send(server, "second.meanwhile", 10)
        eventually(served(server, "second.meanwhile"), more)
        # A restart would not help yet.
        assert server.get("/healthy").status_code == 200
    finally:
        shim.end()
    wait_until(lambda: ready(server)[0] == 200, 30, "the server did not become ready again")
    wait_until(lambda: "the disk of the store has answered" in server.logs(), 10)
    assert server.post("/admin/flush").status_code == 200
    assert served(server, "second.hung")() == points
    server.kill()
    server.environment = {}
    server.start()
    assert served(server, "second.hung")() == points and served(server, "second.meanwhile")() == more


def test_events_that_the_disk_does_not_take_are_in_ready_and_in_a_figure(make_server, tmp_path):
    shim = DiskShim(tmp_path)
    server = make_server(start=False, settings=SOON)
    server.environment = shim.environment(server.data / "store" / "events")
    server.start()
    post = lambda what: server.post("/events/", data=f'{{"what": "{what}", "tags": "t"}}').status_code
    assert post("before") == 200
    shim.begin(f"fail {ENOSPC}")
    try:
        assert post("lost") == 503
        code, text = ready(server)
        assert code == 200 and "no events are taken" in text and "No space left" in text, text
        assert server.counters()["plumbago_events_failing"] == 1 and server.counter("plumbago_events_failed_total") == 1
        assert "No space left" in status(server)["events"]["problem"]
    finally:
        shim.end()
    assert post("after") == 200
    assert ready(server)[1].strip() == "ready" and server.counters()["plumbago_events_failing"] == 0


def test_a_log_of_names_that_cannot_be_written_is_an_outage_of_the_store(make_server, tmp_path):
    shim = DiskShim(tmp_path)
    server = make_server(start=False, settings=SOON)
    server.environment = shim.environment(server.data / "store" / "names")
    server.start()
    shim.begin(f"fail {EIO}")
    try:
        points = send(server, "second.new", 60)
        eventually(served(server, "second.new"), points)
        wait_until(lambda: status(server)["store_failing"], 20, "the outage is in no figure")
        found = status(server)
        assert "names" in found["store_problem"] and "Input/output error" in found["store_problem"], found["store_problem"]
        assert server.counters()["plumbago_store_failing"] == 1
        wait_until(lambda: ready(server)[0] == 503, STORE_PATIENCE + 30, "/ready did not notice the outage")
        assert "names" in ready(server)[1], ready(server)
        # Points of known names are accepted and read meanwhile.
        assert served(server, "second.new")() == points
    finally:
        shim.end()
    wait_until(lambda: ready(server)[1].strip() == "ready", 60, "the server did not become ready again")
    assert not status(server)["store_failing"]
    assert server.post("/admin/flush").status_code == 200
    server.kill()
    server.environment = {}
    server.start()
    assert served(server, "second.new")() == points


def test_a_flush_that_fails_names_the_file(make_server, tmp_path):
    shim = DiskShim(tmp_path)
    server = make_server(start=False)
    server.environment = shim.environment(server.data / "journal")
    server.start()
    send(server, "second.full", 10)
    shim.begin(f"fail {ENOSPC}")
    try:
        answer = server.post("/admin/flush")
        assert answer.status_code != 200 and str(server.data / "journal") in answer.text, answer.text
        assert "No space left on device" in answer.text
    finally:
        shim.end()


def test_a_long_replay_says_how_far_it_is_and_a_signal_ends_it(make_server, tmp_path):
    shim = DiskShim(tmp_path)
    server = make_server(start=False)
    server.environment = shim.environment(server.data / "journal")
    server.start()
    points = {}
    for n in range(3):
        points |= send(server, f"second.m{n}", 50)
        eventually(served(server, f"second.m{n}"), points)
        server.kill()
        # Each start begins a segment, and puts those before it on the disk.
        if n == 2:
            shim.begin("stall 3")
            server.spawn()
        else:
            server.start()
    wait_until(lambda: "the journal is being replayed" in server.logs(), 60, "nothing says how far the replay is")
    logs = server.logs()
    assert "opening the data folder" in logs and "replaying the journal" in logs
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: server.process.poll() is not None, 30)
    assert server.process.returncode == 0
    assert "stopping during the start" in server.logs()
    shim.end()
    server.start()
    for n in range(3):
        assert served(server, f"second.m{n}")() == points


def test_a_removed_file_of_rules_is_refused_and_a_signal_is_always_answered(make_server):
    server = make_server(settings=QUIET + '[rules]\nreload_every = "1h"\n')
    send(server, "second.m", 10)

    def lines(text):
        return server.logs().count(text)

    def hangup(text):
        before = lines(text)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: lines(text) == before + 1, 10, f"no line: {text}")

    hangup("carbon's files have not changed")
    schemas = (server.conf / "storage-schemas.conf").read_text()
    server.configure("storage-schemas.conf", None)
    hangup("storage-schemas.conf was there and is gone")
    hangup("storage-schemas.conf was there and is gone")
    assert server.counters()["plumbago_rules_refused"] == 1
    server.configure("storage-schemas.conf", schemas)
    hangup("the new rules are in force")
    assert "have another policy than before" not in server.logs()
    server.configure("storage-schemas.conf", "[all]\npattern = .*\nretentions = 10s:1d\n")
    hangup("the new rules are in force")
    assert "have another policy than before" in server.logs() and "metrics=1" in server.logs()


def test_a_data_folder_that_goes_away_stops_points(make_server):
    server = make_server()
    first = send(server, "second.before", 10)
    server.data.rename(server.folder / "away")
    number = iter(range(1000))

    def is_noticed():
        # Not waiting for an answer: points that are not accepted stay in the socket.
        with server.connect() as connection:
            connection.sendall(f"second.away{next(number)} 1 {aligned_now()}\n".encode())
        time.sleep(0.2)
        return ready(server)[0] == 503 and "was moved away or removed while the program uses it" in server.logs()

    wait_until(is_noticed, 15, "points are accepted into a folder that is gone")
    (server.folder / "away").rename(server.data)
    wait_until(lambda: ready(server)[0] == 200, 30, "the server did not become ready again")
    more = send(server, "second.after", 10)
    eventually(served(server, "second.after"), more)
    sent = next(number)
    eventually(lambda: len(server.find("second.away*")), sent)
    time.sleep(1.5)
    server.kill()
    server.start()
    assert served(server, "second.before")() == first and served(server, "second.after")() == more
    # Also those that were accepted before it was noticed.
    assert len(server.find("second.away*")) == sent


def test_a_lost_name_is_said_and_stays_known(make_server):
    server = make_server()
    start = aligned_now() - 600
    server.send([(f"second.m{n:03}", start, 1.0) for n in range(100)])
    assert server.post("/admin/flush").status_code == 200
    assert server.stop() == 0
    (names,) = server.data.glob("store/names/*.log")
    damaged = bytearray(names.read_bytes())
    damaged[damaged.index(b"second.m050")] ^= 3
    names.write_bytes(damaged)
    # The quick start would not read the log.
    (server.data / "names").unlink()
    checked = run("verify", str(server.data))
    assert checked.returncode == 1 and "1 metrics have rows and no name" in checked.stdout, checked.stdout

    server.start()
    logs = server.logs()
    assert "at most 1 metrics have lost their names (ids 50 to 50)" in logs, logs
    assert len(server.find("second.*")) == 99
    assert server.stop() == 0
    checked = run("verify", str(server.data))
    assert checked.returncode == 0, checked.stdout
    assert "1 metrics have rows and no name" in checked.stdout and "but for what earlier damage cost" in checked.stdout
    repaired = run("repair", str(server.data))
    assert repaired.returncode == 0 and "what earlier damage cost is lost" in repaired.stdout, repaired.stdout


def test_damage_of_the_journal_is_given_by_place_and_time(make_server):
    server = make_server()
    send(server, "second.a", 20)
    send(server, "second.b", 20)
    send(server, "second.c", 20)
    time.sleep(1.5)
    server.kill()
    journal = max(server.data.glob("journal/*.journal"), key=lambda file: file.stat().st_size)
    damaged = bytearray(journal.read_bytes())
    damaged[len(damaged) * 6 // 10] ^= 4
    journal.write_bytes(damaged)
    checked = run("verify", str(server.data))
    (place,) = [line for line in checked.stdout.splitlines() if "journal record" in line]
    first, last = place.split("bytes ")[1].split(":")[0].split(" to ")
    server.start()
    logs = server.logs()
    assert f"no whole record in the bytes from {first} to {last}" in logs, (place, logs)
    year = time.gmtime().tm_year
    assert f"they were accepted between {year}-" in logs, logs


def test_what_an_fsync_did_not_bring_to_the_disk_is_written_again_by_the_next_start(make_server, tmp_path):
    shim = DiskShim(tmp_path)
    server = make_server(start=False, settings=QUIET)
    server.environment = shim.environment(server.data / "journal")
    server.start()
    shim.begin(f"fail-syncs {EIO}")
    points = send(server, "second.a", 10)
    eventually(served(server, "second.a"), points)
    note = server.data / "unsynced"
    wait_until(lambda: "journal/" in note.read_text(), 10, "the failed fsync is not noted")
    server.kill()
    shim.end()
    noted = {path: path.stat().st_ino for path in map(server.data.joinpath, note.read_text().split()) if path.exists()}
    assert noted
    checked = run("verify", str(server.data))
    lines = [line for line in checked.stdout.splitlines() if line.startswith("written again by the next start: ")]
    assert any("journal/" in line for line in lines), checked
    server.environment = {}
    server.start()
    assert served(server, "second.a")() == points
    # The system takes the pages of the first file for clean: only another file brings the points to the disk.
    assert all(path.stat().st_ino != before for path, before in noted.items()), noted
    assert "it was written again" in server.logs()
    assert note.read_text().strip() == ""
