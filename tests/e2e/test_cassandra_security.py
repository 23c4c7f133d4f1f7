"""Access to Cassandra: passwords, TLS, client certificates, a second cluster for names, the least rights of a role. Each
error names its cause and a remedy.
"""

import re
import time

import pytest

from biggraphite import BigGraphite
from cassandra import OverCassandra, flush, listens
from nodes import Cluster
from plumbago import aligned_now, wait_until

GUARDED = "127.0.0.15"
MISNAMED = "127.0.0.16"
PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A node that requires a password, TLS and a client certificate."""
    cluster = Cluster(
        tmp_path_factory.mktemp("guarded"), [GUARDED], heap="512M", authentication=True, tls=True, client_certificates=True
    )
    cluster.start()
    yield cluster
    cluster.forget()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A node that requires a password, over plain connections."""
    cluster = Cluster(tmp_path_factory.mktemp("plain"), [MISNAMED], heap="512M", authentication=True)
    cluster.start()
    yield cluster
    cluster.forget()


@pytest.fixture
def as_superuser(plain, tmp_path):
    """Runs CQL on the plain node."""
    peer = BigGraphite(tmp_path / "superuser", plain.contact_points, "none", user="cassandra", password="cassandra")
    # The first role is created a moment after the node is ready.
    wait_until(lambda: peer.cql("SELECT role FROM system_auth.roles"), 30, "there is no role")
    yield peer.cql
    peer.close()


def tls(cluster, client="client", ca="ca"):
    lines = f'tls_ca = "{cluster.tls}/{ca}.pem"\n'
    if client is not None:
        lines += f'tls_certificate = "{cluster.tls}/{client}.pem"\ntls_key = "{cluster.tls}/{client}.key"\n'
    return lines


def login(user="cassandra", password="cassandra"):
    return f'user = "{user}"\npassword = "{password}"\n'


def refusal(over, needle, seconds=40):
    """The error of a server whose Cassandra rejects it, once the error contains `needle`. The server runs: its journal accepts points."""
    server = over.server(start=False)
    server.spawn()
    deadline = time.monotonic() + seconds
    while server.process.poll() is None and time.monotonic() < deadline and needle not in own_lines(server):
        time.sleep(0.1)
    said = own_lines(server)
    assert PASSWORD not in server.logs() and "password = " not in server.logs()
    if server.process.poll() is None:
        server.kill()
    assert needle in said, f"it does not say '{needle}': {said or server.logs()}"
    return said


def own_lines(server):
    """The log lines of the server itself, without those of its libraries."""
    mine = [line for line in server.logs().splitlines() if "cannot use Cassandra" in line or line.startswith("plumbago:")]
    return "\n".join(mine)


def it_keeps_points(over, name, **kwargs):
    """A server starts, and the points it receives are in the tables."""
    server = over.server(**kwargs)
    now = aligned_now()
    server.send([(name, now, 4.5)])
    flush(server)
    assert server.stop() == 0
    reader = over.server(**kwargs)
    assert reader.points(name, **{"from": now - 60, "until": now + 60}) == {now: 4.5}
    reader.stop()
    return server


def test_password_tls_and_certificate(make_server, guarded):
    over = OverCassandra(make_server, GUARDED, cassandra=login() + tls(guarded))
    it_keeps_points(over, "second.tls")


def test_a_password_comes_from_a_file_or_the_environment_and_is_never_logged(make_server, plain, as_superuser, tmp_path):
    as_superuser("DROP ROLE IF EXISTS secret")
    as_superuser(f"CREATE ROLE secret WITH LOGIN = true AND SUPERUSER = true AND PASSWORD = '{PASSWORD}'")
    kept = tmp_path / "password"
    kept.write_text(PASSWORD + "\n")
    from_file = OverCassandra(make_server, MISNAMED, cassandra=f'user = "secret"\npassword_file = "{kept}"\n')
    server = it_keeps_points(from_file, "second.file")
    assert PASSWORD not in server.logs()
    settings = OverCassandra(make_server, MISNAMED, cassandra='user = "secret"\n')
    server = it_keeps_points(settings, "second.environment", environment={"PLUMBAGO_CASSANDRA_PASSWORD": PASSWORD})
    assert PASSWORD not in server.logs()


def test_a_wrong_password_is_named(make_server, plain):
    said = refusal(OverCassandra(make_server, MISNAMED, cassandra=login("cassandra", PASSWORD)), "the password")
    assert MISNAMED in said and "rejects the user 'cassandra'" in said


def test_no_password_is_named(make_server, plain):
    assert MISNAMED in refusal(OverCassandra(make_server, MISNAMED), "requires a user and a password")


def test_a_wrong_authority_is_named(make_server, guarded):
    over = OverCassandra(make_server, GUARDED, cassandra=login() + tls(guarded, ca="other-ca"))
    said = refusal(over, "tls_ca")
    assert GUARDED in said and f"not signed by an authority in {guarded.tls}/other-ca.pem" in said


