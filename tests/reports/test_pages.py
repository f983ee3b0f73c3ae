"""The HTML reports in a real browser: complete, quiet, readable, and deaf to what models say."""

from __future__ import annotations

import pytest
from runs import HOSTILE, write_run

from pytest_pinchbench.reports.files import write_files
from pytest_pinchbench.results.comparison import compare
from pytest_pinchbench.results.summary import read_summary

pytestmark = pytest.mark.chromium

SCREENS = pytest.mark.parametrize(
    ("width", "dark"), [(1280, False), (1280, True), (400, False), (400, True)]
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """``report.html`` of a run that has everything: categories, attempts, an invalid task, a
    baseline, and a model and tasks whose every text is hostile.
    """
    folder = tmp_path_factory.mktemp("report")
    old = {f"task_{n:02}_with_quite_a_long_name": [n / 11] * 3 for n in range(12)}
    new = {task: [score / 2, score, score] for task, (score, *_) in old.items()}
    new["task_11_with_quite_a_long_name"] = [None] * 3
    categories = {task: ["writing", "coding & more", HOSTILE][n % 3] for n, task in enumerate(new)}
    baseline = read_summary(write_run(folder / "old", old, model="lab/old").path)
    directory = write_run(
        folder / "new", new, model=f"lab/{HOSTILE}", categories=categories, text=HOSTILE
    )
    summary = read_summary(directory.path)
    said = []
    write_files(
        directory, directory.records(), summary, [compare(baseline, summary)], say=said.append
    )
    assert said == []
    return directory.path / "report.html"


@pytest.fixture(scope="module")
def html_page(finished):
    return finished.folder / "page.html"


def text_of(page):
    return page.run("document.body.innerText")


def unreadable(page):
    """Texts whose colour is too close to what they stand on (WCAG AA: 4.5 to 1)."""
    return page.run(
        """(() => {
        const canvas = document.createElement("canvas").getContext("2d");
        const parse = (colour) => {
          canvas.clearRect(0, 0, 1, 1);
          canvas.fillStyle = colour;
          canvas.fillRect(0, 0, 1, 1);
          return canvas.getImageData(0, 0, 1, 1).data;
        };
        const light = (rgb) => [0, 1, 2].map((i) => rgb[i] / 255)
          .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
          .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
        const behind = (element) => {
          for (let at = element; at; at = at.parentElement) {
            const colour = parse(getComputedStyle(at).backgroundColor);
            if (colour[3] > 250) return colour;
          }
          return parse("canvas");
        };
        const found = new Set();
        const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        while (walk.nextNode()) {
          const element = walk.currentNode.parentElement;
          if (!walk.currentNode.data.trim() || !element.checkVisibility()) continue;
          const style = getComputedStyle(element);
          const inSvg = element instanceof SVGElement;
          if (inSvg && element.getAttribute("opacity") === "0") continue;
          const [a, b] = [parse(inSvg ? style.fill : style.color), behind(element)].map(light);
          const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
          if (contrast < 4.5) found.add(walk.currentNode.data.trim().slice(0, 40));
        }
        return [...found];
        })()"""
    )


def smallest_text(page):
    """Height in pixels of the smallest letters on the page, as they come out on the screen."""
    return page.run(
        """Math.min(...[...document.querySelectorAll("body *")]
        .filter((e) => e.childElementCount === 0 && e.textContent.trim() && e.checkVisibility())
        .filter((e) => e.getAttribute("opacity") !== "0" && !e.closest("title, script, style"))
        .map((e) => parseFloat(getComputedStyle(e).fontSize)
          * (e instanceof SVGElement ? Math.hypot(e.getScreenCTM().a, e.getScreenCTM().b) : 1)))"""
    )


@SCREENS
def test_the_report_is_quiet_and_readable(chromium, report, tmp_path, width, dark):
    page = chromium.open(report, width=width, dark=dark)
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.screenshot(tmp_path / "report.png")
    assert page.complaints() == []
    assert page.requests() == []
    assert page.width() <= width
    assert unreadable(page) == []
    assert smallest_text(page) >= 9.5


@SCREENS
def test_the_pytest_html_report_is_quiet_and_readable(chromium, html_page, tmp_path, width, dark):
    page = chromium.open(html_page, width=width, dark=dark)
    page.run("document.getElementById('show_all_details').click()")
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.screenshot(tmp_path / "page.png")
    assert page.complaints() == []
    assert page.requests() == []
    assert page.width() <= width
    assert unreadable(page) == []
    assert smallest_text(page) >= 9.5


def test_a_category_has_a_bar_as_long_as_its_mean(chromium, tmp_path):
    scores = {f"task_{n:02}": [n % 4 / 4 + n / 60] for n in range(10)} | {"task_10": [None]}
    categories = {
        task: ["writing", "coding & more", HOSTILE][n // 5] for n, task in enumerate(scores)
    }
    directory = write_run(tmp_path / "run", scores, categories=categories)
    write_files(directory, directory.records(), read_summary(directory.path))
    page = chromium.open(directory.path / "report.html", width=1280)
    rows = page.run(
        """[...document.querySelectorAll('.categories tbody tr')].map((row) => {
        const whole = row.querySelector('.bar div').getBoundingClientRect();
        const texts = [...row.cells].slice(0, 3).map((cell) => cell.textContent);
        const ends = [...row.querySelectorAll('.bar i')].flatMap((part) => {
          const box = part.getBoundingClientRect();
          return [box.left, box.right].map((x) => (x - whole.left) / whole.width); });
        return [...texts, ...ends]; })"""
    )
    assert rows[0] == [HOSTILE, "-", "-"]  # only an invalid task: neither mean nor bar
    assert [row[0] for row in rows[1:]] == ["coding & more", "writing"]
    assert rows[1][1] != rows[2][1]
    for _, mean, interval, *ends in rows[1:]:
        shown = [0, float(mean), *map(float, interval.split(" to "))]
        assert ends == pytest.approx(shown, abs=0.005)


def test_what_a_model_says_stays_text(chromium, report):
    page = chromium.open(report, width=1280)
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.run("document.title") == f"PinchBench: lab/{HOSTILE}"
    assert page.run("document.querySelectorAll('img').length") == 0
    assert page.run("document.querySelectorAll('script').length") == 1
    assert f"wrote made.txt: {HOSTILE}" in text_of(page)


def test_no_script_runs_in_the_report_but_its_own(chromium, report, tmp_path):
    """Even text that escaped escaping could do nothing."""
    changed = tmp_path / "report.html"
    injected = "<script>document.title = 'owned'</script><img src='https://example.invalid/x.png'>"
    changed.write_text(report.read_text().replace("</main>", f"</main>{injected}"))
    page = chromium.open(changed, width=1280)
    assert page.run("document.title") != "owned"
    assert any("Content Security Policy" in complaint for complaint in page.complaints())


def test_the_table_of_tasks_sorts_by_number_and_by_name(chromium, report):
    page = chromium.open(report, width=1280)
    tasks = "document.querySelector('.tasks table')"
    first = f"{tasks}.tBodies[0].rows[0].cells[0].textContent"

    def click(title):
        page.run(
            f"[...{tasks}.tHead.rows[0].cells].find((c) => c.textContent === '{title}')"
            ".querySelector('button').click()"
        )

    click("score")
    assert page.run(first) == "task_11_with_quite_a_long_name"  # invalid, below every score
    click("score")
    assert page.run(first) == "task_10_with_quite_a_long_name"
    click("task")
    assert page.run(first) == "task_00_with_quite_a_long_name"


def test_a_link_in_the_table_opens_the_task(chromium, report):
    page = chromium.open(report, width=1280)
    page.run("document.querySelector('td a[href=\"#task_03_with_quite_a_long_name\"]').click()")
    opened = "document.getElementById('task_03_with_quite_a_long_name').open"
    # the browser tells of a new hash in an event of its own
    waited = (
        f"new Promise((done) => {opened} ? done(true) : "
        f"addEventListener('hashchange', () => done({opened})))"
    )
    assert page.run(waited) is True


def test_the_pytest_html_report_has_columns_that_sort(chromium, html_page):
    page = chromium.open(html_page, width=1280)
    heads = page.run(
        "[...document.querySelectorAll('#results-table-head th')].map((e) => e.innerText)"
    )
    assert heads == [
        *("Result", "Test", "Score", "Category", "Tokens", "Cost", "Duration", "Links")
    ]

    def column(name):
        return page.run(
            f"[...document.querySelectorAll('#results-table td.col-{name}')]"
            ".map((e) => e.innerText)"
        )

    assert set(column("category")) == {"file_ops"}
    assert set(column("tokens")) == {"15"}
    page.run("document.querySelector('th[data-column-type=score]').click()")
    assert column("score") == ["-", "0.500", "1.000"]
    page.run("document.querySelector('th[data-column-type=score]').click()")
    assert column("score") == ["1.000", "0.500", "-"]
    page.run("document.querySelector('th[data-column-type=cost]').click()")
    assert column("cost") == ["$0.5000", "$9.5000", "$10.00"]


def test_a_task_can_be_read_in_place_in_the_pytest_html_report(chromium, html_page):
    page = chromium.open(html_page, width=1280)
    page.run("document.getElementById('show_all_details').click()")
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    text = text_of(page)
    assert "lab/m · no official mean (1 invalid of 3 attempts) · over 2 valid tasks 0.750" in text
    assert "Make made.txt that says yes." in text
    assert HOSTILE in text
    assert "FATAL the agent ended with 3" in text
    assert page.run("document.querySelectorAll('img[src=x]').length") == 0
    assert "owned" not in page.run("document.title")
