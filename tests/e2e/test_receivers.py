"""Input of each receiver: the server accepts all that carbon's receivers accept, and an invalid item costs only itself."""

import gzip
import os
import pickle
import random
import socket
import struct
import threading
import time

import pytest

import wire
from plumbago import QUIET, aligned_now, eventually, wait_until


@pytest.fixture
def at():
    """A recent moment; points of these tests are within the minute after it."""
    return aligned_now(10) - 120


def served(server, name, at):
    return lambda: server.points(name, **{"from": at - 1, "until": at + 60})


def refused(server, reason, sample):
    """Whether the last rejects contain an input with `sample`, rejected for `reason`."""
    return any(one["reason"] == reason and sample in one["sample"] for one in server.rejects())


# Line.

GOOD_LINES = [
    b"%s 1 %d\n",
    b"%s 1.0 %d\r\n",
    b"%s\t1\t%d\n",
    b"   %s    1 \t  %d  \n",
    b"%s +1 %d\n",
    b"%s 1e0 %d\n",
    b"%s 1. %d\n",
    b"%s 0.1e1 %d\n",
    b"%s 1 %d.75\n",
    b"%s 1 %d",
    b"\n\n%s 1 %d\n\n",
    b"%s 1 %d\r",
]


@pytest.mark.parametrize("form", range(len(GOOD_LINES)))
def test_a_line_is_accepted_in_every_form_that_carbon_accepts(shared_server, at, form):
    name = f"second.line.form{form}"
    shared_server.send_bytes(GOOD_LINES[form] % (name.encode(), at))
    eventually(served(shared_server, name, at), {at: 1.0})


def test_python_floats_are_values(shared_server, at):
    texts = {".5": 0.5, "1_000": 1000.0, "-0": 0.0, "1E3": 1000.0, "0001": 1.0, "1e-400": 0.0, "9007199254740993": 2.0**53}
    data = "".join(f"second.floats {text} {at + i}\n" for i, text in enumerate(texts))
    shared_server.send_bytes(data.encode())
    eventually(served(shared_server, "second.floats", at), {at + i: v for i, v in enumerate(texts.values())})


def test_minus_one_is_now(shared_server):
    before = int(time.time())
    shared_server.send_bytes(b"second.line.now 5 -1\n")
    eventually(lambda: list(shared_server.points("second.line.now", **{"from": before - 1}).values()), [5.0])
    (when,) = shared_server.points("second.line.now", **{"from": before - 1})
    assert before <= when <= int(time.time())


BAD_LINES = [
    (b"second.bad.two 1\n", "bad_line"),
    (b"second.bad.four 1 %d 4\n", "bad_line"),
    (b"second.bad.name\n", "bad_line"),
    (b"second.bad.value one %d\n", "bad_value"),
    (b"second.bad.hex 0x1 %d\n", "bad_value"),
    (b"second.bad.nan nan %d\n", "nan_value"),
    (b"second.bad.time 1 never\n", "bad_timestamp"),
    (b"second.bad.nantime 1 nan\n", "bad_timestamp"),
    (b"second.bad.inftime 1 inf\n", "bad_timestamp"),
    (b"second.bad.N 1 N\n", "bad_timestamp"),
    (b"second.bad.\xff\xfe 1 %d\n", "not_utf8"),
    (b"second.bad.\x01 1 %d\n", "name_control_character"),
    (b"... 1 %d\n", "name_empty"),
    (b"second." + b".".join([b"deep"] * 64) + b" 1 %d\n", "name_too_many_components"),
    (b"second." + b"n" * 5000 + b" 1 %d\n", "name_too_long"),
    (b"second.bad.old 1 1000\n", "too_old"),
    (b"x" * 20000 + b" 1 %d\n", "line_too_long"),
    (b"x" * 3_000_000 + b" 1 %d\n", "line_too_long"),
]


@pytest.mark.parametrize("case", range(len(BAD_LINES)), ids=lambda i: f"{i}-{BAD_LINES[i][1]}")
def test_an_invalid_line_costs_only_itself(shared_server, at, case):
    line, reason = BAD_LINES[case]
    line = line.replace(b"%d", str(at).encode())
    before = shared_server.rejected(reason)
    good = f"second.neighbour{case}"
    with shared_server.connect() as connection:
        connection.sendall(f"{good} 1 {at}\n".encode() + line + f"{good} 2 {at + 1}\n".encode())
        eventually(served(shared_server, good, at), {at: 1.0, at + 1: 2.0})
        # The connection still works.
        connection.sendall(f"{good} 3 {at + 2}\n".encode())
        eventually(served(shared_server, good, at), {at: 1.0, at + 1: 2.0, at + 2: 3.0})
    eventually(lambda: shared_server.rejected(reason) - before, 1)
    sample = line[:20].decode(errors="replace").split()[0].split("\x01")[0].split("\ufffd")[0]
    assert refused(shared_server, reason, sample)


