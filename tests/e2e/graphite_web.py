"""graphite-web 1.1.10 as a process: over whisper files, or in front of a cluster remote."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import requests

from plumbago import wait_until

# wsgiref serves one request at a time, by HTTP/1.0. That is enough, and needs no installation.
SERVE = """
import sys
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from graphite.wsgi import application

class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass

server = make_server('127.0.0.1', 0, application, Server, Quiet)
print(server.server_port, flush=True)
server.serve_forever()
"""

SETTINGS = """
SECRET_KEY = 'only for tests'
GRAPHITE_ROOT = STORAGE_DIR = CONF_DIR = LOG_DIR = {folder!r}
WHISPER_DIR = {whisper!r}
STANDARD_DIRS = [WHISPER_DIR]
INDEX_FILE = {folder!r} + '/index'
TIME_ZONE = 'UTC'
CLUSTER_SERVERS = {remotes!r}
CARBONLINK_HOSTS = []
# Every answer must be fresh.
FIND_CACHE_DURATION = 0
DEFAULT_CACHE_DURATION = 0
REMOTE_RETRY_DELAY = 0
LOG_RENDERING_PERFORMANCE = False
DATABASES = {{'default': {{'ENGINE': 'django.db.backends.sqlite3', 'NAME': {folder!r} + '/graphite.db'}}}}
"""


class GraphiteWeb:
    """A graphite-web with the whisper files under `whisper`, or with `remotes` as its CLUSTER_SERVERS and no files.

    `more` is appended to its settings.
    """

    def __init__(self, folder, database, whisper=None, remotes=(), more=""):
        self.folder = Path(folder)
        empty = self.folder / "no-whisper"
        empty.mkdir(parents=True)
        _write_settings(self.folder, str(whisper or empty), list(remotes), more)
        if database:
            shutil.copy(database, self.folder / "graphite.db")
        self.process = None
        self.http = requests.Session()

    @staticmethod
    def make_database(folder):
        web = GraphiteWeb(folder, None)
        django = Path(sys.executable).with_name("django-admin")
        subprocess.run([django, "migrate", "--run-syncdb"], env=web.environment(), check=True, capture_output=True)
        return Path(folder) / "graphite.db"

    def environment(self):
        return {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "PYTHONWARNINGS": "ignore",
            "DJANGO_SETTINGS_MODULE": "graphite.settings",
            "GRAPHITE_SETTINGS_MODULE": "local_settings",
        }

    def start(self):
        errors = (self.folder / "err").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE], env=self.environment(), stdout=subprocess.PIPE, stderr=errors
        )
        port = self.process.stdout.readline().strip()
        assert port, f"graphite-web did not start: {(self.folder / 'err').read_text()[-2000:]}"
        self.address = f"http://127.0.0.1:{int(port)}"
        wait_until(lambda: self.get("/version").status_code == 200, 20, "graphite-web did not answer")
        return self

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def get(self, path, params=None, **kwargs):
        return self.http.get(self.address + path, params=params, timeout=60, **kwargs)

    def logs(self):
        texts = [path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log"))]
        return "\n".join(texts) + (self.folder / "err").read_text(errors="replace")


def _write_settings(folder, whisper, remotes, more):
    text = SETTINGS.format(folder=str(folder), whisper=whisper, remotes=remotes) + more
    (folder / "local_settings.py").write_text(text)
