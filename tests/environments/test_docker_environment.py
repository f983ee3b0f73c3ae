"""What is Docker's alone: images of every make, options, this machine's servers, leftovers."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import engines
import pytest
import runner_image
from probe import long_sleep, python, sh, timed_out_after
from support.waiting import wait_until

from pytest_pinchbench.environments import EnvironmentSetup, Recipe, Sandbox, check_reachable
from pytest_pinchbench.environments.docker import DockerEnvironment
from pytest_pinchbench.issues import EnvironmentUnavailable, SandboxFailure, SettingsError
from pytest_pinchbench.settings.recipes import load_recipe

pytestmark = pytest.mark.docker

Make = Callable[..., DockerEnvironment]


@pytest.fixture(scope="session")
def base() -> str:
    try:
        return runner_image.base()
    except runner_image.Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def make(base: str, tmp_path: Path) -> Make:
    """``make(options={...}, image=...)``: an environment; also ``keep``, ``said``, ``mounts``."""
    return functools.partial(make_environment, tmp_path, image=base)


def make_environment(
    folder: Path,
    *,
    keep: bool = False,
    said: list[str] | None = None,
    **recipe: Any,
) -> DockerEnvironment:
    say = print if said is None else said.append
    return DockerEnvironment(
        EnvironmentSetup(
            recipe=Recipe(**{"name": "r", "environment": "docker", **recipe}),
            run_id="test",
            data_dir=folder / "data",
            keep=keep,
            say=say,
        )
    )


@contextlib.contextmanager
def opened(environment: DockerEnvironment, lifetime: float = 300) -> Iterator[Sandbox]:
    sandbox = environment.open("task_docker", labels={"task": "task_docker"}, lifetime=lifetime)
    try:
        yield sandbox
    finally:
        sandbox.close()


def docker(*words: str, stdin: str | None = None) -> str:
    ended = subprocess.run(["docker", *words], input=stdin, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def inspect(name: str) -> Any:
    return json.loads(docker("inspect", name))[0]


def a_name() -> str:
    """A sandbox's name that no other test on this daemon gives."""
    return f"task_{secrets.token_hex(4)}"


def exists(name: str) -> bool:
    return subprocess.run(["docker", "inspect", name], capture_output=True).returncode == 0


def built(base: str, *instructions: str) -> str:
    """An image made from the base by a few instructions; the engine keeps it for the next time."""
    dockerfile = "\n".join([f"FROM {base}", *instructions])
    return docker("build", "--quiet", "-", stdin=dockerfile)


# images


def test_an_entrypoint_of_the_image_is_not_run(make: Make, base: str) -> None:
    image = built(base, 'ENTRYPOINT ["/bin/false"]', 'CMD ["--nothing"]', "WORKDIR /srv")

    with opened(make(image=image)) as sandbox:
        assert sandbox.exec(["pwd"]).stdout == b"/srv\n"


def test_a_healthcheck_of_the_image_is_not_run(make: Make, base: str) -> None:
    image = built(base, "HEALTHCHECK --interval=1s CMD touch /checked")

    with opened(make(image=image)) as sandbox:
        health = inspect(sandbox.name)["State"].get("Health") or {}

    assert health.get("Status") in (None, "", "none")


def test_a_user_who_is_not_root_can_do_everything(make: Make, base: str, tmp_path: Path) -> None:
    image = built(base, "USER nobody")
    (tmp_path / "file").write_bytes(b"uploaded")

    with opened(make(image=image)) as sandbox:
        root = sandbox.workspace_root
        sandbox.write({f"{root}/made/file": b"written"})
        sandbox.upload(tmp_path / "file", f"{sandbox.private_root}/file")

        assert sandbox.exec(["id", "-un"]).stdout == b"nobody\n"
        assert sandbox.exec(["stat", "-c", "%U", f"{root}/made/file"]).stdout == b"nobody\n"
        assert sandbox.read(f"{sandbox.private_root}/file") == b"uploaded"
        assert sandbox.exec(["sleep", "1000"], timeout=0.5).timed_out


