"""Docker as the suite uses it: containers end with their run, and a daemon that the suite has started with the last run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.postgres_server import Postgres

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1200)]  # images may have to be built
PATIENCE_S = 90


def test_postgresql_zookeeper_and_s3_come_up_in_containers_and_take_and_give(image: Callable[[str], str], tmp_path: Path) -> None:
    """The rest of what --containers runs; with it the whole suite uses them."""
    import psycopg

    from integration.containers.servers import postgres_container, s3_container, zookeeper_container

    with postgres_container(image("postgres")) as postgres:
        assert isinstance(postgres, Postgres)
        with psycopg.connect(postgres.url) as db:
            assert db.execute("SELECT 1 + 1").fetchone() == (2,)
    with zookeeper_container(image("zookeeper"), tmp_path) as zookeeper:
        zookeeper.kill9()
        zookeeper.start()
    with s3_container(image("spark")) as s3:
        s3.go_away()
        s3.come_back()
        s3.take()
        with pytest.raises(urllib.error.HTTPError):  # it answers that there is no such object
            urllib.request.urlopen(f"{s3.endpoint}/no-bucket/no-object", timeout=20)
        assert len(s3.take()) == 1


RUN = """
import sys
from integration.containers.container import Container, ContainerNetwork
container = Container(sys.argv[1], "sleep", "600", network=ContainerNetwork(), alias="sleeper")
container.start()
print(container.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_containers_end_with_the_run_that_started_them_however_that_ends(how: signal.Signals, image: Callable[[str], str]) -> None:
    command = [sys.executable, "-c", RUN, image("spark")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        first = Path("/proc") / run.stdout.readline().decode().strip()
        assert first.name.isdigit() and first.exists()
        run.send_signal(how)
        run.wait()
    end = time.monotonic() + PATIENCE_S
    while first.exists():
        assert time.monotonic() < end, "the container outlives the run"
        time.sleep(0.1)


OWN_DAEMON = """
import os, time
from integration.containers import daemon
with daemon.running_daemon():
    assert daemon.answers() and os.environ["DOCKER_HOST"].startswith("unix:///run/kstream-docker-")
    pid = int((daemon.RUN / "docker.pid").read_text())
end = time.monotonic() + 90
while os.path.exists(f"/proc/{pid}"):
    assert time.monotonic() < end, "the daemon outlives its runs"
    time.sleep(0.1)
print("gone")
"""
ELSEWHERE = 'mount -t tmpfs none /run && mkdir -p "$0" && mount -t tmpfs none "$0" && exec "$@"'
"""With files and a network of its own: the daemon that may run here is not seen, nor its bridge touched."""


def test_where_no_daemon_answers_root_gets_one_that_ends_with_its_last_run() -> None:
    from integration.containers.daemon import STATE
    from integration.system_programs import program

    may = os.geteuid() == 0 and program("unshare") and subprocess.run(["unshare", "--net", "--mount", "true"], check=False).returncode == 0
    if not may or not program("dockerd"):
        pytest.skip("NOT TESTED: that the suite starts a Docker daemon: it takes root that may unshare, and dockerd")
    command = ["unshare", "--net", "--mount", "bash", "-c", ELSEWHERE, str(STATE), sys.executable, "-c", OWN_DAEMON]
    environment = {key: value for key, value in os.environ.items() if key != "DOCKER_HOST"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout == "gone\n", done.stderr
