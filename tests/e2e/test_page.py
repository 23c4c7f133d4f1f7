"""The start page in a real browser: headless Chromium loads it, runs its script and prints the final document.

The address of the page names the target, so a test needs only an address.
"""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest

from plumbago import aligned_now, eventually

# The page requests, draws and is then idle; the browser's clock jumps ahead to this moment while nothing runs.
SETTLED_MS = 5000

QUIETLY = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-dev-shm-usage""".split()


class Document(HTMLParser):
    """The document for a test: every element as (name, attributes), and the text within each id or element name."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.inside = [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        self.inside.append((tag, attributes.get("id", tag)))

    def handle_endtag(self, tag):
        # Elements without an end tag, such as <input>, end with their parent.
        while self.inside and self.inside.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if data.strip():
            for name in {name for _, name in self.inside}:
                self.texts.setdefault(name, []).append(data.strip())

    def text(self, name):
        return " ".join(self.texts.get(name, []))


@pytest.fixture
def browse(tmp_path):
    """Opens the page of a server and returns the final document."""
    browser = shutil.which("chromium")
    assert browser, "chromium is not installed: run tests/install-peers"

    def open_page(server, **query):
        command = [browser, *QUIETLY, f"--user-data-dir={tmp_path / 'browser'}", f"--virtual-time-budget={SETTLED_MS}"]
        command += ["--window-size=1200,900", "--dump-dom", server.url("/?" + urlencode(query))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr[-2000:]
        return Document(done.stdout)

    return open_page


def test_the_start_page_draws_series_with_gaps_and_a_legend(server, browse):
    start = aligned_now() - 60
    known = [0, 1, 2, 10, 20, 21]
    server.send([("second.web1.load", start + i, i) for i in known] + [("second.web2.load", start + 5, 7.5)])
    eventually(lambda: len(server.find("second.*.load")), 2)
    eventually(lambda: len(server.points("second.web2.load", **{"from": "-5min"})), 1)
    page = browse(server, target="second.*.load", **{"from": start - 1, "until": start + 30})
    paths = [attributes["d"] for name, attributes in page.elements if name == "path"]
    assert len(paths) == 1, page.text("status")
    # Three points, a gap, one alone, a gap, two points: `M` begins a line and `L` continues it.
    assert re.sub(r"[\d. -]", "", paths[0]) == "MLLML"
    ends = [float(number) for number in re.findall(r"[ML]([\d.]+) ", paths[0])]
    assert ends == sorted(ends) and ends[0] < ends[-1]
    heights = [float(number) for number in re.findall(r" ([\d.]+)", paths[0])]
    assert heights == sorted(heights, reverse=True), "more is higher"
    assert [name for name, _ in page.elements].count("circle") == 2
    assert page.texts["legend"] == ["second.web1.load", "second.web2.load"]
    # Both axes have round numbers.
    labels = page.texts["text"]
    assert {"0", "10", "20"} <= set(labels), labels
    assert any(re.fullmatch(r"\d\d:\d\d(:\d\d)?", label) for label in labels), labels
    assert page.text("tree") == "second"


def test_the_start_page_shows_the_error_of_a_target(server, browse):
    page = browse(server, target="sumSerie(a.*)")
    assert "did you mean sumSeries" in page.text("status")
    assert "path" not in [name for name, _ in page.elements]
    assert "brackets" in browse(server, target="alias(a.b").text("status")


def test_the_start_page_of_an_empty_server_shows_a_working_command_to_send_a_point(server, browse):
    page = browse(server)
    command = page.text("pre")
    assert f"127.0.0.1:{server.ports['http']}" in command
    subprocess.run(command, shell=True, check=True, capture_output=True, timeout=10)
    eventually(lambda: server.find("*.*.*"), ["servers.web1.load"])
    assert page.text("status") == "type a target, or choose a metric"
    assert browse(server, target="servers.absent").text("status") == "unknown metric"
