"""Real relays as processes that forward to one destination: carbon-relay.py from PyPI and Debian's carbon-c-relay."""

import shutil
import socket
import subprocess
import sys
from pathlib import Path

from plumbago import wait_until

CARBON_CONF = """
[relay]
USER =
LINE_RECEIVER_INTERFACE = 127.0.0.1
LINE_RECEIVER_PORT = {line}
PICKLE_RECEIVER_INTERFACE = 127.0.0.1
PICKLE_RECEIVER_PORT = {pickle}
RELAY_METHOD = consistent-hashing
REPLICATION_FACTOR = 1
DESTINATIONS = 127.0.0.1:{destination}:a
DESTINATION_PROTOCOL = {protocol}
MAX_DATAPOINTS_PER_MESSAGE = 500
MAX_QUEUE_SIZE = 1000000
QUEUE_LOW_WATERMARK_PCT = 0.8
CARBON_METRIC_INTERVAL = 0
USE_FLOW_CONTROL = True
LOG_LISTENER_CONN_SUCCESS = False
"""

CACHE_CONF = """
[cache]
USER =
LOCAL_DATA_DIR = {folder}/whisper
LINE_RECEIVER_INTERFACE = 127.0.0.1
LINE_RECEIVER_PORT = {line}
PICKLE_RECEIVER_INTERFACE = 127.0.0.1
PICKLE_RECEIVER_PORT = {pickle}
CACHE_QUERY_INTERFACE = 127.0.0.1
CACHE_QUERY_PORT = {query}
CARBON_METRIC_INTERVAL = 0
ENABLE_LOGROTATION = False
GRAPHITE_URL = {graphite_url}
ENABLE_TAGS = True
"""

C_RELAY_CONF = """
cluster plumbago forward 127.0.0.1:{destination};
match * send to plumbago stop;
statistics submit every 3600 seconds prefix with relay;
listen type linemode 127.0.0.1:{line} proto tcp;
"""


def free_port():
    """A free port, for programs that cannot take port 0. Another process may take it: start the program at once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def accepts(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Relay:
    """A running relay: bytes sent to `port` come out at the destination."""

    def __init__(self, command, folder, port):
        self.log = Path(folder) / "relay.log"
        self.process = subprocess.Popen(command, stdout=self.log.open("wb"), stderr=subprocess.STDOUT, cwd=folder)
        self.port = port
        wait_until(self._listens, 20, "the relay did not listen")

    def _listens(self):
        assert self.process.poll() is None, f"the relay ended: {self.log.read_text(errors='replace')[-2000:]}"
        return accepts(self.port)

    def send(self, data):
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(data)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def carbon_relay(folder, destination, protocol):
    """carbon-relay.py whose line receiver is `port`, speaking `protocol` (line, pickle or protobuf) to the destination."""
    folder = Path(folder)
    line = free_port()
    conf = folder / "carbon.conf"
    conf.write_text(CARBON_CONF.format(line=line, pickle=free_port(), destination=destination, protocol=protocol))
    # carbon-relay needs this file to exist and does not use it.
    (folder / "storage-schemas.conf").write_text("")
    program = Path(sys.executable).with_name("carbon-relay.py")
    command = [sys.executable, program, f"--config={conf}", f"--logdir={folder}", f"--pidfile={folder}/pid"]
    # --debug keeps it in the foreground and its log on stdout.
    return Relay([*map(str, command), "--debug", "start"], folder, line)


def carbon_cache(folder, graphite_url):
    """carbon-cache.py with whisper files, which enters the tags of its metrics at `graphite_url`."""
    folder = Path(folder)
    line = free_port()
    conf = folder / "carbon.conf"
    conf.write_text(CACHE_CONF.format(folder=folder, line=line, pickle=free_port(), query=free_port(), graphite_url=graphite_url))
    (folder / "storage-schemas.conf").write_text("[all]\npattern = .*\nretentions = 60s:1h\n")
    program = Path(sys.executable).with_name("carbon-cache.py")
    command = [sys.executable, program, f"--config={conf}", f"--logdir={folder}", f"--pidfile={folder}/pid"]
    return Relay([*map(str, command), "--debug", "start"], folder, line)


def c_relay(folder, destination):
    """carbon-c-relay, which speaks the line protocol only."""
    program = shutil.which("carbon-c-relay")
    assert program, "carbon-c-relay is not installed: run tests/install-peers"
    line = free_port()
    conf = Path(folder) / "relay.conf"
    conf.write_text(C_RELAY_CONF.format(line=line, destination=destination))
    return Relay([program, "-f", str(conf), "-s"], folder, line)
