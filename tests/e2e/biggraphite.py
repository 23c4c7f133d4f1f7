"""BigGraphite 0.14.20 from PyPI over a Cassandra: its accessor, its downsampler, bgutil and its finder for graphite-web."""

import json
import os
import re
import socket
import subprocess
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
BIN = TESTS / ".cache" / "biggraphite" / "bin"

# Settings of graphite-web that the finder needs. The agent gives it its accessor; its answers must not be cached.
GRAPHITE_SETTINGS = """
SECRET_KEY = 'only for tests'
GRAPHITE_ROOT = STORAGE_DIR = CONF_DIR = LOG_DIR = {folder!r}
WHISPER_DIR = {folder!r}
INDEX_FILE = {folder!r} + '/index'
TIME_ZONE = 'UTC'
CARBONLINK_HOSTS = []
FIND_CACHE_DURATION = 0
DEFAULT_CACHE_DURATION = 0
CACHES = {{'default': {{'BACKEND': 'django.core.cache.backends.dummy.DummyCache'}}}}
LOG_RENDERING_PERFORMANCE = False
"""


class BigGraphiteError(Exception):
    """An exception of BigGraphite, or its output when it failed."""


class BigGraphite:
    """A BigGraphite with its `keyspace` on `address` (host:port)."""

    def __init__(self, folder, address, keyspace, user=None, password=None, replication=1):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True)
        (self.folder / "local_settings.py").write_text(GRAPHITE_SETTINGS.format(folder=str(self.folder)))
        (self.folder / "whisper").mkdir()
        self.host, _, port = address.partition(":")
        self.port = int(port)
        self.keyspace = keyspace
        self.environment = {
            **os.environ,
            "TZ": "UTC",
            "PYTHONPATH": str(self.folder),
            "PYTHONWARNINGS": "ignore",
            "DJANGO_SETTINGS_MODULE": "graphite.settings",
            "GRAPHITE_SETTINGS_MODULE": "local_settings",
        }
        self.errors = (self.folder / "err").open("wb")
        self.agent = subprocess.Popen(
            [BIN / "python", TESTS / "biggraphite" / "agent.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd=self.folder,
            env=self.environment,
        )
        opening = {"contact_points": [self.host], "port": self.port, "keyspace": keyspace, "replication": replication}
        self._send({**opening, "user": user, "password": password})

    def close(self):
        self.agent.stdin.close()
        try:
            self.agent.wait(10)
        except subprocess.TimeoutExpired:
            self.agent.kill()
            self.agent.wait()
        self.errors.close()

    def _send(self, request):
        self.agent.stdin.write(json.dumps(request) + "\n")
        self.agent.stdin.flush()

    def _ask(self, do, **request):
        self._send({"do": do, **request})
        line = self.agent.stdout.readline()
        if not line:
            raise BigGraphiteError((self.folder / "err").read_text(errors="replace")[-4000:])
        answer = json.loads(line)
        if "error" in answer:
            raise BigGraphiteError(answer["trace"])
        return answer["said"]

    # Its tables.

    def make_keyspaces(self):
        """Creates both keyspaces as its share/schema.cql does."""
        self._ask("keyspaces")

    def syncdb(self, schemas):
        """Creates its tables, with their 134 indexes, by `bgutil syncdb` from a storage-schemas.conf."""
        path = self.folder / "storage-schemas.conf"
        path.write_text(schemas)
        self.bgutil("syncdb", "--storage-schemas", str(path))

    def drop_keyspaces(self):
        """Removes both keyspaces with all their contents."""
        for name in [self.keyspace, self.keyspace + "_metadata"]:
            self.cql(f'DROP KEYSPACE IF EXISTS "{name}"')

    def cql(self, statement, parameters=()):
        """The rows of a statement, as lists; ids and times are text."""
        return self._ask("cql", statement=statement, parameters=list(parameters))

    # Writing.

    def create(self, metrics):
        """Creates metrics: {name: (aggregator, retention, xFilesFactor)} in its own words ("average", "60*60s:24*300s", 0.5)."""
        configs = {
            name: {"aggregator": aggregator, "retention": retention, "carbon_xfilesfactor": str(xff)}
            for name, (aggregator, retention, xff) in metrics.items()
        }
        self._ask("create", metrics=configs)

    def write(self, points, writer=0, replica=0, flush=True):
        """Points (name, time, value) of known metrics by the accessor and downsampler of one writer; with `flush`, also the
        points that it would keep for ten minutes."""
        self._ask("write", points=[list(point) for point in points], writer=writer, replica=replica, flush=flush)

    def restart(self, writer=0, replica=0):
        """Stops a writer cleanly and starts it again, with an empty downsampler."""
        self._ask("forget", writer=writer, replica=replica)

    # Reading.

    def metric(self, name):
        """{"name", "id", "config"} of a metric, or None."""
        return self._ask("metric", name=name)

    def glob(self, pattern):
        """(metrics, directories) that its own glob language finds."""
        metrics, directories = self._ask("glob", pattern=pattern)
        return metrics, directories

    def read(self, name, start, until, stage=0):
        """{time: value} by its accessor, of a stage by its number."""
        said = self._ask("read", name=name, start=start, until=until, stage=stage)
        return {int(time): value for time, value in said}

    def find(self, pattern):
        """[[path, is a leaf]] by its finder for graphite-web."""
        return self._ask("find", pattern=pattern)

    def fetch(self, pattern, start, until, now):
        """{path: (step, {time: value})} by its finder for graphite-web; no nulls."""
        found = {}
        for path, (begin, _, step, values) in self._ask("fetch", pattern=pattern, start=start, until=until, now=now).items():
            times = range(begin, begin + step * len(values), step)
            found[path] = (step, {time: value for time, value in zip(times, values) if value is not None})
        return found

    # Its command line.

    def bgutil(self, *arguments):
        """The output of a bgutil command."""
        command = [BIN / "bgutil", "--cassandra_contact_points", self.host, "--cassandra_port", str(self.port)]
        command += ["--cassandra_keyspace", self.keyspace, "--cassandra_timeout", "60", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=self.folder, env=self.environment)
        if done.returncode != 0:
            raise BigGraphiteError(f"bgutil {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def bgutil_read(self, name, start, until, stage):
        """{time: value} by `bgutil read` of a stage ("60*60s_0", "24*300s_aggr") of ten seconds or more; six decimals."""
        window = ["--time-start", _ago(start), "--time-end", _ago(until)]
        said = self.bgutil("read", name, *window, "--stage", stage, "--output-csv")
        found = re.findall(rf"^{re.escape(name)},([\d.]+),(-?[\d.]+|nan)$", said, re.MULTILINE)
        return {int(float(time)): float(value) for time, value in found}


def _ago(seconds):
    """A time in the form that bgutil reads: it rejects times with both day and hour. bgutil rounds up to the stage: three seconds less."""
    return f"{int(time.time() - seconds) + 3} seconds ago"


CARBON_CONF = """
[cache]
DATABASE = biggraphite
STORAGE_DIR = {folder}
LOCAL_DATA_DIR = {folder}/whisper
CONF_DIR = {folder}
LOG_DIR = {folder}
PID_DIR = {folder}
USER =
LINE_RECEIVER_INTERFACE = 127.0.0.1
LINE_RECEIVER_PORT = {line}
PICKLE_RECEIVER_INTERFACE = 127.0.0.1
PICKLE_RECEIVER_PORT = {pickle}
CACHE_QUERY_INTERFACE = 127.0.0.1
CACHE_QUERY_PORT = {query}
ENABLE_UDP_LISTENER = False
MAX_CACHE_SIZE = inf
MAX_UPDATES_PER_SECOND = inf
MAX_CREATES_PER_MINUTE = inf
CARBON_METRIC_INTERVAL = 60
LOG_UPDATES = False
LOG_CREATES = False
LOG_CACHE_HITS = False
LOG_LISTENER_CONN_SUCCESS = False
BG_CASSANDRA_KEYSPACE = {keyspace}
BG_CASSANDRA_CONTACT_POINTS = {host}
BG_CASSANDRA_PORT = {port}
BG_CASSANDRA_TIMEOUT = 30
BG_CREATION_RATE_LIMIT = {creations}
"""


class CarbonCache:
    """A running bg-carbon-cache over the tables of a BigGraphite; `ports` are its line, pickle and query ports."""

    def __init__(self, folder, biggraphite, schemas, aggregation, ports, creations=300):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True)
        line, pickle, query = ports
        conf = CARBON_CONF.format(
            folder=self.folder,
            line=line,
            pickle=pickle,
            query=query,
            keyspace=biggraphite.keyspace,
            host=biggraphite.host,
            port=biggraphite.port,
            creations=creations,
        )
        (self.folder / "carbon.conf").write_text(conf)
        (self.folder / "storage-schemas.conf").write_text(schemas)
        (self.folder / "storage-aggregation.conf").write_text(aggregation)
        self.port = line
        self.log = (self.folder / "log").open("wb")
        # --debug stays in the foreground.
        command = [BIN / "python", BIN / "bg-carbon-cache", f"--config={self.folder}/carbon.conf", "--debug", "start"]
        environment = {**biggraphite.environment, "GRAPHITE_ROOT": str(self.folder)}
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, cwd=self.folder, env=environment)

    def listens(self):
        """Whether it accepts points; fails when its process has ended."""
        if self.process.poll() is not None:
            raise BigGraphiteError((self.folder / "log").read_text(errors="replace")[-4000:])
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
