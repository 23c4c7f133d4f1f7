"""Records what graphite-web 1.1.10 answers, for tests/functions.rs and tests/grammar.rs to replay.

    tests/install-peers
    tests/.cache/venv/bin/python crates/render/tests/record.py

Targets are evaluated by graphite-web's own evaluateTarget over the metrics below, which a stub hands out as
whisper would. Needs CPython 3.11: from 3.12 on sum() compensates, and the last digits differ.

A file of functions/ holds, in lines of words divided by tabs:

    metric NAME STEP START VALUE...     a metric; whisper's window rule cuts it
    fixed  NAME STEP START VALUE...     one that is returned whole, whatever is asked for
    case   FROM UNTIL KEY=VALUE...      a request; zone, xff, now, and template.NAME
    target TEXT
    fetch  FROM UNTIL PATH NAME...      what graphite-web asked its store for, and what it got
    series NAME PATH START END STEP FUNC XFF
    tags   NAME=VALUE...
    values VALUE...                     by Python's repr
    error  STATUS MESSAGE

A backslash, tab, newline, carriage return or NUL in a word is written with a backslash.
"""

import datetime
import fnmatch
import itertools
import json
import os
import random
import sys
import time

assert sys.version_info[:2] == (3, 11), "sum() of later versions differs in the last digits"

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tests"))
import graphite_web

graphite_web.start()
import pytz
from graphite.errors import InputParameterError
from graphite.render import datalib, evaluator
from graphite.render.attime import parseATTime, parseTimeOffset
from graphite.render.grammar import grammar
from graphite.render.views import renderViewJson

HERE = os.path.dirname(os.path.abspath(__file__))
INF = float("inf")


# ---- the stub store --------------------------------------------------------------------------------


class Metric:
    def __init__(self, name, step, start, values, fixed=False):
        self.name, self.step, self.start, self.values, self.fixed = name, step, start, values, fixed

    def window(self, start, until):
        """(from, until], as whisper has it."""
        if self.fixed:
            return (self.start, self.start + self.step * len(self.values), self.step), list(self.values)
        first = start - start % self.step + self.step
        end = until - until % self.step + self.step
        if first == end:
            end += self.step
        values = []
        for time in range(first, end, self.step):
            place = (time - self.start) // self.step
            values.append(self.values[place] if 0 <= place < len(self.values) else None)
        return (first, end, self.step), values

    def line(self):
        kind = "fixed" if self.fixed else "metric"
        return [kind, self.name, self.step, self.start] + [repr(v) for v in self.values]


def braces(pattern):
    if "{" not in pattern:
        return [pattern]
    before, rest = pattern.split("{", 1)
    inside, after = rest.split("}", 1)
    return [before + one + tail for one in inside.split(",") for tail in braces(after)]


class Store:
    def __init__(self, metrics):
        self.metrics, self.fetches = metrics, []
        self.tagdb = datalib.STORE.tagdb if not isinstance(datalib.STORE, Store) else datalib.STORE.tagdb

    def match(self, path):
        if path.startswith("seriesByTag("):
            return [metric for metric in self.metrics if ";" in metric.name]
        found = []
        for one in braces(path):
            for metric in self.metrics:
                nodes, wanted = metric.name.split("."), one.split(".")
                if len(nodes) == len(wanted) and all(map(fnmatch.fnmatchcase, nodes, wanted)):
                    found.append(metric)
        return found

    def fetch(self, paths, start, until, now, context):
        for path in sorted(paths):
            metrics = self.match(path)
            key = (start, until, path)
            if all(known[:3] != key for known in self.fetches):
                self.fetches.append(key + tuple(metric.name for metric in metrics))
            for metric in metrics:
                time_info, values = metric.window(start, until)
                yield {"pathExpression": path, "path": metric.name, "name": metric.name, "time_info": time_info, "values": values}


# ---- recording -------------------------------------------------------------------------------------


def context(start, until, zone="UTC", xff=0, now=None, template=None):
    tz = pytz.timezone(zone)
    at = lambda time: datetime.datetime.fromtimestamp(time, tz)
    return {
        "startTime": at(start), "endTime": at(until), "now": at(now or until), "localOnly": True,
        "template": template or {}, "tzinfo": tz, "forwardHeaders": {}, "sourceIdHeaders": {}, "data": [],
        "prefetched": {}, "xFilesFactor": xff, "maxDataPoints": None, "targets": [], "maxStep": None,
    }


def record(metrics, target, start, until, **request):
    store = Store(metrics)
    datalib.STORE = store
    import graphite.render.functions as functions
    functions.STORE = store
    template = {key[9:]: value for key, value in request.items() if key.startswith("template.")}
    others = {key: value for key, value in request.items() if not key.startswith("template.")}
    # timeShift asks the process for its zone, not the request.
    os.environ["TZ"] = request.get("zone", "UTC")
    time.tzset()
    lines = [["case", start, until] + ["%s=%s" % pair for pair in sorted(request.items())], ["target", target]]
    answer = []
    try:
        for series in evaluator.evaluateTarget(context(start, until, template=template, **others), [target]):
            values = list(series)
            answer.append(["series", series.name, series.pathExpression, series.start, series.end, int(series.step),
                           series.consolidationFunc, repr(float(series.xFilesFactor))])
            answer.append(["tags"] + ["%s=%s" % pair for pair in dict(series.tags).items()])
            answer.append(["values"] + [repr(value) for value in values])
    except InputParameterError as error:
        answer = [["error", 400, str(error).replace("\n", " ").replace("\t", " ")]]
    except Exception as error:
        answer = [["error", 500, type(error).__name__]]
    lines += [["fetch", *fetch] for fetch in store.fetches]
    return lines + answer


def escaped(word):
    return str(word).replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0")


def write(name, heading, lines):
    with open(os.path.join(HERE, name), "w") as out:
        out.write("# %s Recorded by record.py; do not edit.\n" % heading)
        for line in lines:
            if line and line[0] == "case":
                out.write("\n")
            out.write("\t".join(map(escaped, line)) + "\n")


# ---- the metrics -----------------------------------------------------------------------------------

chance = random.Random(20260121)
N = None


def metric(name, *values, step=60, start=60):
    return Metric(name, step, start, list(values))


def walk(count, nulls=0.0):
    value, values = 50.0, []
    for _ in range(count):
        value += chance.gauss(0, 3)
        values.append(None if chance.random() < nulls else value)
    return values


def noise(count):
    return [chance.choice([-1, 1]) * chance.random() * 10.0 ** chance.randint(-6, 9) for _ in range(count)]


METRICS = [
    metric("a.one", *[float(i) for i in range(1, 41)]),
    metric("a.two", *[N if i % 3 == 0 else i * 0.5 for i in range(40)]),
    metric("a.three", *[[1.5, -2.25, N, 0.0, -0.0, 1e300, 5e-324, 0.1][i % 8] for i in range(40)]),
    metric("a.four", *[[N, N, 7.0, N][i % 4] for i in range(40)]),
    metric("inf.up", *[[INF, 1.0, 2.0][i % 3] for i in range(40)]),
    metric("inf.down", *[[3.0, -INF, N][i % 3] for i in range(40)]),
    metric("empty.all", *[N] * 40),
    metric("slow.one", *[float(i * i) for i in range(8)], step=300, start=300),
    metric("slow.two", *[N, 2.0, N, 4.0, 5.5, N, N, 8.0], step=300, start=300),
    metric("odd.one", *[i * 1.1 for i in range(27)], step=90, start=90),
    metric("zero.one", *[[0.0, 1.0, N, -0.0][i % 4] for i in range(40)]),
    metric("counter.up", *[float(i * i) for i in range(40)]),
    metric("counter.reset", *[[10.0, 20.0, 35.0, 3.0, 5.0, N, 9.0, 11.0][i % 8] for i in range(40)]),
    metric("counter.gap", *[N if i in (3, 4, 9) else float(i * 7 % 100) for i in range(40)]),
    metric("counter.wrap", *[float((i * 13 + i * i) % 97) for i in range(40)]),
    metric("neg.one", *[float(-i) for i in range(40)]),
    metric("disk.used;dc=x;host=h1", *walk(40)),
    metric("disk.used;dc=x;host=h2", *walk(40, 0.2)),
    metric("disk.used;dc=y;host=h3", *walk(40, 0.5)),
    Metric("fix.single", 60, 600, [5.0], fixed=True),
    Metric("fix.none", 60, 600, [], fixed=True),
    Metric("fix.late", 60, 900, [1.0, 2.0, 3.0, 4.0], fixed=True),
    Metric("fix.early", 60, 300, [10.0, N, 30.0], fixed=True),
    Metric("fix.coarse", 240, 240, [1.0, 2.0, 3.0, 4.0, 5.0], fixed=True),
    Metric("fix.off", 60, 617, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], fixed=True),
    metric("gap.five", *[float(i + 1) if i % 5 == 2 else N for i in range(40)]),
    metric("gap.three", *[float(i % 7) if i % 3 == 0 else N for i in range(40)]),
    metric("gap.odd", *[float(i) if i in (11, 13, 15, 22, 23) else N for i in range(40)]),
    metric("late.one", *[float(i % 11) for i in range(1200)], step=300, start=1768953600 - 86400),
    metric("late.odd", *[N if i % 4 == 1 else i * 0.25 for i in range(600)], step=420, start=1768953600 - 86100),
    metric("late.day", *[float(i) for i in range(40)], step=86400, start=1768953600 - 86400 * 30),
    *[metric("r.s%02d" % i, *walk(40, 0.15)) for i in range(9)],
    *[metric("n.s%d" % i, *noise(40)) for i in range(5)],
    *[
        metric("servers.%s.%s.%s" % (server, part, kind), *walk(40, 0.1))
        for server in ("s1", "s2", "s10") for part in ("cpu", "mem") for kind in ("user", "system")
    ],
]

SPAN = (600, 1500)


def cases(*targets, start=SPAN[0], until=SPAN[1], **request):
    return [(target, start, until, request) for target in targets]


ONE_LIST = ["a.*", "a.one", "r.*", "n.*", "{a,inf,empty}.*", "empty.all", "nothing.here", "fix.single", "fix.none",
            "group(a.one,slow.one)", "{a,slow,odd}.*", "fix.*", "group(fix.none,a.one)", "zero.one",
            "seriesByTag('name=disk.used')", "inf.*", "group(a.one,slow.one,odd.one)", "fix.{late,early,coarse}"]


def over(*patterns, lists=ONE_LIST):
    return [pattern % one for pattern in patterns for one in lists]


FUNCTIONS = {}

