"""Pictures: PNG and SVG graphs and pies of sent points, requested as browsers and dashboards do."""

import re
import struct
import xml.etree.ElementTree as ElementTree
import zlib

import pytest

from plumbago import QUIET, Plumbago, aligned_now, eventually

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Three series of ten minutes of seconds, ending a minute ago: a ramp, a constant, and one below zero."""
    server = Plumbago(tmp_path_factory.mktemp("graphs"), settings=QUIET + "[http]\njsonp = true\n").start()
    start = aligned_now() - 660
    shapes = {"ramp": lambda i: i / 6, "flat": lambda i: 40, "below": lambda i: -i / 12}
    server.send([(f"second.{name}", start + i, shape(i)) for name, shape in shapes.items() for i in range(600)])
    eventually(lambda: len(server.points("second.below", **{"from": start - 1, "until": start + 600})), 600)
    server.begin = start
    yield server
    server.stop()


def ask(server, target, **params):
    return server.get("/render", target=target, **{"from": server.begin - 1, "until": server.begin + 599, **params})


def svg(server, target, **params):
    answer = ask(server, target, format="svg", **params)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml"), answer.text
    return ElementTree.fromstring(answer.content)


def part(picture, name):
    """The items of a part of a picture, which has it once."""
    (found,) = (group for group in picture.iter(f"{SVG}g") if group.get("class") == name)
    return list(found)


def texts(picture, name, anchor=None):
    return [item.text for item in part(picture, name) if item.tag == f"{SVG}text" and item.get("text-anchor") == anchor]


def pixels(png):
    """Width, height, and rows of (red, green, blue) of a PNG without transparency."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, head = 8, b"", None
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        assert zlib.crc32(kind + body) == struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0]
        if kind == b"IHDR":
            head = struct.unpack(">IIBBBBB", body)
        data += body if kind == b"IDAT" else b""
        at += 12 + length
    width, height, depth, color, *_ = head
    assert (depth, color) == (8, 2)
    raw, rows, before = zlib.decompress(data), [], bytes(3 * width)
    for index in range(height):
        begin = index * (3 * width + 1)
        line = bytearray(raw[begin + 1 : begin + 1 + 3 * width])
        unfilter(raw[begin], line, before)
        before = bytes(line)
        rows.append([tuple(line[x : x + 3]) for x in range(0, 3 * width, 3)])
    return width, height, rows


