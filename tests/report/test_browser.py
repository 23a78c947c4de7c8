"""The report's page as people use it, in headless Chromium."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from checker import Unknown, check
from checker.report import Report, report_of, report_of_history
from tests.executions import load
from tests.report.browser import ARGUMENTS, chromium
from tests.report.histories import Register, invalid_run, small_report, valid_run
from tests.report.test_forms import hostile_report

pytestmark = pytest.mark.browser

Open = Callable[[Report], Page]

FRAMES = """
window.frames_ms = [];
const request = window.requestAnimationFrame;
window.requestAnimationFrame = (draw) => request((now) => {
  const begin = performance.now();
  draw(now);
  window.frames_ms.push(performance.now() - begin);
});
"""

ZOOM = """async () => {
  const canvas = document.getElementById("canvas");
  const box = canvas.getBoundingClientRect();
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  document.getElementById("zoom-all").click();
  await frame();
  window.frames_ms.length = 0;
  for (const deltaY of [...Array(25).fill(-240), ...Array(25).fill(240)]) {
    canvas.dispatchEvent(new WheelEvent("wheel", { deltaY, ctrlKey: true, cancelable: true,
      clientX: box.left + 500, clientY: box.top + 60 }));
    await frame();
  }
  return window.frames_ms;
}"""

COUNT_PIXELS = """(colour) => {
  const drawn = document.getElementById("canvas");
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [drawn.width, drawn.height];
  canvas.getContext("2d", { willReadFrequently: true }).drawImage(drawn, 0, 0);
  const wanted = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let at = 0; at < data.length; at += 4) {
    if (wanted.every((value, channel) => data[at + channel] === value)) count += 1;
  }
  return count;
}"""

BAD_LIGHT, BAD_DARK = "#b3261e", "#ee7168"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def only_page(browser: Browser) -> Iterator[tuple[Page, list[str]]]:
    """One page for all tests, and what it complained of and asked for."""
    page = browser.new_page(viewport={"width": 1000, "height": 640})
    page.set_default_timeout(10_000)
    page.add_init_script(FRAMES)
    problems: list[str] = []
    page.on("console", lambda message: problems.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: problems.append(f"request: {request.url}"))
    yield page, problems
    page.close()


@pytest.fixture
def open_report(only_page: tuple[Page, list[str]], tmp_path: Path) -> Iterator[Open]:
    """Opens a report; afterwards, it must have complained of nothing and asked for nothing."""
    page, problems = only_page
    path = tmp_path / "report.html"

    def open_(report: Report) -> Page:
        report.save(path)
        page.emulate_media(color_scheme="light")
        page.goto(path.as_uri())
        return page

    problems.clear()
    yield open_
    assert set(problems) == {f"request: {path.as_uri()}"}


def press(page: Page, *keys: str) -> None:
    page.focus("#timeline")
    for key in keys:
        page.keyboard.press(key)


def label(page: Page) -> str:
    return page.inner_text("#label")


def gaps(page: Page) -> list[str]:
    return page.locator("#gaps button").all_inner_texts()


def test_the_page_begins_at_the_failing_operation(open_report: Open) -> None:
    page = open_report(small_report())
    assert page.title() == "small.edn: not linearizable"
    assert page.inner_text("#headline") == "not linearizable"
    assert page.inner_text("#explanation p >> nth=0").startswith("read() -> 1 of process 1 has no")
    assert page.locator("#state-rows tr").all_inner_texts()[1].split("\t") == [
        "3", "the register is 3", "write(3) -> ?",
    ]  # fmt: skip
    assert label(page) == "read() -> 1"
    assert page.evaluate(COUNT_PIXELS, BAD_LIGHT) > 500


def test_why_not_here_tells_the_state_and_the_specifications_reason(open_report: Open) -> None:
    page = open_report(small_report())
    (gap,) = gaps(page)
    assert gap.split("\n") == ["✗", "after #3 write(2)", "2", "Not here: the register is 2."]


def test_arrow_keys_move_between_operations_and_say_them(open_report: Open) -> None:
    page = open_report(small_report())
    press(page, "ArrowLeft")
    live = page.locator("#live")
    expect(live).to_have_text(
        "read() -> 1. process 1. outcome ok. interval from event 2 to event 5. "
        "in the order 2 of 3. line 3 of small.edn"
    )
    press(page, "ArrowUp")
    assert label(page) in {"write(1)", "write(2)"}
    press(page, "ArrowDown", "ArrowDown")
    assert label(page) == "write(3) -> ?"
    press(page, "Home")
    assert label(page) == "write(1)"
    press(page, "End")
    assert label(page) == "write(4)"
    press(page, "Escape")
    expect(page.locator("#nothing")).to_be_visible()


def test_instants_are_chosen_by_key_and_said(open_report: Open) -> None:
    operations, verdict = valid_run(20, seed=1)
    report = report_of(operations, verdict, Register())
    bars = report.page.bars
    of_lane = [bar for bar in range(len(bars)) if bars.lane[bar] == bars.lane[0]]
    bar = max(of_lane, key=lambda bar: bars.gap_count[bar])
    page = open_report(report)
    press(page, "Home", *["ArrowRight"] * of_lane.index(bar))
    count = page.locator("#gaps li").count()
    assert count == bars.gap_count[bar] > 1
    for _ in range(count):
        page.keyboard.press("Shift+ArrowLeft")
    current = page.locator('#gaps button[aria-current="true"]')
    assert current.inner_text() == gaps(page)[0]
    page.keyboard.press(".")
    assert current.inner_text() == gaps(page)[1]
    where, state, said = gaps(page)[1].split("\n")[1:]
    expect(page.locator("#live")).to_have_text(f"{where}. The state is {state}. {said}")


def test_a_click_selects_the_operation_and_the_instant(open_report: Open) -> None:
    page = open_report(report_of(*valid_run(12, processes=3, seed=3), Register()))
    box = page.locator("#canvas").bounding_box()
    assert box is not None
    chosen = set()
    for x in range(160, int(box["width"]), 45):
        page.mouse.click(box["x"] + x, box["y"] + 26 + 20)
        if page.locator("#selected").is_visible():
            current = page.locator('#gaps button[aria-current="true"]').inner_text()
            chosen.add((label(page), current))
    assert len({operation for operation, _ in chosen}) >= 3
    assert len(chosen) > len({operation for operation, _ in chosen})


def test_search_counts_jumps_and_ends(open_report: Open) -> None:
    page = open_report(report_of(*valid_run(200), Register()))
    press(page, "/")
    page.keyboard.type("WRITE(1")
    found = page.locator("#found")
    expect(found).to_have_text("12 found")
    page.keyboard.press("Enter")
    expect(found).to_have_text("1 of 12")
    first = label(page)
    page.keyboard.press("Enter")
    expect(found).to_have_text("2 of 12")
    page.keyboard.press("Shift+Enter")
    assert label(page) == first
    assert first.startswith("write(1")
    page.keyboard.press("Shift+Enter")
    expect(found).to_have_text("12 of 12")
    page.fill("#search", "nowhere to be found")
    expect(found).to_have_text("none found")
    page.keyboard.press("Escape")
    assert page.input_value("#search") == ""
    assert page.evaluate("document.activeElement.id") == "timeline"


def test_only_the_core_leaves_the_rest_out(open_report: Open) -> None:
    page = open_report(small_report())
    press(page, "Home", "ArrowDown")
    assert label(page) == "read() -> 1"
    page.check("#core")
    expect(page.locator("#nothing")).to_be_visible()  # what was selected is not in the core
    seen = []
    for key in ("Home", "ArrowRight", "ArrowDown", "ArrowDown", "ArrowDown"):
        press(page, key)
        seen.append(label(page))
    assert seen == ["write(1)", "write(2)", "read() -> 1", "write(3) -> ?", "write(3) -> ?"]
    press(page, "c")
    assert not page.is_checked("#core")


def test_the_filter_shows_one_object(open_report: Open) -> None:
    page = open_report(report_of(*valid_run(30, keys=("x", "y")), Register()))
    page.select_option("#object", label="y")
    page.fill("#search", "'x'")
    expect(page.locator("#found")).to_have_text("none found")
    page.select_option("#object", label="all")
    expect(page.locator("#found")).not_to_have_text("none found")


def test_dark_mode_follows_the_system_and_the_switch(open_report: Open) -> None:
    page = open_report(small_report())
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    assert page.evaluate(paper) == "rgb(251, 251, 250)"
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate(paper) == "rgb(18, 22, 26)"
    page.evaluate("() => new Promise(requestAnimationFrame)")
    assert page.evaluate(COUNT_PIXELS, BAD_DARK) > 500
    assert page.evaluate(COUNT_PIXELS, BAD_LIGHT) == 0
    page.click("#theme")
    assert page.evaluate(paper) == "rgb(251, 251, 250)"


def test_help_lists_the_keys_and_escape_closes_it(open_report: Open) -> None:
    page = open_report(small_report())
    press(page, "?")
    expect(page.locator("#help")).to_be_visible()
    assert page.locator("#keys tr").count() > 8
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    assert label(page) == "read() -> 1"


def test_axis_zoom_and_overview_keep_the_page_alive(open_report: Open) -> None:
    page = open_report(report_of(*invalid_run(60, clock="monotonic", crashes=0.1), Register()))
    page.select_option("#axis", "time")
    before = page.screenshot()
    press(page, "0", "+", "+", "a", "d", "-", "f")
    page.mouse.move(600, 400)
    page.mouse.down()
    page.mouse.move(400, 420, steps=3)
    page.mouse.up()
    page.mouse.wheel(0, 50)
    assert page.screenshot() != before
    assert label(page) == "read() -> -1"


def test_nothing_in_a_history_runs_or_breaks_the_page(open_report: Open) -> None:
    page = open_report(hostile_report())
    assert page.inner_text("#headline") == "undecided"
    assert page.inner_text("#title").startswith("<img src=x onerror=alert(2)>")
    press(page, "Home")
    assert label(page).startswith("</script><script>alert(1)</script>(")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert page.locator("script").count() == 2


@pytest.mark.parametrize("name", ["ghost-entry-of-a-restarted-caller", "three-processes-all-alive"])
def test_a_history_of_the_service_has_lanes_for_lives_and_faults(
    name: str, open_report: Open
) -> None:
    history = next(e.history for e in load() if e.name == name)
    page = open_report(report_of_history(history, check(history), name=name))
    press(page, "End")
    assert "live_processes" in label(page)
    expect(page.locator("#why")).to_be_hidden()


def test_an_empty_history_has_a_page(open_report: Open) -> None:
    operations, _ = valid_run(0)
    page = open_report(report_of(operations, Unknown("There is nothing to check."), Register()))
    press(page, "ArrowRight", "Home", "f", "c", "+", "0")
    assert page.inner_text("#explanation") == "There is nothing to check."


def test_ten_thousand_operations_are_zoomed_without_lag(open_report: Open) -> None:
    def script_ms(operations: int) -> float:
        """Of a frame that draws."""
        run = invalid_run(operations, clock="monotonic", crashes=0.002, failures=0.02)
        frames: list[float] = open_report(report_of(*run, Register())).evaluate(ZOOM)
        assert len(frames) == 100, "one that draws, and one that does nothing, for each turn"
        return statistics.median(sorted(frames)[50:])

    # About 0.5 ms each: what is drawn is bounded. A busy machine may interrupt a frame, and seldom half.
    assert script_ms(10_000) < 16 + 4 * script_ms(100)
