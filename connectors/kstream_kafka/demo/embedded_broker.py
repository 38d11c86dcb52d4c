"""EmbeddedBroker: a Kafka for tests and the demo, in a process of its own, without an installation; and a producer for it.

    with EmbeddedBroker() as broker:
        … broker.bootstrap …

The process is `python -m kstream_kafka.demo.embedded_broker`. It runs librdkafka's mock cluster and prints `{"bootstrap": "host:port"}`
as one line. It ends when its standard input closes, at the latest when its parent dies.

The producer is no sink for streams. Besides the clients that read, only this module imports confluent_kafka. It does so when a producer or
a mock cluster is made, so the parent of the process needs no librdkafka.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any

from kstream_kafka.errors import KafkaError

START_SECONDS = 30.0
OnAcknowledged = Callable[[int, int], None]
"""Called with (partition, offset) once the broker has the record."""


class EmbeddedBrokerError(KafkaError):
    """The process of the broker did not start, or has ended. Facts: exit_code, output."""


class EmbeddedBroker:
    """A broker in a separate process, which starts on entry and ends on exit.

    It keeps about 28,000 records of 150 B per partition, drops the oldest first, and loses all of them at its end.

    Attributes:
        bootstrap: the address of the broker.
        pid: the id of its process.
    """

    bootstrap: str
    pid: int

    def __init__(self, brokers: int = 1) -> None:
        self._brokers = brokers
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None

    def __enter__(self) -> EmbeddedBroker:
        """Start the process. Blocks until the broker answers, about a second.

        Raises:
            EmbeddedBrokerError: the process has ended, or the broker does not answer in 30 s.
        """
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
        """Raise EmbeddedBrokerError if the process has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise self._failed("ended by itself")

    def stop(self) -> None:
        """Kill the process and wait for its end. A second call does nothing."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _read_address(self, process: subprocess.Popen[str]) -> str:
        """Return the address that the process prints. Blocks for 30 s at most. Raises EmbeddedBrokerError."""
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
        """Return the error for a process that has ended, with the last line of its output."""
        assert self._process is not None and self._errors is not None
        self._errors.seek(0)
        output = self._errors.read()[-2000:].strip()
        code = self._process.returncode
        last = output.splitlines()[-1] if output else "it said nothing"
        return EmbeddedBrokerError(f"the embedded broker {what} (exit code {code}): {last}", exit_code=code, output=output)


class AcknowledgedProducer:
    """An idempotent producer that reports for each record whether Kafka has it. Used by one thread.

    Attributes:
        refused: the client's message for each record that it has given up.
    """

    def __init__(self, bootstrap: str) -> None:
        # One request at a time: on a new topic a first batch may be refused and a second accepted. The broker would then take the retry of
        # the first for a duplicate, and the batch would be lost silently.
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "max.in.flight": 1, "linger.ms": 5}
        self._producer: Any = _made(settings)
        self.refused: list[str] = []

    def send(self, topic: str, key: bytes, value: bytes, on_acknowledged: OnAcknowledged) -> None:
        """Queue a record. Blocks only while the queue is full.

        Args:
            topic: the topic.
            key: the key of the record.
            value: the value of the record.
            on_acknowledged: called in the producer's thread, by a later call of `serve`, `flush` or `send`.
        """

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                on_acknowledged(message.partition(), message.offset())
            else:
                self.refused.append(error.str())

        while True:
            try:
                self._producer.produce(topic, key=key, value=value, on_delivery=delivered)
                return
            except BufferError:
                self._producer.poll(0.1)

    def serve(self) -> None:
        """Call the callbacks that are due, in this thread. Does not block."""
        self._producer.poll(0)

    def flush(self, seconds: float) -> int:
        """Block for the outstanding answers, for so many seconds at most. Return the number of records without an answer."""
        return self._producer.flush(seconds)


class MockCluster:
    """librdkafka's mock cluster: a Kafka on loopback that lives as long as this object.

    A topic begins to exist at its first use, with 4 partitions of at most about 5 MB. The cluster has no compaction and no topic ids.

    Attributes:
        bootstrap: the addresses of the brokers.
    """

    def __init__(self, brokers: int = 1) -> None:
        self._producer: Any = _made({"test.mock.num.brokers": brokers})
        metadata = self._producer.list_topics(timeout=10)
        self.bootstrap = ",".join(f"{b.host}:{b.port}" for b in metadata.brokers.values())


def _made(settings: dict[str, Any]) -> Any:
    """Return a producer of confluent_kafka. Raises KafkaError if the client refuses the settings."""
    from confluent_kafka import KafkaException, Producer

    from kstream_kafka.client.librdkafka import client_log

    try:
        return Producer(settings, logger=client_log)
    except KafkaException as e:
        reason = e.args[0].str()
        raise KafkaError(f"a Kafka producer could not be made: {reason}", reason=reason) from e


def main() -> None:
    """Run as the process of an EmbeddedBroker: print the address, and block until standard input closes."""
    parser = argparse.ArgumentParser(prog="python -m kstream_kafka.demo.embedded_broker", description=__doc__)
    parser.add_argument("--brokers", type=int, default=1)
    brokers = parser.parse_args().brokers
    cluster = MockCluster(brokers)
    print(json.dumps({"bootstrap": cluster.bootstrap}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
