"""Skill checkouts: reading them, selecting from them, and fetching them with a real git."""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.settings_of import settings_of

from pytest_pinchbench.issues import SuiteError
from pytest_pinchbench.suite.checkout import _Clone, resolve_skill_dir, suite_commit
from pytest_pinchbench.suite.load import load_suite, select, suite_digest

pytest_plugins = ("pytester",)

WriteSuite = Callable[..., Path]


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", *arguments],
        cwd=folder,
        env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


# -- what is in a suite -----------------------------------------------------------------------


def test_tasks_come_in_the_order_of_their_files_and_are_called_by_their_id(
    tmp_path: Path, write_suite: WriteSuite
) -> None:
    root = write_suite(tmp_path, task_b={"id": "task_z"}, task_c={}, task_a={})
    (root / "tasks" / "TASK_TEMPLATE.md").write_text("no task")
    (root / "tasks" / "task_notes.txt").write_text("no task")
    assert [task.id for task in load_suite(root).tasks] == ["task_a", "task_z", "task_c"]


def test_an_id_twice_names_both_files(tmp_path: Path, write_suite: WriteSuite) -> None:
    root = write_suite(tmp_path, task_a={"id": "same"}, task_b={"id": "same"})
    with pytest.raises(SuiteError, match=r"the id same is there twice.*task_a\.md.*task_b\.md"):
        load_suite(root)


def test_ids_that_differ_in_case_only_name_both_files(
    tmp_path: Path, write_suite: WriteSuite
) -> None:
    root = write_suite(tmp_path, task_a={"id": "same"}, task_b={"id": "SAME"})
    with pytest.raises(SuiteError, match=r"the id SAME .*task_a\.md \(as same: .*task_b\.md"):
        load_suite(root)


def test_the_digest_is_of_what_is_inside_the_checkout(
    tmp_path: Path, write_suite: WriteSuite
) -> None:
    root = write_suite(tmp_path / "skill", task_a={})
    (root / "assets" / "data").write_text("1")
    before = suite_digest(root)
    outside = tmp_path / "outside"
    outside.write_text("1")
    os.symlink(outside, root / "assets" / "link")
    os.symlink("/dev/zero", root / "assets" / "zero")
    os.mkfifo(root / "assets" / "fifo")
    assert suite_digest(root) == before
    (root / "assets" / "data").write_text("2")
    assert suite_digest(root) != before


def test_a_file_that_does_not_parse_leaves_the_others(
    tmp_path: Path, write_suite: WriteSuite
) -> None:
    root = write_suite(tmp_path, task_a={}, task_b={"timeout_seconds": -1}, task_c={})
    suite = load_suite(root)
    assert [task.id for task in suite.tasks] == ["task_a", "task_c"]
    assert [error.path for error in suite.broken] == [root / "tasks" / "task_b.md"]


def test_a_folder_without_tasks_is_no_suite(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"is not a skill checkout: cannot read .*tasks: No such"):
        load_suite(tmp_path)
    (tmp_path / "tasks" / "notes").mkdir(parents=True)
    (tmp_path / "tasks" / "hello.md").touch()
    with pytest.raises(SuiteError, match=r"no tasks/\*\*/task_\*\.md.*lies: hello\.md, notes"):
        load_suite(tmp_path)


# -- selection --------------------------------------------------------------------------------


@pytest.fixture
def selected(
    pytester: pytest.Pytester, tmp_path: Path, write_suite: WriteSuite
) -> Callable[..., list[str]]:
    """``selected(*options)``: the ids selected of four tasks, two of them automated."""
    root = write_suite(
        tmp_path / "skill",
        task_01={},
        task_02={"grading_type": "llm_judge"},
        task_03={"grading_type": "hybrid"},
        task_04={},
    )

    def selected(*options: str) -> list[str]:
        tasks, in_the_way = select(
            load_suite(root), settings_of(pytester, "--pinchbench-model=x", *options)
        )
        assert in_the_way == ()
        return [task.id for task in tasks]

    return selected


