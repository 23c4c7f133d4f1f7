"""Configuration: carbon's files and how they are reloaded, our own settings and their errors, and the
subcommands that explain both.
"""

import json
import signal
import subprocess
import time

import pytest
import requests

from plumbago import QUIET, aligned_now, binary, eventually, run, variables, wait_until
from relays import accepts, free_port

# Polls often, so that tests need not wait.
EAGER = QUIET + '[rules]\nreload_every = "100ms"\n'


def stage_step(server, name, seconds_back):
    """The step that a window of this length is served with."""
    now = aligned_now(10)
    line = server.get("/render", target=name, format="raw", **{"from": now - seconds_back, "until": now, "now": now}).text
    return int(line.split("|")[0].split(",")[-1])


def test_a_new_retention_applies_from_then_on_and_old_points_stay_readable(make_server):
    server = make_server(schemas="[all]\npattern = .*\nretentions = 10s:2h,60s:1d\n", settings=EAGER)
    now = aligned_now(60)
    old = {now - 1800 + i * 10: float(i) for i in range(60)}
    server.send([("app.requests", t, v) for t, v in old.items()])
    look = lambda: server.points("app.requests", **{"from": now - 3600, "until": now + 60})  # noqa: E731
    eventually(look, old)
    server.configure("storage-schemas.conf", "[all]\npattern = .*\nretentions = 1s:4h,60s:7d\n")
    # A new metric has the new retention as soon as the file is read; the old metric follows.
    number = iter(range(1_000_000))

    def new_metric_has_it():
        name = f"app.new{next(number)}"
        server.send([(name, now - 30, 1.0)])
        wait_until(lambda: server.find(name), 5)
        return stage_step(server, name, 600) == 1

    wait_until(new_metric_has_it, 10, "the new retention was not applied")
    fresh = {now - 20 + i: float(100 + i) for i in range(15)}
    server.send([("app.requests", t, v) for t, v in fresh.items()])
    eventually(look, {**old, **fresh})
    # The same after a restart.
    assert server.stop() == 0
    server.start()
    eventually(look, {**old, **fresh})
    assert stage_step(server, "app.requests", 3600) == 1
    assert stage_step(server, "app.requests", 5 * 3600) == 60


def test_a_file_that_becomes_invalid_changes_nothing_and_is_logged(make_server):
    server = make_server(schemas="[all]\npattern = .*\nretentions = 10s:2h\n", settings=EAGER)
    server.send([("app.a", aligned_now() - 60, 1.0)])
    wait_until(lambda: server.find("app.a"), 5)
    server.configure("storage-schemas.conf", "[all]\npattern = (\nretentions = 10s:2h\n")
    wait_until(lambda: "storage-schemas.conf" in server.logs(), 10, "the log does not mention the invalid file")
    server.send([("app.b", aligned_now() - 60, 1.0)])
    wait_until(lambda: server.find("app.b"), 5)
    assert stage_step(server, "app.b", 600) == 10


def test_a_file_that_loses_its_sections_changes_nothing_and_is_logged(make_server):
    server = make_server(schemas="[all]\npattern = .*\nretentions = 10s:2h\n", settings=EAGER)
    server.configure("storage-schemas.conf", "")
    wait_until(lambda: "had sections and has none" in server.logs(), 10, "the log does not mention the empty file")
    server.send([("app.b", aligned_now() - 60, 1.0)])
    wait_until(lambda: server.find("app.b"), 5)
    assert stage_step(server, "app.b", 600) == 10


def test_sighup_reloads_at_once(make_server):
    server = make_server(
        schemas="[all]\npattern = .*\nretentions = 10s:2h\n", settings=QUIET + '[rules]\nreload_every = "1h"\n'
    )
    server.configure("storage-schemas.conf", "[all]\npattern = .*\nretentions = 30s:2h\n")
    server.process.send_signal(signal.SIGHUP)
    number = iter(range(1_000_000))

    def new_metric_has_it():
        name = f"app.new{next(number)}"
        server.send([(name, aligned_now() - 60, 1.0)])
        wait_until(lambda: server.find(name), 5)
        return stage_step(server, name, 600) == 30

    wait_until(new_metric_has_it, 10, "SIGHUP did not reload the files")