def test_a_wrong_or_missing_client_certificate_is_named(make_server, guarded):
    missing = OverCassandra(make_server, GUARDED, cassandra=login() + tls(guarded, client=None))
    said = refusal(missing, "the node requires a client certificate")
    assert GUARDED in said and "tls_certificate and tls_key" in said
    # Java reports an untrusted certificate as an internal error: the client cannot know more than that.
    wrong = OverCassandra(make_server, GUARDED, cassandra=login() + tls(guarded, client="other-client"))
    said = refusal(wrong, "our client certificate")
    assert GUARDED in said and f"an authority of the cluster signed {guarded.tls}/other-client.pem (tls_certificate)" in said


def test_a_missing_file_is_named(make_server, guarded):
    over = OverCassandra(make_server, GUARDED, cassandra=login() + 'tls_ca = "/no/such/ca.pem"\n')
    refusal(over, "/no/such/ca.pem")


def test_a_certificate_for_another_host_is_rejected_unless_the_setting_allows_it(make_server, tmp_path):
    other = Cluster(
        tmp_path / "other", ["127.0.0.17"], heap="512M", tls=True, certificate_for="cassandra.example"
    )
    try:
        other.start()
        strict = OverCassandra(make_server, "127.0.0.17", cassandra=tls(other, client=None))
        said = refusal(strict, "tls_verify_host")
        assert "127.0.0.17" in said and "cassandra.example" in said
        loose = OverCassandra(make_server, "127.0.0.17", cassandra=tls(other, client=None) + "tls_verify_host = false\n")
        it_keeps_points(loose, "second.loose")
    finally:
        other.forget()


def test_plain_text_to_a_tls_node_and_tls_to_a_plain_node_are_explained(make_server, guarded, plain):
    assert GUARDED in refusal(OverCassandra(make_server, GUARDED, cassandra=login()), "if this port requires TLS")
    over = OverCassandra(make_server, MISNAMED, cassandra=login() + tls(guarded))
    assert "leave tls_ca out" in refusal(over, "this port does not use TLS")


def test_an_unreachable_contact_point_is_named(make_server):
    assert "127.0.0.99:9999" in refusal(OverCassandra(make_server, "127.0.0.99:9999"), "nothing listens there")


def test_a_missing_keyspace_without_the_right_to_create_it_is_named_with_the_cql(make_server, plain, as_superuser):
    as_superuser("DROP ROLE IF EXISTS powerless")
    as_superuser("CREATE ROLE powerless WITH LOGIN = true AND PASSWORD = 'powerless'")
    over = OverCassandra(make_server, MISNAMED, cassandra=login("powerless", "powerless"))
    assert over.keyspace in refusal(over, "CREATE KEYSPACE")


def test_the_least_rights_of_a_role(make_server, plain, as_superuser):
    """SELECT and MODIFY on both keyspaces suffice once the tables exist; a new stage needs CREATE, and the error says so."""
    over = OverCassandra(make_server, MISNAMED, cassandra=login())
    it_keeps_points(over, "second.owner")
    as_superuser("DROP ROLE IF EXISTS least")
    as_superuser("CREATE ROLE least WITH LOGIN = true AND PASSWORD = 'least'")
    for keyspace in [over.keyspace, over.keyspace + "_metadata"]:
        for right in ["SELECT", "MODIFY"]:
            as_superuser(f'GRANT {right} ON KEYSPACE "{keyspace}" TO least')
    least = OverCassandra(make_server, MISNAMED, keyspace=over.keyspace, cassandra=login("least", "least"))
    it_keeps_points(least, "second.least")
    new_stage = least.server(start=False, schemas="[new]\npattern = .*\nretentions = 7s:7m\n")
    new_stage.spawn()
    wait_until(lambda: listens(new_stage), 60, "it accepts no points")
    new_stage.send([("second.stage", aligned_now(), 1.0)])
    # The point is safe in the journal, and the server retries until the table exists. The error contains the CQL.
    answer = new_stage.post("/admin/flush")
    assert answer.status_code == 503 and answer.json()["held_points"] == 1
    create_table = r"CREATE TABLE [^;]*datapoints_60p_7s_0"
    assert re.search(create_table, answer.json()["error"]) and re.search(create_table, new_stage.logs()), answer.text


def test_names_may_be_in_a_second_cluster(make_server, plain, cassandra):
    host, _, port = cassandra.partition(":")
    more = f'[cassandra_metadata]\ncontact_points = "{MISNAMED}"\nuser = "cassandra"\npassword = "cassandra"\n'
    over = OverCassandra(make_server, f"{host}:{port}", more=more)
    it_keeps_points(over, "second.apart")