SUITE, LIMIT, SAMPLES = "--pinchbench-suite=", "--pinchbench-limit=", "--pinchbench-sample-ids="


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "1234"),
        ([SUITE + "all"], "1234"),
        ([SUITE + "automated-only"], "14"),
        ([SUITE + "task_03, task_01,task_03"], "31"),
        ([LIMIT + "3"], "123"),
        ([LIMIT + "0"], "1234"),
        ([LIMIT + "99"], "1234"),
        ([SUITE + "automated-only", LIMIT + "1"], "1"),
        ([SUITE + "task_04,task_02,task_01", LIMIT + "2"], "42"),
        ([SAMPLES + "task_03,task_01,task_03"], "31"),
        ([SAMPLES + "task_03", SAMPLES + "task_01"], "31"),
        ([SUITE + "task_04,task_02,task_01", LIMIT + "2", SAMPLES + "task_02"], "2"),
        (['--pinchbench-params={"suite": ["task_04", "task_01", "task_04"]}'], "41"),
    ],
)
def test_suite_then_limit_then_sample_ids(
    selected: Callable[..., list[str]], options: list[str], expected: str
) -> None:
    assert selected(*options) == [f"task_0{digit}" for digit in expected]


@pytest.mark.parametrize("option", [SUITE, SAMPLES])
def test_unknown_ids_are_named_with_the_nearest_known(
    selected: Callable[..., list[str]], option: str
) -> None:
    with pytest.raises(SuiteError) as caught:
        selected(f"{option}task_1,task_01,elephant")
    message = str(caught.value)
    assert message.endswith("task_1, did you mean 'task_01'?; elephant")


def test_a_misspelt_choice_is_answered_with_the_right_one(
    selected: Callable[..., list[str]],
) -> None:
    with pytest.raises(SuiteError, match="automated_only, did you mean 'automated-only'"):
        selected(f"{SUITE}automated_only")


def test_a_sample_that_limit_has_left_out_is_an_error_not_a_smaller_run(
    selected: Callable[..., list[str]],
) -> None:
    with pytest.raises(SuiteError, match=r"^task_04: among the sample ids, but not among the 2"):
        selected(LIMIT + "2", SAMPLES + "task_01,task_04")


@pytest.mark.parametrize(
    ("options", "matters"),
    [
        ([], True),
        ([SUITE + "automated-only"], True),
        ([LIMIT + "1"], True),
        ([SUITE + "task_01"], False),
        ([SAMPLES + "task_01"], False),
    ],
)
def test_a_broken_file_is_in_the_way_unless_tasks_are_named_one_by_one(
    pytester: pytest.Pytester,
    tmp_path: Path,
    write_suite: WriteSuite,
    options: list[str],
    matters: bool,
) -> None:
    root = write_suite(tmp_path / "skill", task_01={}, task_02={"timeout_seconds": -1})
    suite = load_suite(root)
    tasks, in_the_way = select(suite, settings_of(pytester, "--pinchbench-model=x", *options))
    assert [task.id for task in tasks] == ["task_01"]
    assert in_the_way == (suite.broken if matters else ())


def test_an_unknown_id_may_be_that_of_a_broken_file(
    pytester: pytest.Pytester, tmp_path: Path, write_suite: WriteSuite
) -> None:
    root = write_suite(tmp_path / "skill", task_01={}, task_02={"timeout_seconds": -1})
    settings = settings_of(pytester, "--pinchbench-model=x", SUITE + "task_02")
    with pytest.raises(SuiteError, match=r"cannot be used:\n .*task_02\.md:\d+: timeout_seconds"):
        select(load_suite(root), settings)


# -- where the checkout comes from ------------------------------------------------------------


@pytest.fixture
def upstream(tmp_path: Path, write_suite: WriteSuite) -> Path:
    """A repository with a suite at the tags v1.1.0 and v2.0.0, and more on its branch."""
    root = write_suite(tmp_path / "upstream", task_a={})
    git(root, "init", "--quiet", "--initial-branch=main")
    for tag in ("v1.1.0", "v2.0.0"):
        write_suite(root, **{f"task_{tag.replace('.', '_')}": {}})
        git(root, "add", "--all")
        git(root, "commit", "--quiet", "--message", tag)
        git(root, "tag", tag)
    write_suite(root, task_z={})
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "later")
    return root


class Fetch:
    """``fetch(*options)``: the skill checkout that a run gets; ``said`` is what it printed."""

    def __init__(self, pytester: pytest.Pytester, upstream: Path, data_dir: Path) -> None:
        self.pytester = pytester
        self.upstream = upstream
        self.data_dir = data_dir
        self.said: list[str] = []

    def __call__(self, *options: str, **environ: str) -> Path:
        settings = settings_of(
            self.pytester,
            "--pinchbench-model=x",
            f"--pinchbench-data-dir={self.data_dir}",
            f"--pinchbench-skill-repo-url=file://{self.upstream}",
            *options,
            environ=environ,
        )
        self.said.clear()
        return resolve_skill_dir(settings, self.said.append)


