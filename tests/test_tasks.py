"""The task file format: what a task file says, and what is refused, at which line."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from pytest_pinchbench.issues import TaskFileError
from pytest_pinchbench.suite.task_file import Prompt, Task, WorkspaceFile, load_task

FRONT = """\
id: task_a
name: A task
category: files
grading_type: llm_judge
timeout_seconds: 60
"""
AUTOMATED = FRONT.replace("llm_judge", "automated")
PROMPT = "## Prompt\n\nDo it.\n"
CHECKS = "\n## Automated Checks\n\n```python\n{}\n```\n"

Load = Callable[..., Task]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """``load(body, front)`` writes a task file into a skill checkout and loads it."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "tasks").mkdir()
    path = tmp_path / "tasks" / "task_a.md"

    def load(body: str = PROMPT, front: str = FRONT) -> Task:
        path.write_text(f"---\n{front}---\n\n{body}", encoding="utf-8")
        return load_task(path)

    return load


def refused(load: Callable[[], Task]) -> str:
    """``LINE: REASON`` of the error that loading ends with."""
    with pytest.raises(TaskFileError) as caught:
        load()
    error = caught.value
    assert str(error) == f"{error.path}:{error.line}: {error.reason}"
    return f"{error.line}: {error.reason}"


# -- what a task file says --------------------------------------------------------------------


def test_front_matter_becomes_fields(load: Load) -> None:
    task = load()
    assert (task.id, task.name, task.category) == ("task_a", "A task", "files")
    assert (task.grading_type, task.timeout_seconds) == ("llm_judge", 60.0)
    assert task.workspace_files == ()
    assert task.grading_weights is None


def test_name_and_category_may_be_left_out(load: Load) -> None:
    task = load(front="id: task_a\ngrading_type: llm_judge\ntimeout_seconds: 1.5\n")
    assert (task.name, task.category, task.timeout_seconds) == ("task_a", "uncategorized", 1.5)


def test_sections_are_taken_verbatim(load: Load) -> None:
    text = "First *line*  \n\n- [ ] one\n\n    indented\n\n> quoted\t<b>\n\n***\nlast"
    task = load(
        f"# Title\n\npreface\n\n## Prompt\n\n{text}\n\n## Expected Behavior\n\nGood.\n\n"
        "## Grading Criteria\n- [ ] x\n## LLM Judge Rubric\n\n### Deeper\n\nStrict.\n\n"
        "## Additional Notes\n\nNone.\n"
    )
    assert task.prompt == text
    assert task.prompts == (Prompt(text),)
    assert task.expected_behavior == "Good."
    assert task.grading_criteria == "- [ ] x"
    assert task.judge_rubric == "### Deeper\n\nStrict."
    assert task.sections["Additional Notes"] == "None."


@pytest.mark.parametrize(
    "text",
    [
        "Expected Behavior\n---",
        "Two lines\nExpected Behavior\n-----------------",
        "Prompt\n---",
        "```markdown\n## Expected Behavior\n```",
        "~~~\n## Expected Behavior\n```\n~~~",
        "````\n```\n## Expected Behavior\n```\n````",
        "    ## Expected Behavior",
        "<!--\n## Expected Behavior\n-->",
        "> ## Expected Behavior",
        "- item\n\n  ## Expected Behavior",
        "### Expected Behavior",
        "# Expected Behavior",
        "##Expected Behavior",
        r"\## Expected Behavior",
    ],
)
def test_what_only_looks_like_a_section_is_text(load: Load, text: str) -> None:
    task = load(f"## Prompt\n\nbefore\n\n{text}\n\nafter\n")
    assert task.prompt == f"before\n\n{text}\n\nafter"
    assert list(task.sections) == ["Prompt"]


@pytest.mark.parametrize(
    "heading",
    ["## Prompt", "## Prompt ##", "   ##   Prompt", "## prompt", "## PROMPT\t"],
)
def test_every_spelling_of_a_level_2_heading_begins_a_section(load: Load, heading: str) -> None:
    assert load(f"{heading}\n\nDo it.\n").sections == {"Prompt": "Do it."}


