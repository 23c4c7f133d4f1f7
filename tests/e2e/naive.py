"""The naive model of stages: every point kept in a dictionary, every coarse slot computed from all finer ones
when a test reads it.

This is the rule that the server must follow: within a stage-0 slot the last write wins; a coarse slot is an aggregate over
stage-0 points (sum and count, extreme, latest); a point too old for stage 0 is written to the finest stage that still
holds its time, and stands there for a whole slot; xFilesFactor applies when reading.
"""

import whisper_files


class Metric:
    def __init__(self, retentions, x_files_factor=0.0, method="average"):
        self.archives = whisper_files.archives(retentions)
        self.x_files_factor = x_files_factor
        self.method = method
        # One dictionary a stage: {slot start: value}. Beyond stage 0, only directly written points.
        self.written = [{} for _ in self.archives]

    def write(self, time, value, now):
        """Takes a point, or returns False when no stage holds its time."""
        for stage, (step, count) in enumerate(self.archives):
            if step * count >= now - time:
                self.written[stage][time - time % step] = value
                return True
        return False

    def stage(self, stage):
        """{slot start: value} of a stage, as a reader sees it."""
        step = self.archives[stage][0]
        expected = step // self.archives[0][0]
        partials = self._partials(stage)
        found = {}
        for start, (value, count) in partials.items():
            if count / expected < self.x_files_factor:
                continue
            if stage > 0 and self.method == "average":
                value /= count
            elif stage > 0 and self.method == "avg_zero":
                value /= expected
            found[start] = value
        return found

    def _partials(self, stage):
        """{slot start: (sum, extreme or latest value; stage-0 points in it)}."""
        if stage == 0:
            return {start: (value, 1) for start, value in self.written[0].items()}
        step = self.archives[stage][0]
        finer = self._partials(stage - 1)
        made = {}
        for start in sorted(finer):
            coarse = start - start % step
            made[coarse] = self._merge(made[coarse], finer[start]) if coarse in made else finer[start]
        whole = step // self.archives[0][0]
        for start, value in self.written[stage].items():
            made[start] = (value * whole if self.method in ("average", "avg_zero") else value, whole)
        return made

    def _merge(self, earlier, later):
        a, b = earlier[0], later[0]
        merged = {
            "average": lambda: a + b,
            "avg_zero": lambda: a + b,
            "sum": lambda: a + b,
            "last": lambda: b,
            "max": lambda: max(a, b),
            "min": lambda: min(a, b),
            "absmax": lambda: max(a, b, key=abs),
            "absmin": lambda: min(a, b, key=abs),
        }[self.method]()
        return merged, earlier[1] + later[1]
