"""TLS at the HTTP address: versions of HTTP, certificates of server and clients, reloading, handshakes that fail or never
end. The clients are curl, openssl and Python's ssl.
"""

import resource
import shutil
import socket
import ssl
import struct
import subprocess
import time

import pytest
import requests

from certificates import Authority
from plumbago import QUIET, Plumbago, binary, eventually, run, wait_until
from relays import free_port

RELOAD = '[rules]\nreload_every = "100ms"\n'


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("authority") / "own")
    authority.issue("server")
    authority.issue("client")
    return authority


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """An authority that the server does not know."""
    stranger = Authority(tmp_path_factory.mktemp("authority") / "other", "strangers")
    stranger.issue("server")
    stranger.issue("client")
    return stranger


def install(pair, folder):
    """Copies a certificate and its key to where the server reads them; each file changes as a whole."""
    for source, name in zip(pair, ["server.pem", "server.key"], strict=True):
        shutil.copy(source, folder / "draft")
        (folder / "draft").rename(folder / name)


def pair(authority, name):
    return authority.folder / f"{name}.pem", authority.folder / f"{name}.key"


class Encrypted(Plumbago):
    """A server with a certificate of `authority` in its folder."""

    def __init__(self, folder, authority, name="server", more="", **kwargs):
        super().__init__(folder, **kwargs)
        install(pair(authority, name), self.folder)
        files = f'tls_certificate = "{self.folder}/server.pem"\ntls_key = "{self.folder}/server.key"\n'
        (self.folder / "plumbago.toml").write_text(QUIET + RELOAD + f"[http]\n{files}{more}")
        self.scheme = "https"
        self.authority = authority
        # A variable with authorities of the machine would take the place of `verify`.
        self.http.trust_env = False
        self.http.verify = str(authority.ca)

    def curl(self, path, *options):
        """Status, version of HTTP and body."""
        command = ["curl", "-sS", "-m", "20", "--cacert", self.authority.ca, "-w", "\n%{http_code} %{http_version}", *options]
        done = subprocess.run([*map(str, command), self.url(path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        body, _, end = done.stdout.rpartition("\n")
        return (*end.split(), body)

    def context(self, client=None):
        context = ssl.create_default_context(cafile=self.authority.ca)
        if client:
            context.load_cert_chain(*client)
        return context

    def connect_tls(self, context=None):
        plain = socket.create_connection(("127.0.0.1", self.ports["http"]), timeout=20)
        return (context or self.context()).wrap_socket(plain, server_hostname="localhost")

    def serial(self):
        """The serial number of the certificate that a new connection gets."""
        with self.connect_tls() as connection:
            return connection.getpeercert()["serialNumber"]

    def handshakes(self, outcome):
        return self.counter("plumbago_tls_handshakes_total", outcome=outcome)


@pytest.fixture
def encrypted(tmp_path, authority):
    """Makes servers, which end with the test."""
    made = []

    def make(*args, start=True, **kwargs):
        server = Encrypted(tmp_path / f"server{len(made)}", *(args or [authority]), **kwargs)
        made.append(server)
        return server.start() if start else server

    yield make
    for server in made:
        server.stop()


def answers(connection, path="/healthy"):
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return connection.recv(4096).split(b"\r\n")[0] == b"HTTP/1.1 200 OK"


def test_clients_choose_the_version_of_http(encrypted):
    server = encrypted()
    now = int(time.time()) // 60 * 60 - 60
    server.send([(f"second.a{i}", now, float(i)) for i in range(2000)])
    for option, version in [("--http2", "2"), ("--http1.1", "1.1")]:
        for path in ["/", "/healthy", "/ready", "/metrics", "/version", "/admin/status"]:
            assert server.curl(path, option)[:2] == ("200", version), path
        status, _, body = server.curl(f"/render?target=second.*&format=csv&from={now - 1}&until={now + 1}", option, "--compressed")
        assert status == "200" and len(body.splitlines()) >= 2000
        body = "".join(f"second.posted{i} 1 -1\n" for i in range(20000))
        (server.folder / "body").write_text(body)
        status, _, body = server.curl("/ingest", option, "--data-binary", f"@{server.folder}/body")
        assert status == "200" and "20000" in body, body
        assert server.curl("/nowhere", option)[0] == "404"
    # Two requests at a time on one connection.
    both = subprocess.run(
        ["curl", "-sS", "--http2", "--parallel", "--cacert", str(server.authority.ca), server.url("/version"), server.url("/version")],
        capture_output=True, text=True, timeout=20,
    )
    assert both.returncode == 0 and len(both.stdout) == 2 * len(server.get("/version").text), both


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_openssl_agrees_on_version_and_protocol(encrypted, version):
    server = encrypted()
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.ports['http']}", version, "-alpn", "h2,http/1.1"]
    done = subprocess.run([*command, "-CAfile", str(server.authority.ca)], input="", capture_output=True, text=True, timeout=20)
    assert "Verify return code: 0 (ok)" in done.stdout and "ALPN protocol: h2" in done.stdout, done.stdout
    old = subprocess.run([*command[:4], "-tls1_1", "-cipher", "DEFAULT:@SECLEVEL=0"], input="", capture_output=True, text=True, timeout=20)
    assert old.returncode != 0 and server.handshakes("failed") == 1


@pytest.mark.parametrize("version", ["--http2", "--http1.1"])
def test_a_request_with_very_many_headers_is_refused(encrypted, version):
    server = encrypted()
    for count, status in [(90, 200), (101, 431)]:
        headers = [word for i in range(count) for word in ("-H", f"x-{i}: 1")]
        assert server.curl("/version", version, *headers)[0] == str(status)


def test_plain_text_to_a_port_with_tls_is_said_once_a_minute(encrypted):
    server = encrypted()
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=10) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while plain.recv(4096):
                pass
    assert server.handshakes("plain_text") == 5
    assert server.logs().count("sent plain text, and this address takes TLS alone") == 1


def test_tls_to_a_plain_port_is_said_once_a_minute(server):
    for _ in range(5):
        with pytest.raises(requests.exceptions.SSLError):
            requests.get(server.url("/version").replace("http:", "https:"), timeout=10)
    wait_until(lambda: "a client speaks TLS to an HTTP address without it" in server.logs())
    assert server.logs().count("a client speaks TLS") == 1


def test_a_new_certificate_is_in_force_without_a_restart(encrypted, authority, stranger):
    server = encrypted()
    before = server.serial()
    with server.connect_tls() as old:
        assert answers(old)
        authority.issue("second")
        install(pair(authority, "second"), server.folder)
        wait_until(lambda: server.serial() != before, 10, "the new certificate is not in force")
        after = server.serial()
        # The connection that was open has its own.
        assert answers(old) and old.getpeercert()["serialNumber"] == before

        # Bad ones: not a certificate, the key of another, one that has expired.
        problems = 0
        authority.issue("over", start="20200101000000Z", end="20210101000000Z")
        (server.folder / "nonsense").write_text("nonsense")
        nonsense = server.folder / "nonsense"
        for bad in [(nonsense, pair(authority, "second")[1]), (pair(authority, "second")[0], pair(stranger, "server")[1]), pair(authority, "over")]:
            install(bad, server.folder)
            problems += 1
            wait_until(lambda n=problems: server.logs().count("the old certificate stays in force") >= n, 10, str(bad))
            assert server.serial() == after
        assert "is not that of the certificate" in server.logs() and "over.pem" not in server.logs() and "has expired" in server.logs()
        install(pair(authority, "server"), server.folder)
        wait_until(lambda: server.serial() == before, 10, "a good certificate after bad ones is not in force")


def test_a_hangup_reads_the_certificate_at_once(encrypted, authority):
    server = encrypted(start=False)
    settings = server.folder / "plumbago.toml"
    settings.write_text(settings.read_text().replace('"100ms"', '"1h"'))
    server.start()
    before = server.serial()
    authority.issue("third")
    install(pair(authority, "third"), server.folder)
    server.process.send_signal(1)
    wait_until(lambda: server.serial() != before, 10, "SIGHUP reads nothing")


def test_an_expired_certificate_is_said_at_the_start_and_counted(encrypted, authority):
    authority.issue("past", start="20200101000000Z", end="20210101000000Z")
    authority.issue("soon", days=3)
    server = encrypted(authority, name="past", start=False)
    server.http.verify = False
    server.start()
    assert "the certificate has expired" in server.logs()
    assert server.counter("plumbago_tls_certificate_days_left", listener="http") < -1000
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        server.connect_tls()
    wait_until(lambda: server.handshakes("server_certificate") == 1)
    soon = encrypted(authority, name="soon")
    assert "the certificate expires soon" in soon.logs()
    assert 2 < soon.counter("plumbago_tls_certificate_days_left", listener="http") < 3.01


def test_clients_need_a_certificate_of_the_authority(encrypted, authority, stranger):
    server = encrypted(more=f'tls_client_ca = "{authority.ca}"\n', start=False)
    server.http.cert = tuple(map(str, pair(authority, "client")))
    server.start()
    with server.connect_tls(server.context(pair(authority, "client"))) as known:
        assert answers(known)
    for client in [None, pair(stranger, "client")]:
        with pytest.raises((ssl.SSLError, OSError)):
            with server.connect_tls(server.context(client)) as unknown:
                # With TLS 1.3 a client learns of the refusal when it reads.
                unknown.sendall(b"GET /healthy HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert unknown.recv(100)
    wait_until(lambda: server.handshakes("client_certificate") == 2)


def test_an_optional_certificate_must_be_valid(encrypted, authority, stranger):
    server = encrypted(more=f'tls_client_ca = "{authority.ca}"\ntls_clients = "optional"\n')
    for client in [None, pair(authority, "client")]:
        with server.connect_tls(server.context(client)) as known:
            assert answers(known)
    with pytest.raises((ssl.SSLError, OSError)):
        with server.connect_tls(server.context(pair(stranger, "client"))) as unknown:
            unknown.sendall(b"GET /healthy HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert unknown.recv(100)


def test_settings_that_do_not_go_together_are_refused(tmp_path, authority, stranger):
    certificate, key = pair(authority, "server")
    config = tmp_path / "plumbago.toml"

    def refusal(text):
        config.write_text("[http]\n" + text)
        done = run("check-config", "--config", config)
        started = run("serve", "--config", config, "--data", tmp_path / "data", "--line", "off", "--pickle", "off", "--http", "127.0.0.1:0")
        assert done.returncode == 1 and started.returncode == 1
        assert not (tmp_path / "data").exists()
        return done.stderr + started.stderr

    assert refusal(f'tls_certificate = "{certificate}"').count("one is missing") == 2
    assert "needs http.tls_certificate" in refusal(f'tls_client_ca = "{certificate}"')
    assert "is not that of the certificate" in refusal(f'tls_certificate = "{certificate}"\ntls_key = "{pair(stranger, "server")[1]}"')
    assert "cannot read" in refusal(f'tls_certificate = "{certificate}"\ntls_key = "{tmp_path}/absent"')
    assert "no private key" in refusal(f'tls_certificate = "{certificate}"\ntls_key = "{certificate}"')
    config.write_text(f'[http]\ntls_certificate = "{certificate}"\ntls_key = "{key}"\n')
    assert run("check-config", "--config", config).returncode == 0


def test_a_public_address_with_tls_and_tokens_needs_no_further_setting(encrypted, authority):
    server = encrypted(start=False, more="tokens = 'tokens.toml'\n")
    tokens = server.folder / "tokens.toml"
    token = run("token", "add", "all", "--scope", "read,write,admin", "--file", tokens).stdout.strip()
    port, admin = free_port(), free_port()
    server.arguments = ["--http", f"0.0.0.0:{port}", "--admin", f"127.0.0.1:{admin}"]
    command = [binary(), "serve", "--config", "plumbago.toml", "--data", "data", "--line", "off", "--pickle", "off", *server.arguments]
    process = subprocess.Popen(command, cwd=server.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        printed = iter(process.stdout.readline, "ready\n")
        assert f"https://0.0.0.0:{port}" in "".join(printed)
        ask = lambda url: requests.get(url, headers={"Authorization": f"Bearer {token}"}, verify=str(authority.ca), timeout=10)
        assert ask(f"https://127.0.0.1:{port}/version").status_code == 200
        # Administration has an address of its own on loopback, without TLS.
        assert ask(f"http://127.0.0.1:{admin}/metrics").status_code == 200
    finally:
        process.terminate()
        assert process.wait(30) == 0
    assert "unencrypted" not in process.stderr.read()


def test_the_programs_own_commands_speak_tls(encrypted, authority):
    server = encrypted()
    server.send([("second.a", 1, 1.0)])
    at = f"127.0.0.1:{server.ports['http']}"
    settings = server.folder / "plumbago.toml"
    settings.write_text(settings.read_text() + f'[listen]\nhttp = "{at}"\n')
    done = run("flush", "--config", settings)
    assert done.returncode == 0, done.stderr
    # A server with another certificate is not this one.
    other = server.folder / "other.toml"
    other.write_text(f'[http]\ntls_certificate = "{pair(authority, "client")[0]}"\ntls_key = "x"\n[listen]\nhttp = "{at}"\n')
    refused = run("flush", "--config", other)
    assert refused.returncode == 1 and "http.tls_certificate" in refused.stderr, refused.stderr


def resident(server):
    """Bytes of resident memory."""
    return int(server.counter("process_resident_memory_bytes"))


def test_a_thousand_handshakes_that_never_end_neither_hold_memory_nor_others(encrypted):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    server = encrypted()
    before = resident(server)
    slow = []
    try:
        for i in range(1000):
            connection = socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=20)
            # Nothing, the beginning of a record, the beginning of a handshake.
            connection.sendall([b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"][i % 3])
            slow.append(connection)
        for _ in range(3):
            began = time.monotonic()
            assert requests.get(server.url("/healthy"), verify=str(server.authority.ca), timeout=5).status_code == 200
            assert time.monotonic() - began < 1
        grown = resident(server) - before
        assert grown < 64 << 20, f"{grown >> 20} MiB"
        # They end by themselves.
        eventually(lambda: server.handshakes("timed_out"), 1000, 30)
        wait_until(lambda: server.counter("plumbago_http_connections") < 10)
    finally:
        for connection in slow:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert server.logs().count("took longer than ten seconds") <= 2


def http2_frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def test_answers_over_http2_that_are_not_taken_make_room(encrypted):
    """Clients with a window of 0 ask, and never take a byte of the answer."""
    server = encrypted(more="max_connections = 4\n")
    context = ssl.create_default_context(cafile=server.authority.ca)
    context.set_alpn_protocols(["h2"])
    # ":method: GET", ":scheme: https" and ":path: /" of HPACK's table, and ":authority" with its value.
    head = b"\x82\x87\x84\x41\x09localhost"
    window = http2_frame(4, 0, 0, struct.pack(">HI", 4, 0))
    kept = []
    try:
        for _ in range(4):
            connection = context.wrap_socket(socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=20), server_hostname="localhost")
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + window + http2_frame(4, 1, 0) + http2_frame(1, 5, 1, head))
            kept.append(connection)
        time.sleep(2.5)
        for _ in range(4):
            began = time.monotonic()
            assert requests.get(server.url("/version"), verify=str(server.authority.ca), timeout=10).status_code == 200
            assert time.monotonic() - began < 1.5
    finally:
        for connection in kept:
            connection.close()
