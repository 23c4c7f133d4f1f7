"""The contents of each stage after random writes: the server against whisper, and against a naive model of its own rule.

Writes come in bursts, overwrite, arrive late and out of order, and backfill; between rounds the server flushes, is
stopped, and is killed, so that points meet other points in memory, in the store, and in the journal.
"""

import pytest

import naive
import wire
import whisper_files
from plumbago import QUIET, aligned_now, eventually

RETENTIONS = "10s:2h,60s:1d,600s:30d"
STEPS = [10, 60, 600]
DURATIONS = [7200, 86400, 30 * 86400]
METHODS = ["average", "sum", "last", "max", "min", "avg_zero", "absmax", "absmin"]
FACTORS = {"0": 0.0, "0_3": 0.3, "0_5": 0.5, "1": 1.0}

# The server's coarse slots are aggregates over points; whisper's third archive is an aggregate of the second archive's
# aggregates, and whisper stops propagating at an archive that misses xFilesFactor. So beyond the second archive they agree
# for these methods when xFilesFactor is 0, and for every method when each slot has all its points.
ASSOCIATIVE = ["sum", "last", "max", "min", "absmax", "absmin"]


def configuration():
    schemas = f"[all]\npattern = .*\nretentions = {RETENTIONS}\n"
    aggregation = "".join(
        f"[{method}-{factor}]\npattern = ^random\\.{method}\\.{factor}\\.\nxFilesFactor = {value}\naggregationMethod = {method}\n"
        for method in METHODS
        for factor, value in FACTORS.items()
    )
    return {"schemas": schemas, "aggregation": aggregation}


def eighth(random):
    """A value whose sums and means are exact in any order of addition."""
    return random.randrange(-8000, 8000) / 8


def random_writes(random, now):
    """A round of writes for one metric: (time, value) in order of arrival."""
    recent = (now - 6600, now - 30)
    # Avoids the ages at which a stage ends: there the answer depends on the second of the write.
    old = (now - 20 * 3600, now - 3 * 3600)
    ancient = (now - 20 * 86400, now - 2 * 86400)
    writes = []
    for _ in range(random.randrange(3, 8)):
        kind = random.choice(["run", "run", "run", "scatter", "backwards", "same slot", "old", "ancient"])
        if kind == "run":
            start = random.randrange(*recent)
            writes += [(t, eighth(random)) for t in range(start, min(start + random.randrange(20, 900), recent[1]), 10)]
        elif kind == "scatter":
            writes += [(random.randrange(*recent), eighth(random)) for _ in range(40)]
        elif kind == "backwards":
            start = random.randrange(*recent)
            writes += [(t, eighth(random)) for t in range(start, max(start - 600, recent[0]), -10)]
        elif kind == "same slot":
            slot = random.randrange(*recent) // 10 * 10
            writes += [(slot + random.randrange(10), eighth(random)) for _ in range(5)]
        elif kind == "old":
            writes += [(random.randrange(*old), eighth(random)) for _ in range(30)]
        else:
            writes += [(random.randrange(*ancient), eighth(random)) for _ in range(10)]
    return writes


class Metric:
    """One name in the three places."""

    def __init__(self, folder, method, factor, dense=False):
        self.name = f"random.{method}.{factor}.{'dense' if dense else 'sparse'}"
        self.method, self.factor, self.dense = method, factor, dense
        self.model = naive.Metric(RETENTIONS, FACTORS[factor], method)
        self.file = whisper_files.create(folder, self.name, RETENTIONS, FACTORS[factor], method)

    def take(self, writes, now):
        whisper_files.write(self.file, writes, now)
        for time, value in writes:
            self.model.write(time, value, now)

    def whisper_agrees(self, stage):
        return stage < 2 or self.dense or (self.method in ASSOCIATIVE and self.factor == "0")


def stage_of(server, pattern, stage, now):
    """{name: {time: value}} of one stage, chosen by how far back the window begins."""
    return server.columns(pattern, now - DURATIONS[stage], now, now=now)


