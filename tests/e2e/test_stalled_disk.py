"""A disk that answers late: requests that need no disk do not wait for it."""

import socket
import threading
import time
from pathlib import Path

from disk_shim import DiskShim
from plumbago import QUIET, aligned_now, eventually


def test_health_and_reads_from_memory_do_not_wait_for_a_disk_that_stalls(make_server, tmp_path):
    shim = DiskShim(tmp_path)
    server = make_server(start=False, settings=QUIET + '[ingest]\nflush_after = "1s"\n')
    server.environment = {**shim.environment(server.data), "TOKIO_WORKER_THREADS": "2"}
    server.start()
    start = aligned_now() - 600
    server.send([(f"second.m{i}", start, 1.0) for i in range(50)])
    eventually(lambda: server.points("second.m7", **{"from": start - 1}), {start: 1.0})
    shim.begin("stall-all 2")
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
        shim.end()
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
