"""What an open cloud sandbox costs the machine that runs pytest: memory, processor, threads.

``python benchmarks/cloud_sandboxes.py daytona`` (or ``modal``), from the root of a checkout
with the extra of that name. The cloud is the tests' own, in a process of its own; the SDK is
the vendor's. First many sandboxes are open at once, each with a command under way, as while
agents think; then one after another is opened, used and closed, which has to leave nothing.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pytest_pinchbench.environments import (
    Environment,
    EnvironmentSetup,
    Recipe,
    Sandbox,
    find_environment,
)

VARIABLES = {
    "daytona": ("DAYTONA_API_URL", "DAYTONA_API_KEY"),
    "modal": ("MODAL_SERVER_URL", "MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=VARIABLES)
    parser.add_argument("--open", type=int, default=20, help="sandboxes at once")
    parser.add_argument("--seconds", type=float, default=20.0, help="to watch them for")
    parser.add_argument("--attempts", type=int, default=200, help="sandboxes one by one")
    arguments = parser.parse_args()
    server = subprocess.Popen(
        [sys.executable, "-m", f"tests.cloud.{arguments.kind}_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    os.environ.update(zip(VARIABLES[arguments.kind], server.stdout.readline().split(), strict=True))
    try:
        with tempfile.TemporaryDirectory() as folder:
            measure(arguments, Path(folder))
    finally:
        server.communicate()


def measure(arguments: argparse.Namespace, folder: Path) -> None:
    recipe = Recipe(
        name=arguments.kind,
        environment=arguments.kind,
        image="image",
        workspace_root=str(folder / "workspace"),
    )
    setup = EnvironmentSetup(recipe=recipe, run_id="benchmark", data_dir=folder)
    environment = find_environment(arguments.kind)(setup)
    environment.prepare()
    use_once(environment)
    idle = memory()
    print(f"{arguments.kind}: {idle:.0f} MB with the SDK, before any sandbox")
    at_once(environment, arguments.open, arguments.seconds, idle)
    one_by_one(environment, arguments.attempts)


def at_once(environment: Environment, number: int, seconds: float, idle: float) -> None:
    with ThreadPoolExecutor(number) as pool:
        sandboxes = list(pool.map(lambda _: open_one(environment), range(number)))
        commands = [
            pool.submit(sandbox.exec, ["sleep", str(seconds + 10)]) for sandbox in sandboxes
        ]
        time.sleep(5)  # all of them are under way, and waited for
        before = processor()
        time.sleep(seconds)
        spent = (processor() - before) / seconds
        held = memory() - idle
        print(
            f"{number} open, a command running in each: {held / number:.2f} MB and "
            f"{100 * spent / number:.3f} % of a processor per sandbox, "
            f"{threading.active_count()} threads in all"
        )
        for command in commands:
            assert command.result().exit_code == 0
        list(pool.map(lambda sandbox: sandbox.close(), sandboxes))


def one_by_one(environment: Environment, attempts: int) -> None:
    for number in range(1, attempts + 1):
        use_once(environment)
        if number % (attempts // 4 or 1) == 0:
            print(f"after {number} sandboxes, one after another: {memory():.0f} MB")


def use_once(environment: Environment) -> None:
    sandbox = open_one(environment)
    sandbox.write({f"{sandbox.workspace_root}/file": b"x" * 100_000})
    assert sandbox.exec(["cat"], stdin=b"in").stdout == b"in"
    sandbox.close()


def open_one(environment: Environment) -> Sandbox:
    return environment.open("task", labels={"run": "benchmark", "task": "task"}, lifetime=3600)


def memory() -> float:
    """Resident megabytes of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def processor() -> float:
    """Seconds of processor time that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
