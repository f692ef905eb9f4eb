"""The pages in a real browser, from the disk, with the network off: on a screen and on a phone, light and dark."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from copies import HANGS
from hf_mlcl.metrics import f1
from hf_mlcl.pages import write_explain_page
from hf_mlcl.study.publishing import publish
from pages.made import NAMES, explained
from study.made import finished_study, run, write_work

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, which the dev extra has")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs a Chromium of the system (apt-get install chromium)")

SIZES = {"screen": (1280, 900), "phone": (390, 844)}
LOOKS = [("screen", "light"), ("phone", "dark")]
LOOKS += [pytest.param(*look, marks=pytest.mark.slow) for look in (("screen", "dark"), ("phone", "light"))]
OUTSIDE = """() => {
  const out = [];
  for (const one of document.querySelectorAll("body *:not(script):not(style)")) {
    if (one.closest(".scroll, svg, details, #vg-tooltip-element")) continue;
    const box = one.getBoundingClientRect();
    const outside = box.width && (box.right > innerWidth + 1 || box.left < -1);
    if (outside) out.push(one.tagName + " " + one.textContent.slice(0, 40));
  }
  for (const drawing of document.querySelectorAll(".chart svg.marks")) {
    const frame = drawing.getBoundingClientRect();
    for (const text of drawing.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      const cut = box.width && (box.right > frame.right + 2 || box.left < frame.left - 2);
      if (cut) out.push("chart: " + text.textContent);
    }
  }
  if (document.documentElement.scrollWidth > innerWidth) out.push("the page itself");
  return out;
}"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        flags = ["--no-sandbox"] if os.name == "posix" and os.geteuid() == 0 else []  # which root must not do without
        made = driver.chromium.launch(executable_path=BROWSER, args=flags, timeout=1000 * HANGS)
        yield made
        made.close()


@pytest.fixture
def visit(browser):
    """Open a page; what goes wrong in it, and what it asks for, is noted."""
    contexts = []

    def opened(path, size="screen", scheme="light"):
        width, height = SIZES[size]
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, offline=True)
        contexts.append(context)
        context.set_default_timeout(1000 * HANGS)
        page = context.new_page()
        page.trouble = []
        page.on("console", lambda line: page.trouble.append(line.text) if line.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: page.trouble.append(str(error)))
        page.on(
            "request",
            lambda asked: None if asked.url.startswith(("file:", "data:", "blob:")) else page.trouble.append(asked.url),
        )
        page.goto(path.as_uri())
        page.wait_for_selector(f"html[data-drawn={scheme}]")
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def explain_page(tmp_path_factory):
    return write_explain_page(tmp_path_factory.mktemp("page") / "explain.html", explained())


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    runs = [
        (
            run("toy_text", loss, seed, learning_rate=rate),
            {"test_macro_f1": score + 0.01 * seed, "alignment": 1.0, "uniformity": -2.0},
        )
        for loss, score, rate in (("zlpr", 0.4, 0.1), ("reg", 0.5, 0.2), ("wo_reg", 0.45, 0.2))
        for seed in range(2)
    ]
    study = finished_study(folder, runs, metrics=("macro_f1",))
    for number, (one, _) in enumerate(runs):
        write_work(study, one, {name: 0.1 * number + 0.02 * i for i, name in enumerate(NAMES)})
    publish(study)
    return folder / "report.html"


@pytest.mark.parametrize(("size", "scheme"), LOOKS)
@pytest.mark.parametrize("which", ["explain_page", "report"])
def test_a_page_shows_everything_without_an_error_and_nothing_runs_out_of_it(visit, request, which, size, scheme):
    page = visit(request.getfixturevalue(which), size, scheme)
    charts = page.locator("[data-chart]")
    assert charts.count() >= 3
    assert page.locator("[data-chart] svg.marks, [data-chart] canvas.marks").count() == charts.count()
    assert page.evaluate(OUTSIDE) == []
    assert page.trouble == []
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, paper[4:-1].split(","))) < 200) == (scheme == "dark")


def place_on_map(page, row):
    """Where a row is, in pixels of the window."""
    return page.evaluate(
        """(id) => {
          const row = rows.find((one) => one.id === id), view = views.map;
          const [left, top] = view.origin(), pad = view.padding();
          document.querySelector("[data-chart=map]").scrollIntoView({block: "center"});
          const box = document.querySelector("[data-chart=map] canvas").getBoundingClientRect();
          const x = box.left + pad.left + left + view.scale("x")(row.x);
          return [x, box.top + pad.top + top + view.scale("y")(row.y)];
        }""",
        row,
    )