FUNCTIONS["combine"] = cases(
    *over("sumSeries(%s)", "averageSeries(%s)", "maxSeries(%s)", "minSeries(%s)", "countSeries(%s)", "diffSeries(%s)",
          "multiplySeries(%s)", "stddevSeries(%s)", "rangeOfSeries(%s)"),
    "sum(a.one)", "avg(a.one,a.two)", "sumSeries()", "countSeries()", "diffSeries()", "averageSeries()", "group()",
    "sumSeries(a.one,a.two,a.one)", "sumSeries(a.*,a.one,r.s01)", "diffSeries(a.one,slow.one)", "diffSeries(a.two,a.one,a.three)",
    "sumSeries(sumSeries(a.*),sumSeries(r.*))", "sumSeries(scale(a.*,2),alias(a.one,'x'))", "sumSeries(countSeries(a.*),countSeries(r.*))",
    "maxSeries(countSeries(a.*),a.one)", "averageSeries(countSeries(a.*))", "diffSeries(countSeries(a.*),countSeries(r.*))",
    "sumSeries(5)", "sumSeries('a')", "sumSeries(a.one,5)",
    "multiplySeries(a.one)", "multiplySeries(a.one,a.two)", "multiplySeries(a.one,a.four,r.*)",
    *over("divideSeries(%s,a.one)", "divideSeries(a.one,%s)", "divideSeries(a.*,%s)"),
    "divideSeries(a.*,zero.one)", "divideSeries(slow.*,a.one)", "divideSeries(a.one,nothing)", "divideSeries(a.one)",
    "divideSeries(alias(a.one,'x'),alias(slow.one,'y'))",
    "group(a.one,r.*,a.one)", "group(a.*)",
    *["aggregate(a.*,'%s')" % func for func in ("average", "avg", "avg_zero", "median", "sum", "total", "min", "max", "diff", "stddev",
      "count", "range", "rangeOf", "multiply", "last", "current", "sumSeries", "medianSeries", "nope", "p99")],
    *["aggregate({a,slow,inf}.*,'%s')" % func for func in ("average", "avg_zero", "median", "sum", "min", "max", "diff", "stddev",
      "count", "range", "multiply", "last")],
    *["aggregate(%s,'%s')" % (one, func) for func in ("median", "stddev", "diff", "average", "range", "last") for one in ("r.*", "n.*", "fix.*")],
    "aggregate(a.*,'sum',0.5)", "aggregate(a.*,'sum',0.75)", "aggregate(a.*,'sum',1)", "aggregate(a.*,'sum',xFilesFactor=0.8)",
    "aggregate(nothing,'sum')", "aggregate(a.*)",
) + cases(*over("sumSeries(%s)", "averageSeries(%s)"), xff=0.6) + cases("sumSeries(a.*)", "maxSeries({a,slow}.*)", start=630, until=640) \
  + cases("sumSeries({a,slow,odd}.*)", "diffSeries({a,slow,odd}.*)", start=0, until=2400)

FUNCTIONS["alias"] = cases(
    *over("alias(%s,'new name')", "aliasByMetric(%s)"),
    "alias(a.*,'')", "alias(a.one)", "alias(a.one,'a.(b),\"c')", "aliasByMetric(sumSeries(servers.*.cpu.user))",
    "aliasByMetric(scale(servers.s1.cpu.*,2))", "aliasByMetric(alias(a.one,'x'))", "aliasByMetric(alias(a.one,'a(b(c.d,e.f),g)h.i'))",
    "aliasByMetric(alias(a.one,'a.b,c.d'))", "aliasByMetric(alias(a.one,')a.b('))", "aliasByMetric(alias(a.one,''))",
    r"aliasSub(a.*,'(^.*$)','\1 A')", r'aliasSub(a.*,"(^.*$)","\1 A")', r"aliasSub(servers.*.cpu.user,'^servers\.(\w+)\.(.*)$','\2 of \1')",
    "aliasSub(a.*,'.*','X')", "aliasSub(a.*,'o*','-')", "aliasSub(a.*,'a','')", r"aliasSub(a.*,'(a)|(b)','[\1\2]')",
    r"aliasSub(a.*,'(?P<x>a)','\g<x>\g<1>\g<0>')", r"aliasSub(a.*,'a','\2')", r"aliasSub(a.*,'(','x')", r"aliasSub(a.*,'a','\z')",
    r"aliasSub(a.*,'\.','\n')" , r"aliasSub(a.*,'\.','\\.\.')", "aliasSub(a.*,'(?<!a)\\.','x')", "aliasSub(a.*,'[aeiou]','{\\g<0>}')",
    r"aliasSub(a.*,'[[.]','\t')", r"aliasSub(nothing,'a','b')", "aliasSub(a.one,'a')", r"aliasSub(alias(a.one,'aaaa'),'(a)(a)','\2\1b')",
    r"aliasSub(servers.*.cpu.user,'servers.(?!s1)','!')", r"aliasSub(a.*,'^','\101\0')", r"aliasSub(alias(a.one,'héllo wörld'),'\w+','<\g<0>>')",
    r"aliasSub(a.*,'A','x')", r"aliasSub(a.*,'(?i)A','x')", r"aliasSub(alias(a.one,'a b'),'\s','\\s')", r"aliasSub(a.one,'a{1}','x')", r"aliasSub(a.one,'a{','x')",
    "alias(alias(a.one,'x'),'y')", "sumSeries(alias(a.*,'x'))", "alias(sumSeries(a.*),'total')", "scale(alias(a.*,'x'),2)",
)

FUNCTIONS["node"] = cases(
    *["aliasByNode(%s,%s)" % (one, nodes) for one in ("servers.*.*.*", "sumSeries(servers.*.cpu.user)", "seriesByTag('name=disk.used')",
      "scale(servers.s1.*.user,2)", "alias(servers.s1.cpu.user,'x.y')")
      for nodes in ("0", "1", "-1", "1,3", "1,2,3", "-2,0", "9", "'host'", "'name','dc'", "1,'host'", "-9", "'1'")],
    "aliasByNode(a.*)", "aliasByNode(a.one,0,0,0)", "aliasByNode(nothing,1)", "aliasByNode(alias(a.one,'5)'),0)",
    "aliasByNode(alias(a.one,'sum(a.b,c)'),1)", "aliasByNode(alias(a.one,\"f('x.y')\"),0)", "aliasByNode(alias(a.one,'f(5,a.b)'),0)",
    "aliasByNode(alias(a.one,'a.b;c=d.e'),1)", "aliasByNode(divideSeries(servers.s1.cpu.user,servers.s2.cpu.user),1,3)",
    "aliasByNode(alias(a.one,'f(g(h(i.j.k),2),3)'),-1)", "aliasByNode(alias(a.one,'x.template(y.z)'),0)",
    "aliasByNode(movingAverage(servers.s1.cpu.user,2),1)", "aliasByNode(timeShift(servers.s1.cpu.user,'1min'),1)", "aliasByNode(a.one|scale(2),1)",
    *["groupByNode(servers.*.*.*,%s)" % rest for rest in ("1", "2,'sum'", "3,'sumSeries'", "-1,'averageSeries'", "1,'max'", "2,'median'", "1,'countSeries'",
      "1,'diffSeries'", "1,'multiply'", "1,'avg_zero'", "1,'last'", "9,'sum'", "1,'nope'", "0,'stddev'", "1,'asPercent'", "1,'rangeOf'", "1,'total'",
      "1,'totalSeries'", "1,callback='min'", "nodeNum=1", "2,'multiplySeries'", "1,'count'", "'name','sum'", "1,'averageSeriesWithWildcards2'")],
    *["groupByNodes(servers.*.*.*,%s)" % rest for rest in ("'sum',1", "'sum',1,2", "'average',3,1", "'max'", "'sum',9", "'maxSeries',2,'name'", "'sum',-1,-2")],
    "groupByNode(seriesByTag('name=disk.used'),'dc','sum')", "groupByNodes(seriesByTag('name=disk.used'),'average','dc','host')",
    "groupByNode(seriesByTag('name=disk.used'),0,'sum')", "groupByNode(nothing,1,'sum')", "groupByNodes(servers.*.*.*)",
    "groupByNode({a,slow}.*,0,'sum')", "groupByNode(a.*,0,'multiplySeries')", "groupByNode(a.one,0,'multiplySeries')",
    "aliasByNode(groupByNode(servers.*.*.*,1,'sum'),0)", "groupByNode(scale(servers.*.*.*,2),1,'sum')", "groupByNodes(sumSeries(servers.*.*.*),'sum',1)",
    "groupByNode(a.*,0,'asPercent')",
)

FUNCTIONS["transform"] = cases(
    *over("scale(%s,2)", "scale(%s,0.1)", "offset(%s,1.5)", "absolute(%s)", "invert(%s)", "derivative(%s)", "integral(%s)",
          "nonNegativeDerivative(%s)", "perSecond(%s)", "keepLastValue(%s)", "transformNull(%s,1.5)"),
    *["scale(a.one,%s)" % n for n in ("-1", "1e3", "1234567", "0.00001", "'2'", "inf", "'x'", "none", "true", "1000000", "123456.789", "-0.5")],
    *["offset(a.two,%s)" % n for n in ("-1", "0", "1e-7", "100000", "1000000")], "scale(a.one)", "scale(2,a.one)", "scale(a.one,2,3)", "scale(a.one,factor=3)",
    "scale(seriesList=a.one,factor=3)", "scale(a.one,foo=3)", "offset(countSeries(a.*),1)", "scale(countSeries(a.*),2)", "absolute(countSeries(a.*))",
    "absolute(neg.one)", "derivative(countSeries(a.*))", "integral(countSeries(a.*))",
    *["%s(%s%s)" % (f, one, rest) for f in ("nonNegativeDerivative", "perSecond") for one in ("counter.up", "counter.wrap", "slow.one", "neg.one")
      for rest in ("", ",100", ",30", ",maxValue=50,minValue=2", ",minValue=5", ",none,4", ",maxValue=20", ",10.5", ",0")],
    "perSecond(counter.gap)", "nonNegativeDerivative(counter.gap)", "perSecond(n.*)", "derivative(counter.gap)",
    *["keepLastValue(%s,%s)" % (one, limit) for one in ("a.two", "a.four", "inf.down", "counter.gap", "slow.two") for limit in ("0", "1", "2", "inf", "3")],
    "keepLastValue(a.four,limit=1)", "keepLastValue(a.four,'2')", "keepLastValue(countSeries(a.*))",
    *["transformNull(%s%s)" % (one, rest) for one in ("a.two", "empty.all", "a.*") for rest in (",-1", ",1e9", ",0", ",0.5")],
    "transformNull(a.two,5,a.four)", "transformNull(a.*,5,group(a.four,empty.all))", "transformNull(a.two,5,nothing)", "transformNull(empty.all,5,fix.early)",
    "transformNull(fix.early,2,a.four)", "transformNull(a.one)", "transformNull(fix.none)", "transformNull(a.two,'3')",
    "integral(transformNull(a.four,1))", "derivative(integral(n.*))", "scale(offset(scale(n.*,1.1),0.3),1e-3)",
    "invert(scale(a.three,1e10))", "absolute(scale(inf.*,-1))", "scale(inf.*,2)", "invert(inf.*)",
)

FUNCTIONS["filter"] = cases(
    *over("removeEmptySeries(%s)", "unique(%s)", "limit(%s,2)"),
    *["%s(%s,%s)" % (f, one, n) for f in ("highestAverage", "highestCurrent", "highestMax", "lowestAverage", "lowestCurrent") for one in ("r.*", "{a,inf,empty}.*")
      for n in ("1", "3", "0", "-1", "100")],
    *["%s(%s)" % (f, rest) for f in ("highest", "lowest") for rest in ("r.*", "r.*,2", "r.*,2,'max'", "r.*,3,'median'", "r.*,n=2,func='sum'", "{a,inf,empty}.*,3,'count'",
      "{a,empty}.*,5,'stddev'", "r.*,2,'nope'", "r.*,func='max'", "nothing,2", "zero.one,1,'min'", "r.*,2.0", "r.*,'2'", "{a,empty}.*,5,'range'", "{a,empty}.*,9,'multiply'",
      "{a,empty}.*,9,'diff'", "{a,empty}.*,9,'last'", "{a,empty}.*,9,'avg_zero'", "{a,empty}.*,9,'current'")],
    "highestAverage(r.*)", "limit(a.*)", "limit(a.*,0)", "limit(a.*,-1)", "limit(a.*,'1')", "limit(a.*,99)", "limit(a.*,1.5)", "limit(nothing,1)", "limit(group(r.*,a.*),10)",
    *["%s(%s,%s)" % (f, one, n) for f in ("averageAbove", "averageBelow", "currentAbove", "currentBelow", "maximumAbove", "maximumBelow", "minimumAbove", "minimumBelow")
      for one in ("r.*", "{a,inf,empty,neg,fix}.*") for n in ("50", "0", "7.5")],
    *["filterSeries(%s,'%s','%s',%s)" % (one, func, op, n) for one in ("r.*", "{a,empty,zero}.*") for func, n in (("max", "55"), ("count", "10"), ("last", "0"), ("sum", "0"))
      for op in ("=", "!=", ">", ">=", "<", "<=")],
    "filterSeries(r.*,'max','~',5)", "filterSeries(r.*,'nope','>',5)", "filterSeries(nothing,'max','>',5)", "filterSeries(r.*,'max','>')",
    *["%s(servers.*.*.*,'%s')" % (f, pattern) for f in ("grep", "exclude") for pattern in ("cpu", "s1\\\\.", "s1\\.", "^servers.s[0-9]+.cpu", "system$", "", "(?=.*mem)(?=.*user)", "x|s2",
      "[^.]+$", "SERVERS", "(?i)SERVERS", "(", "*", "s1\\Z", "user\\Z", "s{1}", "s1{", "[[:alpha:]]")],
    "grep(nothing,'a')", "exclude(a.*)", "grep(alias(a.*,'x'),'a')", "exclude(a.*,'o')",
    "removeEmptySeries(a.*,0.5)", "removeEmptySeries(a.*,0.3)", "removeEmptySeries(a.*,1)", "removeEmptySeries(a.*,0)", "removeEmptySeries({a,empty}.*,xFilesFactor=0.67)",
    "removeEmptySeries(a.*,none)", "unique(a.*,a.one)", "unique(a.one,alias(a.two,'a.one'))", "unique()", "unique(a.*,r.*,a.*)",
)

