"""Names in Cassandra: whoever answers a glob, the answer is the same."""

import random

import pytest
from cassandra import OverCassandra, flush
from plumbago import aligned_now

GLOBS = ["*", "**", "a.*", "a.b*", "a.*.c", "*.b1.*", "a.{b1,b2}.c", "a.b[12].?", "x.**", "no.such.*", "a.b1.c", "*.*.{c,d}", "a.b1"]


def listed(server, glob):
    answer = server.get("/metrics/find", query=glob, format="json")
    assert answer.status_code == 200, answer.text
    return [(node["path"], node["is_leaf"]) for node in answer.json()]


@pytest.mark.parametrize("indexes", ["sasi", "none"])
def test_the_tables_and_the_path_index_answer_alike(make_server, cassandra, indexes):
    here = OverCassandra(make_server, cassandra)
    tables = OverCassandra(make_server, cassandra, keyspace=here.keyspace, cassandra='globs = "cassandra"\n')
    for over in [here, tables]:
        over.settings = over.settings.replace('indexes = "none"', f'indexes = "{indexes}"')
    server = here.server()
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    parts = ["a", "b1", "b2", "b10", "c", "d", "x", "é", "b-1"]
    names = {".".join(chance.choice(parts) for _ in range(chance.randint(1, 5))) for _ in range(150)}
    names |= {"a.b1.c", "a.b1", "x.y.z"}
    now = aligned_now()
    server.send([(name, now, 1.0) for name in sorted(names)])
    flush(server)
    other = tables.server()
    for glob in GLOBS + [".".join(chance.choice([*parts, "*", "b*", "[bc]*", "{a,b1}"]) for _ in range(3)) for _ in range(40)]:
        assert listed(other, glob) == listed(server, glob), glob
    answer = other.get("/render", target="countSeries(**)", **{"from": now - 60, "until": now + 60, "format": "json"}).json()
    assert max(value for value, _ in answer[0]["datapoints"] if value is not None) == len(names)
