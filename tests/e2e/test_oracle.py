"""Three ways to ask for the same points agree: graphite-web over whisper files, graphite-web with the server as its only
cluster remote, and the server itself.

Every point is written twice, in the same order: to whisper files with whisper, and to the server over its line receiver. All
requests carry `now`, so that all three answer for the same moment.
"""

import io
import json
import pickle
import re
import time

import msgpack
import pytest

import wire
import whisper_files
from graphite_web import GraphiteWeb
from plumbago import QUIET, Plumbago, eventually

# Intended differences from graphite-web over whisper. docs/differences.md lists them for users; a test names the row it uses.
DIFFERENCES = {
    "intervals": "find says a leaf covers all time: whisper's answer is the age and mtime of a file, and the server has no files",
    "functions": "graphite-web 1.1.10 fails on Python 3.11 at /functions (inspect.getargspec is gone), the server answers",
    "missing-arguments": "missing or extra arguments are 500 in graphite-web, with a stack trace; the server says 400 and which",
    "derivative-of-null-with-maximum": "nonNegativeDerivative and perSecond with maxValue fail at a null in 1.1.10 (500), not in master, not here",
    "max-data-points-0": "maxDataPoints=0 divides by zero in graphite-web (500); the server refuses it (400)",
    "empty-alternative": "to `a.{,b}` graphite-web also finds a branch named `a.`, since a folder joined with nothing is that folder",
    "third-archive": "whisper averages averages: its third archive is exact only up to rounding, and only where no point is missing",
}

RULES = [
    # pattern, retentions, xFilesFactor, method. These four are the same in every archive when xFilesFactor is 0, also in
    # the slot that is not over.
    (r"\.sum$", "10s:2h,60s:1d,600s:30d", 0.0, "sum"),
    (r"\.max$", "10s:2h,60s:1d,600s:30d", 0.0, "max"),
    (r"\.min$", "10s:2h,60s:1d,600s:30d", 0.0, "min"),
    (r"\.last$", "10s:2h,60s:1d,600s:30d", 0.0, "last"),
    (r"\.minutely$", "60s:2d", 0.5, "average"),
    (r".*", "10s:2h,60s:1d,600s:30d", 0.5, "average"),
]

HOUR = 3600
SECOND_ARCHIVE = 24 * HOUR


def rule_of(name):
    return next(rule for rule in RULES if re.search(rule[0], name))


def configuration():
    schemas, aggregation = [], []
    for i, (pattern, retentions, x_files_factor, method) in enumerate(RULES):
        schemas.append(f"[rule{i}]\npattern = {pattern}\nretentions = {retentions}\n")
        aggregation.append(
            f"[rule{i}]\npattern = {pattern}\nxFilesFactor = {x_files_factor}\naggregationMethod = {method}\n"
        )
    settings = QUIET + "[http]\njsonp = true\n"
    return {"schemas": "\n".join(schemas), "aggregation": "\n".join(aggregation), "settings": settings}


