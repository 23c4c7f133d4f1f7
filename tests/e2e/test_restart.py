"""Survival: a clean stop loses nothing, kill -9 loses no served point, and a damaged journal loses only its
damaged end.
"""

import fcntl
import os
import random
import signal
import threading
import time

import pytest

import naive
from disk_shim import DiskShim
from load import Steady
from plumbago import QUIET, aligned_now, eventually

SECOND = "1s:2h,10s:1d,60s:7d"


def some_points(prefix, start, metrics=50, points=100):
    return [(f"{prefix}.m{m:03}", start + i, m + i / 8) for i in range(points) for m in range(metrics)]


def by_name(points):
    found = {}
    for name, t, value in points:
        found.setdefault(name, {})[t] = value
    return found


def coarse_stages_are_exact(server, pattern, expected, now):
    """Every stage of the `second` retention against the naive model, given {name: {time: value}}."""
    models = {}
    for name, column in expected.items():
        models[name] = naive.Metric(SECOND)
        for t, value in column.items():
            models[name].write(t, value, now)
    for stage, seconds in enumerate([7200, 86400, 7 * 86400]):
        served = server.columns(pattern, now - seconds, now, now=now)
        assert served == {name: pytest.approx(model.stage(stage), rel=1e-12) for name, model in models.items()}


@pytest.mark.parametrize("flush_after", ["1s", "10min"])
def test_a_clean_stop_loses_nothing(make_server, flush_after):
    server = make_server(settings=QUIET + f'[ingest]\nflush_after = "{flush_after}"\n')
    now = aligned_now(60)
    points = some_points("second.stop", now - 600)
    half = len(points) // 2
    server.send(points[:half])
    assert server.stop() == 0
    server.start()
    eventually(lambda: server.columns("second.stop.*", now - 601, now), by_name(points[:half]))
    server.send(points[half:])
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 10
    began = time.monotonic()
    server.start()
    assert time.monotonic() - began < 5
    expected = by_name(points)
    eventually(lambda: server.columns("second.stop.*", now - 601, now), expected)
    coarse_stages_are_exact(server, "second.stop.*", expected, now)
    assert server.find("second.stop.*") == sorted(expected)


def test_points_in_sockets_at_a_stop_are_served_or_were_never_acknowledged(make_server):
    """SIGTERM under load: points served before are served after, and the order of each connection is kept."""
    server = make_server()
    load = Steady(server, "second.term", aligned_now(60) - 3000)
    load.run_from(0)
    time.sleep(1)
    before = load.whole_batches()
    assert server.stop() == 0
    load.stop()
    server.start()
    assert load.whole_batches() >= before > 0


def test_a_signal_ends_a_start_that_waits_for_pages_of_the_journal(make_server, tmp_path):
    """Also where one thread does the work of all."""
    shim = DiskShim(tmp_path)
    server = make_server()
    now = aligned_now()
    server.send([("second.kept", now, 1.0)])
    eventually(lambda: server.points("second.kept", **{"from": now - 1}), {now: 1.0})
    server.kill()
    server.environment = {"TOKIO_WORKER_THREADS": "1", **shim.environment(server.data / "journal")}
    shim.begin("fail-reads 5")
    server.spawn()
    eventually(lambda: "cannot be read; reading them again" in server.err.read_text(), True)
    time.sleep(1.5)
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 5
    shim.end()
    server.start()
    assert server.points("second.kept", **{"from": now - 1}) == {now: 1.0}


def kill_in_a_loop(server, rounds, seconds, random, prefix="second.kill"):
    """Kills the server `rounds` times under load. Returns a line for each round with its losses."""
    now = aligned_now(60)
    load = Steady(server, prefix, now - 6000, metrics=100, batches_per_second=400)
    report = []
    first = 0
    for i in range(rounds):
        load.run_from(first)
        # (time, number of batches served at that time), oldest first.
        served = [(time.monotonic(), first)]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            served.append((time.monotonic(), load.whole_batches()))
        if i % 2:
            # At any moment, not just after a read.
            time.sleep(random.random() / 5)
        else:
            served.append((time.monotonic(), load.newest()))
        killed_at = time.monotonic()
        server.kill()
        load.stop()
        began = time.monotonic()
        server.start()
        restart = time.monotonic() - began
        kept = load.whole_batches()
        # The guarantee: everything older than the sync interval. Killing a process leaves the page cache alone, so in
        # fact everything that was served.
        assert kept >= max(count for when, count in served if when < killed_at - 1)
        assert kept >= served[-1][1], f"round {i}: {served[-1][1]} batches were served, after kill -9 only {kept} are"
        assert served[-1][1] > first, "nothing was accepted in this round"
        lost = [when for batch, when in load.sent_at.items() if batch >= kept and when <= killed_at]
        window = killed_at - min(lost) if lost else 0.0
        assert window < 1, f"round {i}: what was sent {window:.3f} s before the kill is lost"
        report.append(
            f"round {i}: {kept} batches kept, {len(lost)} sent and not accepted, window {window * 1000:.1f} ms, restart {restart:.2f} s"
        )
        first = kept
    expected = by_name(point for i in range(first) for point in load.batch(i))
    partial = by_name(load.batch(first))
    for name, column in server.columns(f"{prefix}.*", load.start - 1, now).items():
        # A batch may have been cut in two by the kill.
        assert column in (expected[name], {**expected[name], **partial[name]})
        expected[name] = column
    coarse_stages_are_exact(server, f"{prefix}.*", expected, now)
    return report


