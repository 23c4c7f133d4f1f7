"""Tokens that see some names alone, at every path and with every function of a real server: the answers are those of a server
that has only these names, and a hidden name answers as an absent one. What such a token may write.
"""

import json
import re
import time

import pytest
import requests

from plumbago import QUIET, Plumbago, aligned_now, eventually, run, wait_until
from wire import varint

SEEN = [
    "second.blue.web.load",
    "second.blue.db.load",
    "second.shared.web1.load",
    "second.cpu;dc=a;tenant=blue",
    "second.cpu;dc=b;tenant=blue",
]
# Next to what is seen, below it, above it, and equal to it but for tags.
HIDDEN = [
    "second.blue",
    "second.blues.web.load",
    "second.red.web.load",
    "second.shared.db.load",
    "second.shared.web",
    "second.cpu;dc=a;tenant=red",
    "second.cpu;tenant=red",
    "red",
]
# Of the token `tags`; the others are hidden from it.
TAGGED = [name for name in SEEN if "tenant=blue" in name]
TOKENS = {
    "prefixes": ["--prefix", "second.blue.", "--prefix", "second.shared.web1", "--prefix", "gone.", "--tag", "tenant=blue"],
    "tags": ["--tag", "tenant=blue", "--tag", "dc=a"],
}
SECRET = 1234567.0

# Every path of the server's list (a test compares), and those of the program.
READS = {
    "/render": ["target", ["json", "raw", "csv", "pickle", "msgpack", "dygraph", "rickshaw", "svg", "png", "pdf", "carbonapi_v2_pb"]],
    "/metrics/find": [
        "query",
        ["treejson", "completer", "json", "nodelist", "pickle", "msgpack", "protobuf", "carbonapi_v2_pb"],
    ],
    "/metrics/expand": ["query", ["json"]],
    "/metrics": ["query", ["json"]],
    "/info": ["target", ["json", "protobuf"]],
}
WHOLE = [
    "/metrics/index.json", "/metrics/list", "/metrics/list?format=protobuf", "/metrics/details", "/metrics/details?format=protobuf",
    "/functions", "/functions/alias", "/tags", "/tags/tenant", "/tags/red", "/tags/autoComplete/tags", "/tags/autoComplete/values?tag=tenant",
    "/tags/findSeries?expr=tenant=red", "/tags/tagSeries?path=second.red.web.load", "/events", "/events/get_data", "/events/1", "/version", "/",
    "/_internal/capabilities", "/metrics/find", "/nowhere", "/nowhere/second.red.web.load",
]
ADMINISTRATION = [
    ("GET", "/metrics"), ("GET", "/admin/status"), ("GET", "/admin/rejects"), ("GET", "/admin/cardinality"),
    ("POST", "/admin/flush"), ("POST", "/admin/clock"),
    ("POST", "/admin/backup"), ("GET", "/admin/delete?path=NAME"), ("POST", "/admin/delete?path=NAME"), ("POST", "/tags/delSeries?path=NAME"),
    ("POST", "/events/"),
]
PATTERNS = [
    "*", "*.*", "*.*.*", "second.*.*.load", "**", "**.load", "second.b*", "second.{blue,red}", "second.{blue,red}.web.load", "second.shared.*",
    "second.r*", "gone.*", "gone", "second.[br]*.*.*", "no.such", "second.cpu*", *SEEN, *HIDDEN,
]
TAG_QUERIES = [
    "'tenant=red'", "'tenant=~.*'", "'name=second.cpu'", "'name=~.'", "'dc=a','tenant!=blue'", "'tenant='", "'name=second.red.web.load'",
]


class Server:
    """A server with some names, and a token of each kind. All servers get the same points and tokens."""

    def __init__(self, folder, tokens, names, now):
        settings = QUIET + f'[http]\ntokens = "{tokens.file}"\n'
        self.plain = Plumbago(folder, settings=settings)
        self.plain.http.headers["Authorization"] = f"Bearer {tokens['admin']}"
        self.plain.start()
        points = [(name, now - 60 + i, SECRET if name in HIDDEN else float(i)) for name in names for i in range(60)]
        self.plain.send(points)
        wanted = len([name for name in names if ";" not in name])
        eventually(lambda: len(self.plain.get("/metrics/index.json").json()), wanted)
        eventually(lambda: len(self.plain.render("seriesByTag('tenant=~.')", **{"from": now - 60, "until": now})), len([name for name in names if ";" in name]))
        for data in ['{"what": "second.red.web.load", "tags": "red"}']:
            if len(names) > len(SEEN):
                assert self.plain.post("/events/", data=data).status_code == 200
        self.session = requests.Session()
        # The servers did not get their points in the same second.
        self.created = {metric["ModTime"] for metric in self.plain.get("/metrics/details").json()["Metrics"]}

    def ask(self, token, method, path, **kwargs):
        headers = {"Authorization": f"Bearer {token}", **kwargs.pop("headers", {})}
        answer = self.session.request(method, self.plain.url(path), headers=headers, timeout=30, **kwargs)
        known = {name.lower(): value for name, value in answer.headers.items() if name.lower() not in ("date", "expires", "content-length")}
        # Ports differ.
        body = re.sub(rb"127\.0\.0\.1:\d+", b"ADDRESS", answer.content)
        if path.startswith("/metrics/details"):
            for created in self.created:
                body = body.replace(str(created).encode(), b"CREATED").replace(varint(created), b"CREATED")
        return answer.status_code, known, body


