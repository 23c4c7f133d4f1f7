#!/usr/bin/env python3
"""Records which series graphite-web 1.1.10 finds by tags, into tags.jsonl.

    tests/install-peers                       (once, in the root of the repository)
    tests/.cache/venv/bin/python crates/api/tests/record_tags.py

The first line holds the names; each other line holds expressions and the names found, or graphite-web's words.
"""

import itertools
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../../tests"))
import graphite_web

NAMES = [
    "cpu;dc=ams;host=a1;role=db",
    "cpu;dc=ams;host=a2;role=web",
    "cpu;dc=ber;host=b1;role=db",
    "cpu;dc=ber;host=b2",
    "disk.used;dc=ams;host=a1;device=sda",
    "disk.used;dc=ams;host=a1;device=sdb1",
    "disk.used;dc=cdg;host=c.1;device=sda",
    "load;env=prod",
    "load;env=Prod",
    "load;env=pre prod",
    "load;env=é",
    "load;e=1;env=staging",
    "odd;a-b=1;a.b=2;a_b=3",
    "odd;eq=a=b",
    "odd;empty_like=0",
]

ATOMS = [
    "dc=ams", "dc=", "dc!=", "dc!=ams", "dc=~a", "dc=~^a", "dc=~ams|ber", "dc=~^ams|ber", "dc=~ms", "dc!=~a", "dc!=~.*",
    "dc=~", "dc=~.*", "dc=~.+", "dc=nothing", "host=a1", "host=~[ab][12]$", "host!=~b", "role=db", "role=", "role!=",
    "role!=db", "role=~(db|)$", "name=cpu", "name!=cpu", "name=~disk", "name=~disk\\.", "name=disk.used", "device=~sd.$",
    "device=~sd(?!b)", "device=~(s)d\\w1", "env=prod", "env=Prod", "env=~(?i)prod", "env=pre prod", "env=é", "env=~..$",
    "a.b=2", "a-b=1", "a_b!=", "eq=a=b", "eq=~a=", "missing=", "missing!=", "missing=x", "e=1", "=x", "x", "", "a;b=c", "a=b;",
    "a!b=c", "dc==ams", "dc=!ams", "dc=~(", "dc=~[", "dc!=~*", "name=", "name!=",
]


def cases():
    yield []
    for atom in ATOMS:
        yield [atom]
    useful = [atom for atom in ATOMS if atom not in ("=x", "x", "", "a;b=c", "a=b;", "a!b=c", "dc=~(", "dc=~[", "dc!=~*")]
    for i, (one, other) in enumerate(itertools.permutations(useful, 2)):
        if i % 5 == 0:
            yield [one, other]
    for i, three in enumerate(itertools.combinations(useful, 3)):
        if i % 53 == 0:
            yield list(three)


def main():
    with tempfile.TemporaryDirectory() as root:
        graphite_web.start(root)
        from graphite.storage import STORE

        database = STORE.tagdb
        names = [database.tag_series(name) for name in NAMES]
        # Not through its cache.
        database.cache = None
        lines = [{"names": names}]
        for expressions in cases():
            try:
                lines.append({"expressions": expressions, "found": sorted(database.find_series(expressions))})
            except ValueError as error:
                lines.append({"expressions": expressions, "error": str(error)})
            except Exception as error:
                lines.append({"expressions": expressions, "crash": type(error).__name__})
        with open(os.path.join(HERE, "tags.jsonl"), "w") as out:
            for line in lines:
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
        print(f"{len(lines) - 1} answers recorded")


main()
