"""EmbeddedBroker: a Kafka for tests and the demo, in a process of its own, with nothing to install.

    with EmbeddedBroker() as broker:
        … broker.bootstrap …

The process is `python -m kstream_kafka.demo.embedded_broker`: it runs librdkafka's mock cluster, prints `{"bootstrap": "host:port"}` as one
line and lives until its standard input closes, which happens at the latest when its parent dies, however it dies.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from types import TracebackType
from typing import IO

from kstream_kafka.errors import KafkaError

START_SECONDS = 30.0


class EmbeddedBrokerError(KafkaError):
    """The broker's process did not start, or ended by itself. Facts: exit_code, output."""


class EmbeddedBroker:
    """Starts the process on entry and ends it on exit. `bootstrap` is its address, `pid` its process.

    What it holds is gone afterwards: some 28,000 records of 150 B a partition, the oldest dropped first.
    """

    bootstrap: str
    pid: int

    def __init__(self, brokers: int = 1) -> None:
        self._brokers = brokers
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None

    def __enter__(self) -> EmbeddedBroker:
        """Blocks until the broker answers (about a second). EmbeddedBrokerError if it does not in 30 s."""
        command = [sys.executable, "-m", "kstream_kafka.demo.embedded_broker", "--brokers", str(self._brokers)]
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, start_new_session=True
        )
        self.pid = self._process.pid
        try:
            self.bootstrap = self._read_address(self._process)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def check(self) -> None:
        """EmbeddedBrokerError if the process has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise self._failed("ended by itself")

    def stop(self) -> None:
        """Ends the process and waits for it. Twice is fine."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _read_address(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        watchdog = threading.Timer(START_SECONDS, process.kill)
        watchdog.start()
        try:
            line = process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            process.wait()
            raise self._failed("did not start")
        return json.loads(line)["bootstrap"]

    def _failed(self, what: str) -> EmbeddedBrokerError:
        assert self._process is not None and self._errors is not None
        self._errors.seek(0)
        output = self._errors.read()[-2000:].strip()
        code = self._process.returncode
        last = output.splitlines()[-1] if output else "it said nothing"
        return EmbeddedBrokerError(f"the embedded broker {what} (exit code {code}): {last}", exit_code=code, output=output)


def main() -> None:
    """The process: prints the address and waits for its standard input to close."""
    parser = argparse.ArgumentParser(prog="python -m kstream_kafka.demo.embedded_broker", description=__doc__)
    parser.add_argument("--brokers", type=int, default=1)
    brokers = parser.parse_args().brokers
    from kstream_kafka.demo.producer import MockCluster  # the parent's side does without librdkafka

    cluster = MockCluster(brokers)
    print(json.dumps({"bootstrap": cluster.bootstrap}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
