"""The names that a clean stop saves stand for the log of names only while that is as it was then."""

import shutil
import time

import pytest
from plumbago import wait_until

COUNT = 20


def names(server):
    return sorted(server.get("/metrics/index.json").json())


def send(server, prefix, value, at):
    server.send([(f"{prefix}.m{i}", at, value) for i in range(COUNT)])
    wait_until(lambda: len([name for name in names(server) if name.startswith(prefix + ".")]) == COUNT)


def flush(server):
    assert server.post("/admin/flush").status_code == 200


def values(server, prefix, at):
    found = [server.points(f"{prefix}.m{i}", **{"from": at - 1, "until": at + 60}).get(at) for i in range(COUNT)]
    return found


@pytest.fixture
def at():
    return int(time.time()) // 60 * 60 - 600


def test_a_log_that_is_put_back_counts_and_not_the_names_saved_meanwhile(server, at, tmp_path):
    send(server, "one", 1.0, at)
    flush(server)
    shutil.copytree(server.data / "store/names", tmp_path / "older")
    send(server, "two", 2.0, at)
    flush(server)
    server.kill()
    shutil.move(server.data / "store/names", tmp_path / "right")
    shutil.copytree(tmp_path / "older", server.data / "store/names")
    # Names are lost, and reported; "put the right log back (stop first)".
    server.start()
    assert len(names(server)) == COUNT
    server.stop()
    assert (server.data / "names").exists()
    shutil.rmtree(server.data / "store/names")
    shutil.move(tmp_path / "right", server.data / "store/names")
    server.start()
    assert len(names(server)) == 2 * COUNT
    assert values(server, "two", at) == [2.0] * COUNT
    # Their senders go on, with the ids that the names have.
    server.send([(f"two.m{i}", at + 60, 3.0) for i in range(COUNT)])
    flush(server)
    for end in [server.kill, server.stop]:
        end()
        server.start()
        assert values(server, "two", at + 60) == [3.0] * COUNT
        assert values(server, "two", at) == [2.0] * COUNT


def test_saved_names_of_another_time_or_store_are_not_used(make_server, at, tmp_path):
    server, other = make_server(), make_server()
    send(server, "one", 1.0, at)
    send(other, "foreign", 9.0, at)
    for node in [server, other]:
        node.stop()
    shutil.copy(server.data / "names", tmp_path / "older")
    server.start()
    send(server, "two", 2.0, at)
    assert server.post("/admin/delete", params={"query": "one.m0"}).status_code == 200
    server.stop()
    for file in [tmp_path / "older", other.data / "names"]:
        shutil.copy(file, server.data / "names")
        server.start()
        assert "the saved names are of another store, or of another time of this one" in server.logs()
        assert len(names(server)) == 2 * COUNT - 1 and "one.m0" not in names(server)
        assert values(server, "two", at) == [2.0] * COUNT
        server.stop()


def test_names_that_the_log_lost_while_the_server_was_stopped_are_written_to_it_again(server, at):
    send(server, "one", 1.0, at)
    flush(server)
    send(server, "two", 2.0, at)
    server.stop()
    log = max((server.data / "store/names").glob("*.log"))
    text = bytearray(log.read_bytes())
    for name in [b"one.m3", b"two.m5"]:
        text[text.index(name)] ^= 3
    log.write_bytes(text)
    server.start()
    assert "has lost names since the last stop; the saved names had them" in server.logs()
    assert len(names(server)) == 2 * COUNT
    server.kill()
    server.start()
    assert len(names(server)) == 2 * COUNT
    assert values(server, "one", at) == [1.0] * COUNT and values(server, "two", at) == [2.0] * COUNT
    server.stop()
    server.start()
    assert len(names(server)) == 2 * COUNT


def test_a_lost_end_of_the_log_brings_no_deleted_metric_back_in_place_of_a_later_one(server, at):
    server.send([("same.name", at, 1.0)])
    flush(server)
    log = max((server.data / "store/names").glob("*.log"))
    length = log.stat().st_size
    assert server.post("/admin/delete", params={"query": "same.name"}).status_code == 200
    server.send([("same.name", at + 60, 2.0)])
    flush(server)
    server.stop()
    assert max((server.data / "store/names").glob("*.log")) == log
    # The deletion and the name of the later metric are behind that.
    with log.open("rb+") as file:
        file.truncate(length)
    for end in [server.stop, server.kill]:
        server.start()
        assert server.points("same.name", **{"from": at - 1, "until": at + 90}) == {at + 60: 2.0}
        server.send([("same.name", at + 120, 3.0)])
        flush(server)
        end()
    server.start()
    assert server.points("same.name", **{"from": at - 1, "until": at + 180}) == {at + 60: 2.0, at + 120: 3.0}
