"""BigGraphite 0.14.20 at the other end of a pipe: one request per line on standard input, one answer per line on standard
output, both JSON. Runs in tests/.cache/biggraphite; tests/e2e/biggraphite.py sends the requests and documents them.
"""

import json
import os
import sys
import traceback
import types

# Only answers go to standard output; output of libraries goes elsewhere.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

from biggraphite import metric as bg_metric  # noqa: E402
from biggraphite.drivers import cassandra as bg_cassandra  # noqa: E402
from cassandra.auth import PlainTextAuthProvider  # noqa: E402
from cassandra.cluster import Cluster  # noqa: E402
from cassandra.policies import WhiteListRoundRobinPolicy  # noqa: E402


class Agent:
    def __init__(self, contact_points, port, keyspace, user, password, replication):
        self.keyspace = keyspace
        self.replication = replication
        self.options = {
            "contact_points": contact_points,
            "port": port,
            "keyspace": keyspace,
            "username": user,
            "password": password,
            "timeout": 30.0,
            # Every read marks its metric: the tests check the row.
            "read_on_sampling_rate": 0,
        }
        self.accessors = {}
        self.finder = None
        self.session = connect(contact_points, port, user, password).connect()

    def accessor(self, writer, replica):
        """The accessor of a writer, which keeps its downsampler from one request to the next."""
        if (writer, replica) not in self.accessors:
            made = bg_cassandra.build(**self.options, writer=writer, replica=replica)
            made.connect()
            self.accessors[writer, replica] = made
        return self.accessors[writer, replica]

    def reader(self):
        return self.accessor(0, 0)

    def keyspaces(self):
        """Both keyspaces as its share/schema.cql makes them: the data without a commit log."""
        for name, durable in [(self.keyspace, "false"), (self.keyspace + "_metadata", "true")]:
            self.session.execute(
                f'CREATE KEYSPACE IF NOT EXISTS "{name}" WITH replication ='
                f" {{'class': 'SimpleStrategy', 'replication_factor': {self.replication}}} AND durable_writes = {durable}",
                timeout=60,
            )

    def cql(self, statement, parameters):
        rows = self.session.execute(statement, parameters or None, timeout=120)
        return [list(row) for row in rows]

    def create(self, metrics):
        """metrics: {name: {"aggregator", "retention", "carbon_xfilesfactor"}}, as in their config."""
        for name, config in metrics.items():
            metadata = bg_metric.MetricMetadata.from_string_dict(config)
            self.reader().create_metric(bg_metric.make_metric_with_defaults(name, metadata))

    def write(self, writer, replica, points, flush):
        """Points (name, time, value) as a carbon plugin passes them: one call each, in order."""
        accessor = self.accessor(writer, replica)
        known = {}
        for name, time, value in points:
            if name not in known:
                known[name] = accessor.get_metric(name)
                assert known[name] is not None, f"{name} was never created"
            accessor.insert_points(known[name], [(time, value)])
        if flush:
            self.flush(accessor)

    def flush(self, accessor):
        # BigGraphite's own flush() skips points outside of its queue, and does not wait.
        delayed = accessor._CassandraAccessor__delayed_writer
        for metric, rows in list(delayed._points.items()):
            rows = [(time, value, count, stage) for (stage, time), (value, count) in rows.items()]
            accessor.insert_downsampled_points(metric, rows)
        delayed.clear()

    def forget(self, writer, replica):
        """Empties the downsampler, as a restart does."""
        accessor = self.accessors.pop((writer, replica))
        self.flush(accessor)
        accessor.shutdown()

    def metric(self, name):
        found = self.reader().get_metric(name)
        return found and {"name": found.name, "id": str(found.id), "config": found.metadata.as_string_dict()}

    def glob(self, pattern):
        """The metrics and the directories of a pattern."""
        reader = self.reader()
        return [sorted(reader.glob_metric_names(pattern)), sorted(reader.glob_directory_names(pattern))]

    def read(self, name, start, until, stage):
        """[time, value] of one stage, by the stage's number."""
        metric = self.reader().get_metric(name)
        assert metric is not None, f"{name} is unknown"
        stage = metric.metadata.retention.stages[stage]
        return list(self.reader().fetch_points(metric, start, until, stage))

    def finder_of_graphite(self):
        if self.finder is None:
            import django

            django.setup()
            from biggraphite.plugins import graphite

            class Known:
                """Replaces a cache of metadata, whose answers could be old."""

                get_metric = self.reader().get_metric

            self.finder = graphite.Finder(accessor=self.reader(), metadata_cache=Known(), carbonlink="_DISABLED")
            self.finder._carbonlink = graphite._DISABLED
        return self.finder

    def find(self, pattern):
        """[path, is it a leaf] as graphite-web's finder returns them."""
        finder = self.finder_of_graphite()
        from graphite.storage import FindQuery

        return sorted([node.path, node.is_leaf] for node in finder.find_nodes(FindQuery(pattern, None, None)))

    def fetch(self, pattern, start, until, now):
        """{path: [from, until, step, values]} as graphite-web's finder fetches them."""
        fetched = self.finder_of_graphite().fetch([pattern], start, until, now=now)
        return {one["path"]: [*one["time_info"], one["values"]] for one in fetched}


def connect(contact_points, port, user, password):
    return Cluster(
        contact_points,
        port,
        auth_provider=PlainTextAuthProvider(user, password) if user else None,
        load_balancing_policy=WhiteListRoundRobinPolicy(contact_points),
    )


def main():
    opening = json.loads(sys.stdin.readline())
    agent = None
    for line in sys.stdin:
        request = json.loads(line)
        what = request.pop("do")
        try:
            agent = agent or Agent(**opening)
            answer = {"said": getattr(agent, what)(**request)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        ANSWERS.write(json.dumps(answer, default=plain) + "\n")
        ANSWERS.flush()


def plain(value):
    """Types that JSON lacks: sets and maps of CQL as lists, everything else as text."""
    if isinstance(value, types.MappingProxyType) or hasattr(value, "items"):
        return dict(value.items())
    return str(value)


if __name__ == "__main__":
    main()