@pytest.mark.parametrize("setting", ['flush_after = "1s"', 'flush_after = "10min"', 'sync = "always"'])
def test_kill_9_in_a_loop_under_load_loses_no_served_point(make_server, seeded, setting):
    server = make_server(settings=QUIET + f"[ingest]\n{setting}\n")
    print("\n".join(kill_in_a_loop(server, rounds=5, seconds=1.5, random=seeded)))


def test_kill_9_while_it_starts_or_stops_loses_nothing(make_server, seeded):
    server = make_server()
    now = aligned_now(60)
    points = some_points("second.starts", now - 1200, metrics=100, points=1000)
    server.send(points)
    expected = by_name(points)
    eventually(lambda: server.columns("second.starts.*", now - 1201, now), expected)
    for _ in range(8):
        server.kill()
        server.spawn()
        time.sleep(seeded.random() / 5)
    server.kill()
    server.start()
    assert server.columns("second.starts.*", now - 1201, now) == expected
    for _ in range(6):
        server.send([("second.starts.m000", now - 60, 5.0)])
        expected["second.starts.m000"][now - 60] = 5.0
        eventually(lambda: server.columns("second.starts.*", now - 1201, now), expected)
        server.process.terminate()
        time.sleep(seeded.random() / 5)
        server.kill()
        server.start()
    assert server.columns("second.starts.*", now - 1201, now) == expected
    coarse_stages_are_exact(server, "second.starts.*", expected, now)


def test_new_names_survive_kill_9(make_server):
    """A name and its first point are in the journal together: no name without an id, no id without a name."""
    server = make_server()
    start = aligned_now(60) - 600
    for i in range(4):
        names = [f"second.new.round{i}.m{m}" for m in range(2000)]
        server.send([(name, start + i, float(m)) for m, name in enumerate(names)])
        eventually(lambda names=names, i=i: len(server.find(f"second.new.round{i}.*")), len(names))
        server.kill()
        server.start()
        served = server.columns(f"second.new.round{i}.*", start - 1, start + 10)
        assert served == {name: {start + i: float(m)} for m, name in enumerate(names)}
    # Old names keep their ids: no point of one metric appears in another.
    for i in range(4):
        served = server.columns(f"second.new.round{i}.*", start - 1, start + 10)
        assert served == {f"second.new.round{i}.m{m}": {start + i: float(m)} for m in range(2000)}


# Damage.


def segments(server):
    return sorted(server.data.rglob("*.journal"))


def cut(path, size):
    with path.open("r+b") as file:
        file.truncate(max(0, path.stat().st_size - size))


def append(path, data):
    with path.open("ab") as file:
        file.write(data)


def flip(path, from_end):
    with path.open("r+b") as file:
        file.seek(-from_end, 2)
        byte = file.read(1)[0]
        file.seek(-from_end, 2)
        file.write(bytes([byte ^ 0x40]))


def new_segment(path, data):
    path.with_name(f"{int(path.stem) + 1:08}.journal").write_bytes(data)


NOISE = random.Random(7).randbytes(5000)

