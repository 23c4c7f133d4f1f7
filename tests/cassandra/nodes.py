"""Real Cassandra nodes as processes: their files, start and stop. Used by tests/cassandra/node and by the tests.

A cluster is a folder: its options, one folder per node (configuration, data, logs, pid) and, where asked for, tls/ with a
certificate authority of its own. A node is a loopback address; every node of the machine has the same ports there.
Needs tests/install-peers, and only Python's own library.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
JARS = TESTS / ".cache" / "cassandra" / "jars"

# An address for each cluster of the tests, different from each other and from a cluster that a developer starts by hand.
BY_HAND = "127.0.0.1"
SHARED = "127.0.0.10"
THREE = ("127.0.0.11", "127.0.0.12", "127.0.0.13")

PORT = 9042
STORAGE_PORT = 7000

# A cold start takes 13 s on an idle machine; three at once next to a compiler take minutes.
START_SECONDS = 300
# A stop writes out every memtable.
STOP_SECONDS = 120

# Options of a cluster, and their defaults.
OPTIONS = {
    "sasi": True,
    "heap": "1G",
    "durable": False,
    "authentication": False,
    "tls": False,
    "client_certificates": False,
    "certificate_for": None,
}

# One password for every key store: the keys are made for a test and deleted with it.
STORE_PASSWORD = "plumbago"

# Packages that Java 17 must open to Cassandra 5.0, as in its own start script.
EXPORTS = {
    "java.base": "jdk.internal.misc jdk.internal.ref sun.nio.ch",
    "java.management.rmi": "com.sun.jmx.remote.internal.rmi",
    "java.rmi": "sun.rmi.registry sun.rmi.server sun.rmi.transport sun.rmi.transport.tcp",
    "java.sql": "java.sql",
    "jdk.attach": "sun.tools.attach",
    "jdk.unsupported": "sun.misc",
    "jdk.compiler": "com.sun.tools.javac.file",
}
OPENS = {
    "java.base": "java.io java.lang java.lang.module java.lang.reflect java.math java.net java.nio java.util "
    "java.util.concurrent java.util.concurrent.atomic jdk.internal.loader jdk.internal.math jdk.internal.module "
    "jdk.internal.ref jdk.internal.reflect jdk.internal.util.jar sun.nio.ch",
    "java.rmi": "sun.rmi.transport.tcp",
    "jdk.compiler": "com.sun.tools.javac",
    "jdk.management.jfr": "jdk.management.jfr",
    "jdk.management": "com.sun.management.internal",
}

YAML = """\
cluster_name: {name}
num_tokens: 16
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
data_file_directories: [{folder}/data]
commitlog_directory: {folder}/commitlog
hints_directory: {folder}/hints
saved_caches_directory: {folder}/saved_caches
cdc_raw_directory: {folder}/cdc_raw
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: "{seeds}"}}]
listen_address: {address}
rpc_address: {address}
native_transport_port: {port}
storage_port: {storage_port}
endpoint_snitch: SimpleSnitch
# All nodes of a new cluster start empty, at once: there is nothing to stream.
auto_bootstrap: false
auto_snapshot: false
sasi_indexes_enabled: {sasi}
"""

# Cassandra's own default: a kill may lose the acknowledged writes of the last second.
PERIODIC = """\
commitlog_sync: periodic
commitlog_sync_period: 1000ms
"""

# For a single node that a test kills: a write is acknowledged when it is on disk, and writes of one moment share an fsync.
GROUP = """\
commitlog_sync: group
commitlog_sync_group_window: 10ms
"""

AUTHENTICATION = """\
authenticator: PasswordAuthenticator
authorizer: CassandraAuthorizer
role_manager: CassandraRoleManager
# A right that a test grants or takes is seen at once.
roles_validity: 0ms
permissions_validity: 0ms
credentials_validity: 0ms
"""

TLS = """\
client_encryption_options:
  enabled: true
  optional: false
  keystore: {tls}/{address}.p12
  keystore_password: {password}
  truststore: {tls}/trust.p12
  truststore_password: {password}
  require_client_auth: {client_certificates}