@pytest.fixture
def fetch(pytester: pytest.Pytester, upstream: Path, tmp_path: Path) -> Fetch:
    return Fetch(pytester, upstream, tmp_path / "data")


def test_the_suite_is_cloned_at_its_tag_and_only_once(fetch: Fetch) -> None:
    root = fetch()
    assert [task.id for task in load_suite(root).tasks] == ["task_a", "task_v1_1_0"]
    assert root.is_relative_to(fetch.data_dir)
    assert git(root, "rev-list", "--count", "HEAD") == "1"  # shallow
    assert len(fetch.said) == 1
    assert f"fetching the suite, v1.1.0 of file://{fetch.upstream}" in fetch.said[0]
    os.rename(fetch.upstream, f"{fetch.upstream}-gone")
    assert fetch() == root
    assert fetch.said == []


def test_another_tag_takes_nothing_away_from_a_run_at_the_first(fetch: Fetch) -> None:
    first = fetch()
    second = fetch("--pinchbench-skill-repo-tag=v2.0.0")
    assert (second / "tasks" / "task_v2_0_0.md").exists()
    assert (first / "tasks" / "task_v1_1_0.md").exists()
    assert not (first / "tasks" / "task_v2_0_0.md").exists()


def test_a_clone_that_is_no_longer_at_the_tag_is_fetched_again(fetch: Fetch) -> None:
    root = fetch()
    (root / "tasks" / "task_mine.md").write_text("x")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "mine")
    assert fetch() == root
    assert not (root / "tasks" / "task_mine.md").exists()
    assert "is no longer at v1.1.0: fetching it again" in fetch.said[0]


def test_what_this_project_did_not_make_is_never_replaced(fetch: Fetch) -> None:
    root = fetch()
    (root / ".git" / "pytest-pinchbench").unlink()
    assert fetch() == root  # it is at the tag: fine, whoever made it
    git(root, "checkout", "--quiet", "--orphan", "other")
    with pytest.raises(SuiteError, match=r"was not made by this project.*--pinchbench-skill-dir"):
        fetch()
    assert (root / "tasks" / "task_a.md").exists()


def test_a_plain_folder_in_the_place_is_never_replaced(fetch: Fetch) -> None:
    root = fetch()
    for entry in root.parent.glob("*"):
        if entry.is_dir():
            entry.rename(fetch.data_dir / "away")
    root.mkdir()
    (root / "precious").write_text("x")
    with pytest.raises(SuiteError, match="was not made by this project"):
        fetch()
    assert (root / "precious").exists()


@pytest.mark.parametrize("change", ["edit", "delete", "add", "asset"])
def test_a_changed_clone_is_refused_since_its_scores_would_not_be_the_tags(
    fetch: Fetch, change: str
) -> None:
    root = fetch()
    task = root / "tasks" / "task_a.md"
    if change == "edit":
        task.write_text(task.read_text() + "\n")
    elif change == "delete":
        task.unlink()
    else:
        folder = root / ("assets" if change == "asset" else "tasks")
        folder.mkdir(exist_ok=True)
        (folder / "task_new.md").write_text("x")
    with pytest.raises(SuiteError, match=r"has changes, so its scores would not be.*task_"):
        fetch()


def test_files_beside_tasks_and_assets_do_not_matter(fetch: Fetch) -> None:
    root = fetch()
    (root / "notes.txt").write_text("x")
    assert fetch() == root


def test_an_interrupted_clone_is_neither_taken_for_a_good_one_nor_left(fetch: Fetch) -> None:
    """git is killed when it has written half of the clone; the next run starts afresh."""
    hooks = fetch.data_dir.parent / "bin"
    hooks.mkdir()
    fake = hooks / "git"
    fake.write_text(
        f"#!{sys.executable}\n"
        "import os, pathlib, sys\n"
        "if 'clone' in sys.argv:\n"
        "    half = pathlib.Path(sys.argv[-1], 'tasks')\n"
        "    half.mkdir(parents=True)\n"
        "    (half / 'task_a.md').write_text('half')\n"
        "    os.kill(os.getppid(), 9)\n"
    )
    fake.chmod(0o755)
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from types import SimpleNamespace\n"
        "from pytest_pinchbench.suite.checkout import resolve_skill_dir\n"
        "settings = SimpleNamespace(skill_dir=None, skill_repo_url=sys.argv[1],\n"
        "    skill_repo_tag='v1.1.0', data_dir=Path(sys.argv[2]))\n"
        "resolve_skill_dir(settings, print)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, f"file://{fetch.upstream}", str(fetch.data_dir)],
        env={**os.environ, "PATH": f"{hooks}:{os.environ['PATH']}"},
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -9
    assert list(fetch.data_dir.rglob("task_a.md"))
    root = fetch()
    assert [task.id for task in load_suite(root).tasks] == ["task_a", "task_v1_1_0"]
    assert list(fetch.data_dir.rglob("task_a.md")) == [root / "tasks" / "task_a.md"]