def test_only_newlines_end_lines(load: Load) -> None:
    """As in Markdown: ``str.splitlines`` would shift every section after these."""
    task = load("## Prompt\n\na\fb\u2028c\x0bd\x85e\n\n## Expected Behavior\n\nGood.\n")
    assert task.prompt == "a\fb\u2028c\x0bd\x85e"
    assert task.expected_behavior == "Good."


def test_windows_line_ends_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    path = tmp_path / "task_a.md"
    text = f"---\n{FRONT}---\n\n## Prompt\n\none\ntwo\n\n## Grading Criteria\n\nx\n"
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    task = load_task(path)
    assert (task.prompt, task.grading_criteria) == ("one\ntwo", "x")


def test_a_rule_of_dashes_in_the_body_does_not_end_the_front_matter(load: Load) -> None:
    assert load("## Prompt\n\na\n\n---\n\nb\n").prompt == "a\n\n---\n\nb"


@pytest.mark.parametrize(
    "block",
    [
        "```python\n{}\n```",
        "~~~python\n{}\n~~~",
        "`````python\n{}\n`````",
        '```python title="check.py"\n{}\n```',
        "``` python\n{}\n```",
        "```sh\nls\n```\n\n```python\n{}\n```\n\n```python\nsecond = 2\n```",
        "```python3\n{}\n```\n\n```python\nsecond = 2\n```",
        "```PY\n{}\n```",
        "```Python\n{}\n```",
        "```pycon\nno = 1\n```\n\n```python\n{}\n```",
    ],
)
def test_the_checks_are_the_first_python_block_whole(load: Load, block: str) -> None:
    code = 'def grade(transcript, workspace_path):\n    """## Prompt"""\n\n\treturn {"``": 1}'
    task = load(f"{PROMPT}\n## Automated Checks\n\nText.\n\n{block.replace('{}', code)}\n")
    assert task.automated_checks == f"{code}\n"


def test_a_longer_fence_holds_a_shorter_one(load: Load) -> None:
    code = 'TEXT = """\n```python\nx\n```\n"""\n'
    task = load(f"{PROMPT}\n## Automated Checks\n\n````python\n{code}````\n")
    assert task.automated_checks == code


def test_a_python_block_of_another_section_is_no_check(load: Load) -> None:
    task = load(f"{PROMPT}\n```python\nx = 1\n```\n\n## Automated Checks\n\nNone.\n")
    assert task.automated_checks is None


def test_sessions_replace_the_prompt(load: Load) -> None:
    task = load(
        "## Prompt\n\nSee the sessions.\n",
        FRONT + "sessions:\n- first\n- prompt: |\n    second\n\n  new_session: true\n"
        "- {id: x, message: third}\n",
    )
    assert task.prompts == (Prompt("first"), Prompt("second", new_session=True), Prompt("third"))
    assert task.prompt == "See the sessions."


def test_with_sessions_the_section_prompt_may_be_left_out(load: Load) -> None:
    task = load("## Expected Behavior\n\nGood.\n", FRONT + "sessions: [one, two]\n")
    assert task.prompt == "one\n\ntwo"


def test_weights_are_kept_as_given(load: Load) -> None:
    weights = "grading_weights: {automated: -1, llm_judge: 0.6}\n"
    assert load(front=FRONT + weights).grading_weights == {"automated": -1.0, "llm_judge": 0.6}


@pytest.mark.parametrize("key", ["workspace_files", "sessions", "grading_weights"])
def test_a_key_without_a_value_is_as_good_as_none(load: Load, key: str) -> None:
    assert load(front=f"{FRONT}{key}:\n") == load(front=f"{FRONT}{key}:   # nothing\n")


def test_unknown_front_matter_is_kept(load: Load) -> None:
    task = load(front=FRONT + "multi_session: true\n")
    assert task.front_matter["multi_session"] is True
    assert task.warnings == ()


def test_an_unknown_key_is_a_warning_with_the_nearest_known_one(load: Load) -> None:
    task = load(front=FRONT + "workspace_file: []\ncolour: red\n")
    assert [str(warning).partition("task_a.md:")[2] for warning in task.warnings] == [
        "7: unknown key 'workspace_file', did you mean 'workspace_files'?: it is not acted on",
        "8: unknown key 'colour': it is not acted on",
    ]


