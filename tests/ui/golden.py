"""The JSON of a job with failures, as the page has it: a limit, a data loss, a batch that fails.

python -m tests.ui.golden        # writes page.json anew, after a change of the forms
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kstream.batch import InputOutcome, JsonPlan
from kstream.batch_time import Time
from kstream.direct.direct_input_dstream import metadata_of
from kstream.offsets.offset_range import OffsetRange
from tests.fakes import INTERVAL
from tests.harness import START, Driver, LogInput, World
from tests.ui.looked_at import LookedAt

GOLDEN = Path(__file__).parent / "page.json"
FAILING, LOSING = START + 2 * INTERVAL, START + 3 * INTERVAL
_MOST = 4
_NAME = '<img src=x onerror="alert(1)">'
"""The name of the topic, as a topic of Kafka could not be named. The page must show it as text."""


class KafkaLike(LogInput):
    """Reads the list as partition 0 of a topic: it reports ranges, lag and a limit, and loses a record in one batch."""

    def metadata(self, time: Time, plan: JsonPlan) -> Any:
        ranges = [OffsetRange(_NAME, 0, plan["from"], plan["until"])]
        limit = {} if plan["until"] == len(self.log) else {"readLimit": {"reason": "maxRatePerPartition", "records": plan.num_records}}
        return metadata_of(ranges, {(_NAME, 0): len(self.log)}, {}, f"Kafka[Subscribe[{_NAME}]]", limit)

    def outcome(self, time: Time, plan: JsonPlan) -> InputOutcome:
        if time.milliseconds != LOSING:
            return InputOutcome([plan.num_records])
        return InputOutcome([plan.num_records - 1], [{"topic": _NAME, "partition": 0, "from": 0, "until": 1, "cause": "retention"}])


def build(host: Any, driver: Driver) -> None:
    """One output over the list."""
    driver.input = KafkaLike(host, driver.world.log, _MOST)
    driver.output(driver.input)


def run() -> dict[str, Any]:
    """Every answer of the page after three batches, the second of which has failed. Nothing in it depends on the machine."""
    world = World()
    job = LookedAt(world, _CONF, Driver(world, _CONF, build=build))
    clock = job.driver.clock

    def work(time: int) -> None:
        clock.advance(100, wait=False)
        if time == FAILING:
            raise ValueError(f"no such order: {_NAME}")

    job.driver.before_job = work
    job.start()
    try:
        for produced in (3, 6, 1):
            job.driver.tick(produced)
            job.driver.settle()
        answers = {what: job.get(what) for what in _PARTS}
        job.get("ledger")
        answers["statistics"] = job.get("statistics")
        answers["applications"] = job.ask("/api/v1/applications").json
        return as_anywhere(answers)
    finally:
        job.stop()


_CONF = {"spark.streaming.kstream.skipEmptyBatches": "true", "spark.streaming.concurrentJobs": "1"}
_PARTS = ("timeline", "batches", f"batches/{FAILING}", f"batches/{LOSING}", f"batches/{LOSING}/operations", "receivers", "lag", "decisions",
          "ledger", "settings")  # fmt: skip


def as_anywhere(answers: dict[str, Any]) -> dict[str, Any]:
    """The answers without what is different on another machine: host, process, ports, version, frames of tracebacks."""
    for key in ("host", "pid", "version", "metricsUrl"):
        answers["statistics"][key] = f"({key})"
    for operation in answers[f"batches/{FAILING}"]["operations"]:
        assert operation["failureReason"].startswith("Traceback")
        operation["failureReason"] = "(failureReason)"
    text = re.sub(r"[^\s\"]+\.py:\d+", "job.py:7", json.dumps(answers))
    return json.loads(text)


def shown(answers: dict[str, Any]) -> str:
    """The text of the golden file."""
    return json.dumps(answers, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    GOLDEN.write_text(shown(run()))
