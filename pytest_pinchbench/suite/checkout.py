"""Skill checkouts: the one that the user names, or a clone at a tag in the data directory."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pytest_pinchbench.issues import SuiteError
from pytest_pinchbench.spelling import did_you_mean

if TYPE_CHECKING:
    from pytest_pinchbench.settings import Settings

_OTHER_WAY = (
    "; a checkout of your own can be named with --pinchbench-skill-dir or PINCHBENCH_SKILL_DIR"
)


def suite_name(root: Path) -> str:
    """The name of a skill checkout for people: a clone of ours is called by its tag."""
    return re.sub(r"-[0-9a-f]{8}$", "", root.name)


def suite_commit(root: Path) -> str | None:
    """The commit of a skill checkout, with ``-dirty`` where its tasks or assets were changed.

    None for a folder that is in no git repository.
    """
    try:
        commit = _git(root, "rev-parse", "--verify", "--quiet", "HEAD")
        changes = _changes(root)
    except (OSError, _GitFailed):
        return None
    return f"{commit}-dirty" if changes else commit


def read_skills(folder: Path) -> dict[str, bytes]:
    """Return the files of the skills in a folder (``NAME/SKILL.md`` each), by relative path."""
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for skill in sorted(folder.glob("*/SKILL.md"))
        for file in sorted(skill.parent.rglob("*"))
        if file.is_file()
    }


def resolve_skill_dir(settings: Settings, say: Callable[[str], None]) -> Path:
    """The skill checkout of a run: the one the user names, or a clone at the tag.

    A clone is made once for a repository and tag, in the data directory, and taken again as
    long as its HEAD is exactly that tag. Any number of processes may ask at the same time.
    ``say`` prints a line for the user. Raises ``SuiteError``.
    """
    if settings.skill_dir is not None:
        if not (settings.skill_dir / "tasks").is_dir():
            origin = settings.origins.get("skill_dir", "skill_dir")
            raise SuiteError(
                f"{settings.skill_dir} is not a skill checkout: it has no folder tasks ({origin})"
            )
        return settings.skill_dir
    clone = _Clone(settings.skill_repo_url, settings.skill_repo_tag, settings.data_dir)
    try:
        return clone.get(say)
    except OSError as error:
        raise SuiteError(
            f"cannot keep the suite in {clone.path}: {error};"
            f" --pinchbench-data-dir moves it{_OTHER_WAY}"
        ) from None


class _GitFailed(SuiteError):
    """git ended with an error; the message ends with git's own."""


