"""What operators look at in the night: every figure is there, in /metrics and in /admin/status."""

from plumbago import QUIET, aligned_now, eventually

METRICS = [
    "plumbago_backup_last_timestamp_seconds",
    "plumbago_backups_failed_total",
    "plumbago_backups_total",
    "plumbago_created_total",
    "plumbago_deleted_total",
    "plumbago_disk_free_bytes",
    "plumbago_disk_reserve_bytes",
    "plumbago_disk_short",
    "plumbago_flush_cycle_age_seconds",
    "plumbago_flush_cycles_total",
    "plumbago_hung",
    "plumbago_journal_damaged_bytes",
    "plumbago_journal_nameless_points",
    "plumbago_journal_sync_age_seconds",
    "plumbago_manifest_behind",
    "plumbago_store_missing_files",
    "plumbago_merge_debt_bytes",
    "plumbago_merges_failed_total",
    "plumbago_merges_total",
    "plumbago_merges_wait",
    "plumbago_points_set_aside_total",
    "plumbago_quarantined_bytes_total",
    "plumbago_scrub_bytes_total",
    "plumbago_scrub_damage_total",
    "plumbago_scrub_rounds_total",
    "plumbago_store_files",
    "plumbago_store_window_files",
    'plumbago_accept_failures_total{receiver="http"}',
    'plumbago_rejected_total{reason="names_full"}',
    'plumbago_rejected_total{reason="too_many_metrics"}',
    'plumbago_rejected_total{reason="too_many_new_metrics"}',
    'plumbago_task_panics_total{task="flush cycle"}',
]

STATUS = {
    "": ["created", "deleted", "nameless_points", "journal_damaged_bytes", "rejected", "flush_cycles"],
    "health": ["cycle_age_seconds", "disk_reserve_bytes", "disk_short", "hangs", "senders_wait_for", "task_panics"],
    "store": ["files", "merge_debt_bytes", "merges_failed", "most_files_of_a_window", "quarantined_bytes"],
    "backups": ["failed", "last_moment", "made"],
    "scrub": ["bytes", "damage", "rounds"],
    "receive": ["bytes", "closed"],
    "damage": ["bytes", "findings", "last"],
}


def test_every_figure_of_the_night_is_in_metrics_and_status(make_server):
    server = make_server(settings=QUIET + "[limits]\nmetrics = 1\n")
    start = aligned_now() - 60
    server.send([("second.one", start, 1.0)])
    eventually(lambda: server.points("second.one", **{"from": start - 1}), {start: 1.0})
    server.send([("second.two", start, 1.0)])
    eventually(lambda: server.rejected("too_many_metrics"), 1)
    server.post("/admin/flush")
    missing = [name for name in METRICS if name not in server.counters()]
    assert missing == [], sorted(server.counters())
    # One file for each stage.
    assert server.counter("plumbago_store_files") == 3 and server.counter("plumbago_created_total") == 1
    status = server.get("/admin/status").json()
    for part, fields in STATUS.items():
        found = status[part] if part else status
        assert set(fields) <= set(found), (part, sorted(found))
    assert status["store"]["files"] == 3 and status["rejected"]["too_many_metrics"] == 1
