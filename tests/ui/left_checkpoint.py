"""A checkpoint that a simulated job leaves: killed drivers, batches that failed, were given up, left a record out or lost some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kstream.batch import InputOutcome, JsonPlan
from kstream.batch_time import Duration, Time
from kstream.checkpoint.driver_status import BatchFigures, DriverStatus, LastError, StreamLag
from kstream.offsets.offset_range import PlannedRange
from tests.harness import INTERVAL, START, Driver, World
from tests.skipping import TOPIC, poisoned, skip

DONE, SKIPPED, LOSSY, GIVEN_UP, FINE, FAILED, PENDING = (START + n * INTERVAL for n in range(1, 8))
LOSS = {"topic": TOPIC, "partition": 0, "from": 8, "until": 10, "cause": "retention", "detail": "removed too early"}
POISON = (5, 14, 20)
HISTORY = {"spark.streaming.kstream.history": "1h"}
GIVE_UP = {**HISTORY, "spark.streaming.kstream.maxBatchFailures": "1"}


def ranges_of(data: Mapping[str, Any]) -> Sequence[PlannedRange] | None:
    """As the tools of a connector would: the one range of a LogInput."""
    return [PlannedRange(TOPIC, 0, data["from"], data["until"])] if "from" in data else None


def started(world: World, conf: Mapping[str, str] = HISTORY) -> Driver:
    """A driver of the job, which has started and run what was pending. Its output fails on the poison records."""
    driver = poisoned(world, *POISON, conf=dict(conf))
    found = driver.input.outcome

    def outcome(time: Time, plan: JsonPlan) -> InputOutcome:
        known = found(time, plan)
        lost = [LOSS] if time.milliseconds == LOSSY else []
        return InputOutcome(known.counts, lost, skipped=known.skipped)

    driver.input.outcome = outcome
    driver.start()
    driver.settle()
    return driver


def _tick(driver: Driver, records: int) -> None:
    driver.tick_only(records)
    driver.settle()


def leave(world: World) -> None:
    """Seven batches of five drivers. The second failed twice and then left a record out, the fourth was given up, the last is pending."""
    driver = started(world)
    for records in (4, 4, 4):
        _tick(driver, records)
    driver.kill()
    started(world).kill()
    skip(world.store, 5)
    driver = started(world)
    for records in (4, 2):
        _tick(driver, records)
    driver.kill()
    started(world, GIVE_UP).kill()
    driver = started(world, GIVE_UP)
    _tick(driver, 3)
    driver.before_job = lambda _time: driver.die()
    _tick(driver, 2)
    driver.kill()


def status(written_ms: int, **changes: Any) -> DriverStatus:
    """The last status record of the fifth driver."""
    fields: dict[str, Any] = {
        "application": "orders",
        "epoch": 5,
        "host": "host-1",
        "pid": 4711,
        "started_ms": FINE,
        "written_ms": written_ms,
        "interval": Duration(INTERVAL),
        "last_planned": Time(PENDING),
        "unfinished": 2,
        "oldest_unfinished": Time(FAILED),
        "failed": 1,
        "recent": (BatchFigures(Time(FINE), 2, 3, 40), BatchFigures(Time(FAILED), 3, 5, -1, failed=True)),
        "lag": (StreamLag(0, "Kafka[Subscribe[log]]", 17, "backpressure"),),
        "last_error": LastError(FAILED + 50, "PoisonError: [20]", Time(FAILED), "0, pprint at job.py:7"),
    }
    return DriverStatus(**{**fields, **changes})