def test_the_recipe_can_name_a_user(make: Make) -> None:
    with opened(make(options={"user": "1234:1234"})) as sandbox:
        sandbox.write({f"{sandbox.workspace_root}/file": b""})

        assert sandbox.exec(sh("id -u; id -g")).stdout == b"1234\n1234\n"


def test_stopping_reaches_processes_of_other_users(make: Make, base: str) -> None:
    # a program with root's rights, as an agent may have them by sudo
    image = built(base, "RUN cp /bin/sleep /bin/nap && chmod u+s /bin/nap", "USER nobody")

    with opened(make(image=image)) as sandbox:
        sandbox.exec(sh("nap 1000 >/dev/null 2>&1 & exit 0"))
        assert "nap 1000" in docker("top", sandbox.name)

        sandbox.stop_processes()

        assert "nap 1000" not in docker("top", sandbox.name)


def test_a_timeout_reaches_processes_of_other_users(make: Make, base: str) -> None:
    image = built(base, "RUN cp /bin/sleep /bin/nap && chmod u+s /bin/nap", "USER nobody")

    with opened(make(image=image)) as sandbox:
        assert sandbox.exec(sh("nap 1000 & sleep 1000"), timeout=0.5).timed_out
        assert "nap 1000" not in docker("top", sandbox.name)


def test_an_image_needs_no_tools_but_python(make: Make, base: str) -> None:
    names = ("timeout", "setsid", "sleep", "kill", "tar", "mkdir", "cat", "env", "chmod")
    image = built(base, f"RUN cd /usr/bin && rm -f {' '.join(names)} && rm -f sh bash dash")

    with opened(make(image=image)) as sandbox:
        sandbox.write({f"{sandbox.workspace_root}/a/b": b"x"})

        assert sandbox.read(f"{sandbox.workspace_root}/a/b") == b"x"
        late = sandbox.exec(python(sandbox, "import time; time.sleep(1000)"), timeout=0.5)
        assert late.timed_out


def test_a_read_only_root_has_writable_folders_for_us(make: Make) -> None:
    with opened(make(options={"read_only": True})) as sandbox:
        sandbox.write({f"{sandbox.workspace_root}/a": b"x", f"{sandbox.private_root}/b": b"y"})
        mode = sandbox.exec(["stat", "-c", "%a", sandbox.private_root]).stdout

        assert b"Read-only" in sandbox.exec(["touch", "/etc/new"]).stderr
        assert sandbox.read(f"{sandbox.workspace_root}/a") == b"x"
        assert mode == b"700\n"
        assert sandbox.exec(sh("echo x > /tmp/x")).exit_code == 0


def test_an_image_without_python_is_one_clear_error(make: Make, base: str) -> None:
    image = built(base, "RUN rm -f /usr/bin/python3*")
    name = a_name()

    with pytest.raises(EnvironmentUnavailable, match=r"no python3 .*--pinchbench-env bubblewrap"):
        make(image=image).open(name, labels={}, lifetime=60)

    wait_until(lambda: docker("ps", "-aq", "--filter", f"name={name}") == "")


def test_no_image_at_all_says_which_option_names_one(make: Make) -> None:
    with pytest.raises(EnvironmentUnavailable, match="--pinchbench-image"):
        make(image=None).prepare()


def test_an_image_that_is_not_there_and_not_to_be_pulled(make: Make) -> None:
    with pytest.raises(EnvironmentUnavailable, match=r"no image no-such/image:tag.*pull: never"):
        make(image="no-such/image:tag", options={"pull": "never"}).prepare()


def test_an_image_that_cannot_be_pulled_names_what_to_check(make: Make) -> None:
    with pytest.raises(
        EnvironmentUnavailable,
        match=r"localhost:1/none:x cannot be pulled.*refused.*docker login.*-env bubblewrap",
    ):
        make(image="localhost:1/none:x").prepare()


# a registry with a password