def test_a_missing_grading_type_and_timeout_have_defaults_and_a_warning(load: Load) -> None:
    front = FRONT.replace("grading_type: llm_judge\n", "").replace("timeout_seconds: 60\n", "")
    task = load(PROMPT + CHECKS.format("def grade(t, w): return {}"), front)
    assert (task.grading_type, task.timeout_seconds) == ("automated", 120)
    assert [warning.reason for warning in task.warnings] == [
        "grading_type is missing: automated is used",
        "timeout_seconds is missing: 120 is used",
    ]


def test_assets_may_lie_below_tasks(load: Load, tmp_path: Path) -> None:
    (tmp_path / "tasks" / "assets" / "chain").mkdir(parents=True)
    (tmp_path / "tasks" / "assets" / "chain" / "x").touch()
    (tmp_path / "tasks" / "assets" / "y").touch()
    (tmp_path / "assets" / "y").touch()
    files = "[{source: assets/chain/x, dest: x}, {source: y, dest: y}]"
    task = load(front=f"{FRONT}workspace_files: {files}\n")
    assert [file.source for file in task.workspace_files] == [
        tmp_path / "tasks" / "assets" / "chain" / "x",
        tmp_path / "assets" / "y",
    ]


def test_prerequisites_are_texts(load: Load) -> None:
    task = load(front=FRONT + "prerequisites:\n- cli:gh\n- npm:@a/b\n- service:x\n")
    assert task.prerequisites == ("cli:gh", "npm:@a/b", "service:x")
    assert "10: the prerequisite 'service:x' is not looked for" in str(task.warnings[0])
    message = refused(lambda: load(front=FRONT + "prerequisites: gh\n"))
    assert message == "7: prerequisites has to be a list of texts"


# -- files for the workspace ------------------------------------------------------------------


def test_workspace_files_are_text_or_assets(load: Load, tmp_path: Path) -> None:
    (tmp_path / "assets" / "data.csv").write_text("1")
    task = load(
        front=FRONT + "workspace_files:\n"
        "- {path: ./in/a.txt, content: 'x\n\n  y'}\n"
        "- {source: data.csv, dest: in/data.csv}\n"
        "- {source: assets/data.csv, dest: 'two words.csv'}\n"
        "- {path: empty, content: ''}\n"
    )
    asset = tmp_path / "assets" / "data.csv"
    assert task.workspace_files == (
        WorkspaceFile("in/a.txt", content="x\ny"),
        WorkspaceFile("in/data.csv", source=asset),
        WorkspaceFile("two words.csv", source=asset),
        WorkspaceFile("empty", content=""),
    )


def test_a_missing_asset_is_found_before_an_agent_is_paid(load: Load, tmp_path: Path) -> None:
    os.symlink("loop", tmp_path / "assets" / "loop")
    os.symlink("gone", tmp_path / "assets" / "dangling")
    for source in ("big.pdf", "assets/big.pdf", "loop", "dangling"):
        front = f"{FRONT}workspace_files:\n- {{source: {source}, dest: x}}\n"
        message = refused(partial(load, front=front))
        assert message.startswith(f"8: source '{source}' cannot be copied: there is no such file")


def test_a_pointer_of_git_lfs_is_no_asset(load: Load, tmp_path: Path) -> None:
    (tmp_path / "assets" / "big.pdf").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    )
    front = f"{FRONT}workspace_files:\n- {{source: big.pdf, dest: x}}\n"
    message = refused(lambda: load(front=front))
    assert message.startswith("8: source 'big.pdf' cannot be copied: only its Git LFS pointer")


def test_nothing_is_read_from_outside_the_checkout(load: Load, tmp_path: Path) -> None:
    (tmp_path / "assets").rmdir()
    os.symlink("/etc", tmp_path / "assets")
    front = f"{FRONT}workspace_files: [{{source: passwd, dest: x}}]\n"
    assert "assets is a link out of the checkout" in refused(lambda: load(front=front))
    load()
    path = tmp_path / "tasks" / "task_a.md"
    outside = tmp_path.with_name(f"{tmp_path.name}-outside.md")
    path.rename(outside)
    os.symlink(outside, path)
    assert refused(lambda: load_task(path)).startswith("1: cannot be read: it is a link out of")


