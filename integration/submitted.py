"""Programs under spark-submit, as processes: what they print, their drivers, and their ends."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark

from integration.received.processes import children_of
from tests.daemon_trace import without_broken_pipes

SPARK_HOME = Path(pyspark.__file__).parent
PATIENCE_S = 240
"""Seconds, for a machine that has much else to do."""
CONF = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.host": "127.0.0.1"}


class Submitted:
    """One spark-submit of a script, killed at the end of its with block if it is still there.

    What the script prints goes to `directory`/out, which one submission after the other may write to; Spark's own log to `err`.
    """

    def __init__(
        self, directory: Path, script: Path, *arguments: object, master: str = "local[2]", options: Sequence[object] = (),
        environment: Mapping[str, str] | None = None, **conf: str,
    ) -> None:  # fmt: skip
        self.out, self.err, self.script = directory / "out", directory / "err", script
        settings = [part for key, value in {**CONF, **conf}.items() for part in ("--conf", f"{key}={value}")]
        words = [SPARK_HOME / "bin" / "spark-submit", "--master", master, *settings, *options, script, *arguments]
        with open(self.out, "ab") as out, open(self.err, "ab") as err:
            self.process = subprocess.Popen(
                list(map(str, words)), cwd=directory, env={**os.environ, **(environment or {}), "SPARK_HOME": str(SPARK_HOME)},
                stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            )  # fmt: skip

    def __enter__(self) -> Submitted:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def said(self) -> str:
        return self.out.read_text(errors="replace")

    def wait_for(self, what: str, reached: Callable[[], Any]) -> None:
        """Returns when `reached` is true; AssertionError with the log if spark-submit ends first, or it takes too long."""
        end = time.monotonic() + PATIENCE_S
        while not reached():
            if self.process.poll() is not None or time.monotonic() > end:
                log = f"{self.said()[-4000:]}\n{self.err.read_text(errors='replace')[-2000:]}"
                raise AssertionError(f"{what} did not happen:\n{log}")
            time.sleep(0.05)

    def driver(self) -> int:
        """The process id of the Python that spark-submit, which is the JVM, has started."""
        (found,) = (pid for pid in children_of(self.process.pid) if self._is_driver(pid))
        return found

    def terminate(self) -> str:
        """SIGTERM, which JVMs say they have ended by. Returns, when the driver is gone, too, what it has said since."""
        driver, before = self.driver(), len(self.said())
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 128 + signal.SIGTERM
        self.wait_for_the_driver(driver)
        return without_broken_pipes(self.said()[before:])

    def wait_for_the_driver(self, pid: int) -> None:
        """Returns when this process, the driver, has ended."""
        end = time.monotonic() + PATIENCE_S
        while self._is_driver(pid):
            assert time.monotonic() < end, "the driver lives on without its JVM"
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL to spark-submit, which is the JVM."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _is_driver(self, pid: int) -> bool:
        """Whether this process, the driver, has not ended."""
        try:
            return self.script.name in Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:  # it has ended
            return False
