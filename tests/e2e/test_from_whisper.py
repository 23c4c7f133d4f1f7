"""History of whisper files: what `deploy/whisper/send-whisper` sends is served as whisper has it."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

import whisper_files
from plumbago import aligned_now, eventually
from relays import free_port

SEND = Path(__file__).parents[2] / "deploy" / "whisper" / "send-whisper"
RETENTIONS = "10s:2h,60s:1d,600s:30d"
DAY = 86400

# Metric, xFilesFactor and method.
METRICS = [
    ("servers.a.load", 0.5, "average"),
    ("servers.a.requests", 0.0, "sum"),
    ("servers.b.peak", 0.0, "max"),
    ("servers.b.latest", 0.3, "last"),
]
TAGGED = "disk.used;host=a"


def rules():
    def section(name, factor, method):
        return f"[{name}]\npattern = ^{name}$\nxFilesFactor = {factor}\naggregationMethod = {method}\n"

    return {
        "schemas": f"[all]\npattern = .*\nretentions = {RETENTIONS}\n",
        "aggregation": "".join(section(*metric) for metric in METRICS),
    }


def send(*arguments):
    return subprocess.run([sys.executable, SEND, *arguments], capture_output=True, text=True)


def values_of(path, archive, now, since, until):
    return {t: value for t, value in whisper_files.read(path, archive, now).items() if since <= t < until}


def test_history_of_whisper_files_is_served_as_whisper_has_it(make_server, tmp_path):
    folder, now, seed = tmp_path / "whisper", aligned_now(600), random.Random(7)
    names = [*METRICS, (TAGGED, 0.5, "average")]
    # Two days of a point in twenty seconds, and two hours of one in ten seconds, with gaps. Whisper gets each of them when it comes.
    times = [t for t in range(now - 2 * DAY, now - 7200, 20) if t % 7200 > 600]
    times += [t for t in range(now - 7200, now, 10) if t % 900 > 60]
    paths = {}
    for name, factor, method in names:
        file = name if name != TAGGED else "_tagged.4c1.d2e." + TAGGED.replace(".", "_DOT_")
        paths[name] = whisper_files.create(folder, file, RETENTIONS, factor, method)
        for begin in range(0, len(times), 30):
            some = times[begin : begin + 30]
            whisper_files.write(paths[name], [(t, seed.randrange(8000) / 8) for t in some], some[-1] + 1)
    (folder / "torn.wsp").write_bytes(b"\0\0")

    written = send(folder)
    assert written.returncode == 1 and "1 files could not be read" in written.stderr, written.stderr
    assert f"cannot read {folder}/torn.wsp" in written.stderr and "5 of 6 files" in written.stderr
    lines = written.stdout.splitlines()
    assert len({(line.split()[0], line.split()[2]) for line in lines}) == len(lines)

    server = make_server(**rules())
    for _ in ["sent", "stored, and sent again"]:
        assert "5 of 6 files" in send(folder, "--to", f"127.0.0.1:{server.ports['line']}").stderr
        for step, kept, finer in [(10, 7200, 0), (60, DAY, 7200), (600, 30 * DAY, DAY)]:
            # What no finer archive has, and has not expired meanwhile.
            since, until = now - kept + 1200, now - finer
            expected = {name: values_of(path, (step, kept // step), now, since, until) for name, path in paths.items()}
            assert min(map(len, expected.values())) > 100, {name: len(values) for name, values in expected.items()}

            def served(kept=kept, since=since, until=until):
                columns = {name: server.columns(name, now - kept, now, now=now).get(name, {}) for name in expected}
                return {name: {t: v for t, v in column.items() if since <= t < until} for name, column in columns.items()}

            # A mean is kept as a sum and a count.
            expected = {name: pytest.approx(values, rel=1e-12) for name, values in expected.items()}
            eventually(served, expected)
        assert server.post("/admin/flush").status_code == 200


def test_only_metrics_of_a_pattern_are_sent_and_a_folder_without_any_is_named(tmp_path):
    for name in ["a.b", "a.c", "d"]:
        path = whisper_files.create(tmp_path, name, "1s:1h", 0.0, "sum")
        now = aligned_now()
        whisper_files.write(path, [(now - 5, 1.5)], now)
    sent = send(tmp_path, "--only", "a.*")
    assert (sent.returncode, [line.split()[:2] for line in sent.stdout.splitlines()]) == (0, [["a.b", "1.5"], ["a.c", "1.5"]])
    sent = send(tmp_path, "--only", "e*")
    assert sent.returncode == 1 and "no file *.wsp whose metric matches e*" in sent.stderr
    sent = send(tmp_path, "--to", f"127.0.0.1:{free_port()}")
    assert sent.returncode == 1 and "Connection refused. Send all again" in sent.stderr
