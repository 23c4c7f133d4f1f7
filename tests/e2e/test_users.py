"""A data folder, and a folder of backups, that belong to another user than the server's."""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from plumbago import Plumbago, binary

OTHER_USER = 65534
AS_OTHER_USER = ["setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups"]

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can start a server as another user"
)


@pytest.fixture
def server():
    """A server of a user of its own, not started."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    server = Plumbago(folder / "server", wrapper=AS_OTHER_USER)
    for path in [folder / "server", *(folder / "server").rglob("*")]:
        os.chown(path, OTHER_USER, OTHER_USER)
    yield server
    if server.process and server.process.poll() is None:
        server.stop()
    shutil.rmtree(folder)


def files(folder):
    return {path: (path.stat().st_uid, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("file", ["store/spec", "store/manifest", "store/names/00000001.log", "store/lock", "clock"])
def test_a_file_that_the_user_may_not_read_is_not_taken_for_damaged(server, file):
    server.start()
    server.send([("a.b", int(time.time()), 1.0)])
    server.stop()
    path = server.data / file
    os.chown(path, 0, 0)
    path.chmod(0o600)
    before = files(server.data)
    server.spawn()
    assert server.process.wait(30) != 0
    assert f"{file}: Permission denied" in server.logs() and "must be able to read and write there" in server.logs()
    assert files(server.data) == before
    os.chown(path, OTHER_USER, OTHER_USER)
    server.start()
    assert server.get("/admin/status").json()["damage"]["findings"] == 0
    assert len(server.points("a.b")) == 1


def test_a_backup_into_a_folder_that_the_server_may_not_read_says_so(server, tmp_path):
    server.start()
    admin = server.url("").removeprefix("http://")
    made = subprocess.run([binary(), "backup", str(tmp_path / "backups"), "--admin", admin], capture_output=True, text=True)
    assert made.returncode != 0
    assert "the server may not read the folder" in made.stderr and "as that user" in made.stderr, made.stderr
