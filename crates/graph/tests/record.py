"""Records which steps, limits and labels graphite-web 1.1.10 chooses for its axes, for the tests to replay.

    tests/install-peers
    tests/.cache/venv/bin/python crates/graph/tests/record.py

axes.txt holds, in words divided by tabs:

    value  LEAST MOST KEY=VALUE...  BOTTOM TOP  LABEL...          a value axis over data from LEAST to MOST
    time   FROM UNTIL PIXELS ZONE   FORM  TIME=LABEL...           a time axis: the labelled times
    lines  FROM UNTIL PIXELS ZONE   MAJOR...  /  MINOR...         and those with a line
    graph  QUERY  START STEP VALUE...                             a whole graph of one series, and what is on its axes:
    shows  FORM  VALUE LABELS...  /  TIME LABELS...

Labels are without the blank that graphite-web has after a number without a unit, and minus zero is zero.
"""

import itertools
import math
import os
import random
import sys
import urllib.parse
from datetime import datetime

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tests"))
import graphite_web

graphite_web.start()
import pytz
from graphite.render import glyph
from graphite.render.datalib import TimeSeries

HERE = os.path.dirname(os.path.abspath(__file__))


def label(text):
    text = text.strip()
    return "0" if text in ("-0", "-0.0") else text


# ---- value axes


def value_axis(least, most, asked):
    system = asked.get("yUnitSystem", "si")
    if "logBase" in asked:
        tics = glyph._LogAxisTics(least, most, unitSystem=system, base=asked["logBase"])
    else:
        tics = glyph._LinearAxisTics(least, most, unitSystem=system)
    tics.applySettings(axisMin=asked.get("yMin"), axisMax=asked.get("yMax"), axisLimit=asked.get("yLimit"))
    if "yStep" in asked:
        tics.setStep(asked["yStep"])
    else:
        divisors = [int(d) for d in asked.get("yDivisors", "4,5,6").split(",")]
        tics.chooseStep(divisors=divisors, binary=system == "binary")
    tics.chooseLimits()
    values = tics.getLabelValues()
    return tics.bottom, tics.top, [label(tics.makeLabel(value)) for value in values]


def value_cases():
    limits = [
        (0, 1), (0.0, 0.0), (5, 5), (-5, -5), (0, 100), (1, 99), (3, 7), (0.1, 0.25), (-3, 12), (-120, -40), (0, 1e6), (1e6, 1.2e6),
        (0, 123456789), (2.5e9, 9.9e12), (0, 3e15), (1e-7, 9e-7), (0, 0.004), (99.5, 100), (0, 59), (0, 3600), (0, 86400), (0, 4e7),
        (1023, 1025), (0, 2048), (7, 5e5), (12345.678, 12345.679), (-1e9, 1e9), (0, 6), (0, 11), (1.5, 3.9),
    ]
    asks = [
        {}, {"yMin": 0.0}, {"yMax": 50.0}, {"yMin": -10.0, "yMax": 110.0}, {"yMax": "max"}, {"yLimit": 80.0}, {"yStep": 25.0},
        {"yDivisors": "3"}, {"yDivisors": "2,8"}, {"yUnitSystem": "binary"}, {"yUnitSystem": "sec"}, {"yUnitSystem": "msec"},
        {"yUnitSystem": "none"}, {"logBase": 10.0}, {"logBase": 2.0}, {"logBase": math.e, "yMax": 1e4}, {"yMin": 3.0, "yStep": 7.0},
    ]
    rng = random.Random(20261121)
    for _ in range(25):
        a, b = (rng.uniform(-1, 1) * 10 ** rng.randrange(-6, 12) for _ in range(2))
        limits.append((min(a, b), max(a, b)))
    for (least, most), asked in itertools.product(limits, asks):
        yield float(least), float(most), asked


# ---- time axes


class Axis(glyph.LineGraph):
    """A graph that stops before it draws: only its time axis is wanted."""

    def __init__(self, start, until, pixels, zone):
        self.params = {}
        self.userTimeZone = zone
        self.startTime, self.endTime = start, until
        self.timeRange, self.graphWidth = until - start, pixels
        self.setupXAxis()

    def times(self, unit, step):
        when, delta = glyph.find_x_times(self.start_dt, unit, step)
        while when < self.end_dt:
            yield when
            when += delta


