"""Whisper files as carbon would write them, one point at a time in order of arrival."""

from pathlib import Path

import whisper


def archives(retentions):
    """`10s:2h,60s:1d` as whisper's list of (seconds per point, points), finest first."""
    return sorted(whisper.parseRetentionDef(part) for part in retentions.split(","))


def path_of(root, name):
    return Path(root) / (name.replace(".", "/") + ".wsp")


def create(root, name, retentions, x_files_factor, method):
    path = path_of(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    whisper.create(str(path), archives(retentions), xFilesFactor=x_files_factor, aggregationMethod=method)
    return path


def write(path, points, now):
    """Points (time, value) in order of arrival. Whisper has no memory: each update reads and rewrites the coarser archives."""
    with open(path, "r+b") as file:
        for time, value in points:
            whisper.file_update(file, value, time, now)


def read(path, archive, now):
    """{time: value} of one archive, read by its step."""
    step, count = archive
    (start, until, step), values = whisper.fetch(str(path), now - step * count, now, now=now, archiveToSelect=step)
    return {t: v for t, v in zip(range(start, until, step), values) if v is not None}
