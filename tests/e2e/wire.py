"""Points as bytes: carbon's line, pickle and protobuf, written from the format alone, without code of the
server.
"""

import pickle
import struct


def number(value):
    """The shortest text that reads back as the same double."""
    return repr(float(value))


def lines(points):
    """`name value time\\n` for each (name, time, value)."""
    return "".join(f"{name} {number(value)} {time}\n" for name, time, value in points).encode()


def frame(body):
    """A body behind its length in four big-endian bytes."""
    return struct.pack(">I", len(body)) + body


def pickled(points, protocol=2):
    """The body of a pickle frame: [(name, (time, value)), ...]."""
    return pickle.dumps([(name, (time, value)) for name, time, value in points], protocol=protocol)


def pickle_frames(points, protocol=2, per_frame=500):
    """Frames of at most `per_frame` points, as carbon-relay sends them."""
    return b"".join(frame(pickled(points[i : i + per_frame], protocol)) for i in range(0, len(points), per_frame))


def varint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def protobuf(points):
    """The body of a protobuf frame: carbon's Payload{1: Metric{1: name, 2: Point{1: uint32 time, 2: double value}}}."""
    by_name = {}
    for name, time, value in points:
        by_name.setdefault(name, []).append((time, value))
    payload = b""
    for name, values in by_name.items():
        text = name.encode()
        metric = b"\x0a" + varint(len(text)) + text
        for time, value in values:
            point = b"\x08" + varint(time) + b"\x11" + struct.pack("<d", value)
            metric += b"\x12" + varint(len(point)) + point
        payload += b"\x0a" + varint(len(metric)) + metric
    return payload


def protobuf_frames(points, per_frame=500):
    return b"".join(frame(protobuf(points[i : i + per_frame])) for i in range(0, len(points), per_frame))
