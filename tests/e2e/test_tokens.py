"""Tokens for HTTP: how clients send them, what each allows, the command that writes them, and proxies that name a user."""

import time

import pytest
import requests

from plumbago import QUIET, Plumbago, aligned_now, eventually, run, variables, wait_until


def settings(tokens, more=""):
    return QUIET + f'[http]\ntokens = "{tokens}"\n{more}[rules]\nreload_every = "100ms"\n'


class Guarded:
    """A server with a file of tokens, and a session for each token."""

    def __init__(self, folder, more=""):
        self.file = folder / "tokens.toml"
        self.tokens = {}
        self.add("admin", "--scope", "read,write,events,admin")
        self.server = Plumbago(folder / "server", settings=settings(self.file, more))
        self.server.http.headers["Authorization"] = f"Bearer {self.tokens['admin']}"
        self.server.start()

    def add(self, name, *options):
        done = run("token", "add", name, *options, "--file", self.file)
        assert done.returncode == 0, done.stderr
        self.tokens[name] = done.stdout.strip()
        return self.tokens[name]

    def ask(self, name, path, method="GET", **kwargs):
        headers = {"Authorization": f"Bearer {self.tokens[name]}"} if name else {}
        return requests.request(method, self.server.url(path), headers=headers, timeout=20, **kwargs)

    def status(self, name, path, method="GET", **kwargs):
        return self.ask(name, path, method, **kwargs).status_code


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    guarded = Guarded(tmp_path_factory.mktemp("guarded"))
    now = aligned_now() - 60
    guarded.now = now
    names = ["second.blue.a", "second.blue.b", "second.red.a", "second.cpu;tenant=blue", "second.cpu;tenant=red"]
    guarded.server.send([(name, now, 1.0) for name in names])
    eventually(lambda: len(guarded.server.get("/metrics/index.json").json()), 3)
    guarded.add("reader")
    guarded.add("writer", "--scope", "write")
    guarded.add("events", "--scope", "events")
    guarded.add("blue", "--scope", "read", "--prefix", "second.blue.", "--tag", "tenant=blue")
    wait_until(lambda: guarded.status("blue", "/version") == 200, 10, "the new tokens are not in force")
    yield guarded
    guarded.server.stop()


PATHS = ["/", "/version", "/render?target=second.*.a&format=json", "/metrics/find?query=*", "/metrics/index.json", "/metrics"]


def test_without_a_token_only_health_is_answered(guarded):
    for path in [*PATHS, "/admin/status", "/functions", "/events/get_data"]:
        answer = guarded.ask(None, path)
        assert answer.status_code == 401, path
        assert answer.headers["WWW-Authenticate"].startswith("Basic")
    for path in ["/healthy", "/ready"]:
        assert guarded.status(None, path) == 200
    assert guarded.status(None, "/ingest", "POST", data="second.blue.a 1 -1") == 401


def test_a_token_is_sent_as_grafana_graphite_web_and_curl_send_credentials(guarded):
    token, url = guarded.tokens["reader"], guarded.server.url("/version")
    # Grafana's datasource: basic authentication, or a header of its own; curl -u.
    assert requests.get(url, auth=("grafana", token), timeout=10).status_code == 200
    assert requests.get(url, auth=("", token), timeout=10).status_code == 200
    assert requests.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=10).status_code == 200
    # A user and password in the address, as carbonapi's and graphite-web's lists of servers may have them.
    assert requests.get(url.replace("http://", f"http://any:{token}@"), timeout=10).status_code == 200
    for wrong in [token[:-1], token.upper(), "", "sha256:" + token]:
        assert requests.get(url, auth=("grafana", wrong), timeout=10).status_code == 401