# The damage to the newest segment, and whether the last record is lost with it.
DAMAGE = {
    "cut by a byte": (lambda path: cut(path, 1), True),
    "cut within a record": (lambda path: cut(path, 20), True),
    "noise appended": (lambda path: append(path, NOISE), False),
    "zeros appended": (lambda path: append(path, bytes(4096)), False),
    "a huge length appended": (lambda path: append(path, b"\xff" * 16), False),
    "a length beyond the end appended": (lambda path: append(path, b"\x00\x10\x00\x00" + NOISE[:50]), False),
    "a bit of the last record flipped": (lambda path: flip(path, 5), True),
    "an empty segment follows": (lambda path: new_segment(path, b""), False),
    "half a magic follows": (lambda path: new_segment(path, path.read_bytes()[:5]), False),
    "a segment of noise follows": (lambda path: new_segment(path, NOISE), False),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_end_of_the_journal_loses_only_that_end(make_server, damage):
    server = make_server()
    start = aligned_now(60) - 600
    sent = {}
    # Each point is a batch, and so a record, of its own.
    for i in range(10):
        server.send([("second.torn", start + i, float(i))])
        sent[start + i] = float(i)
        eventually(lambda: server.points("second.torn", **{"from": start - 1, "until": start + 60}), sent)
    server.kill()
    do, last_is_lost = DAMAGE[damage]
    do(segments(server)[-1])
    server.start()
    if last_is_lost:
        del sent[start + 9]
    look = lambda: server.points("second.torn", **{"from": start - 1, "until": start + 60})  # noqa: E731
    eventually(look, sent)
    # The server continues, and the next start does not find the damage again.
    server.send([("second.torn", start + 20, 20.0), ("second.torn.new", start + 20, 20.0)])
    sent[start + 20] = 20.0
    eventually(look, sent)
    server.kill()
    server.start()
    eventually(look, sent)
    assert server.points("second.torn.new", **{"from": start - 1, "until": start + 60}) == {start + 20: 20.0}
    assert server.stop() == 0
    server.start()
    eventually(look, sent)


def test_damage_in_the_middle_of_the_journal_is_survived_and_logged(make_server):
    server = make_server()
    start = aligned_now(60) - 600
    for i in range(20):
        server.send([("second.middle", start + i, float(i))])
        eventually(lambda i=i: start + i in server.points("second.middle", **{"from": start - 1, "until": start + 60}), True)
    server.kill()
    path = segments(server)[-1]
    flip(path, path.stat().st_size // 2)
    server.start()
    served = server.points("second.middle", **{"from": start - 1, "until": start + 60})
    # Served values are right, points before the damage are there, and the log reports the loss.
    assert all(value == t - start for t, value in served.items())
    assert len(served) >= 5
    assert "damaged" in server.logs()


def test_a_second_server_on_the_same_data_does_not_start(server):
    from plumbago import Plumbago

    second = Plumbago(server.folder / "second")
    second.data = server.data
    with pytest.raises(AssertionError, match="the server ended"):
        second.start()
    assert server.process.poll() is None


def test_queries_continue_while_points_arrive_and_are_flushed(make_server):
    """No reader ever sees a hole, a doubled or a wrong value while rows move from memory to the store."""
    server = make_server(settings=QUIET + '[ingest]\nflush_after = "1s"\n')
    load = Steady(server, "second.moving", aligned_now(60) - 3000)
    load.run_from(0)
    seen = [0]
    failures = []

    def read():
        try:
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                whole = load.whole_batches()
                assert whole >= seen[0], "a batch was served and then disappeared"
                seen[0] = max(seen[0], whole)
        except AssertionError as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    reader.join()
    load.stop()
    assert not failures, failures[0]
    assert seen[0] > 0


def test_a_log_that_is_not_read_stops_nothing(make_server):
    """A pipe of standard error that is full: lines wait, points and queries go on, and a stop ends."""
    server = make_server(start=False)
    pipe = server.folder / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    server.wrapper = ["sh", "-c", f'exec "$@" 2>{pipe}', "sh"]
    server.start()
    now = aligned_now()
    for i in range(100):
        # Each deletion is a line.
        server.send([("second.log", now - 120 + i, i), (f"second.gone{i}", now, 1)])
        eventually(lambda i=i: server.post("/tags/delSeries", data={"path": f"second.gone{i}"}).json(), True)
    eventually(lambda: server.points("second.log", **{"from": now - 200}), {now - 120 + i: i for i in range(100)})
    assert server.get("/healthy").status_code == 200 and server.post("/admin/flush").status_code == 200
    assert server.stop() == 0
    os.close(reader)


def test_a_quit_is_a_clean_stop(make_server):
    server = make_server()
    start = aligned_now() - 600
    server.send([("second.m", start, 1.0)])
    eventually(lambda: server.points("second.m", **{"from": start - 1}), {start: 1.0})
    server.process.send_signal(signal.SIGQUIT)
    assert server.process.wait(30) == 0
    assert (server.data / "names").exists(), "only a clean stop saves the names"


def test_signals_for_users_end_nothing(make_server):
    server = make_server()
    for number in [signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM]:
        server.process.send_signal(number)
    start = aligned_now() - 600
    server.send([("second.m", start, 1.0)])
    eventually(lambda: server.points("second.m", **{"from": start - 1}), {start: 1.0})
    assert server.stop() == 0