def test_a_folder_of_assets_called_assets_is_found(load: Load, tmp_path: Path) -> None:
    (tmp_path / "assets" / "assets").mkdir()
    (tmp_path / "assets" / "assets" / "x").write_text("")
    task = load(front=FRONT + "workspace_files: [{source: assets/x, dest: x}]\n")
    assert task.workspace_files[0].source == tmp_path / "assets" / "assets" / "x"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../x", "holds '..'"),
        ("a/../../x", "holds '..'"),
        ("a/..", "holds '..'"),
        ("/etc/passwd", "is absolute"),
        ("//host/x", "is absolute"),
        ("~/x", "begins with '~'"),
        (r"a\\x", "is a Windows path"),
        (r"..\\x", "is a Windows path"),
        ("C:/x", "is a Windows path"),
        ("c:x", "is a Windows path"),
        (r"a\0b", "holds a control character"),
        (r"a\nb", "holds a control character"),
        ("", "names no file"),
        (" ", "names no file"),
        (".", "names no file"),
        ("./", "names no file"),
        ("a/", "names no file"),
    ],
)
@pytest.mark.parametrize("key", ["path", "dest", "source"])
def test_paths_that_leave_their_folder_are_refused(
    load: Load, key: str, path: str, reason: str
) -> None:
    other = {"path": "content: x", "dest": "source: x", "source": "dest: x"}[key]
    front = f'{FRONT}workspace_files:\n- path: ok\n  content: x\n- {other}\n  {key}: "{path}"\n'
    message = refused(lambda: load(front=front))
    assert message.startswith("11: ")
    assert f"{key} " in message
    assert reason in message


@pytest.mark.parametrize("target", ["/etc/hosts", "../tasks/task_a.md", ".."])
def test_links_out_of_the_assets_are_refused(load: Load, tmp_path: Path, target: str) -> None:
    os.symlink(target, tmp_path / "assets" / "link")
    source = "link/tasks/task_a.md" if target == ".." else "link"
    front = FRONT + f"workspace_files: [{{source: {source}, dest: x}}]\n"
    assert "is a link out of" in refused(lambda: load(front=front))


def test_links_inside_the_assets_are_followed(load: Load, tmp_path: Path) -> None:
    (tmp_path / "assets" / "real").write_text("")
    os.symlink("real", tmp_path / "assets" / "link")
    task = load(front=FRONT + "workspace_files: [{source: link, dest: x}]\n")
    assert task.workspace_files[0].source == tmp_path / "assets" / "link"


def test_a_checkout_reached_through_a_link_is_fine(load: Load, tmp_path: Path) -> None:
    (tmp_path / "assets" / "x").write_text("")
    load(front=FRONT + "workspace_files: [{source: x, dest: x}]\n")
    os.symlink(tmp_path, tmp_path / "checkout")
    task = load_task(tmp_path / "checkout" / "tasks" / "task_a.md")
    assert task.workspace_files[0].source == tmp_path / "checkout" / "assets" / "x"


def test_a_folder_is_no_asset(load: Load, tmp_path: Path) -> None:
    (tmp_path / "assets" / "folder").mkdir()
    front = FRONT + "workspace_files: [{source: folder, dest: x}]\n"
    assert "'folder' is not a file" in refused(lambda: load(front=front))


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("a", "./a", "'a' is there twice"),
        ("a", "a/b", "'a/b' cannot be both a file and a folder"),
        ("a/b/c", "a", "'a' cannot be both a file and a folder"),
    ],
)
def test_two_files_in_one_place_are_refused(
    load: Load, first: str, second: str, reason: str
) -> None:
    entries = "".join(f"- {{path: {path}, content: x}}\n" for path in (first, second))
    assert refused(lambda: load(front=f"{FRONT}workspace_files:\n{entries}")) == f"9: {reason}"