def test_without_carbons_files_carbons_defaults_apply(make_server):
    server = make_server(schemas=None, aggregation=None)
    now = aligned_now(60)
    server.send([("any.thing", now - 300, 1.0)])
    eventually(lambda: server.points("any.thing", **{"from": now - 600, "until": now}), {now - 300: 1.0})
    assert stage_step(server, "any.thing", 600) == 60


def test_blacklist_and_whitelist_apply_and_are_reloaded(make_server):
    server = make_server(settings=EAGER)
    start = aligned_now() - 100

    def taken(name):
        """Whether the server accepts a fresh name of this form."""
        server.send([(name, start, 1.0), ("second.after", start, 1.0)])
        wait_until(lambda: server.find("second.after"), 5)
        return server.find(name) == [name]

    assert taken("second.secret.a")
    server.configure("blacklist.conf", "# rejected names\n\\.secret\\.\n\n^junk\n")
    number = iter(range(1_000_000))
    wait_until(lambda: not taken(f"second.secret.m{next(number)}"), 10, "the blacklist was not read")
    assert not taken("junk.second")
    assert taken("second.good")
    assert server.rejected("blacklisted") >= 2
    server.configure("whitelist.conf", "^second\\.\n")
    wait_until(lambda: not taken(f"other.m{next(number)}"), 10, "the whitelist was not read")
    assert taken("second.allowed")
    assert not taken("second.secret.again")
    assert server.rejected("not_whitelisted") >= 1
    server.configure("whitelist.conf", None)
    server.configure("blacklist.conf", None)
    wait_until(lambda: taken(f"other.m{next(number)}"), 10, "the removed lists still apply")


def test_the_files_of_a_real_installation_are_read(make_server):
    """Comments, indentation, both delimiters, percent signs, priorities, go-carbon's quotes."""
    schemas = """
; carbon's own
[carbon]
pattern = ^carbon\\.
retentions = 60:90d

# colon instead of equals
[colon]
pattern: ^colon\\.
retentions: 30s:1h, 300s:1d

[percent]
pattern = ^100%%\\.
retentions = 20s:1h

[Quoted]
PATTERN = "^quoted\\."
Retentions = "15s:1h"

[default_1min_for_1day]
pattern = .*
retentions = 60s:1d
"""
    server = make_server(schemas=schemas)
    now = aligned_now(60)
    steps = {"carbon.x": 60, "colon.x": 30, "100%.x": 20, "quoted.x": 15, "else.x": 60}
    server.send([(name, now - 120, 1.0) for name in steps])
    for name, step in steps.items():
        wait_until(lambda name=name: server.find(name), 5)
        assert stage_step(server, name, 600) == step, name


# Our own settings.


def refused(tmp_path, settings, **environment):
    """The error of `plumbago serve` for invalid settings."""
    path = tmp_path / "bad.toml"
    path.write_text(settings)
    done = run("serve", "--config", path, "--data", tmp_path / "data", env=variables(**environment))
    assert done.returncode != 0
    return done.stderr


def test_an_unknown_key_is_rejected_and_the_nearest_known_one_named(tmp_path):
    said = refused(tmp_path, "[ingest]\nflush_afer = 1\n")
    assert "bad.toml:2" in said and "ingest.flush_after" in said


def test_an_unknown_variable_is_rejected_and_the_nearest_known_one_named(tmp_path):
    said = refused(tmp_path, "", PLUMBAGO_INGEST_SINC="1s")
    assert "PLUMBAGO_INGEST_SYNC" in said


def test_an_invalid_value_names_a_valid_one(tmp_path):
    said = refused(tmp_path, '[listen]\nline = "nowhere"\n')
    assert "listen.line" in said and "127.0.0.1:2003" in said


def test_a_missing_settings_file_is_an_error(tmp_path):
    done = run("serve", "--config", tmp_path / "absent.toml", "--data", tmp_path / "data")
    assert done.returncode != 0 and "absent.toml" in done.stderr


def test_the_environment_overrides_the_file(make_server):
    server = make_server(
        settings=QUIET + "[receive]\nmax_connections = 1\n", environment={"PLUMBAGO_RECEIVE_MAX_CONNECTIONS": "100"}
    )
    held = [server.connect() for _ in range(10)]
    start = aligned_now() - 60
    for i, connection in enumerate(held):
        connection.sendall(f"second.env{i} 1 {start}\n".encode())
    eventually(lambda: len(server.find("second.env*")), 10)
    for connection in held:
        connection.close()