class _Clone:
    """One tag of one repository, in the data directory.

    Each has a folder of its own, so that a run at another tag takes nothing away from a run
    that is under way.
    """

    def __init__(self, url: str, tag: str, data_dir: Path) -> None:
        self.url = url
        self._address, self._login = _without_login(url)
        self.tag = tag
        address = hashlib.sha256(url.encode()).hexdigest()[:8]
        name = re.sub(r"[^\w.-]", "_", tag)
        self.path = data_dir / "pinchbench" / "skill" / f"{name}-{address}"

    def get(self, say: Callable[[str], None]) -> Path:
        if shutil.which("git") is None:
            raise SuiteError(f"git is not on PATH, and is needed to fetch the suite{_OTHER_WAY}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._alone(say):
            if not self.path.exists():
                self._make(say)
            elif not self._is_at_tag():
                if not self._mark.exists():
                    raise SuiteError(
                        f"{self.path} is not {self.tag} of {_plain(self.url)}, and was not made"
                        f" by this project: move it away{_OTHER_WAY}"
                    )
                say(f"{self.path} is no longer at {self.tag}: fetching it again")
                self._make(say)
            elif changes := _changes(self.path):
                raise SuiteError(
                    f"{self.path} has changes, so its scores would not be those of {self.tag}:"
                    f" {', '.join(changes[:3])}{', ...' if changes[3:] else ''}."
                    f" Undo them, or move the folder away and name it{_OTHER_WAY}"
                )
        return self.path

    @property
    def _mark(self) -> Path:
        """Inside ``.git``: there when this project made the clone."""
        return self.path / ".git" / "pytest-pinchbench"

    def _is_at_tag(self) -> bool:
        try:
            head = _git(self.path, "rev-parse", "--verify", "--quiet", "HEAD")
            tag = _git(
                self.path, "rev-parse", "--verify", "--quiet", f"refs/tags/{self.tag}^{{commit}}"
            )
            url = _git(self.path, "config", "remote.origin.url")
        except _GitFailed:
            return False
        # a folder inside some other repository would be answered for by that one
        return head == tag and url == _plain(self.url) and (self.path / ".git").exists()

    def _make(self, say: Callable[[str], None]) -> None:
        """Clone beside the place, then put it there: what is there is always whole."""
        for dead in self.path.parent.glob(f".{self.path.name}.*"):  # of runs that were killed
            shutil.rmtree(dead, ignore_errors=True)
        say(f"fetching the suite, {self.tag} of {_plain(self.url)}, into {self.path}")
        aside = Path(tempfile.mkdtemp(prefix=f".{self.path.name}.", dir=self.path.parent))
        try:
            new = aside / "new"
            self._clone(new)
            (new / ".git" / "pytest-pinchbench").touch()
            if self.path.exists():
                self.path.rename(aside / "old")
            new.rename(self.path)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _clone(self, new: Path) -> None:
        try:
            _git(
                new.parent,
                *("-c", "advice.detachedHead=false"),
                # gives up on a server that has gone silent
                *("-c", "http.lowSpeedLimit=100", "-c", "http.lowSpeedTime=60"),
                *("clone", "--quiet", "--depth=1", "--single-branch", f"--branch={self.tag}"),
                *("--", self._address, str(new)),
                environ=self._login,
            )
            # a key in the URL is not left behind
            _git(new, "config", "remote.origin.url", _plain(self.url))
        except _GitFailed as error:
            # git shows no password of a URL in its messages
            raise SuiteError(
                f"cannot fetch the suite, {self.tag} of {_plain(self.url)}:"
                f" {error}{self._tags_hint()}{_OTHER_WAY}"
            ) from None
        try:
            _git(new, "rev-parse", "--verify", "--quiet", f"refs/tags/{self.tag}")
        except _GitFailed:
            raise SuiteError(
                f"cannot fetch the suite: {self.tag} of {_plain(self.url)} is a branch, and what"
                f" it holds changes; name a tag with --pinchbench-skill-repo-tag{_OTHER_WAY}"
            ) from None

    def _tags_hint(self) -> str:
        """What tags there are, if the repository can be reached at all."""
        try:
            listing = _git(
                self.path.parent,
                *("ls-remote", "--tags", "--refs", "--", self._address),
                environ=self._login,
            )
        except _GitFailed:
            return ""
        tags = [line.rpartition("refs/tags/")[2] for line in listing.splitlines()]
        if self.tag in tags:
            return ""
        return did_you_mean(self.tag, tags) or f"; its tags: {', '.join(tags[-5:]) or 'none'}"

    @contextmanager
    def _alone(self, say: Callable[[str], None]) -> Iterator[None]:
        """One process at a time; the lock of one that was killed is free at once."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.path.parent / f"{self.path.name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            say("another run is fetching the suite; waiting for it")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()


def _changes(root: Path) -> list[str]:
    """Task files and assets that are not as committed. Raises ``_GitFailed``."""
    status = _git(root, "status", "--porcelain", "--untracked-files=all", "--", "tasks", "assets")
    return [line.split(maxsplit=1)[1] for line in status.splitlines()]


def _plain(url: str) -> str:
    """The URL without user and password."""
    return re.sub(r"(?<=://)[^/]*@", "", url)


def _without_login(url: str) -> tuple[str, dict[str, str]]:
    """The address for git's command line, which everybody can read, and the variables with
    the user and the password that were in the URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.username is None:
        return url, {}
    number = int(os.environ.get("GIT_CONFIG_COUNT") or 0)
    return _plain(url), {
        "GIT_CONFIG_COUNT": str(number + 1),
        f"GIT_CONFIG_KEY_{number}": "credential.helper",
        f"GIT_CONFIG_VALUE_{number}": '!f() { echo "username=$PINCHBENCH_GIT_USER"; '
        'echo "password=$PINCHBENCH_GIT_PASSWORD"; }; f',
        "PINCHBENCH_GIT_USER": unquote(parts.username),
        "PINCHBENCH_GIT_PASSWORD": unquote(parts.password or ""),
    }


def _git(folder: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> str:
    """What git prints. Raises ``_GitFailed``.

    git asks nobody for a password, and is not led elsewhere by the variables that it sets for
    its own hooks: pytest may run in one.
    """
    environ = {
        name: value
        for name, value in {**os.environ, **(environ or {})}.items()
        if name not in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")
    }
    environ |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true"}
    environ.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes -o ConnectTimeout=30")
    done = subprocess.run(
        # a data directory on a shared disk may belong to somebody else
        ["git", "-c", "safe.directory=*", *arguments],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"git ended with {done.returncode}"]
        raise _GitFailed("; ".join(line for line in lines if line)[-500:])
    return done.stdout.strip()