FUNCTIONS["sort"] = cases(
    *over("sortByName(%s)", "sortByMaxima(%s)", "sortByMinima(%s)", "sortByTotal(%s)", "sortBy(%s)"),
    *["sortBy(group(r.*,a.*,empty.all),%s)" % rest for rest in ("'max'", "'min',true", "'last'", "'count',reverse=true", "func='sum'", "'median',false", "'nope'", "reverse=true", "'avg','true'", "'stddev',1")],
    *["sortByName(servers.*.cpu.user%s)" % rest for rest in ("", ",true", ",natural=true", ",true,true", ",false,true", ",reverse=true")],
    "sortByName(group(alias(a.one,'b'),alias(a.two,'a'),alias(a.three,'b')),false,true)", "sortByName(group(alias(a.one,'x2'),alias(a.two,'x02'),alias(a.three,'x2'),alias(a.four,'x1')),true,true)",
    "sortByName(group(alias(a.one,'x10'),alias(a.two,'x9y1'),alias(a.three,'x9'),alias(a.four,'X1')),true)", "sortByName(group(alias(a.one,'s12345678901'),alias(a.two,'s2')),true)",
    "sortByMaxima(group(zero.one,neg.one,alias(zero.one,'again'),a.*))", "sortByMinima(group(neg.one,zero.one,a.*,inf.*))", "sortByTotal(group(r.*,a.*))",
    "sortByMaxima(group(alias(a.one,'1'),alias(a.one,'2'),alias(a.one,'3')))", "sortByMinima(group(alias(a.one,'1'),alias(a.one,'2'),alias(a.one,'3')))",
)

MOVING_LISTS = ["a.*", "r.*", "n.*", "empty.all", "nothing", "inf.*", "slow.*", "group(a.one,slow.one)", "odd.one", "fix.late", "counter.gap", "fix.none"]
FUNCTIONS["moving"] = cases(
    *["%s(%s,%s)" % (f, one, size) for f in ("movingAverage", "movingMedian", "movingMin", "movingMax", "movingSum") for one in MOVING_LISTS
      for size in ("1", "4", "'5min'")],
    *["movingWindow(r.*,%s)" % rest for rest in ("3", "3,'sum'", "'3min','median'", "4,'stddev'", "4,'range'", "4,'count'", "3,'diff'", "3,'multiply'", "3,'last'", "3,'current'", "3,'avg_zero'",
      "3,'rangeOf'", "3,'total'", "3,'sumSeries'", "3,'nope'", "0", "'0s'", "'30s'", "'90s'", "100", "'-5min'", "'+2min'", "3.0", "2.7", "'1h'", "'x'", "'5'", "'5m'", "func='max',windowSize=3")],
    *["movingAverage(%s,4,%s)" % (one, xff) for one in ("a.two", "a.four", "r.*") for xff in ("0", "0.5", "0.75", "1", "xFilesFactor=0.6", "none")],
    "movingAverage(a.one)", "movingAverage(5,5)", "movingMedian(movingAverage(r.*,3),3)", "movingAverage(movingAverage(r.*,'2min'),2)", "movingAverage(scale(r.*,2),'3min')", "movingSum(sumSeries(r.*),3)",
    "movingAverage(sumSeries(a.one,slow.one),2)", "movingAverage(removeEmptySeries({a,empty}.*),'3min')", "movingMax(timeShift(r.*,'2min'),3)", "movingSum(countSeries(a.*),3)", "movingMin(countSeries(a.*),'2min')",
    "movingAverage(countSeries(a.*),2)", "movingAverage(summarize(r.*,'2min'),2)", "movingAverage(constantLine(5),2)", "alias(movingAverage(a.one,2),'x')", "scale(movingAverage(a.*,2),2)",
    "sumSeries(movingAverage(a.*,2))", "movingAverage(seriesByTag('name=disk.used'),3)", "movingMedian(alias(a.one,'x'),3)", "movingAverage(highestAverage(r.*,2),'3min')",
) + cases("movingAverage(a.*,4)", "movingMedian(a.*,'4min')", xff=0.5) + cases("movingAverage(r.*,20)", "movingMedian(r.*,20)", "movingMax(r.*,20)", "movingMin(n.*,20)", "movingSum(n.*,20)", "movingWindow(n.*,15,'stddev')",
    start=600, until=2400) + cases("movingMedian(n.*,7)", "movingAverage(n.*,'7min')", start=617, until=1999)

FUNCTIONS["shift"] = cases(
    *over("timeShift(%s,'5min')"),
    *["timeShift(r.s01,%s)" % rest for rest in ("'1min'", "'-1min'", "'+1min'", "'1h'", "'90s'", "'1min',true", "'1min',false", "'1min',resetEnd=false", "'0s'", "'-0s'", "''", "'x'", "5", "'1m'", "'1min30s'", "'1d'")],
    "timeShift(slow.*,'5min',false)", "timeShift(group(a.one,slow.one),'2min')", "timeShift(timeShift(a.one,'1min'),'2min')", "timeShift(sumSeries(a.*),'3min')", "sumSeries(timeShift(a.*,'3min'))", "timeShift(movingAverage(a.one,2),'3min')",
    "timeShift(constantLine(5),'1h')", "timeShift(alias(a.one,'x'),'1min')", "alias(timeShift(a.one,'1min'),'x')", "timeShift(fix.*,'1min')", "timeShift(nothing,'1min')", "timeShift(a.one)", "scale(timeShift(a.one,'1min'),2)",
    "diffSeries(a.one,timeShift(a.one,'1min'))", "timeShift(seriesByTag('name=disk.used'),'1min')", "asPercent(a.one,timeShift(a.one,'1min'))",
) + [
    # Summer time begins in Berlin at 1774746000 and ends at 1792890000.
    case
    for start, until in ((1774900000, 1774901000), (1774740000, 1774750000), (1775400000, 1775401000), (1793000000, 1793001000), (1792880000, 1792900000))
    for case in cases("timeShift(a.one,'7d',true,true)", "timeShift(a.one,'7d',alignDST=true)", "timeShift(a.one,'+7d',true,true)", "timeShift(a.one,'7d')", start=start, until=until, zone="Europe/Berlin")
]

FUNCTIONS["percent"] = cases(
    *over("asPercent(%s)", "asPercent(%s,50)", "asPercent(%s,a.one)"),
    *over("percentileOfSeries(%s,50)", "nPercentile(%s,90)"),
    "pct(a.*)", "asPercent(a.*,1.5)", "asPercent(a.*,0)", "asPercent(a.*,none)", "asPercent(a.*,'x')", "asPercent(a.*,nothing)", "asPercent(r.*,r.{s01,s02})", "asPercent(r.*,r.*)", "asPercent(servers.*.cpu.user,servers.*.mem.user)",
    "asPercent(slow.*,group(a.one,a.two))", "asPercent(nothing,a.one)", "asPercent(nothing,nothing)", "asPercent(nothing)", "asPercent(nothing,100)", "asPercent(nothing,'x')", "asPercent(nothing,a.*)", "asPercent(nothing,none,0)",
    "asPercent(nothing,a.one,0)", "asPercent(nothing,servers.*.cpu.user,1)", "asPercent(nothing,nothing,0)", "asPercent(nothing,100,1)", "asPercent(a.*,sumSeries(a.*))", "asPercent(a.*,slow.one)", "asPercent(slow.one,a.one)", "asPercent(alias(a.one,'x'),alias(a.two,'y'))",
    "asPercent(servers.*.*.*,none,1)", "asPercent(servers.*.*.*,none,1,2)", "asPercent(servers.*.cpu.*,servers.*.mem.*,1)",
    "asPercent(servers.{s1,s2}.cpu.user,servers.{s2,s10}.*.user,1)", "asPercent(servers.*.cpu.user,servers.*.cpu.system,1)", "asPercent(servers.*.*.*,100,1)", "asPercent(servers.s1.cpu.user,servers.s2.cpu.user,0)",
    "asPercent(servers.*.cpu.user,none,1)", "asPercent(group(servers.*.cpu.user,a.one),groupByNode(servers.*.cpu.*,1,'sum'),1)", "asPercent(seriesByTag('name=disk.used'),none,'dc')", "asPercent(inf.*,inf.up)", "asPercent({a,slow,odd}.*,none,0)",
    *["percentileOfSeries(%s,%s)" % (one, rest) for one in ("r.*", "a.*", "{a,slow}.*") for rest in ("1", "25", "50", "75", "90", "99", "100", "99.9", "0.5", "50,true", "75,interpolate=true", "33.3,true", "99,true", "5,true", "0", "-5", "0.1,true")],
    *["nPercentile(%s,%s)" % (one, n) for one in ("r.*", "a.*", "slow.*") for n in ("1", "25", "50", "75", "90", "99", "100", "99.9", "0.5")], "nPercentile(a.*)", "percentileOfSeries(a.*)", "nPercentile(countSeries(a.*),50)",
    "nPercentile({a,empty}.*,50)", "nPercentile(alias(r.*,'x'),50)", "scale(nPercentile(r.s01,50),2)", "percentileOfSeries(alias(r.*,'x'),50)", "percentileOfSeries(countSeries(a.*),50)",
)

FUNCTIONS["summarize"] = cases(
    *over("summarize(%s,'5min')", "summarize(%s,'4min','avg',true)"),
    *["summarize(%s,'%s','%s'%s)" % (one, interval, func, align) for one in ("r.s01", "a.two", "slow.two") for interval in ("5min", "7min", "1h", "30s", "1min") for func in ("sum", "max", "last") for align in ("", ",true")],
    *["summarize(a.*,'5min','%s')" % func for func in ("average", "avg", "avg_zero", "median", "total", "min", "diff", "stddev", "count", "range", "rangeOf", "multiply", "current", "nope", "sumSeries", "p90")],
    *["summarize(n.*,'7min','%s',%s)" % (func, align) for func in ("average", "avg_zero", "median", "sum", "diff", "stddev", "range", "multiply") for align in ("true", "false")],
    "summarize(a.one,'0s')", "summarize(a.one,'')", "summarize(a.one,'x')", "summarize(a.one)", "summarize(a.one,300)", "summarize(constantLine(5),'5min')", "summarize(summarize(r.*,'2min'),'4min','max')",
    "summarize(countSeries(a.*),'5min')", "summarize(countSeries(a.*),'5min','avg')", "summarize(a.one,'1d')", "summarize(a.one,'1mon','max',true)", "scale(summarize(a.one,'5min'),2)", "summarize(a.*,'5min',alignToFrom=true)", "summarize(a.*,'5min',func='max')",
    "summarize(sumSeries(a.*),'5min')", "summarize(a.one,'5min','sum','true')", "sumSeries(summarize(a.*,'5min'),slow.one)",
) + cases("summarize(a.*,'5min')", "summarize(r.*,'5min','avg')", "summarize(slow.*,'20min','last',true)", xff=0.5) + cases("summarize(a.one,'5min')", start=637, until=1411)

