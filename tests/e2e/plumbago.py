"""The server under test as a process with its own folder: its configuration, start and stop, and its answers over
its sockets.

This file alone knows the command line and the admin endpoints.
"""

import os
import pickle
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import requests

import wire

SCHEMAS = """
[second]
pattern = ^second\\.
retentions = 1s:2h,10s:1d,60s:7d

[ten]
pattern = ^ten\\.
retentions = 10s:2h,60s:1d,600s:30d

[default]
pattern = .*
retentions = 1s:6h
"""

AGGREGATION = """
[everything]
pattern = .*
xFilesFactor = 0
aggregationMethod = average
"""

# Keeps the server's own metrics out of a test's metrics.
QUIET = '[own]\nevery = "off"\n'

START_SECONDS = 60
STOP_SECONDS = 30


def binary():
    """The program: $PLUMBAGO, as tests/run sets it, else the result of `cargo build`."""
    here = Path(__file__).resolve().parents[2]
    target = Path(os.environ.get("CARGO_TARGET_DIR", here / "target"))
    path = Path(os.environ.get("PLUMBAGO", target / "debug" / "plumbago"))
    assert path.exists(), f"{path} is not built: run tests/run, or cargo build, or set PLUMBAGO"
    return str(path)


def variables(**more):
    """The environment of the program: this one with `more`, without the variables of the tests themselves: the program would warn
    of them."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PLUMBAGO")}
    return {**own, **more}


def eventually(look, expected, seconds=10):
    """Waits until look() equals expected, and otherwise fails with the last answer."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if seen == expected:
            return
        if time.monotonic() > deadline:
            assert seen == expected
        time.sleep(0.02)


def wait_until(condition, seconds=10, why="it did not happen"):
    """Waits until condition() is true and returns its value."""
    deadline = time.monotonic() + seconds
    while True:
        said = condition()
        if said:
            return said
        assert time.monotonic() < deadline, f"{why}, within {seconds} s"
        time.sleep(0.02)


