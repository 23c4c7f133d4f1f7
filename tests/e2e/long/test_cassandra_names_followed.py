"""Names that other nodes create and delete in Cassandra are followed. Run by tests/long: of three runs so far, one did not see
within twenty seconds a name that was deleted and sent again, and why is not known yet.
"""

from cassandra import OverCassandra, flush
from plumbago import aligned_now, eventually
from test_cassandra_names import listed


def test_what_another_node_creates_and_deletes_is_followed(make_server, cassandra, keyspace_of):
    over = OverCassandra(make_server, cassandra, cassandra='reconcile_every = "1s"\n')
    one, other = over.server(), over.server()
    now = aligned_now()
    one.send([("second.here", now, 1.0), ("second.gone", now, 2.0)])
    flush(one)
    eventually(lambda: listed(other, "second.*"), [("second.gone", True), ("second.here", True)], 20)
    cql = keyspace_of(over)
    cql(f"DELETE FROM \"{over.keyspace}_metadata\".metrics WHERE name = 'second.gone'")
    cql(f"DELETE FROM \"{over.keyspace}_metadata\".metrics_metadata WHERE name = 'second.gone'")
    eventually(lambda: listed(other, "second.*"), [("second.here", True)], 20)
    # It is still sent: it is there again at once, and soon for everybody.
    other.send([("second.gone", now, 3.0)])
    assert listed(other, "second.gone") == [("second.gone", True)]
    eventually(lambda: listed(one, "second.*"), [("second.gone", True), ("second.here", True)], 20)