# -- what is refused, and at which line -------------------------------------------------------


def line_of(key: str, value: str) -> str:
    """The front matter with one value replaced, or added."""
    lines = [line for line in FRONT.splitlines() if not line.startswith(f"{key}:")]
    return "\n".join([*lines, f"{key}: {value}", ""])


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("id", "17", "id has to be text, in quotes if need be, not 17"),
        ("id", "", "id is missing"),
        ("id", "a/b", "id 'a/b' may hold only letters"),
        ("id", "'..'", "id '..' may hold only letters"),
        ("id", "'a b'", "id 'a b' may hold only letters"),
        ("id", "'a::b'", "id 'a::b' may hold only letters"),
        ("id", "task_a.", "begins with a letter or digit, and ends with one"),
        ("id", "run.json", "id 'run.json' cannot name a folder of a run"),
        ("id", "Summary.MD", "id 'Summary.MD' cannot name a folder of a run"),
        ("name", r'"a\e[31mb"', r"name 'a\x1b[31mb' holds a control character"),
        ("category", r'"a\nb"', "category 'a\\nb' holds a control character"),
        ("other", r'"half \ud83d"', "half of a surrogate pair"),
        ("timeout_seconds", "1" * 5000, "not a valid value: a number of 5000 characters"),
        ("id", "x" * 101, "may hold only letters, digits, '_', '-' and '.', 100 at most"),
        ("name", "[a]", "name has to be text, in quotes if need be, not ['a']"),
        ("category", "3", "category has to be text, in quotes if need be, not 3"),
        ("grading_type", "llm-judge", "unknown grading_type 'llm-judge', did you mean 'llm_judge'"),
        ("grading_type", "automatic", "unknown grading_type 'automatic', did you mean 'automated'"),
        ("grading_type", "no", "unknown grading_type False; there are: automated, llm_judge"),
        ("timeout_seconds", "0", "timeout_seconds has to be a number of seconds above 0, not 0"),
        ("timeout_seconds", "-5", "not -5"),
        ("timeout_seconds", ".nan", "not nan"),
        ("timeout_seconds", ".inf", "not inf"),
        ("timeout_seconds", "yes", "not True"),
        ("timeout_seconds", "'60'", "not '60'"),
        ("timeout_seconds", "2026-02-31", "not a valid value: day is out of range for month"),
        ("grading_weights", "[0.5, 0.5]", "grading_weights has to be a mapping"),
        ("grading_weights", "{judge: 1}", "unknown key 'judge' in grading_weights, did you mean"),
        ("grading_weights", "{automated: half}", "grading_weights.automated has to be a number"),
        ("grading_weights", "{llm_judge: .nan}", "grading_weights.llm_judge has to be a number"),
        ("grading_weights", "{llm_judge: true}", "grading_weights.llm_judge has to be a number"),
        ("sessions", "first", "sessions has to be a list"),
        ("sessions", "['']", "session 1 has to be text, or a mapping with text as prompt"),
        ("sessions", "[a, 3]", "session 2 has to be text"),
        ("sessions", "[{id: a}]", "session 1 has to be text"),
        ("sessions", "[{prompt: a, new_session: maybe}]", "new_session has to be true or false"),
        ("workspace_files", "{path: a}", "workspace_files has to be a list"),
        ("workspace_files", "[a]", "an entry has to be {path, content} or {source, dest}"),
        ("workspace_files", "[{path: a}]", "an entry has to be {path, content} or"),
        ("workspace_files", "[{path: a, source: b}]", "not ['path', 'source']"),
        ("workspace_files", "[{path: a, contents: b}]", "'contents', did you mean 'content'?"),
        ("workspace_files", "[{path: a, content: 1}]", "content has to be text, not 1"),
        ("workspace_files", "[{path: 1, content: a}]", "path has to be text, not 1"),
        ("other", "[unclosed", "not valid YAML"),
        ("other", "!python/object:os.system x", "not valid YAML"),
        ("name", "x\nname: y", "the key 'name' is there twice"),
        ("other", "&a [*a]", "not valid YAML: a value contains itself"),
    ],
)
def test_front_matter_errors_name_reason_and_line(
    load: Load, key: str, value: str, reason: str
) -> None:
    front = line_of(key, value)
    message = refused(lambda: load(front=front))
    assert reason in message
    if value:
        line = front.count("\n") + 1 + (value == "[unclosed")  # YAML sees that at the end
        assert message.startswith(f"{line}: ")