FUNCTIONS["constant"] = cases(
    *["constantLine(%s)" % n for n in ("5", "100", "1.5", "-2", "1e9", "1e20", "0.00001", "'7'", "inf", "")], "constantLine(value=5)",
    *["threshold(%s)" % rest for rest in ("50", "50,'a label'", "50,'a label','red'", "1.5,label='x'", "50,none,'red'", "5,''", "5,color='blue'", "5,label='x',color='y'")],
    "sumSeries(constantLine(5),constantLine(7))", "scale(constantLine(5),2)", "alias(constantLine(5),'five')", "sumSeries(constantLine(5),a.one)", "derivative(constantLine(5))", "aliasByNode(constantLine(5),0)", "summarize(threshold(5),'5min')",
    "highestAverage(group(constantLine(5),constantLine(7)),1)",
) + cases("constantLine(5)", start=600, until=1501) + cases("constantLine(5)", "threshold(2)", start=600, until=602) + cases("constantLine(5)", xff=0.5)

FUNCTIONS["consolidation"] = cases(
    *["consolidateBy(a.*,'%s')" % f for f in ("sum", "avg", "average", "min", "max", "first", "last", "avg_zero")], "consolidateBy(a.*)", "cumulative(a.*)",
    *["sumSeries(consolidateBy(group(a.two,a.four),'%s'),slow.one)" % f for f in ("sum", "avg", "min", "max", "first", "last", "avg_zero")],
    *["maxSeries(consolidateBy(fix.*,'%s'),fix.coarse)" % f for f in ("sum", "avg", "min", "max", "first", "last", "avg_zero")],
    *["sumSeries(setXFilesFactor(group(a.two,a.four),%s),slow.one)" % x for x in ("0.2", "0.5", "0.7", "1")], "setXFilesFactor(a.*,0.5)", "xFilesFactor(a.one,1)", "setXFilesFactor(a.*)",
    "group(setXFilesFactor(a.one,0.9),summarize(a.two,'5min'))", "group(summarize(a.two,'5min'),setXFilesFactor(a.one,0.9),summarize(a.two,'5min'))", "scale(consolidateBy(a.one,'sum'),2)", "consolidateBy(scale(a.one,2),'max')",
    "derivative(consolidateBy(a.one,'max'))", "alias(consolidateBy(a.one,'sum'),'x')", "consolidateBy(nothing,'sum')",
)

FUNCTIONS["language"] = cases(
    "a.one", "a.*", "a.one|scale(2)", "a.one | scale(2)|offset(1)", "a.* | sumSeries() | alias('x')", "nope(a.one)", "a.one|nope()", "sumSeriess(a.one)", "sumSeries(a.one", "sumSeries(a.one))", "a.one and more", "scale(a.one,2) trailing",
    "  a.one", "scale( a.one , 2 )", "sumSeries(a.one,,a.two)", "'a.one'", "5", "(a.one)", "", "   ", "sumSeries(scale(a.one,2)|offset(3),a.two)", "template(a.$x,x='one')", "template(a.$1,'one')", "template(a.$1.$2,'one',2)", "template(scale($s,$f),f=2,s='x')",
    "template(scale(a.one,$f),f=2)", "template(scale(a.one,$f),f='2')", "template(scale(a.one,$f),f='2.5')", "template(alias(a.one,$n),n='some name')", "template(sumSeries(a.$x,r.$y),x='one',y='s01')", "template(a.$x)", "template(a.one,1,2)",
    "template(scale(a.one,1),a.two)", "template(a.one)", "template(a.$xy,x='on')", "template(a.${x},x='one')", "alias(template(a.$x,x='one'),'y')", "template(a.$x,x='one')|alias('z')", "seriesByTag('name=disk.used')", "seriesByTag( 'name=disk.used' , 'dc=x' )",
    "sumSeries(seriesByTag('name=disk.used'))", "seriesByTag('name=disk.used')|sumSeries()", "alias(seriesByTag('a=b')|scale(1),'q')", "a.{one,two}", "a.{one,two}.x", "a.o*", "a.[ot]*", "a.on?", "alias(a.one,\"it's\")", "alias(a.one,'a\\'b')",
    "alias(a.one,'a\"b')", "sumSeries(true)", "sumSeries(trueish.x)", "sumSeries(a.one,none)", "alias(a.one,5)", "alias(a.one,true)", "sumSeries(inf.up)", "sumSeries(info.x)", "template(sumSeries($x),x=5)",
) + cases("template(a.$x,x='one')", "template(scale(a.one,$f),f=2)", **{"template.x": "two", "template.f": "7"})


FUNCTIONS["maths"] = cases(
    *over("add(%s,2.5)", "exp(%s)", "isNonNull(%s)", "log(%s)", "logit(%s)", "minMax(%s)", "offsetToZero(%s)", "pow(%s,2)", "round(%s,1)", "scaleToSeconds(%s,30)",
          "sigmoid(%s)", "squareRoot(%s)", lists=["a.one", "a.two", "a.four", "r.*", "fix.*", "empty.all", "nothing.here", "group(a.one,slow.one)", "zero.one", "seriesByTag('name=disk.used')"]),
    *["%s(%s)" % (f, one) for f in ("isNonNull", "log", "logit", "minMax", "offsetToZero", "squareRoot") for one in ("{a,inf,empty}.*", "n.*", "countSeries(a.*)", "neg.one")],
    *["%s(countSeries(a.*)%s)" % (f, rest) for f, rest in (("add", ",1"), ("exp", ""), ("pow", ",2"), ("round", ""), ("round", ",1"), ("round", ",-1"), ("scaleToSeconds", ",1"), ("sigmoid", ""))],
    *["add(a.two,%s)" % n for n in ("-1", "0", "1e20", "-0.5", "1e7", "'3'", "inf", "-7.9")], "add(a.one)", "add(inf.*,1)", "add(n.*,0.1)",
    *["log(r.*,%s)" % base for base in ("2", "10", "3", "base=7", "'4'", "1", "0", "-2")], "exp(scale(r.*,0.01))", "exp(neg.one)", "exp(inf.*)",
    *["pow(%s,%s)" % (one, n) for one in ("r.*", "a.three", "n.*") for n in ("0", "-1", "0.5", "3", "2.5", "-2", "100")], "pow(neg.one,0.5)", "pow(neg.one,-1)", "pow(inf.*,2)", "pow(inf.*,-1)", "pow(a.one,factor=2)", "pow(a.one)", "pow(zero.one,0)",
    *["round(%s%s)" % (one, rest) for one in ("r.*", "n.*", "a.three", "inf.*") for rest in ("", ",0", ",2", ",-1", ",-2", ",6", ",12", ",20", ",precision=3", ",-8", ",400", ",-400")],
    "round(scale(a.one,0.5))", "round(scale(a.one,0.25),1)", "round(scale(a.one,0.125),2)", "round(scale(a.one,5),-1)", "round(scale(a.one,2.5),-1)", "round(scale(a.one,0.05),1)", "round(offset(a.one,0.5))", "round(scale(a.one,-0.5))", "round(scale(a.one,50.5),-2)",
    *["scaleToSeconds(%s,%s)" % (one, n) for one in ("r.*", "slow.*", "n.*", "odd.one") for n in ("1", "60", "0.5", "86400")], "scaleToSeconds(a.one)", "scaleToSeconds(inf.*,1)", "scaleToSeconds(a.one,1e6)",
    "sigmoid(neg.one)", "sigmoid(scale(r.*,0.1))", "sigmoid(scale(neg.one,0.1))", "squareRoot(scale(r.*,3))", "squareRoot(n.*)", "logit(scale(r.*,0.01))", "logit(scale(a.one,0.02))", "minMax(constantLine(5))", "offsetToZero(constantLine(5))",
    "sumSeries(round(r.*,1))", "alias(pow(a.one,2),'x')", "add(add(a.one,1),2)",
)

FUNCTIONS["graph"] = cases(
    *over("alpha(%s,0.5)", "color(%s,'red')", "lineWidth(%s,2)", "dashed(%s)", "drawAsInfinite(%s)", "secondYAxis(%s)", "stacked(%s)", "areaBetween(%s)",
          lists=["a.one", "a.*", "fix.*", "empty.all", "nothing.here", "group(a.one,a.two)", "{a,slow}.*", "fix.{late,early}", "group(fix.none,a.one)", "countSeries(a.*)"]),
    *["dashed(a.one%s)" % rest for rest in (",2", ",10", ",dashLength=7", ",1000000", ",0", ",-1")], "alpha(a.one)", "color(a.one)", "lineWidth(a.one)", "alpha(a.one,alpha=1)", "color(a.one,theColor='#ff0000')",
    "areaBetween(group(alias(a.one,'x'),alias(a.two,'y')))", "areaBetween(group(scale(a.one,2),scale(a.one,3)))", "areaBetween(a.one,a.two)", "areaBetween(a.*)", "scale(areaBetween(group(a.one,a.two)),2)",
    "stacked(a.*,'one')", "group(stacked(a.one),stacked(a.two))", "group(stacked(a.one,'x'),stacked(a.two,'x'),stacked(a.three,'y'))", "group(stacked(fix.late),stacked(a.two))", "stacked(stacked(a.*))", "stacked(scale(a.*,2))",
    "group(stacked(a.one),stacked(a.one,'x'),stacked(a.two))", "stacked(r.*)", "alias(stacked(a.one),'x')", "scale(secondYAxis(a.one),2)", "secondYAxis(scale(a.one,2))", "drawAsInfinite(sumSeries(a.*))", "scale(dashed(a.one),2)", "sumSeries(drawAsInfinite(a.*))",
    "stacked(a.*,'__DEFAULT__')", "movingAverage(secondYAxis(a.one),2)",
)

FUNCTIONS["gaps"] = cases(
    *over("changed(%s)", "delay(%s,2)", "delay(%s,-2)", "interpolate(%s)"),
    *["delay(%s,%s)" % (one, n) for one in ("a.two", "fix.*", "countSeries(a.*)") for n in ("1", "100", "-100", "5", "-1", "3")], "delay(a.one)", "delay(a.one,steps=3)",
    *["interpolate(%s,%s)" % (one, n) for one in ("a.two", "a.four", "slow.two", "counter.gap", "inf.down", "r.*") for n in ("0", "1", "2", "3", "inf")], "interpolate(a.four,limit=3)", "interpolate(n.*)", "interpolate(delay(countSeries(a.*),1))",
    # Not a.four, whose first value is its first of all: 1.1.10 overlooks that, and master does not.
    *["compressPeriodicGaps(%s)" % one for one in ("a.one", "r.*", "n.*", "inf.*", "fix.*", "empty.all", "nothing", "group(fix.none,a.one)", "zero.one", "slow.*", "gap.*", "scale(gap.*,2)", "alias(gap.five,'x')", "isNonNull(gap.*)", "offset(gap.*,1)", "delay(gap.five,2)", "delay(gap.three,1)")], "interpolate(gap.*)", "changed(gap.*)", "changed(zero.one)", "changed(round(r.*))", "changed(counter.*)",
    "keepLastValue(interpolate(a.four,1))", "sumSeries(changed(r.*))", "scale(compressPeriodicGaps(gap.five),2)",
) + cases("compressPeriodicGaps(gap.*)", "interpolate(gap.*)", start=0, until=2400) + cases("compressPeriodicGaps(gap.*)", start=780, until=2000)