def unfilter(kind, line, before):
    for x in range(len(line)):
        left, up = line[x - 3] if x >= 3 else 0, before[x]
        corner = before[x - 3] if x >= 3 else 0
        guess = left + up - corner
        paeth = min((left, up, corner), key=lambda value: abs(guess - value))
        line[x] = (line[x] + [0, left, up, (left + up) // 2, paeth][kind]) & 255


def test_a_request_without_a_format_is_a_png_of_330_by_250(drawn):
    answer = ask(drawn, "second.*")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    width, height, rows = pixels(answer.content)
    assert (width, height, rows[0][0]) == (330, 250, (255, 255, 255))
    colors = {color for row in rows for color in row}
    # The first three colours of the default template, by graphite-web's names: blue, green, red.
    assert {(100, 100, 255), (0, 200, 0), (200, 0, 50)} <= colors


def test_svg_contains_names_and_values(drawn):
    picture = svg(drawn, "second.*", width=800, height=400, title="Three of them", vtitle="things", tz="UTC")
    assert texts(picture, "legend") == ["second.below", "second.flat", "second.ramp"]
    assert texts(picture, "title", "middle") == ["Three of them"]
    assert texts(picture, "vtitle", "middle") == ["things"]
    values = texts(picture, "axes", "end")
    assert {"-50", "0", "50.0", "100.0"} <= set(values)
    times = texts(picture, "axes", "middle")
    assert len(times) >= 5 and all(re.fullmatch(r"\d\d:\d\d(:\d\d)?", time) for time in times)
    assert [item.find(f"{SVG}title").text for item in part(picture, "lines")] == texts(picture, "legend")


def test_the_same_request_gives_the_same_bytes(drawn):
    for params in [{}, {"format": "svg"}, {"areaMode": "stacked", "areaAlpha": "0.4", "template": "noc"}]:
        assert ask(drawn, "second.*", **params).content == ask(drawn, "second.*", **params).content


def test_functions_and_parameters_set_the_style_of_lines(drawn):
    targets = ["color(lineWidth(second.flat,3),'orange')", "secondYAxis(dashed(second.ramp,4))", "alpha(second.below,0.5)"]
    lines = part(svg(drawn, targets, width=600, yMaxLeft=100), "lines")
    looks = [tuple(line.get(f"stroke{name}") for name in ["", "-width", "-dasharray", "-opacity"]) for line in lines]
    assert looks == [("#ffa500", "3", None, None), ("#6464ff", "1.2", "4", None), ("#00c800", "1.2", None, "0.5")]


def test_areas_fill_and_stack(drawn):
    picture = svg(drawn, ["second.flat", "second.ramp"], areaMode="stacked", areaAlpha=0.5, yMin=0)
    lines = part(picture, "lines")
    assert [line.get("fill") for line in lines] == ["#6464ff", "#00c800", "none", "none"]
    # 40 and up to 100 on top.
    assert texts(picture, "axes", "end")[-1] in ("140.0", "150.0")
    stacked = part(svg(drawn, "stacked(second.[fr]*)"), "lines")
    assert all(line.get("fill") != "none" for line in stacked)


def test_a_second_axis_has_labels_of_its_own(drawn):
    picture = svg(drawn, ["second.flat", "secondYAxis(scale(second.ramp,1000))"], width=600)
    assert all(label.endswith(" k") for label in texts(picture, "axes")[1:])
    assert texts(picture, "legend", "end") == ["secondYAxis(scale(second.ramp,1000))"]


def test_without_series_the_picture_says_no_data(drawn):
    for target in ["no.such.metric", None]:
        assert texts(svg(drawn, target), "no-data", "middle") == ["No Data"]
        assert pixels(ask(drawn, target, width=60, height=40).content)[:2] == (60, 40)


@pytest.mark.parametrize(
    "params, says",
    [
        ({"width": "wide"}, "width must be a number"),
        ({"width": 20000, "height": 20000}, "too large"),
        ({"lineMode": "wavy"}, "slope, staircase, connected"),
        ({"bgcolor": "mauve"}, "bgcolor must be a colour"),
        ({"yMin": 9, "yMax": 3}, "from 9 to 3"),
        ({"format": "pdf"}, "format=svg"),
        ({"graphType": "bar"}, "['line', 'pie']"),
    ],
)
def test_an_invalid_parameter_is_named(drawn, params, says):
    answer = ask(drawn, "second.*", **params)
    assert answer.status_code == 400
    assert says in answer.text


def test_any_size_is_drawn(drawn):
    for width, height in [(1, 1), (60, 40), (150, 30), (2000, 1000)]:
        answer = ask(drawn, "second.*", width=width, height=height, title="A title", hideLegend="false")
        assert pixels(answer.content)[:2] == (width, height)


def test_a_pie_shows_series_and_numbers(drawn):
    targets = ["given:60", "second.flat", "second.ramp"]
    picture = svg(drawn, targets, graphType="pie", pieMode="maximum", valueLabels="number", valueLabelsMin=0)
    assert texts(picture, "legend") == ["given", "second.flat", "second.ramp"]
    assert texts(picture, "labels", "middle") == ["60", "40", "99"]
    shares = texts(svg(drawn, targets[:2], graphType="pie"), "labels", "middle")
    assert shares == ["60.00%", "40.00%"]


def test_svg_with_a_jsonp_callback(drawn):
    answer = ask(drawn, "second.flat", format="svg", jsonp="show")
    assert answer.headers["content-type"] == "text/javascript"
    assert answer.text.startswith('show("<svg ') and answer.text.endswith('")')


def test_names_cannot_become_markup(drawn):
    picture = svg(drawn, "alias(second.flat,'<script>alert(1)</script>&')")
    assert texts(picture, "legend") == ["<script>alert(1)</script>&"]
    assert not list(picture.iter(f"{SVG}script"))