def points_of_the_oracle(now):
    """{name: [(time, value) in order of arrival]}. Values are eighths, so that sums and means are exact in any order."""
    recent = range((now - 7000) // 600 * 600 + 600, now - 20, 10)
    older = range((now - 20 * HOUR) // 600 * 600, (now - 3 * HOUR) // 600 * 600, 60)
    metrics = {}

    def wave(seed, times):
        return [(t, ((t // 10 * seed * 7919) % 1601 - 400) / 8) for t in times]

    for i, host in enumerate(["web1", "web2", "web3", "web4", "db1"], start=1):
        metrics[f"servers.{host}.cpu.user"] = wave(i, older) + wave(i, recent)
        metrics[f"servers.{host}.cpu.system"] = wave(i + 10, recent)
        # A counter with a few resets.
        metrics[f"servers.{host}.net.bytes"] = [(t, float((t - recent[0]) * i % 5000)) for t in recent]
    # Holes: single ones, long ones, and a series that ends early.
    metrics["holes.single"] = [p for p in wave(21, recent) if p[0] // 10 % 4]
    metrics["holes.long"] = [p for p in wave(22, recent) if p[0] // 600 % 2]
    metrics["holes.early"] = [p for p in wave(23, recent) if p[0] < now - 2 * 1200]
    # Overwritten, and late in random-looking order.
    rewritten = wave(24, recent)
    metrics["order.overwritten"] = (
        rewritten + [(t, v + 1) for t, v in rewritten[::3]] + [(t + 3, v) for t, v in rewritten[::7]]
    )
    metrics["order.late"] = sorted(wave(25, recent), key=lambda p: p[0] * 7919 % 10007)
    metrics["order.backfilled"] = wave(26, recent) + list(reversed(wave(26, older)))
    for method in ["sum", "max", "min", "last"]:
        metrics[f"methods.{method}"] = wave(27, older) + wave(27, recent)
    metrics["coarse.minutely"] = wave(28, range(recent[0], now - 20, 60))
    metrics["constant.zero"] = [(t, 0.0) for t in recent]
    metrics["constant.huge"] = [(t, 1e18) for t in recent]
    metrics["constant.tiny"] = [(t, 1e-9) for t in recent]
    metrics["constant.third"] = [(t, (t % 97) / 3) for t in recent]
    # A name that is a metric and a directory, and names with unusual characters.
    metrics["servers.web1"] = wave(29, recent)
    for part in ["a-b_c", "a:b", "a=b", "a+b", "a%20b", "a@b", "a~b", "é"]:
        metrics[f"weird.{part}.x"] = wave(30, recent[-20:])
    return metrics


class Triangle:
    """The three programs, and the `now` of all requests."""

    def __init__(self, folder, database):
        self.now = int(time.time())
        metrics = points_of_the_oracle(self.now)
        files = folder / "whisper"
        for name, points in metrics.items():
            _, retentions, x_files_factor, method = rule_of(name)
            path = whisper_files.create(files, name, retentions, x_files_factor, method)
            whisper_files.write(path, points, self.now)
        self.server = Plumbago(folder / "plumbago", **configuration()).start()
        self.over_files = GraphiteWeb(folder / "over-files", database, whisper=files).start()
        remote = f"127.0.0.1:{self.server.ports['http']}"
        self.over_server = GraphiteWeb(folder / "over-server", database, remotes=[remote]).start()
        for name, points in metrics.items():
            self.server.send_bytes(wire.lines((name, t, v) for t, v in points))
        eventually(lambda: self.server.get("/metrics/index.json").json(), sorted(metrics))

    def stop(self):
        for one in [self.over_files, self.over_server, self.server]:
            one.stop()

    def ask(self, path, parameters):
        """The answers of the three to one request: whisper's graphite-web first, then by remote, then the server's own."""
        return [one.get(path, parameters) for one in [self.over_files, self.over_server]] + [
            self.server.get(path, **dict(_grouped(parameters)))
        ]


def _grouped(parameters):
    """A list of pairs as {key: value or values}."""
    grouped = {}
    for key, value in parameters:
        grouped.setdefault(key, []).append(value)
    return grouped


@pytest.fixture(scope="module")
def triangle(tmp_path_factory, graphite_database):
    triangle = Triangle(tmp_path_factory.mktemp("oracle"), graphite_database)
    yield triangle
    triangle.stop()


class AnyClass(pickle.Unpickler):
    """graphite-web pickles IntervalSet objects, which cannot be imported without its settings."""

    class Opaque:
        def __init__(self, *_):
            pass

        def __setstate__(self, _):
            pass

    def find_class(self, module, name):
        return self.Opaque


def content_type(answer):
    return answer.headers.get("Content-Type")


# Find.

QUERIES = [
    "*",
    "servers.*",
    "servers.*.*",
    "servers.*.cpu.user",
    "servers.web[12].cpu.*",
    "servers.web[!1].cpu",
    "servers.web[1-3].cpu.*",
    "servers.web{1,3}.cpu.*",
    "servers.{web{1,2},db1}.cpu.user",
    "servers.{web,db}?.cpu.user",
    "servers.w?b1.net",
    "servers.**.user",
    "**.user",
    "servers.web1",
    "servers.web1.*",
    "servers.web1.cpu.user",
    "servers.web1.cpu.user.deeper",
    "servers.*1",
    "*.*",
    "SERVERS.*",
    "nothing.here.*",
    "nothing",
    "weird.*",
    "weird.*.x",
    "weird.a+b.*",
    "weird.é.*",
    "holes.{single,long}",
    "holes.[a-z]*",
]


def decoded_find(answer, form):
    """A find answer without allowed differences: order where graphite-web's is random, and DIFFERENCES["intervals"]."""
    assert answer.status_code == 200, answer.text
    if form == "pickle":
        nodes = AnyClass(io.BytesIO(answer.content)).load()
    elif form == "msgpack":
        nodes = msgpack.unpackb(answer.content, strict_map_key=False)
    else:
        nodes = answer.json()
    if form == "completer":
        nodes = sorted(nodes["metrics"], key=lambda node: (node.get("path", ""), node.get("is_leaf", "")))
    elif form in ("pickle", "msgpack", "json"):
        nodes = sorted(
            ({"path": node["path"], "is_leaf": node["is_leaf"], "has intervals": "intervals" in node} for node in nodes),
            key=lambda node: (node["path"], node["is_leaf"]),
        )
    return nodes


@pytest.mark.parametrize("form", ["treejson", "completer", "json", "pickle", "msgpack"])
@pytest.mark.parametrize("query", QUERIES)
def test_find(triangle, form, query):
    over_files, over_server, itself = triangle.ask("/metrics/find", [("query", query), ("format", form)])
    expected = decoded_find(over_files, form)
    assert decoded_find(itself, form) == expected
    assert decoded_find(over_server, form) == expected
    assert content_type(itself) == content_type(over_files)


@pytest.mark.parametrize("query", ["servers.*", "servers.*.cpu.user", "nothing.*", "servers.web1"])
@pytest.mark.parametrize(
    "more",
    [
        [("wildcards", 1)],
        [("format", "completer"), ("wildcards", 1)],
        [("leavesOnly", 1)],
        [("format", "nodelist"), ("position", 1)],
        [("format", "nodelist"), ("position", -1)],
        [("jsonp", "callback")],
        [("pretty", 1)],
    ],
    ids=lambda more: "&".join(f"{k}={v}" for k, v in more),
)
def test_find_with_options(triangle, query, more):
    over_files, over_server, itself = triangle.ask("/metrics/find", [("query", query), *more])
    assert itself.status_code == over_files.status_code
    if ("format", "completer") in more:
        assert decoded_find(itself, "completer") == decoded_find(over_files, "completer")
    else:
        assert itself.text == over_files.text
        assert over_server.text == over_files.text
    assert content_type(itself) == content_type(over_files)


@pytest.mark.parametrize(
    "parameters",
    [
        [],
        [("query", "")],
        [("query", "*"), ("format", "nonsense")],
        [("query", "*"), ("wildcards", "x")],
        [("query", "*"), ("from", "nonsense")],
    ],
    ids=str,
)
def test_find_rejects_what_graphite_web_rejects(triangle, parameters):
    over_files, _, itself = triangle.ask("/metrics/find", parameters)
    assert itself.status_code == over_files.status_code == 400


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("leaves_only", [0, 1])
def test_expand(triangle, query, leaves_only):
    over_files, over_server, itself = triangle.ask("/metrics/expand", [("query", query), ("leavesOnly", leaves_only)])
    assert itself.json() == over_files.json()
    assert over_server.json() == over_files.json()
    assert content_type(itself) == content_type(over_files)


def test_expand_groups_by_expression(triangle):
    question = [("query", "servers.*.cpu"), ("query", "holes.*"), ("query", "nothing.*"), ("groupByExpr", 1)]
    over_files, over_server, itself = triangle.ask("/metrics/expand", question)
    assert itself.json() == over_files.json() == over_server.json()


def test_index(triangle):
    over_files, over_server, itself = triangle.ask("/metrics/index.json", [])
    assert itself.json() == over_files.json()
    assert over_server.json() == over_files.json()
    assert content_type(itself) == content_type(over_files)


def test_version(triangle):
    over_files, _, itself = triangle.ask("/version", [])
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", itself.text)
    assert content_type(itself) == content_type(over_files)


# Render: windows and formats.

WINDOWS = [
    # (from, until) in seconds before now; they choose each archive, and fall between points.
    (600, 0),
    (1800, 0),
    (1800, 600),
    (1805, 603),
    (15, 5),
    (10, 0),
    (7199, 0),
    (7200, 0),
    (7201, 0),
    (5 * HOUR, 0),
    (5 * HOUR + 7, 2 * HOUR + 13),
    (86399, 0),
    (24 * HOUR, 12 * HOUR),
    (3 * 24 * HOUR, 0),
    (31 * 24 * HOUR, 0),
    (60 * 24 * HOUR, 40 * 24 * HOUR),
    (-600, -1200),
    (600, -600),
]

STORED = ["servers.*.cpu.user", "holes.*", "order.*", "methods.*", "coarse.*", "constant.*", "servers.web1"]


def series_of(answer):
    """A pickled render as comparable values, NaN never among them."""
    assert answer.status_code == 200, answer.text
    return pickle.loads(answer.content)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("pattern", STORED)
def test_stored_points_are_the_same(triangle, pattern, window):
    start, until = (triangle.now - seconds for seconds in window)
    question = [("target", pattern), ("from", start), ("until", until), ("now", triangle.now), ("format", "pickle")]
    over_files, over_server, itself = triangle.ask("/render", question)
    expected = series_of(over_files)
    assert series_of(over_server) == series_of(itself)
    if window[0] <= SECOND_ARCHIVE:
        assert series_of(itself) == expected
    elif pattern != "holes.*":
        # DIFFERENCES["third-archive"]: up to rounding, and without the current ten minutes.
        served = series_of(itself)
        assert [one | {"values": None} for one in served] == [one | {"values": None} for one in expected]
        for ours, theirs in zip(served, expected):
            assert ours["values"][:-2] == pytest.approx(theirs["values"][:-2], rel=1e-12)


def test_an_unaggregated_hour_is_not_empty(triangle):
    """Guards the tests above: three empty answers would agree too."""
    question = [("target", "servers.*.cpu.user"), ("from", "-1h"), ("now", triangle.now), ("format", "pickle")]
    for answer in triangle.ask("/render", question):
        series = series_of(answer)
        assert len(series) == 5
        assert all(sum(value is not None for value in one["values"]) > 300 for one in series)


FORMATS = [
    [("format", "json")],
    [("format", "json"), ("maxDataPoints", 10)],
    [("format", "json"), ("maxDataPoints", 1)],
    [("format", "json"), ("maxDataPoints", 7)],
    [("format", "json"), ("maxDataPoints", 100000)],
    [("format", "json"), ("maxDataPoints", "-5")],
    [("format", "json"), ("noNullPoints", "true")],
    [("format", "json"), ("noNullPoints", "1"), ("maxDataPoints", 20)],
    [("format", "json"), ("jsonp", "callback")],
    [("format", "json"), ("pretty", 1)],
    [("format", "raw")],
    [("rawData", "true")],
    [("format", "csv")],
    [("format", "csv"), ("tz", "Europe/Vienna")],
    [("format", "csv"), ("tz", "Nowhere/Here")],
    [("format", "pickle")],
    [("format", "msgpack")],
    [("format", "dygraph")],
    [("format", "rickshaw")],
]


def decoded_render(answer, form):
    assert answer.status_code == 200, answer.text
    if form == "pickle":
        return pickle.loads(answer.content)
    if form == "msgpack":
        return msgpack.unpackb(answer.content)
    return answer.text


def form_of(options):
    return dict(options).get("format", "raw")


@pytest.mark.parametrize("options", FORMATS, ids=lambda options: "&".join(f"{k}={v}" for k, v in options))
@pytest.mark.parametrize("target", ["servers.*.cpu.user", "holes.early", "constant.*", "nothing.*"])
def test_formats(triangle, target, options):
    question = [("target", target), ("from", "-20min"), ("until", "now"), ("now", triangle.now), *options]
    over_files, over_server, itself = triangle.ask("/render", question)
    form = form_of(options)
    expected = decoded_render(over_files, form)
    assert decoded_render(itself, form) == expected
    assert decoded_render(over_server, form) == expected
    assert content_type(itself) == content_type(over_files)


def test_several_targets_are_answered_in_order(triangle):
    targets = ["holes.single", "servers.web2.cpu.user", "nothing.*", "holes.single", "servers.web1.cpu.*"]
    question = [*(("target", t) for t in targets), ("from", "-10min"), ("now", triangle.now), ("format", "json")]
    over_files, over_server, itself = triangle.ask("/render", question)
    assert itself.json() == over_files.json() == over_server.json()


def test_the_parameter_target_with_brackets_is_a_target(triangle):
    question = [("target[]", "holes.single"), ("target[]", "holes.long"), ("from", "-10min"), ("now", triangle.now)]
    over_files, over_server, itself = triangle.ask("/render", [*question, ("format", "json")])
    assert itself.json() == over_files.json() == over_server.json()
    assert len(itself.json()) == 2


TIMES = [
    ("-1h", "now"),
    ("-90min", "-30min"),
    ("-1h30min", ""),
    ("now-20min", "now"),
    ("-3600s", "-60s"),
    ("-1d", "-23h"),
    ("-1w", "now"),
    ("-1mon", "now"),
    ("-1y", "now"),
    ("midnight", "now"),
    ("today", "now"),
    ("yesterday", "today"),
    ("noon yesterday", "now"),
    ("00:00_yesterday", "now"),
    ("6pm_yesterday", "now"),
    ("teatime_yesterday", "midnight"),
    ("monday", "now"),
    ("midnight-2h", "midnight+1h"),
    ("until", "now"),
    ("-5m", "now"),
    ("1h", "now"),
    ("now", "now"),
]


@pytest.mark.parametrize("start, until", TIMES)
def test_time_grammar(triangle, start, until):
    # A window may choose any archive: RULES says why a sum.
    question = [("target", "methods.sum"), ("from", start), ("until", until), ("now", triangle.now)]
    over_files, over_server, itself = triangle.ask("/render", [*question, ("format", "raw")])
    assert itself.status_code == over_files.status_code == over_server.status_code
    if over_files.status_code == 200:
        assert itself.text == over_files.text == over_server.text


@pytest.mark.parametrize("zone", ["UTC", "Europe/Vienna", "America/St_Johns", "Asia/Kathmandu"])
@pytest.mark.parametrize("start", ["midnight", "noon yesterday", "06:30 today"])
def test_time_grammar_in_a_zone(triangle, zone, start):
    question = [("target", "methods.sum"), ("from", start), ("tz", zone), ("now", triangle.now)]
    over_files, over_server, itself = triangle.ask("/render", [*question, ("format", "csv")])
    assert itself.text == over_files.text == over_server.text


# As a remote in other settings.


@pytest.mark.parametrize(
    "remote, settings",
    [
        ("127.0.0.1:{port}", "REMOTE_STORE_USE_POST = True\n"),
        ("http://127.0.0.1:{port}?local=0", ""),
        ("127.0.0.1:{port}", "REMOTE_STORE_MERGE_RESULTS = False\n"),
    ],
)
def test_a_remote_in_other_settings(triangle, tmp_path, graphite_database, remote, settings):
    remote = remote.format(port=triangle.server.ports["http"])
    web = GraphiteWeb(tmp_path / "web", graphite_database, remotes=[remote], more=settings).start()
    try:
        questions = [
            ("/metrics/find", [("query", "servers.*.cpu.*"), ("format", "json")]),
            ("/metrics/find", [("query", "nothing.*"), ("format", "json")]),
            ("/metrics/expand", [("query", "servers.*.*")]),
            ("/metrics/index.json", []),
            ("/render", [("target", "sumSeries(servers.*.cpu.user)"), ("target", "nothing.*"), ("target", "holes.*")]),
            ("/render", [("target", "movingAverage(holes.*,'5min')"), ("target", "timeShift(servers.web1.cpu.user,'1h')")]),
            ("/render", [("target", "nothing.at.all")]),
        ]
        for path, question in questions:
            if path == "/render":
                question = [*question, ("from", "-20min"), ("now", triangle.now), ("format", "json")]
            expected = triangle.over_files.get(path, question)
            answer = web.get(path, question)
            if ("format", "json") in question and path == "/metrics/find":
                assert decoded_find(answer, "json") == decoded_find(expected, "json")
            else:
                assert answer.text == expected.text
    finally:
        web.stop()


# Render: functions.

TARGETS = [
    "sumSeries(servers.*.cpu.user)",
    "sum(servers.*.cpu.{user,system})",
    "sumSeries(servers.web1.cpu.user,servers.web2.cpu.system)",
    "averageSeries(holes.*)",
    "avg(servers.web[1-3].cpu.user)",
    "maxSeries(servers.*.cpu.user)",
    "minSeries(holes.*)",
    "countSeries(servers.*.cpu.*)",
    "diffSeries(servers.web1.cpu.user,servers.web2.cpu.user)",
    "divideSeries(servers.*.cpu.user,servers.web1.cpu.user)",
    "alias(servers.web1.cpu.user,'a name with spaces, and more')",
    'alias(sumSeries(holes.*),"double")',
    "aliasByNode(servers.*.cpu.user,1)",
    "aliasByNode(servers.*.cpu.user,1,-1)",
    "aliasByNode(scale(servers.*.cpu.user,2),1,3)",
    r"aliasSub(servers.*.cpu.user,'^.*\.(web\d|db\d)\..*$','\1 A')",
    r'aliasSub(sumSeries(servers.*.cpu.user), "(^.*$)", "\1 A")',
    "groupByNode(servers.*.cpu.*,3,'sum')",
    "groupByNode(servers.*.cpu.*,1,'averageSeries')",
    "groupByNodes(servers.*.cpu.*,'max',1,3)",
    "scale(servers.web1.cpu.user,0.125)",
    "scale(servers.*.cpu.user,3)",
    "offset(servers.web1.cpu.user,-10)",
    "derivative(servers.*.net.bytes)",
    "nonNegativeDerivative(servers.*.net.bytes)",
    "perSecond(servers.*.net.bytes)",
    "keepLastValue(holes.*)",
    "keepLastValue(holes.*,2)",
    "summarize(servers.web1.cpu.user,'5min')",
    "summarize(servers.*.cpu.user,'5min','avg',true)",
    "summarize(holes.*,'1min','max')",
    "movingAverage(servers.web1.cpu.user,10)",
    "movingAverage(holes.*,'2min')",
    "movingMedian(servers.web1.cpu.user,5)",
    "movingMedian(holes.single,'1min')",
    "timeShift(servers.web1.cpu.user,'10min')",
    "timeShift(servers.web1.cpu.user,'-1h')",
    "asPercent(servers.*.cpu.user,servers.web1.cpu.user)",
    "asPercent(servers.*.net.bytes)",
    "asPercent(servers.*.net.bytes,1500)",
    "highestAverage(servers.*.cpu.user,2)",
    "highestCurrent(servers.*.net.bytes,3)",
    "sortByMaxima(servers.*.cpu.user)",
    "limit(servers.*.cpu.user,2)",
    "exclude(servers.*.cpu.user,'web[12]')",
    "grep(servers.*.cpu.user,'db')",
    "consolidateBy(servers.web1.cpu.user,'max')",
    "constantLine(100)",
    "constantLine(12.5)",
    "threshold(50,'limit','red')",
    "transformNull(holes.*,-1)",
    "transformNull(holes.early)",
    "removeEmptySeries(holes.*)",
    "removeEmptySeries(nothing.*)",
    "integral(servers.web1.net.bytes)",
    "integral(holes.*)",
    "percentileOfSeries(servers.*.cpu.user,90)",
    "percentileOfSeries(servers.*.cpu.user,50,true)",
    "servers.web1.cpu.user|scale(2)|alias('piped')",
    "sumSeries(coarse.minutely,servers.web1.cpu.user)",
    "alias(sumSeries(scale(offset(nonNegativeDerivative(servers.*.net.bytes),1),0.5)),'deep')",
    "sumSeries(nothing.*)",
    "weird.{a-b_c,a:b,a+b}.x",
    "weird.a=b.x",
    "servers.web1",
]


def comparable(text):
    """JSON with graphite-web's 1e9999 as an infinity."""
    return json.loads(text)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("options", [[], [("maxDataPoints", 25)]], ids=["all", "maxDataPoints"])
def test_functions(triangle, target, options):
    question = [("target", target), ("from", "-30min"), ("now", triangle.now), ("format", "json"), *options]
    over_files, over_server, itself = triangle.ask("/render", question)
    assert over_files.status_code == 200
    expected = comparable(over_files.text)
    assert comparable(itself.text) == expected
    assert comparable(over_server.text) == expected


@pytest.mark.parametrize("target", TARGETS)
def test_functions_over_the_coarse_archive(triangle, target):
    question = [("target", target), ("from", "-18h"), ("until", "-4h"), ("now", triangle.now), ("format", "raw")]
    over_files, over_server, itself = triangle.ask("/render", question)
    assert over_files.status_code == 200
    assert itself.text == over_files.text
    assert over_server.text == over_files.text


@pytest.mark.parametrize(
    "target",
    ["sumSeries(servers.*.cpu.user", "scale(servers.web1.cpu.user,2))", "servers.web1.cpu.user and more", " "],
)
def test_unusual_targets_are_read_as_graphite_web_reads_them(triangle, target):
    question = [("target", target), ("from", "-10min"), ("now", triangle.now), ("format", "json")]
    over_files, over_server, itself = triangle.ask("/render", question)
    assert (itself.status_code, itself.text) == (over_files.status_code, over_files.text)
    assert over_server.text == over_files.text


@pytest.mark.parametrize(
    "parameters",
    [
        [("target", "noSuchFunction(servers.*)")],
        [("target", "servers.web1.cpu.user"), ("from", "now"), ("until", "now")],
        [("target", "servers.web1.cpu.user"), ("from", "nonsense")],
        [("target", "servers.web1.cpu.user"), ("xFilesFactor", "x")],
    ],
    ids=str,
)
def test_render_rejects_what_graphite_web_rejects(triangle, parameters):
    over_files, _, itself = triangle.ask("/render", [*parameters, ("now", triangle.now), ("format", "json")])
    assert itself.status_code == over_files.status_code == 400


def test_graphite_web_never_disabled_the_server(triangle):
    """After all tests above: graphite-web disables a remote that fails, for a minute in its default settings."""
    triangle.over_server.get("/metrics/find", [("query", "nothing.*")])
    blame = [
        line
        for line in triangle.over_server.logs().splitlines()
        if re.search("disabl|failed|timed out|HTTP error", line, re.I)
    ]
    assert blame == []


# Intended differences: a test fails when one no longer exists; then its row goes.


def test_difference_intervals(triangle):
    question = [("query", "servers.web1.cpu.user"), ("format", "json")]
    over_files, _, itself = triangle.ask("/metrics/find", question)
    assert over_files.json()[0]["intervals"] != itself.json()[0]["intervals"], DIFFERENCES["intervals"]


def test_difference_functions(triangle):
    over_files, _, itself = triangle.ask("/functions", [])
    assert over_files.status_code == 500, DIFFERENCES["functions"]
    assert itself.json()["sumSeries"]["group"] == "Combine"


@pytest.mark.parametrize("target", ["scale(servers.web1.cpu.user)", "limit()", "scale(servers.web1.cpu.user,1,2,3)"])
def test_difference_missing_arguments(triangle, target):
    over_files, _, itself = triangle.ask("/render", [("target", target), ("now", triangle.now), ("format", "json")])
    assert (over_files.status_code, itself.status_code) == (500, 400), DIFFERENCES["missing-arguments"]


@pytest.mark.parametrize("function", ["nonNegativeDerivative", "perSecond"])
def test_difference_derivative_of_null_with_maximum(triangle, function):
    question = [("target", f"{function}(holes.single,5000)"), ("from", "-10min"), ("now", triangle.now), ("format", "json")]
    over_files, _, itself = triangle.ask("/render", question)
    assert (over_files.status_code, itself.status_code) == (500, 200), DIFFERENCES["derivative-of-null-with-maximum"]


def test_difference_max_data_points_0(triangle):
    question = [("target", "holes.*"), ("maxDataPoints", 0), ("now", triangle.now), ("format", "json")]
    over_files, _, itself = triangle.ask("/render", question)
    assert (over_files.status_code, itself.status_code) == (500, 400), DIFFERENCES["max-data-points-0"]


def test_difference_empty_alternative(triangle):
    over_files, _, itself = triangle.ask("/metrics/expand", [("query", "holes.{,single}")])
    assert over_files.json()["results"] == ["holes.", "holes.single"], DIFFERENCES["empty-alternative"]
    assert itself.json()["results"] == ["holes.single"]


def test_difference_third_archive(triangle):
    question = [("target", "holes.single"), ("from", "-3d"), ("now", triangle.now), ("format", "json")]
    over_files, _, itself = triangle.ask("/render", question)
    assert itself.json() != over_files.json(), DIFFERENCES["third-archive"]