class Tokens(dict):
    def __init__(self, folder):
        super().__init__()
        self.file = folder / "tokens.toml"

    def add(self, name, *options):
        done = run("token", "add", name, *options, "--file", self.file)
        assert done.returncode == 0, done.stderr
        self[name] = done.stdout.strip()


class Both:
    """A server with all names and one for each token with what that token sees."""

    def __init__(self, folder):
        self.tokens = Tokens(folder)
        self.tokens.add("admin", "--scope", "read,write,events,admin")
        for name, options in TOKENS.items():
            self.tokens.add(name, "--scope", "read", *options)
        self.tokens.add("writer", "--scope", "read,write", *TOKENS["prefixes"])
        self.now = now = aligned_now()
        self.all = Server(folder / "all", self.tokens, SEEN + HIDDEN, now)
        own = [name for name in SEEN if "dc=a" in name]
        self.seen = {
            "prefixes": Server(folder / "seen", self.tokens, SEEN, now),
            "tags": Server(folder / "tagged", self.tokens, own, now),
        }
        self.span = {"from": now - 60, "until": now, "now": now, "tz": "UTC"}

    def same(self, who, method, path, seen_by=None, **kwargs):
        """The answer, which must be that of a server without the hidden names."""
        token = self.tokens[who]
        # Some answers have the current second, which may end between the two requests: what differs each time is a leak.
        for _ in range(5):
            all_names = self.all.ask(token, method, path, **kwargs)
            own_names = self.seen[seen_by or who].ask(token, method, path, **kwargs)
            if all_names == own_names:
                break
        assert all_names == own_names, (who, method, path, kwargs)
        assert str(SECRET).encode() not in all_names[2], (who, path, kwargs)
        return all_names

    def stop(self):
        for server in [self.all, *self.seen.values()]:
            server.plain.stop()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    both = Both(tmp_path_factory.mktemp("tenants"))
    yield both
    both.stop()


def text(field, value):
    value = value.encode()
    return varint(field << 3 | 2) + varint(len(value)) + value


@pytest.mark.parametrize("who", TOKENS)
def test_every_path_answers_as_without_the_hidden_names(both, who):
    listed = both.all.ask(both.tokens[who], "GET", "/nowhere")[2].decode()
    paths = re.findall(r"(?<![\w/])/[\w/.]*", listed.split("the server has")[1])
    tried = {path.split("?")[0] for path in [*READS, *WHOLE]}
    assert len(paths) > 10 and set(paths) <= tried, "a path of the server that this test does not try"
    for path, (field, formats) in READS.items():
        for pattern in PATTERNS:
            for form in formats:
                both.same(who, "GET", path, params={field: pattern, "format": form, **both.span})
                both.same(who, "POST", path, data={field: pattern, "format": form, **both.span})
    for tags in TAG_QUERIES:
        for form in ["json", "pickle", "raw"]:
            both.same(who, "GET", "/render", params={"target": f"seriesByTag({tags})", "format": form, **both.span})
        both.same(who, "GET", "/metrics/find", params={"query": f"seriesByTag({tags})", "format": "json"})
    for path in WHOLE:
        both.same(who, "GET", path)
        both.same(who, "POST", path)
        both.same(who, "HEAD", path)


@pytest.mark.parametrize("who", TOKENS)
def test_messages_of_carbonapi_answer_as_without_the_hidden_names(both, who):
    accept = {"Accept": "application/x-carbonapi-v3-pb"}
    begin, end = both.span["from"], both.span["until"]
    for pattern in [*PATTERNS, *(f"seriesByTag({tags})" for tags in TAG_QUERIES)]:
        both.same(who, "POST", "/metrics/find", data=text(1, pattern), headers=accept)
        both.same(who, "POST", "/info", data=text(1, pattern), headers=accept)
        fetch = text(1, pattern) + varint(2 << 3) + varint(begin) + varint(3 << 3) + varint(end) + text(5, pattern)
        fetch = varint(1 << 3 | 2) + varint(len(fetch)) + fetch
        status, _, body = both.same(who, "POST", "/render", data=fetch, headers=accept)
        # At least one tag must not match the empty string, which some of these do.
        assert status in (200, 404) or status == 400 and "seriesByTag" in pattern, (pattern, body)


