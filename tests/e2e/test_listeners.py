"""[[listener]]: restrictions of senders by listener, TLS for carbon's protocols with a real relay, and what is refused."""

import hashlib
import socket
import ssl
import time

import pytest

import wire
from certificates import Authority
from plumbago import QUIET, Plumbago, aligned_now, eventually, run, wait_until
from relays import Relay, free_port

TOKEN = "plumbago_" + "5ec2e7" * 10


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("authority") / "own")
    authority.issue("server")
    authority.issue("sender")
    return authority


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    stranger = Authority(tmp_path_factory.mktemp("authority") / "other", "strangers")
    stranger.issue("sender")
    return stranger


def listener(name, protocol="line", **keys):
    """The text of a listener on a free port, and the port."""
    port = free_port()
    values = {"name": name, "protocol": protocol, "address": f"127.0.0.1:{port}", **keys}
    lines = [f'{key} = {value if isinstance(value, int) else chr(34) + str(value) + chr(34)}\n' for key, value in values.items()]
    return "[[listener]]\n" + "".join(lines), port


def encrypted(authority):
    return {"tls_certificate": authority.folder / "server.pem", "tls_key": authority.folder / "server.key"}


@pytest.fixture
def serve(tmp_path):
    """Starts a server with these listeners; their ports are in `ports` by name."""
    started = []

    def start(*listeners):
        server = Plumbago(tmp_path / f"server{len(started)}", settings=QUIET + '[rules]\nreload_every = "100ms"\n' + "".join(text for text, _ in listeners))
        started.append(server)
        server.start()
        for text, port in listeners:
            server.ports[text.split('"')[1]] = port
        return server

    yield start
    for server in started:
        server.stop()


def send(server, name, data, context=None):
    """Sends bytes over a connection of its own and waits until the server has closed it."""
    with socket.create_connection(("127.0.0.1", server.ports[name]), timeout=20) as plain:
        connection = context.wrap_socket(plain, server_hostname="localhost") if context else plain
        connection.sendall(data)
        if context:
            connection = connection.unwrap()
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass


def trusting(authority, client=None):
    context = ssl.create_default_context(cafile=authority.ca)
    if client:
        context.load_cert_chain(client.folder / "sender.pem", client.folder / "sender.key")
    return context


def names(server):
    tagged = server.get("/render", target="seriesByTag('name=~.')", format="json", **{"from": "-1h"}).json()
    return sorted([*server.get("/metrics/index.json").json(), *(series["target"] for series in tagged)])


def rejected(server, name, reason):
    return server.counter("plumbago_listener_rejected_total", listener=name, reason=reason)


def refused(server, name, reason):
    return server.counter("plumbago_listener_refused_total", listener=name, reason=reason)


def test_a_prefix_is_required_put_before_names_or_both(serve):
    listeners = [listener(rule, prefix="second.blue.", prefix_rule=rule) for rule in ["require", "prepend", "allow"]]
    server = serve(*listeners)
    lines = b"second.blue.NAME 1 -1\nred.NAME 1 -1\n~second.blue.NAME 1 -1\nsecond.blue.;a=b 1 -1\nx.NAME;host=a 1 -1\n"
    for rule in ["require", "prepend", "allow"]:
        send(server, rule, lines.replace(b"NAME", rule.encode()))
    eventually(lambda: names(server), sorted([
        "second.blue.require",
        "second.blue.second.blue.prepend", "second.blue.red.prepend", "second.blue.~second.blue.prepend",
        "second.blue.x.prepend;host=a", "second.blue.second.blue;a=b",
        "second.blue.allow", "second.blue.red.allow", "second.blue.x.allow;host=a",
    ]))
    # A name does not include a leading ~.
    assert rejected(server, "require", "outside_prefix") == 3
    assert server.counter("plumbago_listener_points_total", listener="prepend") == 5
    assert server.rejected("outside_prefix") == 3
    # Listeners of [listen] have no restrictions.
    server.send([("second.red.a", aligned_now(), 1.0)])
    eventually(lambda: "second.red.a" in names(server), True)


