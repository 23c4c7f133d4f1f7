"""Starts with a wrong clock: points are accepted, nothing expires, and /ready and the log say so."""

import shutil
import subprocess
import time

import pytest
from plumbago import QUIET, run, wait_until

# Moves the calendar alone: the stopwatch stays.
SHIM = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void) {
    const char *by = getenv("SHIFT_CLOCK");
    return by ? atol(by) : 0;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, id, now);
    if (!failed && id == CLOCK_REALTIME) now->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    int failed = clock_gettime(CLOCK_REALTIME, &precise);
    if (now) { now->tv_sec = precise.tv_sec; now->tv_usec = precise.tv_nsec / 1000; }
    return failed;
}

time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}
"""

DAY = 86_400


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for the shim")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    done = subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", folder / "shim.so", folder / "shim.c"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / "shim.so"


def to_1970(now):
    return 1000 - now


def to_2036(now):
    return 2_082_758_400 - now


def a_day_back(_):
    return -DAY


@pytest.mark.parametrize("moved", [to_1970, to_2036, a_day_back])
def test_a_start_with_a_wrong_clock_costs_nothing(make_server, shim, moved):
    server = make_server(settings=QUIET + '[data]\nexpire_every = "1s"\ntrash_keep = "1s"\n')
    now = int(time.time())
    first = {now - 100 - n: float(n) for n in range(50)}
    server.send([("a.before", at, value) for at, value in first.items()])
    assert server.post("/admin/flush").status_code == 200
    assert server.stop() == 0

    server.environment = {"LD_PRELOAD": str(shim), "SHIFT_CLOCK": str(moved(now))}
    server.start()
    assert "clock" in server.get("/ready").text, "the clock is in doubt"
    server.send([("a.meanwhile", now, 1.0)])
    assert server.post("/admin/flush").status_code == 200
    time.sleep(3)
    span = {"from": str(now - 1000), "until": str(now + 60)}
    assert server.points("a.before", **span) == first, "absolute times are answered"
    assert server.points("a.meanwhile", **span) == {now: 1.0}
    assert server.counter_of_points() == 1 and server.rejects() == []
    assert server.get("/admin/status").json()["clock_in_doubt"]["at_start"]
    assert "nothing expires" in server.logs()
    assert not list((server.data / "trash").glob("*rows*")) and not list((server.data / "trash").glob("*datapoints*"))
    settled = server.post("/admin/clock?trust=before")
    assert settled.status_code == 200 and settled.json()["was_in_doubt"]
    wait_until(lambda: "settled" in server.logs())
    server.kill()

    # Right again: nothing was lost meanwhile.
    server.environment = {}
    server.start()
    assert server.points("a.before", **span) == first
    assert server.points("a.meanwhile", **span) == {now: 1.0}
    server.send([("a.after", int(time.time()), 3.0)])
    wait_until(lambda: len(server.points("a.after", **{"from": "-1min"})) == 1)
    server.stop()
    assert run("verify", server.data).returncode == 0


def test_an_operator_settles_that_the_clock_is_right(make_server, shim):
    server = make_server(settings=QUIET)
    server.stop()
    # As after a stop of ten days: only points or an operator can tell.
    server.environment = {"LD_PRELOAD": str(shim), "SHIFT_CLOCK": str(10 * DAY)}
    server.start()
    assert "clock" in server.get("/ready").text
    assert server.post("/admin/clock?trust=me").status_code == 400
    settled = server.post("/admin/clock?trust=clock")
    assert settled.status_code == 200 and settled.json()["was_in_doubt"]
    assert server.get("/admin/status").json()["clock_in_doubt"] is None
    assert "clock" not in server.get("/ready").text
