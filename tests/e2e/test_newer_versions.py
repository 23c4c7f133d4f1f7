"""Data folders and backups that a later version wrote: this version refuses them, changes nothing, and says which file it
is, which version the file has, which versions this program reads, and what to do."""

import json
import shutil
import struct
import zlib
from pathlib import Path

import pytest
from plumbago import run

FOLDER = Path(__file__).parent / "folders" / "layout2" / "data"


def crc(data):
    return zlib.crc32(data)


def text_file(path, old, new, last):
    """Replaces words in a text file whose last line has the checksum of those before it."""

    def change(data):
        lines = (data / path).read_text().splitlines(keepends=True)[:-1]
        text = "".join(lines)
        assert old in text, text
        text = text.replace(old, new)
        (data / path).write_text(f"{text}{last} {crc(text.encode()):08x}\n")

    return change


def header_of(pattern, version_at, length):
    """Raises the version in a binary header that ends with the checksum of its bytes."""

    def change(data):
        path = sorted(data.glob(pattern))[0]
        content = bytearray(path.read_bytes())
        struct.pack_into("<I", content, version_at, 7)
        struct.pack_into("<I", content, length - 4, crc(bytes(content[: length - 4])))
        path.write_bytes(content)

    return change


def journal(data):
    """A segment after the others, of version 7: a header that this program does not know, and bytes of its own."""
    payload = struct.pack("<H", 7) + bytes(range(40))
    record = struct.pack("<I", len(payload)) + struct.pack("<I", crc(b"\x05" + payload)) + b"\x05" + payload
    (data / "journal/00000009.journal").write_bytes(b"PLBGJNL7" + record + record + b"what later programs write" * 9)


# File, change, version in the message, versions that this program reads.
NEWER = {
    "spec": ("store/spec", text_file("store/spec", "layout 2", "layout 7", "check"), "layout 7", "layout 2 to 3"),
    "codec": ("store/spec", text_file("store/spec", "row codec 1", "row codec 7", "check"), "row codec 7", "row codec 1 to 2"),
    "manifest": ("store/manifest", text_file("store/manifest", "rows 1", "rows 8", "end"), "version 8", "versions 1 to 7"),
    "rows": ("1-1.rows", header_of("store/datapoints_*/*/1-1.rows", 8, 64), "version 7", "versions 1 to 3"),
    "names": ("names/00000001.log", header_of("store/names/*.log", 8, 68), "version 7", "version 1"),
    "events": ("events/00000001.log", header_of("store/events/*.log", 8, 68), "version 7", "version 1"),
    "journal": ("00000009.journal", journal, "version 7", "versions 1 and 2"),
    "clock": ("clock", text_file("clock", "clock 1", "clock 7", "crc32"), "version 7", "version 1"),
}


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_message(text, kind):
    file, _, found, reads = NEWER[kind]
    for word in [file, found, reads, "nothing was changed", "start the version that wrote it", "restore a backup"]:
        assert word in text, (word, text)


@pytest.mark.parametrize("kind", NEWER)
def test_a_data_folder_with_a_newer_file_is_refused_and_untouched(make_server, kind):
    server = make_server(start=False)
    shutil.copytree(FOLDER, server.data)
    # What a crash leaves, which a start removes: not this one.
    for leftover in ["store/names/00000002.new", "store/datapoints_3679200p_60s_0/383/9-9.rows.7.draft", "names"]:
        (server.data / leftover).write_bytes(b"left")
    NEWER[kind][1](server.data)
    before = content(server.data)
    server.spawn()
    assert server.process.wait(30) == 1
    check_message(server.err.read_text(), kind)
    assert content(server.data) == before


@pytest.mark.parametrize("kind", NEWER)
def test_a_newer_file_is_not_damage_for_verify_and_not_repaired(tmp_path, kind):
    data = tmp_path / "data"
    shutil.copytree(FOLDER, data)
    NEWER[kind][1](data)
    # Damage besides, that a repair would mend.
    (data / "store/datapoints_262800p_3600s_aggr/83/2-2.rows").write_bytes(b"damaged")
    before = content(data)
    for command in [["verify"], ["repair"], ["repair", "--dry-run"]]:
        done = run(*command, data)
        assert done.returncode == 1, (command, done.stdout, done.stderr)
        check_message(done.stderr, kind)
        assert content(data) == before


def test_a_backup_of_a_newer_version_is_not_restored(tmp_path, make_server):
    server = make_server()
    made = run("backup", tmp_path / "backups", "--http", f"127.0.0.1:{server.ports['http']}", "--json")
    backup = Path(json.loads(made.stdout)["backup"])
    server.stop()
    manifest = backup / "backup.json"
    text = manifest.read_text()
    assert '"version": 1,' in text, text
    manifest.write_text(text.replace('"version": 1,', '"version": 7,\n  "new": [{"kind": "of member"}],'))
    before = content(backup)
    for command in [["restore", backup, tmp_path / "restored"], ["verify", backup]]:
        done = run(*command)
        assert done.returncode == 1
        for word in ["backup.json", "version 7", "versions 1 to 2", "use the version that made it", "another backup"]:
            assert word in done.stderr, (command, word, done.stderr)
    assert content(backup) == before and not (tmp_path / "restored").exists()
    assert not list(tmp_path.glob("restored*"))