DAY = 1768953600
BUCKET_SPANS = ((DAY + 5000, DAY + 9000), (DAY + 90061, DAY + 94000), (1774746000 - 4000, 1774746000 + 5000))
FUNCTIONS["buckets"] = cases(
    *over("hitcount(%s,'3min')", "smartSummarize(%s,'4min')", "integralByInterval(%s,'5min')", lists=[one for one in ONE_LIST if one not in ("fix.none", "group(fix.none,a.one)")]),
    *["hitcount(%s,'%s'%s)" % (one, interval, align) for one in ("a.two", "r.s01", "slow.one", "odd.one") for interval in ("1min", "90s", "7min", "1h", "30s", "1d", "10s") for align in ("", ",true")],
    *["smartSummarize(%s,'%s','%s')" % (one, interval, func) for one in ("r.s01", "a.two", "slow.two") for interval in ("5min", "7min", "1h", "30s", "1min") for func in ("sum", "max", "last")],
    *["smartSummarize(a.*,'5min','%s')" % func for func in ("average", "avg", "avg_zero", "median", "total", "min", "diff", "stddev", "count", "range", "rangeOf", "multiply", "current", "nope")],
    *["smartSummarize(r.s01,'5min','avg',%s)" % to for to in ("'minutes'", "'hours'", "'days'", "'weeks'", "'weeks3'", "'weeks7'", "'months'", "'years'", "'seconds'", "true", "false", "none", "'min'", "'1h'", "'x'", "'m'")],
    "smartSummarize(a.one,'x')", "smartSummarize(a.one)", "smartSummarize(scale(a.*,2),'5min','max','hours')", "smartSummarize(a.one,'5min',func='max',alignTo='hours')", "smartSummarize(smartSummarize(r.*,'2min'),'4min','max')", "smartSummarize(constantLine(5),'5min')", "smartSummarize(countSeries(a.*),'5min')",
    *["integralByInterval(%s,'%s')" % (one, unit) for one in ("r.s01", "a.two", "slow.*", "countSeries(a.*)") for unit in ("2min", "1h", "90s", "-5min", "1d")], "integralByInterval(a.one,'x')", "integralByInterval(a.one,'0s')", "integralByInterval(a.one)",
    "hitcount(a.one,'x')", "hitcount(a.one)", "hitcount(a.one,'0s')", "hitcount(countSeries(a.*),'5min')", "hitcount(scale(a.one,2),'5min',true)", "hitcount(a.*,'5min',alignToInterval=true)", "hitcount(hitcount(a.one,'2min'),'4min')", "scale(hitcount(a.one,'5min'),2)", "hitcount(n.*,'7min')",
) + cases("hitcount(a.*,'5min')", "smartSummarize(a.*,'5min')", "integralByInterval(a.*,'5min')", xff=0.5) + cases("hitcount(a.one,'4min')", "hitcount(a.one,'4min',true)", "smartSummarize(a.one,'4min')", "smartSummarize(a.one,'4min','sum','minutes')", "integralByInterval(a.one,'4min')", start=637, until=1411) + [
    case
    for start, until in BUCKET_SPANS for zone in ("UTC", "Europe/Berlin", "America/New_York")
    for case in cases("hitcount(late.*,'1h',true)", "hitcount(late.*,'1d',true)", *["smartSummarize(late.*,'1h','sum','%s')" % to for to in ("minutes", "hours", "days", "weeks", "weeks5")], "integralByInterval(late.*,'30min')", start=start, until=until, zone=zone)
] + cases("smartSummarize(late.day,'7d','count','months')", "smartSummarize(late.day,'7d','sum','years')", start=DAY + 5000, until=DAY + 9000, zone="Europe/Berlin")

FUNCTIONS["deviation"] = cases(
    *over("aggregateLine(%s)", "aggregateLine(%s,'max',true)", 
          # Not a.three, whose squares are beyond all floats, on which Python fails.
          lists=[one for one in ONE_LIST if not one.startswith("a.*")]),
    *over("stdev(%s,4)", "mostDeviant(%s,2)", lists=["a.{one,two,four}", "r.*", "n.*", "empty.all", "nothing.here", "fix.*", "group(a.one,slow.one,odd.one)", "zero.one", "inf.*", "seriesByTag('name=disk.used')", "group(fix.none,a.one)"]),
    *["aggregateLine(%s,'%s'%s)" % (one, func, keep) for one in ("a.two", "r.*", "empty.all", "countSeries(a.*)") for func in ("average", "median", "sum", "min", "max", "diff", "stddev", "count", "range", "multiply", "last", "avg_zero", "nope") for keep in ("", ",true")],
    "aggregateLine(a.one,func='max',keepStep=true)", "aggregateLine(alias(a.one,'x'))", "scale(aggregateLine(a.one),2)", "scale(aggregateLine(a.one,'max',true),2)", "aggregateLine(a.one,keepStep=false)",
    *["stdev(%s,%s)" % (one, rest) for one in ("a.two", "a.four", "r.*", "n.*", "slow.one", "counter.gap") for rest in ("1", "3", "5,0", "5,0.5", "5,1", "100", "100,0", "windowTolerance=0.3,points=4")],
    "stdev(a.one)", "stdev(constantLine(5),2)", "stdev(countSeries(a.*),3)", "stdev(alias(a.one,'x'),3)", "scale(stdev(a.one,3),2)",
    *["mostDeviant(%s,%s)" % (one, n) for one in ("r.*", "n.*", "{a,empty}.{one,two,four,all}", "servers.*.*.*") for n in ("1", "3", "0", "-1", "100")], "mostDeviant(a.*)", "mostDeviant(n=2,seriesList=r.*)",
)

FUNCTIONS["outlier"] = cases(
    *over("removeAboveValue(%s,5)", "removeBelowValue(%s,5)", "removeAbovePercentile(%s,50)", "removeBelowPercentile(%s,50)"),
    *["%s(%s,%s)" % (f, one, n) for f in ("removeAbovePercentile", "removeBelowPercentile") for one in ("r.*", "n.*", "a.*") for n in ("1", "25", "90", "99.9", "100", "0.5")],
    *["%s(%s,%s)" % (f, one, n) for f in ("removeAboveValue", "removeBelowValue") for one in ("r.*", "countSeries(a.*)", "neg.one") for n in ("50", "0", "-5", "1e6", "0.5")],
    *["averageOutsidePercentile(%s,%s)" % (one, n) for one in ("r.*", "n.*", "servers.*.*.*", "a.*", "nothing", "a.one", "inf.*") for n in ("10", "30", "50", "75", "90", "100", "0")],
    *["removeBetweenPercentile(%s,%s)" % (one, n) for one in ("n.*", "{neg,counter}.{one,up,wrap}", "a.one", "nothing", "transformNull(r.*,50)") for n in ("10", "30", "50", "75", "90", "100", "0")],
    "removeBetweenPercentile(n.*)", "averageOutsidePercentile(n.*)", "removeAbovePercentile(a.*)", "removeAboveValue(a.*)", "removeAbovePercentile(a.one,0)", "removeBelowPercentile(alias(a.one,'x'),50)", "scale(removeAboveValue(a.one,5),2)",
    "removeAbovePercentile(countSeries(a.*),50)", "removeBelowValue(removeAboveValue(a.one,30),10)",
)

FUNCTIONS["legend"] = cases(
    *over("upper(%s)", "lower(%s)", "cactiStyle(%s)", "legendValue(%s,'last')", "substr(%s)", lists=[one for one in ONE_LIST if "inf" not in one]),
    *["%s(alias(a.one,'aBc DéF ß ŉ'),%s)" % (f, pos) for f in ("upper", "lower") for pos in ("0", "1,2", "-1", "99", "-99", "-2,0", "4,5,6", "7,8,9,10")], "lower(alias(a.one,'ABC.DEF ÀÉ'))", "upper(alias(a.one,'àéß.x'))", "upper(scale(a.one,2))", "scale(upper(a.one),2)", "upper(a.one,'1')",
    *["substr(%s%s)" % (one, rest) for one in ("servers.*.cpu.user", "sumSeries(servers.s1.*.user)", "scale(servers.s1.cpu.user,2)", "alias(a.one,'f(g(x.y.z,2.5),3)')", "seriesByTag('name=disk.used')", "alias(a.one,')a.b(c.d')")
      for rest in ("", ",1", ",1,3", ",-1", ",-2,-1", ",0,2", ",2,1", ",9", ",-9,2", ",stop=2", ",start=1,stop=-1")],
    *["legendValue(%s,%s)" % (one, rest) for one in ("a.one", "a.three", "empty.all", "countSeries(a.*)", "scale(r.s01,1000)", "scale(a.*,1024)", "inf.up")
      for rest in ("'avg'", "'max','min'", "'last','si'", "'avg','max','binary'", "'si'", "'nope'", "'nope','si'", "'lastSeries'", "'median','range','stddev'", "'sum','count','diff'", "'multiply'", "'total','current','rangeOf','avg_zero'")],
    "legendValue(a.one)", "legendValue(nothing,'avg')", "legendValue(alias(a.one,'a name that is longer than twenty'),'avg','si')", "legendValue(alias(a.one,'é'),'avg','si')",
    *["cactiStyle(%s%s)" % (one, rest) for one in ("a.*", "r.*", "n.*", "countSeries(a.*)", "{a,empty}.{one,two,all}", "scale(a.one,1e6)", "scale(neg.one,1000)", "zero.one", "scale(r.s0*,0.001)", "scale(n.*,1e9)", "pow(a.one,9)", "nothing")
      for rest in ("", ",'si'", ",'binary'", ",'si','b'", ",'binary','B'", ",none,'req'", ",units='x'", ",system='si'", ",'si',''")],
    "cactiStyle(group(alias(a.one,'é'),alias(a.two,'a longer name')))", "cactiStyle(a.one,'nope')", "scale(cactiStyle(a.one),2)", "cactiStyle(scale(a.one,0.01))",
)


FUNCTIONS["lists"] = cases(
    "reduceSeries(mapSeries(servers.*.*.*,1),'asPercent',2,'cpu','mem')", "reduceSeries(mapSeries(servers.*.*.user,1),'asPercent',2,'cpu','mem')", "reduce(map(servers.*.*.user,1),'divideSeries',2,'mem','cpu')",
    "reduceSeries(mapSeries(servers.*.*.user,1),'diffSeries',2,'cpu','mem')", "reduceSeries(mapSeries(servers.*.*.*,1,3),'sumSeries',2,'cpu','mem')", "reduceSeries(mapSeries(servers.*.cpu.*,1),'powSeries',-1,'user','system')",
    "reduceSeries(mapSeries(servers.*.cpu.*,1),'asPercent',3,'system','user')", "reduceSeries(mapSeries(servers.*.cpu.*,1),'sumSeries',3,'user')", "reduceSeries(mapSeries(servers.*.cpu.*,1),'sumSeries',3,'nope')", "reduceSeries(mapSeries(servers.*.cpu.*,1),'group',3,'user')",
    "reduceSeries(mapSeries(nothing,1),'sumSeries',3,'user')", "reduceSeries(mapSeries(servers.*.cpu.*,1),'sumSeries',3)", "reduceSeries(mapSeries({a,slow}.one,1),'sumSeries',0,'a','slow')", "reduceSeries(mapSeries(a.*,0),'diffSeries',1,'one','three','two')",
    "reduceSeries(mapSeries(servers.*.*.user,1),'nope',2,'cpu','mem')", "alias(reduceSeries(mapSeries(servers.*.*.user,1),'asPercent',2,'cpu','mem'),'x')", "scale(reduceSeries(mapSeries(servers.*.*.user,1),'divideSeries',2,'cpu','mem'),2)",
    "reduceSeries(mapSeries(alias(servers.s1.cpu.user,'x.cpu.y'),0),'sumSeries',1,'cpu')", "reduceSeries(5,'sumSeries',2,'cpu')",
    "aggregate(mapSeries(servers.*.*.*,1),'sum')", "aggregate(mapSeries(a.*,1),'diff')", "sumSeries(mapSeries(a.*,1))", "alias(mapSeries(a.*,1),'x')", "sumSeries(mapSeries(nothing,1))", "mapSeries(nothing,1)", "mapSeries(a.*)",
    "reduceSeries(mapSeries(seriesByTag('name=disk.used'),'dc'),'sumSeries',0,'disk')", "reduceSeries(mapSeries(servers.*.*.user,1,2),'multiplySeries',2,'cpu')", "reduceSeries(mapSeries(servers.*.*.user,1),'sumSeriesLists',2,'cpu','mem')",
)