def test_a_port_in_use_is_named(server, tmp_path):
    port = server.ports["line"]
    done = run(
        "serve", "--line", f"127.0.0.1:{port}", "--http", "127.0.0.1:0", "--pickle", "off", "--data", tmp_path / "data"
    )
    assert done.returncode != 0
    assert f"127.0.0.1:{port}" in done.stderr


def test_plumbago_without_arguments_serves_and_prints_its_addresses(tmp_path):
    ports = {f"PLUMBAGO_LISTEN_{name}": f"127.0.0.1:{free_port()}" for name in ["LINE", "PICKLE", "HTTP"]}
    environment = variables(**ports)
    process = subprocess.Popen([binary()], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        said = [process.stdout.readline() for _ in range(6)]
    finally:
        process.terminate()
        assert process.wait(10) == 0
    said = "".join(said)
    assert all(address in said for address in ports.values()), said
    assert "relays" in said and "Grafana" in said
    # The data folder is in the current folder.
    assert (tmp_path / "data").is_dir()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_that_cannot_be_written_does_no_harm(tmp_path, stream):
    """A full disk may hold the log as well as the data."""
    port = free_port()
    command = [binary(), "serve", "--data", tmp_path / "data", "--line", "127.0.0.1:0", "--pickle", "off"]
    with open("/dev/full", "w") as full:
        process = subprocess.Popen([*map(str, command), "--http", f"127.0.0.1:{port}"], **{stream: full})
    try:
        wait_until(lambda: process.poll() is not None or accepts(port), 10)
        time.sleep(0.5)
        assert process.poll() is None
        assert requests.get(f"http://127.0.0.1:{port}/ready", timeout=5).status_code == 200
    finally:
        process.terminate()
        assert process.wait(10) == 0


# check-config and explain.


@pytest.fixture
def conf(tmp_path):
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "storage-schemas.conf").write_text(
        "[databases]\npattern = ^db\\.\nretentions = 10s:6h,60s:7d\n\n[default]\npattern = .*\nretentions = 60s:1d\n"
    )
    (folder / "storage-aggregation.conf").write_text(
        "[counts]\npattern = \\.count$\nxFilesFactor = 0\naggregationMethod = sum\n"
    )
    return folder


def test_check_config_passes_good_files(conf):
    done = run("check-config", "--conf-dir", conf)
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.parametrize(
    "name, text, says",
    [
        ("storage-schemas.conf", "[a]\npattern = (\nretentions = 60:1d\n", "storage-schemas.conf:2"),
        ("storage-schemas.conf", "[a]\npattern = .*\nretentions = soon\n", "soon"),
        ("storage-aggregation.conf", "[a]\npattern = .*\naggregationMethod = mean\n", "mean"),
        ("storage-aggregation.conf", "[a]\npattern = .*\nxFilesFactor = 2\n", "xFilesFactor"),
        ("blacklist.conf", "good\n(\n", "blacklist.conf:2"),
    ],
)
def test_check_config_names_the_file_and_the_problem(conf, name, text, says):
    (conf / name).write_text(text)
    done = run("check-config", "--conf-dir", conf)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert name in said and says.lower() in said.lower()


@pytest.mark.parametrize(
    "text, says",
    [
        ("[a]\npattern = .*\nretentions = 60s:1d,90s:2d\n", "90 s is not a multiple of 60 s"),
        ("[a]\npattern = .*\n", "there are no retentions"),
    ],
)
def test_check_config_warns_of_sections_that_carbon_skips(conf, text, says):
    (conf / "storage-schemas.conf").write_text(text)
    done = run("check-config", "--conf-dir", conf)
    assert done.returncode == 0
    assert "warning: storage-schemas.conf" in done.stdout and says in done.stdout
    assert done.stdout.endswith("are valid, with 1 warning: see above\n"), done.stdout


