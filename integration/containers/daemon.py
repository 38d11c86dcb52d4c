"""A Docker daemon for the suite: the one that answers, else, for root, one of its own, which ends with the last run that uses it.

with running_daemon(): ...    # DOCKER_HOST names it
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from integration.kafka_node import die_with_parent
from integration.system_programs import environment_of, program, search_path

HOST = "DOCKER_HOST"
STATE = Path("/var/cache/kstream/docker")
"""Of the daemon that is started here: its images stay from run to run, of any checkout."""
RUN = Path("/run") / f"kstream-docker-{hashlib.sha256(str(STATE.absolute()).encode()).hexdigest()[:8]}"
"""Its socket: the path of one must be short."""
START_S, END_S = 60, 60


class NoDockerError(RuntimeError):
    """There is no Docker, or no image, to test with; one line that says why."""


class ContainerError(RuntimeError):
    """A container did not do what was asked; one line."""


@contextmanager
def running_daemon() -> Iterator[None]:
    """Docker answers for the length of a with block. NoDockerError if it does not, and none can be started."""
    os.environ["PATH"] = search_path()  # where docker and mmdebstrap are, if they are unpacked
    if answers():
        yield
        return
    if HOST in os.environ:
        raise NoDockerError(f"no Docker daemon answers at {os.environ[HOST]} (does it run, and may this user speak to it?)")
    if os.geteuid() != 0:
        raise NoDockerError("no Docker daemon answers, and only root may start one")
    if program("dockerd") is None:
        raise NoDockerError("no Docker daemon answers, and dockerd cannot be found; see scripts/system-packages")
    with _used():
        os.environ[HOST] = f"unix://{RUN / 'docker.sock'}"
        try:
            _start()
            yield
        finally:
            del os.environ[HOST]


def answers() -> bool:
    """Whether the daemon that DOCKER_HOST names, or the usual one, answers."""
    try:
        import docker
        from docker.errors import DockerException
    except ModuleNotFoundError as e:
        raise NoDockerError(f"the package {e.name} is not installed: make install brings it") from e
    try:
        client = docker.from_env(timeout=10)
        try:
            return bool(client.ping())
        finally:
            client.close()
    except (DockerException, OSError):
        return False


@contextmanager
def _used() -> Iterator[None]:
    """The daemon stays while a process is in this block: its keeper waits until nobody holds this lock, however they end."""
    for folder in (STATE, RUN):
        folder.mkdir(parents=True, exist_ok=True)
    with open(RUN / "users", "a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)  # waits while a daemon is being stopped
        yield


def _start() -> None:
    """Returns when the daemon answers, which another run may have started."""
    with open(RUN / "starting", "a") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        if answers():
            return
        log = STATE / "dockerd.log"
        with open(log, "wb") as output:
            keeper = subprocess.Popen(
                [sys.executable, "-m", "integration.containers.daemon"], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                cwd=Path(__file__).resolve().parents[2], start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + START_S
        while not answers():
            if keeper.poll() is not None or time.monotonic() > end:
                keeper.terminate()
                said = log.read_text(errors="replace").strip().splitlines() or ["no output"]
                raise NoDockerError(f"dockerd did not start: {said[-1][:300]} (log: {log})")
            time.sleep(0.1)
        _forget_runs()


def _forget_runs() -> None:
    """Removes what earlier runs have left: nothing runs yet, and all that this daemon has is the suite's."""
    import docker

    client: Any = docker.from_env()
    client.containers.prune()
    client.networks.prune()
    client.close()


def keep() -> int:
    """What the keeper does: the daemon is its child until nobody uses it. The daemon kills its containers at its end."""
    (RUN / "docker.pid").unlink(missing_ok=True)  # of one that was killed
    found = program("dockerd")
    assert found is not None
    command = [
        found, "--data-root", str(STATE / "data"), "--exec-root", str(RUN / "exec"), "--pidfile", str(RUN / "docker.pid"),
        "--host", f"unix://{RUN / 'docker.sock'}", "--ip", "127.0.0.1",
    ]  # fmt: skip
    daemon = subprocess.Popen(command, env=environment_of(found), preexec_fn=die_with_parent)
    with open(RUN / "users", "a") as users:
        while daemon.poll() is None and not _has(users):
            time.sleep(0.2)
        daemon.terminate()
        with suppress(subprocess.TimeoutExpired):
            daemon.wait(END_S)
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait()
        shutil.rmtree(RUN / "exec", ignore_errors=True)
    return 0


def _has(users: IO[str]) -> bool:
    """Take the lock of a file, if nobody holds it. Return whether it is taken."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(keep())