def test_a_missing_id_is_named_at_the_front_matter(load: Load) -> None:
    front = "name: x\ngrading_type: automated\ntimeout_seconds: 1\n"
    assert refused(lambda: load(front=front)) == "1: id is missing"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1: the file has to begin with front matter, after a line '---'"),
        ("## Prompt\n\nx\n", "1: the file has to begin with front matter"),
        (f"\n---\n{FRONT}---\n{PROMPT}", "1: the file has to begin with front matter"),
        (f"---\n{FRONT}\n{PROMPT}", "1: the front matter has no end"),
        (f"---\n---\n{PROMPT}", "1: the front matter has to be a mapping"),
        (f"---\n- a\n---\n{PROMPT}", "1: the front matter has to be a mapping"),
        (f"---\n\n\n- a\n---\n{PROMPT}", "3: the front matter has to be a mapping"),
        (f"---\n\n\n{FRONT}x: [\n---\n{PROMPT}", "10: not valid YAML"),
        (f"---\n{FRONT}x: a\x01b\n---\n{PROMPT}", "7: not valid YAML: "),
        (f"---\n{FRONT}---\n", "8: there is no section '## Prompt', and no sessions"),
        (
            f"---\n{FRONT}---\n\n## Prompt\n\n## Grading Criteria\n",
            "9: the section Prompt is empty",
        ),
        (f"---\n{FRONT}---\n\n{PROMPT}\n{PROMPT}", "13: the section Prompt is there twice"),
        (
            f"---\n{FRONT}---\n\n{PROMPT}\n## Automated Check\n",
            "13: unknown section 'Automated Check', did you mean 'Automated Checks'?",
        ),
        (
            f"---\n{FRONT}---\n\n{PROMPT}\n## Expected behaviour\n",
            "13: unknown section 'Expected behaviour', did you mean 'Expected Behavior'?",
        ),
        (
            f"---\n{FRONT}---\n\n{PROMPT}\n~~~~sh\nls\n~~~\n\n## Grading Criteria\n\nx\n",
            "13: the fence ~~~~ is never closed",
        ),
        (
            f"---\n{AUTOMATED}---\n\n{PROMPT}",
            "5: there is no section '## Automated Checks'",
        ),
        (
            f"---\n{AUTOMATED}---\n\n{PROMPT}\n## Automated Checks\n\n```sh\nls\n```\n",
            "13: the section Automated Checks has no block tagged ```python",
        ),
        (
            f"---\n{AUTOMATED}---\n\n{PROMPT}{CHECKS.format('x = 1' + chr(10) + 'def grade(:')}",
            "17: the automated checks do not compile: invalid syntax",
        ),
        (
            f"---\n{AUTOMATED}---\n\n{PROMPT}{CHECKS.format('def grades(t, w): grade(t)')}",
            "16: the automated checks define no function called grade",
        ),
    ],
)
def test_files_that_are_no_task_name_reason_and_line(
    tmp_path: Path, text: str, expected: str
) -> None:
    path = tmp_path / "task_a.md"
    path.write_text(text)
    assert refused(lambda: load_task(path)).startswith(expected)


def test_a_file_that_is_not_text_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "task_a.md"
    path.write_bytes(b"---\nid: a\nname: caf\xe9\n---\n")
    assert refused(lambda: load_task(path)) == "3: not UTF-8 text"


def test_a_file_that_cannot_be_read_is_an_error_of_that_file(tmp_path: Path) -> None:
    message = refused(lambda: load_task(tmp_path / "task_a.md"))
    assert message == "1: cannot be read: No such file or directory"