@pytest.mark.parametrize("who", TOKENS)
def test_administration_and_events_tell_nothing_of_names(both, who):
    for method, path in ADMINISTRATION:
        status, _, body = both.same(who, method, path.replace("NAME", "second.red.web.load"), data=b'{"what": "x"}')
        assert status == 403, path
        assert both.same(who, method, path.replace("NAME", "second.blue.web.load"), data=b'{"what": "x"}')[2] == body
    assert both.same(who, "GET", "/events/get_data")[0] == 403
    assert both.same(who, "GET", "/render", params={"target": "events('red')", "format": "json", **both.span})[0] in (200, 403)
    assert both.same(who, "POST", "/ingest", data=b"second.blue.x 1 -1")[0] == 403


def argument(parameter, series):
    kind = parameter["type"]
    values = {
        "seriesList": series, "seriesLists": series, "integer": "1", "node": "1", "nodeOrTag": "1", "intOrInterval": "1", "float": "2",
        "intOrFloat": "2", "intOrInf": "2", "interval": "'1min'", "date": "'-1h'", "aggFunc": "'sum'", "aggOrSeriesFunc": "'sum'",
        "boolean": "true", "tag": "'tenant'",
    }
    return values.get(kind, "'second.red.web.load'")


@pytest.mark.parametrize("who", TOKENS)
def test_every_function_sees_what_the_token_sees(both, who):
    functions = json.loads(both.same(who, "GET", "/functions")[2])
    answered = 0
    for name, function in functions.items():
        targets = [
            f"{name}({','.join(argument(parameter, series) for parameter in function['params'] if parameter.get('required'))})"
            for series in ["**", "second.red.web.load", "second.*.*.load", "seriesByTag('name=~.')"]
        ]
        targets += [
            f"{name}(*,'second.red.web.load')",
            f"{name}(**.load,'%.load','sum')",
            f"{name}(second.blue.*.load,2,'second.red.%.load','sum')",
            f"{name}(second.blue.*.load,'1min','second.red.web.load')",
        ]
        for target in targets:
            # The names, so that all of them have ends like those of the tests above.
            status, _, _ = both.same(who, "GET", "/render", params={"target": target, "format": "json", **both.span})
            answered += status == 200
    assert answered > 400, answered


def test_a_token_writes_the_names_that_it_sees_alone(both):
    now = both.now
    lines = "".join(
        f"{name} 7 {now - 30}\n"
        for name in ["second.blue.new", "second.shared.web1.new", "second.mem;tenant=blue", "..second.blue.new2", "second.red.web.load",
                     "second.red.new", "second.blue", "second.blues.a", "second.mem;tenant=red", "second.shared.web", "red.new", "~second.blue.x"]
    )
    status, _, body = both.same("writer", "POST", "/ingest", "prefixes", data=lines.encode())
    answer = json.loads(body)
    assert status == 200 and answer["points"] == 5 and answer["reasons"] == {"outside_token": 7}, answer
    assert "outside the prefixes and tags of the sender's token" in answer["examples"][0]["why"]
    server = both.all.plain
    # What a metric of others has is not changed, and no metric of theirs is made.
    assert set(server.points("second.red.web.load", **both.span).values()) == {SECRET}
    made = server.get("/metrics/index.json").json()
    # A name does not include a leading ~.
    assert {"second.blue.new", "second.blue.new2", "second.blue.x"} <= set(made) and not {"second.red.new", "red.new", "second.blues.a"} & set(made)
    assert server.rejected("outside_token") == 7
    assert server.counter("plumbago_token_rejected_total", token="writer", reason="outside_token") == 7
    assert server.counter("plumbago_token_points_total", token="writer") == 5
    # The same in the other encodings, and by a token without restrictions.
    import wire

    points = [("second.blue.new", now - 20, 1.0), ("second.red.new", now - 20, 1.0)]
    for kind, data in [("application/python-pickle", wire.pickled(points)), ("application/protobuf", wire.protobuf(points))]:
        _, _, body = both.same("writer", "POST", "/ingest", "prefixes", data=data, headers={"Content-Type": kind})
        assert json.loads(body)["reasons"] == {"outside_token": 1}, kind
    assert both.all.ask(both.tokens["writer"], "POST", "/events/", data=b'{"what": "x"}')[0] == 403