def test_a_token_is_the_first_component_and_is_never_shown(serve):
    hashed = "sha256:" + hashlib.sha256(TOKEN.encode()).hexdigest()
    server = serve(*[listener(f"with-{protocol}", protocol, tokens=hashed) for protocol in ["line", "pickle", "protobuf", "udp"]])
    now = aligned_now()
    points = [(f"{TOKEN}.second.{{}}.a", now, 1.0), ("wrong.second.{}.b", now, 1.0), (f"x{TOKEN}.second.{{}}.c", now, 1.0), ("second.{}.d", now, 1.0)]
    for protocol, encode in [("line", wire.lines), ("pickle", wire.pickle_frames), ("protobuf", wire.protobuf_frames)]:
        send(server, f"with-{protocol}", encode([(name.format(protocol), time, value) for name, time, value in points]))
    # Lines that are not points, a frame that is not one, a point that is too old.
    send(server, "with-line", f"{TOKEN}.second.x nonsense\n{TOKEN}\n{TOKEN}.a.b x 1\n{TOKEN}.second.old 1 1\n{TOKEN}.second.é\x01 1 1\n".encode())
    send(server, "with-pickle", wire.pickle_frames([])[:4] + TOKEN.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.sendto(f"{TOKEN}.second.udp.a 1 -1\nsecond.udp.b 1 -1".encode(), ("127.0.0.1", server.ports["with-udp"]))
    eventually(lambda: names(server), ["second.line.a", "second.old", "second.pickle.a", "second.protobuf.a", "second.udp.a"])
    assert [rejected(server, f"with-{protocol}", "wrong_token") for protocol in ["line", "pickle", "protobuf", "udp"]] == [3 + 0, 3, 3, 1]
    shown = [str(server.rejects()), server.logs(), server.get("/metrics").text, server.get("/admin/status").text, server.get("/metrics/index.json").text]
    server.stop()
    folder = b"".join(path.read_bytes() for path in server.data.rglob("*") if path.is_file())
    for text in [*shown, server.logs(), folder.decode(errors="replace")]:
        assert "5ec2e75ec2e7" not in text


def test_limits_hold_by_listener(serve):
    server = serve(
        listener("slow", points_per_second=100),
        listener("few", creations_per_minute=5),
        listener("small", prefix="second.small.", max_metrics=3),
        listener("lonely", connections_per_address=2),
    )
    send(server, "slow", b"".join(b"second.slow 1 -1\n" for _ in range(1000)))
    accepted = server.counter("plumbago_listener_points_total", listener="slow")
    assert 100 <= accepted <= 300 and rejected(server, "slow", "too_many_points") == 1000 - accepted
    # A minute may end in between.
    send(server, "few", b"".join(b"second.few.%d 1 -1\n" % i for i in range(100)))
    assert rejected(server, "few", "too_many_new_metrics") in (90, 95)
    send(server, "small", b"".join(b"second.small.%d 1 -1\n" % i for i in range(10)))
    assert rejected(server, "small", "too_many_metrics") == 7
    held = [socket.create_connection(("127.0.0.1", server.ports["lonely"]), timeout=10) for _ in range(4)]
    wait_until(lambda: refused(server, "lonely", "address") == 2)
    for connection in held:
        connection.close()
    wait_until(lambda: server.counter("plumbago_connections", receiver="lonely") == 0)
    send(server, "lonely", b"second.lonely 1 -1\n")
    eventually(lambda: "second.lonely" in names(server), True)


def test_addresses_outside_the_networks_are_refused(serve):
    server = serve(listener("far", networks="10.0.0.0/8"), listener("near", networks="127.0.0.0/8"), listener("far-udp", "udp", networks="10.0.0.0/8"))
    with socket.create_connection(("127.0.0.1", server.ports["far"]), timeout=10) as connection:
        assert connection.recv(10) == b""
    send(server, "near", b"second.near 1 -1\n")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.sendto(b"second.udp 1 -1", ("127.0.0.1", server.ports["far-udp"]))
    wait_until(lambda: refused(server, "far-udp", "network") == 1)
    eventually(lambda: names(server), ["second.near"])
    assert refused(server, "far", "network") == 1 and server.logs().count("outside the networks") == 2


@pytest.mark.parametrize("protocol,encode", [("line", wire.lines), ("pickle", wire.pickle_frames), ("protobuf", wire.protobuf_frames)])
def test_points_arrive_over_tls(serve, authority, protocol, encode):
    server = serve(listener("safe", protocol, **encrypted(authority)))
    now = aligned_now() - 60
    points = [(f"second.{protocol}{i}", now, float(i)) for i in range(20000)]
    send(server, "safe", encode(points), trusting(authority))
    assert server.counter("plumbago_listener_points_total", listener="safe") == 20000
    stored = server.columns(f"second.{protocol}*", now - 1, now + 1)
    assert stored == {name: {time: value} for name, time, value in points}


def test_senders_need_a_certificate_of_the_authority(serve, authority, stranger):
    server = serve(listener("certified", tls_client_ca=authority.ca, **encrypted(authority)))
    send(server, "certified", b"second.good 1 -1\n", trusting(authority, authority))
    for client in [None, stranger]:
        try:
            send(server, "certified", b"second.bad 1 -1\n", trusting(authority, client))
        except (ssl.SSLError, OSError):
            pass
    wait_until(lambda: server.counter("plumbago_tls_handshakes_total", listener="certified", outcome="client_certificate") == 2)
    eventually(lambda: names(server), ["second.good"])


def test_a_connection_outlives_a_new_certificate_and_a_stop_reads_what_was_sent(serve, authority):
    own = Authority(authority.folder.parent / f"moving{time.time_ns()}")
    certificate, key = own.issue("server")
    server = serve(listener("moving", tls_certificate=certificate, tls_key=key))
    plain = socket.create_connection(("127.0.0.1", server.ports["moving"]), timeout=20)
    connection = trusting(own).wrap_socket(plain, server_hostname="localhost")
    connection.sendall(b"second.before 1 -1\n")
    own.issue("server")
    wait_until(lambda: "new connections get the new one" in server.logs())
    connection.sendall(b"second.after 1 -1\n")
    eventually(lambda: names(server), ["second.after", "second.before"])
    connection.sendall(b"".join(b"second.last%d 1 -1\n" % i for i in range(5000)))
    server.stop()
    connection.close()
    server.start()
    assert len(names(server)) == 5002


def test_wrong_ends_of_tls_are_said(serve, authority):
    server = serve(listener("safe", **encrypted(authority)))
    with socket.create_connection(("127.0.0.1", server.ports["safe"]), timeout=10) as plain:
        plain.sendall(b"second.plain 1 -1\n")
        while plain.recv(100):
            pass
    wait_until(lambda: "sent plain text, and this address takes TLS alone" in server.logs())
    for protocol in ["line", "pickle"]:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", server.ports[protocol]), timeout=10) as plain, pytest.raises((ssl.SSLError, OSError)):
                trusting(authority).wrap_socket(plain, server_hostname="localhost")
    wait_until(lambda: "a sender speaks TLS to a listener without it" in server.logs())
    assert server.logs().count("a sender speaks TLS") == 1
    assert server.get("/metrics/index.json").json() == [] and server.rejects() == []


def test_a_real_relay_forwards_over_tls(serve, authority, tmp_path):
    server = serve(listener("relayed", prefix="second.relay.", **encrypted(authority)))
    port = free_port()
    config = tmp_path / "relay.conf"
    config.write_text(
        f"cluster safe forward 127.0.0.1:{server.ports['relayed']} proto tcp transport plain ssl;\n"
        "match * send to safe stop;\nstatistics submit every 3600 seconds prefix with relay;\n"
        f"listen type linemode 127.0.0.1:{port} proto tcp;\n"
    )
    folder = tmp_path / "relay"
    folder.mkdir()
    relay = Relay(["carbon-c-relay", "-f", str(config), "-C", str(authority.ca)], folder, port)
    try:
        now = aligned_now() - 60
        points = [(f"second.relay.a{i}", now, float(i)) for i in range(5000)]
        with socket.create_connection(("127.0.0.1", port), timeout=10) as sender:
            sender.sendall(wire.lines([*points, ("second.other", now, 1.0)]))
        eventually(lambda: server.counter("plumbago_listener_points_total", listener="relayed"), 5000, 60)
        eventually(lambda: rejected(server, "relayed", "outside_prefix") >= 1, True)
        assert server.columns("second.relay.*", now - 1, now + 1) == {name: {time: value} for name, time, value in points}
    finally:
        relay.stop()


def test_a_start_is_refused_where_settings_do_not_go_together(tmp_path):
    config = tmp_path / "plumbago.toml"
    for text, words in [
        ('name = "a"\naddress = ":2103"\n', "[[listener]] a: address"),
        ('name = "a"\nprotocol = "udp"\naddress = ":2103"\n', "UDP on an address that other machines reach needs networks"),
        (f'name = "a"\naddress = ":2103"\ntokens = "{TOKEN}"\n', "must be hashes"),
    ]:
        config.write_text("[[listener]]\n" + text)
        for command in [["check-config"], ["serve", "--data", tmp_path / "data"]]:
            done = run(*command, "--config", config)
            assert done.returncode == 1 and words in done.stderr, done.stderr
            assert "5ec2e7" not in done.stderr
    config.write_text('[[listener]]\nname = "a"\naddress = ":2103"\nnetworks = "10.0.0.0/8"\n')
    assert run("check-config", "--config", config).returncode == 0