TWO_LISTS = ["servers.*.cpu.user,servers.*.mem.user", "a.one,slow.one", "a.*,r.{s00,s01,s02,s03}", "a.*,a.one", "nothing,nothing", "a.one,nothing", "slow.*,a.{one,two}", "inf.*,inf.*", "empty.all,a.one", "fix.late,fix.early", "zero.one,zero.one", "a.two,a.four"]
FUNCTIONS["pairs"] = cases(
    *over("sumSeriesLists(%s)", "diffSeriesLists(%s)", "multiplySeriesLists(%s)", "divideSeriesLists(%s)", "aggregateSeriesLists(%s,'max')", "aggregateSeriesLists(%s,'avg')", lists=TWO_LISTS),
    *["aggregateSeriesLists(a.*,r.{s00,s01,s02,s03},'%s')" % func for func in ("sum", "median", "stddev", "count", "range", "last", "sumSeries", "avg_zero", "total", "nope")],
    "aggregateSeriesLists(a.*,r.{s00,s01,s02,s03},'sum',1)", "aggregateSeriesLists(a.*,r.{s00,s01,s02,s03},'sum',xFilesFactor=0.8)", "aggregateSeriesLists(a.*,a.*)", "sumSeriesLists(a.*)", "sumSeriesLists(a.one,5)",
    "scale(sumSeriesLists(a.*,a.*),2)", "alias(diffSeriesLists(a.one,slow.one),'x')", "sumSeries(sumSeriesLists(a.*,a.*))", "sumSeriesLists(scale(a.*,2),alias(a.*,'x'))", "sumSeriesLists(countSeries(a.*),countSeries(r.*))", "divideSeriesLists(countSeries(a.*),countSeries(r.*))",
    "sumSeriesLists(seriesListFirstPos=a.one,seriesListSecondPos=a.two)", "divideSeriesLists(a.*,zero.one)", "sumSeriesLists(seriesByTag('name=disk.used'),seriesByTag('name=disk.used'))",
    *over("powSeries(%s)"), "powSeries(a.one,a.two)", "powSeries(a.*,a.one)", "powSeries()", "powSeries(zero.one,neg.one)", "powSeries(neg.one,scale(a.one,0.1))", "powSeries(countSeries(a.*))", "powSeries(countSeries(a.*),a.one)", "powSeries(n.*)", "powSeries(slow.one,constantLine(2))", "groupByNode(a.*,0,'powSeries')",
) + cases("sumSeriesLists(a.*,r.{s00,s01,s02,s03})", "aggregateSeriesLists(a.*,r.{s00,s01,s02,s03},'max')", xff=0.9)

FUNCTIONS["wildcards"] = cases(
    *["%s(%s)" % (f, rest) for f in ("sumSeriesWithWildcards", "averageSeriesWithWildcards", "multiplySeriesWithWildcards") for rest in ("servers.*.*.*,1", "servers.*.*.*,1,3", "servers.*.*.*,0,1,2,3", "servers.*.*.*", "a.*,1", "{a,slow}.*,0", "nothing,1", "servers.*.*.*,9", "servers.*.*.*,-1",
      "fix.*,1", "scale(servers.*.cpu.user,2),1", "seriesByTag('name=disk.used'),0", "servers.*.*.*,'1'", "empty.all,0", "countSeries(a.*),0")],
    *["aggregateWithWildcards(servers.*.*.*,%s)" % rest for rest in ("'sum',1", "'max',1,2", "'median',2", "'stddev',3,2", "'sumSeries',1", "'avg'", "'count',1", "'diff',3", "'range',1", "'last',1", "'nope',1", "'multiply',3")], "aggregateWithWildcards(nothing,'sum',1)", "aggregateWithWildcards(a.*)",
    "scale(sumSeriesWithWildcards(servers.*.cpu.*,1),2)", "aliasByNode(sumSeriesWithWildcards(servers.*.cpu.*,1),1)", "groupByNode(servers.*.*.*,1,'averageSeriesWithWildcards')", "groupByNode(servers.*.*.*,1,'sumSeriesLists')", "groupByNode(servers.*.*.*,1,'pct')", "sumSeries(sumSeriesWithWildcards(servers.*.cpu.*,1))",
    *["weightedAverage(%s)" % rest for rest in ("servers.*.cpu.user,servers.*.mem.user,1", "servers.*.cpu.user,servers.*.mem.user", "servers.*.cpu.user,servers.*.cpu.system,0", "a.*,r.{s00,s01,s02,s03},1", "a.one,slow.one,1", "a.*,a.one,0", "nothing,nothing,1", "servers.*.*.user,servers.*.*.system,1,2",
      "servers.*.cpu.user,servers.*.mem.user,1,0", "servers.{s1,s2}.cpu.user,servers.{s2,s10}.cpu.user,1", "a.{one,two},a.{two,four},1", "inf.*,inf.*,1", "alias(a.one,'x.y'),alias(a.two,'x.z'),0", "seriesByTag('name=disk.used'),seriesByTag('name=disk.used'),'host'", "sumSeries(a.one),sumSeries(a.two),0",
      "slow.*,slow.*,1", "fix.{late,early},fix.{late,early},1", "countSeries(a.*),countSeries(r.*),0", "servers.*.cpu.user", "zero.one,zero.one,0", "a.one,a.two,'x'")], "scale(weightedAverage(servers.*.cpu.user,servers.*.mem.user,1),2)",
) + cases("sumSeriesWithWildcards(a.*,1)", "weightedAverage(servers.*.cpu.user,servers.*.mem.user,1)", xff=0.9)

FUNCTIONS["tag"] = cases(
    *["groupByTags(seriesByTag('name=disk.used'),%s)" % rest for rest in ("'sum','dc'", "'average','dc','host'", "'sumSeries','dc'", "'max','name'", "'min','dc','name'", "'countSeries','dc'", "'stddev','host'", "'pct','dc'", "'asPercent','name'", "'avg','dc'", "'diff','dc'", "'multiply','dc'", "'last','dc'", "'sum'",
      "'nope','dc'", "'median','dc'", "'sum','dc','dc'", "'rangeOfSeries','dc'", "'total','host','dc'", "'averageSeriesWithWildcards','dc'")],
    "groupByTags(a.*,'sum','name')", "groupByTags(nothing,'sum','dc')", "groupByTags(group(a.one,alias(a.one,'x')),'sum','name')", "groupByTags(alias(seriesByTag('name=disk.used'),'x'),'sum','dc')", "scale(groupByTags(seriesByTag('name=disk.used'),'sum','dc'),2)", "groupByTags(scale(seriesByTag('name=disk.used'),2),'sum','dc')",
    "aliasByTags(groupByTags(seriesByTag('name=disk.used'),'sum','dc'),'dc')", "groupByTags(groupByTags(seriesByTag('name=disk.used'),'sum','dc','host'),'max','dc')", "sumSeries(groupByTags(seriesByTag('name=disk.used'),'sum','dc'))", "groupByNode(groupByTags(seriesByTag('name=disk.used'),'sum','dc'),'dc','max')",
    *["aliasByTags(%s,%s)" % (one, tags) for one in ("seriesByTag('name=disk.used')", "a.*", "sumSeries(seriesByTag('name=disk.used'))", "servers.*.cpu.user") for tags in ("'dc'", "'name'", "'host','dc'", "0", "1,'name'", "'nope'", "-1")], "aliasByTags(a.*)", "aliasByTags(nothing,'dc')",
)

FUNCTIONS["generate"] = cases(
    "identity('x')", "identity('a.b')", "identity('')", "identity(name='x')", "identity()", "identity('a;b=c')", "scale(identity('x'),2)", "sumSeries(identity('x'),identity('y'))", "derivative(identity('x'))",
    *["%s('x'%s)" % (f, rest) for f in ("time", "timeFunction") for rest in ("", ",10", ",7", ",step=30", ",3600", ",'30'")], "timeFunction()", "timeFunction('a;b=c')", "alias(time('x'),'y')", "scale(time('x'),0.5)", "perSecond(time('x',30))", "sumSeries(time('x'),a.one)", "summarize(time('x'),'5min')",
    *["%s('x'%s)" % (f, rest) for f in ("sin", "sinFunction") for rest in ("", ",2", ",1,10", ",amplitude=3", ",1,7", ",step=30", ",0.5", ",-2,900", ",'3'")], "sin()", "absolute(sin('x'))", "movingAverage(sin('x'),3)", "timeShift(time('x'),'1h')", "timeShift(sin('x',1,30),'90s')", "seriesByTag('a=b','c=d')",
) + cases("identity('x')", "time('x')", "sin('x')", "time('x',7)", start=617, until=1411) + cases("time('x')", "identity('x')", "sin('x')", start=600, until=601) + cases("time('x')", "identity('x')", xff=0.5)

DATES = ["'660','900'", "'600','1500'", "'0','3000'", "'900'", "'1000','1001'", "'900','600'", "'19700101','19700102'", "'00:11_19700101','00:20_19700101'"]
FUNCTIONS["time"] = cases(
    *["timeSlice(a.*,%s)" % dates for dates in DATES if "," in dates], *over("timeSlice(%s,'700','1300')"), "timeSlice(a.one)", "timeSlice(a.one,'x')", "timeSlice(a.one,'700','x')", "timeSlice(a.one,startSliceAt='700',endSliceAt='800')", "scale(timeSlice(a.one,'700','900'),2)", "timeSlice(timeShift(a.one,'2min'),'700','900')",
    "timeSlice(countSeries(a.*),'700','900')", "sumSeries(timeSlice(a.*,'700','900'))", "timeSlice(constantLine(5),'700','1100')",
    *["linearRegression(a.*,%s)" % dates for dates in DATES if dates not in ("'900','600'", "'900'")], *over("linearRegression(%s)", "linearRegression(%s,'300','1200')"), "linearRegression(a.one,none,'1200')", "linearRegression(a.one,endSourceAt='1200')", "linearRegression(a.one,startSourceAt='700')", "linearRegression(a.one,'x')", "linearRegression()",
    "scale(linearRegression(a.one),2)", "linearRegression(movingAverage(r.*,3))", "linearRegression(timeShift(a.one,'2min'),'300','900')", "alias(linearRegression(r.s01),'x')", "linearRegression(countSeries(a.*))", "linearRegression(constantLine(5))", "linearRegression(sumSeries(r.*),'0','900')", "sumSeries(linearRegression(r.*))",
    "linearRegression(removeEmptySeries({a,empty}.*),'0','900')",
    *over("timeStack(%s,'5min',0,3)"), *["timeStack(a.one,%s)" % rest for rest in ("'1min'", "'1min',1", "'1min',1,3", "'-1min',0,2", "'+1min',0,2", "'1min',2,1", "'1min',-1,2", "timeShiftStart=1,timeShiftEnd=2", "'1h',0,2", "'x'", "'','0'", "'90s',0,2", "'1min','1','3'")], "timeStack(a.one)", "timeStack(r.*,'2min',0,2)",
    "sumSeries(timeStack(r.*,'2min',0,2))", "timeStack(sumSeries(r.*),'2min',0,2)", "timeStack(movingAverage(r.s01,2),'2min',0,2)", "timeStack(alias(a.one,'x'),'1min',0,2)", "timeStack(timeStack(a.one,'1min',0,2),'2min',0,2)", "scale(timeStack(a.one,'1min',0,2),2)", "timeStack(countSeries(a.*),'1min',0,2)",
    *["verticalLine(%s)" % rest for rest in ("'900','label'", "'600','label'", "'1500','label','red'", "'599','x'", "'1501','x'", "'00:15_19700101','x',color='blue'", "'x','y'", "label='x',ts='900'")], "alias(verticalLine('900','x'),'y')", "verticalLine()",
) + cases("timeSlice(a.one,'700','900')", "linearRegression(a.one)", "timeStack(a.one,'2min',0,2)", "verticalLine('900','label')", start=617, until=1411, xff=0.5) + cases("linearRegression(a.one)", start=600, until=660)

