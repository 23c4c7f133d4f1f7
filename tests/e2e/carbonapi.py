"""carbonapi as a process in front of the server."""

import subprocess
from pathlib import Path

import requests

from plumbago import wait_until
from relays import free_port

BINARY = Path(__file__).resolve().parents[1] / ".cache" / "carbonapi"

# JSON is valid YAML too, but carbonapi's own examples look like this.
CONFIG = """
listeners:
  - address: "127.0.0.1:{port}"
expvar: {{enabled: false}}
concurency: 100
notFoundStatusCode: 200
cache: {{type: "null"}}
findCache: {{type: "null"}}
tz: "UTC,0"
maxBatchSize: 100
upstreams:
  tldCacheDisabled: true
  timeouts: {{find: "20s", render: "20s", connect: "2s"}}
  backendsv2:
    backends:
      - groupName: "plumbago"
        protocol: "{protocol}"
        lbMethod: "broadcast"
        maxTries: 1
        maxBatchSize: 100
        concurrencyLimit: 0
        keepAliveInterval: "10s"
        maxIdleConnsPerHost: 10
        timeouts: {{find: "20s", render: "20s", connect: "2s"}}
        servers: ["http://127.0.0.1:{backend}"]
logger:
  - {{logger: "", file: "stderr", level: "debug", encoding: "console", encodingTime: "iso8601", encodingDuration: "seconds"}}
"""


class Carbonapi:
    """A carbonapi whose only backend listens on `backend` and speaks `protocol`."""

    def __init__(self, folder, backend, protocol):
        assert BINARY.exists(), "carbonapi is not built: run tests/install-peers"
        self.port = free_port()
        folder = Path(folder)
        config = folder / "carbonapi.yaml"
        config.write_text(CONFIG.format(port=self.port, backend=backend, protocol=protocol))
        self.log = folder / "carbonapi.log"
        command = [BINARY, "-config", config]
        self.process = subprocess.Popen(command, stdout=self.log.open("wb"), stderr=subprocess.STDOUT, cwd=folder)
        self.http = requests.Session()
        wait_until(self._answers, 20, "carbonapi did not answer")

    def _answers(self):
        assert self.process.poll() is None, self.logs()[-3000:]
        try:
            return self.get("/version").status_code == 200
        except requests.ConnectionError:
            return False

    def get(self, path, **params):
        return self.http.get(f"http://127.0.0.1:{self.port}{path}", params=params, timeout=60)

    def logs(self):
        return self.log.read_text(errors="replace")

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.http.close()