def check(server, metrics, now):
    assert len(metrics) > 0
    for stage in range(3):
        expected = {metric.name: metric.model.stage(stage) for metric in metrics}
        eventually(lambda stage=stage: stage_of(server, "random.*.*.*", stage, now), expected)
        for metric in metrics:
            if metric.whisper_agrees(stage):
                of_whisper = whisper_files.read(metric.file, (STEPS[stage], DURATIONS[stage] // STEPS[stage]), now)
                assert expected[metric.name] == of_whisper, f"{metric.name}, stage {stage}"


def test_every_stage_of_every_method_after_random_writes(make_server, tmp_path, seeded):
    server = make_server(**configuration(), settings=QUIET + '[ingest]\nflush_after = "1s"\n')
    metrics = [Metric(tmp_path / "whisper", method, factor) for method in METHODS for factor in FACTORS]

    def write_a_round(now):
        arrivals = []
        for metric in metrics:
            writes = random_writes(seeded, now)
            metric.take(writes, now)
            arrivals.append([(metric.name, time, value) for time, value in writes])
        # Metrics interleaved, each in its own order.
        longest = max(map(len, arrivals))
        server.send_bytes(wire.lines(one[i] for i in range(longest) for one in arrivals if i < len(one)))

    now = aligned_now(10)
    write_a_round(now)
    check(server, metrics, now)
    write_a_round(now)
    check(server, metrics, now)
    assert server.stop() == 0
    server.start()
    check(server, metrics, now)
    write_a_round(now)
    check(server, metrics, now)
    server.kill()
    server.start()
    check(server, metrics, now)
    write_a_round(now)
    check(server, metrics, now)


def test_every_archive_equals_whispers_when_no_point_is_missing(make_server, tmp_path, seeded):
    server = make_server(**configuration())
    metrics = [Metric(tmp_path / "whisper", method, factor, dense=True) for method in METHODS for factor in FACTORS]
    now = aligned_now(10)
    first = (now - 6000) // 600 * 600
    # The exact mean of ten means of six is the mean of sixty only up to rounding, unless values are multiples of 60 eighths.
    values = {t: seeded.randrange(-500, 500) * 60 / 8 for t in range(first, first + 4800, 10)}
    for metric in metrics:
        times = list(values)
        seeded.shuffle(times)
        writes = [(t, values[t]) for t in times]
        metric.take(writes, now)
        server.send([(metric.name, time, value) for time, value in writes])
    check(server, metrics, now)


def test_full_precision_is_kept_in_stage_0_and_coarse_slots_are_within_rounding(make_server, seeded):
    server = make_server(**configuration())
    now = aligned_now(10)
    times = range((now - 3600) // 600 * 600, now - 600, 10)
    values = {t: seeded.uniform(-1, 1) * 10 ** seeded.randrange(-12, 12) for t in times}
    special = dict(zip(times, [5e-324, 1.7976931348623157e308, -0.0, 0.1, 1 / 3, 2**53 + 1.0]))
    values.update(special)
    name = "random.last.0.exact"
    server.send([(name, t, v) for t, v in values.items()])
    expected = {t - t % 10: v for t, v in values.items()}
    eventually(lambda: stage_of(server, name, 0, now)[name], expected)
    name = "random.average.0.rounding"
    small = {t: seeded.uniform(-1, 1) for t in times}
    server.send([(name, t, v) for t, v in small.items()])
    model = naive.Metric(RETENTIONS, 0.0, "average")
    for t, v in small.items():
        model.write(t, v, now)
    for stage in (1, 2):
        eventually(
            lambda stage=stage: stage_of(server, name, stage, now)[name] == pytest.approx(model.stage(stage), rel=1e-12),
            True,
        )


def test_infinities_are_kept_and_nan_is_not(make_server):
    server = make_server(**configuration())
    now = aligned_now(10)
    at = now - 600
    name = "random.max.0.infinite"
    server.send_bytes(
        f"{name} inf {at}\n{name} -inf {at + 10}\n{name} nan {at + 20}\n{name} 1e400 {at + 30}\n{name} 3 {at + 40}\n".encode()
    )
    inf = float("inf")
    eventually(lambda: stage_of(server, name, 0, now)[name], {at: inf, at + 10: -inf, at + 30: inf, at + 40: 3.0})


def test_a_point_beyond_the_longest_retention_is_rejected_and_counted(make_server):
    server = make_server(**configuration())
    now = aligned_now(10)
    server.send([("random.sum.0.a", now - 31 * 86400, 1.0), ("random.sum.0.a", now - 30, 2.0)])
    eventually(lambda: server.points("random.sum.0.a", **{"from": now - 100, "until": now}), {now - 30: 2.0})
    eventually(lambda: any("random.sum.0.a" in str(reject) for reject in server.rejects()), True)
