"""What a server answers about a data folder of some version: `folders/make` asks the binary that wrote the folder,
`test_versions.py` asks this one."""

SETTINGS = '[own]\nevery = "off"\n[ingest]\nflush_after = "10min"\n'
# Long enough that no point of the folders expires before the year 2033.
BEFORE = "[all]\npattern = .*\nretentions = 60s:7y,600s:15y,3600s:30y\n"
SCHEMAS = "[all]\npattern = .*\nretentions = 60s:8y,600s:15y,3600s:30y\n"

HOUR, DAY, YEAR = 3600, 86400, 365 * 86400
# Target, and seconds before `now`: each stage. The coarse ones also have points that were derived from finer ones.
SPANS = [
    ("a.*", 2 * HOUR),
    ("seriesByTag('name=versions.tagged')", 2 * HOUR),
    ("coarse.*", 2 * HOUR),
    ("coarse.*", 10 * YEAR + HOUR),
    ("a.*", 20 * YEAR + HOUR),
    ("coarse.*", 20 * YEAR + HOUR),
]


def answers(server, now):
    """Render over every stage, find, tags and events, as of `now`."""
    found = {}
    for target, before in SPANS:
        series = server.render(target, **{"from": now - before, "until": now, "now": now})
        shown = {}
        for one in series:
            times = [time for _, time in one["datapoints"]]
            step = times[1] - times[0]
            shown[one["target"]] = [step, *[[time, value] for value, time in one["datapoints"] if value is not None]]
        found[f"{target} {before}"] = shown
    found["find"] = {query: server.find(query) for query in ["*", "a.*", "a.deux.*", "coarse.*"]}
    found["events"] = server.get("/events/get_data", **{"from": now - DAY, "until": now}).json()
    found["events of web"] = server.get("/events/get_data", tags="web n1", **{"from": now - DAY, "until": now}).json()
    return found
