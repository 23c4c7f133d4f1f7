"""The files of deploy/ work: settings are valid, targets have answers, units and manifests are well-formed."""

import filecmp
import json
import pathlib
import re
import shutil
import subprocess
import time

import pytest
from certificates import Authority
from plumbago import QUIET, Plumbago, binary, eventually, run
from relays import free_port

DEPLOY = pathlib.Path(__file__).parents[2] / "deploy"
SETTINGS = sorted([*DEPLOY.glob("examples/*.toml"), *DEPLOY.glob("kubernetes/*.toml")])


def check_config(path, conf_dir):
    return subprocess.run(
        [binary(), "check-config", "--config", path, "--conf-dir", conf_dir], capture_output=True, text=True, timeout=60
    )


def installed(path, folder):
    """The settings with the files of /etc/plumbago made in a folder, which the logs are in, too."""
    authority = Authority(folder / "authority")
    authority.issue("server")
    for name in ["server.pem", "server.key"]:
        shutil.copy(authority.folder / name, folder / name)
    shutil.copy(authority.ca, folder / "blue-ca.pem")
    shutil.copy(DEPLOY / "examples/storage-quotas.conf", folder)
    assert run("token", "add", "grafana", "--file", folder / "tokens.toml").returncode == 0
    settings = folder / path.name
    settings.write_text(re.sub("/(etc|var/log)/plumbago/", f"{folder}/", path.read_text()))
    return settings


@pytest.mark.parametrize("path", SETTINGS, ids=lambda path: path.name)
def test_every_settings_file_is_accepted(path, tmp_path):
    if "/etc/plumbago/" in path.read_text():
        path = installed(path, tmp_path)
    done = check_config(path, DEPLOY / "examples/carbon")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_settings_file_with_a_mistake_is_rejected(tmp_path):
    bad = tmp_path / "bad.toml"
    bad.write_text((DEPLOY / "examples/cassandra.toml").read_text() + "\n[ingets]\nsync = '1s'\n")
    assert check_config(bad, DEPLOY / "examples/carbon").returncode != 0


def test_kubernetes_has_the_same_carbon_files_as_the_examples():
    names = ["storage-schemas.conf", "storage-aggregation.conf"]
    same = filecmp.cmpfiles(DEPLOY / "examples/carbon", DEPLOY / "kubernetes", names, shallow=False)[0]
    assert sorted(same) == sorted(names)


def test_environment_variables_of_the_compose_file_are_settings():
    text = (DEPLOY / "compose.yaml").read_text()
    named = {word.strip().split(":")[0] for word in text.splitlines() if word.strip().startswith("PLUMBAGO_")}
    named.discard("PLUMBAGO_URL")
    known = subprocess.run([binary(), "settings"], capture_output=True, text=True, check=True).stdout
    assert named and all(f"# Environment: {name}\n" in known for name in named)


def test_every_panel_of_the_dashboard_has_an_answer(tmp_path):
    dashboard = json.loads((DEPLOY / "grafana/dashboards/plumbago.json").read_text())
    node = Plumbago(tmp_path, settings='[own]\nevery = "1s"\n').start()
    targets = [target["target"] for panel in dashboard["panels"] for target in panel["targets"]]

    def unanswered():
        empty = []
        for target in targets:
            asked = {"target": target.replace("$node", "*"), "from": "-5min", "format": "json"}
            answer = node.http.get(node.url("/render"), params=asked, timeout=10)
            assert answer.status_code == 200, answer.text
            if not answer.json():
                empty.append(target)
        return empty

    try:
        eventually(unanswered, [], 30)
    finally:
        node.stop()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_unit_is_well_formed_and_hardened(tmp_path):
    unit = tmp_path / "plumbago.service"
    unit.write_text((DEPLOY / "systemd/plumbago.service").read_text().replace("/usr/local/bin/plumbago", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr
    scored = subprocess.run(["systemd-analyze", "security", "--offline=true", unit], capture_output=True, text=True)
    level = float(scored.stdout.rsplit("Overall exposure level for plumbago.service:", 1)[1].split()[0])
    assert level < 2.0, scored.stdout


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_manifests_build():
    done = subprocess.run(["kubectl", "kustomize", DEPLOY / "kubernetes"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kinds = sorted(line.split()[1] for line in done.stdout.splitlines() if line.startswith("kind:"))
    assert kinds == ["ConfigMap", "ConfigMap", "PodDisruptionBudget", "Service", "Service", "StatefulSet"]


def test_alert_rules_name_metrics_that_exist(make_server, tmp_path):
    text = (DEPLOY / "prometheus/alerts.yml").read_text()
    expressions = re.findall(r"^ +expr: '(.*)'$", text, re.MULTILINE)
    assert len(expressions) == text.count("- alert:") > 10
    named = set(re.findall(r"\b(?:plumbago|process)_[a-z_]+", " ".join(expressions)))
    # Families that have values only once something happened: what is announced counts. That of certificates needs one.
    authority = Authority(tmp_path / "authority")
    authority.issue("server")
    files = f'tls_certificate = "{authority.folder}/server.pem"\ntls_key = "{authority.folder}/server.key"\n'
    listener = f'[[listener]]\nname = "tls"\naddress = "127.0.0.1:{free_port()}"\n{files}'
    metrics = make_server(settings=QUIET + listener).get("/metrics").text
    known = set(re.findall(r"^# TYPE (\S+)", metrics, re.MULTILINE))
    assert named - known == set()


def test_a_scrape_has_version_start_limit_and_last_backup(make_server, tmp_path):
    server = make_server(settings=QUIET + "[limits]\nmetrics = 1000\n")
    counters = server.counters()
    assert any(name.startswith('plumbago_build_info{version="') for name in counters)
    assert time.time() - 60 < counters["process_start_time_seconds"] <= time.time()
    assert counters["plumbago_metrics_limit"] == 1000 and counters["plumbago_backup_last_timestamp_seconds"] == 0
    made = run("backup", tmp_path / "backups", "--http", f"127.0.0.1:{server.ports['http']}")
    assert made.returncode == 0, made.stderr
    assert time.time() - 60 < server.counters()["plumbago_backup_last_timestamp_seconds"] <= time.time()