@pytest.fixture
def registry(base: str) -> Iterator[Callable[[], str]]:
    """A registry on loopback that wants ``user:word``; gives the name of an image in it."""
    layer, config, manifest = _image_files(base)
    files = {
        f"/v2/private/image/blobs/{_digest(layer)}": (layer, "application/octet-stream"),
        f"/v2/private/image/blobs/{_digest(config)}": (config, "application/octet-stream"),
    }
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    for reference in ("tag", _digest(manifest)):
        files[f"/v2/private/image/manifests/{reference}"] = (manifest, kind)

    class Registry(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers["Authorization"] != "Basic dXNlcjp3b3Jk":
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="private"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            content, kind = files.get(self.path, (b"{}", "application/json"))
            self.send_response(200 if self.path == "/v2/" or self.path in files else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Docker-Content-Digest", _digest(content))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET

        def log_message(self, *words: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        name = f"localhost:{server.server_port}/private/image:tag"
        yield lambda: name
        server.shutdown()
        subprocess.run(["docker", "rmi", "-f", name], capture_output=True)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _image_files(base: str) -> tuple[bytes, bytes, bytes]:
    """An image of one small layer: nothing runs in it, it is only pulled."""
    import gzip
    import io
    import tarfile

    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("empty"))
    layer = gzip.compress(plain.getvalue())
    built_for = {name.lower(): inspect(base)[name] for name in ("Architecture", "Os")}
    rootfs = {"type": "layers", "diff_ids": [_digest(plain.getvalue())]}
    config = json.dumps({**built_for, "config": {}, "rootfs": rootfs}).encode()

    def describe(kind: str, content: bytes) -> dict[str, Any]:
        media = f"application/vnd.docker.{kind}"
        return {"mediaType": media, "size": len(content), "digest": _digest(content)}

    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": describe("container.image.v1+json", config),
        "layers": [describe("image.rootfs.diff.tar.gzip", layer)],
    }
    return layer, config, json.dumps(manifest).encode()


def test_an_image_is_pulled_with_the_users_own_login(
    make: Make,
    registry: Callable[[], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = registry().partition("/")[0]
    login = {"auths": {host: {"auth": "dXNlcjp3b3Jk"}}}
    (tmp_path / "config.json").write_text(json.dumps(login))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    said: list[str] = []
    environment = make(image=registry(), said=said)

    environment.prepare()

    assert environment.image_id().startswith("sha256:")
    assert environment.image_digest().startswith("sha256:")
    assert said == [f"pulling the image {registry()}"]
    make(image=registry(), said=said).prepare()
    assert len(said) == 1  # it is there now
    make(image=registry(), said=said, options={"pull": "always"}).prepare()
    assert len(said) == 2


def test_an_image_that_is_in_no_registry_has_a_local_id_only(make: Make) -> None:
    environment = make()
    environment.prepare()
    assert environment.image_digest() == f"local {environment.image_id()}"


def test_a_registry_that_wants_another_login_is_an_error(
    make: Make,
    registry: Callable[[], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))

    with pytest.raises(EnvironmentUnavailable, match=r"cannot be pulled.*docker login"):
        make(image=registry()).prepare()


# options


def test_limits_are_set_on_the_container(make: Make) -> None:
    limits = {"cpus": 0.5, "memory": "300m", "pids_limit": 200, "shm_size": "32m"}

    with opened(make(options=limits)) as sandbox:
        config = inspect(sandbox.name)["HostConfig"]

    assert config["NanoCpus"] == 500_000_000
    assert config["Memory"] == 300 << 20
    assert config["PidsLimit"] == 200
    assert config["ShmSize"] == 32 << 20


@pytest.mark.parametrize("user", [None, "1000:1000"])
def test_an_agent_cannot_reach_into_process_1(make: Make, user: str | None) -> None:
    program = "open('/proc/1/mem', 'r+b')"
    with opened(make(options={"user": user} if user else {})) as sandbox:
        assert b"Permission" in sandbox.exec(["python3", "-c", program]).stderr
        sandbox.exec(["sh", "-c", "kill -STOP 1; kill -TERM 1; kill -KILL 1"])
        assert sandbox.exec(["echo", "still there"]).stdout == b"still there\n"


@pytest.mark.parametrize("user", ["0", "1000"])
def test_the_hardened_recipe_leaves_an_agent_without_privileges(make: Make, user: str) -> None:
    environment = make(options={**load_recipe("docker-hardened").options, "user": user})
    with (
        opened(environment) as sandbox,
        contextlib.closing(
            environment.open("task", labels={}, lifetime=300, beside=sandbox)
        ) as beside,
    ):
        interfaces = sandbox.exec(["ls", "/sys/class/net"]).stdout
        assert interfaces.split() == [b"lo"]
        sandbox.write({f"{sandbox.workspace_root}/made": b"by us"})
        status = sandbox.exec(["cat", "/proc/self/status"]).stdout

        assert b"CapEff:\t0000000000000000\n" in status
        assert b"NoNewPrivs:\t1\n" in status
        assert sandbox.exec(["touch", "/usr/bin/x", "/etc/x"]).exit_code != 0
        sandbox.exec(["sh", "-c", "sleep 1000 & echo"])
        sandbox.stop_processes()
        sandbox.freeze()
        assert beside.read(f"{sandbox.workspace_root}/made") == b"by us"


def test_more_memory_than_allowed_kills_the_command_and_not_the_sandbox(make: Make) -> None:
    with opened(make(options={"memory": "200m"})) as sandbox:
        result = sandbox.exec(python(sandbox, "x = bytearray(400 << 20)"))

        assert result.exit_code == -signal.SIGKILL
        assert sandbox.exec(["true"]).exit_code == 0


def test_a_fork_bomb_ends_with_its_command(make: Make) -> None:
    with opened(make(options={"pids_limit": 300})) as sandbox:
        bomb = "import os\nprint('lit', flush=True)\n"
        bomb += "while True:\n try: os.fork()\n except OSError: pass"
        lit = python(sandbox, bomb)
        timed_out_after(b"lit\n", lambda timeout: sandbox.exec(lit, timeout=timeout))

        there = sh("ls -d /proc/[0-9]* | wc -l")
        wait_until(lambda: int(sandbox.exec(there).stdout) < 9)


def test_a_full_disk_is_the_sandboxs_failure(make: Make) -> None:
    with (
        opened(make(options={"tmpfs": ["/workspace:size=1m"]})) as sandbox,
        pytest.raises(SandboxFailure, match="No space left"),
    ):
        sandbox.write({f"{sandbox.workspace_root}/big": bytes(2 << 20)})


def test_hosts_and_variables_and_volumes(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSED_ON", "from here")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "file").write_text("shared")
    options = {
        "extra_hosts": {"models.test": "192.0.2.7"},
        "volumes": [f"{tmp_path}/shared:/shared:ro"],
    }
    variables = {"env": {"SET": "in the recipe"}, "pass_env": ("PASSED_ON", "NOT_SET_HERE")}

    with opened(make(options=options, **variables)) as sandbox:
        said = sandbox.exec(sh('echo "$SET $PASSED_ON"; cat /shared/file; touch /shared/new'))
        hosts = sandbox.read("/etc/hosts").decode()

    assert said.stdout == b"in the recipe from here\nshared"
    assert b"Read-only" in said.stderr
    assert "192.0.2.7\tmodels.test" in hosts


def test_a_shared_folder_is_seen_read_only_with_what_it_holds_by_now(make: Make) -> None:
    environment = make()
    with opened(environment) as sandbox:
        shared = environment.shared_folder("cache")
        assert shared is not None
        shared.here.mkdir()
        (shared.here / "file").write_text("cached")
        assert sandbox.read(f"{shared.inside}/file") == b"cached"
        assert b"Read-only" in sandbox.exec(["touch", f"{shared.inside}/new"]).stderr


def test_an_engine_that_sees_other_files_than_we_do_shares_none(make: Make, tmp_path: Path) -> None:
    environment = make()
    assert environment.shared_folder("cache") is not None
    shutil.rmtree(tmp_path / "data" / "shared")
    with opened(environment) as sandbox:
        assert sandbox.exec(["true"]).exit_code == 0
        assert environment.shared_folder("cache") is None


def test_a_data_directory_that_cannot_be_used_is_no_trouble_of_the_daemon(
    make: Make, tmp_path: Path
) -> None:
    (tmp_path / "data").touch()
    for options in ({}, {"max_open": 1}):
        with pytest.raises(EnvironmentUnavailable, match="--pinchbench-data-dir"):
            make(options=options).open("task_no_data", labels={}, lifetime=60)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memmory": "4g"}, "no option 'memmory', did you mean 'memory'?"),
        ({"memory": "lots"}, "options.memory has to be a size like 512m or 4g, not 'lots'"),
        ({"cpus": "two"}, "options.cpus has to be a number, not 'two'"),
        ({"cpus": True}, "options.cpus has to be a number"),
        ({"pull": "allways"}, "missing, always, never, not 'allways', did you mean 'always'?"),
        ({"read_only": "maybe"}, "options.read_only has to be yes or no"),
        ({"volumes": ["/data"]}, "options.volumes has to list HOST_PATH_OR_VOLUME:/PATH"),
        ({"extra_hosts": ["no-address"]}, "options.extra_hosts has to map names to addresses"),
        ({"max_open": 0}, "options.max_open has to be 1 or more"),
    ],
)
def test_options_are_checked_before_anything_runs(
    make: Make, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        make(options=options)


@pytest.mark.parametrize("options", [{"network": "no-such-net"}, {"runtime": "no-such-runtime"}])
def test_what_the_daemon_refuses_ends_the_run_with_its_words(
    make: Make, options: dict[str, Any]
) -> None:
    name = a_name()
    with pytest.raises(EnvironmentUnavailable, match="no-such-"):
        make(options=options).open(name, labels={}, lifetime=60)

    wait_until(lambda: docker("ps", "-aq", "--filter", f"name={name}") == "")


def test_no_more_sandboxes_are_open_than_the_recipe_allows(make: Make) -> None:
    environment = make(options={"max_open": 1})
    first = environment.open("task_one", labels={}, lifetime=300)
    with ThreadPoolExecutor() as pool:
        second = pool.submit(environment.open, "task_two", labels={}, lifetime=300)
        time.sleep(0.5)
        assert not second.done()

        first.close()
        second.result().close()


# servers on this machine


@contextlib.contextmanager
def server(host: str) -> Iterator[int]:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *words: object) -> None: ...

    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    with Server((host, 0), Answer) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield listening.server_port
        listening.shutdown()


def fetch(sandbox: Sandbox, url: str) -> bytes:
    program = f"import urllib.request as u; print(u.urlopen({url!r}, timeout=60).read().decode())"
    return sandbox.exec(python(sandbox, program)).stdout


def test_with_the_network_of_this_machine_a_loopback_server_is_reached_as_it_is(
    make: Make,
) -> None:
    environment = make(options={"network": "host"})
    with server("127.0.0.1") as port, opened(environment) as sandbox:
        url = f"http://127.0.0.1:{port}/v1"
        check_reachable(environment, url)

        assert fetch(sandbox, url) == b"hello\n"


@pytest.mark.parametrize("network", ["bridge", "none", "internal"])
def test_a_server_on_this_machine_is_refused_without_the_relay(make: Make, network: str) -> None:
    with pytest.raises(EnvironmentUnavailable, match="--pinchbench-relay auto"):
        check_reachable(make(options={"network": network}), "http://localhost:8000/v1")


def test_localhost_is_another_machine_for_an_engine_elsewhere(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")

    assert not make(options={"network": "host"}).shares_loopback


# which engine


def test_no_daemon_is_an_error_that_names_the_other_way(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")

    with pytest.raises(
        EnvironmentUnavailable, match=r"no Docker daemon answers at .*none.sock.*env bubblewrap"
    ):
        make().prepare()


def test_a_daemon_that_may_not_be_used_is_an_error_that_names_the_group(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs to become another user")
    with socket.socket(socket.AF_UNIX) as closed:
        closed.bind(str(tmp_path / "mine.sock"))
        (tmp_path / "mine.sock").chmod(0o600)
        closed.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/mine.sock")
        environment = make()
        receiver, sender = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setuid(65534)
                environment.prepare()
            except EnvironmentUnavailable as error:
                os.write(sender, str(error).encode())
            finally:
                os._exit(0)
        os.close(sender)
        message = os.read(receiver, 10_000).decode()
        os.waitpid(child, 0)

    assert "no permission to use the Docker daemon" in message
    assert "usermod -aG docker" in message


def test_the_current_context_of_the_docker_command_is_used(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / ".docker" / "contexts" / "meta" / hashlib.sha256(b"mine").hexdigest()
    folder.mkdir(parents=True)
    endpoint = {"Host": "unix:///nowhere/mine.sock", "SkipTLSVerify": False}
    context = {"Name": "mine", "Metadata": {}, "Endpoints": {"docker": endpoint}}
    (folder / "meta.json").write_text(json.dumps(context))
    (tmp_path / ".docker" / "config.json").write_text(json.dumps({"currentContext": "mine"}))
    module = "pytest_pinchbench.environments.docker_engine"
    program = f"from {module} import Engine; print(Engine().address)"
    variables = {k: v for k, v in os.environ.items() if not k.startswith("DOCKER_")}
    variables["HOME"] = str(tmp_path)

    said = subprocess.run(
        [sys.executable, "-c", program], env=variables, capture_output=True, text=True
    )

    assert said.stdout == "unix:///nowhere/mine.sock\n", said.stderr


# what stays behind


def test_a_container_is_labelled_and_gone_when_its_sandbox_is_closed(make: Make) -> None:
    with opened(make()) as sandbox:
        labels = inspect(sandbox.name)["Config"]["Labels"]
        assert "task_docker" in sandbox.name

    assert labels["pytest-pinchbench.task"] == "task_docker"
    wait_until(lambda: not exists(sandbox.name))


def test_a_container_goes_by_itself_when_its_lifetime_is_over(make: Make) -> None:
    with opened(make(), lifetime=20) as sandbox:
        wait_until(lambda: not exists(sandbox.name), seconds=120)

        with pytest.raises(SandboxFailure):
            sandbox.exec(["true"])


RUN_THAT_IS_KILLED = """
import sys
from pathlib import Path
from pytest_pinchbench.environments import EnvironmentSetup, Recipe
from pytest_pinchbench.environments.docker import DockerEnvironment
recipe = Recipe("r", "docker", image=sys.argv[1])
keep = sys.argv[3] == "keep"
environment = DockerEnvironment(EnvironmentSetup(recipe, "killed", Path(sys.argv[2]), keep))
sandbox = environment.open("task_killed", labels={}, lifetime=300)
sandbox.exec(["sh", "-c", "(setsid sleep 1001 &) ; sleep 1002 & exit 0"])
print(sandbox.name, flush=True)
sandbox.exec(["sh", "-c", "(setsid sleep 1003 &) ; sleep 1004"])
"""


@pytest.fixture
def kill_a_run(base: str, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Kills a run in mid-command, one that is to ``keep`` or to ``remove``: its container."""
    killed: list[str] = []

    def kill(then: str) -> str:
        command = [sys.executable, "-c", RUN_THAT_IS_KILLED, base, str(tmp_path), then]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            name = process.stdout.readline().strip()
            killed.append(name)
            wait_until(lambda: "sleep 1004" in docker("top", name))
            process.kill()
        return name

    yield kill
    subprocess.run(["docker", "rm", "-f", *killed], capture_output=True)


def test_a_killed_runs_command_ends_with_it(kill_a_run: Callable[[str], str]) -> None:
    name = kill_a_run("keep")  # or a test beside this one may remove it as a leftover
    wait_until(lambda: "sleep 1003" not in docker("top", name))
    wait_until(lambda: "sleep 1004" not in docker("top", name))


def test_the_next_run_removes_the_container_of_a_killed_run(
    make: Make, kill_a_run: Callable[[str], str]
) -> None:
    name = kill_a_run("remove")

    make().prepare()

    wait_until(lambda: not exists(name))


def test_the_next_run_leaves_the_containers_of_living_runs_alone(make: Make) -> None:
    with opened(make()) as sandbox:
        make().prepare()

        assert sandbox.exec(["true"]).exit_code == 0


def test_a_kept_container_stays_without_processes_and_says_how_to_get_in(make: Make) -> None:
    said: list[str] = []
    sleep = long_sleep()
    with opened(make(keep=True, said=said)) as sandbox:
        sandbox.write({f"{sandbox.workspace_root}/file": b"kept"})
        sandbox.exec(sh(f"{sleep} & exit 0"))
    try:
        make().prepare()

        assert docker("exec", sandbox.name, "cat", f"{sandbox.workspace_root}/file") == "kept"
        assert sleep not in docker("top", sandbox.name)
        assert f"docker exec -it {sandbox.name} sh" in said[-1]
        assert f"docker rm -f {sandbox.name}" in said[-1]
    finally:
        docker("rm", "-f", sandbox.name)


def test_commands_leave_no_connection_behind(make: Make) -> None:
    with opened(make()) as sandbox:
        sandbox.exec(["true"])
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            sandbox.exec(["cat"], stdin=b"x" * 100_000)

        # fewer than one a command: other threads of this process open some, too
        assert len(os.listdir("/proc/self/fd")) < before + 10


# lost in the middle


def test_a_container_that_is_removed_in_mid_command_is_a_failure_that_says_so(
    make: Make,
) -> None:
    with opened(make()) as sandbox, ThreadPoolExecutor() as pool:
        command = pool.submit(sandbox.exec, ["sleep", "1000"])
        wait_until(lambda: "sleep 1000" in docker("top", sandbox.name))
        docker("rm", "-f", sandbox.name)

        with pytest.raises(
            SandboxFailure, match=r"lost while a command ran.*container (is gone|has ended)"
        ):
            command.result(timeout=120)


def test_an_agent_cannot_end_its_own_container_by_name(make: Make) -> None:
    with opened(make()) as sandbox:
        sandbox.exec(sh("pkill python3; kill -TERM 1; kill -KILL 1"))

        assert sandbox.exec(["true"]).exit_code == 0


@pytest.fixture(scope="session")
def second_daemon(base: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A Docker daemon of our own, which may be stopped; its address."""
    with engines.dockerd(base) as second:
        yield second


def test_a_daemon_that_stops_in_mid_command_is_a_failure_that_says_so(
    make: Make,
    second_daemon: tuple[str, subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, daemon = second_daemon
    monkeypatch.setenv("DOCKER_HOST", address)
    said: list[str] = []
    environment = make(options={"network": "none"}, said=said)
    with opened(environment) as sandbox, ThreadPoolExecutor() as pool:
        running = f"{sandbox.workspace_root}/running"
        command = pool.submit(sandbox.exec, sh(f"echo > {running}; sleep 1000"))
        wait_until(lambda: sandbox.exec(["test", "-e", running]).exit_code == 0)
        daemon.terminate()

        with pytest.raises(SandboxFailure, match="lost while a command ran"):
            command.result(timeout=120)
        daemon.wait()
        with pytest.raises(SandboxFailure, match=f"no Docker daemon answers at {address}"):
            sandbox.exec(["true"])
    [line] = said
    assert f"{sandbox.name} could not be removed (no Docker daemon answers" in line
