"""A report as text, SVG, trace and HTML source: well-formed, and harmless whatever the history holds."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from checker import Unknown, check
from checker.operations import Recorder
from checker.report import FORMATS, Report, report_of, report_of_history
from tests.executions import load
from tests.report.histories import Register, invalid_run, small_report, valid_run

SVG = "{http://www.w3.org/2000/svg}"

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>&amp;<img src=x onerror=alert(1)>",
    "\"'`${x}{reason}$data",
    "right to left \u202e and \u2066 isolates",
    "half \ud800 and other half \udc00",
    "line\u2028 and paragraph\u2029",
    "\x00\x1b[2J\x7f\ufffe",
    "x" * 1_000_000,
]


def hostile_report() -> Report:
    recorder = Recorder(source="<img src=x onerror=alert(2)>\u202e")
    for text in HOSTILE:
        call = recorder.invoke(0, text, [text, {text: text}], key=text)
        recorder.ok(call, text)
        recorder.fail(recorder.invoke(1, "fail", key=text), text)
        recorder.fault(text, text)
    recorder.notes.append("</script>" * 3)
    return report_of(
        recorder.operations(), Unknown("</script>\ud800\n" + "y" * 1_000_000), Register()
    )


def reports() -> dict[str, Report]:
    found = {
        "small": small_report(),
        "valid": report_of(*valid_run(40, crashes=0.1, failures=0.1), Register()),
        "long": report_of(*invalid_run(2000, clock="monotonic", keys=("x", "y")), Register()),
        "hostile": hostile_report(),
        "empty": report_of(Recorder().operations(), Unknown("nothing"), Register()),
    }
    for execution in load()[:6]:
        history = execution.history
        found[execution.name] = report_of_history(history, check(history), name=execution.name)
    return found


REPORTS = reports()
every_report = pytest.mark.parametrize("report", REPORTS.values(), ids=list(REPORTS))


# --- html ---


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag, attributes = self.found[-1] if self.found else ("", {})
        self.text.setdefault(attributes.get("id") or tag, data)


def parsed(page: str) -> Elements:
    elements = Elements()
    elements.feed(page)
    elements.close()
    return elements


@every_report
def test_the_page_has_one_script_and_nothing_from_elsewhere(report: Report) -> None:
    page = parsed(report.html())
    scripts = [attributes for tag, attributes in page.found if tag == "script"]
    assert [script.get("type") for script in scripts] == ["application/json", None]
    assert not [a for _, a in page.found if "src" in a or "href" in a or "style" in a]
    assert not [name for _, a in page.found for name in a if name.startswith("on")]
    policy = next(
        a["content"] for t, a in page.found if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


@every_report
def test_the_data_of_the_page_survives_its_escapes(report: Report) -> None:
    page = report.html()
    data = parsed(page).text["data"]
    assert json.loads(data) == json.loads(json.dumps(report.page.as_json()))
    assert not re.search(r"[<>&\u2028\u2029]|[^\x00-\x7f]", data)


def test_long_texts_are_cut_and_their_length_is_told() -> None:
    report = REPORTS["hostile"]
    assert len(report.html()) < 300_000
    assert "… (1,000,000 characters)" in " ".join(report.page.texts)
    assert report.page.explanation[1].endswith("… (1,000,000 characters)")


def test_marks_of_direction_and_halves_of_pairs_are_escaped() -> None:
    text = json.dumps(REPORTS["hostile"].page.as_json(), ensure_ascii=False)
    assert not re.search(
        "[\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff\x00-\x09\x0b-\x1f]", text
    )
    assert "u202e" in text


# --- svg and notebooks ---


@every_report
def test_the_picture_is_well_formed_and_nothing_in_it_runs(report: Report) -> None:
    root = ET.fromstring(report.svg())
    assert root.tag == f"{SVG}svg"
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags <= {
        "svg", "title", "desc", "style", "rect", "text", "line", "path", "g", "circle", "polyline",
    }  # fmt: skip
    assert float(root.attrib["width"]) < 6000


def test_the_picture_shows_every_operation_of_a_small_history() -> None:
    report = small_report()
    root = ET.fromstring(report.svg())
    shown = {element.text for element in root.iter(f"{SVG}text")}
    assert shown >= {report.page.label(bar) for bar in range(len(report.page.bars))}
    assert {"1", "2", "3", "process 0", "partition of {0, 1} | {2, 3}"} <= shown


def test_the_picture_of_a_long_history_shows_the_anomaly_and_says_what_it_leaves_out() -> None:
    root = ET.fromstring(REPORTS["long"].svg())
    texts = [element.text or "" for element in root.iter(f"{SVG}text")]
    assert "read('x') -> -1" in texts
    assert re.search(r"1,\d\d\d operations left out", texts[-1])


def test_bars_of_a_row_do_not_overlap() -> None:
    for report in REPORTS.values():
        root = ET.fromstring(report.svg())
        rows: dict[str, list[tuple[float, float]]] = {}
        for group in root.iter(f"{SVG}g"):
            box = group.find(f"{SVG}rect")
            assert box is not None
            x, width = float(box.attrib["x"]), float(box.attrib["width"])
            rows.setdefault(box.attrib["y"], []).append((x, x + width))
        for boxes in rows.values():
            boxes.sort()
            assert all(one[1] <= other[0] for one, other in pairwise(boxes))


@every_report
def test_notebooks_show_the_picture_and_the_words_without_scripts(report: Report) -> None:
    shown = parsed(report._repr_html_())
    tags = {tag for tag, _ in shown.found}
    assert {"svg", "pre"} <= tags
    assert not tags & {"script", "img", "iframe", "link"}


# --- text ---

SMALL = """\
small.edn: not linearizable (register, 7 operations, 4 processes)
  read() -> 1 of process 1 has no place: no order of what precedes it is legal.
  It began after write(2) had returned, so it comes after it; and 1 is written only before.
  write(3), whose outcome is unknown, may have had its effect and does not help.