def lonely_row():
    """The row that is farthest from all others on the map: nothing covers it."""
    from hf_mlcl.evaluation import project_2d

    places = project_2d(explained().test.features)
    distances = np.linalg.norm(places[:, None] - places[None], axis=2) + 1e9 * np.eye(len(places))
    return int(distances.min(1).argmax())


@pytest.mark.parametrize("size", SIZES)
def test_the_map_answers_to_hover_and_to_a_click(visit, explain_page, size):
    page, row, one = visit(explain_page, size), lonely_row(), explained()
    x, y = place_on_map(page, row)
    page.mouse.move(x - 30, y)
    page.mouse.move(x, y)
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    assert one.test.inputs[row] in tooltip.inner_text()
    page.mouse.click(*place_on_map(page, row))
    page.wait_for_selector("#row .cards .card")
    assert one.test.inputs[row] in page.locator("#row").inner_text()
    assert page.trouble == []


def test_the_map_is_coloured_by_any_label_and_shows_errors_only(visit, explain_page):
    page, one = visit(explain_page), explained()
    decided = one.rule.decide(one.probabilities)
    states = "() => views.map.data('data_0').map((row) => row.state)"
    page.get_by_label("Colour by").select_option(label="anger")
    page.wait_for_function(f"({states})().includes('without the label')")
    found = page.evaluate(states)
    truth, given = one.test.labels[:, 1], decided[:, 1]
    assert found.count("missed") == int((truth & ~given).sum())
    assert found.count("given wrongly") == int((given & ~truth).sum())
    assert found.count("right") == int((given & truth).sum())


def test_the_slider_moves_precision_and_recall_of_a_label(visit, explain_page):
    page, one = visit(explain_page), explained()
    page.locator("[data-chart=threshold] select").select_option(label="anger")
    page.wait_for_function("document.getElementById('at').textContent.startsWith('anger at 0.40')")
    for at in (0.1, 0.75):
        page.locator("[data-chart=threshold] input[type=range]").fill(str(at))
        page.wait_for_function(f"document.getElementById('at').textContent.startsWith('anger at {at:.2f}')")
        told = page.locator("#at").inner_text()
        made, truth = one.probabilities[:, 1] >= np.float32(at), one.test.labels[:, 1]
        assert f"precision {(made & truth).sum() / made.sum():.3f}" in told
        assert f"recall {(made & truth).sum() / truth.sum():.3f}" in told
        assert f"F1 {f1(truth[:, None], made[:, None])[0]:.3f}" in told
    assert page.evaluate("views.reliability.signal('label')") == 1


@pytest.mark.parametrize(("which", "heading"), [("explain_page", "F1"), ("report", "Macro-F1 (%)")])
def test_a_table_is_sorted_by_any_column_in_both_directions(visit, request, which, heading):
    page = visit(request.getfixturevalue(which))
    table = page.locator("#label-table" if which == "explain_page" else "#run-table")
    headings = [text.strip() for text in table.locator("thead th").all_inner_texts()]
    column = headings.index(heading) + 1

    def values():
        return [float(text) for text in table.locator(f"tbody td:nth-child({column})").all_inner_texts()]

    before = values()
    table.locator(f"thead th:nth-child({column}) button").click()
    once = values()
    table.locator(f"thead th:nth-child({column}) button").click()
    assert sorted(before) in (once, once[::-1])
    assert values() == once[::-1]


def test_the_search_finds_a_row_and_its_nearest_training_examples(visit, explain_page):
    page, one = visit(explain_page, "phone"), explained()
    page.locator("#search").fill("text 17 of")
    page.wait_for_selector("#row .cards .card")
    assert one.test.inputs[17] in page.locator("#row").inner_text()
    assert page.locator("#row .cards .card").count() == 5
    assert "similarity" in page.locator("#row .cards").inner_text()
    page.locator("#search").fill("test row 41")
    page.wait_for_function("document.getElementById('row').textContent.includes('text 40 of')")
    page.locator("#search").fill("nothing has these words")
    page.wait_for_function("document.getElementById('count').textContent === '0 rows'")


def test_a_page_follows_when_the_system_turns_dark(visit, explain_page):
    page = visit(explain_page)
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("html[data-drawn=dark]")
    assert page.trouble == []


def test_deltas_of_labels_follow_the_two_losses_that_are_chosen(visit, report):
    page = visit(report)
    chart = page.locator("[data-chart=deltas]")
    chart.get_by_label("F1 of").select_option("reg")
    chart.get_by_label("minus that of").select_option("zlpr")
    deltas = "() => views.deltas.data('data_0').map((row) => row.delta)"
    page.wait_for_function(f"({deltas})().every((value) => Math.abs(value - 0.2) < 1e-6)")
    assert len(page.evaluate(deltas)) == len(NAMES)
