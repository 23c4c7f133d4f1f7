"""Hostile clients, and what is measured while they run: resident memory, and how long a good client waits.

Each attack is a function of a server and a deadline, in ATTACKS. It leaves nothing open.
"""

import math
import socket
import threading
import time
from urllib.parse import quote

import requests

from plumbago import aligned_now, wait_until

MIB = 1 << 20
METRICS = 2000
# The longest time between two looks at the resident memory.
LOOK_EVERY = 0.05


def resident(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def processor_time(server):
    """Seconds of all threads, user and system."""
    with open(f"/proc/{server.process.pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def fill(server, points=60):
    """METRICS metrics `attack.hNNNN.long-…` with points of the last minutes, and `good.one`."""
    now = aligned_now()
    long = "long-component" * 8
    for begin in range(0, METRICS, 200):
        names = [f"attack.h{i:04}.{long}" for i in range(begin, begin + 200)]
        server.send([(name, now - points + i, float(i)) for name in names for i in range(points)])
    server.send([("good.one", now - points + i, float(i)) for i in range(points)])
    wait_until(lambda: len(server.get("/metrics/find?query=attack.*&format=json").json()) == METRICS, 60, "not all arrived")


class Watch:
    """Measures while a block runs."""

    def __init__(self, server):
        self.server, self.waits, self.failures, self.peak = server, [], [], 0

    def __enter__(self):
        self.before = self.peak = resident(self.server)
        self.over = threading.Event()
        self.threads = [threading.Thread(target=each, daemon=True) for each in (self.look, self.ask)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def look(self):
        while not self.over.wait(LOOK_EVERY):
            self.peak = max(self.peak, resident(self.server))

    def ask(self):
        """A good client: a health check and a small render, each on a new connection."""
        paths = ["/healthy", "/render?target=good.one&format=json&from=-1h"]
        while not self.over.wait(LOOK_EVERY):
            for path in paths:
                begun = time.monotonic()
                try:
                    status = requests.get(self.server.url(path), timeout=30).status_code
                except requests.RequestException as error:
                    status = repr(error)
                self.waits.append(time.monotonic() - begun)
                if status != 200:
                    self.failures.append((path, status))

    @property
    def p99(self):
        return sorted(self.waits)[math.ceil(len(self.waits) * 0.99) - 1] if self.waits else 0

    @property
    def growth(self):
        return self.peak - self.before


def together(count, run):
    """Runs so many clients at once."""
    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def repeat(server, deadline, requests_of, clients=8):
    """Clients that send one request after the other, and do not care about answers."""
    def client(number):
        while time.monotonic() < deadline:
            path, body = requests_of[number % len(requests_of)]
            try:
                requests.post(server.url(path), data=body, timeout=max(0.1, deadline - time.monotonic()))
            except requests.RequestException:
                pass
    together(clients, client)


def form(**fields):
    return {"format": "json", "from": "-1h", **fields}


def braces(server, deadline):
    patterns = ["{a,b}" * (size // 5) for size in (40, 100, 3900, 8600, 60_000)]
    nested = "{" * 2000 + "a,b" + "}" * 2000
    repeat(server, deadline, [("/metrics/find", {"query": pattern}) for pattern in [*patterns, nested]])


def names(server, deadline):
    nodes = ",".join(["0"] * 4000)
    calls = ["aliasByNode(attack.*.*,%s)", "groupByNodes(attack.*.*,'sum',%s)", "mapSeries(attack.*.*,%s)",
             "asPercent(attack.*.*,None,%s)"]
    repeat(server, deadline, [("/render", form(target=call % nodes)) for call in calls])


def templates(server, deadline):
    keys = {f"template[k{i}]": "x" for i in range(65_536)}
    repeat(server, deadline, [("/render", form(target="template(good.$k7)", **keys))], 4)


def expansions(server, deadline):
    body = "&".join(f"query=a{i}" for i in range(120_000))
    body = body[: 1 << 20]
    headed = [("/metrics/expand?" + "x=1", body)]
    def client(_):
        while time.monotonic() < deadline:
            try:
                headers = {"Content-Type": "application/x-www-form-urlencoded"}
                requests.post(server.url(headed[0][0]), data=headed[0][1], headers=headers, timeout=max(0.1, deadline - time.monotonic()))
            except requests.RequestException:
                pass
    together(4, client)


def patterns(server, deadline):
    hard = r"(?=(.*)(.*)(.*)(.*)x)(.*)(.*)y$"
    calls = [f"grep(attack.*.*,'{hard}')", f"aliasSub(attack.*.*,'{hard}','z')", rf"aliasSub(attack.*.*,'(?=(.*)(.*)(.*)q)(.)','\1')"]
    repeat(server, deadline, [("/render", form(target=call)) for call in calls])


def windows(server, deadline):
    calls = ["ksTest2(attack.h0000.*,attack.h0001.*,3000)", "pearson(attack.h0000.*,attack.h0001.*,3000)",
             "movingWindow(attack.*.*,'1h','diff')", "stdev(attack.*.*,3000)", "movingMedian(attack.*.*,'3h')"]
    # The longest alone may be more than there is for queries; shorter ones fill what there is.
    spans = [{"from": span} for span in ("-6h", "-3h", "-2h", "-1h")]
    repeat(server, deadline, [("/render", form(target=call, **span)) for call in calls for span in spans], 20)


def abandoned(server, deadline):
    """Clients that ask for heavy work and leave at once."""
    def client(number):
        hours = [6, 2, 1][number % 3]
        window = quote(f"movingMedian(attack.*.*,'{hours}0min')")
        target = window if number % 2 else quote("attack.*.*")
        while time.monotonic() < deadline:
            with server.connect("http") as connection:
                connection.sendall(f"GET /render?target={target}&from=-{hours}h&format=json HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                time.sleep(0.1)
    together(18, client)


def opened(server, count, begin, deadline, trickle=None):
    """Connections that send the same beginning, and then at most a byte a second."""
    connections = []
    try:
        for _ in range(count):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(5)
            try:
                connection.connect(("127.0.0.1", server.ports["http"]))
                connection.sendall(begin)
            except OSError:
                connection.close()
                continue
            connection.setblocking(False)
            connections.append(connection)
        while time.monotonic() < deadline:
            for connection in connections if trickle else []:
                try:
                    trickle(connection)
                except OSError:
                    pass
            time.sleep(1)
    finally:
        for connection in connections:
            connection.close()


def half_heads(count):
    return lambda server, deadline: opened(server, count, b"GET /render HTTP/1.1\r\nHost: x\r\nX-A: ", deadline, lambda one: one.send(b"x"))


def slow_readers(count):
    target = quote("group(" + ",".join(["attack.*.*"] * 5) + ")")
    head = f"GET /render?target={target}&from=-1h&format=json HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    return lambda server, deadline: opened(server, count, head, deadline, lambda one: one.recv(1))


def slow_bodies(count):
    head = b"POST /render HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000000\r\n\r\n"
    return lambda server, deadline: opened(server, count, head + b"x" * 1000, deadline, lambda one: one.send(b"x"))


# Name and attack. Those with a number of connections come with the number.
ATTACKS = {
    "braces": braces,
    "names": names,
    "templates": templates,
    "expansions": expansions,
    "patterns": patterns,
    "windows": windows,
    "abandoned": abandoned,
}
CONNECTIONS = {"half-heads": half_heads, "slow-readers": slow_readers, "slow-bodies": slow_bodies}