def test_each_scope_allows_its_own_paths(guarded):
    event = '{"what": "x"}'
    requests_of = {
        "read": ("GET", "/metrics/index.json", None),
        "metrics": ("GET", "/metrics", None),
        "write": ("POST", "/ingest", "second.red.a 1 -1"),
        "event": ("POST", "/events/", event),
        "events": ("GET", "/events/get_data", None),
        "status": ("GET", "/admin/status", None),
        "flush": ("POST", "/admin/flush", None),
        "delete": ("POST", "/tags/delSeries", "path=second.none"),
    }
    guarded.add("deleter", "--scope", "delete")
    wait_until(lambda: guarded.status("deleter", "/tags/delSeries", "POST") == 400, 10, "the new token is not in force")
    allowed = {
        "reader": {"read", "metrics", "events"},
        "writer": {"write"},
        "events": {"event", "events"},
        "blue": {"read"},
        "deleter": {"delete"},
        "admin": set(requests_of),
    }
    for name, expected in allowed.items():
        statuses = {what: guarded.status(name, path, method, data=data) for what, (method, path, data) in requests_of.items()}
        assert {what for what, status in statuses.items() if status == 200} == expected, (name, statuses)
        assert {status for what, status in statuses.items() if what not in expected} <= {403}


def test_a_token_with_prefixes_sees_these_names_alone(guarded):
    index = guarded.ask("blue", "/metrics/index.json").json()
    assert index == ["second.blue.a", "second.blue.b"]
    since = f"&from={guarded.now - 300}&format=json"
    series = guarded.ask("blue", f"/render?target=second.*.*{since}").json()
    assert sorted(s["target"] for s in series) == index
    assert guarded.ask("blue", f"/render?target=second.red.a{since}").json() == []
    tagged = guarded.ask("blue", f"/render?target=seriesByTag('name=second.cpu'){since}").json()
    assert [s["target"] for s in tagged] == ["second.cpu;tenant=blue"]
    found = guarded.ask("blue", "/metrics/find?query=second.*&format=completer").json()
    assert [node["path"] for node in found["metrics"]] == ["second.blue."]
    assert guarded.status("blue", "/info?target=second.red.a") == 404


def test_metrics_are_deleted_at_the_http_address_by_tokens_that_may(make_server, tmp_path):
    tokens = tmp_path / "tokens.toml"
    secrets = {
        name: run("token", "add", name, *options, "--file", tokens).stdout.strip()
        for name, options in {
            "all": ["--scope", "read,delete"],
            "blue": ["--scope", "delete", "--tag", "tenant=blue"],
            "reader": [],
        }.items()
    }
    # Administration has an address of its own.
    server = make_server(settings=settings(tokens), environment={"PLUMBAGO_LISTEN_ADMIN": "127.0.0.1:0"}, start=False)
    server.spawn()
    # /ready is at the other address.
    wait_until(lambda: server._is_ready() or "http" in server.ports, 20, "no listeners")

    def ask(name, method, path, **kwargs):
        headers = {"Authorization": f"Bearer {secrets[name]}"}
        return requests.request(method, server.url(path), headers=headers, timeout=20, **kwargs)

    names = ["a;tenant=blue", "b;tenant=blue", "a;tenant=red", "b;tenant=red"]
    server.send([(name, int(time.time()), 1.0) for name in names])
    left = lambda: ask("all", "GET", "/tags/findSeries?expr=tenant!=").json()
    eventually(left, sorted(names))
    assert ask("reader", "POST", "/tags/delSeries", data={"path": names}).status_code == 403
    # A name that a token may not write stays, and the answer does not tell of it.
    assert ask("blue", "POST", "/tags/delSeries", files={"path": (None, names[0])}, data={"x": 1}).status_code == 400
    assert ask("blue", "POST", "/tags/delSeries", data={"path": [names[0], names[2]]}).json() is True
    assert left() == sorted(names[1:])
    assert ask("all", "POST", "/tags/delSeries", files=[("path", (None, name)) for name in names[1:3]]).json() is True
    assert left() == names[3:]
    assert ask("all", "POST", "/admin/flush").status_code in (403, 404)


