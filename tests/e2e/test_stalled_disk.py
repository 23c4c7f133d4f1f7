"""A disk that answers late: requests that need no disk do not wait for it."""

import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from plumbago import QUIET, aligned_now, eventually

STALL = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* Stalls each call that changes the folder STALL_UNDER while the file STALL_WHILE exists. */
static void stall(const char *path) {
    const char *under = getenv("STALL_UNDER"), *file = getenv("STALL_WHILE");
    struct stat ignored;
    if (under == NULL || file == NULL || strncmp(path, under, strlen(under)) != 0 || stat(file, &ignored) != 0) return;
    struct timespec two = {2, 0};
    nanosleep(&two, NULL);
}

static void stall_fd(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return;
    path[length] = 0;
    stall(path);
}

#define REAL(name) static __typeof__(name) *real; if (real == NULL) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *bytes, size_t length) { REAL(write); stall_fd(fd); return real(fd, bytes, length); }
int fsync(int fd) { REAL(fsync); stall_fd(fd); return real(fd); }
int fdatasync(int fd) { REAL(fdatasync); stall_fd(fd); return real(fd); }
int rename(const char *from, const char *to) { REAL(rename); stall(from); return real(from, to); }
int unlink(const char *path) { REAL(unlink); stall(path); return real(path); }
"""


@pytest.fixture
def stalling(tmp_path):
    """Makes a server whose disk takes 2 s for each change while the file that it returns exists."""
    source, library, gate = tmp_path / "stall.c", tmp_path / "stall.so", tmp_path / "stalls"
    source.write_text(STALL)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library, gate


def test_health_and_reads_from_memory_do_not_wait_for_a_disk_that_stalls(make_server, stalling):
    library, gate = stalling
    server = make_server(start=False, settings=QUIET + '[ingest]\nflush_after = "1s"\n')
    server.environment = {
        "LD_PRELOAD": str(library), "STALL_UNDER": str(server.data), "STALL_WHILE": str(gate), "TOKIO_WORKER_THREADS": "2",
    }  # fmt: skip
    server.start()
    start = aligned_now() - 600
    server.send([(f"second.m{i}", start, 1.0) for i in range(50)])
    eventually(lambda: server.points("second.m7", **{"from": start - 1}), {start: 1.0})
    gate.write_text("")
    stopped = threading.Event()
    senders = [threading.Thread(target=keep_sending, args=(server, start, n, stopped)) for n in range(8)]
    for sender in senders:
        sender.start()
    try:
        took = {}
        until = time.monotonic() + 15
        while time.monotonic() < until:
            for path in ["/healthy", f"/render?target=second.m7&format=json&from={start - 1}"]:
                waits, began = waits_for_cores(server.process.pid), time.monotonic()
                answer = server.http.get(server.url(path), timeout=30)
                seconds = time.monotonic() - began
                assert answer.status_code == 200, answer.text
                # A busy machine is not the disk.
                after = waits_for_cores(server.process.pid)
                waited = sum(after[thread] - waits.get(thread, 0) for thread in after)
                took.setdefault(path, []).append(seconds - waited)
            time.sleep(0.05)
        slowest = {path: max(times) for path, times in took.items()}
        assert max(slowest.values()) < 0.1, slowest
    finally:
        gate.unlink()
        stopped.set()
        for sender in senders:
            sender.join(60)


def waits_for_cores(process):
    """By thread of this process and of another: seconds in which it could run, and no core was free."""
    waits = {}
    for thread in [*Path("/proc/self/task").iterdir(), *Path(f"/proc/{process}/task").iterdir()]:
        try:
            waits[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
        except (FileNotFoundError, ProcessLookupError):
            pass  # The thread ended.
    return waits


def keep_sending(server, start, n, stopped):
    """Sends points of new and of known metrics, slowly."""
    i = 0
    with socket.create_connection(("127.0.0.1", server.ports["line"]), timeout=60) as connection:
        while not stopped.is_set():
            i += 1
            connection.sendall(f"second.m{n} {i} {start + i}\nsecond.new{n}.m{i} 1 {start}\n".encode())
            time.sleep(0.02)