FUNCTIONS["exponential"] = cases(
    *over("exponentialMovingAverage(%s,4)", "exponentialMovingAverage(%s,'5min')", lists=MOVING_LISTS + ["fix.*"]),
    *["exponentialMovingAverage(r.*,%s)" % rest for rest in ("1", "0", "9", "100", "'1h'", "'30s'", "'90s'", "'0s'", "'-5min'", "'x'", "3.0", "2.7", "windowSize=3", "'1h30min'")], "exponentialMovingAverage(a.one)", "exponentialMovingAverage(exponentialMovingAverage(r.s01,3),2)", "exponentialMovingAverage(sumSeries(r.*),3)",
    "exponentialMovingAverage(scale(r.*,2),'3min')", "scale(exponentialMovingAverage(a.*,2),2)", "sumSeries(exponentialMovingAverage(a.*,2))", "exponentialMovingAverage(countSeries(a.*),2)", "exponentialMovingAverage(timeShift(r.*,'2min'),3)", "exponentialMovingAverage(consolidateBy(a.one,'max'),2)", "alias(exponentialMovingAverage(a.one,2),'x')",
    "exponentialMovingAverage(constantLine(5),2)", "exponentialMovingAverage(seriesByTag('name=disk.used'),3)", "exponentialMovingAverage(a.three,'2min')",
) + cases("exponentialMovingAverage(n.*,20)", "exponentialMovingAverage(r.*,'20min')", start=600, until=2400) + cases("exponentialMovingAverage(r.*,7)", "exponentialMovingAverage(a.*,'7min')", start=617, until=1999, xff=0.5)

HOLT = ["holtWintersForecast(%s,'10min','5min')", "holtWintersConfidenceBands(%s,3,'10min','5min')", "holtWintersAberration(%s,1,'10min','5min')"]
FUNCTIONS["forecast"] = cases(
    *over(*HOLT, lists=["a.one", "a.*", "r.*", "n.*", "empty.all", "nothing", "inf.up", "slow.one", "zero.one", "neg.one", "counter.gap", "odd.one", "seriesByTag('name=disk.used')"] + ["group(a.one,r.s01)"]),
    *over("holtWintersConfidenceArea(%s,3,'10min','5min')", lists=["a.one", "a.two", "r.s01", "sumSeries(r.*)", "a.*", "slow.one", "seriesByTag('name=disk.used')"]),
    *["holtWintersForecast(r.s01,%s)" % rest for rest in ("'10min','2min'", "'10min','1min'", "'10min','30s'", "'5min'", "'5min','1d'", "'0s','5min'", "'1h','5min'", "'x'", "'7min','x'", "bootstrapInterval='10min',seasonality='3min'", "'90s','3min'")], "holtWintersForecast(r.s01)", "holtWintersForecast()",
    *["holtWintersConfidenceBands(r.s01,%s)" % rest for rest in ("2,'10min','5min'", "0.5,'10min','5min'", "delta=1,bootstrapInterval='10min',seasonality='5min'", "0,'10min','5min'", "-1,'10min','5min'")], "holtWintersConfidenceBands(r.s01)", "holtWintersAberration(r.s01,0.1,'10min','5min')", "holtWintersAberration(n.*,0.1,'10min','3min')",
    "holtWintersForecast(sumSeries(r.*),'10min','5min')", "holtWintersForecast(movingAverage(r.s01,2),'10min','5min')", "scale(holtWintersForecast(r.s01,'10min','5min'),2)", "sumSeries(holtWintersConfidenceBands(r.s01,3,'10min','5min'))", "holtWintersAberration(alias(r.s01,'x'),0.1,'10min','5min')", "holtWintersForecast(countSeries(a.*),'10min','5min')",
    "holtWintersForecast(holtWintersForecast(r.s01,'5min','2min'),'5min','2min')", "holtWintersConfidenceArea(holtWintersForecast(r.s01,'5min','2min'),3,'5min','2min')", "holtWintersForecast(timeShift(r.s01,'2min'),'5min','2min')", "holtWintersAberration(group(r.s01,r.s01),0.1,'10min','5min')",
    "holtWintersAberration(consolidateBy(r.s01,'max'),0.1,'10min','5min')", "holtWintersForecast(consolidateBy(r.s01,'max'),'10min','5min')",
) + cases("holtWintersForecast(r.*,'15min','5min')", "holtWintersConfidenceBands(a.*,2,'15min','4min')", "holtWintersAberration(r.*,0.5,'15min','5min')", start=917, until=2399, xff=0.5)

FUNCTIONS["query"] = cases(
    *["aliasQuery(%s)" % rest for rest in (r"servers.*.cpu.user,'user','system','%d'", r"servers.*.cpu.user,'\.cpu\.','.mem.','mem %.2f'", r"a.one,'one','*','%g x'", r"a.*,'(.*)','sumSeries(\1,a.one)','%s'", r"a.one,'one','two','%e %%'", r"a.one,'one','nothing','%d'", r"a.one,'.*','empty.all','%d'", r"a.one,'one','two','none'",
      r"a.one,'one','two','%d %d'", r"nothing,'a','b','%d'", r"a.one,'a.one','countSeries(a.*)','%s of'", r"a.one,'(','b','%d'", r"a.one,'a','\9','%d'", r"a.one,'one','one','%08.3f'", r"a.one,'one','one','%-8d|'", r"a.*,'one','one','%+d'", r"scale(a.one,2),'scale','offset','%d'", r"a.one,'one','one|scale(2)','%d'", r"a.one,'a','b'")],
    "sumSeries(aliasQuery(a.one,'one','two','%d'))", "aliasQuery(servers.*.cpu.user,search='user',replace='system',newName='%d')",
    *["applyByNode(%s)" % rest for rest in (r"servers.*.*.*,1,'divideSeries(%.cpu.user,%.mem.user)'", r"servers.*.*.*,1,'sumSeries(%.*.*)','% sum'", r"servers.*.cpu.user,1,'%.cpu.*'", r"a.*,0,'sumSeries(%.*)'", r"a.*,1,'%'", r"a.*,9,'scale(%,2)','x'", r"servers.*.*.*,2,'averageSeries(%.*)','avg %'", r"nothing,1,'%'", r"a.one,0,'nothing.%'",
      r"a.*,0,'constantLine(5)'", r"a.*,-1,'a.one%'", r"servers.*.cpu.user,-2,'sumSeries(%.*.*)'", r"servers.*.cpu.user,-3,'%.*.cpu.user'", r"{a,slow}.one,0,'%.*'", r"a.*,0,'%.one','%%'", r"a.*,0,''", r"a.*,0,'nope(%)'", r"a.*,0,'%.*|sumSeries()','pipe'", r"a.*,0,'movingAverage(%.one,2)'", r"a.*,0,'timeShift(%.one,\"1min\")'", r"servers.*.*.*,nodeNum=1,templateFunction='sumSeries(%.*.user)',newName='%'",
      r"a.*,'0','sumSeries(%.*)'", r"a.*,0", r"a.one,1,'applyByNode(a.*,1,\"%\")'", r"{slow,a}.*,0,'%.one'", r"a.*,0,'%.*',''")],
    "scale(applyByNode(a.*,0,'sumSeries(%.*)'),2)", "sumSeries(applyByNode(servers.*.*.*,1,'sumSeries(%.cpu.*)'))", "aliasByNode(applyByNode(servers.*.*.*,1,'sumSeries(%.cpu.*)'),1)", "applyByNode(sumSeries(a.*),0,'a.one')", "timeShift(applyByNode(a.*,0,'%.one'),'1min')", "movingAverage(applyByNode(a.*,0,'%.one'),2)",
    "fallbackSeries(nothing,constantLine(5))", "fallbackSeries(a.one,constantLine(5))", "fallbackSeries(nothing,nothing)", "fallbackSeries(nothing,a.*)", "fallbackSeries(a.one)", "fallbackSeries(empty.all,a.one)", "scale(fallbackSeries(nothing,a.*),2)", "fallbackSeries(sumSeries(nothing),constantLine(0))",
    *["useSeriesAbove(%s)" % rest for rest in (r"a.one,20,'one','two'", r"a.one,30,'one','two'", r"counter.{up,wrap},0,'(.*)','scale(\1,2)'", r"a.one,10,'one','*'", r"a.one,10,'one','nothing'", r"nothing,1,'a','b'", r"neg.one,-100,'neg','a'", r"a.one,10,'one','none,a.two'", r"a.one,1,'one',','",
      r"a.one,'x','one','two'", r"a.one,10,'(','x'", r"a.one,10,'a','\9'", r"a.one,10.5,'a.one','fix.none'", r"countSeries(a.*),1,'.*','a.one'")], "scale(useSeriesAbove(a.one,10,'one','two'),2)", "timeShift(useSeriesAbove(a.one,1,'one','two'),'1min')",
) + cases("applyByNode(a.*,0,'sumSeries(%.*)')", "aliasQuery(a.one,'one','two','%d')", xff=0.9) + cases("applyByNode(a.*,0,'%.$x')", "aliasQuery(a.one,'one','$x','%d')", **{"template.x": "two"})

# Families whose values are of no interest get a few only.
NAMES_ONLY = ("alias", "node", "filter", "sort", "legend")


def strip(lines):
    """Only the metrics that a file's fetches name."""
    used = set(itertools.chain.from_iterable(line[4:] for line in lines if line[0] == "fetch"))
    return [metric.line() for metric in METRICS if metric.name in used] + lines


def record_functions():
    os.makedirs(os.path.join(HERE, "functions"), exist_ok=True)
    for family, requests in FUNCTIONS.items():
        lines = []
        for target, start, until, request in requests:
            if family in NAMES_ONLY and (start, until) == SPAN:
                until = start + 300
            lines += record(METRICS, target, start, until, **request)
        write("functions/%s.txt" % family, "Answers of graphite-web 1.1.10.", strip(lines))


# ---- maxDataPoints ---------------------------------------------------------------------------------

CONSOLIDATE = ["a.one", "a.*", "slow.one", "group(a.two,slow.two,odd.one)", "constantLine(5)", "countSeries(a.*)", "fix.*", "fix.none", "inf.*", "empty.all", "nothing",
               "group(a.one,constantLine(3),fix.early)", "timeShift(a.one,'5min')", "summarize(a.one,'7min')", "group(fix.late,fix.early)", "fix.off",
               *["consolidateBy(group(a.two,a.four),'%s')" % f for f in ("sum", "min", "max", "first", "last", "avg_zero", "avg")], "consolidateBy(countSeries(a.*),'sum')",
               "setXFilesFactor(a.two,0.7)", "asPercent(a.one,slow.one)"]


def record_consolidation():
    lines = []
    for target, (start, until), most in itertools.product(CONSOLIDATE, [SPAN, (617, 1999), (0, 2400)], [1, 2, 3, 5, 7, 11, 14, 15, 16, 39, 40, 100]):
        if target != "a.one" and most not in (1, 3, 7, 15) or start == 0 and most > 7:
            continue
        store = datalib.STORE = Store(METRICS)
        series = evaluator.evaluateTarget(context(start, until), [target])
        lines += [["case", start, until, "max=%d" % most], ["target", target]] + [["fetch", *fetch] for fetch in store.fetches]
        try:
            shown = json.loads(renderViewJson({"maxDataPoints": most}, series).content)
            lines += [["points", one["target"]] + ["%r@%d" % tuple(point) for point in one["datapoints"]] for one in shown]
        except Exception as error:
            lines.append(["error", 500, type(error).__name__])
    write("consolidate.txt", "What graphite-web 1.1.10 makes of maxDataPoints.", strip(lines))


# ---- the target grammar ----------------------------------------------------------------------------

