"""The HTML reports in a real browser: complete, quiet, readable, and deaf to what models say."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest
from runs import HOSTILE, write_run

from pytest_pinchbench.reports.files import write_files
from pytest_pinchbench.reports.index_page import write_index
from pytest_pinchbench.reports.text import mean_line, verdict
from pytest_pinchbench.results.comparison import compare
from pytest_pinchbench.results.summary import read_summary

pytestmark = pytest.mark.chromium

SCREENS = pytest.mark.parametrize(
    ("width", "dark"), [(1280, False), (1280, True), (400, False), (400, True)]
)


MISCHIEF = {f"{HOSTILE.replace('/', '')}.txt": HOSTILE.encode(), "page.html": HOSTILE.encode()}
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """``report.html`` of a run that has everything: categories, attempts, an invalid task, a
    baseline, and a model and tasks whose every text is hostile. Beside it: attempts, an index.
    """
    folder = tmp_path_factory.mktemp("report")
    old = {f"task_{n:02}_with_quite_a_long_name": [n / 11] * 3 for n in range(12)}
    new = {task: [score / 2, score, score] for task, (score, *_) in old.items()}
    new["task_11_with_quite_a_long_name"] = [None] * 3
    categories = {task: ["writing", "coding & more", HOSTILE][n % 3] for n, task in enumerate(new)}
    write_run(folder / "lab-old" / "1", old, model="lab/old", description={"run_id": "old"})
    baseline = read_summary(folder / "lab-old" / "1")
    directory = write_run(
        folder / "lab-new" / "1",
        new,
        model=f"lab/{HOSTILE}",
        categories=categories,
        text=HOSTILE,
        description={"suites": {HOSTILE: "0123"}, "suite_tasks": {HOSTILE: 20}},
    )
    with_workspace(directory.path / TASK / "attempt-1", {**MISCHIEF, "dot.png": PIXEL})
    summary = read_summary(directory.path)
    said = []
    write_files(
        directory,
        directory.records(),
        summary,
        [compare(baseline, summary)],
        say=said.append,
    )
    assert said == []
    write_index(folder)
    return directory.path / "report.html"


TASK = "task_03_with_quite_a_long_name"


def with_workspace(folder, files):
    with tarfile.open(folder / "workspace.tar.gz", "w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    record = json.loads((folder / "result.json").read_bytes())
    record["artifacts"]["workspace"] = "workspace.tar.gz"
    (folder / "result.json").write_text(json.dumps(record))


@pytest.fixture(scope="module")
def pages(report):
    return {
        "report": report,
        "attempt": report.parent / TASK / "attempt-1" / "attempt.html",
        "index": report.parents[2] / "index.html",
    }


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """The source of axe-core, which finds what keeps people from using a page."""
    folder = tmp_path_factory.mktemp("axe")
    command = ["npm", "install", "--no-save", "--ignore-scripts", "axe-core@4.10.3"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"npm cannot fetch axe-core: {error}")
    if done.returncode:
        pytest.skip(f"npm cannot fetch axe-core: {done.stderr[-200:]}")
    return (folder / "node_modules/axe-core/axe.min.js").read_text()


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


def open_everything(page):
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.run("document.querySelectorAll('input[type=checkbox]').forEach((box) => box.click())")


@SCREENS
@pytest.mark.parametrize("name", ["report", "attempt", "index"])
def test_a_page_is_quiet_and_readable(chromium, pages, tmp_path, name, width, dark):
    page = chromium.open(pages[name], width=width, dark=dark)
    open_everything(page)
    page.screenshot(tmp_path / "page.png")
    assert page.complaints() == []
    assert page.requests() == []
    assert page.width() <= width
    assert unreadable(page) == []
    assert smallest_text(page) >= 9.5


@pytest.mark.parametrize("name", ["report", "attempt", "index"])
def test_a_page_can_be_used_by_everyone(chromium, pages, axe, name):
    page = chromium.open(pages[name], width=1280)
    open_everything(page)
    page.run(f"{axe};0")
    found = page.run(
        "axe.run().then(({violations}) => violations"
        ".filter(({impact}) => ['serious', 'critical'].includes(impact))"
        ".map(({id, nodes}) => [id, nodes.slice(0, 3).map(({html}) => html)]))"
    )
    assert found == []


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


@pytest.mark.parametrize("name", ["report", "attempt", "index"])
def test_what_a_model_says_stays_text(chromium, pages, name):
    page = chromium.open(pages[name], width=1280)
    open_everything(page)
    assert "owned" not in page.run("document.title").replace(f"lab/{HOSTILE}", "")
    assert page.run("document.querySelectorAll('img:not([src^=\"data:\"])').length") == 0
    assert page.run("document.querySelectorAll('script:not([type])').length") == 1
    assert HOSTILE in text_of(page)


def test_an_attempt_shows_conversation_grade_and_files(chromium, pages):
    page = chromium.open(pages["attempt"], width=1280)
    steps = page.run("[...document.querySelectorAll('.step > summary')].map((e) => e.innerText)")
    assert [step.split()[0] for step in steps] == ["1", "2", "3"]
    closed = "[...document.querySelectorAll('.step details')].map((one) => one.open)"
    assert page.run(closed) == [False, False]  # thinking and a tool's result
    open_everything(page)
    text = text_of(page)
    for words in (
        *("Make made.txt that says yes.", "A file, then.", f"wrote made.txt: {HOSTILE}"),
        *("Say hello.", "says hello", "def grade(transcript"),
        *("page.html", "result.json", f"--pinchbench-suite {TASK}"),
    ):
        assert words in text
    assert page.run("document.querySelector('img[alt=\"dot.png\"]').naturalWidth") == 1
    links = page.run("[...document.querySelectorAll('a')].map((e) => decodeURI(e.href))")
    for link in links:
        assert Path(link.removeprefix("file://")).is_file()
    assert len(links) > 4


def test_every_link_of_the_pages_leads_to_a_file_beside(chromium, pages):
    for name in ("report", "index"):
        page = chromium.open(pages[name], width=1280)
        links = page.run("[...document.querySelectorAll('a')].map((e) => decodeURI(e.href))")
        assert links
        there = [link for link in links if Path(link.removeprefix("file://")).is_file()]
        # the older run of the index was made without its page
        assert len(links) - len(there) == (1 if name == "index" else 0)


def test_no_script_runs_in_the_report_but_its_own(chromium, report, tmp_path):
    """Even text that escaped escaping could do nothing."""
    changed = tmp_path / "report.html"
    injected = "<script>document.title = 'owned'</script><img src='https://example.invalid/x.png'>"
    changed.write_text(report.read_text().replace("</main>", f"</main>{injected}"))
    page = chromium.open(changed, width=1280)
    assert page.run("document.title") != "owned"
    assert any("Content Security Policy" in complaint for complaint in page.complaints())


SHOWN = "[...document.querySelectorAll('.list tbody tr')].filter((row) => !row.hidden)"
FIRST = f"{SHOWN}[0].querySelector('.wide').textContent"


def click(page, title):
    page.run(
        "[...document.querySelectorAll('.list thead th')]"
        f".find((c) => c.textContent === '{title}').querySelector('button').click()"
    )


def test_the_list_of_tasks_sorts_by_number_and_by_name(chromium, report):
    page = chromium.open(report, width=1280)
    click(page, "score")
    assert page.run(FIRST) == "task_11_with_quite_a_long_name"  # invalid, below every score
    click(page, "score")
    assert page.run(FIRST) == "task_10_with_quite_a_long_name"
    click(page, "task")
    assert page.run(FIRST) == "task_00_with_quite_a_long_name"


def choose(page, name, value):
    page.run(
        f"(() => {{ const one = document.querySelector('[name={name}]'); one.value = {value!r};"
        " one.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )


def test_the_list_is_filtered_and_its_state_is_in_the_address(chromium, report):
    page = chromium.open(report, width=1280)
    choose(page, "state", "invalid")
    assert page.run(f"{SHOWN}.length") == 1
    assert page.run("document.querySelector('output').textContent") == "1"
    choose(page, "state", "")
    choose(page, "q", "TASK_0")
    choose(page, "category", "coding & more")
    click(page, "score")
    click(page, "score")
    shown = f"{SHOWN}.map((row) => row.querySelector('.wide').textContent.slice(0, 7))"
    assert page.run(shown) == ["task_07", "task_04", "task_01"]
    address = page.run("location.hash")
    again = chromium.open(report, width=1280, hash=address)
    assert again.run(shown) == ["task_07", "task_04", "task_01"]
    assert again.run("document.querySelector('[name=q]').value") == "TASK_0"


def press(page, key):
    page.run(
        "document.activeElement.dispatchEvent("
        f"new KeyboardEvent('keydown', {{ key: {key!r}, bubbles: true }}))"
    )


def test_the_keyboard_is_enough(chromium, pages):
    page = chromium.open(pages["report"], width=1280)
    focused = "document.activeElement.textContent.slice(0, 7)"
    for keys, where in (("jj", "task_01"), ("k", "task_00"), ("kj", "task_01")):
        for key in keys:
            press(page, key)
        assert page.run(focused) == where
    press(page, "/")
    assert page.run("document.activeElement.name") == "q"
    press(page, "j")  # a letter, there
    assert page.run("document.activeElement.name") == "q"
    press(page, "Escape")
    assert page.run("document.activeElement.tagName") == "BODY"
    reachable = "[...document.querySelectorAll('th')].every((e) => e.querySelector('button'))"
    assert page.run(reachable) is True
    attempt = chromium.open(pages["attempt"], width=1280)
    press(attempt, "j")
    press(attempt, "j")
    assert attempt.run("document.activeElement.textContent.trim()[0]") == "2"
    press(attempt, "o")
    assert attempt.run("[...document.querySelectorAll('.step')].some((one) => one.open)") is False


def test_the_index_shows_ticked_runs_task_by_task_and_what_the_statistics_say(chromium, pages):
    page = chromium.open(pages["index"], width=1280)
    assert page.run("document.getElementById('matrix').hidden") is True
    open_everything(page)
    rows = page.run(
        "[...document.querySelectorAll('#matrix table')].map((table) =>"
        " [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent)))"
    )
    new, old = (read_summary(pages["index"].parent / f"lab-{name}/1") for name in ("new", "old"))
    head, *runs = rows[0]
    assert head == ["run", "mean", "95 % interval", *(task["task_id"] for task in old["tasks"])]
    shown = {row[0]: row[1:] for row in runs}
    assert shown["lab/old"][0] == "0.500"
    assert shown["lab/old"][2:5] == ["0.000", "0.091", "0.182"]
    assert shown[f"lab/{HOSTILE}"][-1] == "inv"
    (pair,) = rows[1][1:]
    places = {summary["model"]: summary for summary in (new, old)}
    found = compare(places[pair[1]], places[pair[0]])
    assert pair[2:] == [verdict(found), mean_line(found)]
    address = page.run("location.hash")
    again = chromium.open(pages["index"], width=1280, hash=address)
    assert again.run("document.getElementById('matrix').hidden") is False


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
    assert "lab/m · no official mean: 1 invalid of 3 attempts · for reference 0.750 over 2" in text
    assert "Make made.txt that says yes." in text
    assert HOSTILE in text
    assert "FATAL the agent ended with 3" in text
    assert page.run("document.querySelectorAll('img[src=x]').length") == 0
    assert "owned" not in page.run("document.title")
