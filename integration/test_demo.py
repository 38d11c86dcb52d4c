"""`kstream demo` from the outside: it proves what it says, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SECONDS = 300
SMALL = ["--plain", "--batches", "8", "--rate", "200"]


@contextmanager
def demo(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The demo with its temporary files under `folder`; killed at the end if it still runs."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, "-m", "kstream.cli", "demo", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
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
