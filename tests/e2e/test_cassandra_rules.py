"""Nodes over one Cassandra whose rules change while a node is down, or before it has a data folder."""

import signal
import time

from cassandra import flush
from naive import Metric
from plumbago import aligned_now, wait_until
from test_cassandra_elastic import STAGES, shown
from test_cassandra_heads import meet, over_with
from test_cassandra_members import follow, until


def test_a_node_with_a_new_data_folder_has_the_points_of_before_a_change_of_rules(make_server, cassandra, tmp_path):
    over = over_with(make_server, cassandra, tmp_path)
    before, after = ("10s:6h,60s:1d,600s:30d", "10s:12h,60s:2d,600s:60d")

    def rules(retentions):
        return f"[all]\npattern = .*\nretentions = {retentions}\n"

    aggregation = "[all]\npattern = .*\nxFilesFactor = 0\naggregationMethod = sum\n"
    one = over.server(schemas=rules(before), aggregation=aggregation)
    follow(one)
    name, now = "ten.of_sum.m", aligned_now(600)
    model = Metric(before, 0.0, "sum")

    def send(server, times, value):
        points = [(name, at, value) for at in times]
        server.send(points)
        for _, at, value in points:
            model.write(at, value, now)
        flush(server)

    send(one, range(now - 6000, now - 3000, 10), 1.0)
    one.configure("storage-schemas.conf", rules(after))
    one.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "the new rules are in force" in one.logs(), 10, "the rules were not read")
    send(one, range(now - 3000, now - 1200, 10), 2.0)

    fresh = over.server(schemas=rules(after), aggregation=aggregation)
    meet(one, fresh)
    until(fresh, name, True)

    def compare_both(when):
        for server in [one, fresh]:
            for stage, back in STAGES:
                expected = {at: value for at, value in model.stage(stage).items() if now - 6000 <= at}
                seen = shown(server, name, now - 6000, now, back if stage else 20_000)
                assert seen[name] == expected, f"stage {stage}, {when}, {'the new node' if server is fresh else 'the first node'}"

    compare_both("as it starts")
    send(fresh, [now - 4800], 7.0)
    compare_both("after a late point through it")


def test_a_node_that_was_down_from_one_change_of_rules_to_the_next_but_one_has_the_points_between(make_server, cassandra, tmp_path):
    over = over_with(make_server, cassandra, tmp_path)
    retentions = ("10s:6h,60s:1d,600s:30d", "10s:8h,60s:36h,600s:40d", "10s:12h,60s:2d,600s:60d")

    def rules(retentions):
        return f"[all]\npattern = .*\nretentions = {retentions}\n"

    aggregation = "[all]\npattern = .*\nxFilesFactor = 0\naggregationMethod = sum\n"
    one, two = [over.server(schemas=rules(retentions[0]), aggregation=aggregation) for _ in range(2)]
    meet(one, two)
    follow(one, two)
    name, now = "ten.of_sum.m", aligned_now(600)
    model = Metric(retentions[0], 0.0, "sum")

    def send(server, times, value):
        points = [(name, at, value) for at in times]
        server.send(points)
        for _, at, value in points:
            model.write(at, value, now)
        flush(server)

    send(two, range(now - 9000, now - 6000, 10), 1.0)
    until(one, name, True)
    two.stop()
    # The first one keeps the metric by the second rules once it gets points of it.
    for number, (newer, ends) in enumerate([(retentions[1], now - 3000), (retentions[2], now - 1200)], start=1):
        one.configure("storage-schemas.conf", rules(newer))
        one.process.send_signal(signal.SIGHUP)
        wait_until(lambda: one.logs().count("the new rules are in force") == number, 10, "the rules were not read")
        send(one, range(ends - 3000, ends, 10), float(1 + number))
    two.configure("storage-schemas.conf", rules(retentions[2]))
    two.start()
    meet(one, two)

    def compare_both(when):
        for server in [one, two]:
            for stage, back in STAGES:
                expected = {at: value for at, value in model.stage(stage).items() if now - 9000 <= at}
                seen = shown(server, name, now - 9000, now, back if stage else 20_000)
                assert seen[name] == expected, f"stage {stage}, {when}, {'the second node' if server is two else 'the first node'}"

    # It reads of the changes, and gets points of the metric itself.
    send(two, [now - 10], 4.0)

    def is_whole():
        points = {at: value for at, value in model.stage(0).items() if now - 9000 <= at}
        return shown(two, name, now - 9000, now, 20_000)[name] == points

    wait_until(is_whole, 30, "points of the rules between are missing")
    compare_both("as it is back")
    send(two, [now - 5000, now - 2500], 7.0)
    compare_both("after late points through it")


def test_a_node_that_was_down_while_methods_changed_reads_each_slot_by_the_method_that_made_it(make_server, cassandra, tmp_path):
    over = over_with(make_server, cassandra, tmp_path)
    schemas = "[all]\npattern = .*\nretentions = 1s:1h,10s:6h\n"
    # By the rules before a node is down, by those of the first change meanwhile, and by those of the second.
    methods = {"rising": ("average", "max", "max"), "falling": ("max", "average", "average"), "back": ("average", "max", "average")}
    names = {f"method.of.{kind}": of for kind, of in methods.items()}

    def rules(turn):
        sections = [f"[{kind}]\npattern = \\.{kind}$\nxFilesFactor = 0\naggregationMethod = {of[turn]}\n" for kind, of in methods.items()]
        return "\n".join(sections)

    one, two = [over.server(schemas=schemas, aggregation=rules(0)) for _ in range(2)]
    meet(one, two)

    def send(server, times):
        server.send([(name, at, 1.0 + at % 10) for name in names for at in times])
        flush(server)

    begin = aligned_now(10) - 100
    sent = [range(begin, begin + 50)]
    send(one, sent[0])
    for name in names:
        until(two, name, True)
    two.stop()
    for turn in [1, 2]:
        one.configure("storage-aggregation.conf", rules(turn))
        one.process.send_signal(signal.SIGHUP)
        wait_until(lambda: one.logs().count("the new rules are in force") == turn, 10, "the rules were not read")
        # Whole slots of after the change. They are complete before they are sent, as a method counts from the time that it is changed at.
        first = aligned_now(10) + 10
        wait_until(lambda: time.time() > first + 21, 40)
        sent.append(range(first, first + 20))
        send(one, sent[turn])
    two.configure("storage-aggregation.conf", rules(2))
    two.start()
    meet(one, two)

    def compare_both(when, late):
        for name, of in names.items():
            expected = {}
            for times, method in zip(sent, of):
                expected |= {at: {"average": 5.5, "max": 10.0}[method] for at in times[::10]}
                expected[times[0]] = late.get(of[2], expected[times[0]])
            for server in [one, two]:
                seen = shown(server, name, begin, sent[2][-1], 5000)[name]
                assert seen == expected, f"{name}, {when}, {'the second node' if server is two else 'the first node'}"

    compare_both("as it is back", {})
    # Of the first slot of each time, a point of 6 is 21 now. What a point touches is made by the method in force.
    two.send([(name, times[5], 21.0) for name in names for times in sent])
    compare_both("late points are in its memory", {"average": 7.0, "max": 21.0})
    flush(two)
    compare_both("late points through it are stored", {"average": 7.0, "max": 21.0})