"""

LOGBACK = """\
<configuration>
  <appender name="FILE" class="ch.qos.logback.core.FileAppender">
    <file>{folder}/system.log</file>
    <encoder><pattern>%-5level [%thread] %date{{ISO8601}} %F:%L - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="FILE"/></root>
</configuration>
"""


class CassandraError(Exception):
    """A node could not be started, stopped or queried; says why, and where its log is."""


def alive(pid):
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def accepts(address, port):
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def java():
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not found or not JARS.is_dir():
        raise CassandraError("Cassandra or its Java is not installed: run tests/install-peers")
    return found


class Node:
    """One node of a cluster, by its address."""

    def __init__(self, cluster, address):
        self.cluster = cluster
        self.address = address
        self.folder = cluster.folder / address
        self.log = self.folder / "system.log"
        # JMX listens on 127.0.0.1 for every node's address: each node has its own port.
        self.jmx_port = 7200 + int(address.rpartition(".")[2])

    @property
    def pid(self):
        """The process id, or None when the node does not run."""
        try:
            pid = int((self.folder / "pid").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if alive(pid) else None

    def state(self):
        """One of: stopped, starting, ready, paused."""
        pid = self.pid
        if pid is None:
            return "stopped"
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return "paused"
        return "ready" if accepts(self.address, PORT) else "starting"

    def spawn(self):
        """Starts the node and does not wait."""
        if self.pid is not None:
            raise CassandraError(f"{self.address} runs already, as process {self.pid}")
        if accepts(self.address, PORT):
            raise CassandraError(f"something else listens on {self.address}:{PORT}")
        self.folder.mkdir(parents=True, exist_ok=True)
        options = self.cluster.options
        words = {
            "name": self.cluster.name,
            "folder": self.folder,
            "seeds": self.cluster.nodes[0].address,
            "address": self.address,
            "port": PORT,
            "storage_port": STORAGE_PORT,
            "sasi": str(options["sasi"]).lower(),
            "tls": self.cluster.tls,
            "password": STORE_PASSWORD,
            "client_certificates": str(options["client_certificates"]).lower(),
        }
        yaml = YAML + (GROUP if options["durable"] else PERIODIC)
        yaml += (AUTHENTICATION if options["authentication"] else "") + (TLS if options["tls"] else "")
        (self.folder / "cassandra.yaml").write_text(yaml.format(**words))
        (self.folder / "logback.xml").write_text(LOGBACK.format(**words))
        self.log.unlink(missing_ok=True)
        command = [
            java(),
            f"-Xmx{options['heap']}",
            "-Xss512k",
            "-XX:+UseG1GC",
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:-UsePerfData",
            f"-javaagent:{next(JARS.glob('jamm-*.jar'))}",
            f"-Dcassandra.config=file://{self.folder}/cassandra.yaml",
            f"-Dcassandra.storagedir={self.folder}",
            f"-Dcassandra.logdir={self.folder}",
            f"-Dlogback.configurationFile={self.folder}/logback.xml",
            f"-Dcassandra.jmx.local.port={self.jmx_port}",
            "-Dcassandra.skip_wait_for_gossip_to_settle=0",
            "-Dcassandra.ring_delay_ms=5000",
            "-Dcassandra.superuser_setup_delay_ms=0",
            "-Djdk.attach.allowAttachSelf=true",
            "-Dio.netty.tryReflectionSetAccessible=true",
            "-Djava.awt.headless=true",
            *(f"--add-exports={module}/{name}=ALL-UNNAMED" for module, names in EXPORTS.items() for name in names.split()),
            *(f"--add-opens={module}/{name}=ALL-UNNAMED" for module, names in OPENS.items() for name in names.split()),
            "-cp",
            f"{JARS}/*",
            "org.apache.cassandra.service.CassandraDaemon",
        ]
        with (self.folder / "out").open("wb") as out:
            # A session of its own: the node outlives the command that started it, and Ctrl-C there does not reach it.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=self.folder, start_new_session=True
            )
        (self.folder / "pid").write_text(str(process.pid))
        self.process = process

    def is_ready(self):
        """Whether the node answers and has seen its running peers; fails when its process has ended."""
        if self.pid is None:
            raise CassandraError(f"{self.address} ended during its start: see {self.log} and {self.folder}/out\n{self.tail()}")
        if not accepts(self.address, PORT):
            return False
        log = self.log.read_text(errors="replace")
        peers = [node for node in self.cluster.nodes if node is not self and node.pid is not None]
        return all(f"{peer.address}:{STORAGE_PORT} is now UP" in log for peer in peers)

    def tail(self):
        """The last lines of its log."""
        lines = []
        for path in [self.log, self.folder / "out"]:
            if path.exists():
                lines += path.read_text(errors="replace").splitlines()[-10:]
        return "\n".join(lines)

    def start(self, progress=False):
        """Starts the node and waits until it is ready."""
        self.spawn()
        wait_until_ready([self], progress)

    def stop(self):
        """Stops the node as an operator would: it writes out its memtables and leaves the ring of its peers."""
        self._end(signal.SIGTERM, STOP_SECONDS)

    def kill(self):
        """kill -9."""
        self._end(signal.SIGKILL, 30)

    def _end(self, how, seconds):
        pid = self.pid
        if pid is not None:
            os.kill(pid, how)
            # A paused process takes only SIGKILL until SIGCONT.
            os.kill(pid, signal.SIGCONT)
            deadline = time.monotonic() + seconds
            while alive(pid):
                if time.monotonic() > deadline:
                    raise CassandraError(f"{self.address} (process {pid}) did not end within {seconds} s: see {self.log}")
                time.sleep(0.05)
        process = getattr(self, "process", None)
        if process is not None:
            process.wait()
        (self.folder / "pid").unlink(missing_ok=True)

    def pause(self):
        """SIGSTOP: its sockets stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self):
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, which):
        pid = self.pid
        if pid is None:
            raise CassandraError(f"{self.address} does not run")
        os.kill(pid, which)

    def tool(self, *arguments):
        """Runs Cassandra's nodetool on this node, with our output streams; returns its exit status."""
        opens = [f"--add-opens={module}/{name}=ALL-UNNAMED" for module, names in OPENS.items() for name in names.split()]
        exports = [f"--add-exports={module}/{name}=ALL-UNNAMED" for module, names in EXPORTS.items() for name in names.split()]
        command = [java(), "-Xmx128M", *exports, *opens, f"-Dcassandra.config=file://{self.folder}/cassandra.yaml"]
        command += [f"-Dlogback.configurationFile={self.folder}/logback.xml", f"-Duser.home={self.folder}", "-cp", f"{JARS}/*"]
        command += ["org.apache.cassandra.tools.NodeTool", "-p", str(self.jmx_port), *arguments]
        return subprocess.run(command, cwd=self.folder).returncode

    def cpu_seconds(self):
        """The processor time of the node since its start, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Cluster:
    """The nodes of one folder: new with addresses and options, or the existing ones without."""

    def __init__(self, folder, addresses=None, **options):
        self.folder = Path(folder).absolute()
        saved = self.folder / "cluster.json"
        if addresses is None:
            if not saved.exists():
                raise CassandraError(f"there is no cluster in {self.folder}: start one first")
            known = json.loads(saved.read_text())
            addresses, options = known["addresses"], known["options"]
        unknown = set(options) - set(OPTIONS)
        assert not unknown, f"no such option: {unknown}"
        self.options = {**OPTIONS, **options}
        self.name = "plumbago-tests-" + addresses[0].rpartition(".")[2]
        self.tls = self.folder / "tls"
        self.nodes = [Node(self, address) for address in addresses]
        self.folder.mkdir(parents=True, exist_ok=True)
        saved.write_text(json.dumps({"addresses": list(addresses), "options": self.options}))
        if self.options["tls"] and not (self.tls / "ca.pem").exists():
            self._make_certificates()

    @property
    def contact_points(self):
        """host:port of every node, with commas between."""
        return ",".join(f"{node.address}:{PORT}" for node in self.nodes)

    def start(self, progress=False):
        """Starts the stopped nodes, and waits until all are ready."""
        try:
            for node in self.nodes:
                if node.pid is None:
                    node.spawn()
                # The other nodes ask the first for its peers; it need not be ready for that.
                if node is self.nodes[0]:
                    _wait(lambda: accepts(self.nodes[0].address, STORAGE_PORT) or node.is_ready(), "is not reached", progress)
            wait_until_ready(self.nodes, progress)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self):
        for node in self.nodes:
            node.stop()

    def kill(self):
        for node in self.nodes:
            node.kill()

    def forget(self):
        """Kills running nodes and deletes the folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make_certificates(self):
        """tls/: a CA, a key store per node, a trust store, a certificate for clients, and an untrusted CA."""
        self.tls.mkdir(parents=True, exist_ok=True)
        for ca in ["ca", "other-ca"]:
            self._openssl(f"req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=plumbago-tests-{ca} -keyout {ca}.key -out {ca}.pem")
        for node in self.nodes:
            name = self.options["certificate_for"] or node.address
            self._sign(node.address, "ca", name)
            self._openssl(
                f"pkcs12 -export -name node -in {node.address}.pem -inkey {node.address}.key -certfile ca.pem"
                f" -passout pass:{STORE_PASSWORD} -out {node.address}.p12"
            )
        self._sign("client", "ca", "client")
        self._sign("other-client", "other-ca", "client")
        # Java does not trust certificates that openssl puts into a PKCS12 store without a key; only keytool marks them as trusted.
        keytool = [str(Path(java()).with_name("keytool")), "-importcert", "-noprompt", "-alias", "ca", "-file", "ca.pem"]
        keytool += ["-keystore", "trust.p12", "-storetype", "PKCS12", "-storepass", STORE_PASSWORD]
        self._run(keytool)

    def _sign(self, what, ca, name):
        """`what`.pem and `what`.key, signed by `ca`, for a host `name` or address."""
        is_address = name.replace(".", "").isdigit()
        (self.tls / f"{what}.ext").write_text(f"subjectAltName={'IP' if is_address else 'DNS'}:{name}\n")
        self._openssl(f"req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {what}.key -out {what}.csr")
        self._openssl(f"x509 -req -days 30 -in {what}.csr -CA {ca}.pem -CAkey {ca}.key -CAcreateserial -extfile {what}.ext -out {what}.pem")

    def _openssl(self, arguments):
        self._run(["openssl", *arguments.split()])

    def _run(self, command):
        done = subprocess.run(command, cwd=self.tls, capture_output=True, text=True)
        if done.returncode != 0:
            raise CassandraError(f"{' '.join(command)}: {done.stderr or done.stdout}")


def wait_until_ready(nodes, progress=False):
    """Waits until every node answers and sees its peers."""
    for node in nodes:
        _wait(node.is_ready, f"{node.address} is starting", progress)
        if progress:
            print(f"{node.address}:{PORT} is ready", file=sys.stderr)


def _wait(condition, what, progress):
    begin = said = time.monotonic()
    while not condition():
        now = time.monotonic()
        if now - begin > START_SECONDS:
            raise CassandraError(f"{what}: still not after {START_SECONDS} s")
        if progress and now - said >= 5:
            print(f"{what} ({now - begin:.0f} s)", file=sys.stderr)
            said = now
        time.sleep(0.1)
