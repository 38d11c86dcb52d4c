"""A poison record in the engine of `tests.harness`: an input that can leave records out, and an output that fails on them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kstream.batch import InputOutcome, JsonPlan, SkippedRecord
from kstream.batch_time import Time
from kstream.checkpoint import read_log
from kstream.checkpoint.history import read_ledger
from kstream.checkpoint.skip_request import SkipRequest, ask_to_skip
from kstream.storage import FileStore
from tests.fakes import FakeRDD
from tests.harness import Driver, LogInput, World

TOPIC = "log"


class LeavingOut(JsonPlan):
    """A plan of a LogInput with records to leave out."""

    def __init__(self, plan: JsonPlan, skipped: Collection[SkippedRecord]) -> None:
        super().__init__(plan.encode(), plan.num_records, plan.is_empty)
        self.skipped = frozenset(skipped)


class SkippingInput(LogInput):
    """A LogInput that can leave records out. Its one partition is `log`-0, and the offset of a record is its place in the list."""

    def without(self, plan: JsonPlan, skipped: Collection[SkippedRecord]) -> JsonPlan:
        return LeavingOut(plan, skipped)

    def rdd(self, time: Time, plan: JsonPlan) -> Any:
        left_out = {record.offset for record in plan.skipped}
        kept = [self.log[n] for n in range(plan["from"], plan["until"]) if n not in left_out]
        return FakeRDD(kept, (plan["from"], plan["until"]))

    def outcome(self, time: Time, plan: JsonPlan) -> InputOutcome:
        return InputOutcome([plan["until"] - plan["from"] - len(plan.skipped)], skipped=sorted(plan.skipped))


class PoisonError(Exception):
    """The output met a poison record."""


def poisoned(world: World, *poison: int, conf: dict[str, str] | None = None, window: int | None = None, **options: Any) -> Driver:
    """A driver, not started, whose output fails in a batch (or window) with one of these records."""
    world.poison = set(poison)  # pyright: ignore[reportAttributeAccessIssue]

    def build(host: Any, driver: Driver) -> None:
        host.graph._inputs.remove(driver.input)
        driver.input = SkippingInput(host, world.log)
        driver.output(driver.input if window is None else driver.input.window(window))

    driver = Driver(world, conf, build=build, **options)

    def meet(time: int) -> None:
        met = [record for record in world.attempts[-1].records if record in poison]
        if met:
            raise PoisonError(f"{met} in batch {time}")

    driver.before_job = meet
    return driver


def skip(store: FileStore, offset: int, at_ms: int = 5, time: Time | None = None, stream: int = 0) -> SkipRequest:
    """Ask for a record to be left out of the batch that has it, as `kstream skip` does."""
    contents = read_log(store)
    holders = [plan for plan in contents.plans.values() if stream in plan.inputs]
    (plan,) = [p for p in holders if p.inputs[stream]["from"] <= offset < p.inputs[stream]["until"] and time in (None, p.time)]
    return ask_to_skip(store, SkipRequest(plan.time, plan.epoch, SkippedRecord(stream, TOPIC, 0, offset), at_ms, "me"))


def left_out(store: FileStore) -> list[tuple[int, int]]:
    """(batch time, offset) of what batches have left out, by the ledger."""
    entries = [entry for entry in read_ledger(store) if entry.kind == "skipped"]
    return [(entry.time.milliseconds, record.offset) for entry in entries for records in entry.streams.values() for record in records]


def written(world: World) -> dict[int, tuple[Any, ...]]:
    """Batch time → the records of its last successful attempt: what an output that is idempotent by batch time holds."""
    return {a.time: a.records for a in world.attempts if a.finished}