TARGETS = [
    "a", "a.b", "a.b.c", "a.*.c", "a.b?", "a.[bc]d", "a.[!b]", "a.**", "a.{b,c}", "a.{b,c}d{e,f}", "{a,b}", "a.{b}", "a{b", "a}b", "a..b", "a.", ".a", ".", "a b", "a .b", "a. b",
    "a,b", "a;b=c", "a=b", "=a", "a|b", "a | f()", "a|f()", "a|f(1)|g(2)", "a|f(1) | g(2) | h", "a||f()", "|f()", "f(a)|g()", "f(a|g())", "f(a|g()|h(2),b)", "f(a)|g()|", "f(a)|5", "template(a.$x,x=1)|f()",
    "f()", "f( )", "f(a", "f(a))", "f(a)b", "f(a) b", "f (a)", "f(a,)", "f(,a)", "f(a,b", "f(a;b)", "f(f(f(f(a))))", "f(f(f(f(a)))", "5f(a)", "_f(a)", "f5(a)", "f-g(a)", "f.g(a)", "F(a)", "f(a)(b)", "f(a).b", "f((a))", "f(a.b(c))",
    "f(1)", "f(-1)", "f(+1)", "f(1.5)", "f(-1.5)", "f(.5)", "f(1.)", "f(1e3)", "f(1.5e3)", "f(1E3)", "f(1e-3)", "f(-1e-3)", "f(1e+3)", "f(1e3.5)", "f(1.5.2)", "f(1a)", "f(1 )", "f( 1 )", "f(1 ,2)", "f(1,2)", "f(1 2)", "f(1.a)", "f(1.5a)", "f(1_000)", "f(0x10)", "f(007)",
    "f(9223372036854775807)", "f(1|g())", "f(1-2)", "f(--1)", "f(1\n)", "f(1.0)", "f(1e400)", "f(12345678901234567890.5)", "f(5.b,2)", "f(5;,2)",
    "f(true)", "f(True)", "f(FALSE)", "f(true.x)", "f(true_x)", "f(truex)", "f(true )", "f(true,false)", "f(true-x)", "f(true$x)", "f(none)", "f(None)", "f(none.x)", "f(nonesuch)", "f(inf)", "f(INF)", "f(info)", "f(inf.x)", "f(-inf)", "f(nan)", "f(null)", "f(infinity)", "f(true*)", "true", "none.x", "inf", "truth(a)", "f(true(a))",
    "f('a')", 'f("a")', "f('')", 'f("")', "f('a,b')", "f('a)')", "f('a''b')", "f('a'b)", "f('a' , \"b\")", "f(\"a'b\")", "f('a\"b')", "f('a\\'b')", "f('a\\\\')", "f('a\\')", "f('\\x41')", "f('\\xzz')", "f('\\n')", "f('a\nb')", "f('a", "f('a\")", "f(\"a\"\"b\")", "f('''')", "f('é')", "'a'", "f('  a  ')", "f( ' a ' )", "f('(^.*$)', \"\\1 A\")",
    "f(a=1)", "f(a,b=1)", "f(a,b=1,c=2)", "f(a,b=1,c)", "f(a, b = 1)", "f(a,b='x')", "f(a,b=c.d)", "f(a,b=g(c))", "f(a,b=g(c,d=1))", "f(a,b=)", "f(a,b=c=d)", "f(a,=b)", "f(a,b==c)", "f(a,b=true)", "f(a,b=none)", "f(a,b=inf)", "f(a.b=c)", "f(a,b.c=d)", "f(a,1=2)", "f(a,b=1,b=2)", "f(a,b=c|g())", "f(a,b c=1)", "f(a,b=1 c)", "f(a,b\\=c)", "f(a\\=c)",
    "a\\.b", "a\\,b", "a\\(b\\)", "a\\{b\\}", "a\\'b", 'a\\"b', "a\\|b", "a\\\\b", "a\\xb", "a\\", "f(a\\,b,c)", "a.{b\\,c,d}", "a\\ b", "a\\=b", "\\(a", "a.{b\\}}", "\\.", "a\\.b.c",
    "template(a)", "template(a.$x)", "template(a.$x,x=b)", "template(a.$x,x='b')", "template(a.$1,'b')", "template(a.$1,5)", "template(a.$1,'b','c',1.5)", "template(a.$1,'b',x='c')", "template(a.$x,x='b','c')", "template(f(a.$x),x='b')", "template(f(a.$x,$y),x='b',y=2)",
    "template(f(a),g(b))", "template(f(a),true)", "template (a.$x , x = 'b')", "template()", "template", "template.a", "template(a", "template(template(a,x=1),y=2)", "f(template(a.$x,x='b'))", "f(template(a.$x,x='b'),template(b.$x,x=1))", "templates(a)", "templatef(a,'x')", "template(5,x=1)", "template('a',x=1)", "template(a|f(),x=1)", "template(a.$x,x=1e3)", "template(a.$x,x=true)", "template(a.$x,x=)",
    "seriesByTag('a=b')", "seriesByTag( 'a=b' ,  \"c=d\" )", "f(seriesByTag('a=b'))", "f(  seriesByTag('a=b')  ,1)", "seriesByTag('a=b')|f()", "a|seriesByTag('a=b')", "seriesByTag()", "seriesByTag(a)", "seriesByTag(f(a),5)", "seriesByTag ('a=b')", "seriesByTags('a=b')", "seriesByTag('a=b',x=1)",
    "", " ", "\n", "(", ")", "()", "''", ",", "a.$b", "$a", "a.#b", "a:b", "a/b", "a<b>", "a&b", "a%20b", "a@b", "a!b", "a~b", "a^b", "a`b", "a+b", "a-b", "a_b", "a\x7fb", "a*b", "\ta.b", "f(\na,\n\tb\n)", "a[b", "a]b", "f(a)\n", "f(a)|\ng()", "a\n|g()",
    "sumSeries(a.*.b, scale(c.d, 2.5) | offset(-1), constantLine(1e3), \"x\", none, true, inf, k=v.w)", "alias(movingAverage(a.b.{c,d}.*,'1h',xFilesFactor=0.5),'it''s')", "aliasByNode(a.b,1,'dc',-1)|sortByName(true,reverse=false)",
    "a.b.c.d.e.f.g.h.i.j.k", "f(" * 12 + "a" + ")" * 12, "f(" * 12 + "a" + ")" * 11, "f(a,b=" * 6 + "c" + ")" * 6,
]


def shown_argument(tokens):
    if tokens.expression:
        return shown(tokens)
    if tokens.string == "''" or tokens.string == '""':
        return '""'
    value = evaluator.evaluateScalarTokens(tokens)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def shown_call(call, first=None):
    if call.funcname == "seriesByTag":
        return "tagged " + json.dumps(call.raw)
    arguments = ([first] if first else []) + [shown_argument(argument) for argument in call.args]
    arguments += ["%s=%s" % (kwarg.argname, shown_argument(kwarg.args[0])) for kwarg in call.kwargs]
    return "%s(%s)" % (call.funcname, ", ".join(arguments))


def shown(tokens):
    inner = tokens.expression
    text = shown_simple(inner)
    for piped in inner.pipedCalls:
        text = shown_call(piped.call, text)
    return text


def shown_simple(tokens):
    if tokens.template:
        template = tokens.template
        values = ["%s=%s" % (kwarg.argname, shown_argument(kwarg.args[0])) for kwarg in template.kwargs]
        values += ["%d=%s" % (i + 1, shown_argument(argument)) for i, argument in enumerate(template.args)]
        return "template{%s}" % ", ".join([shown_simple(template)] + values)
    if tokens.call:
        return shown_call(tokens.call)
    return "path " + json.dumps(tokens.pathExpression)


def record_grammar():
    from pyparsing import ParseException
    lines = []
    for target in TARGETS:
        try:
            answer = shown(grammar.parseString(target))
        except ParseException:
            answer = "error"
        lines.append([target, answer])
    write("grammar.txt", "A target, and what graphite-web 1.1.10 reads in it.", lines)


# ---- times -----------------------------------------------------------------------------------------

TIMES = """
now|NOW| now |-1h|-1min|-1m|-1mon|-1y|-1d|-1w|-1s|-1hour|-1hours|-1h30min|-1h-30min|+1h|now-1h|now+1h|now-1d+1h|now-|1h|-|+|-h|-1|-1x|-90seconds|-1 h|- 1h|-0h
0|1|1769000000|99999999999|-1769000000|20260121|19000101|20261301|20260132|20261231|20260230|00000000|12345678|2026012|202601211
today|yesterday|tomorrow|noon|midnight|teatime|noon yesterday|noon_yesterday|midnight tomorrow|teatime today|noon+1h|noonyesterday-1d|6am|6pm|12am|12pm|13pm|24am|25am|6amtoday|6pm yesterday|06:30|6:30|06:30pm|6:30am|12:30pm|00:00|23:59|24:00|12:60|1:2|:30|123:00
06:30 yesterday|06:30_20260115|18:00_20260115|noon20260115|8am01/15/26|01/15/26|1/5/2026|1/5/69|1/5/70|12/31/99|13/1/26|2/30/26|1/5|1/2/3/4|01/15/1899|1/1/0|a/b/c|jan1|jan15|january15|jan|jan 1|feb29|feb30|dec31|15jan|jan15th|jan2026|noon jan1|6pm feb 10|midnight_jan5+1h|mar8
monday|mon|tue|wed|thu|fri|sat|sun|sunday|weds|thursdayish|noon monday|6am tuesday|mon-1d|friday+2h|foo|nowish|now now|noonish|am|pm|1am2pm|1am2:30|amazing|x1am|2pmtomorrow|12:00amtomorrow
20260121-1d|20260121+6h|noon 20260121|10:00_20260308|02:30_20260308|02:30_20261101|01:30_20261101|03:30_20260329|02:30_20260329|02:30_20261025|1/1/26-1s|-1min1s|-1d2h3min4s|-10000000d|-999999999d|-9999999999d|-1month|-2months|-1years|-1weekly|é|-1é|,|_|, ,|no_w|n,ow|-1_h
""".strip().replace("\n", "|").split("|")

INTERVALS = ["1h", "-1h", "+1h", "5min", "1min30s", "1d2h", "1m", "1mon", "1y", "", "h", "1", "-", "+", "--1h", "1 h", "1H", "1hour5minutes", "1h-5min", "0s", "-0s", "10000y", "2739726y", "2739727y", "1h5", "1.5h", "1wk", "1days", "1é", "99999999999999999999s", "1min5sec", "3w", " 1h", "1h ", "1séc"]


def record_times():
    lines = []
    for zone, now in (("UTC", 1769000000), ("Europe/Berlin", 1774663921), ("America/New_York", 1793500000), ("Asia/Kolkata", 1772000000)):
        tz = pytz.timezone(zone)
        for text in TIMES + (["253402300799", "253402300800", "19010101"] if zone == "UTC" else []):
            try:
                time = parseATTime(text, tz, datetime.datetime.fromtimestamp(now, tz))
                answer = int(time.timestamp())
            except Exception:
                answer = "error"
            lines.append([zone, now, text, answer])
    write("times.txt", "A zone, now, a time, and what graphite-web 1.1.10 reads in it.", lines)
    lines = []
    for text in INTERVALS:
        try:
            answer = int(parseTimeOffset(text).total_seconds())
        except Exception:
            answer = "error"
        lines.append([text, answer])
    write("intervals.txt", "An interval, and what graphite-web 1.1.10 reads in it.", lines)


# ---- /functions ------------------------------------------------------------------------------------


def record_table():
    """As /functions answers, but for what 1.1.10 can no longer tell on this Python, and the descriptions."""
    import inspect
    from graphite.functions import SeriesFunctions
    from graphite.functions.views import jsonInfinityEncoder
    table = {}
    for name, function in SeriesFunctions().items():
        signature = inspect.signature(function)
        shown = signature.replace(parameters=list(signature.parameters.values())[1:])
        table[name] = {"group": function.group, "function": name + str(shown), "params": function.params}
    with open(os.path.join(HERE, "functions.json"), "w") as out:
        out.write(json.dumps(table, cls=jsonInfinityEncoder, sort_keys=True).replace("Infinity", "1e9999").replace('}, "', '},\n"') + "\n")


if __name__ == "__main__":
    record_functions()
    record_consolidation()
    record_grammar()
    record_times()
    record_table()
