#!/usr/bin/env python3
"""Records the pickles that tests/formats/pickles.rs reads, into tests/pickles/.

Run it with Python 3 when a case is added, and check in what it writes:

    crates/carbon/tests/record_pickles.py

Where a case needs Python 2, which is no longer maintained, the opcodes are assembled here as its `pickle` and
`cPickle` wrote them (Lib/pickle.py and Modules/cPickle.c of 2.7).
"""

import pathlib
import pickle
import pickletools
import struct

FOLDER = pathlib.Path(__file__).parent / "pickles"

# What every `same-*` file means.
POINTS = [
    ("servers.a.cpu", (1700000000, 1.5)),
    ("servers.b.cpu", (1700000060, -2.0)),
    ("servers.\u00e9.cpu", (1700000120.75, 3)),
]


def record(name, pickled):
    (FOLDER / f"{name}.pickle").write_bytes(pickled)


def check(pickled, expected, **options):
    """A pickle assembled by hand must be what Python reads in it."""
    got = pickle.loads(pickled, **options)
    assert got == expected, (got, expected)
    return pickled


# As carbon's own sender, `pickle.dumps(…, protocol=2)`, and with every other protocol; by the C pickler and by
# the one written in Python, which writes some opcodes differently.
for protocol in range(6):
    record(f"same-protocol-{protocol}", pickle.dumps(POINTS, protocol))
    record(f"same-protocol-{protocol}-python", pickle._dumps(POINTS, protocol))
    record(f"same-protocol-{protocol}-lists", pickle.dumps([[m, list(p)] for m, p in POINTS], protocol))
    record(f"same-protocol-{protocol}-tuple", pickle.dumps(tuple(POINTS), protocol))
    record(f"same-protocol-{protocol}-bytes", pickle.dumps([(m.encode(), p) for m, p in POINTS], protocol))
    record(f"same-protocol-{protocol}-text-numbers", pickle.dumps([(m, (str(t), str(v))) for m, (t, v) in POINTS], protocol))
    record(f"same-protocol-{protocol}-optimized", pickletools.optimize(pickle.dumps(POINTS, protocol)))
record("same-protocol-5-bytearray", pickle.dumps([(bytearray(m.encode()), p) for m, p in POINTS], 5))


def repr2(text):
    """Python 2's repr of a str."""
    return repr(text.encode())[1:].encode()


def python2(points, protocol, unicode_names=False):
    """A list of points as Python 2's pickle.py writes it."""
    out = [b"\x80\x02"] if protocol == 2 else []
    memo = [0]

    def put():
        n = memo[0]
        memo[0] += 1
        out.append(b"q" + bytes([n]) if protocol else b"p%d\n" % n)

    def number(n):
        if isinstance(n, float):
            out.append(b"G" + struct.pack(">d", n) if protocol else b"F" + repr(n).encode() + b"\n")
        elif protocol and 0 <= n < 256:
            out.append(b"K" + bytes([n]))
        elif protocol:
            out.append(b"J" + struct.pack("<i", n))
        else:
            out.append(b"I%d\n" % n)

    def name(text):
        utf8 = text.encode()
        if unicode_names and protocol:
            out.append(b"X" + struct.pack("<I", len(utf8)) + utf8)
        elif unicode_names:
            out.append(b"V" + text.encode("raw-unicode-escape") + b"\n")
        elif not protocol:
            out.append(b"S" + repr2(text) + b"\n")
        elif len(utf8) < 256:
            out.append(b"U" + bytes([len(utf8)]) + utf8)
        else:
            out.append(b"T" + struct.pack("<I", len(utf8)) + utf8)
        put()

    def pair(first, second):
        if protocol < 2:
            out.append(b"(")
        first()
        second()
        out.append(b"\x86" if protocol == 2 else b"t")
        put()

    out.append(b"]" if protocol else b"(l")
    put()
    if protocol:
        out.append(b"(")
    for metric, (time, value) in points:
        pair(lambda: name(metric), lambda: pair(lambda: number(time), lambda: number(value)))
        if not protocol:
            out.append(b"a")
    if protocol:
        out.append(b"e")
    out.append(b".")
    return b"".join(out)


for protocol in range(3):
    for unicode_names in [False, True]:
        kind = "unicode" if unicode_names else "str"
        pickled = python2(POINTS, protocol, unicode_names)
        record(f"same-python2-protocol-{protocol}-{kind}", check(pickled, POINTS, encoding="utf-8"))

# carbon-relay-ng writes one point a frame, by og-rek: no memo, marks around tuples.
record(
    "relay-ng",
    check(b"\x80\x02((U\x0dservers.a.cpu(J" + struct.pack("<i", 1700000000) + b"G" + struct.pack(">d", 1.5) + b"ttl.",
          [("servers.a.cpu", (1700000000, 1.5))]),
)

NAN, INF = float("nan"), float("inf")
record(
    "items",
    pickle.dumps(
        [
            ("now", (-1, 1)),
            ("now.float", (-1.5, 1)),
            ("now.text", ("-1", "1")),
            ("none", (1700000000, None)),
            ("nan", (1700000000, NAN)),
            ("inf", (1700000000, INF)),
            ("true", (1700000000, True)),
            ("large", (1700000000, 2**70)),
            ("negative.large", (1700000000, -(2**70))),
            ("long", (2**40, -(2**40))),
            ("time.nan", (NAN, 1)),
            ("time.inf", (INF, 1)),
            ("time.none", (None, 1)),
            ("time.text", ("soon", 1)),
            ("time.far", (2**80, 1)),
            ("value.text", (1700000000, " 1.5 ")),
            ("value.word", (1700000000, "many")),
            ("value.list", (1700000000, [1])),
            ("two", (1700000000, 1), (1700000060, 2)),
            ("two.bad", (1700000000, 1), 2),
            ["list.of.three", (1700000000, 1), (1700000060, 2)],
            ("flat", 1700000000, 1),
            ("three", (1700000000, 1, 2)),
            ("one",),
            (),
            "text",
            None,
            {"a": (1700000000, 1)},
            (5, (1700000000, 1)),
            ("name with spaces", (1700000000, 1)),
            ("", (1700000000, 1)),
        ],
        2,
    ),
)

SHARED = ("shared", (1700000000, 1))
record("shared", pickle.dumps([SHARED, SHARED, ("other", SHARED[1])], 2))

ITSELF = [("first", (1700000000, 1))]
ITSELF.append(ITSELF)
record("itself", pickle.dumps(ITSELF, 2))

record("empty", pickle.dumps([], 2))
record("empty-bytes-name", pickle.dumps([(b"", (1, 1))], 2))
record("root-number", pickle.dumps(5, 2))
record("root-dict", pickle.dumps({"a": (1, 2)}, 2))
record("cache-query", pickle.dumps({"type": "cache-query", "metric": "a.b"}, 5))

# What runs code in a careless reader.
record("unsafe-global", b"cos\nsystem\n(S'true'\ntR.")
record("unsafe-stack-global", pickle.dumps(print, 4))
record("unsafe-object", pickle.dumps([("a", (1, pathlib.PurePosixPath("a")))], 2))
record("unsafe-instance", b"(i__main__\nThing\n.")
record("unsafe-encode", b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00utf-7\x86R.")
