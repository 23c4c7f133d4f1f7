"""Data folders of earlier versions, which a kill left with points in the journal only: this version answers as the one
that wrote the folder did."""

import json
import shutil
from pathlib import Path

import pytest

import versions

FOLDERS = Path(__file__).parent / "folders"


@pytest.mark.parametrize("name", sorted(path.parent.name for path in FOLDERS.glob("*/expected.json")))
def test_a_folder_of_an_earlier_version_is_answered_as_that_version_did(make_server, name):
    expected = json.loads((FOLDERS / name / "expected.json").read_text())
    server = make_server(start=False, schemas=versions.SCHEMAS, settings=versions.SETTINGS)
    shutil.copytree(FOLDERS / name / "data", server.data)
    server.start()
    assert versions.answers(server, expected["now"]) == expected["answers"]
    # What came from the journal is in the store now, and nothing was lost on the way.
    assert server.post("/admin/flush").status_code == 200
    assert versions.answers(server, expected["now"]) == expected["answers"]
    server.stop()
    server.start()
    assert versions.answers(server, expected["now"]) == expected["answers"]
    assert server.counter("plumbago_damage_total") == 0