def test_a_clone_is_put_in_its_place_in_one_step(
    fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = _Clone._clone
    made: list[int] = []

    def noted(self: _Clone, new: Path) -> None:
        clone(self, new)
        made.append(new.stat().st_ino)

    monkeypatch.setattr(_Clone, "_clone", noted)
    assert [fetch().stat().st_ino] == made  # moved, and not copied file by file


def test_runs_that_start_together_get_one_clone(fetch: Fetch) -> None:
    together = [Fetch(fetch.pytester, fetch.upstream, fetch.data_dir) for _ in range(4)]
    fetch.data_dir.mkdir()
    settings = settings_of(
        fetch.pytester,
        "--pinchbench-model=x",
        f"--pinchbench-data-dir={fetch.data_dir}",
        f"--pinchbench-skill-repo-url=file://{fetch.upstream}",
    )
    roots: list[Path] = []
    threads = [
        threading.Thread(
            target=lambda one=one: roots.append(resolve_skill_dir(settings, one.said.append))
        )
        for one in together
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(roots) == 4
    assert len(set(roots)) == 1
    said = [line for one in together for line in one.said]
    assert sum("fetching the suite, " in line for line in said) == 1
    assert [task.id for task in load_suite(roots[0]).tasks] == ["task_a", "task_v1_1_0"]


# -- when it cannot be had --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--pinchbench-skill-repo-tag=v1.1"], "v1.1 of .*, did you mean 'v1.1.0'"),
        (["--pinchbench-skill-repo-tag=zzz"], "its tags: v1.1.0, v2.0.0"),
        (["--pinchbench-skill-repo-tag=main"], "main of .* is a branch"),
        (["--pinchbench-skill-repo-url=file:///nowhere/at/all"], "does not (appear|exist)"),
        (["--pinchbench-skill-repo-url=http://127.0.0.1:9/x.git"], "(?i)fail|connect|remote"),
        (["--pinchbench-skill-repo-tag=--upload-pack=x"], "cannot fetch the suite"),
    ],
)
def test_a_failed_clone_says_why_and_names_the_other_way(
    fetch: Fetch, options: list[str], reason: str
) -> None:
    with pytest.raises(SuiteError, match=reason) as caught:
        fetch(*options)
    assert "--pinchbench-skill-dir or PINCHBENCH_SKILL_DIR" in str(caught.value)
    assert not list(fetch.data_dir.rglob("*.md"))


def test_without_git_the_other_way_is_named(
    fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SuiteError, match=r"git is not on PATH.*PINCHBENCH_SKILL_DIR"):
        fetch()


def test_a_data_directory_that_cannot_be_written_is_named(fetch: Fetch) -> None:
    fetch.data_dir.write_text("a file")
    with pytest.raises(SuiteError, match=r"cannot keep the suite in .*--pinchbench-data-dir"):
        fetch()


def test_a_key_in_the_url_is_not_shown(fetch: Fetch) -> None:
    with pytest.raises(SuiteError) as caught:
        fetch("--pinchbench-skill-repo-url=http://user:sekrit-key@127.0.0.1:9/skill.git")
    assert "http://127.0.0.1:9/skill.git" in str(caught.value)
    assert "sekrit" not in f"{caught.value} {fetch.said}"


@pytest.fixture
def private_repository() -> Iterator[str]:
    """The URL of a server that wants a password."""

    class Locked(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="skill"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Locked) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/skill.git"
        server.shutdown()


def test_nobody_is_asked_for_a_password(fetch: Fetch, private_repository: str) -> None:
    with pytest.raises(SuiteError, match=r"(?i)username|auth.*PINCHBENCH_SKILL_DIR"):
        fetch(f"--pinchbench-skill-repo-url={private_repository}")


