"""A steady sender whose batches are all known: a test kills the server under it and counts them afterwards."""

import threading
import time

import wire


class Steady:
    """Sends batch i (a point for each of `metrics` names at second start + i) until stopped or the connection breaks.

    The value encodes batch and metric, so that a value that is read back proves where it came from.
    """

    def __init__(self, server, prefix, start, metrics=50, batches_per_second=200):
        self.server, self.prefix, self.start, self.metrics = server, prefix, start, metrics
        self.pause = 1 / batches_per_second
        self.sent_at = {}
        self._stop = threading.Event()

    def name(self, metric):
        return f"{self.prefix}.m{metric:03}"

    def batch(self, i):
        return [(self.name(m), self.start + i, float(i * 1000 + m)) for m in range(self.metrics)]

    def run_from(self, first):
        """Starts sending at batch `first` in a thread."""
        self._stop.clear()
        self.next = first
        self.thread = threading.Thread(target=self._send, daemon=True)
        self.thread.start()

    def _send(self):
        try:
            with self.server.connect() as connection:
                while not self._stop.is_set():
                    connection.sendall(wire.lines(self.batch(self.next)))
                    self.sent_at[self.next] = time.monotonic()
                    self.next += 1
                    time.sleep(self.pause)
        except OSError:
            # The test killed the server.
            pass

    def stop(self):
        self._stop.set()
        self.thread.join()

    def whole_batches(self):
        """The number of batches, from the first on, that are served completely. Fails when a metric has a hole.

        While points come in, a query is not a snapshot: it may read one metric a few batches later than another. At rest metrics
        differ by the one batch that was cut in two; more means that points of one connection were reordered.
        """
        columns = self.server.columns(f"{self.prefix}.*", self.start - 1, self.start + self.next + 10)
        counts = []
        for m in range(self.metrics):
            column = columns.get(self.name(m), {})
            count = len(column)
            expected = {self.start + i: float(i * 1000 + m) for i in range(count)}
            assert column == expected, f"{self.name(m)} has holes or wrong values: {first_difference(expected, column)}"
            counts.append(count)
        at_rest = not self.thread.is_alive()
        assert not at_rest or max(counts) - min(counts) <= 1, "points of one connection are served out of order"
        return min(counts)

    def newest(self):
        """The number of served batches, found quickly by the last name of the last batch."""
        last = self.name(self.metrics - 1)
        recent = self.start + self.next - 100
        served = self.server.columns(last, recent, recent + 200)[last]
        return max(served) - self.start + 1 if served else 0


def first_difference(expected, seen):
    for key in sorted(set(expected) | set(seen)):
        if expected.get(key) != seen.get(key):
            return f"at {key} {expected.get(key)} was expected and {seen.get(key)} is served"
    return "none"