def test_check_config_lists_what_is_wrong_with_files_and_with_settings(conf, tmp_path):
    (conf / "blacklist.conf").write_text("(\n")
    config = tmp_path / "plumbago.toml"
    config.write_text(f"[rules]\nconf_dir = '{conf}'\n[listen]\nlien = ':1'\n[limits]\nquotas = '{tmp_path}/none'\n")
    done = run("check-config", "--config", config)
    assert done.returncode == 1
    for words in ["listen.lien is not a setting", "blacklist.conf:1", f"{tmp_path}/none", "is checked once these are valid"]:
        assert words in done.stderr, done.stderr


def test_check_config_shows_the_warnings_of_the_file_of_quotas(tmp_path):
    (tmp_path / "quotas.conf").write_text("[sys.*]\nmetrics = 5\nphysical-size = 1024\n")
    config = tmp_path / "plumbago.toml"
    config.write_text(f"[limits]\nquotas = '{tmp_path}/quotas.conf'\n")
    done = run("check-config", "--config", config)
    assert done.returncode == 0, done.stderr
    assert "warning: storage-quotas.conf:3: [sys.*]: 'physical-size' has no effect" in done.stdout, done.stdout


def test_a_keyspace_that_cassandra_would_refuse_is_refused_at_once(tmp_path):
    done = run("serve", "--cassandra", "127.0.0.1:1", "--keyspace", "big-graphite", "--data", tmp_path / "data")
    assert done.returncode != 0
    assert "must be a name of letters, digits and underscores, got 'big-graphite'" in done.stderr, done.stderr
    assert not (tmp_path / "data").exists()


def test_a_start_names_two_settings_with_one_address_and_makes_no_data_folder(tmp_path):
    config = tmp_path / "plumbago.toml"
    config.write_text("[listen]\nline = '127.0.0.1:2003'\npickle = '127.0.0.1:2003'\n")
    done = run("serve", "--config", config, "--data", tmp_path / "data")
    assert done.returncode == 1
    assert "listen.pickle, 127.0.0.1:2003, is the address of listen.line too" in done.stderr
    assert not (tmp_path / "data").exists()


def test_explain_says_which_rule_applies_and_why(conf):
    done = run("explain", "db.main.queries.count", "--conf-dir", conf)
    assert done.returncode == 0, done.stderr
    for word in ["databases", "^db\\.", "10 s", "60 s", "counts", "sum"]:
        assert word in done.stdout, f"{word} is not in:\n{done.stdout}"


def test_explain_names_defaults(conf):
    done = run("explain", "web.load", "--conf-dir", conf)
    assert done.returncode == 0
    for word in ["[default]", "average", "0.5"]:
        assert word in done.stdout, f"{word} is not in:\n{done.stdout}"


def test_explain_answers_in_json(conf):
    done = run("explain", "db.main.queries.count", "--conf-dir", conf, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)


def test_explain_rejects_names_that_the_server_rejects(conf):
    assert run("explain", "...", "--conf-dir", conf).returncode != 0


def test_explain_names_the_blacklist(conf):
    (conf / "blacklist.conf").write_text("^db\\.\n")
    done = run("explain", "db.main", "--conf-dir", conf)
    assert "blacklist" in done.stdout


def test_the_printed_settings_are_a_valid_file(tmp_path):
    done = run("settings")
    assert done.returncode == 0
    path = tmp_path / "all.toml"
    path.write_text(done.stdout)
    assert run("check-config", "--config", path).returncode == 0


def test_a_variable_without_effect_and_a_new_data_folder_are_reported(make_server):
    server = make_server(environment={"PLUMBAGO_DATA": "/nowhere", "PLUMBAGO_SERVICE_HOST": "10.0.0.1"})
    log = server.logs()
    assert "PLUMBAGO_DATA is not a setting and has no effect; the nearest setting is PLUMBAGO_DATA_DIR" in log
    assert "PLUMBAGO_SERVICE_HOST" not in log
    assert "making a new, empty one" in log and str(server.data) in log and "next above or below" not in log
    checked = run("check-config", env=variables(PLUMBAGO_DATA="/nowhere"))
    assert checked.returncode == 0 and "warning: the variable PLUMBAGO_DATA is not a setting" in checked.stdout
    server.stop()
    server.start()
    assert "making a new" not in server.logs()
    server.stop()
    # The folder above the right one, and one below it.
    for wrong in [server.folder, server.data / "below"]:
        server.data = wrong
        server.start()
        assert "making a new" in server.logs() and "next above or below another data folder" in server.logs()
        server.stop()
