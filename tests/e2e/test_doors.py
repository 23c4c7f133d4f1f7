"""Who reaches a server: the addresses it listens on by default, its own address of administration, what pages in a
browser may do, and the rights on its files.
"""

import os
import re
import stat
import subprocess

import pytest
import requests

from plumbago import QUIET, binary, eventually, run, variables, wait_until
from relays import free_port


def free_addresses():
    return {name: f"127.0.0.1:{free_port()}" for name in ["line", "pickle", "http", "admin"]}


@pytest.fixture
def serve(tmp_path):
    """Starts `plumbago serve` with these options alone and returns what it prints until it is ready."""
    started = []

    def start(*arguments, **environment):
        command = [binary(), "serve", "--data", tmp_path / "data", *arguments]
        environment = variables(**{"PLUMBAGO_OWN_EVERY": "off", **environment})
        process = subprocess.Popen(
            [str(word) for word in command], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line == "ready\n":
                return "".join(lines)
        raise AssertionError(process.stderr.read())

    yield start
    for process in started:
        process.terminate()
        assert process.wait(30) == 0


def test_by_default_every_address_is_on_loopback():
    printed = run("settings").stdout
    listens = dict(re.findall(r'^(line|pickle|protobuf|http|admin) = "(.*)"$', printed, re.MULTILINE))
    assert listens == {
        "line": "127.0.0.1:2003",
        "pickle": "127.0.0.1:2004",
        "protobuf": "off",
        "http": "127.0.0.1:8080",
        "admin": "auto",
    }
    assert "insecure = false" in printed


@pytest.mark.parametrize("option", ["--line", "--pickle", "--protobuf", "--http", "--admin"])
def test_an_address_that_others_reach_is_refused_before_anything_is_opened(tmp_path, option):
    done = run("serve", "--data", tmp_path / "data", option, f"0.0.0.0:{free_port()}", cwd=tmp_path)
    assert done.returncode == 1
    assert f"listen.{option[2:]} = " in done.stderr and "--insecure" in done.stderr and "PLUMBAGO_LISTEN_INSECURE" in done.stderr
    assert not (tmp_path / "data").exists()
    config = tmp_path / "plumbago.toml"
    config.write_text(f'[listen]\n{option[2:]} = "[::]:0"\n')
    assert f"listen.{option[2:]}" in run("check-config", "--config", config).stderr


def test_a_setting_allows_such_addresses_and_administration_stays_on_loopback(serve):
    at = free_addresses()
    http = at["http"].replace("127.0.0.1", "0.0.0.0")
    line = at["line"].replace("127.0.0.1", "0.0.0.0")
    printed = serve("--line", line, "--pickle", "off", "--http", http, "--admin", at["admin"], "--insecure")
    assert re.search(rf"^admin +http://{at['admin']}", printed, re.MULTILINE), printed
    public, admin = f"http://{at['http']}", f"http://{at['admin']}"
    requests.post(f"{public}/ingest", data="second.a 1 -1", timeout=10).raise_for_status()
    eventually(lambda: requests.get(f"{public}/metrics/index.json", timeout=10).json(), ["second.a"])
    for method, path in [("GET", "/metrics"), ("GET", "/ready"), ("GET", "/healthy"), ("GET", "/admin/status"), ("POST", "/admin/flush"), ("POST", "/tags/delSeries")]:
        assert requests.request(method, public + path, timeout=10).status_code == 404, path
    refused = requests.post(f"{public}/tags/delSeries", data={"path": "second.a"}, timeout=10).text
    assert "listen.admin" in refused and "http.tokens" in refused and "scope delete" in refused
    for path in ["/metrics", "/ready", "/healthy", "/admin/status"]:
        assert requests.get(admin + path, timeout=10).status_code == 200, path
    assert requests.get(f"{admin}/render?target=second.a", timeout=10).status_code == 404
    refused = run("flush", "--admin", at["http"])
    assert refused.returncode == 1 and "listen.admin" in refused.stderr and "--admin" in refused.stderr
    done = run("flush", "--admin", at["admin"])
    assert done.returncode == 0, done.stderr


def test_the_log_says_what_everyone_can_do(make_server):
    open_to_all = {"PLUMBAGO_LISTEN_ADMIN": "0.0.0.0:0", "PLUMBAGO_LISTEN_INSECURE": "true"}
    server = make_server(environment=open_to_all, start=False)
    server.spawn()
    wait_until(lambda: "everyone who reaches listen.admin can delete metrics" in server.logs(), 20, "the log does not say it")


def test_the_data_folder_is_its_owners_alone(make_server):
    server = make_server(start=False)
    server.data.mkdir()
    server.data.chmod(0o755)
    server.start()
    server.send([("second.a", 1, 1.0)])
    done = run("backup", server.folder / "backups", "--admin", f"127.0.0.1:{server.ports['http']}")
    assert done.returncode == 0, done.stderr
    server.stop()
    for top in [server.data, server.folder / "backups"]:
        for folder, folders, files in os.walk(top):
            for name in [".", *folders, *files]:
                mode = stat.S_IMODE(os.lstat(os.path.join(folder, name)).st_mode)
                assert mode & 0o077 == 0, f"{folder}/{name} has {mode:o}"


def test_pages_of_other_sites_neither_write_nor_read(server):
    url = server.url("/ingest")
    assert requests.post(url, data="second.a 1 -1", headers={"Sec-Fetch-Site": "cross-site"}, timeout=10).status_code == 403
    assert requests.post(url, data="second.a 1 -1", headers={"Origin": "http://evil.example"}, timeout=10).status_code == 403
    assert server.get("/metrics/index.json").json() == []
    rebound = requests.get(server.url("/metrics/index.json"), headers={"Host": "evil.example"}, timeout=10)
    assert rebound.status_code == 421 and "http.hosts" in rebound.text
    assert "Access-Control-Allow-Origin" not in server.get("/version").headers


def test_names_and_origins_can_be_allowed(make_server):
    server = make_server(settings=QUIET + '[http]\nhosts = "graphite.example.org"\ncors_origins = "https://grafana.example.org"\n')
    headers = {"Host": "graphite.example.org", "Origin": "https://grafana.example.org"}
    answer = requests.get(server.url("/version"), headers=headers, timeout=10)
    assert answer.status_code == 200
    assert answer.headers["Access-Control-Allow-Origin"] == "https://grafana.example.org"