def test_a_key_in_the_url_is_not_left_in_the_clone(fetch: Fetch) -> None:
    """file:// ignores the user, which is enough to see what is written down."""
    root = fetch(f"--pinchbench-skill-repo-url=file://sekrit-key@localhost{fetch.upstream}")
    assert "sekrit" not in (root / ".git" / "config").read_text()
    assert "sekrit" not in str(fetch.said)
    assert fetch(f"--pinchbench-skill-repo-url=file://sekrit-key@localhost{fetch.upstream}") == root
    assert fetch.said == []


@pytest.fixture
def guarded_repository(upstream: Path) -> Iterator[tuple[str, str, list[str]]]:
    """The URL of a real git server that wants a password, with it, the password, and every
    command line that was there to read while it answered.
    """
    key = secrets.token_hex(8)
    wanted = "Basic " + base64.b64encode(f"me:{key}".encode()).decode()
    seen: list[str] = []

    class Guarded(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") != wanted:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="skill"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    seen.append(path.read_bytes().decode(errors="replace"))
            url_path, _, query = self.path.partition("?")
            length = int(self.headers.get("Content-Length", 0))
            done = subprocess.run(
                ["git", "http-backend"],
                input=self.rfile.read(length),
                capture_output=True,
                check=True,
                env={
                    **os.environ,
                    "GIT_PROJECT_ROOT": str(upstream),
                    "GIT_HTTP_EXPORT_ALL": "1",
                    "GIT_CONFIG_COUNT": "1",
                    "GIT_CONFIG_KEY_0": "safe.directory",
                    "GIT_CONFIG_VALUE_0": "*",
                    "PATH_INFO": url_path,
                    "QUERY_STRING": query,
                    "REQUEST_METHOD": self.command,
                    "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                    "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                    "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                },
            )
            head, _, body = done.stdout.partition(b"\r\n\r\n")
            self.send_response(200)
            for line in head.decode().splitlines():
                self.send_header(*line.split(": ", 1))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Guarded) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://me:{key}@127.0.0.1:{server.server_port}/.git", key, seen
        server.shutdown()


def test_a_key_in_the_url_opens_the_repository_and_is_in_no_command_line(
    fetch: Fetch, guarded_repository: tuple[str, str, list[str]]
) -> None:
    url, key, seen = guarded_repository
    root = fetch(f"--pinchbench-skill-repo-url={url}")
    assert [task.id for task in load_suite(root).tasks] == ["task_a", "task_v1_1_0"]
    assert any("remote-http" in line for line in seen)
    assert not [line for line in seen if key in line]
    assert key not in (root / ".git" / "config").read_text()


def test_the_users_own_checkout_is_taken_as_it_is(fetch: Fetch, upstream: Path) -> None:
    (upstream / "tasks" / "task_mine.md").write_text("x")
    assert fetch(PINCHBENCH_SKILL_DIR=str(upstream)) == upstream
    assert fetch(AGENTCOMPASS_PINCHBENCH_SKILL_DIR=str(upstream)) == upstream
    assert fetch(f"--pinchbench-skill-dir={upstream}", PINCHBENCH_SKILL_DIR="/none") == upstream
    assert not fetch.data_dir.exists()


def test_a_skill_dir_without_tasks_names_the_option_that_said_so(fetch: Fetch) -> None:
    with pytest.raises(SuiteError, match=r"/none is not a skill checkout: .*PINCHBENCH_SKILL_DIR"):
        fetch(PINCHBENCH_SKILL_DIR="/none")


def test_a_git_hook_that_runs_pytest_does_not_lead_git_elsewhere(
    fetch: Fetch, upstream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(upstream / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(upstream))
    root = fetch()
    assert [task.id for task in load_suite(root).tasks] == ["task_a", "task_v1_1_0"]
    assert fetch() == root
    assert fetch.said == []


# -- the commit for the record ----------------------------------------------------------------


def test_the_commit_of_a_checkout_says_whether_its_tasks_were_changed(upstream: Path) -> None:
    commit = git(upstream, "rev-parse", "HEAD")
    assert suite_commit(upstream) == commit
    (upstream / "notes.txt").write_text("x")
    assert suite_commit(upstream) == commit
    (upstream / "tasks" / "task_a.md").write_text("x")
    assert suite_commit(upstream) == f"{commit}-dirty"


def test_a_folder_outside_git_has_no_commit(tmp_path: Path, write_suite: WriteSuite) -> None:
    assert suite_commit(write_suite(tmp_path, task_a={})) is None
    assert suite_commit(tmp_path / "none") is None
