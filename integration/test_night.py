"""Short nights of jobs: what is away comes back, one `kstream run` goes on, and in the end every record is counted exactly once.

The full nights are `make soak`.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from integration.kafka_broker import running_broker
from integration.night.campaign import BROKER, SHORT, Night, Verdict
from integration.night.direct_night import DirectNight
from integration.night.receiver_night import ReceiverNight
from integration.s3_server import running_s3
from integration.zookeeper_server import running_zookeeper


class Doomed(Night):
    """A night whose job ends at once, beside a broker that is away."""

    job = "none"

    def __init__(self, directory: Path) -> None:
        away: Any = SimpleNamespace(bootstrap="127.0.0.1:9", create_topic=lambda *_: None)
        super().__init__(directory, away, str(directory), SHORT)

    def _running(self) -> AbstractContextManager[subprocess.Popen[bytes]]:
        self.log.touch()
        return subprocess.Popen([sys.executable, "-c", ""])

    def _outages(self) -> dict[str, Callable[[], None]]:
        return {}

    def _counted(self) -> list[int]:
        return []

    def _others(self, produced: int) -> list[str]:
        return []


def test_a_night_that_fails_leaves_nothing_that_goes_on_sending(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a quiet evening"):
        Doomed(tmp_path).run()
    assert "night-feed" not in {thread.name for thread in threading.enumerate()}


def test_one_restart_too_few_is_told_as_what_it_is() -> None:
    verdict = Verdict(9, missing=[], twice=[], unknown=[], ledger=0, exit_code=0, restarts=1, lines=9, others=[])
    assert verdict.breaches() == ["restarts: 1, where a driver and a JVM were killed"]


def direct_night(directory: Path) -> Verdict:
    with running_broker(directory / "broker", BROKER) as broker, running_s3() as s3:
        return DirectNight(directory, broker, s3, SHORT).run()


def receiver_night(directory: Path) -> Verdict:
    with running_broker(directory / "broker", BROKER) as broker, running_zookeeper(directory / "zookeeper") as zookeeper:
        return ReceiverNight(directory, broker, zookeeper, SHORT).run()


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Future[Verdict]]]:
    """One night of each kind, both at once: they wait most of the time. Each has a thread, with which its servers end."""
    with ThreadPoolExecutor(2) as threads:
        yield {have.__name__: threads.submit(have, tmp_path_factory.mktemp(have.__name__)) for have in (direct_night, receiver_night)}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("night", ["direct_night", "receiver_night"])
def test_after_a_night_of_outages_and_kills_every_record_is_counted_once_and_the_log_is_short(
    night: str, nights: Mapping[str, Future[Verdict]]
) -> None:
    """And the offsets of a receiver in ZooKeeper are the ends of the log."""
    verdict = nights[night].result()
    print(verdict)
    assert verdict.breaches() == []
    assert verdict.restarts == 2, "only the killed driver and the killed JVM cost a restart"