process 0  ├─ write(1) ──┤├─ write(2) ──┤
process 1                                 ├─ read() -> 1 ─┤◄
process 2   ├ write(3) -> ? ─ ?
(3 operations left out: those near the anomaly are shown.)

Possible just before read() -> 1 returned:
  2: the register is 2
  3, if write(3) -> ? took effect: the register is 3
  4: the register is 4

The longest legal order before that:
  #1 write(1)
  #2 read() -> 1
  #3 write(2)

Why not here? read() -> 1
  after #3 write(2), where the state is 2: not here: the register is 2."""


def test_text_shows_the_core_the_states_the_prefix_and_why_not_here() -> None:
    assert small_report().text() == SMALL


def test_text_without_line_drawing_is_ascii() -> None:
    text = small_report().text(ascii_only=True)
    assert text.isascii()
    assert "process 1                                 [- read() -> 1 -]!" in text


def test_colours_change_nothing_but_colours() -> None:
    for report in REPORTS.values():
        coloured = report.text(colour=True)
        assert re.sub(r"\x1b\[[0-9;]+m", "", coloured) == report.text()
        assert "\x1b" in coloured


@every_report
@pytest.mark.parametrize("width", [1, 40, 61, 100, 400])
def test_no_line_is_wider_than_asked_for_and_all_fit_on_two_screens(
    report: Report, width: int
) -> None:
    lines = report.text(width).splitlines()
    assert max(map(len, lines)) <= max(width, 40)
    if report is not REPORTS["hostile"] and width >= 61:
        assert len(lines) <= 80
    assert all(char.isprintable() for line in lines for char in line)


def test_a_narrow_picture_numbers_its_operations() -> None:
    text = small_report().text(48)
    assert re.search(r"process 1 +├─ 4 ─┤◄", text)
    assert "  4: read() -> 1 <- here" in text


# --- trace ---


@every_report
def test_the_trace_has_the_shape_of_chromes_format(report: Report) -> None:
    trace = json.loads(report.perfetto())
    events = trace["traceEvents"]
    names = {e["tid"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert len(names) == sum(lane.rows for lane in report.page.lanes)
    for event in events:
        assert {"ph", "name", "pid", "tid", "args"} <= event.keys()
        assert event["ph"] in {"M", "X", "i"}
        if event["ph"] != "M":
            assert event["tid"] in names
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] == "i":
            assert event["s"] in {"t", "p"}
    operations = [e for e in events if e.get("cat") == "operation"]
    assert [e["name"] for e in operations] == [
        report.page.label(bar) for bar in range(len(report.page.bars))
    ]


def test_a_trace_tells_outcomes_the_order_and_the_anomaly() -> None:
    events = json.loads(small_report().perfetto())["traceEvents"]
    by_name: dict[str, Any] = {e["name"]: e for e in events if e.get("cat") == "operation"}
    assert by_name["write(2)"]["args"] == {
        "outcome": "ok", "operation": 3, "line": 5, "order": 3, "anomaly": "core",
    }  # fmt: skip
    assert by_name["read() -> 1"]["args"]["anomaly"] == "fails here"
    assert by_name["write(3) -> ?"]["args"]["open"] is True
    faults = [e["name"] for e in events if e.get("cat") == "fault"]
    assert faults == ["partition of {0, 1} | {2, 3}"]


# --- files ---


@pytest.mark.parametrize("form", FORMATS)
def test_a_report_is_saved_by_suffix(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"report.{form}"
    REPORTS["hostile"].save(path)
    begin = {"html": "<!DOCTYPE html>", "svg": "<svg ", "json": '{"traceEvents"', "txt": "<img "}
    assert path.read_text(encoding="utf-8").startswith(begin[form])


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"html, svg, json, txt; 'pdf' is none of them"):
        small_report().save(tmp_path / "report.pdf")
