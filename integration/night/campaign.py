"""Night: the troubles of a night, one after the other, around one `kstream run`; and Verdict: whether all was counted exactly.

The kinds of nights are `direct_night` and `receiver_night`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from integration import kstream_run
from integration.kafka_broker import KafkaBroker
from integration.masters import IN_PROCESS, Master
from integration.night.database import Database
from integration.received.processes import children_of
from kstream.checkpoint import read_log
from kstream.checkpoint.history import read_ledger
from kstream.storage import open_store

TOPIC = "orders"
KEYS = ("apples", "pears", "plums", "quinces")
PARTITIONS = 2
RATE = 40
"""Records a second."""
INTERVAL_S = 3
BROKER = {"broker.session.timeout.ms": "9000"}
"""With the 3 s of other tests a broker on a busy machine fences itself."""
BATCH_LINE = re.compile(r"kstream\.batches: batch |kstream\.scheduler\.job_scheduler: (added jobs for time|total delay)")
"""What is logged of each batch."""


@dataclass(frozen=True)
class Durations:
    """How long each thing is away, in seconds."""

    database: float = 300
    broker_frozen: float = 60
    broker_dead: float = 60
    store: float = 120
    zookeeper_frozen: float = 60
    zookeeper_dead: float = 60
    quiet: float = 60


SHORT = Durations(database=12, broker_frozen=8, broker_dead=3, store=8, zookeeper_frozen=9, zookeeper_dead=2, quiet=2)


@dataclass(frozen=True)
class Verdict:
    """What is left of a night in the morning."""

    produced: int
    missing: list[int]
    twice: list[int]
    unknown: list[int]
    """Records that nobody has sent."""
    ledger: int
    exit_code: int
    restarts: int
    lines: int
    """Of the log, besides those of batches."""
    others: list[str]
    """What is wrong in this kind of night only, in words."""

    def breaches(self) -> list[str]:
        """What is not as it must be, in words."""
        found = {
            f"records that no batch has counted: {self.missing[:10]}": self.missing,
            f"records that were counted twice: {self.twice[:10]}": self.twice,
            f"records that nobody has sent: {self.unknown[:10]}": self.unknown,
            f"entries in the ledger: {self.ledger}": self.ledger,
            f"exit code {self.exit_code} after SIGTERM": self.exit_code,
            f"{self.lines} lines of log besides those of batches": self.lines >= 200,
            f"restarts: {self.restarts}, where a driver and a JVM were killed": self.restarts < 2,
        }
        return [*(words for words, breached in found.items() if breached), *self.others]


class Feed:
    """Sends records 0, 1, 2 … to Kafka, each exactly once, however long the brokers are away. Their keys take turns.

    It ends with its with block.
    """

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 0, "linger.ms": 20}
        self._producer = Producer({**settings, "log_level": 0}, logger=None)
        self._stop = threading.Event()
        self.sent = 0
        self.acknowledged = 0
        self._thread = threading.Thread(target=self._run, name="night-feed", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(1 / RATE):
            self._producer.produce(TOPIC, key=KEYS[self.sent % len(KEYS)], value=str(self.sent), on_delivery=self._delivered)
            self.sent += 1
            self._producer.poll(0)

    def _delivered(self, error: object, _message: object) -> None:
        assert error is None, error
        self.acknowledged += 1

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        """Returns when no more records are sent."""
        self._stop.set()
        self._thread.join()

    def finish(self) -> int:
        """Returns how many there are when Kafka has them all."""
        self._end()
        assert self._producer.flush(120) == 0 and self.acknowledged == self.sent
        return self.sent


class Night(ABC):
    """One `kstream run`, and what goes wrong around it. The records come from `broker`; a subclass has the job and what is away."""

    job: str
    """Its function in `integration.night.job`."""

    def __init__(self, directory: Path, broker: KafkaBroker, checkpoint: str, durations: Durations, master: Master = IN_PROCESS) -> None:
        self._directory, self._broker, self._checkpoint, self._durations = directory, broker, checkpoint, durations
        self._master = master
        self.log = directory / "log"
        self._database = Database(directory / "database.sqlite")
        self._patience = 300
        self.told: Callable[[str], None] = lambda _line: None

    @abstractmethod
    def _outages(self) -> dict[str, Callable[[], None]]:
        """What goes away and comes back, by name and in order. Each returns when it is back."""

    @abstractmethod
    def _counted(self) -> list[int]:
        """The records in the database; one that was counted twice is there twice."""

    @abstractmethod
    def _others(self, produced: int) -> list[str]:
        """What is wrong in this kind of night only, in words."""

    def _environment(self) -> Mapping[str, str]:
        """What the job and the checkpoint's store need."""
        return {}

    def run(self) -> Verdict:
        """Has the night. Call from the thread that has started the broker: Kafka's nodes end with the thread that starts them."""
        self._broker.create_topic(TOPIC, PARTITIONS)
        self._database.start()
        try:
            with self._running() as process:
                with Feed(self._broker.bootstrap) as self._feed:
                    self._settle("a quiet evening", process)
                    for name, trouble in self._troubles(process).items():
                        self.told(f"{name} …")
                        trouble()
                        self._settle(name, process)
                    produced = self._feed.finish()
                self._wait(lambda: len(self._counted()) >= produced, "the last records", process)
                process.send_signal(signal.SIGTERM)
                code = process.wait(self._patience)
        finally:
            self._database.kill()
        return self._verdict(produced, code)

    def _troubles(self, process: subprocess.Popen[bytes]) -> dict[str, Callable[[], None]]:
        """The troubles by name, in their order. Each returns when what was away is back."""
        return {
            **self._outages(),
            "the driver is killed": lambda: os.kill(self._driver(process), signal.SIGKILL),
            "the JVM is killed": lambda: os.kill(self._jvm(process), signal.SIGKILL),
        }

    def _broker_frozen(self) -> None:
        freeze(self._broker.pid, self._durations.broker_frozen)

    def _running(self) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """`kstream run` for the length of a with block."""
        environment = {
            **self._environment(),
            "SPARK_LOCAL_IP": "127.0.0.1",
            **self._master.environment,
            "NIGHT_SETTINGS": json.dumps(self._master.settings_with(self._environment())),
            "NIGHT_DATABASE": self._database.url,
            "NIGHT_BROKERS": self._broker.bootstrap,
            "NIGHT_TOPIC": TOPIC,
            "NIGHT_INTERVAL": str(INTERVAL_S),
        }
        return kstream_run.running(self._directory, f"integration.night.job:{self.job}", "--checkpoint", self._checkpoint, **environment)

    def _settle(self, name: str, process: subprocess.Popen[bytes]) -> None:
        """Returns when all that Kafka has acknowledged up to now is in the database, and some quiet time has passed."""
        wanted = self._feed.sent
        self._wait(lambda: len(self._counted()) >= max(wanted, 1), f"the records after: {name}", process)
        time.sleep(self._durations.quiet)

    def _wait(self, reached: Callable[[], bool], what: str, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + self._patience
        while not reached():
            if process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{what} did not come ({process.poll()}):\n{self.log.read_text(errors='replace')[-6000:]}")
            time.sleep(0.2)

    def _driver(self, process: subprocess.Popen[bytes]) -> int:
        (driver,) = children_of(process.pid)
        return driver

    def _jvm(self, process: subprocess.Popen[bytes]) -> int:
        found = children_of(self._driver(process))
        (jvm,) = [pid for pid in found if "java" in Path(f"/proc/{pid}/cmdline").read_text().partition("\0")[0]]
        return jvm

    def _verdict(self, produced: int, exit_code: int) -> Verdict:
        counted = Counter(self._counted())
        lines = self.log.read_text(errors="replace").splitlines()
        return Verdict(
            produced=produced,
            missing=sorted(set(range(produced)) - set(counted)),
            twice=sorted(record for record, times in counted.items() if times > 1),
            unknown=sorted(set(counted) - set(range(produced))),
            ledger=self._ledger(),
            exit_code=exit_code,
            restarts=sum("it is started again" in line for line in lines),
            lines=sum(not BATCH_LINE.search(line) for line in lines),
            others=self._others(produced),
        )

    def _ledger(self) -> int:
        """The entries of the ledger: batches given up, and records lost."""
        with _environment(self._environment()):
            store = open_store(self._checkpoint)
            assert not read_log(store).pending, "a graceful stop leaves no batch"
            return len(read_ledger(store))


def freeze(pid: int, seconds: float) -> None:
    """SIGSTOP, and SIGCONT when the time is over."""
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)


@contextmanager
def _environment(added: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(added)
    try:
        yield
    finally:
        for key in added:
            os.environ.pop(key)
        os.environ.update(before)