def since_epoch(when):
    return str(int((when - datetime(1970, 1, 1, tzinfo=pytz.utc)).total_seconds()))


def time_cases():
    starts = [1795176000, 1795213943, 1767225600 + 3 * 86400 + 12345]
    spans = [60, 300, 600, 1800, 3600, 7200, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 3 * 86400, 7 * 86400, 10 * 86400, 14 * 86400]
    spans += [30 * 86400, 90 * 86400, 180 * 86400, 365 * 86400, 730 * 86400, 5 * 365 * 86400, 20 * 365 * 86400]
    for start, span, pixels in itertools.product(starts, spans, [200, 285, 540, 1500]):
        yield start, start + span, pixels, "UTC"
    # No change of clocks within these.
    for span, zone in itertools.product(spans[:15], ["Asia/Kolkata", "America/New_York", "Australia/Adelaide"]):
        yield 1795176000, 1795176000 + span, 540, zone


# ---- whole graphs


def graph_cases():
    start = 1795176000
    for step in [10, 60, 300, 600, 1800, 3600, 4 * 3600, 86400, 7 * 86400, 30 * 86400]:
        yield "width=586&height=308", start, step, [float(i * i % 37) for i in range(60)]
    values = [100.0 + 13 * math.sin(i / 5) for i in range(60)]
    for query in [
        "", "yMin=0", "yMax=200", "yStep=5", "yUnitSystem=binary", "yUnitSystem=sec", "logBase=10", "yDivisors=3", "areaMode=all",
        "width=800&height=600", "lineMode=staircase", "lineMode=connected", "areaMode=stacked", "hideLegend=true", "yAxisSide=left",
        "xFormat=%25d.%25m.%25H", "drawNullAsZero=true", "template=noc", "title=T", "vtitle=V", "fontSize=12", "graphOnly=false",
    ]:
        yield query, start, 600, values


def graph(query, start, step, values):
    options = {}
    for name, text in urllib.parse.parse_qsl(query):
        value = int(text) if text.isdigit() else {"true": True, "false": False}.get(text, text)
        options[name] = value
    options = {"width": 330, "height": 250, "tz": "UTC", **options}
    series = TimeSeries("a", start, start + step * len(values), step, list(values))
    drawn = glyph.LineGraph(data=[series], **options)
    form = options.get("xFormat", drawn.xConf["format"])
    when, delta = glyph.find_x_times(drawn.start_dt, drawn.xConf["labelUnit"], drawn.xConf["labelStep"])
    times = []
    while when < drawn.end_dt:
        times.append(when.strftime(form))
        when += delta
    return form, [label(text) for text in drawn.yLabels], times


def main():
    with open(os.path.join(HERE, "axes.txt"), "w") as out:

        def say(*words):
            out.write("\t".join(str(word) for word in words) + "\n")

        for least, most, asked in value_cases():
            try:
                bottom, top, labels = value_axis(least, most, dict(asked))
            except (glyph.GraphError, ValueError):
                continue
            given = "&".join(f"{name}={value!r}".replace("'", "") for name, value in asked.items())
            say("value", repr(least), repr(most), given, repr(bottom), repr(top), *labels)
        for start, until, pixels, zone in time_cases():
            axis = Axis(start, until, pixels, zone)
            conf = axis.xConf
            labels = [f"{since_epoch(t)}={t.strftime(conf['format'])}" for t in axis.times(conf["labelUnit"], conf["labelStep"])]
            say("time", start, until, pixels, zone, conf["format"], *labels)
            majors = [since_epoch(t) for t in axis.times(conf["majorGridUnit"], conf["majorGridStep"])]
            minors = [since_epoch(t) for t in axis.times(conf["minorGridUnit"], conf["minorGridStep"])]
            if len(minors) < 100:
                say("lines", start, until, pixels, zone, *majors, "/", *minors)
        for query, start, step, values in graph_cases():
            form, labels, times = graph(query, start, step, values)
            say("graph", query, start, step, *(repr(value) for value in values))
            say("shows", form, *labels, "/", *times)


main()
