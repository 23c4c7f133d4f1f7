"""Metrics that come and go: memory and disk stay bounded, however many there were.

METRICS (100,000) are created, flushed and deleted in each of ROUNDS (10).
"""

import os
import time

from plumbago import QUIET, aligned_now, eventually, wait_until

METRICS = int(os.environ.get("METRICS", "100000"))
ROUNDS = int(os.environ.get("ROUNDS", "10"))

# Metrics that one request deletes.
SLICE = 10_000
MIB = 1 << 20


def resident(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def disk(server):
    return sum(path.stat().st_blocks * 512 for path in server.data.rglob("*") if path.is_file() and "trash" not in path.parts)


def test_metrics_that_come_and_go_leave_nothing(make_server):
    server = make_server(settings=QUIET + '[ingest]\nflush_after = "5s"\n[data]\ntrash_keep = "1s"\nexpire_every = "1s"\n')
    slices = [min(SLICE, METRICS - first) for first in range(0, METRICS, SLICE)]
    sizes = []
    for round_ in range(ROUNDS):
        began = time.monotonic()
        now = aligned_now()
        for number, size in enumerate(slices):
            server.send([(f"churn.r{round_}.s{number}.host{i:05}.cpu", now - j, i) for i in range(size) for j in (0, 1)])
        wait_until(lambda round_=round_: server.counter_of_points() >= 2 * METRICS * (round_ + 1), 600)
        assert server.post("/admin/flush").status_code == 200
        created = time.monotonic() - began
        full = resident(server)
        for number, size in enumerate(slices):
            answer = server.post("/admin/delete", data={"query": f"churn.r{round_}.s{number}.*.cpu"})
            assert answer.status_code == 200 and answer.json()["deleted"] == size, answer.text
        assert server.post("/admin/flush").status_code == 200
        took = time.monotonic() - began - created
        assert server.find("churn.*") == []
        sizes.append((resident(server), disk(server)))
        print(
            f"round {round_}: created in {created:.1f} s, deleted in {took:.1f} s; resident {full / MIB:.0f} MiB with them, "
            f"{sizes[-1][0] / MIB:.0f} MiB without; {sizes[-1][1] / MIB:.1f} MiB on disk",
            flush=True,
        )
    # What the first rounds leave, and ids that are never given again: a few bytes for each metric that ever was.
    ids = 16 * METRICS * (ROUNDS - 3)
    assert sizes[-1][0] < sizes[2][0] * 1.25 + ids + 16 * MIB
    server.kill()
    server.start()
    assert server.find("*") == [] and server.counter("plumbago_metrics") == 0
    eventually(lambda: disk(server) < max(size for _, size in sizes[:3]) * 1.25 + ids + 16 * MIB, True, 60)
    print(f"after a restart: resident {resident(server) / MIB:.0f} MiB, {disk(server) / MIB:.1f} MiB on disk")
