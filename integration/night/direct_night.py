"""DirectNight: a job with a direct stream and a state, its checkpoint on S3; database, broker and store go away."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from integration.kafka_broker import KafkaBroker
from integration.masters import IN_PROCESS, Master
from integration.night.campaign import KEYS, Durations, Night
from integration.s3_server import S3Process


class DirectNight(Night):
    """Every record is in one batch, once, and the totals by key are right."""

    job = "setup"

    def __init__(self, directory: Path, broker: KafkaBroker, s3: S3Process, durations: Durations, master: Master = IN_PROCESS) -> None:
        super().__init__(directory, broker, s3.url("night"), durations, master)
        self._s3 = s3

    def _outages(self) -> dict[str, Callable[[], None]]:
        return {
            "the database is away": self._database_away,
            "the broker is frozen": self._broker_frozen,
            "the broker is killed": self._broker_killed,
            "the store is away": self._store_away,
        }

    def _database_away(self) -> None:
        self._database.kill()
        time.sleep(self._durations.database)
        self._database.start()

    def _broker_killed(self) -> None:
        self._broker.kill9()
        time.sleep(self._durations.broker_dead)
        self._broker.restart()

    def _store_away(self) -> None:
        self._s3.go_away()
        time.sleep(self._durations.store)
        self._s3.come_back()

    def _environment(self) -> Mapping[str, str]:
        return self._s3.environment()

    def _counted(self) -> list[int]:
        return self._database.ids()

    def _others(self, produced: int) -> list[str]:
        right = {key: len(range(number, produced, len(KEYS))) for number, key in enumerate(KEYS)}
        found = self._database.totals()
        wrong = {key: (found.get(key, 0), right[key]) for key in KEYS if found.get(key) != right[key]}
        return [f"totals that are wrong, with the right ones: {wrong}"] if wrong else []
