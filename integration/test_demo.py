"""`kstream demo` from the outside: it proves what it says, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SECONDS = 300
SMALL = ["--batches", "8", "--rate", "200"]


@contextmanager
def demo(folder: Path, *options: str, stdin: int | None = None, browser: str = "") -> Generator[subprocess.Popen[str]]:
    """The demo with its temporary files under `folder`; killed at the end if it still runs."""
    environment = {**os.environ, "TMPDIR": str(folder), "BROWSER": browser}
    command = [sys.executable, "-m", "kstream.cli", "demo", *options]
    process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def sessions_of(pid: int) -> list[str]:
    """Command lines of the processes whose parent is `pid`."""
    listed = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.splitlines()


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Lines of the demo up to the one that holds `text`."""
    assert process.stdout is not None
    seen: list[str] = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return "".join(seen)
    raise AssertionError(f"{text!r} never came:\n{''.join(seen)}")


def wait_until_gone(pids: list[int]) -> list[int]:
    deadline = time.monotonic() + 20
    while (alive := [pid for pid in pids if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return alive


@pytest.mark.timeout(SECONDS + 60)
def test_the_demo_proves_that_every_order_was_counted_exactly_once(tmp_path: Path) -> None:
    with demo(tmp_path, *SMALL) as process:
        output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, output
    counted = re.search(r"^([\d,]+) orders acknowledged by Kafka, ([\d,]+) counted: missing 0, twice 0, changed 0$", output, re.MULTILINE)
    assert counted and counted[1] == counted[2] != "0", output
    assert "driver 1 was killed (SIGKILL) in the middle of a batch" in output
    re_run = re.search(r"^re-run, with the same ranges both times: (\d+) ", output, re.MULTILINE)
    assert re_run and int(re_run[1]) >= 1, output
    assert "(its orders were in the sink already)" in output
    assert re.search(r"^made up for the downtime of \d+\.\d s: [1-9]", output, re.MULTILINE), output
    assert re.search(r"^PROVED: every order was counted exactly once", output, re.MULTILINE), output
    assert not list(tmp_path.glob("kstream-demo-*")), "the temporary folder was left behind"


class Looker:
    """Someone who looks at a page again and again. `seen` has the changes: epoch and source of its figures, None for no answer."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str] | None] = []
        self.url = ""
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def start(self, url: str) -> None:
        self.url = url
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join(60)

    def get(self, path: str) -> Any:
        with self._opener.open(f"{self.url}api/v1/{path}", timeout=20) as response:
            return json.loads(response.read())

    def ask(self, what: str) -> Any:
        """The answer of the application that is there now."""
        (application,) = self.get("applications")
        assert application["name"] == "kstream demo"
        return self.get(f"applications/{application['id']}/streaming/{what}")

    def _look(self) -> None:
        while not self._end.wait(0.1):
            try:
                figures = self.ask("statistics")
                found = figures["epoch"], figures["source"]
            except OSError:
                found = None
            if not self.seen or self.seen[-1] != found:
                self.seen.append(found)


@pytest.mark.timeout(SECONDS + 60)
def test_with_page_one_address_shows_both_drivers_and_then_the_checkpoint(tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    master, slave = pty.openpty()
    looker = Looker()
    with demo(tmp_path, *SMALL, "--page", stdin=slave, browser=str(browser)) as process:
        said = read_until(process, "the page of the driver: ")
        looker.start(said.rpartition("the page of the driver: ")[2].strip())
        output = read_until(process, "until Ctrl-C")
        assert "PROVED: every order was counted exactly once" in output
        assert (tmp_path / "opened").read_text() == looker.url
        batches = looker.ask("batches")
        assert looker.ask("statistics")["source"] == "checkpoint" and {row["status"] for row in batches} == {"COMPLETED"}
        counted = re.search(r"^([\d,]+) orders acknowledged", output, re.MULTILINE)
        assert counted and sum(row["inputSize"] for row in batches) == int(counted[1].replace(",", ""))
        looker.stop()
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    os.close(master)
    os.close(slave)
    assert (process.returncode, rest) == (0, "")
    drivers = [found[0] for found in looker.seen if found is not None and found[1] == "driver" and found[0]]
    assert drivers == [1, 2], "a driver that opens its checkpoint has no epoch yet"
    assert looker.seen[1] is None, "between the two drivers nobody answers"
    assert not list(tmp_path.glob("kstream-demo-*"))


def test_ctrl_c_ends_the_demo_with_everything_it_started(tmp_path: Path) -> None:
    with demo(tmp_path, *SMALL) as process:
        read_until(process, "driver 1 starts")
        children = [int(line.split()[0]) for line in sessions_of(process.pid)]
        assert len(children) == 3, children
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and "Traceback" not in output, output
    assert wait_until_gone(children) == []
    assert not list(tmp_path.glob("kstream-demo-*"))


def test_what_the_demo_started_ends_even_when_the_demo_is_killed(tmp_path: Path) -> None:
    with demo(tmp_path, *SMALL) as process:
        read_until(process, "driver 1 starts")
        children = [int(line.split()[0]) for line in sessions_of(process.pid)]
        process.kill()
        process.wait()
    assert wait_until_gone(children) == []


def test_a_driver_that_cannot_start_is_one_line_that_names_its_log(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import os, sys\nif 'kstream_kafka.demo.job' in ' '.join(sys.orig_argv): sys.exit('no driver today')\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": f"{broken}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "kstream.cli", "demo", *SMALL]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False)
    assert ran.returncode == 1
    said = ran.stderr.splitlines()
    assert len(said) == 1 and said[0].startswith("kstream: driver 1 ended with exit code 1: "), ran.stderr
    log = Path(said[0].rpartition("(see ")[2].rstrip(")"))
    assert log.is_relative_to(tmp_path) and "no driver today" in log.read_text()