def test_empty_components_are_dropped(shared_server, at):
    shared_server.send_bytes(f".second..dots. 1 {at}\n".encode())
    eventually(served(shared_server, "second.dots", at), {at: 1.0})


def test_a_name_may_have_64_components(shared_server, at):
    name = "second." + ".".join(f"c{i}" for i in range(63))
    shared_server.send([(name, at, 1.0)])
    eventually(served(shared_server, name, at), {at: 1.0})


def test_a_tagged_name_is_stored_in_canonical_form(shared_server, at):
    shared_server.send_bytes(f"second.tagged;b=2;a=1 1 {at}\nsecond.tagged;a=1;b=2 2 {at + 1}\n".encode())
    eventually(served(shared_server, "second.tagged;a=1;b=2", at), {at: 1.0, at + 1: 2.0})


def test_bytes_may_arrive_one_by_one(shared_server, at):
    data = wire.lines(("second.slowly", at + i, i / 3) for i in range(5))
    with shared_server.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(data)):
            connection.send(data[i : i + 1])
            time.sleep(0.001)
        eventually(served(shared_server, "second.slowly", at), {at + i: i / 3 for i in range(5)})


def test_a_point_is_served_at_once(shared_server, at):
    """As soon as the receiver has read it, while the connection stays open."""
    with shared_server.connect() as connection:
        for i in range(20):
            name = f"second.at-once.m{i}"
            start = time.monotonic()
            connection.sendall(f"{name} {i} {at}\n".encode())
            wait_until(lambda name=name: served(shared_server, name, at)(), 1, "the point was not served")
            assert time.monotonic() - start < 0.5
            assert shared_server.find(name) == [name]


# UDP.


def test_datagrams_of_lines(shared_server, at):
    for i in range(20):
        lines = b"\n".join(f"second.udp.m{m} {i} {at + i}".encode() for m in range(5))
        shared_server.send_datagram(lines + (b"\n" if i % 2 else b""))
        time.sleep(0.002)
    for m in range(5):
        eventually(served(shared_server, f"second.udp.m{m}", at), {at + i: float(i) for i in range(20)})


def test_an_invalid_datagram_costs_only_its_invalid_lines(shared_server, at):
    shared_server.send_datagram(f"second.udp.good 1 {at}\nnonsense\nsecond.udp.good 2 {at + 1}".encode())
    shared_server.send_datagram(os.urandom(1400))
    shared_server.send_datagram(b"")
    shared_server.send_datagram(f"second.udp.good 3 {at + 2}".encode())
    eventually(served(shared_server, "second.udp.good", at), {at: 1.0, at + 1: 2.0, at + 2: 3.0})


# Pickle.


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("shape", ["tuples", "lists", "outer tuple", "ints", "texts", "bytes"])
def test_every_pickle_protocol_and_shape(shared_server, at, protocol, shape):
    name = f"second.pickle.p{protocol}.{shape.replace(' ', '-')}"
    items = {
        "tuples": [(name, (at, 1.5)), (name, (at + 1, -2.5))],
        "lists": [[name, [at, 1.5]], [name, [at + 1, -2.5]]],
        "outer tuple": ((name, (at, 1.5)), (name, (at + 1, -2.5))),
        "ints": [(name, (at, 15)), (name, (at + 1, -(2**40)))],
        "texts": [(name, (str(at), "1.5")), (name, (f"{at + 1}.2", "-2.5"))],
        "bytes": [(name.encode(), (at, 1.5)), (name.encode(), (at + 1, -2.5))],
    }[shape]
    expected = {at: 15.0, at + 1: -(2.0**40)} if shape == "ints" else {at: 1.5, at + 1: -2.5}
    # Python 3 pickles bytes as a call of _codecs.encode in protocols 0 to 2. Carbon rejects it; Plumbago reads it and does not call it.
    shared_server.send_bytes(wire.frame(pickle.dumps(items, protocol)), "pickle")
    eventually(served(shared_server, name, at), expected)


