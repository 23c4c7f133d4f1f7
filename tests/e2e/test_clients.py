"""The requests of Grafana, Moira, vmalert, carbonapi and graphite-web (crates/api/tests/clients) over real sockets, and a Go
program that reads the JSON of the answers, as most of these clients are."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from plumbago import Plumbago, eventually

HERE = Path(__file__).resolve().parent
FILES = sorted((HERE.parents[1] / "crates/api/tests/clients").glob("*.json"))
# The time of the requests.
NOW = 1_700_000_000
LAST = NOW - NOW % 60


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    schemas = "[all]\npattern = .*\nretentions = 60s:20y\n"
    server = Plumbago(tmp_path_factory.mktemp("server"), schemas=schemas).start()
    values = {
        "servers.web1.cpu.user": lambda age: float(age),
        "servers.web1.cpu.system": lambda age: 0.5,
        "servers.web1.mem": lambda age: 1e18,
        "servers.web2.cpu.user": lambda age: None if age % 3 else -0.25,
        "odd.infinite": lambda age: [float("inf"), float("-inf"), 1.5][age % 3],
        "load;dc=eu;host=web1": lambda age: 1.0,
        "load;dc=us;host=web2": lambda age: 2.0,
    }
    points = [(name, LAST - 60 * age, of(age)) for name, of in values.items() for age in range(60) if of(age) is not None]
    server.send(points)
    eventually(lambda: len(server.get("/metrics/index.json").json()), 5)
    eventually(lambda: len(server.get("/tags/findSeries?expr=name=load").json()), 2)
    for event in [
        {"what": "release 4.2", "tags": ["deploy", "web"], "data": "by ann", "when": NOW - 600},
        {"what": "restart", "tags": "web", "when": NOW - 300},
    ]:
        assert server.http.post(server.url("/events/"), data=json.dumps(event)).status_code == 200
    yield server
    server.stop()


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    if shutil.which("go") is None:
        pytest.fail("go is missing: run tests/install-peers")
    program = tmp_path_factory.mktemp("strict") / "strict"
    subprocess.run(["go", "build", "-o", program, HERE / "strict/main.go"], check=True)

    def read(lines):
        """What Go says of each pair of a shape and a body; an empty text where it is satisfied."""
        text = "".join(json.dumps({"shape": shape, "body": body}) + "\n" for shape, body in lines)
        done = subprocess.run([program], input=text, capture_output=True, check=True, encoding="utf-8")
        return done.stdout.split("\n")[:-1]

    return read


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_client_gets_what_it_needs(server, reader, file):
    client = json.loads(file.read_text())
    asked, lines = [], []
    for request in client["requests"]:
        headers = {**client["headers"], **request.get("headers", {})}
        answer = server.http.request(
            request["method"], server.url(request["path"]), headers=headers, data=request.get("body"), timeout=30
        )
        needed = request["answer"]
        kind = answer.headers["Content-Type"].split(";")[0]
        assert (answer.status_code, kind) == (needed["status"], needed["type"]), (request["use"], answer.text)
        assert needed.get("says", "") in answer.text, request["use"]
        if "shape" in needed:
            asked.append(request["use"])
            lines.append((needed["shape"], answer.text))
    said = reader(lines)
    assert len(said) == len(lines)
    assert [(use, why) for use, why in zip(asked, said) if why] == []


def test_the_reader_is_as_strict_as_go(reader):
    series = [{"target": "string", "datapoints": [["float or null", "int"]]}]
    good = ['[{"target": "a", "datapoints": [[1, 2], [null, 3], [-0.5, 4]]}]', "[]"]
    bad = [
        '[{"target": "a", "datapoints": [[1e9999, 2]]}]',
        '[{"target": "a", "datapoints": [[NaN, 2]]}]',
        '[{"target": "a", "datapoints": [[1, 2.5]]}]',
        '[{"target": 1, "datapoints": []}]',
        '[{"datapoints": []}]',
        "1.1.10\n",
        "{}",
    ]
    said = reader([(series, body) for body in good + bad])
    assert [bool(why) for why in said] == [False] * len(good) + [True] * len(bad), said