def test_aliases_that_multiply_are_read_without_ado(load: Load) -> None:
    names = [f"a{index}" for index in range(30)]
    bomb = "a0: &a0 x\n" + "".join(
        f"{name}: &{name} [{', '.join([f'*{below}'] * 10)}]\n" for below, name in pairwise(names)
    )
    assert "larger than 8 MiB" in refused(lambda: load(front=FRONT + bomb))
    merged = "a0: &a0 {k: x}\n" + "".join(
        f"{name}: &{name} {{<<: [{', '.join([f'*{below}'] * 10)}]}}\n"
        for below, name in pairwise(names)
    )
    assert "larger than 8 MiB" in refused(lambda: load(front=FRONT + merged))
    few = "a0: &a0 x\nmulti_session: [*a0, *a0]\n"
    assert load(front=FRONT + few).front_matter["multi_session"] == ["x", "x"]


def test_a_value_of_any_key_may_not_be_a_bomb(load: Load) -> None:
    for key in ("id", "name", "timeout_seconds", "grading_type", "sessions", "workspace_files"):
        bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20)
        )
        began = time.process_time()
        refused(partial(load, front=bomb + line_of(key, "*a19")))
        assert time.process_time() - began < 2


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    path = tmp_path / "tasks" / "task_a.md"
    os.mkfifo(path)
    assert refused(lambda: load_task(path)) == "1: cannot be read: it is not a regular file"
    path.unlink()
    os.symlink("/dev/zero", path)
    assert refused(lambda: load_task(path)).startswith("1: cannot be read: it is a link out of")
    path.unlink()
    with path.open("wb") as file:
        file.truncate((8 << 20) + 1)
    assert refused(lambda: load_task(path)) == "1: cannot be read: it is larger than 8 MiB"


def test_an_emoji_as_json_spells_it_is_read(load: Load) -> None:
    front = FRONT.replace("A task", '"A \\ud83d\\ude00 task"')
    assert "\\ud83d\\ude00" in front
    literal = "sessions:\n- |\n  print('\\ud83d\\ude00')\n"
    task = load(front=front + literal)
    assert task.name == "A \U0001f600 task"
    assert task.prompts == (Prompt("print('\\ud83d\\ude00')"),)


# -- automated checks -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "def grade(t, w): return {}",
        "async def helper(): pass\ngrade = lambda t, w: {}",
        "if True:\n    def grade(t, w): return {}",
        "try:\n    from x import grade\nexcept ImportError:\n    grade = None",
        "from helpers import *",
        "globals()['grade'] = dict",
        "class grade(dict):\n    def __init__(self, t, w): pass",
    ],
)
def test_checks_may_define_grade_in_any_way(load: Load, source: str) -> None:
    task = load(PROMPT + CHECKS.format(source), AUTOMATED)
    assert task.automated_checks == f"{source}\n"


def test_checks_of_a_task_for_the_judge_alone_are_not_looked_at(load: Load) -> None:
    assert load(PROMPT + CHECKS.format("not python")).imports == ()


def test_the_modules_that_checks_import_at_their_top_are_known(load: Load) -> None:
    source = (
        '"""Doc."""\nfrom __future__ import annotations\nimport json, numpy.linalg\n'
        "try:\n    import maybe\nexcept ImportError:\n    maybe = None\n"
        "def helper():\n    import deep\n"
        "def grade(transcript, workspace):\n"
        '    """Doc."""\n    import yaml\n    from lxml import etree\n'
        "    sys.path.insert(0, workspace)\n    import solution\n    return {}"
    )
    task = load(PROMPT + CHECKS.format(source), AUTOMATED)
    assert task.imports == ("json", "numpy.linalg", "yaml", "lxml")


def test_a_thousand_tasks_load_in_seconds(load: Load, tmp_path: Path) -> None:
    """The target is 5 s for all of a collection; a task of typical size gets a fifth."""
    load(
        PROMPT
        + "\n## Grading Criteria\n\n"
        + "- [ ] criterion\n" * 10
        + "\n## Automated Checks\n\n```python\n"
        + "x = 1\n" * 80
        + "```\n"
    )
    began = time.process_time()
    for _ in range(100):
        load_task(tmp_path / "tasks" / "task_a.md")
    assert time.process_time() - began < 1.0  # 0.05 measured