def test_pickles_of_python_2(shared_server, at):
    # pickle.dumps([('second.pickle.py2', (at, 1.5))], protocol=2) there: SHORT_BINSTRING, LONG1 for longs, BINPUT between.
    name = b"second.pickle.py2"
    body = b"\x80\x02]q\x00U" + bytes([len(name)]) + name + b"q\x01"
    body += b"J" + struct.pack("<i", at) + b"G" + struct.pack(">d", 1.5) + b"\x86q\x02\x86q\x03a."
    shared_server.send_bytes(wire.frame(body), "pickle")
    # Protocol 0 is text only.
    text = b"(lp0\n(S'second.pickle.py2'\np1\n(I%d\nF2.5\ntp2\ntp3\na." % (at + 1)
    shared_server.send_bytes(wire.frame(text), "pickle")
    eventually(served(shared_server, name.decode(), at), {at: 1.5, at + 1: 2.5})


def test_invalid_items_cost_only_themselves(shared_server, at):
    name = "second.pickle.items"
    items = [
        (name, (at, 1.0)),
        (name, at, 2.0),
        "text",
        None,
        (name, (at + 1, "x")),
        (name, (at + 2, None)),
        (name, (at + 3, float("nan"))),
        (7, (at, 5.0)),
        (name,),
        {"a": 1},
        (name, (at + 9, 6.0)),
    ]
    shared_server.send_bytes(wire.frame(pickle.dumps(items, 2)), "pickle")
    eventually(served(shared_server, name, at), {at: 1.0, at + 9: 6.0})


def test_an_item_may_have_several_points_as_in_go_carbon(shared_server, at):
    name = "second.pickle.several"
    shared_server.send_bytes(wire.frame(pickle.dumps([(name, (at, 1.0), (at + 1, 2.0))], 2)), "pickle")
    eventually(served(shared_server, name, at), {at: 1.0, at + 1: 2.0})