class Plumbago:
    """A server over `folder`: conf/ (carbon's files), data/ and plumbago.toml."""

    def __init__(
        self, folder, schemas=SCHEMAS, aggregation=AGGREGATION, settings=QUIET, environment=None, wrapper=(), arguments=()
    ):
        self.folder = Path(folder)
        self.conf = self.folder / "conf"
        self.data = self.folder / "data"
        self.conf.mkdir(parents=True, exist_ok=True)
        self.configure("storage-schemas.conf", schemas)
        self.configure("storage-aggregation.conf", aggregation)
        (self.folder / "plumbago.toml").write_text(settings)
        self.environment = environment or {}
        self.wrapper = list(wrapper)
        # Further options of `plumbago serve`.
        self.arguments = list(arguments)
        self.process = None
        self.ports = {}
        self.starts = 0
        self.scheme = "http"
        self.http = requests.Session()

    def configure(self, name, text):
        """Writes one of carbon's files, or removes it when text is None."""
        path = self.conf / name
        if text is None:
            path.unlink(missing_ok=True)
        else:
            # A reader that polls must see the old file or the new one, never half of it.
            draft = path.with_suffix(".draft")
            draft.write_text(text)
            draft.rename(path)

    # Start and stop.

    def start(self, **ports):
        """Starts the server and waits until it is ready; `ports` gives listeners a certain port."""
        self.spawn(**ports)
        wait_until(self._is_ready, START_SECONDS, f"the server was not ready: see {self.err}")
        return self

    def spawn(self, **ports):
        """Starts the server and does not wait."""
        self.starts += 1
        out = self.folder / f"out.{self.starts}"
        err = self.folder / f"err.{self.starts}"
        command = [*self.wrapper, binary(), "serve", "--config", str(self.folder / "plumbago.toml")]
        command += ["--conf-dir", str(self.conf), "--data", str(self.data)]
        for listener in ["line", "pickle", "protobuf", "http"]:
            command += [f"--{listener}", f"127.0.0.1:{ports.get(listener, 0)}"]
        command += self.arguments
        environment = variables(**self.environment)
        self.process = subprocess.Popen(
            command, stdout=out.open("wb"), stderr=err.open("wb"), env=environment, cwd=self.folder
        )
        self.out, self.err = out, err

    def _is_ready(self):
        assert self.process.poll() is None, f"the server ended with {self.process.returncode}: {self.err.read_text()[-2000:]}"
        said = re.findall(
            r"^\s*(line|pickle|protobuf|http)\s+(?:https?://)?([\d.]+):(\d+)", self.out.read_text(), re.MULTILINE
        )
        self.ports = {listener: int(port) for listener, _, port in said}
        if "http" not in self.ports or "line" not in self.ports:
            return False
        try:
            return self.http.get(self.url("/ready"), timeout=5).status_code == 200
        except requests.ConnectionError:
            return False

    def suspend(self):
        """Sends SIGSTOP and returns once all of the process stands still: on a busy machine it goes on for a while."""
        self.process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.process.pid}/task")

        def states():
            return {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir()}

        eventually(states, {"T"}, 10)

    def stop(self):
        """Sends SIGTERM and returns the exit status."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the server did not stop within {STOP_SECONDS} s of SIGTERM: see {self.err}") from None
        self.process = None
        self.http.close()
        return status

    def kill(self):
        """kill -9."""
        self.process.kill()
        self.process.wait()
        self.process = None
        self.http.close()

    def logs(self):
        return self.err.read_text(errors="replace") + self.out.read_text(errors="replace")

    # Sending.

    def connect(self, listener="line"):
        return socket.create_connection(("127.0.0.1", self.ports[listener]), timeout=30)

    def send(self, points, listener="line"):
        """Points (name, time, value) over one connection, in order."""
        encode = {"line": wire.lines, "pickle": wire.pickle_frames, "protobuf": wire.protobuf_frames}[listener]
        self.send_bytes(encode(list(points)), listener)

    def send_bytes(self, data, listener="line"):
        """Bytes over one connection; closes it properly and waits until the server has closed it too."""
        with self.connect(listener) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            # The server closes when it has read everything, and has then parsed everything.
            while connection.recv(4096):
                pass

    def send_datagram(self, data):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.sendto(data, ("127.0.0.1", self.ports["line"]))

    # Requests.

    def url(self, path):
        return f"{self.scheme}://127.0.0.1:{self.ports['http']}{path}"

    def get(self, path, **params):
        return self.http.get(self.url(path), params=params, timeout=60)

    def post(self, path, **kwargs):
        return self.http.post(self.url(path), timeout=60, **kwargs)

    def render(self, target, **params):
        """The series of a JSON render: [{"target", "tags", "datapoints"}]."""
        answer = self.get("/render", target=target, format="json", **params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def points(self, name, **params):
        """{time: value} of the non-null points of one metric; {} without any."""
        series = [s for s in self.render(name, **params) if s["target"] == name]
        assert len(series) <= 1
        return {time: value for s in series for value, time in s["datapoints"] if value is not None}

    def columns(self, pattern, start, until, **params):
        """{name: {time: value}} of a pattern, read by pickle so that every double is exact."""
        answer = self.get("/render", target=pattern, format="pickle", **{"from": start, "until": until}, **params)
        assert answer.status_code == 200, answer.text
        return {s["name"]: present(s) for s in pickle.loads(answer.content)}

    def find(self, query):
        return sorted(node["path"] for node in self.get("/metrics/find", query=query, format="json").json())

    def rejects(self):
        """The last rejected inputs, as /admin/rejects lists them."""
        answer = self.get("/admin/rejects")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def counters(self):
        """{'name{label="x"}': value} of /metrics."""
        found = {}
        for line in self.get("/metrics").text.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                found[name] = float(value)
        return found

    def counter(self, name, **labels):
        """The sum of a counter over all labels that are not given."""
        total = 0.0
        for key, value in self.counters().items():
            base, _, rest = key.partition("{")
            if base == name and all(f'{label}="{want}"' in rest for label, want in labels.items()):
                total += value
        return total

    def rejected(self, reason):
        """The number of inputs rejected for a reason, over all protocols."""
        return self.counter("plumbago_rejected_total", reason=reason)

    def counter_of_points(self):
        """The number of accepted points, over all protocols."""
        return self.counter("plumbago_points_total")

    def stalled_seconds(self):
        """The seconds that receivers waited for room."""
        return self.counter("plumbago_stalled_seconds_total")


def present(series):
    """{time: value} of the non-null values of a pickled or msgpacked series."""
    times = range(series["start"], series["end"], series["step"])
    return {time: value for time, value in zip(times, series["values"]) if value is not None}


def run(*arguments, **kwargs):
    """Runs a subcommand to its end."""
    kwargs.setdefault("env", variables())
    return subprocess.run([binary(), *map(str, arguments)], capture_output=True, text=True, timeout=60, **kwargs)


def aligned_now(step=60):
    """The current time rounded down, from which tests compute other times."""
    return int(time.time()) // step * step