def test_a_token_has_limits_of_its_own(tmp_path):
    tokens = Tokens(tmp_path)
    tokens.add("admin", "--scope", "read,write,admin")
    tokens.add("limited", "--scope", "write", "--points-per-second", "10", "--creations-per-minute", "3")
    server = Plumbago(tmp_path / "server", settings=QUIET + f'[http]\ntokens = "{tokens.file}"\n')
    server.http.headers["Authorization"] = f"Bearer {tokens['admin']}"
    server.start()
    try:
        def post(who, data):
            headers = {"Authorization": f"Bearer {tokens[who]}"}
            return requests.post(server.url("/ingest"), data=data, headers=headers, timeout=20).json()

        new = post("limited", "".join(f"second.new{i} 1 -1\n" for i in range(5)))
        # Five within one minute, or a few more where a minute ended in between.
        assert new["points"] in (3, 4, 5) and new.get("reasons", {}).get("too_many_new_metrics", 0) == 5 - new["points"]
        wait_until(lambda: post("limited", "second.new0 1 -1\n")["points"] == 1, 5)
        many = post("limited", "second.new0 1 -1\n" * 100)
        assert many["points"] <= 11 and many["reasons"]["too_many_points"] >= 89
        assert post("admin", "second.new0 1 -1\n" * 100)["points"] == 100
    finally:
        server.stop()


def test_a_token_has_a_number_of_metrics_and_a_share_of_memory(tmp_path):
    tokens = Tokens(tmp_path)
    tokens.add("admin", "--scope", "read,write,admin")
    options = ["--prefix", "second.", "--max-metrics", "3", "--query-memory", "1MiB"]
    tokens.add("limited", "--scope", "read,write", *options)
    server = Plumbago(tmp_path / "server", settings=QUIET + f'[http]\ntokens = "{tokens.file}"\n')
    server.http.headers["Authorization"] = f"Bearer {tokens['admin']}"
    server.start()
    try:
        def headers(who):
            return {"Authorization": f"Bearer {tokens[who]}"}

        def post(who, data):
            return requests.post(server.url("/ingest"), data=data, headers=headers(who), timeout=20).json()

        assert post("admin", "second.a 1 -1\nother.a 1 -1\n")["points"] == 2
        new = post("limited", "".join(f"second.new{i} 1 -1\n" for i in range(5)))
        assert (new["points"], new["reasons"]) == (2, {"too_many_metrics": 3})
        assert "max_metrics of the token" in {reject["limit"] for reject in server.rejects()}
        # Others are not limited by it, and what there is gets points.
        assert post("admin", "second.b 1 -1\n")["points"] == 1
        assert post("limited", "second.new0 2 -1\n")["points"] == 1

        def render(who):
            targets = [f"timeFunction('second.{i}',1)" for i in range(20)]
            data = {"target": targets, "from": "-1d", "format": "json"}
            return requests.post(server.url("/render"), data=data, headers=headers(who), timeout=60)

        answer = render("limited")
        assert answer.status_code == 422 and "query_memory of the token" in answer.text, answer.text[:300]
        assert render("admin").status_code == 200
    finally:
        server.stop()


def test_a_token_has_a_number_of_queries_at_once_and_of_events_a_minute(tmp_path):
    tokens = Tokens(tmp_path)
    tokens.add("admin", "--scope", "read,write,events,admin")
    tokens.add("limited", "--scope", "read,events", "--queries", "2", "--events-per-minute", "3")
    server = Plumbago(tmp_path / "server", settings=QUIET + f'[http]\ntokens = "{tokens.file}"\n[limits]\nevents_per_minute = 8\n')
    server.http.headers["Authorization"] = f"Bearer {tokens['admin']}"
    server.start()
    try:
        def headers(who):
            return {"Authorization": f"Bearer {tokens[who]}"}

        def events(who, count):
            url = server.url("/events/")
            return [requests.post(url, data='{"what": "x"}', headers=headers(who), timeout=20).status_code for _ in range(count)]

        # A minute may end in between.
        if time.time() % 60 > 50:
            time.sleep(61 - time.time() % 60)
        assert events("limited", 5) == [200] * 3 + [429] * 2
        assert events("admin", 7) == [200] * 5 + [429] * 2
        # Bodies that are not whole keep two queries under way.
        open_ones = []
        for _ in range(2):
            connection = server.connect("http")
            head = f"POST /render HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tokens['limited']}\r\nContent-Length: 100\r\n\r\nx"
            connection.sendall(head.encode())
            open_ones.append(connection)
        wait_until(lambda: requests.get(server.url("/version"), headers=headers("limited"), timeout=20).status_code == 429, 10)
        refused = requests.get(server.url("/version"), headers=headers("limited"), timeout=20)
        assert "limited has 2 queries under way" in refused.text and refused.headers["Retry-After"] == "1"
        assert server.get("/version").status_code == 200
        open_ones.pop().close()
        wait_until(lambda: requests.get(server.url("/version"), headers=headers("limited"), timeout=20).status_code == 200, 10)
    finally:
        server.stop()