def test_a_new_token_is_in_force_and_a_revoked_one_is_not_without_a_restart(guarded):
    assert guarded.add("guest").startswith("plumbago_")
    wait_until(lambda: guarded.status("guest", "/version") == 200, 10, "the new token is not in force")
    assert guarded.file.stat().st_mode & 0o077 == 0
    assert guarded.tokens["guest"] not in guarded.file.read_text()
    listed = run("token", "list", "--file", guarded.file).stdout
    assert "guest" in listed and "second.blue.* tenant=blue" in listed and guarded.tokens["guest"] not in listed
    assert run("token", "add", "guest", "--file", guarded.file).returncode == 1
    done = run("token", "revoke", "guest", "--file", guarded.file)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: guarded.status("guest", "/version") == 401, 10, "the revoked token is in force")
    assert guarded.status("reader", "/version") == 200
    assert run("token", "revoke", "guest", "--file", guarded.file).returncode == 1


def test_an_invalid_file_leaves_the_tokens_in_force(guarded):
    good = guarded.file.read_text()
    guarded.file.write_text(good + "\n[more]\nscopes = ['everything']\n")
    wait_until(lambda: "'everything' is not a scope" in guarded.server.logs(), 10, "the log does not mention the file")
    assert guarded.status("reader", "/version") == 200
    guarded.file.unlink()
    time.sleep(0.5)
    assert guarded.status("reader", "/version") == 200 and guarded.status(None, "/version") == 401
    guarded.file.write_text(good)


def test_commands_send_a_token(guarded):
    address = f"127.0.0.1:{guarded.server.ports['http']}"
    refused = run("flush", "--admin", address)
    assert refused.returncode == 1 and "PLUMBAGO_TOKEN" in refused.stderr
    environment = variables(PLUMBAGO_TOKEN=guarded.tokens["admin"])
    done = run("flush", "--admin", address, env=environment)
    assert done.returncode == 0, done.stderr


def test_a_start_without_the_file_or_with_an_invalid_one_is_refused(tmp_path):
    config = tmp_path / "plumbago.toml"
    config.write_text(settings(tmp_path / "tokens.toml"))
    done = run("serve", "--config", config, "--data", tmp_path / "data")
    assert done.returncode == 1 and "tokens.toml" in done.stderr
    (tmp_path / "tokens.toml").write_text("[a]\nscopes = ['all']\n")
    done = run("check-config", "--config", config)
    assert done.returncode == 1 and "'all' is not a scope" in done.stderr


def test_with_tokens_http_may_be_reached_by_others(tmp_path):
    tokens = tmp_path / "tokens.toml"
    assert run("token", "add", "a", "--file", tokens).returncode == 0
    config = tmp_path / "plumbago.toml"
    config.write_text(settings(tokens) + '[listen]\nhttp = "0.0.0.0:8080"\n')
    assert run("check-config", "--config", config).returncode == 0
    config.write_text(settings(tokens) + '[listen]\nline = "0.0.0.0:2003"\n')
    assert "listen.line" in run("check-config", "--config", config).stderr


def test_a_proxy_names_its_user(tmp_path):
    guarded = Guarded(tmp_path, 'proxies = "127.0.0.1"\nproxy_header = "X-User"\n')
    try:
        done = run("token", "add", "alice", "--user", "--prefix", "second.blue.", "--file", guarded.file)
        assert done.returncode == 0 and done.stdout == "", done.stderr

        def status(user):
            return requests.get(guarded.server.url("/version"), headers={"X-User": user}, timeout=10).status_code

        wait_until(lambda: status("alice") == 200, 10, "the user is not in force")
        assert status("bob") == 401
        # A token's name is not a user.
        assert status("admin") == 401
        assert requests.get(guarded.server.url("/version"), timeout=10).status_code == 401
    finally:
        guarded.server.stop()