class Touch:
    """Unpickling this would make a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def nested(depth):
    return b"(" * depth + b"l" * depth + b"."


BAD_FRAMES = {
    "empty": b"",
    "garbage": bytes(range(256)),
    "a number": pickle.dumps(5),
    "text": pickle.dumps("text"),
    "cut short": pickle.dumps([("a.b", (1, 2.0))])[:-4],
    "no stop": b"(lp0\n",
    "deep": nested(100_000),
    "a length beyond the frame": b"\x80\x02]T\xff\xff\xff\x7f",
    "a huge long": b"\x80\x02\x8b\xff\xff\xff\x7f",
    "get of nothing": b"\x80\x02h\x05.",
    "a list in itself": b"\x80\x02]q\x00h\x00a.",
    "doubling": b"\x80\x02]q\x00"
    + b"".join(b"](h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1]) for i in range(60))
    + b".",
}


@pytest.mark.parametrize("case", BAD_FRAMES)
def test_an_invalid_frame_costs_only_itself(shared_server, at, case):
    name = f"second.pickle.next-to-{case.replace(' ', '-')}"
    with shared_server.connect("pickle") as connection:
        connection.sendall(wire.frame(wire.pickled([(name, at, 1.0)])))
        connection.sendall(wire.frame(BAD_FRAMES[case]))
        connection.sendall(wire.frame(wire.pickled([(name, at + 1, 2.0)])))
        eventually(served(shared_server, name, at), {at: 1.0, at + 1: 2.0})


def test_a_pickle_runs_nothing(shared_server, at, tmp_path):
    before = shared_server.rejected("unsafe_pickle")
    made = tmp_path / "made"
    for protocol in range(6):
        body = pickle.dumps([("second.pickle.unsafe", (at, 1.0)), Touch(str(made))], protocol)
        shared_server.send_bytes(wire.frame(body), "pickle")
    eventually(lambda: shared_server.rejected("unsafe_pickle") - before, 6)
    assert not made.exists()


def test_a_frame_too_long_is_skipped(make_server, at):
    server = make_server(settings=QUIET + '[receive]\nmax_frame = "1MiB"\n')
    with server.connect("pickle") as connection:
        connection.sendall(struct.pack(">I", 8 << 20))
        for _ in range(8):
            connection.sendall(bytes(1 << 20))
        connection.sendall(wire.frame(wire.pickled([("second.pickle.behind", at, 1.0)])))
        eventually(served(server, "second.pickle.behind", at), {at: 1.0})
    eventually(lambda: server.rejected("frame_too_long"), 1)


def test_frames_are_accepted_up_to_carbons_limit_and_beyond(shared_server, at):
    points = [(f"second.pickle.long.{i:05}" + "x" * 200, at, float(i)) for i in range(10_000)]
    body = wire.frame(wire.pickled(points))
    assert len(body) > 2 << 20
    shared_server.send_bytes(body, "pickle")
    eventually(lambda: len(shared_server.columns("second.pickle.long.*", at - 1, at + 1)), len(points))


def test_a_frame_cut_short_is_counted(shared_server, at):
    before = shared_server.rejected("frame_cut_short")
    shared_server.send_bytes(wire.frame(wire.pickled([("second.pickle.cut", at, 1.0)]))[:-3], "pickle")
    eventually(lambda: shared_server.rejected("frame_cut_short") - before, 1)


# Protobuf.


def test_protobuf(shared_server, at):
    points = [(f"second.protobuf.m{m}", at + i, m + i / 7) for m in range(20) for i in range(30)]
    shared_server.send(points, "protobuf")
    for m in range(20):
        name = f"second.protobuf.m{m}"
        eventually(served(shared_server, name, at), {t: v for n, t, v in points if n == name})


BAD_PAYLOADS = {
    "garbage": os.urandom(300),
    "cut short": wire.protobuf([("second.protobuf.cut", 1, 1.0)])[:-3],
    "a length beyond the frame": b"\x0a\xff\xff\xff\xff\x0f",
    "an endless varint": b"\x0a" + b"\xff" * 40,
    "a group": b"\x0b\x0b\x0b",
}


@pytest.mark.parametrize("case", BAD_PAYLOADS)
def test_an_invalid_payload_costs_only_itself(shared_server, at, case):
    name = f"second.protobuf.next-to-{case.replace(' ', '-')}"
    with shared_server.connect("protobuf") as connection:
        connection.sendall(wire.frame(wire.protobuf([(name, at, 1.0)])))
        connection.sendall(wire.frame(BAD_PAYLOADS[case]))
        connection.sendall(wire.frame(wire.protobuf([(name, at + 1, 2.0)])))
        eventually(served(shared_server, name, at), {at: 1.0, at + 1: 2.0})


# HTTP POST.


BODIES = {
    "lines": (wire.lines, None),
    "plain text": (wire.lines, "text/plain"),
    "a form, as curl sends it": (wire.lines, "application/x-www-form-urlencoded"),
    "pickle": (wire.pickled, "application/python-pickle"),
    "protobuf": (wire.protobuf, "application/protobuf"),
    "x-protobuf": (wire.protobuf, "application/x-protobuf; charset=binary"),
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("kind", BODIES)
def test_points_by_post(shared_server, at, kind, packed):
    encode, content_type = BODIES[kind]
    name = f"second.post.{kind.replace(' ', '-').replace(',', '')}.{packed}"
    points = [(name, at + i, i / 3) for i in range(50)]
    headers = {"Content-Type": content_type} if content_type else {}
    body = encode(points)
    if packed:
        body, headers["Content-Encoding"] = gzip.compress(body), "gzip"
    answer = shared_server.post("/ingest", data=body, headers=headers)
    assert (answer.status_code, answer.json()) == (200, {"points": 50, "refused": 0})
    # A point is accepted when the answer comes.
    assert served(shared_server, name, at)() == {t: v for _, t, v in points}


def test_a_post_reports_its_invalid_points(shared_server, at):
    answer = shared_server.post("/ingest", data=f"second.post.some 1 {at}\nnonsense\nsecond.post.some 2 {at + 1}".encode())
    example = {"reason": "bad_line", "sample": "nonsense", "why": "the line does not have three fields: name, value, timestamp"}
    expected = {"points": 2, "refused": 1, "reasons": {"bad_line": 1}, "examples": [example]}
    assert (answer.status_code, answer.json()) == (200, expected)
    assert served(shared_server, "second.post.some", at)() == {at: 1.0, at + 1: 2.0}
    for body, headers in [(b"not gzip", {"Content-Encoding": "gzip"})]:
        assert shared_server.post("/ingest", data=body, headers=headers).status_code == 400
    pickled = {"Content-Type": "application/python-pickle"}
    assert shared_server.post("/ingest", data=b"garbage", headers=pickled).json()["points"] == 0
    assert shared_server.get("/ingest").status_code == 405


def test_a_post_too_large_is_rejected_also_when_gzip_hides_its_size(make_server):
    server = make_server(settings=QUIET + '[receive]\nmax_body = "100KiB"\n')
    assert server.post("/ingest", data=bytes(200_000)).status_code == 413
    bomb = gzip.compress(b"a.b 1 1\n" * 1_000_000)
    assert len(bomb) < 100_000
    assert server.post("/ingest", data=bomb, headers={"Content-Encoding": "gzip"}).status_code in (400, 413)
    assert server.counter_of_points() == 0


# Everything at once.


def misbehave(server, stop, seed):
    """Makes broken connections to every port until `stop` is set: noise, half frames, silence, sudden resets."""
    source = random.Random(seed)
    while not stop.is_set():
        listener = source.choice(["line", "pickle", "protobuf", "http"])
        try:
            with server.connect(listener) as connection:
                kind = source.choice(["noise", "noise", "half", "huge length", "reset", "nothing", "text"])
                if kind == "noise":
                    connection.sendall(source.randbytes(source.randrange(1, 60_000)))
                elif kind == "half":
                    frame = wire.frame(wire.pickled([("a.b", 1, 2.0)] * 50))
                    connection.sendall(frame[: source.randrange(len(frame))])
                elif kind == "huge length":
                    connection.sendall(b"\xff\xff\xff\xff" + source.randbytes(5000))
                elif kind == "text":
                    connection.sendall(
                        b"GET /render?target=%s HTTP/1.1\r\nHost: x\r\n" % source.randbytes(50).hex().encode()
                    )
                elif kind == "reset":
                    connection.sendall(b"x.y 1 ")
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            # The server may close such a connection.
            pass
        server.send_datagram(source.randbytes(source.randrange(1, 1000)))


def test_valid_connections_lose_nothing_next_to_broken_ones(server, seeded):
    stop = threading.Event()
    bad = [threading.Thread(target=misbehave, args=(server, stop, seeded.random())) for _ in range(6)]
    for thread in bad:
        thread.start()
    start = aligned_now() - 300
    try:
        good = {listener: server.connect(listener) for listener in ["line", "pickle", "protobuf"]}
        encode = {"line": wire.lines, "pickle": wire.pickle_frames, "protobuf": wire.protobuf_frames}
        expected = {}
        deadline = time.monotonic() + 5
        second = 0
        while time.monotonic() < deadline and second < 300:
            for listener, connection in good.items():
                points = [(f"second.good.{listener}.m{m}", start + second, float(second * 100 + m)) for m in range(50)]
                connection.sendall(encode[listener](points))
                for name, t, value in points:
                    expected.setdefault(name, {})[t] = value
            second += 1
            time.sleep(0.01)
    finally:
        stop.set()
        for thread in bad:
            thread.join()
    eventually(lambda: server.columns("second.good.*.*", start - 1, start + 300), expected, 20)
    for connection in good.values():
        connection.close()
    assert server.process.poll() is None
    assert server.rejected("bad_line") > 0


def test_connections_beyond_the_cap_are_closed_and_the_others_stay(make_server, at):
    server = make_server(settings=QUIET + "[receive]\nmax_connections = 3\n")
    kept = [server.connect() for _ in range(3)]
    for i, connection in enumerate(kept):
        connection.sendall(f"second.kept 1 {at + i}\n".encode())
    eventually(served(server, "second.kept", at), {at: 1.0, at + 1: 1.0, at + 2: 1.0})
    with server.connect() as beyond:
        beyond.settimeout(5)
        try:
            assert beyond.recv(10) == b""
        except ConnectionResetError:
            pass
    kept[1].sendall(f"second.kept 1 {at + 3}\n".encode())
    eventually(lambda: len(served(server, "second.kept", at)()), 4)
    kept.pop().close()
    # A new connection can take the free place.
    wait_until(lambda: takes_a_line(server, f"second.kept 1 {at + 4}\n"), 5)
    eventually(lambda: len(served(server, "second.kept", at)()), 5)
    for connection in kept:
        connection.close()


def takes_a_line(server, line):
    with server.connect() as connection:
        connection.settimeout(0.3)
        try:
            connection.sendall(line.encode())
            return connection.recv(10) != b""
        except TimeoutError:
            return True
        except OSError:
            return False


def test_a_silent_connection_is_closed_after_the_idle_timeout(make_server, at):
    server = make_server(settings=QUIET + '[receive]\nidle_timeout = "1s"\n')
    with server.connect() as silent, server.connect() as busy:
        silent.settimeout(0.2)
        closed_after = None
        start = time.monotonic()
        while time.monotonic() - start < 5 and closed_after is None:
            busy.sendall(f"second.busy 1 {at}\n".encode())
            try:
                assert silent.recv(10) == b""
                closed_after = time.monotonic() - start
            except TimeoutError:
                pass
        assert closed_after is not None and 0.9 < closed_after < 4
        busy.sendall(f"second.busy 2 {at + 1}\n".encode())
        eventually(served(server, "second.busy", at), {at: 1.0, at + 1: 2.0})
